"""Queries that are registered, replaced and dropped while data flows."""
