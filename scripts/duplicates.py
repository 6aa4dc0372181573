"""Finds code that stands twice: blocks of six or more equal lines. Usage: duplicates.py FOLDER...

White space is folded. Blank lines, comments, docstrings and lines without a letter or digit do not count; nor
do imports and signatures, which say what a piece of code uses and takes and hold no logic to share. Where two
copies are meant, a comment above or in each, `# Twice on purpose: why`, accepts what follows it in its
function.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

LEAST = 6
PURPOSE = re.compile(r"\s*# Twice on purpose: \S")


class Line(NamedTuple):
    file: Path
    number: int
    text: str
    on_purpose: bool


def main() -> int:
    found = duplicates([read(file) for folder in sys.argv[1:] for file in sorted(Path(folder).rglob("*.py"))])
    for first, second, count in found:
        print(f"{count} lines stand twice: {place(first)} and {place(second)}")
    if found:
        print("Make one of two, or say why there are two: # Twice on purpose: ...")
    return 1 if found else 0


def place(line: Line) -> str:
    return f"{line.file}:{line.number}"


def read(file: Path) -> list[Line]:
    """The lines of a file that count."""
    text = file.read_text()
    left_out, begins = find_left_out(ast.parse(text))
    comments = find_comments(text)
    lines = []
    on_purpose = False
    for number, line in enumerate(text.splitlines(), 1):
        on_purpose = (on_purpose and number not in begins) or PURPOSE.match(line) is not None
        code = line[: comments.get(number)]
        if number not in left_out and re.search(r"\w", code):
            lines.append(Line(file, number, " ".join(code.split()), on_purpose))
    return lines


def find_left_out(tree: ast.Module) -> tuple[set[int], set[int]]:
    """The numbers of the lines that do not count, and of those at which a function or class begins."""
    left_out: set[int] = set()
    begins: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, (node.end_lineno or 0) + 1))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            begin = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            begins.add(begin)
            left_out.update(range(begin, max(node.body[0].lineno, node.lineno + 1)))
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                left_out.update(range(first.lineno, (first.end_lineno or 0) + 1))
    return left_out, begins


def find_comments(text: str) -> dict[int, int]:
    """Where the comments begin, by line."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.start[0]: token.start[1] for token in tokens if token.type == tokenize.COMMENT}


def duplicates(files: list[list[Line]]) -> list[tuple[Line, Line, int]]:
    """The first lines of two equal blocks, as long as can be, and how many lines they have."""
    places = defaultdict(list)
    for which, lines in enumerate(files):
        for at in range(len(lines) - LEAST + 1):
            places[tuple(line.text for line in lines[at : at + LEAST])].append((which, at))
    pairs = {pair for group in places.values() for pair in combinations(group, 2)}
    found = []
    for (one, i), (other, j) in sorted(pairs):
        if ((one, i - 1), (other, j - 1)) in pairs:
            continue
        count = LEAST
        while ((one, i + count - LEAST + 1), (other, j + count - LEAST + 1)) in pairs:
            count += 1
        if one == other:
            count = min(count, j - i)
        first, second = files[one][i], files[other][j]
        meant = files[one][i + count - 1].on_purpose and files[other][j + count - 1].on_purpose
        if count >= LEAST and not meant:
            found.append((first, second, count))
    return sorted(found, key=lambda each: -each[2])


if __name__ == "__main__":
    sys.exit(main())
