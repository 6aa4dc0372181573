"""The oracle: the judge of correctness.

Slow, obvious code that recomputes every instant from the definitions of CQL, and leaves the meaning of
SQL to DuckDB. It shares no code with the engine beyond the parser and binder. Read it in this order:

- instants.py              points of application time
- inputs.py, csv_text.py   files to tuples with instants; late and bad rows
- windows.py               what a window holds at an instant, from the stream's whole history
- relations.py             streams and relations: windows, queries, ISTREAM/DSTREAM/RSTREAM, delays
- sql.py, expressions.py   a bound query as one DuckDB statement
- bridges.py, values.py    where DuckDB's SQL differs from CQL's
- run.py                   the instant loop
"""

from __future__ import annotations

from tests.oracle.inputs import DeadLetter, sniffer
from tests.oracle.run import OutputRow, Result, Run, run_app

__all__ = ["DeadLetter", "OutputRow", "Result", "Run", "run_app", "sniffer"]
