"""Durable files of runs on Spark are damaged, in both placements: never a wrong answer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from functools import partial
from pathlib import Path
from random import Random

import pytest

from kasen.checksum import seal, unseal
from kasen.cli import load
from kasen.plan.physical import plan_app
from kasen.runtime.local import LocalRun, Options
from kasen.spark.options import SparkOptions
from kasen.spark.pipeline import SparkRun
from kasen.spark.place import OperatorPlace
from tests.runtime.durable.damage import Prepared, trials
from tests.runtime.test_local import files

pytestmark = pytest.mark.spark

APP = """
REGISTER STREAM s (k INTEGER, a DOUBLE, b DOUBLE, c DOUBLE, d DOUBLE, e DOUBLE, f DOUBLE, g DOUBLE, h DOUBLE)
    TIMESTAMP BY ts SLACK 3 FROM 'csv' OPTIONS (path 's');
REGISTER RELATION names (k INTEGER, name VARCHAR) FROM 'csv' OPTIONS (path 'names.csv');
REGISTER QUERY tops AS SELECT k, MAX(a) AS a, MAX(b) AS b, MAX(c) AS c, MAX(d) AS d, MAX(e) AS e, MAX(f) AS f,
    MAX(g) AS g, MAX(h) AS h, COUNT(*) AS n FROM s [ROWS 400 SLIDE 200] GROUP BY k;
REGISTER QUERY latest AS ISTREAM(SELECT s.k, names.name, s.a FROM s [PARTITION BY k ROWS 1], names
    WHERE s.k = names.k AND s.a < 0.02);
"""
FILES, FIRST, ROWS = 5, 4, 4000


def write_app(folder: Path) -> Path:
    """A stream of files, of which much is read and little remembered, so that there are snapshots."""
    random = Random(1)
    (folder / "s").mkdir(parents=True)
    for number in range(FILES):
        lines = ["ts,k,a,b,c,d,e,f,g,h"]
        for row in range(ROWS):
            ts = (number * ROWS + row) // 4 - (9 if random.random() < 0.01 else random.choice([0, 0, 1, 3]))
            cells = ",".join(str(random.random()) for _ in range(8))
            lines.append(f"{ts},{random.randrange(6)},{cells}")
        file = folder / "s" / f"{number:03}.csv"
        file.write_text("\n".join(lines) + "\n")
        # Spark takes files in the order of their times.
        os.utime(file, (1_000_000 + number, 1_000_000 + number))
    (folder / "names.csv").write_text("k,name\n" + "".join(f"{k},name{k}\n" for k in range(5)))
    (folder / "app.cql").write_text(APP)
    return folder / "app.cql"


def prepare(folder: Path, place: OperatorPlace) -> Prepared:
    """Runs the first files of a stream, epoch by epoch; the others come before the run is resumed."""
    app = write_app(folder)
    LocalRun(plan_app(load(app)), Options(folder, folder / "right")).run()
    later = [(each, each.rename(folder / each.name)) for each in sorted((folder / "s").iterdir())[FIRST:]]

    def resume() -> dict[str, bytes]:
        shards = 2 if place is OperatorPlace.executors else None
        checkpoint = folder / "checkpoint"
        run = SparkRun(
            plan_app(load(app)),
            SparkOptions(
                folder, folder / "out", checkpoint=checkpoint, files_per_epoch=1, place=place, shards=shards
            ),
        )
        run.run()
        return without_files(files(folder / "out"))

    resume()
    for target, file in later:
        file.rename(target)
    found = Prepared(
        (folder / "checkpoint", folder / "out"),
        folder / "copy",
        resume,
        without_files(files(folder / "right")),
    )
    found.keep()
    return found


def without_files(found: dict[str, bytes]) -> dict[str, bytes]:
    """Engines differ in whether a dead letter tells its file."""
    return {name: re.sub(rb" \(\d+\.csv\)", b"", content) for name, content in found.items()}


def kind_of(path: str) -> str:
    """The kind of a file of a checkpoint; "" if nobody reads it."""
    if path.endswith("/lock"):
        return ""
    if path.endswith(".crc"):
        return "Spark's checksums"
    if path.startswith("out/"):
        return "answers"
    parts = re.sub(r"\.[0-9a-f]{16}$", "", path).split("/")
    if parts[1:3] == ["state", "files"]:
        part = re.match(r"[a-z]+|", parts[3])
        assert part is not None
        return f"{part[0] or 'shard'} {parts[3].rpartition('.')[2]}" if "." in parts[3] else part[0]
    return " ".join(parts[1:-1]) if len(parts) > 3 else parts[-1]


def forget_warm_shards(prepared: Prepared) -> None:
    """Workers that outlast a run have the state of its shards: by another name they do not know it."""
    first = prepared.folders[0] / "state" / "commits" / "000000000000.json"
    content = bytes(unseal(first.read_bytes(), first))
    name = uuid.uuid4().hex.encode()
    first.write_bytes(seal(re.sub(rb'("pipeline": ")\w+', rb"\g<1>" + name, content)))


@pytest.fixture(scope="module", params=list(OperatorPlace))
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tmp_path_factory.mktemp("damage"), request.param)


def check(prepared: Prepared, seed: int, count: int) -> None:
    done = list(trials(prepared, kind_of, seed, count, partial(forget_warm_shards, prepared)))
    print("\n".join(done))
    assert len(done) == count


def test_every_kind_of_file_is_there(prepared: Prepared) -> None:
    kinds = set(prepared.files(kind_of))
    common = {"identity.json", "query.json", "metadata", "state commits", "spark offsets", "spark commits"}
    assert common | {"spark sources 0", "Spark's checksums", "answers"} <= kinds
    assert {"driver segment", "driver snapshot"} <= kinds or (
        {"clock segment", "orders", "shard segment", "shard snapshot"} <= kinds
    )


def test_damaged_files_of_a_run_on_spark_never_change_an_answer(prepared: Prepared) -> None:
    check(prepared, seed=2, count=6)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_many_damaged_files_of_a_run_on_spark_never_change_an_answer(seed: int, prepared: Prepared) -> None:
    check(prepared, seed + 100, count=30)


@pytest.mark.soak
def test_a_damaged_checkpoint_ends_the_command_with_an_error_and_no_stack(prepared: Prepared) -> None:
    """By the command line, in a process of its own: also what Spark and Java print is seen."""
    folder = prepared.folders[0].parent
    sharded = "executors" in (prepared.copy / "checkpoint/state/identity.json").read_text()
    command = [sys.executable, "-c", "from kasen.cli import main; main()", "run", str(folder / "app.cql")]
    command += ["--checkpoint", str(folder / "checkpoint"), "--out", str(folder / "out")]
    command += ["--place", "executors", "--shards", "2"] if sharded else ["--place", "driver"]
    codes = []
    for target in ("state/files/*snapshot*", "spark/offsets/[0-9]*", "state/commits/*"):
        prepared.restore()
        file = min((folder / "checkpoint").glob(target))
        file.write_bytes(file.read_bytes()[:-1])
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert "Traceback" not in done.stderr
        assert "\tat " not in done.stderr
        codes.append(done.returncode)
        if done.returncode == 0:
            assert without_files(files(folder / "out")) == prepared.right
        else:
            assert f"{file.name} is damaged" in done.stderr
    assert codes[1:] == [3, 3]
