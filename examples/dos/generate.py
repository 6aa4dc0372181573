"""Packets seen at two sites, Tsukuba and UEC, with an attack on one port at both of them.

The same rows and seed give the same files. Without arguments this rewrites the sample in data/.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

START = np.datetime64("2026-01-05T09:00:00.000", "ms")
PORTS = np.array([443, 80, 53, 22, 25, 123, 3389, 23], np.int32)
SHARES = np.array([0.22, 0.18, 0.15, 0.12, 0.12, 0.10, 0.09, 0.02])
ATTACKED_PORT = 23
ATTACK = (0.45, 0.75)  # from which share of the rows to which
ATTACK_SHARE = 0.8  # of the packets in that time; the rest is the usual traffic
GAP_MS, ATTACK_GAP_MS = 50.0, 5.0

USERS = [f"198.51.100.{host}" for host in range(1, 255)]
BOTS = [f"203.0.113.{host}" for host in range(1, 41)]


def generate(rows: int, seed: int) -> dict[str, pa.Table]:
    """One table a site, each with `rows` packets in order of time."""
    rng = np.random.default_rng(seed)
    return {site: packets(rows, rng) for site in ("tsukuba", "uec")}


def packets(rows: int, rng: np.random.Generator) -> pa.Table:
    position = np.arange(rows) / max(rows, 1)
    under_attack = (position >= ATTACK[0]) & (position < ATTACK[1])
    attacking = under_attack & (rng.random(rows) < ATTACK_SHARE)

    gaps = rng.exponential(np.where(under_attack, ATTACK_GAP_MS, GAP_MS))
    ports = rng.choice(PORTS, rows, p=SHARES)
    users = rng.integers(0, len(USERS), rows)
    bots = rng.integers(0, len(BOTS), rows) + len(USERS)
    sizes = rng.integers(60, 1500, rows, dtype=np.int32)
    return pa.table(
        {
            "ts": START + np.cumsum(gaps).astype("timedelta64[ms]"),
            "srcip": pa.array(USERS + BOTS).take(pa.array(np.where(attacking, bots, users))),
            "dstport": np.where(attacking, np.int32(ATTACKED_PORT), ports),
            "bytes": np.where(attacking, np.int32(60), sizes),
        }
    )


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        pa.csv.write_csv(table, path, pa.csv.WriteOptions(quoting_style="none", quoting_header="none"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300, help="packets at each site")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--format", choices=("csv", "parquet"), default="csv")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, table in generate(args.rows, args.seed).items():
        write(table, args.out / f"{name}.{args.format}")


if __name__ == "__main__":
    main()
