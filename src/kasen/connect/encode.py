"""Chunks into the numbers that operators work on."""

from __future__ import annotations

import numpy as np

from kasen.connect.chunk import Chunk
from kasen.engine.batch import Columns, are_zeros
from kasen.engine.text.dictionary import Dictionary


def encode(chunk: Chunk, dictionary: Dictionary) -> Columns:
    """The chunk's columns as a batch has them: VARCHARs get their codes in the pipeline's dictionary.

    It keeps their texts as long as these columns are held; whoever copies one sees to the copy.
    """
    if not chunk.texts:
        return chunk.data
    data = list(chunk.data)
    words = data[-1]
    for index, texts in chunk.texts.items():
        different = texts.to_pylist()
        if not different:
            continue
        with dictionary.entering:
            data[index] = dictionary.encode(different)[data[index]]
            dictionary.keep(data[index])
        if not are_zeros(words):
            data[index][(words >> index & 1).astype(np.bool_)] = 0
    return data
