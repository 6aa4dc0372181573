"""Changes on their way between shards: Arrow IPC with real values, because each shard has codes of its own.

Which shard a row belongs to is the hash of its key, computed from values alone: the same in every process.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kasen.kernels.hashing import hash_columns
from kasen.operators.batch import I64, Batch, Bound, Columns
from kasen.operators.dictionary import Dictionary
from kasen.operators.failures import Failures
from kasen.operators.project import Project
from kasen.plan.compile_expr import compile_items
from kasen.plan.split import Key, plain_columns
from kasen.types import Kind, Schema

_BEGIN = Bound(-(2**63), 0)


class Shipper:
    """Packs and unpacks rows of one schema. `marks` are numbers that travel before the row's own columns."""

    def __init__(self, schema: Schema, dictionary: Dictionary, marks: Sequence[str]) -> None:
        self._dictionary = dictionary
        self._texts = [index for index, field in enumerate(schema) if field.type.kind is Kind.VARCHAR]
        self._marks = list(marks)
        self._words = len(schema) + 1
        names = [*self._marks, *(str(index) for index in range(self._words))]
        types = [pa.string() if name.isdigit() and int(name) in self._texts else pa.int64() for name in names]
        self._schema = pa.schema(list(zip(names, types, strict=True)))

    def pack(self, marks: Sequence[I64], data: Columns) -> bytes:
        columns: list[pa.Array] = [pa.array(mark) for mark in marks]
        for index in range(self._words):
            words = data[index]
            columns.append(self._decoded(words) if index in self._texts else pa.array(words))
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as writer:
            writer.write_batch(batch)
        packed: bytes = sink.getvalue().to_pybytes()
        return packed

    def _decoded(self, codes: I64) -> pa.Array:
        """Texts by code. A NULL's code is 0, whatever text that is: the NULL word tells."""
        if not len(self._dictionary):
            return pa.array([""] * len(codes), pa.string())
        distinct, places = np.unique(codes, return_inverse=True)
        return pa.array(self._dictionary.decode(distinct), pa.string()).take(pa.array(places))

    def unpack(self, packed: Sequence[bytes]) -> tuple[list[I64], I64]:
        """The marks and the data of all that was packed, one after the other."""
        tables = [pa.ipc.open_stream(each).read_all() for each in packed]
        table = pa.concat_tables(tables) if tables else self._schema.empty_table()
        marks = [table.column(name).to_numpy().astype(np.int64) for name in self._marks]
        data = np.empty((self._words, len(table)), np.int64)
        for index in range(self._words):
            column = table.column(str(index))
            if index in self._texts:
                data[index] = self._coded(column)
            else:
                data[index] = column.to_numpy()
        for index in self._texts:
            data[index][(data[-1] >> index & 1).astype(np.bool_)] = 0
        return marks, data

    def _coded(self, column: pa.ChunkedArray) -> I64:
        encoded = column.combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        codes = self._dictionary.encode(encoded.dictionary.to_pylist())
        return codes[encoded.indices.to_numpy()] if len(codes) else np.empty(0, np.int64)


CHANGE = ("ts", "sub", "diff")


def pack_changes(shipper: Shipper, batch: Batch) -> bytes:
    return shipper.pack((batch.ts, batch.sub, batch.diff), batch.data)


def unpack_changes(shipper: Shipper, packed: Sequence[bytes]) -> Batch:
    """The changes in instant order, whatever order the parts came in."""
    (ts, sub, diff), data = shipper.unpack(packed)
    order = np.lexsort((sub, ts))
    return Batch(ts[order], sub[order], diff[order], np.ascontiguousarray(data[:, order]))


class Keys:
    """Tells rows' shards by the hash of their keys."""

    def __init__(self, keys: Key, dictionary: Dictionary) -> None:
        self._dictionary = dictionary
        self._is_text = [key.type.kind is Kind.VARCHAR for key in keys]
        self._plain = plain_columns(keys)
        if len(self._plain) < len(keys):
            # A key that fails is counted where the query computes it, not here.
            self._compute: Project | None = Project(compile_items(keys, dictionary, Failures()))
        else:
            self._compute = None
        self._hashes: I64 = np.empty(0, np.int64)

    def shards(self, batch: Batch, shards: int) -> npt.NDArray[np.int64]:
        """The shard of each row."""
        if self._compute is not None:
            computed = self._compute.process((batch,), _BEGIN)
            words, nulls = computed.data[:-1].copy(), computed.data[-1]
        else:
            words = batch.data[self._plain]
            nulls = np.zeros(len(batch), np.int64)
            for place, index in enumerate(self._plain):
                nulls |= (batch.nulls >> index & 1) << place
        for place, is_text in enumerate(self._is_text):
            if is_text:
                words[place] = np.where(nulls >> place & 1, 0, self._text_hashes(words[place]))
        data = np.ascontiguousarray(np.concatenate([words, nulls[np.newaxis]]))
        hashes = hash_columns(data, np.arange(len(data)), data.shape[1])
        return (hashes % np.uint64(shards)).astype(np.int64)

    def _text_hashes(self, codes: I64) -> I64:
        known, texts = len(self._hashes), self._dictionary.texts
        if known < len(texts):
            fresh = [crc32(text.encode("utf-8", "surrogatepass")) for text in texts[known:]]
            self._hashes = np.concatenate([self._hashes, np.array(fresh, np.int64)])
        return self._hashes[codes] if len(self._hashes) else np.zeros(len(codes), np.int64)
