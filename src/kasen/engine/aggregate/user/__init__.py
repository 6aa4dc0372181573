"""GROUP BY with aggregates that users write in Python, beside those of CQL."""
