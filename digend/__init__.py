"""digend, the library: the only package that a plug-in imports. Importing it imports nothing heavy."""

__version__ = "0.1.0"
