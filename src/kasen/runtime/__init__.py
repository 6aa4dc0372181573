"""Running pipelines in one process."""
