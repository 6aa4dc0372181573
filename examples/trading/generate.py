"""A stock market, the money that an investor starts each day with, and the broker's reports on what is held.

The broker's reports depend on what the application buys, so this follows the application's rule: it buys
1000 of a stock that is quoted below 500, is not held, and can be paid for. The broker reports a purchase one
second later, and sells all in the evening.
The same rows and seed give the same files. Without arguments this rewrites the sample in data/.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

FIRST_DAY = np.datetime64("2026-01-05", "ms")
OPENING = np.timedelta64(9 * 3600 * 1000, "ms")
FIRST_QUOTE = np.timedelta64(1000, "ms")  # after the opening
REPORT_AFTER = np.timedelta64(1000, "ms")  # a purchase
TRADING_MS = 6 * 3600 * 1000
CLOSING = OPENING + np.timedelta64(TRADING_MS + 60_000, "ms")

STOCKS = ["a", "b", "c", "d", "e", "f", "g", "h"]
LEAST_PRICE, GREATEST_PRICE = 420, 560
MONEY = 3_000_000
LOT, LIMIT = 1000, 500

Report = tuple[np.datetime64, str, int, int]


def generate(rows: int, seed: int, days: int = 3) -> dict[str, pa.Table]:
    """`rows` quotes over `days` days, the money at each opening, and the broker's reports."""
    ts, stock, price = quotes(rows, days, np.random.default_rng(seed))
    openings = FIRST_DAY + np.arange(days) * np.timedelta64(1, "D") + OPENING
    times, ids, nums, prices = zip(*reports(ts, stock, price, days), strict=True)
    return {
        "market": pa.table({"ts": ts, "stock_id": pa.array(STOCKS).take(pa.array(stock)), "price": price}),
        "initial_resource": pa.table({"ts": openings, "val": np.full(days, MONEY)}),
        "stock_stream": pa.table({"ts": np.array(times), "id": ids, "num": nums, "price": prices}),
    }


def quotes(rows: int, days: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Prices walk at random between two bounds; the very first quote is (a, 480)."""
    day = np.arange(rows) * days // max(rows, 1)
    within = np.sort(rng.integers(0, TRADING_MS, rows) + day * TRADING_MS) - day * TRADING_MS
    within[:1] = 0
    stock = rng.integers(0, len(STOCKS), rows)
    stock[:1] = 0

    span = GREATEST_PRICE - LEAST_PRICE
    level = rng.integers(0, span, len(STOCKS))[stock]
    for number in range(len(STOCKS)):
        mine = stock == number
        level[mine] += np.cumsum(rng.integers(-15, 16, np.count_nonzero(mine)))
    folded = level % (2 * span)
    price = LEAST_PRICE + np.minimum(folded, 2 * span - folded)
    price[:1] = 480
    ts = FIRST_DAY + day * np.timedelta64(1, "D") + OPENING + FIRST_QUOTE + within.astype("timedelta64[ms]")
    return ts, stock, price


def reports(ts: np.ndarray, stock: np.ndarray, price: np.ndarray, days: int) -> list[Report]:
    """What the broker says: nothing is held at first, then every purchase, then every sale, day by day."""
    opening = FIRST_DAY + OPENING
    said: list[Report] = [(opening, name, 0, 0) for name in STOCKS]
    for day in range(days):
        midnight = FIRST_DAY + np.timedelta64(day, "D")
        today = slice(*np.searchsorted(ts, [midnight, midnight + np.timedelta64(1, "D")]))
        bought = purchases(ts[today], stock[today], price[today])
        said += bought
        said += [(midnight + CLOSING, name, 0, 0) for name in sorted({name for _, name, _, _ in bought})]
    return said


def purchases(ts: np.ndarray, stock: np.ndarray, price: np.ndarray) -> list[Report]:
    """One day's purchases, as reported: found one after another, as each leaves less money for the next."""
    money, position = MONEY, 0
    held: Counter[str] = Counter()
    known_from = np.full(len(STOCKS), np.datetime64("9999-01-01", "ms"))
    said: list[Report] = []
    while True:
        possible = (price < LIMIT) & (price * LOT < money) & (ts < known_from[stock])
        possible[:position] = False
        if not possible.any():
            return said
        at = int(possible.argmax())
        name = STOCKS[stock[at]]
        money -= int(price[at]) * LOT
        held[name] += LOT
        report_at = ts[at] + REPORT_AFTER
        known_from[stock[at]] = min(known_from[stock[at]], report_at)
        said.append((report_at, name, held[name], int(price[at])))
        position = at + 1


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        pa.csv.write_csv(table, path, pa.csv.WriteOptions(quoting_style="none", quoting_header="none"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300, help="quotes on all days together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--format", choices=("csv", "parquet"), default="csv")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, table in generate(args.rows, args.seed, args.days).items():
        write(table, args.out / f"{name}.{args.format}")


if __name__ == "__main__":
    main()
