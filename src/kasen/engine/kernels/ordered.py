"""Ordered multisets: a B-tree of values for each group, all in one pool of nodes.

`pool` [nodes, NODE]: a node holds USED entries of (key, weight, child), in order. In a leaf a key is a value,
its weight how often it is there, and all children are 0. In an inner node a weight is that of the child's
whole tree, and a child's values are not below its key (the first child's key says nothing). Row 0 is the
header: first free node, nodes ever used, free nodes; and the path of the walk under way. A tree is two
words of the caller's, (root, height), both 0 when it is empty.

A value's weight may pass below zero within an instant; a value is there exactly if its weight is not 0.
Keys are compared by `rank`. Nodes that run low are merged with a neighbour if the two fill at most three
quarters, so that a value that comes and goes does not split and merge for ever.
"""

from __future__ import annotations

from typing import Any

from kasen.engine.kernels.compiled import M, V, compiled

INTEGER, DOUBLE, TEXT = 0, 1, 2

FAN = 16
USED, KEYS, WEIGHTS, CHILDREN = 0, 1, 1 + FAN, 1 + 2 * FAN
NODE = 1 + 3 * FAN

MAX_HEIGHT = 20
#: A call of `add` takes at most this many new nodes.
MOST_NEW = MAX_HEIGHT + 2

FIRST_FREE, EVER, FREE = 0, 1, 2
_PATH = 4
_INDEX = _PATH + MAX_HEIGHT + 1


@compiled(f"int64(int64, int64, {V})")
def rank(value: Any, order: Any, labels: Any) -> Any:
    """A number that compares as the value does. A double's bits: NaN is greatest, there is one zero."""
    if order == DOUBLE:
        return value if value >= 0 else value ^ 0x7FFFFFFFFFFFFFFF
    if order == TEXT:
        return labels[value]
    return value


@compiled(f"int64({M})")
def spare(pool: Any) -> Any:
    """How many nodes can still be taken."""
    return pool[0, FREE] + len(pool) - 1 - pool[0, EVER]


@compiled(f"int64({M})")
def _take(pool: Any) -> Any:
    node = pool[0, FIRST_FREE]
    if node:
        pool[0, FIRST_FREE] = pool[node, KEYS]
        pool[0, FREE] -= 1
    else:
        pool[0, EVER] += 1
        node = pool[0, EVER]
    pool[node, USED] = 0
    for i in range(FAN):
        pool[node, CHILDREN + i] = 0
    return node


@compiled(f"void({M}, int64)")
def _give_back(pool: Any, node: Any) -> None:
    pool[node, KEYS] = pool[0, FIRST_FREE]
    pool[0, FIRST_FREE] = node
    pool[0, FREE] += 1


@compiled(f"void({M}, int64, int64, int64, int64, int64)")
def _put(pool: Any, node: Any, index: Any, key: Any, weight: Any, child: Any) -> None:
    """Puts an entry at `index` of a node that has room."""
    used = pool[node, USED]
    for i in range(used, index, -1):
        pool[node, KEYS + i] = pool[node, KEYS + i - 1]
        pool[node, WEIGHTS + i] = pool[node, WEIGHTS + i - 1]
    if child:  # a leaf has none to move
        for i in range(used, index, -1):
            pool[node, CHILDREN + i] = pool[node, CHILDREN + i - 1]
    pool[node, KEYS + index] = key
    pool[node, WEIGHTS + index] = weight
    pool[node, CHILDREN + index] = child
    pool[node, USED] = used + 1


@compiled(f"void({M}, int64, int64)")
def _drop(pool: Any, node: Any, index: Any) -> None:
    used = pool[node, USED] - 1
    for i in range(index, used):
        pool[node, KEYS + i] = pool[node, KEYS + i + 1]
        pool[node, WEIGHTS + i] = pool[node, WEIGHTS + i + 1]
    if pool[node, CHILDREN]:
        for i in range(index, used):
            pool[node, CHILDREN + i] = pool[node, CHILDREN + i + 1]
    pool[node, USED] = used


@compiled(f"int64({M}, int64, int64, int64)")
def _move(pool: Any, source: Any, first: Any, to: Any) -> Any:
    """Moves the entries from `first` on to the end of node `to`; their weight."""
    at = pool[to, USED]
    moved = 0
    for i in range(first, pool[source, USED]):
        pool[to, KEYS + at] = pool[source, KEYS + i]
        pool[to, WEIGHTS + at] = pool[source, WEIGHTS + i]
        pool[to, CHILDREN + at] = pool[source, CHILDREN + i]
        moved += pool[source, WEIGHTS + i]
        at += 1
    pool[to, USED] = at
    pool[source, USED] = first
    return moved


@compiled(f"boolean({M}, int64, int64)")
def _fit(pool: Any, one: Any, other: Any) -> Any:
    return pool[one, USED] + pool[other, USED] <= FAN * 3 // 4


