"""What waits because one stream is ahead of another has a limit, and the error says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from kasen.cql.bind import bind_text
from kasen.errors import ResourceError
from kasen.spark.admission import check_held

APP = """
REGISTER STREAM fast (k BIGINT, ts BIGINT) TIMESTAMP BY ts FROM 'memory';
REGISTER STREAM slow (k BIGINT, ts BIGINT) TIMESTAMP BY ts FROM 'memory';
REGISTER QUERY q AS SELECT fast.k FROM fast [ROWS 1], slow [ROWS 1] WHERE fast.k = slow.k;
"""


def test_what_waits_below_the_limit_may_wait(tmp_path: Path) -> None:
    check_held(bind_text(APP, tmp_path), {"fast": 1000, "slow": 0}, most=8 * 5 * 1000)


def test_a_stream_that_is_too_far_ahead_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="1,001 tuples of fast wait for slow") as caught:
        check_held(bind_text(APP, tmp_path), {"fast": 1001, "slow": 0}, most=8 * 5 * 1000)
    assert "read less of fast at once" in str(caught.value)
