"""Batches for a secondary, made small.

Numbers that lie close together differ in their last bytes. So before a general compressor sees them, the
message's eight-byte words are turned by planes: first all first bytes, then all second ones. On sensor data
that halves what zlib or zstd alone would leave.
"""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa

from kasen.errors import DataError

_CODECS = {"lz4": "lz4_raw", "zstd": "zstd"}
_LENGTH = 8


def squeeze(batch: pa.RecordBatch, compression: str) -> bytes:
    """The batch as bytes: the length of its Arrow message, then the planes, compressed."""
    message = np.frombuffer(batch.serialize(), np.uint8)
    planes = np.ascontiguousarray(message.reshape(-1, 8).T).tobytes()
    if compression == "zlib":
        content = zlib.compress(planes)
    else:
        content = pa.compress(planes, _CODECS[compression], asbytes=True)
    return len(message).to_bytes(_LENGTH, "little") + content


def expand(content: bytes, compression: str, schema: pa.Schema, most: int) -> pa.RecordBatch:
    """DataError if this is not a message of the schema, or one of more than `most` bytes.

    What is in it may still be malformed: the caller validates it.
    """
    length = int.from_bytes(content[:_LENGTH], "little")
    if length > most:
        raise DataError(f"a message of {length} bytes; at most {most} are taken")
    try:
        if compression == "zlib":
            planes = zlib.decompressobj().decompress(content[_LENGTH:], length)
        else:
            planes = pa.decompress(content[_LENGTH:], length, _CODECS[compression], asbytes=True)
        message = np.ascontiguousarray(np.frombuffer(planes, np.uint8).reshape(8, -1).T)
        return pa.ipc.read_record_batch(pa.py_buffer(message), schema)
    except (pa.ArrowException, OSError, ValueError, KeyError, zlib.error) as fault:
        raise DataError(f"a compressed message that cannot be read: {fault}") from None
