"""What a node refuses, with the reason, and that nothing else suffers from it."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from kasen.errors import DataError
from kasen.ha.cluster import free_ports
from kasen.ha.config import Neighbour, NodeConfig, node_of
from kasen.ha.link.server import NodeServer
from kasen.ha.link.wire import BEGIN, call_options, connect, digest, pack
from kasen.ha.node import Node
from kasen.ha.work.sink import SinkWork

SCHEMA = pa.schema([(name, pa.int64()) for name in ("ts", "seq", "tick", "diff", "a")])
TOKEN = "swordfish"


class Fixture:
    """A sink that listens, and ways to talk to it."""

    def __init__(self, folder: Path) -> None:
        address = f"127.0.0.1:{free_ports(1)[0]}"
        link = Neighbour("n", "q", "s", ("127.0.0.1:1",))
        self.config = NodeConfig("out", address, sink=folder, inputs=(link,), token=TOKEN, max_message=1000)
        self.work = SinkWork(folder, (link,))
        self.node = Node(self.config, self.work)
        self.server = NodeServer(self.config, self.node)

    def open(self, **changes: Any) -> tuple[Any, Any, Any]:
        hello = {"from": "n", "query": "q", "stream": "s", "copy": "127.0.0.1:1", "to": 1}
        hello |= {"schema": base64.b64encode(SCHEMA.serialize().to_pybytes()).decode(), **changes}
        client = connect(self.config, self.config.listen)
        descriptor = flight.FlightDescriptor.for_command(pack(hello))
        writer, reader = client.do_exchange(descriptor, call_options(self.config, 10.0))
        return client, writer, reader

    def exchange(self, send: Any) -> str:
        """Sends something over a new link; the reason for which it is ended."""
        client, writer, reader = self.open()
        try:
            reader.read_chunk()
            writer.begin(SCHEMA)
            send(writer)
            for _ in range(20):
                reader.read_chunk()
        except (flight.FlightError, pa.ArrowException) as fault:
            return str(fault)
        finally:
            client.close()
        raise AssertionError("it was not ended")


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Fixture]:
    found = Fixture(tmp_path / "out")
    yield found
    found.node.end("stopped")
    found.server.shutdown()
    found.work.close()


def batch(rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(rows), pa.int64())] * 5, schema=SCHEMA)


def next_ack(reader: Any) -> object:
    try:
        return reader.read_chunk()
    except StopIteration:
        return None


def message(rows: pa.RecordBatch, **meta: Any) -> bytes:
    """What goes with a batch, with its checksum."""
    stretch = {"g": 1, "to": 1, "start": -(2**63), "upto": 100}
    return pack({**stretch, "sum": digest(rows.serialize()), **meta})


def squeezed(compression: str, content: bytes) -> bytes:
    meta = {"g": 1, "to": 1, "start": 7, "upto": 9, "squeezed": compression, "sum": digest(content)}
    return pack(meta) + b"\0" + content


def test_a_good_message_is_taken(sink: Fixture) -> None:
    client, writer, reader = sink.open()
    reader.read_chunk()
    writer.begin(SCHEMA)
    writer.write_with_metadata(batch(3), message(batch(3)))
    writer.done_writing()
    for _ in iter(lambda: next_ack(reader), None):
        pass
    client.close()
    assert sink.node.inboxes["s"].received == 100


@pytest.mark.parametrize("token", [None, "", "swordfis", "swordfish "])
def test_a_wrong_token_is_refused(token: str | None, sink: Fixture) -> None:
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    with connect(sink.config, sink.config.listen) as client:
        options = flight.FlightCallOptions(timeout=5.0, headers=headers)
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(client.do_action(flight.Action("ping", b""), options))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"no json", "not JSON"),
        (b"[1, 2]", "not a JSON object"),
        (pack({"g": 1}), "a message without 'start'"),
        (pack({"g": 1, "to": 1, "start": "x", "upto": 3}), "invalid literal"),
        (pack({"g": 0, "to": 1, "start": 0, "upto": 3}), "fenced"),
        (squeezed("zstd", b"\xff" * 30), "bytes"),
        (squeezed("zlib", b"\x40" + b"\0" * 30), "read"),
        (squeezed("zlib", b"\x40" + b"\0" * 30)[:-1], "checksum"),
    ],
)
def test_a_malformed_message_ends_its_connection_only(
    content: bytes, why: str, sink: Fixture, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kasen.ha"):
        assert why in sink.exchange(lambda writer: writer.write_metadata(content))
    assert any("ended the link" in record.getMessage() for record in caplog.records)
    test_a_good_message_is_taken(sink)


def test_an_oversized_message_ends_its_connection(sink: Fixture) -> None:
    rows = batch(100)
    assert "at most 1000" in sink.exchange(lambda writer: writer.write_with_metadata(rows, message(rows)))


@pytest.mark.parametrize("sum_", ["0123456789abcdef", None])
def test_a_damaged_message_ends_its_connection(sum_: str | None, sink: Fixture) -> None:
    meta = message(batch(3), sum=sum_)
    assert "checksum" in sink.exchange(lambda writer: writer.write_with_metadata(batch(3), meta))
    assert sink.node.inboxes["s"].received == BEGIN


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"stream": "other"}, "no input is for"),
        ({"from": "other"}, "no input is for"),
        ({"copy": "127.0.0.1:2"}, "is not a copy of n"),
        ({"schema": "AAAA"}, "refused"),
        ({"to": "x"}, "refused"),
    ],
)
def test_a_wrong_hello_is_refused(change: dict[str, str], why: str, sink: Fixture) -> None:
    client, _, reader = sink.open(**change)
    with pytest.raises(flight.FlightError, match=why):
        reader.read_chunk()
    client.close()


def test_a_node_that_is_stopping_takes_no_new_links(sink: Fixture) -> None:
    sink.node.end("stopped")
    client, _, reader = sink.open()
    with pytest.raises(flight.FlightError, match="is stopping"):
        reader.read_chunk()
    client.close()


def test_an_address_that_others_reach_needs_tls_and_a_token() -> None:
    with pytest.raises(DataError, match="without TLS and a token"):
        node_of({"name": "n", "listen": "0.0.0.0:7001", "sink": "out"}, Path())
    with pytest.raises(DataError, match="without TLS and a token"):
        node_of({"name": "n", "listen": "192.0.2.7:7001", "sink": "out", "token": "x"}, Path())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"colour": "red"}, "no setting 'colour'"),
        ({"listen": "7001"}, "not an address"),
        ({"batch": 0}, "batch must be"),
        ({"batch": "auto"}, "exactly one of"),
        ({"max_recovery": "200ms"}, "exactly one of"),
        ({"ack_interval": "soon"}, "length of time"),
        ({"compression": "rar"}, "one of none, lz4, zstd, zlib"),
        ({"app": "a.cql"}, "either an app"),
        ({"role": "secondary"}, "peer"),
        ({"peer": "127.0.0.1:7002"}, "a sink has one copy"),
        ({"inputs": [{"node": "n"}]}, "needs node, query, stream and copies"),
    ],
)
def test_a_wrong_setting_is_told(change: dict[str, Any], why: str) -> None:
    with pytest.raises(DataError, match=why):
        node_of({"name": "n", "listen": "127.0.0.1:7001", "sink": "out", **change}, Path())
