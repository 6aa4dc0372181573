"""The store of durable epochs: what counts, what is refused, what is removed. No Spark is needed for that."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kasen.checksum import DamagedFile, checksum, seal
from kasen.errors import DataError
from kasen.runtime.durable.arrays import pack_arrays, unpack_arrays
from kasen.spark.state.epochs import LEAST, TIMES, StateJournal, Store
from kasen.spark.state.ledger import Ledger
from kasen.spark.state.state_files import Files


def store(folder: Path, app: str = "app", layout: str = "the driver") -> Store:
    return Store(Files(str(folder)), app, layout)


def record(epoch: int, **more: Any) -> dict[str, Any]:
    return {"epoch": epoch, **more}


def test_an_empty_store_has_nothing_to_go_on_from(tmp_path: Path) -> None:
    assert store(tmp_path).load() is None


def test_the_last_commit_is_what_a_new_run_goes_on_from(tmp_path: Path) -> None:
    one = store(tmp_path)
    one.load()
    for epoch in range(5):
        one.commit(record(epoch, mark=epoch * 10))
    found = store(tmp_path).load()
    assert found is not None
    assert (found["epoch"], found["mark"]) == (4, 40)


def test_an_epoch_is_committed_once(tmp_path: Path) -> None:
    """A driver that was thought dead and comes back must not change what counts."""
    one, zombie = store(tmp_path), store(tmp_path)
    one.load()
    zombie.load()
    one.commit(record(0, by="one"))
    with pytest.raises(DataError, match="epoch 0 was committed by another run"):
        zombie.commit(record(0, by="zombie"))
    found = store(tmp_path).load()
    assert found is not None
    assert found["by"] == "one"


def test_files_that_no_record_lists_do_not_count_and_are_removed(tmp_path: Path) -> None:
    one = store(tmp_path)
    one.load()
    kept, _ = one.files.write("files/a", b"a")
    one.files.write("files/a-of-another-attempt", b"b")
    one.commit(record(0, file=kept))
    again = store(tmp_path)
    again.load()
    assert again.files.list("files") == [kept]


def test_two_restore_points_are_kept_and_older_files_removed(tmp_path: Path) -> None:
    one = store(tmp_path)
    one.load()
    written = []
    for epoch in range(6):
        written.append(one.files.write(f"files/{epoch}", b"x")[0])
        one.commit(record(epoch, file=written[-1]))
    assert one.files.list("files") == written[-2:]


@pytest.mark.parametrize(
    ("app", "layout", "fault"),
    [
        ("another app", "the driver", "checkpoints of another app"),
        ("app", "executors with 3 shards", "holds state of the driver"),
    ],
)
def test_a_store_of_another_app_or_layout_is_refused(
    app: str, layout: str, fault: str, tmp_path: Path
) -> None:
    store(tmp_path).load()
    with pytest.raises(DataError, match=fault):
        store(tmp_path, app, layout).load()


def test_a_store_of_another_format_is_refused(tmp_path: Path) -> None:
    store(tmp_path).load()
    identity = tmp_path / "identity.json"
    content = identity.read_bytes().partition(b"\n")[2]
    identity.write_bytes(seal(content.replace(b'"version": 3', b'"version": 99')))
    with pytest.raises(DataError, match="has format 99"):
        store(tmp_path).load()


def test_a_foreign_checkpoint_of_spark_is_refused(tmp_path: Path) -> None:
    one = store(tmp_path)
    one.load()
    one.check_query("query-a", 0)
    one.commit(record(0))
    again = store(tmp_path)
    again.load()
    again.check_query("query-a", 1)
    with pytest.raises(DataError, match="Spark's own checkpoint was removed"):
        again.check_query("query-b", 0)


def test_epochs_that_go_on_without_their_state_are_refused(tmp_path: Path) -> None:
    one = store(tmp_path)
    one.load()
    with pytest.raises(DataError, match="the state was removed"):
        one.check_query("query-a", 7)


def test_a_record_tells_what_is_new_and_its_size_does_not_grow_with_the_log(tmp_path: Path) -> None:
    one = store(tmp_path)
    one.load()
    log: list[list[object]] = []
    for epoch in range(300):
        log.append([epoch, f"files/{epoch}", 1000])
        one.commit(record(epoch, journal={"snapshot": None, "log": log}, notes={"rows": epoch}))
    names = sorted((tmp_path / "commits").iterdir())
    assert 64 < len(names) < 2 * 66
    sizes = sorted(name.stat().st_size for name in names)
    assert sizes[len(sizes) // 2] < 250
    found = store(tmp_path).load()
    assert found is not None
    assert found == record(299, journal={"snapshot": None, "log": log}, notes={"rows": 299})


@pytest.mark.parametrize("name", ["identity.json", "commits/000000000000.json"])
def test_a_damaged_record_is_named(name: str, tmp_path: Path) -> None:
    one = store(tmp_path)
    one.load()
    one.commit(record(0))
    sound = (tmp_path / name).read_bytes()
    damaged = bytearray(sound)
    damaged[-3] ^= 1
    for content in (b"", b"{", sound[:-1], sound[28:], bytes(damaged)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DamagedFile, match=f"{name} is damaged"):
            store(tmp_path).load()
    (tmp_path / name).unlink()
    if name == "identity.json":
        with pytest.raises(DamagedFile, match=f"{name} is damaged"):
            store(tmp_path).load()


def test_a_damaged_change_by_hand_is_named(tmp_path: Path) -> None:
    one = store(tmp_path)
    one.load()
    one.note_change(-1, "DROP QUERY q")
    one.note_change(-1, "DROP QUERY r")
    assert store(tmp_path).changes() == {-1: ["DROP QUERY q", "DROP QUERY r"]}
    file = tmp_path / "changes" / "000000000000-000001.cql"
    for content in (file.read_bytes()[:-2], None):
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(DamagedFile, match=r"000000000000-000001\.cql is damaged"):
            store(tmp_path).changes()


class Log:
    """An input log that knows of so many epochs, and has done them."""

    def __init__(self, epochs: int) -> None:
        self.known, self.done = epochs, epochs

    def is_done(self, epoch: int) -> bool:
        return epoch < self.done

    def can_redo(self, epoch: int) -> bool:
        return epoch < self.known and not self.is_done(epoch + 1)

    def redo(self, epoch: int) -> None:
        self.done = epoch


def resumed_from(folder: Path, log: Log) -> int:
    """The epoch from which a new run goes on."""
    one = store(folder)
    found = one.load(log, one.files.find_damage)
    assert log.done == (0 if found is None else found["epoch"] + 1)
    return -1 if found is None else int(found["epoch"])


@pytest.mark.parametrize("fault", ["a file", "a record", "a removed file", "a removed record"])
def test_the_last_epoch_is_run_again_if_its_files_are_damaged(fault: str, tmp_path: Path) -> None:
    one = store(tmp_path)
    one.load()
    for epoch in range(4):
        name, _ = one.files.write(f"files/driver-{epoch:012}-x.segment", b"content")
        one.commit(record(epoch, file=name))
    assert resumed_from(tmp_path, Log(4)) == 3
    target = tmp_path / (name if "file" in fault else "commits/000000000003.json")
    if "removed" in fault:
        target.unlink()
    else:
        target.write_bytes(target.read_bytes()[:-1])
    # Without a log, or if that has gone on, nobody can come to the same state.
    log = Log(4)
    log.known = 3
    with pytest.raises(DamagedFile, match=str(target)):
        resumed_from(tmp_path, log)
    with pytest.raises(DamagedFile, match=str(target)):
        resumed_from(tmp_path, Log(5))
    assert resumed_from(tmp_path, Log(4)) == 2
    assert resumed_from(tmp_path, Log(3)) == 2
    again = store(tmp_path)
    again.load()
    again.commit(record(3, file=again.files.write("files/driver-000000000003-y.segment", b"content")[0]))
    assert resumed_from(tmp_path, Log(4)) == 3


def test_an_epoch_is_not_run_again_if_queries_were_changed_after_it(tmp_path: Path) -> None:
    one = store(tmp_path)
    one.load()
    for epoch in range(2):
        one.commit(record(epoch, journal={"snapshot": None, "log": []}))
    one.note_change(1, "DROP QUERY q")
    (tmp_path / "commits" / "000000000001.json").write_bytes(b"")
    with pytest.raises(DamagedFile, match=r"000000000001\.json is damaged"):
        resumed_from(tmp_path, Log(2))


def test_a_store_from_before_checksums_resumes_with_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = store(tmp_path)
    one.load()
    one.commit(record(0, file="files/a"))
    assert not caplog.records
    (tmp_path / "files" / "a").write_bytes(b"content")
    for file in (tmp_path / "identity.json", tmp_path / "commits" / "000000000000.json"):
        content = file.read_bytes().partition(b"\n")[2]
        file.write_bytes(content.replace(b'"version": 3', b'"version": 2'))
    again = store(tmp_path)
    assert again.load() == record(0, file="files/a")
    assert again.files.read("files/a") == b"content"
    (note,) = caplog.records
    assert f"{tmp_path} was written before Kasen had checksums" in note.message
    again.commit(record(1, file="files/a"))
    assert (tmp_path / "commits" / "000000000001.json").read_bytes().startswith(b"kasen-xxh3 ")
    found = store(tmp_path).load()
    assert found is not None
    assert found["epoch"] == 1


def test_a_record_that_was_removed_is_missed(tmp_path: Path) -> None:
    one = store(tmp_path)
    one.load()
    for epoch in range(4):
        one.commit(record(epoch, notes={"rows": epoch}))
    (tmp_path / "commits" / "000000000001.json").unlink()
    with pytest.raises(DamagedFile, match=r"000000000001\.json is damaged \(it is missing"):
        store(tmp_path).load()
    (tmp_path / "commits" / "000000000000.json").unlink()
    with pytest.raises(DamagedFile, match=r"000000000001\.json is damaged \(it is missing"):
        store(tmp_path).load()


def test_files_of_an_epoch_to_come_are_left_alone(tmp_path: Path) -> None:
    """A run that cannot be seen, on another host, may be about to commit them."""
    one = store(tmp_path)
    one.load()
    one.commit(record(3))
    names = [one.files.write(f"files/driver-{epoch:012}-attempt.segment", b"content")[0] for epoch in (3, 4)]
    store(tmp_path).load()
    assert one.files.list("files") == names[1:]


def test_a_path_may_be_an_address_of_a_file_system(tmp_path: Path) -> None:
    files = Files(f"file://{tmp_path}")
    files.make("files")
    name = f"files/a.{checksum(b'content')}"
    assert files.write("files/a", b"content") == (name, 7)
    assert files.read(name) == b"content"
    assert files.create("files/b", b"first")
    assert not files.create("files/b", b"second")
    assert files.record("files/b") == b"first"


def test_segments_call_for_a_snapshot_when_they_far_outweigh_it() -> None:
    journal = StateJournal()
    journal.add(0, ("s0", LEAST // 2), None)
    assert not journal.snapshot_due(LEAST // 4, lambda: b"small")
    assert journal.snapshot_due(LEAST, lambda: b"small") == b"small"
    journal.add(1, ("s1", LEAST), ("snapshot", 10 * LEAST))
    assert (journal.since, journal.log) == (1, [])
    assert not journal.snapshot_due((10 * TIMES - 1) * LEAST, lambda: b"small")
    assert journal.snapshot_due((10 * TIMES + 1) * LEAST, lambda: b"small")


def test_a_state_that_grows_with_its_segments_is_weighed_now_and_then_and_not_written() -> None:
    """As that of a window that fills."""
    journal, packed = StateJournal(), list[int]()
    segment = LEAST // 8

    def pack(size: int) -> bytes:
        packed.append(size)
        return bytes(size)

    for epoch in range(1000):
        assert journal.snapshot_due(segment, partial(pack, (epoch + 1) * segment)) is None
        journal.add(epoch, ("s", segment), None)
    assert len(packed) <= 5
    assert journal.snapshot_due(segment, lambda: b"it is empty again") is None
    for epoch in range(10_000):
        if state := journal.snapshot_due(segment, lambda: b"it is empty again"):
            break
        journal.add(epoch, ("s", segment), None)
    assert state == b"it is empty again"


def test_bytes_written_are_in_proportion_to_the_input_whatever_the_state() -> None:
    """A state of any size, with segments of equal size: snapshots never cost more than the segments did."""
    segment = LEAST // 8
    for size in (10 * LEAST, 100 * LEAST):
        journal, written = StateJournal(), 0
        epochs = 4 * TIMES * size // segment
        for epoch in range(epochs):
            snapshot = ("x", size) if journal.snapshot_due(segment, partial(bytes, size)) else None
            written += size if snapshot is not None else 0
            journal.add(epoch, ("s", segment), snapshot)
        assert 0 < written <= epochs * segment / TIMES


def test_epochs_are_numbered_on_when_all_of_the_last_one_is_in_snapshots(tmp_path: Path) -> None:
    """Else a shard that is restored would take what came since for what its snapshot holds already."""
    ledger = Ledger(Files(str(tmp_path)), ["1.0"])
    ledger.files.make("files")
    ledger.load({})
    for epoch in range(3):
        assert ledger.next == epoch
        ledger.begin()
        ledger.write_orders(epoch, b"orders")
        ledger.take([{"part": "1.0", "segment": "", "weight": 1, "weighed": 1, "snapshot": ("a file", 1)}])
        ledger.close(epoch)
        assert ledger.past == []
        ledger.load(ledger.record())


def test_arrays_come_back_as_they_were() -> None:
    state = {
        "step.3": {"a": np.arange(6, dtype=np.int64).reshape(2, 3), "b": np.array([1.5, np.nan])},
        "step.4": {},
        "text": {"bytes": np.frombuffer(b"abc", np.uint8)},
    }
    found = unpack_arrays(pack_arrays(state))
    assert list(found) == ["step.3", "text", "step.4"]
    np.testing.assert_array_equal(found["step.3"]["a"], state["step.3"]["a"])
    np.testing.assert_array_equal(found["step.3"]["b"], state["step.3"]["b"])
    assert found["step.4"] == {}
    found["step.3"]["a"][0, 0] = 7  # kernels write into what they are given
