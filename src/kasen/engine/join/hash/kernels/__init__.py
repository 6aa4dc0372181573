"""The kernel of the hash join."""
