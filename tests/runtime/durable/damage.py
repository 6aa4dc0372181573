"""Damage to durable files, as a seed says: a bit flipped, the end cut off, the whole file gone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kasen.errors import KasenError


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that was stopped half-way: the folders it has left, a copy of them, and what is right in the end.

    Folders are put back in place and not elsewhere, as records know where answers are.
    """

    folders: tuple[Path, ...]
    copy: Path
    resume: Callable[[], Mapping[str, bytes]]
    right: Mapping[str, bytes]

    def keep(self) -> None:
        for folder in self.folders:
            shutil.copytree(folder, self.copy / folder.name)

    def restore(self) -> None:
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self.copy / folder.name, folder)

    def files(self, kind_of: Callable[[str], str]) -> dict[str, list[Path]]:
        """All files by kind, as their paths tell."""
        found: dict[str, list[Path]] = {}
        for folder in self.folders:
            for file in sorted(each for each in folder.rglob("*") if each.is_file()):
                kind = kind_of(f"{folder.name}/{file.relative_to(folder)}")
                if kind:
                    found.setdefault(kind, []).append(file)
        return found


def damage(random: Random, file: Path) -> str:
    """Damages a file, and says how."""
    content = file.read_bytes()
    how = random.choice(["flip", "flip", "cut", "remove"])
    if how == "remove" or not content:
        file.unlink()
        return "removed"
    place = random.randrange(len(content))
    if how == "cut":
        file.write_bytes(content[:place])
        return f"cut to {place} of {len(content)} bytes"
    bit = random.randrange(8)
    damaged = bytearray(content)
    damaged[place] ^= 1 << bit
    file.write_bytes(damaged)
    return f"bit {bit} of byte {place} of {len(content)} flipped"


def trials(
    prepared: Prepared,
    kind_of: Callable[[str], str],
    seed: int,
    count: int,
    fresh: Callable[[], None] = lambda: None,
) -> Iterator[str]:
    """Damages a file, resumes, and checks: the right answer, or an error that names the file. Says which.

    Kinds of files take turns, beginning with any. `fresh` is called before each damage.
    """
    random = Random(seed)
    first = random.randrange(1 << 16)
    for number in range(first, first + count):
        prepared.restore()
        fresh()
        kinds = prepared.files(kind_of)
        kind = sorted(kinds)[number % len(kinds)]
        file = random.choice(kinds[kind])
        how = damage(random, file)
        told = f"seed {seed}, trial {number - first}: {file.name} ({kind}) {how}"
        try:
            written = prepared.resume()
        except KasenError as error:
            said = str(error)
            assert file.name in said, f"{told}: the error names another file, or none: {said}"
            assert "\n" not in said, f"{told}: {said}"
            yield f"{told}: {said}"
            continue
        except BaseException as error:
            error.add_note(told)
            raise
        wrong = [name for name in prepared.right if written.get(name) != prepared.right[name]]
        assert not wrong, f"{told}: a wrong answer in {wrong}"
        yield f"{told}: the right answer"
