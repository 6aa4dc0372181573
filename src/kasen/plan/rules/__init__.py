"""The rewrites of logical plans, one a file."""
