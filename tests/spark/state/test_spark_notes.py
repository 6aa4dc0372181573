"""What Spark has noted of its epochs is checked before Spark reads it. No Spark is needed for that."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from kasen.checksum import DamagedFile
from kasen.spark.state.spark_notes import SparkNotes


def write(folder: Path, name: str, content: bytes) -> None:
    """A file as Spark writes it, with Hadoop's checksums beside it."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    sums = b"".join(crc32(content[at : at + 512]).to_bytes(4) for at in range(0, len(content), 512))
    (file.parent / f".{file.name}.crc").write_bytes(b"crc\0" + (512).to_bytes(4) + sums)


def begin(folder: Path, epoch: int) -> None:
    write(folder, f"sources/0/{epoch}", b'v1\n{"path":"%03d.csv"}' % epoch)
    write(folder, f"offsets/{epoch}", b'v1\n{"conf":"%s"}\n{"logOffset":%d}' % (b"x" * 600, epoch))


def noted(folder: Path, epochs: int) -> dict[str, str]:
    """Epochs that Kasen has committed; Spark has noted that all are done, and begun one more."""
    notes, found = SparkNotes(folder), dict[str, str]()
    write(folder, "metadata", b'{"id":"query"}')
    for epoch in range(epochs):
        begin(folder, epoch)
        found |= notes.sync()
        write(folder, f"commits/{epoch}", b"v1\n{}")
    begin(folder, epochs)
    return found


def test_whole_notes_are_accepted(tmp_path: Path) -> None:
    SparkNotes(tmp_path).check(noted(tmp_path, 3), 2)
    assert (tmp_path / "offsets/3").exists()


@pytest.mark.parametrize("name", ["metadata", "offsets/2", "offsets/1", "sources/0/1", "sources/0/2"])
def test_a_file_that_spark_needs_and_is_damaged_or_gone_is_named(name: str, tmp_path: Path) -> None:
    known = noted(tmp_path, 3)
    if name == "offsets/1":  # needed only if no later epoch has begun
        (tmp_path / "offsets/3").unlink()
    file = tmp_path / name
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(DamagedFile, match=f"{file} is damaged"):
        SparkNotes(tmp_path).check(known, 2)
    file.unlink()
    with pytest.raises(DamagedFile, match=f"{file} is damaged"):
        SparkNotes(tmp_path).check(known, 2)


@pytest.mark.parametrize("name", ["offsets/3", "sources/0/3", "commits/2", "sources/0/.3.crc"])
def test_what_was_noted_after_the_commit_and_is_damaged_is_noted_again(name: str, tmp_path: Path) -> None:
    known = noted(tmp_path, 3)
    file = tmp_path / name
    file.write_bytes(file.read_bytes()[:-1])
    SparkNotes(tmp_path).check(known, 2)
    left = {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*") if each.is_file()}
    assert not left & {"offsets/3", "offsets/.3.crc", "sources/0/3", "commits/2"}
    assert {"offsets/2", "sources/0/2", "commits/1"} <= left


def test_a_file_list_that_is_gone_is_missed_in_the_epoch_that_has_begun(tmp_path: Path) -> None:
    """Spark would take the epoch for empty, and never read the files again."""
    known = noted(tmp_path, 3)
    (tmp_path / "sources/0/3").unlink()
    SparkNotes(tmp_path).check(known, 2)
    assert not (tmp_path / "offsets/3").exists()


def test_damaged_checksums_beside_a_file_that_is_right_are_removed(tmp_path: Path) -> None:
    known = noted(tmp_path, 3)
    (tmp_path / "offsets/.2.crc").write_bytes(b"crc")
    SparkNotes(tmp_path).check(known, 2)
    assert not (tmp_path / "offsets/.2.crc").exists()


def test_an_epoch_that_is_done_can_be_run_again_if_it_is_the_last(tmp_path: Path) -> None:
    noted(tmp_path, 3)
    notes = SparkNotes(tmp_path)
    assert [notes.can_redo(epoch) for epoch in range(5)] == [False, False, True, True, False]
    assert notes.is_done(2)
    notes.redo(2)
    assert not notes.is_done(2)
    assert not (tmp_path / "offsets/3").exists()