@compiled(f"void({M}, {V}, int64, int64, int64, int64, int64)", inline=False)
def _insert(pool: Any, words: Any, at: Any, node: Any, index: Any, key: Any, weight: Any) -> None:
    """Puts a value into a leaf, splitting full nodes up the path."""
    child = 0
    level = 0
    while pool[node, USED] == FAN:
        right = _take(pool)
        # What is appended gets a node of its own, so that ascending values leave full nodes behind.
        cut = FAN if index == FAN else FAN // 2
        moved = _move(pool, node, cut, right)
        if index > cut or cut == FAN:
            _put(pool, right, index - cut, key, weight, child)
            moved += weight
        else:
            _put(pool, node, index, key, weight, child)
        key = pool[right, KEYS]
        weight = moved
        child = right
        level += 1
        if level > words[at + 1]:
            root = _take(pool)
            total = 0
            for i in range(pool[node, USED]):
                total += pool[node, WEIGHTS + i]
            _put(pool, root, 0, pool[node, KEYS], total, node)
            words[at] = root
            words[at + 1] = level
            node = root
            index = 1
        else:
            node = pool[0, _PATH + level]
            index = pool[0, _INDEX + level]
            pool[node, WEIGHTS + index] -= moved
            index += 1
    _put(pool, node, index, key, weight, child)


@compiled(f"void({M}, {V}, int64, int64)", inline=False)
def _shrink(pool: Any, words: Any, at: Any, node: Any) -> None:
    """After an entry was dropped from a leaf: frees empty nodes up the path, and merges low ones."""
    for level in range(1, words[at + 1] + 1):
        if pool[node, USED] > FAN // 4:
            break
        parent = pool[0, _PATH + level]
        index = pool[0, _INDEX + level]
        if pool[node, USED] == 0:
            _give_back(pool, node)
            _drop(pool, parent, index)
        else:
            left = index
            if index + 1 == pool[parent, USED] or not _fit(pool, node, pool[parent, CHILDREN + index + 1]):
                left = index - 1
                if index == 0 or not _fit(pool, pool[parent, CHILDREN + left], node):
                    break
            into = pool[parent, CHILDREN + left]
            gone = pool[parent, CHILDREN + left + 1]
            if level > 1:
                # As a first child it had no key to speak of; now it needs one.
                pool[gone, KEYS] = pool[parent, KEYS + left + 1]
            pool[parent, WEIGHTS + left] += _move(pool, gone, 0, into)
            _give_back(pool, gone)
            _drop(pool, parent, left + 1)
        node = parent
    root = words[at]
    while words[at + 1] > 0 and pool[root, USED] == 1:
        _give_back(pool, root)
        root = pool[root, CHILDREN]
        words[at] = root
        words[at + 1] -= 1
    if pool[root, USED] == 0:
        _give_back(pool, root)
        words[at] = 0
        words[at + 1] = 0


@compiled(f"int64({M}, {V}, int64, int64, int64, int64, {V})", inline=False)
def add(pool: Any, words: Any, at: Any, value: Any, weight: Any, order: Any, labels: Any) -> Any:
    """Adds `weight` (not 0) of a value to the tree in words[at : at + 2].

    Returns 1 if the value was not there, -1 if it is there no more, else 0. Needs MOST_NEW spare nodes.
    """
    if words[at] == 0:
        words[at] = _take(pool)
        words[at + 1] = 0
    key = rank(value, order, labels)
    node = words[at]
    for level in range(words[at + 1], 0, -1):
        index = 1
        while index < pool[node, USED] and rank(pool[node, KEYS + index], order, labels) <= key:
            index += 1
        index -= 1
        pool[node, WEIGHTS + index] += weight
        pool[0, _PATH + level] = node
        pool[0, _INDEX + level] = index
        node = pool[node, CHILDREN + index]
    index = 0
    while index < pool[node, USED] and rank(pool[node, KEYS + index], order, labels) < key:
        index += 1
    if index == pool[node, USED] or pool[node, KEYS + index] != value:
        _insert(pool, words, at, node, index, value, weight)
        return 1
    pool[node, WEIGHTS + index] += weight
    if pool[node, WEIGHTS + index] != 0:
        return 0
    _drop(pool, node, index)
    _shrink(pool, words, at, node)
    return -1


@compiled(f"int64({M}, {V}, int64)")
def least(pool: Any, words: Any, at: Any) -> Any:
    """The first value of a tree that is not empty."""
    node = words[at]
    for _ in range(words[at + 1]):
        node = pool[node, CHILDREN]
    return pool[node, KEYS]


@compiled(f"int64({M}, {V}, int64)")
def greatest(pool: Any, words: Any, at: Any) -> Any:
    """The last value of a tree that is not empty."""
    node = words[at]
    for _ in range(words[at + 1]):
        node = pool[node, CHILDREN + pool[node, USED] - 1]
    return pool[node, KEYS + pool[node, USED] - 1]


@compiled(f"int64({M}, {V}, int64, int64)", inline=False)
def kth(pool: Any, words: Any, at: Any, k: Any) -> Any:
    """The value at position k, from 0, among all values each as often as it is there; all weights > 0."""
    node = words[at]
    for level in range(words[at + 1], -1, -1):
        index = 0
        while k >= pool[node, WEIGHTS + index]:
            k -= pool[node, WEIGHTS + index]
            index += 1
        if level == 0:
            return pool[node, KEYS + index]
        node = pool[node, CHILDREN + index]
    return 0
