from __future__ import annotations

import numpy as np

from kasen.engine.expr.kernels.calendar import DAY, MONTH, YEAR, civil, extract, month_start


def test_every_day_of_some_centuries_has_its_date() -> None:
    """Against numpy's calendar: the turns of centuries and eras, before and after 1970."""
    days = np.concatenate([np.arange(first, first + 150_000) for first in (-800_000, -75_000, 80_000_000)])
    ts = days * 86_400_000_000 + 12_345
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    expected = {
        YEAR: dates.astype("datetime64[Y]").astype(np.int64) + 1970,
        MONTH: months.astype(np.int64) % 12 + 1,
        DAY: (dates - months).astype(np.int64) + 1,
    }
    for part, wanted in expected.items():
        out = np.empty(len(ts), np.int64)
        extract(ts, part, out)
        assert (out == wanted).all()


def test_months_start_where_their_first_day_is() -> None:
    for year in (-400, -1, 0, 1, 1900, 1970, 2000, 2024, 294_000):
        for month in range(1, 13):
            assert civil(month_start(year, month)) == (year, month, 1)
