"""Whether a text can replace another: what its plan goes on with, gets replayed or takes over, or why not."""

from __future__ import annotations

import pytest

from kasen.cql.bind.app import bind_text
from kasen.cql.bind.change import LiveCatalog
from kasen.cql.bound import Register
from kasen.errors import QueryError
from kasen.plan.keep.kept_windows import KeptWindows, QueryInCatalog, keep
from kasen.plan.physical import plan_app, plan_query

STREAMS = """
REGISTER STREAM s (k VARCHAR, a INTEGER, b INTEGER, ts BIGINT) TIMESTAMP BY ts FROM 'memory';
REGISTER STREAM r (k VARCHAR, a INTEGER, c INTEGER, ts BIGINT) TIMESTAMP BY ts FROM 'memory';
"""


def app_of(old: str, new: str) -> str:
    return f"{STREAMS} REGISTER QUERY q AS {old}; AT 5 REPLACE QUERY q AS {new};"


def kept(old: str, new: str) -> KeptWindows:
    app = bind_text(app_of(old, new))
    before = LiveCatalog.of(app)
    (change,) = app.changes
    after = before.after(change)
    (action,) = change.actions
    assert isinstance(action, Register)
    plans = plan_query(app.queries[0], before), plan_query(action.query, after)
    return keep(
        QueryInCatalog(app.queries[0], before), plans[0], QueryInCatalog(action.query, after), plans[1]
    )


def ways(old: str, new: str) -> list[str]:
    """The steps of the new plan that have something of the old one, and how they got it."""
    found = kept(old, new)
    assert found.refusal is None, found.refusal
    lines = [f"{type(node).__name__} goes on" for node in found.steps]
    lines += [
        f"{type(node).__name__} from {type(one.source).__name__}" for (node, _), one in found.replays.items()
    ]
    lines += [f"{type(node).__name__} with groups {one.calls}" for node, one in found.regroups.items()]
    return sorted(lines)


@pytest.mark.parametrize(
    ("old", "new", "how"),
    [
        (
            "SELECT k, MIN(a) AS v FROM s GROUP BY k",
            "SELECT k, MIN(a) AS v FROM s GROUP BY k HAVING COUNT(*) > 0",
            ["Aggregate with groups (0, -1)"],
        ),
        (
            "SELECT k, SUM(a) AS n, MIN(b) AS v, COUNT(*) AS m FROM s GROUP BY k",
            "SELECT k, MIN(b) AS v FROM s GROUP BY k",
            ["Aggregate with groups (1,)"],
        ),
        (
            "SELECT k, MIN(a) AS v FROM s [RANGE 6 SLIDE 2] GROUP BY k",
            "SELECT k, MIN(a) AS v FROM s [RANGE 6 SLIDE 2] GROUP BY k HAVING COUNT(*) > 0",
            ["SlidingAggregate with groups (0, -1)"],
        ),
        (
            "SELECT k, MIN(a) AS v FROM s [RANGE 6] GROUP BY k",
            "SELECT k, MIN(a) AS v FROM s [RANGE 6] GROUP BY k HAVING COUNT(*) > 0",
            ["WindowNode goes on"],
        ),
        (
            "SELECT k, SUM(a) AS v FROM s [RANGE 6] GROUP BY k",
            "SELECT MAX(a) AS v FROM s [RANGE 6] WHERE 1 = 1",  # SUM keeps a as a BIGINT
            ["WindowNode from WindowNode"],
        ),
        (
            "ISTREAM(SELECT a FROM s [ROWS 2])",
            "RSTREAM(SELECT a FROM s [ROWS 2])",
            ["WindowNode goes on"],
        ),
        (
            "ISTREAM(SELECT a FROM s [RANGE 2])",
            "RSTREAM(SELECT a FROM s [RANGE 2])",
            ["WindowActivity from WindowNode", "WindowNode goes on"],
        ),
        (
            "ISTREAM(SELECT s.k, s.a, r.c FROM s [ROWS 2], r [RANGE 3] WHERE s.k = r.k)",
            "DSTREAM(SELECT s.k, s.a, r.c FROM s [ROWS 2], r [RANGE 3] WHERE s.k = r.k)",
            ["WindowNode from MultiJoin", "WindowNode from MultiJoin"],
        ),
        ("SELECT a FROM s [RANGE 2]", "SELECT b FROM s [RANGE 3]", []),
        ("SELECT a FROM s [RANGE 2] WHERE a > 1", "SELECT b FROM s [RANGE 2] WHERE a > 2", []),
    ],
)
def test_a_new_text_goes_on_with_what_the_old_one_holds(old: str, new: str, how: list[str]) -> None:
    assert ways(old, new) == how


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            "SELECT a FROM s [RANGE 9]",
            "SELECT a, b FROM s [RANGE 9]",
            "its old text does not keep b of s [RANGE 9]",
        ),
        (
            "SELECT k, COUNT(*) AS n FROM s [RANGE 9] GROUP BY k HAVING k > 'a'",
            "SELECT k, COUNT(*) AS n FROM s [RANGE 9] GROUP BY k",
            "its old text keeps only those tuples of s [RANGE 9] for which k > 'a'",
        ),
        (
            "SELECT k, MIN(a) AS v FROM s GROUP BY k",
            "SELECT k, MAX(a) AS v FROM s GROUP BY k",
            "what its old text keeps of s [UNBOUNDED] is not its rows",
        ),
        (
            "SELECT k, MIN(a) AS v FROM s [RANGE 6 SLIDE 2] GROUP BY k",
            "SELECT MIN(a) AS v FROM s [RANGE 6 SLIDE 2]",
            "what its old text keeps of s [RANGE 6 SLIDE 2] is not its rows",
        ),
        (
            "ISTREAM(SELECT a FROM s)",
            "SELECT COUNT(*) AS n FROM s",
            "the rows so far of s [UNBOUNDED] are kept nowhere",
        ),
        ("ISTREAM(SELECT a FROM s)", "SELECT a FROM s", "the rows so far of s [UNBOUNDED] are kept nowhere"),
        (
            "ISTREAM(SELECT a FROM s [RANGE 9] WHERE a > 1)",
            "RSTREAM(SELECT a FROM s [RANGE 9] WHERE a > 1)",
            "RSTREAM fires when any tuple leaves, and its old text keeps only those tuples of s [RANGE 9]",
        ),
        (
            "SELECT a FROM s [RANGE 6 SLIDE 2]",
            "SELECT a, window_end() AS t FROM s [RANGE 6 SLIDE 2]",
            "the bounds of the last report of s [RANGE 6 SLIDE 2] are not known",
        ),
        (
            "SELECT a FROM s [PARTITION BY k ROWS 2]",
            "SELECT b FROM s [PARTITION BY k ROWS 2]",
            "its old text does not keep b of s [PARTITION BY k ROWS 2]",
        ),
    ],
)
def test_a_text_is_refused_that_needs_more_than_the_old_one_remembers(old: str, new: str, why: str) -> None:
    with pytest.raises(QueryError) as caught:
        plan_app(bind_text(app_of(old, new)))
    assert str(caught.value).startswith(f"error: q cannot be replaced: {why}")
    assert "help: DROP QUERY q, and register it in a second change" in str(caught.value)
