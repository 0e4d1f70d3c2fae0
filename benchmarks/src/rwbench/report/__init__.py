"""Results as pages, figures and tables, and runs compared in pairs."""
