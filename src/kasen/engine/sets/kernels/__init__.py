"""The kernel of set operations."""
