"""What is known of a cell of a text source while it is being read: one byte a cell."""

from __future__ import annotations

#: Not in the record at all (JSON), or there and NULL.
ABSENT, NULL = 0, 1
#: Text as it stands; csv text with quotes still in it; JSON's numbers, true and false.
TEXT, ESCAPED, NUMBER, TRUE, FALSE = 2, 3, 4, 5, 6
#: Read: its value is known. ROUND: surely a DOUBLE, but with too many digits to be made one by a kernel.
READ, ROUND = 7, 8
