"""Bids in an auction, and the items that are for sale.

The same rows and seed give the same files. Without arguments this rewrites the sample in data/.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

START = np.datetime64("2026-01-05T10:00:00.000", "ms")
GAP_MS = 3000.0
BIDDERS = 200

# title, category, opening price, reserve (below which the owner does not sell)
ITEMS = [
    ("tea bowl", "ceramics", 900, 1600),
    ("hanging scroll", "painting", 1800, 3200),
    ("iron kettle", "metalwork", 700, 1500),
    ("folding screen", "painting", 3500, 7000),
    ("sword guard", "metalwork", 1200, 2000),
    ("incense box", "lacquer", 400, 900),
    ("writing box", "lacquer", 1500, 2600),
    ("flower vase", "ceramics", 600, 1200),
    ("woodblock print", "painting", 800, 1700),
    ("sake flask", "ceramics", 300, 500),
    ("comb", "lacquer", 200, 450),
    ("temple bell", "metalwork", 5000, 9500),
]


def generate(rows: int, seed: int) -> dict[str, pa.Table]:
    return {"bids": bids(rows, np.random.default_rng(seed)), "items": items()}


def bids(rows: int, rng: np.random.Generator) -> pa.Table:
    """Some items draw more bids than others; an item's price climbs with its bids, ever more slowly."""
    popularity = 1.0 / np.arange(2, len(ITEMS) + 2)
    item = rng.choice(len(ITEMS), rows, p=popularity / popularity.sum())
    opening = np.array([price for _, _, price, _ in ITEMS])[item]
    climb = 1.0 + np.log1p(earlier_equals(item)) / 3.0
    haste = rng.uniform(0.9, 1.15, rows)
    return pa.table(
        {
            "item_id": (item + 1).astype(np.int32),
            "bid_price": np.round(opening * climb * haste).astype(np.int64),
            "bidder": rng.integers(1, BIDDERS + 1, rows, dtype=np.int32),
            "timestamp": START + np.cumsum(rng.exponential(GAP_MS, rows)).astype("timedelta64[ms]"),
        }
    )


def earlier_equals(values: np.ndarray) -> np.ndarray:
    """For each position, how many equal values stand before it."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    firsts = np.searchsorted(ordered, ordered, side="left")
    counts = np.empty(len(values), np.int64)
    counts[order] = np.arange(len(values)) - firsts
    return counts


def items() -> pa.Table:
    titles, categories, _, reserves = zip(*ITEMS, strict=True)
    return pa.table(
        {
            "item_id": np.arange(1, len(ITEMS) + 1, dtype=np.int32),
            "title": list(titles),
            "category": list(categories),
            "reserve": np.array(reserves, np.int64),
        }
    )


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        pa.csv.write_csv(table, path, pa.csv.WriteOptions(quoting_style="none", quoting_header="none"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300, help="bids")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--format", choices=("csv", "parquet"), default="csv")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, table in generate(args.rows, args.seed).items():
        write(table, args.out / f"{name}.{args.format}")


if __name__ == "__main__":
    main()
