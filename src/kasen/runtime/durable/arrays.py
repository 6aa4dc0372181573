"""Named arrays as one Arrow IPC file: the form in which states and segments are at rest. No pickles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kasen.engine.operator import State

_SCHEMA = pa.schema(
    [
        ("part", pa.string()),
        ("name", pa.string()),
        ("type", pa.string()),
        ("shape", pa.list_(pa.int64())),
        ("content", pa.large_binary()),
    ]
)


def pack_arrays(states: dict[str, State], *, compress: bool = True) -> bytes:
    """All parts' arrays, compressed unless they are to be read again at once."""
    rows = [(part, name, array) for part, state in states.items() for name, array in state.items()]
    # A part may have no arrays, and must be there nevertheless.
    rows += [(part, "", np.empty(0, np.int64)) for part, state in states.items() if not state]
    columns = [
        pa.array([part for part, _, _ in rows], pa.string()),
        pa.array([name for _, name, _ in rows], pa.string()),
        pa.array([array.dtype.str for _, _, array in rows], pa.string()),
        pa.array([list(array.shape) for _, _, array in rows], pa.list_(pa.int64())),
        pa.array([np.ascontiguousarray(array).tobytes() for _, _, array in rows], pa.large_binary()),
    ]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if compress else None)
    with pa.ipc.new_file(sink, _SCHEMA, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack_arrays(packed: bytes | memoryview) -> dict[str, State]:
    """The arrays, each in memory of its own that may be written to."""
    table = pa.ipc.open_file(pa.py_buffer(packed)).read_all()
    states: dict[str, State] = {}
    for part, name, type_, shape, content in zip(*(c.to_pylist() for c in table.columns), strict=True):
        state = states.setdefault(part, {})
        if name:
            array: npt.NDArray[np.generic] = np.frombuffer(content, np.dtype(type_)).reshape(shape).copy()
            state[name] = array
    return states
