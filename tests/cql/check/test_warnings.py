"""Warnings about streams that are remembered for ever."""

from __future__ import annotations

import pytest

from kasen.cql.bind.app import bind_text
from tests.cql.corpus import registered


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT a FROM s", []),
        ("SELECT a FROM s WHERE a > 1", []),
        ("SELECT a, COUNT(*), MAX(b) FROM s GROUP BY a", []),
        ("ISTREAM(SELECT a FROM s UNION ALL SELECT a FROM t)", []),
        ("SELECT s.a FROM s [ROWS 5], t [RANGE 1 HOUR], r", []),
        ("SELECT DISTINCT a FROM s [RANGE 1 HOUR]", []),
        ("SELECT s.a FROM s, t [NOW]", ["s under a join"]),
        ("SELECT COUNT(*) FROM s, t", ["s under a join", "t under a join"]),
        ("SELECT DISTINCT a FROM s", ["s under DISTINCT"]),
        ("SELECT DISTINCT COUNT(*) FROM s", []),
        ("SELECT COUNT(DISTINCT a) FROM s", ["s under DISTINCT"]),
        ("SELECT MEDIAN(a) FROM s", ["s under a percentile"]),
        ("SELECT a FROM s UNION SELECT a FROM t [NOW]", ["s under UNION"]),
        ("SELECT a FROM s EXCEPT ALL SELECT a FROM t AS x", ["s under EXCEPT", "x under EXCEPT"]),
        ("RSTREAM(SELECT a FROM s)", ["s under RSTREAM"]),
        ("RSTREAM(SELECT COUNT(*) FROM s)", []),
        (
            "SELECT a FROM s WHERE a NOT IN (SELECT a FROM t)",
            ["s under IN or EXISTS", "t under IN or EXISTS"],
        ),
        ("SELECT a FROM s [NOW] WHERE EXISTS (SELECT 1 FROM t)", ["t under IN or EXISTS"]),
        ("SELECT a FROM s WHERE a > (SELECT AVG(x) FROM t)", []),
        ("SELECT a FROM s [NOW] WHERE a > (SELECT MEDIAN(x) FROM t)", ["t under a percentile"]),
        ("SELECT x.a FROM (ISTREAM(SELECT a FROM s)) [ROWS 5] x, t [NOW]", []),
        ("SELECT s.a FROM (ISTREAM(SELECT a FROM t)), s [NOW]", ["the sub-query under a join"]),
        ("SELECT x.a FROM (SELECT a FROM s) x, t [NOW]", ["s under a join"]),
    ],
)
def test_a_stream_without_a_window_is_told_where_it_is_remembered(query: str, told: list[str]) -> None:
    expected = [
        "q: {} is [UNBOUNDED] under {}, so its state grows for ever; give it a window".format(
            *one.split(" under ")
        )
        for one in told
    ]
    assert list(bind_text(registered(query)).warnings) == expected
