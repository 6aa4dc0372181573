"""The Spark session that a run uses: one that is there already, or an embedded one."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.sql import SparkSession

from kasen import stops
from kasen.errors import DataError

#: A task may be tried four times: a Python worker that dies is no reason to stop.
LOCAL = "local[*,4]"

#: Spark notes an epoch's offsets and its end in small files. By its default manager, each is a dozen child
#: processes on a local file system (chmod, readlink), most of what a small epoch costs. Two drivers on one
#: checkpoint are told apart by Kasen's own records, so a plain rename is safe enough for these files.
_LOCAL_FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

#: Rows become Arrow cell by cell; Arrow need not check each time that a cell is where Spark has made room.
_UNCHECKED = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"


def _java_options() -> str:
    """What an embedded Spark's Java is told, unless the user has told it something else."""
    if "SPARK_CONF_DIR" in os.environ or "SPARK_HOME" in os.environ:
        return _UNCHECKED
    quiet = (Path(__file__).parent / "log4j2.properties").as_uri()
    return f"{_UNCHECKED} -Dlog4j2.configurationFile={quiet}"


def _heap() -> str:
    """Memory for an embedded Spark: a quarter of the machine's, as epochs pass through it whole."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{min(max(there >> 22, 1024), 8192)}m"


def master_in_use(master: str | None) -> str:
    """The master of the session that `session` would give."""
    active = SparkSession.getActiveSession() if master is None else None
    return master or (LOCAL if active is None else str(active.sparkContext.master))


def session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """The active session, or a new one on `master` (embedded if None), with settings of the user's own."""
    active = SparkSession.getActiveSession()
    # Workers must run the interpreter that has Kasen, not whatever python3 is on the PATH.
    if active is not None and master is None:
        if "PYSPARK_PYTHON" not in os.environ:
            active.sparkContext.pythonExec = sys.executable
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    master = master or LOCAL
    settings = {
        "spark.master": master,
        "spark.app.name": "kasen",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        # Workers are forked from a process that has Kasen loaded.
        "spark.python.daemon.module": "kasen.spark.daemon",
    }
    if master.startswith("local"):
        # An embedded Spark talks to itself only, and small epochs want few partitions.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.driver.defaultJavaOptions": _java_options(),
            "spark.driver.memory": os.environ.get("SPARK_DRIVER_MEMORY", _heap()),
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
            **_LOCAL_FILES,
        }
    settings |= conf or {}
    configured = SparkConf().setAll([*settings.items()])
    _start(configured)
    created = SparkSession.builder.config(conf=configured).getOrCreate()
    created.sparkContext.setLogLevel("ERROR")
    return created


def _start(conf: SparkConf) -> None:
    """Starts Spark, unless it runs.

    Spark takes SIGINT for itself when the main thread starts it. A handler that is there already stays.
    """
    with _java_out_of_reach():
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            SparkContext.getOrCreate(conf)
            return
        with ThreadPoolExecutor(1) as other:
            other.submit(SparkContext.getOrCreate, conf).result()


@contextmanager
def _java_out_of_reach() -> Iterator[None]:
    """Java that is started here gets no signals that are for us; it ends when we do, as its input ends then.

    A terminal signals all its processes, and a service manager does. Without Java, the epoch that is running
    could not be finished.
    """
    gateway: Any = java_gateway
    launch = gateway.Popen
    gateway.Popen = _launch
    try:
        yield
    finally:
        gateway.Popen = launch


def _launch(command: list[str], **options: Any) -> Popen[bytes]:
    def ignore_signals() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    options |= {"preexec_fn": ignore_signals, "process_group": 0}
    process = Popen(command, **options)

    def end() -> None:
        # Before it has told where it listens, Java does not look at its input.
        os.killpg(process.pid, signal.SIGKILL)
        shutil.rmtree(Path(options["env"]["_PYSPARK_DRIVER_CONN_INFO_PATH"]).parent, ignore_errors=True)

    stops.at_end(end)
    return process


def need_utc(spark: SparkSession) -> None:
    """Kasen's times have no zone. In any other than UTC, Spark would move them on their way."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    if zone not in ("UTC", "Etc/UTC", "GMT", "Z", "+00:00"):
        raise DataError(
            f"the Spark session's time zone is {zone}: set spark.sql.session.timeZone to UTC,"
            " as Kasen's times have no zone"
        )
