"""Durable epochs on Spark: which files hold state, where they lie, and what Spark noted itself."""
