"""A real HDFS for tests: a NameNode and a DataNode on the loopback, each a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

_SERVER = "org.apache.hadoop.hdfs.server"
#: `scripts/hdfs.sh` brings it.
JARS = sorted(Path(".venv/hdfs").glob("hadoop-client-minicluster-*.jar"))


@dataclass(frozen=True, slots=True)
class Hdfs:
    """Its address for Spark, and that for Python, which has no native library of Hadoop's."""

    spark: str
    python: str


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _write(file: Path, settings: dict[str, str]) -> None:
    lines = [
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
    ]
    file.write_text(f"<configuration>{''.join(lines)}</configuration>")


def _is_ready(web: int) -> bool:
    """Whether the NameNode answers and has found its DataNode, after which it leaves its safe mode."""
    query = "jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{web}/{query}", timeout=5) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, OSError):
        return False
    return '"NumLiveDataNodes" : 1' in text and '"FSState" : "Operational"' in text


@contextmanager
def hdfs(folder: Path) -> Iterator[Hdfs]:
    rpc, web, data, data_web, data_rpc = _free_ports(5)
    _write(folder / "core-site.xml", {"fs.defaultFS": f"hdfs://127.0.0.1:{rpc}"})
    _write(
        folder / "hdfs-site.xml",
        {
            "dfs.namenode.name.dir": (folder / "names").as_uri(),
            "dfs.datanode.data.dir": (folder / "data").as_uri(),
            "dfs.replication": "1",
            "dfs.namenode.http-address": f"127.0.0.1:{web}",
            "dfs.datanode.address": f"127.0.0.1:{data}",
            "dfs.datanode.http.address": f"127.0.0.1:{data_web}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{data_rpc}",
            "dfs.datanode.hostname": "127.0.0.1",
        },
    )
    home = Path(pyspark.__file__).parent
    classes = os.pathsep.join([str(folder), *(str(jar.resolve()) for jar in JARS), f"{home}/jars/*"])
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else "java"
    command = [str(java), "-Xmx256m", "-cp", classes]
    with (folder / "log").open("ab") as log:
        name_node = [*command, f"{_SERVER}.namenode.NameNode"]
        subprocess.run([*name_node, "-format", "-nonInteractive"], check=True, stdout=log, stderr=log)
        started = [
            subprocess.Popen(server, stdout=log, stderr=log, start_new_session=True)
            for server in (name_node, [*command, f"{_SERVER}.datanode.DataNode"])
        ]
    try:
        deadline = time.monotonic() + 120
        while not _is_ready(web):
            assert time.monotonic() < deadline, (folder / "log").read_text()[-3000:]
            time.sleep(0.2)
        user = os.environ.get("USER", "root")
        yield Hdfs(f"hdfs://127.0.0.1:{rpc}", f"webhdfs://{user}@127.0.0.1:{web}")
    finally:
        for each in started:
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()
