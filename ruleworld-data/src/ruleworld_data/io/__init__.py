"""In and out: parquet builds, the `datasets` loader and its hook, exports and the Hub."""
