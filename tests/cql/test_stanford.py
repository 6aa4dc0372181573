"""The queries of the Stanford Stream Query Repository, in tests/stanford: they bind, and answer rightly."""

from __future__ import annotations

from pathlib import Path

import pytest

from kasen.cql.bind.app import bind_file, bind_text
from kasen.cql.bound import App
from kasen.errors import QueryError
from tests.oracle import run_app
from tests.paths import TESTS

FOLDER = TESTS / "stanford"
DAY = "2026-01-01 "

AUCTION = {
    "category.csv": "id,name,description\n10,books,\n11,toys,\n",
    "item.csv": "id,name,description,categoryID\n1007,Iliad,,10\n1020,Robot,,11\n",
    "person.csv": f"""timestamp,id,name,city,state
{DAY}00:00:00,1,Ann,Salem,OR
{DAY}00:00:00,2,Bob,Paris,TX
""",
    "open_auction.csv": f"""itemID,sellerID,start_price,timestamp
1007,1,10,{DAY}01:00:00
1020,2,50,{DAY}02:00:00
""",
    "bid.csv": f"""itemID,bid_price,bidderID,timestamp
1007,20,2,{DAY}02:00:30
1007,30,2,{DAY}02:03:00
1020,60,1,{DAY}02:05:00
""",
    "closed_auction.csv": f"itemID,buyerID,timestamp\n1007,2,{DAY}04:00:00\n1020,1,{DAY}08:00:00\n",
}

NETWORK = {
    "packets.csv": f"""id,colID,srcIP,destIP,srcPort,destPort,len,flags,time
1,C,a,b,1,80,100,SYN,{DAY}00:00:10
1,B,a,b,1,80,100,SYN,{DAY}00:00:10
2,B,b,a,80,1,60,SYNACK,{DAY}00:00:11
3,B,c,b,1,80,40,SYN,{DAY}00:00:20
4,B,b,c,80,1,60,SYNACK,{DAY}00:00:21
5,B,c,b,1,80,40,ACK,{DAY}00:00:22
6,B,c,b,1,80,500,,{DAY}00:01:30
7,B,c,b,1,80,500,,{DAY}00:05:00
8,B,d,b,1,80,1,,{DAY}00:12:00
"""
}


def app(name: str) -> App:
    return bind_file(FOLDER / f"{name}.cql")


def answers(name: str, files: dict[str, str], folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """What each query says, by query: diff and values (streams say all of them with diff 1)."""
    for file, content in files.items():
        (folder / file).write_text(content, encoding="utf-8")
    result = run_app(app(name), folder)
    assert not result.dead_letters
    return {query: [row[3:] for row in rows] for query, rows in result.queries.items()}


@pytest.mark.parametrize(("name", "numbered", "queries"), [("auction", 11, 16), ("network", 6, 13)])
def test_every_query_of_the_repository_is_there_and_binds(name: str, numbered: int, queries: int) -> None:
    text = (FOLDER / f"{name}.cql").read_text(encoding="utf-8")
    assert [f"-- {number}. " in text for number in range(1, numbered + 1)] == [True] * numbered
    assert len(app(name).queries) == queries


def test_the_auction_queries_answer_as_their_descriptions_say(tmp_path: Path) -> None:
    found = answers("auction", AUCTION, tmp_path)
    assert [row[1] for row in found["Selection"]] == [1007, 1007, 1020]
    assert found["LocalItemSuggestion"] == [(1, "Ann", "Salem", 1007)]
    assert [row[:2] for row in found["OpenAuctions"]] == [(1, 1007), (1, 1020), (-1, 1007), (-1, 1020)]
    assert found["ClosingPrice"] == [(1, 1007, 30.0), (1, 1020, 60.0)]
    assert found["AvgPrice"] == [(1, 10, 30.0), (-1, 10, 30.0), (1, 11, 60.0)]
    assert [row[1] for row in found["ShortAuctions"]] == [1007]
    # 1007 leads with two bids, then with its last one beside 1020, until the hour is over.
    assert {row[1] for row in found["HotItemStream"]} == {1007, 1020}
    assert found["AvgSellingPrice"] == [(1, 1, 30.0), (1, 2, 60.0)]
    assert found["HighestBid"] == [(1, 1020, 60.0)]
    assert found["NewUsers"] == [(1, 1, "Ann"), (1, 2, "Bob")]


def test_the_network_queries_answer_as_their_descriptions_say(tmp_path: Path) -> None:
    found = answers("network", NETWORK, tmp_path)
    assert found["CustomerFraction"][-1][1] == 1 / 7
    assert found["ProtocolAnalysis"] == [(1, "a", 200, 2), (1, "c", 580, 3), (1, "c", 500, 1)]
    # 2 packets in the minute before last, 1 in the last: (2 * 256 + 1 * 512) / (256 + 512).
    assert (1, "c", 4 / 3) in found["SourceMonitoring"]
    assert {row[3] for row in found["MisbehavingHosts"]} == {"a"}
    minute_and_ten = 70_000_000
    assert found["Flows"] == [
        (1, "a", "b", 2, 0),
        (1, "b", "a", 1, 0),
        (1, "b", "c", 1, 0),
        (1, "c", "b", 3, minute_and_ten),
        (1, "c", "b", 1, 0),
    ]


def inputs(name: str) -> str:
    """The inputs of an app, without its queries."""
    text = (FOLDER / f"{name}.cql").read_text(encoding="utf-8")
    return text[: text.index("REGISTER QUERY")].rsplit(";", 1)[0] + ";\n"


@pytest.mark.parametrize(
    ("name", "query", "fault"),
    [
        ("auction", "Select itemID, DolToEuro(bid_price), bidderID From Bid", "unknown function DOLTOEURO"),
        (
            "auction",
            "Select Rstream(OpenAuction.*) From OpenAuction [Range 5 Hour] O, ClosedAuction [Now] C",
            "no 'OpenAuction' in FROM",
        ),
        (
            "auction",
            "Select Distinct(P.id, P.name) From Person P",
            "a list in parentheses can only stand before IN (query)",
        ),
        ("auction", "Select id From Select Rstream(id) From Person P", "a query in FROM needs parentheses"),
        ("auction", "Select A.itemID From OpenAuction A [Now]", "the window stands before the name"),
        (
            "network",
            "Select L1.id From Packets L1 Where (Select Count(*) From Packets L2 Where L2.len < L1.len) > 5",
            "'L1.len' is a column of the query around, which a query used as a value cannot use",
        ),
        ("network", "Select srcIP From Packets Order By len", "ORDER BY is not CQL"),
        (
            "network",
            "(Select Count(*) From Packets) / (Select Count(*) From Packets)",
            "expected the end of the statement, but found /",
        ),
        ("network", "Select Rstream(srcIP, ExpDecAvg(len)) From Packets", "unknown function EXPDECAVG"),
    ],
)
def test_what_had_to_be_changed_is_refused_as_it_was(name: str, query: str, fault: str) -> None:
    with pytest.raises(QueryError) as caught:
        bind_text(f"{inputs(name)}REGISTER QUERY q {query}")
    assert caught.value.fault == fault
