"""The checks of an installation, one a module."""
