"""Quotes for the trading desk: many stocks whose prices walk at random, at irregular milliseconds of a day.

A stock's price moves by small steps around a level of its own and drifts back to it, so that it is cheap from
time to time. Busy stocks are quoted more often than quiet ones, and several quotes share a millisecond.
The same rows and seed give the same files. Without arguments this rewrites the sample in desk/.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

OPENING = np.datetime64("2026-01-05T09:00:00", "ms")
CASH = 5_000_000
PULL = 0.002  # how much of the way back to its level a price goes at each quote


def generate(rows: int, seed: int, stocks: int = 200, cash: int = CASH) -> dict[str, pa.Table]:
    """`rows` quotes of so many stocks, the cash at the opening, and what is traded."""
    rng = np.random.default_rng(seed)
    names = pa.array([f"S{number:03d}" for number in range(stocks)])
    level = np.rint(np.exp(rng.normal(6.5, 0.8, stocks))).astype(np.int64) + 20
    stock, price = quotes(rows, level, rng)
    # Quotes come in bursts: the gap to the next is often none at all.
    gaps = rng.poisson(rng.gamma(0.4, 2.5, rows))
    ts = OPENING + np.timedelta64(1, "s") + np.cumsum(gaps).astype("timedelta64[ms]")
    start = np.full(stocks, OPENING)
    return {
        "market": pa.table({"ts": ts, "stock": names.take(pa.array(stock)), "price": price}),
        "opening": pa.table({"ts": start[:1], "amount": [cash]}),
        "listing": pa.table({"ts": start, "stock": names, "cheap": level * 97 // 100}),
    }


def quotes(rows: int, level: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Which stock each quote is of, and its price."""
    stocks = len(level)
    busy = rng.pareto(1.2, stocks) + 0.2
    stock = rng.choice(stocks, rows, p=busy / busy.sum())
    price = np.empty(rows, np.int64)
    for number in range(stocks):
        mine = np.flatnonzero(stock == number)
        steps = rng.normal(0.0, 0.008, len(mine))
        walk = np.empty(len(mine))
        away = 0.0
        for i, step in enumerate(steps.tolist()):
            away += step - PULL * away
            walk[i] = away
        price[mine] = np.maximum(1, np.rint(level[number] * np.exp(walk)))
    return stock, price


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=700, help="quotes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stocks", type=int, default=6)
    parser.add_argument("--cash", type=int, default=120_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "desk")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    options = pa.csv.WriteOptions(quoting_style="none", quoting_header="none")
    for name, table in generate(args.rows, args.seed, args.stocks, args.cash).items():
        pa.csv.write_csv(table, args.out / f"{name}.csv", options)


if __name__ == "__main__":
    main()
