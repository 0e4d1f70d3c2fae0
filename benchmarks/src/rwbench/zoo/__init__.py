"""The models that ship with the package, and the scripts that train them."""
