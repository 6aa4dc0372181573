"""Changes on their way between shards: Arrow IPC with real values, because each shard has codes of its own.

Which shard a row belongs to is the hash of its key, computed from values alone: the same in every process.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kasen.engine.batch import I64, Batch, Columns, Frontier
from kasen.engine.failures import Failures
from kasen.engine.kernels.hashing import hash_columns
from kasen.engine.select.project import Project
from kasen.engine.text.dictionary import Dictionary, NewCodes
from kasen.plan.lower.expr.vectors import compile_items
from kasen.plan.shard.split import Key, plain_columns
from kasen.types import Kind, Schema

_BEGIN = Frontier(-(2**63), 0)
#: Beside the numbers of columns that hold one: how many rows there are.
_COUNT = "#rows"


class Shipper:
    """Packs and unpacks rows of one schema. `marks` are numbers that travel before the row's own columns."""

    def __init__(self, schema: Schema, dictionary: Dictionary, marks: Sequence[str]) -> None:
        self._dictionary = dictionary
        self._texts = [index for index, field in enumerate(schema) if field.type.kind is Kind.VARCHAR]
        self._marks = list(marks)
        self._words = len(schema) + 1

    def pack(self, marks: Sequence[I64], data: Columns) -> bytes:
        """A column that holds one number everywhere travels as that number: NULL words and signs mostly."""
        columns: dict[str, pa.Array] = {}
        same: dict[str, str] = {_COUNT: str(len(data[-1]))}
        numbers = [*zip(self._marks, marks, strict=True)]
        for index in range(self._words):
            if index in self._texts:
                columns[str(index)] = self._decoded(data[index])
            else:
                numbers.append((str(index), data[index]))
        for name, words in numbers:
            if len(words) and (words == words[0]).all():
                same[name] = str(int(words[0]))
            else:
                columns[name] = pa.array(words)
        schema = pa.schema([(name, column.type) for name, column in columns.items()], same)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            if columns:
                writer.write_batch(pa.RecordBatch.from_arrays(list(columns.values()), schema=schema))
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
        counts = [int((table.schema.metadata or {}).get(_COUNT.encode(), len(table))) for table in tables]
        ends = np.cumsum([0, *counts]).tolist()
        marks = [np.empty(ends[-1], np.int64) for _ in self._marks]
        data = np.empty((self._words, ends[-1]), np.int64)
        targets = [*zip(self._marks, marks, strict=True)]
        targets += [(str(index), data[index]) for index in range(self._words) if index not in self._texts]
        for table, begin, end in zip(tables, ends[:-1], ends[1:], strict=True):
            same = table.schema.metadata or {}
            for name, target in targets:
                told = same.get(name.encode())
                target[begin:end] = int(told) if told is not None else table.column(name).to_numpy()
            for index in self._texts:
                data[index][begin:end] = self._coded(table.column(str(index)))
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
    return shipper.pack((batch.ts, batch.seq_tick, batch.diff), batch.data)


def unpack_changes(shipper: Shipper, packed: Sequence[bytes]) -> Batch:
    """The changes in instant order, whatever order the parts came in."""
    (ts, seq_tick, diff), data = shipper.unpack(packed)
    order = np.lexsort((seq_tick, ts))
    return Batch(ts[order], seq_tick[order], diff[order], np.ascontiguousarray(data[:, order]))


class KeyHash:
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
        self._newcomers = NewCodes(dictionary)
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
        fresh, texts = self._newcomers.take(), self._dictionary.texts
        if fresh:
            if len(texts) > len(self._hashes):
                room = np.zeros(2 * len(texts) - len(self._hashes), np.int64)
                self._hashes = np.concatenate([self._hashes, room])
            self._hashes[fresh] = [crc32(texts[code].encode("utf-8", "surrogatepass")) for code in fresh]
        return self._hashes[codes] if len(self._hashes) else np.zeros(len(codes), np.int64)
