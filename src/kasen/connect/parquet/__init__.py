"""Parquet files: source and sink."""
