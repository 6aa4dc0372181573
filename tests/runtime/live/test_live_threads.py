"""Queries that come and go in other threads than the one that pushes."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa

import kasen
from kasen.errors import QueryError

STREAM = "REGISTER STREAM s (v BIGINT) TIMESTAMP BY ts FROM 'memory';\n"
ROWS, PUSHES = 500, 200


def run_beside(p: kasen.Pipeline, changes: list[threading.Thread]) -> None:
    """Pushes rows whose values count up, while other threads change queries; until both are done."""
    p.push("s", {"ts": [-1], "v": [-1]})
    for thread in changes:
        thread.start()
    at = 0
    while at < ROWS * PUSHES or any(thread.is_alive() for thread in changes):
        numbers = np.arange(at, at + ROWS)
        p.push("s", pa.table({"ts": numbers, "v": numbers}))
        at += ROWS
    for thread in changes:
        thread.join()


def test_each_query_sees_all_tuples_from_its_instant_on_and_no_other() -> None:
    p = kasen.Pipeline(engine="local").execute(STREAM + "REGISTER QUERY all_ AS ISTREAM(SELECT v FROM s);")
    p.query("all_").discard()
    errors: list[Exception] = []

    def change(worker: int) -> None:
        try:
            for number in range(30):
                name = f"q{worker}_{number}"
                p.execute(f"REGISTER QUERY {name} AS ISTREAM(SELECT v FROM s WHERE v >= 0)")
                if number % 2:
                    p.execute(f"REPLACE QUERY {name} AS ISTREAM(SELECT v FROM s WHERE v >= -1)")
                if number % 3 == 0:
                    p.execute(f"DROP QUERY {name}")
        except Exception as error:  # told by the test's own thread
            errors.append(error)

    run_beside(p, [threading.Thread(target=change, args=(worker,)) for worker in range(2)])
    p.drain()
    assert not errors
    last = set()
    for worker in range(2):
        for number in range(30):
            seen = p.query(f"q{worker}_{number}").to_arrow()["v"].to_numpy()
            assert (np.diff(seen) == 1).all()
            if number % 3:
                last.add(int(seen[-1]))
    assert len(last) == 1  # those that stayed saw the end


def test_of_two_that_want_one_name_at_once_one_gets_it() -> None:
    p = kasen.Pipeline(engine="local").execute(STREAM + "REGISTER QUERY all_ AS ISTREAM(SELECT v FROM s);")
    p.query("all_").discard()
    won: list[int] = []
    refused: list[str] = []
    both = threading.Barrier(2)

    def change(worker: int) -> None:
        for number in range(50):
            both.wait(300)
            try:
                p.execute(f"REGISTER QUERY n{number} AS ISTREAM(SELECT v + {worker} AS v FROM s)")
                p.query(f"n{number}").discard()
                won.append(number)
            except QueryError as error:
                refused.append(error.fault)

    run_beside(p, [threading.Thread(target=change, args=(worker,)) for worker in range(2)])
    assert sorted(won) == list(range(50))
    assert sorted(refused) == sorted(f"'n{number}' is registered already" for number in range(50))
