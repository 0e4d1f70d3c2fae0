"""DynaRule: rules as key/value memory inside a frozen language model."""

__version__ = "0.1.0"
