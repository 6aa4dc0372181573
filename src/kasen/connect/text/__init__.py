"""What csv and JSON share: blocks of text, cells to columns, rows to text, files that grow."""
