"""Files of JSON lines: source and sink."""
