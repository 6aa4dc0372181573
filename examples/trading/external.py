"""The trading desk with its loop closed outside: the application feeds the cash and the positions back.

The rules are those of desk.cql. But here the pipeline only decides; the application books its trades, and
pushes the new cash and positions as tuples that arrive some milliseconds later. Until they do, further
quotes are judged by cash that is already spent: the reason that [DTS] gives for loops inside the system.

    .venv/bin/python examples/trading/external.py --latency 20
"""

from __future__ import annotations

import argparse
import importlib.util
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa

import kasen

HERE = Path(__file__).parent
STREAMS = {
    "market": "stock VARCHAR, price BIGINT",
    "cash_stream": "amount BIGINT",
    "position_stream": "stock VARCHAR, cheap BIGINT, held BIGINT, paid BIGINT",
}
# The rules stay, and so does what is remembered; where it comes from changes.
DROPPED = ("market", "opening", "listing", "cash_stream", "position_stream")


@dataclass
class Ledger:
    """What the desk really has. `least` is the least cash that it ever had."""

    cash: int
    held: dict[str, int]
    least: int = 0
    trades: int = 0
    unpaid: int = 0
    waiting: list[tuple[datetime, str, int]] = field(default_factory=list)

    def book(self, stock: str, num: int, price: int) -> None:
        self.cash -= num * price
        self.held[stock] += num
        self.trades += 1
        self.unpaid += num > 0 and self.cash < 0
        self.least = min(self.least, self.cash)


def app_text() -> str:
    """desk.cql with the streams that close its loops declared as inputs."""
    text = "\n".join(line for line in (HERE / "desk.cql").read_text().split("\n") if line[:2] != "--")
    statements = [each.strip() for each in text.split(";") if each.strip()]
    kept = [each for each in statements if each.split()[2].lower() not in DROPPED]
    declared = [
        f"REGISTER STREAM {name} (ts TIMESTAMP, {columns}) TIMESTAMP BY ts "
        f"{'TICK BY TUPLE ' if name == 'market' else ''}FROM 'memory'"
        for name, columns in STREAMS.items()
    ]
    return ";\n".join([*declared, *kept])


def run(rows: int, latency: int, seed: int = 1, stocks: int = 200, cash: int = 1_000_000) -> Ledger:
    """Trades for so many quotes; what is booked comes back `latency` milliseconds later."""
    tables = generator().generate(rows, seed, stocks, cash)
    market, listing = tables["market"], tables["listing"]
    names, cheap = listing["stock"].to_pylist(), listing["cheap"].to_pylist()
    ledger = Ledger(cash, dict.fromkeys(names, 0))
    limits = dict(zip(names, cheap, strict=True))
    opening: datetime = listing["ts"][0].as_py()
    pipeline = kasen.Pipeline(engine="local")
    pipeline.execute(app_text())
    for name in ("buy", "sell", "cash", "position"):
        pipeline.query(name).discard()
    pipeline.push("cash_stream", [{"ts": opening, "amount": cash}])
    rows_of = [
        {"ts": opening, "stock": name, "cheap": limit, "held": 0, "paid": 0} for name, limit in limits.items()
    ]
    pipeline.push("position_stream", rows_of)
    times = market["ts"].to_numpy()
    step = timedelta(milliseconds=latency)
    now, done = opening + timedelta(seconds=1), 0
    while done < len(market):
        # One latency at a time: what is booked in it arrives in the next.
        for at, stock, price in ledger.waiting:
            pipeline.push("cash_stream", [{"ts": at, "amount": ledger.cash}])
            row = {
                "ts": at,
                "stock": stock,
                "cheap": limits[stock],
                "held": ledger.held[stock],
                "paid": price,
            }
            pipeline.push("position_stream", [row])
        ledger.waiting.clear()
        end = int(np.searchsorted(times, np.datetime64(now + step)))
        if end > done:
            pipeline.push("market", market.slice(done, end - done).cast(schema()))
        done = end
        for name in STREAMS:
            pipeline.advance(name, now + step)
        for ts, stock, num, price in decided(pipeline.query("trade").to_arrow()):
            ledger.book(stock, num, price)
            ledger.waiting.append((ts + step, stock, price))
        now += step
    return ledger


def schema() -> pa.Schema:
    return pa.schema({"ts": pa.timestamp("us"), "stock": pa.string(), "price": pa.int64()})


def decided(changes: pa.Table) -> list[tuple[datetime, str, int, int]]:
    columns = [changes[name].to_pylist() for name in ("ts", "stock", "num", "price")]
    return list(zip(*columns, strict=True))


def generator() -> ModuleType:
    """generate_desk.py, beside this file; examples are scripts, not a package."""
    spec = importlib.util.spec_from_file_location("generate_desk", HERE / "generate_desk.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000, help="quotes")
    parser.add_argument("--latency", type=int, default=20, help="milliseconds until a trade is known")
    parser.add_argument("--cash", type=int, default=1_000_000)
    args = parser.parse_args()
    ledger = run(args.rows, args.latency, cash=args.cash)
    print(f"{ledger.trades} trades, {ledger.unpaid} of them bought with cash that was not there;")
    print(f"the cash went down to {ledger.least:,} and ended at {ledger.cash:,}")


if __name__ == "__main__":
    main()
