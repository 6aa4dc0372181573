"""The trading desk's rules as a Python loop: what desk.cql is measured against, and tested with."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TextIO

Trade = tuple[str, str, int, int]


def trades(
    market: Iterable[tuple[str, str, int]], cash: int, cheap: dict[str, int]
) -> Iterator[tuple[Trade, int]]:
    """Each trade (ts, stock, num, price) and the cash that it leaves."""
    held = dict.fromkeys(cheap, 0)
    paid = dict.fromkeys(cheap, 0)
    for ts, stock, price in market:
        num = held[stock]
        if num == 0:
            if price > cheap[stock] or cash < price * 100:
                continue
            num = 100
        elif price * 100 >= paid[stock] * 104 or price * 100 <= paid[stock] * 90:
            num = -num
        else:
            continue
        held[stock] += num
        paid[stock] = price
        cash -= num * price
        yield (ts, stock, num, price), cash


def quotes(file: TextIO) -> Iterator[tuple[str, str, int]]:
    """The market's quotes; those that come too late are refused, as desk.cql does."""
    reader = csv.reader(file)
    next(reader)
    latest = datetime.min
    for ts, stock, price in reader:
        at = datetime.fromisoformat(ts)
        if at >= latest:
            latest = at
            yield ts, stock, int(price)


def run(folder: Path, out: Path) -> int:
    """Reads the desk's files and writes trades, cash and positions; returns how many trades there were."""
    with (folder / "opening.csv").open() as file:
        cash = int(next(csv.DictReader(file))["amount"])
    with (folder / "listing.csv").open() as file:
        cheap = {row["stock"]: int(row["cheap"]) for row in csv.DictReader(file)}
    out.mkdir(parents=True, exist_ok=True)
    held = dict.fromkeys(cheap, 0)
    count = 0
    with (
        (folder / "market.csv").open() as file,
        (out / "trade.csv").open("w") as trade_file,
        (out / "cash.csv").open("w") as cash_file,
        (out / "position.csv").open("w") as position_file,
    ):
        write_trade, write_cash, write_position = (
            csv.writer(each).writerow for each in (trade_file, cash_file, position_file)
        )
        for (ts, stock, num, price), left in trades(quotes(file), cash, cheap):
            held[stock] += num
            write_trade((ts, stock, num, price))
            write_cash((ts, left))
            write_position((ts, stock, cheap[stock], held[stock], price))
            count += 1
    return count
