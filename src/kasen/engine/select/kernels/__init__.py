"""The kernel of the selection network."""
