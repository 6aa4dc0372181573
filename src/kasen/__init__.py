"""Kasen: continuous queries over streams, on Spark or in one process."""

__version__ = "0.1.0"
