"""csv files: source and sink."""
