"""Links over TLS with a token: nodes that have both work together, everybody else is refused."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.flight as flight
import pytest

from kasen.ha.cluster import free_ports
from kasen.ha.config import Neighbour, NodeConfig, Tls
from kasen.ha.link.server import NodeServer
from kasen.ha.link.wire import ask, connect
from kasen.ha.node import Node
from kasen.ha.work.sink import SinkWork
from tests.ha.chains import chain, expected, make_chain, written
from tests.ha.nodes import Nodes

TOKEN = "swordfish"
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


def openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)


@dataclass(frozen=True)
class Authority:
    """Signs certificates for 127.0.0.1."""

    folder: Path

    @staticmethod
    def made(folder: Path) -> Authority:
        folder.mkdir()
        new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        root, key = folder / "root.pem", folder / "root.key"
        openssl(*new, "-x509", "-days", 2, "-subj", "/CN=tests", "-keyout", key, "-out", root)
        request, extension = folder / "node.csr", folder / "node.ext"
        openssl(*new, "-subj", "/CN=node", "-keyout", folder / "node.key", "-out", request)
        extension.write_text("subjectAltName = IP:127.0.0.1\n")
        signed = ("-in", request, "-days", 2, "-extfile", extension, "-out", folder / "node.pem")
        openssl("x509", "-req", "-CA", root, "-CAkey", key, "-CAcreateserial", *signed)
        return Authority(folder)

    @property
    def tls(self) -> Tls:
        files = ("node.pem", "node.key", "root.pem")
        return Tls(*((self.folder / name).read_bytes() for name in files))

    @property
    def settings(self) -> dict[str, Any]:
        names = {"tls_certificate": "node.pem", "tls_key": "node.key", "tls_authority": "root.pem"}
        return {key: str(self.folder / name) for key, name in names.items()}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.made(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.made(tmp_path_factory.mktemp("tls") / "theirs")


@pytest.fixture
def listening(ours: Authority, tmp_path: Path) -> Iterator[NodeConfig]:
    """The settings of a node that listens."""
    link = Neighbour("n", "q", "s", ("127.0.0.1:1",))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    config = NodeConfig("out", address, sink=tmp_path, inputs=(link,), token=TOKEN, tls=ours.tls)
    work = SinkWork(tmp_path, (link,))
    node = Node(config, work)
    server = NodeServer(config, node)
    server.answers["ping"] = lambda _: {"role": node.role}
    yield config
    node.end("stopped")
    server.shutdown()
    work.close()


def ping(config: NodeConfig, seconds: float = 60.0) -> object:
    with connect(config, config.listen) as client:
        return ask(config, client, "ping", {}, seconds)["role"]


def test_certificate_and_token_are_accepted(listening: NodeConfig) -> None:
    assert ping(listening) == "primary"


def test_a_wrong_token_is_refused(listening: NodeConfig) -> None:
    for token in (None, "swordfis"):
        with pytest.raises(flight.FlightUnauthenticatedError):
            ping(replace(listening, token=token))


def test_without_tls_nothing_is_answered(listening: NodeConfig) -> None:
    with pytest.raises(flight.FlightError):
        ping(replace(listening, tls=None), 2.0)


def test_a_node_with_a_certificate_of_another_authority_is_not_trusted(
    listening: NodeConfig, theirs: Authority
) -> None:
    with pytest.raises(flight.FlightError):
        ping(replace(listening, tls=theirs.tls), 2.0)


def test_a_chain_over_tls_survives_a_crash(ours: Authority, tmp_path: Path) -> None:
    make_chain(tmp_path, "selection", 2000)
    with Nodes(tmp_path, chain(batch=100, token=TOKEN, **ours.settings)) as nodes:
        nodes.wait_for("out", "inputs_begun")
        time.sleep(0.5)
        nodes.signal(nodes.member("n/1"), signal.SIGKILL)
        nodes.finish("out")
    assert written(tmp_path) == expected(tmp_path), nodes.logs()
