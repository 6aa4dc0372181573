"""The Spark session that a run uses: one that is there already, or an embedded one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

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
    builder = (
        SparkSession.builder.master(master)
        .appName("kasen")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.showConsoleProgress", "false")
        # Workers are forked from a process that has Kasen loaded.
        .config("spark.python.daemon.module", "kasen.spark.daemon")
    )
    if master.startswith("local"):
        # An embedded Spark talks to itself only, and small epochs want few partitions.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = (
            builder.config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.defaultJavaOptions", _java_options())
            .config("spark.driver.memory", os.environ.get("SPARK_DRIVER_MEMORY", _heap()))
            .config("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
        )
        for key, value in _LOCAL_FILES.items():
            builder = builder.config(key, value)
    for key, value in (conf or {}).items():
        builder = builder.config(key, value)
    created = builder.getOrCreate()
    created.sparkContext.setLogLevel("ERROR")
    return created


def need_utc(spark: SparkSession) -> None:
    """Kasen's times have no zone. In any other than UTC, Spark would move them on their way."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    if zone not in ("UTC", "Etc/UTC", "GMT", "Z", "+00:00"):
        raise DataError(
            f"the Spark session's time zone is {zone}: set spark.sql.session.timeZone to UTC,"
            " as Kasen's times have no zone"
        )
