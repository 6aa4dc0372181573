"""Passive Standby: the primary's state and what it may still have to send, as bytes for the other copy."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kasen.engine.operator import State
from kasen.errors import DataError
from kasen.ha.link.wire import Json, digest, pack, unpack
from kasen.ha.node_state import OutputLink

_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`positions` is how far each input had been worked on; `outputs` what each queue held."""

    positions: dict[str, int]
    state: dict[str, State]
    outputs: list[tuple[Json, pa.RecordBatch | None]]


def take(positions: dict[str, int], state: dict[str, State], outputs: list[OutputLink]) -> Snapshot:
    """Called with the node's lock, between runs."""
    queues = []
    for output in outputs:
        queue = output.queue
        piece = queue.read(queue.start, 1 << 62)
        marks = {"start": queue.start, "upto": queue.upto, "ended": queue.ended, "restart": queue.restart}
        queues.append((marks, piece.batch))
    return Snapshot(dict(positions), state, queues)


def to_bytes(snapshot: Snapshot) -> bytes:
    arrays = {
        f"state/{part}/{name}": array
        for part, arrays in snapshot.state.items()
        for name, array in arrays.items()
    }
    marks = [marks for marks, _ in snapshot.outputs]
    parts = {part: list(arrays) for part, arrays in snapshot.state.items()}
    header = {"positions": snapshot.positions, "parts": parts, "outputs": marks}
    arrays["header"] = np.frombuffer(pack(header), np.uint8)
    for index, (_, batch) in enumerate(snapshot.outputs):
        if batch is not None:
            content = pa.BufferOutputStream()
            with pa.ipc.new_stream(content, batch.schema) as writer:
                writer.write_batch(batch)
            arrays[f"output/{index}"] = np.frombuffer(content.getvalue(), np.uint8)
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    content = file.getvalue()
    return digest(content).encode() + content


def from_bytes(given: bytes) -> Snapshot:
    """DataError if it is damaged."""
    content = given[_DIGEST_BYTES:]
    if digest(content).encode() != given[:_DIGEST_BYTES]:
        raise DataError("a snapshot that is damaged: its checksum does not fit")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        header = unpack(arrays["header"].tobytes())
        state = {
            part: {name: arrays[f"state/{part}/{name}"] for name in names}
            for part, names in header["parts"].items()
        }
        outputs = []
        for index, marks in enumerate(header["outputs"]):
            batch = None
            if f"output/{index}" in arrays:
                reader = pa.ipc.open_stream(pa.py_buffer(arrays[f"output/{index}"].tobytes()))
                batch = reader.read_next_batch()
            outputs.append((marks, batch))
    return Snapshot(header["positions"], state, outputs)
