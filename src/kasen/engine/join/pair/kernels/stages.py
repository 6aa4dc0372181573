"""The join of two windows in two stages, so that two cores can have one each.

`match` (see pair_join) does a block's stages one after the other. Here a whole piece of arrivals goes through
the first, `enter_piece`, and later through the second, `expand_piece`. The first alone reads and writes the
table, and notes for each arrival the newest partner and the least id that it may meet. The second follows
the links of rows that are there already. A link is written once, when its row enters, so it does not matter
how many later arrivals have entered meanwhile: what an arrival meets was decided when it entered.

`works` [blocks, WORK, BLOCK] has the piece's blocks, `sizes` how many arrivals each of them has.
"""

from __future__ import annotations

from typing import Any

from kasen.engine.join.pair.kernels.pair_join import (
    BLOCKS_ENTERED,
    BLOCKS_EXPANDED,
    DONE,
    EXPANDED,
    LEFT,
    PAIRS_FULL,
    PLANNED,
    RIGHT,
    RUN,
    SPECIAL,
    TABLE_FULL,
    TAKEN,
    J,
    enter_block,
    expand,
    lacks_keys,
)
from kasen.engine.join.pair.kernels.rows import COUNT, I
from kasen.engine.kernels.compiled import M, V, compiled

_WORKS = "int32[:, :, ::1]"


@compiled(f"int64({RUN}, {_WORKS}, {V}, {V})", inline=False)
def enter_piece(
    store: Any, cfg: Any, keys: Any, links: Any, table: Any, heads: Any, l_seq_tick: Any, r_seq_tick: Any,
    l_marks: Any, r_marks: Any, cursor: Any, works: Any, sizes: Any, words: Any,
) -> Any:  # fmt: skip
    """The arrivals enter their chains, block by block.

    Returns DONE; TABLE_FULL, then it is called again and goes on; or SPECIAL if an instant must be done by
    itself, or there are more blocks than `works` has room for. Then, when the blocks are expanded, `match`
    goes on.
    """
    while True:
        left = cfg[0, COUNT] - cursor[LEFT] + cfg[1, COUNT] - cursor[RIGHT]
        if left == 0:
            return DONE
        if cursor[BLOCKS_ENTERED] == len(works):
            return SPECIAL
        work = works[cursor[BLOCKS_ENTERED]]
        if lacks_keys(table, cursor, min(left, work.shape[1])):
            return TABLE_FULL
        count = enter_block(
            store, cfg, keys, links, table, heads, l_seq_tick, r_seq_tick,
            l_marks, r_marks, cursor, work, words,
        )  # fmt: skip
        if count == 0:
            return SPECIAL
        sizes[cursor[BLOCKS_ENTERED]] = count
        cursor[BLOCKS_ENTERED] += 1


@compiled(f"int64({M}, {I}, {V}, {_WORKS}, {V}, {J}, {J})", inline=False)
def expand_piece(cfg: Any, links: Any, cursor: Any, works: Any, sizes: Any, found: Any, pairs: Any) -> Any:
    """Writes the pairs of the blocks that have entered. Returns DONE, or PAIRS_FULL; then it is called again
    and goes on."""
    while cursor[BLOCKS_EXPANDED] < cursor[BLOCKS_ENTERED]:
        block = cursor[BLOCKS_EXPANDED]
        cursor[PLANNED] = sizes[block]
        if not expand(cfg, links, cursor, works[block], found, pairs):
            return PAIRS_FULL
        cursor[TAKEN] += sizes[block]
        cursor[EXPANDED] = 0
        cursor[BLOCKS_EXPANDED] += 1
    return DONE
