"""From CQL text to bound statements."""
