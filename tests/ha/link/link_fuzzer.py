"""Hostile messages to a node: random changes of good ones, in every place where a link takes bytes."""

from __future__ import annotations

import base64
import socket
import time
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from kasen.ha.cluster import ClusterMember
from kasen.ha.config import Neighbour
from kasen.ha.link.wire import BEGIN, Json, call_options, connect, digest, pack
from tests.ha.relay import Relay, Route

_SECONDS = 5.0
_ACTIONS = ("ping", "status", "seen", "probe", "claim", "snapshot", "done?", "journal end")


@dataclass
class Outcome:
    """How the node answered."""

    refused: int = 0
    taken: int = 0
    reasons: set[str] = field(default_factory=set)


class LinkFuzzer:
    """Pretends to be the upstream node of a member."""

    def __init__(self, member: ClusterMember, schema: pa.Schema, rows: pa.RecordBatch, seed: int) -> None:
        self._config = member.config
        self._link: Neighbour = member.config.inputs[0]
        self._schema = schema
        self._rows = rows
        self._random = Random(seed)
        self._relay = Relay()
        self._route: Route = self._relay.add(member.config.listen)
        self.outcome = Outcome()

    def close(self) -> None:
        self._relay.close()

    def hello(self) -> Json:
        schema = base64.b64encode(self._schema.serialize().to_pybytes()).decode()
        link = self._link
        hello = {"from": link.node, "query": link.query, "stream": link.stream, "copy": link.copies[0]}
        return {**hello, "to": 1, "schema": schema}

    def meta(self) -> Json:
        return {"g": 1, "to": 1, "start": BEGIN, "upto": BEGIN + 1 + self._random.randrange(100)}

    # ------------------------------------------------------------ mutations

    def mutated(self, content: bytes) -> bytes:
        """A few bytes changed, removed or repeated."""
        changed = bytearray(content)
        for _ in range(self._random.randint(1, 4)):
            at = self._random.randrange(len(changed)) if changed else 0
            match self._random.randrange(5):
                case 0 if changed:
                    changed[at] ^= 1 << self._random.randrange(8)
                case 1 if len(changed) > 8:
                    extreme = self._random.choice((0, -1, 2**31 - 1, -(2**31), 2**62))
                    changed[at : at + 8] = int(extreme).to_bytes(8, "little", signed=True)
                case 2:
                    del changed[at : at + self._random.randint(1, 16)]
                case 3:
                    changed[at:at] = changed[at : at + self._random.randint(1, 64)]
                case _:
                    changed[at:at] = self._random.randbytes(self._random.randint(1, 8))
        return bytes(changed)

    def send_one(self) -> None:
        """One hostile message, over a connection of its own."""
        match self._random.randrange(8):
            case 0:
                self._exchange(self.mutated(pack(self.hello())), pack(self.meta()))
            case 1:
                self._exchange(pack(self.hello()), self.mutated(pack(self.meta())))
            case 2 | 3:
                self._exchange(pack(self.hello()), self._squeezed())
            case 4:
                self._exchange(pack(self.hello()), None)
            case 5 | 6:
                slot = self._random.randint(1, len(self._rows))
                offset = self._random.choice((1 << 12, 1 << 20, 2**31 - 1))
                self.send_rows(with_text_offset(self._rows, slot, offset))
            case _:
                self._act()

    def _squeezed(self) -> bytes:
        """A changed Arrow message whose checksum is right: offsets and lengths lie in its midst."""
        message = self.mutated(self._rows.serialize().to_pybytes())
        message += b"\0" * (-len(message) % 8)
        planes = np.ascontiguousarray(np.frombuffer(message, np.uint8).reshape(-1, 8).T).tobytes()
        content = len(message).to_bytes(8, "little") + pa.compress(planes, "zstd", asbytes=True)
        return pack({**self.meta(), "squeezed": "zstd", "sum": digest(content)}) + b"\0" + content

    def send_rows(self, rows: pa.RecordBatch, upto: int | None = None) -> None:
        """Uncompressed, with the right checksum."""
        meta = self.meta() if upto is None else {**self.meta(), "upto": upto}
        self._exchange(pack(self.hello()), pack({**meta, "sum": digest(rows.serialize())}), rows)

    def _exchange(self, hello: bytes, metadata: bytes | None, rows: pa.RecordBatch | None = None) -> None:
        """Without metadata, good rows go through a relay that damages some of their bytes on the way."""
        flips = metadata is None
        address = f"127.0.0.1:{self._route.port}" if flips else self._config.listen
        self._relay.flip(self._route, self._random.randrange(1, 4) if flips else 0, self._random)
        client = connect(self._config, address)
        try:
            descriptor = flight.FlightDescriptor.for_command(hello)
            writer, reader = client.do_exchange(descriptor, call_options(self._config, _SECONDS))
            reader.read_chunk()
            writer.begin(self._schema)
            if metadata is None:
                meta = {**self.meta(), "sum": digest(self._rows.serialize())}
                writer.write_with_metadata(self._rows, pack(meta))
            elif rows is not None:
                writer.write_with_metadata(rows, metadata)
            else:
                writer.write_metadata(metadata)
            writer.done_writing()
            while True:
                reader.read_chunk()
        except StopIteration:
            self.outcome.taken += 1
        except (flight.FlightError, pa.ArrowException, OSError, ValueError) as fault:
            self.outcome.refused += 1
            self.outcome.reasons.add(str(fault)[:60])
        finally:
            client.close()

    def _act(self) -> None:
        body = self.mutated(pack({"node": self._link.node, "g": 2, "copy": self._link.copies[0]}))
        with connect(self._config, self._config.listen) as client:
            try:
                action = flight.Action(self._random.choice(_ACTIONS), body)
                list(client.do_action(action, call_options(self._config, _SECONDS)))
                self.outcome.taken += 1
            except (flight.FlightError, pa.ArrowException) as fault:
                self.outcome.refused += 1
                self.outcome.reasons.add(str(fault)[:60])


def with_text_offset(rows: pa.RecordBatch, slot: int, offset: int) -> pa.RecordBatch:
    """The rows, but for one offset of their first text column. Arrow reads such a batch, and sends it on.

    Not if the last offset is negative: then what writes it takes it for the length of the texts.
    """
    texts = next(column for column in rows.columns if pa.types.is_string(column.type))
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[: len(rows) + 1]
    changed = offsets.copy()
    changed[slot] = offset
    message = rows.serialize().to_pybytes().replace(offsets.tobytes(), changed.tobytes())
    return pa.ipc.read_record_batch(pa.py_buffer(message), rows.schema)


def trickle(address: str, connections: int, seconds: float) -> list[socket.socket]:
    """Peers that send one byte per second; the caller closes them."""
    host, _, port = address.rpartition(":")
    sockets = [socket.create_connection((host, int(port)), 5) for _ in range(connections)]
    preface: Any = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for index in range(int(seconds)):
        for each in sockets:
            each.send(preface[index % len(preface) : index % len(preface) + 1])
        time.sleep(1.0)
    return sockets
