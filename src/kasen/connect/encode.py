"""Chunks into the numbers that operators work on."""

from __future__ import annotations

import numpy as np

from kasen.connect.chunk import Chunk
from kasen.operators.batch import I64
from kasen.operators.dictionary import Dictionary


def encode(chunk: Chunk, dictionary: Dictionary) -> I64:
    """The chunk's rows as Batch.data has them: VARCHARs get their codes in the pipeline's dictionary.

    Python touches each distinct text of the chunk once.
    """
    if not chunk.texts:
        return chunk.data
    data = chunk.data.copy()
    for index, texts in chunk.texts.items():
        codes = dictionary.encode(texts.to_pylist())
        if len(codes):
            is_null = data[-1] >> index & 1
            data[index] = np.where(is_null, 0, codes[data[index]])
    return data
