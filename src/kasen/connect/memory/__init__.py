"""Rows that a program hands over, and changes that it reads: source and sink in memory."""
