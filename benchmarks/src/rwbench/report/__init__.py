"""Results as pages, figures and tables."""
