"""Columns of an input's frame beside its own."""

from __future__ import annotations

#: The row's file, block and place, +1 or -1, why it is bad, and its text.
FILE, BLOCK, PLACE, DIFF, BAD, RAW = "_file", "_block", "_place", "_diff", "_bad", "_raw"
#: Why a row without a time is bad.
NO_TIME = "bad timestamp: missing or not a time"
#: Spark's maxFilesPerTrigger: CQL does not tell upper from lower case in names of options.
FILES_PER_EPOCH = "maxfilespertrigger"
