"""Readings of temperature, light and acceleration from a few sensors, slightly out of order.

Every value is a random walk in steps of the sensor's resolution, so the data compresses as a real sensor's
would, and by the same ratio each time. The same arguments give the same file. Without any this rewrites the
sample in data/.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

START = np.datetime64("2026-01-05T12:00:00.000000", "us")


class Scale(NamedTuple):
    """What a sensor can measure, and by how many units of its resolution a value may change at a time."""

    least: float
    greatest: float
    resolution: float
    step: int


# The resolutions are powers of two (or whole), so that sums over the values are exact.
SCALES = {
    "temperature": Scale(15.0, 35.0, 1 / 16, 4),  # degrees Celsius
    "illuminance": Scale(0.0, 1000.0, 1.0, 20),  # lux
    "x": Scale(-0.5, 0.5, 1 / 256, 12),  # acceleration in g
    "y": Scale(-0.5, 0.5, 1 / 256, 12),
    "z": Scale(0.5, 1.5, 1 / 256, 12),
}
DELAYED_SHARE = 0.1  # of the readings
GREATEST_DELAY_US = 500_000  # they come less than this late: the SLACK that the application declares


def generate(rows: int, seed: int, sensors: int = 4, rate: int = 20) -> dict[str, pa.Table]:
    """`rows` readings of `sensors` sensors that take turns, `rate` readings a second in all."""
    rng = np.random.default_rng(seed)
    number = np.arange(rows)
    taken = number * 1_000_000 // rate
    columns = {"id": number % sensors + 1, "timestamp": START + taken.astype("timedelta64[us]")}
    for name, scale in SCALES.items():
        columns[name] = walks(rows, sensors, scale, rng)

    delay = np.where(rng.random(rows) < DELAYED_SHARE, rng.integers(0, GREATEST_DELAY_US, rows), 0)
    arrival = np.argsort(taken + delay, kind="stable")
    return {"readings": pa.table({name: values[arrival] for name, values in columns.items()})}


def walks(rows: int, sensors: int, scale: Scale, rng: np.random.Generator) -> np.ndarray:
    """One random walk a sensor, interleaved; a walk that reaches a bound is reflected."""
    levels = round((scale.greatest - scale.least) / scale.resolution)
    turns = -(-rows // sensors)
    steps = rng.integers(-scale.step, scale.step + 1, (turns, sensors))
    steps[:1] = rng.integers(levels // 4, 3 * levels // 4, sensors)
    folded = np.cumsum(steps, axis=0) % (2 * levels)
    level = np.minimum(folded, 2 * levels - folded)
    return scale.least + scale.resolution * level.reshape(-1)[:rows]


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        pa.csv.write_csv(table, path, pa.csv.WriteOptions(quoting_style="none", quoting_header="none"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400, help="readings of all sensors together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sensors", type=int, default=4)
    parser.add_argument("--rate", type=int, default=20, help="readings a second of all sensors together")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--format", choices=("csv", "parquet"), default="csv")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, table in generate(args.rows, args.seed, args.sensors, args.rate).items():
        write(table, args.out / f"{name}.{args.format}")


if __name__ == "__main__":
    main()
