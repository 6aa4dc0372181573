"""node.toml: one node, what it runs, whom it talks to, and how careful it is."""

from __future__ import annotations

import ipaddress
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kasen.errors import DataError

PRIMARY, SECONDARY = "primary", "secondary"
#: A copy that has not yet found out which of the two it is.
STARTING = "starting"
COMPRESSIONS = ("none", "lz4", "zstd", "zlib")
#: A Spark application recovers in seconds; while its JVM warms up it may well be silent for half of one.
_SPARK_PING_SECONDS = 1.0
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One end of a link: a node by name, its copies' addresses (the primary at the start comes first).

    `query` is what the upstream node sends, `stream` what the downstream node calls it.
    """

    node: str
    query: str
    stream: str
    copies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tls:
    certificate: bytes
    key: bytes
    authority: bytes


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """`batch` is how many tuples wait before they go to a downstream secondary: 1 is Active Standby, None
    never sends any (Upstream Backup), "auto" keeps the bounds. `routes` says where to dial for an address
    that is reached another way. `finished_folder` is a folder that nodes share, where each notes that it has
    finished. Times are in seconds, `queue` in tuples."""

    name: str
    listen: str
    role: str = PRIMARY
    peer: str | None = None
    app: Path | None = None
    sink: Path | None = None
    engine: str = "local"
    inputs: tuple[Neighbour, ...] = ()
    outputs: tuple[Neighbour, ...] = ()
    rate: float | None = None
    speed: float | None = None
    batch: int | str | None = 1
    max_recovery: float | None = None
    max_overhead: float | None = None
    compression: str = "none"
    ack: str = "safe"
    standby: str = "semi-active"
    ack_interval: float = 0.25
    ping_interval: float = 0.25
    snapshot_interval: float = 1.0
    queue: int = 100_000
    max_message: int = 64 << 20
    token: str | None = None
    tls: Tls | None = None
    routes: Mapping[str, str] = field(default_factory=dict)
    finished_folder: Path | None = None
    file: Path | None = None


def read_node(file: Path) -> NodeConfig:
    """The node that a file describes; DataError with the reason if it is wrong."""
    return replace(node_of(read_toml(file), file.parent), file=file.resolve())


def read_toml(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise DataError(f"no file {str(file)!r}")
    try:
        return tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise DataError(f"{file}: {fault}") from None


def node_of(given: dict[str, Any], base: Path) -> NodeConfig:
    """Checks every key and value; paths are relative to `base`."""
    known = set(NodeConfig.__dataclass_fields__)
    files = ("tls_certificate", "tls_key", "tls_authority")
    known = (known - {"tls", "file"}) | set(files)
    for key in given:
        if key not in known:
            raise DataError(f"a node has no setting {key!r}; there are: {', '.join(sorted(known))}")
    for key in ("name", "listen"):
        if not isinstance(given.get(key), str) or not given[key]:
            raise DataError(f"a node needs {key}")
    values = {key: value for key, value in given.items() if key not in files}
    for key in ("app", "sink", "finished_folder"):
        if key in values:
            values[key] = base / str(values[key])
    for key in ("ack_interval", "ping_interval", "snapshot_interval", "max_recovery"):
        if key in values:
            values[key] = seconds(values[key], key)
    if values.get("engine") == "spark":
        values.setdefault("ping_interval", _SPARK_PING_SECONDS)
    values["inputs"] = tuple(_neighbour(each, "inputs") for each in given.get("inputs", ()))
    values["outputs"] = tuple(_neighbour(each, "outputs") for each in given.get("outputs", ()))
    if "batch" in values:
        values["batch"] = _batch(values["batch"])
    given_files = [key for key in files if key in given]
    if given_files and len(given_files) < len(files):
        raise DataError(f"TLS needs all of {', '.join(files)}")
    if given_files:
        values["tls"] = Tls(*(_bytes(base / str(given[key])) for key in files))
    config = NodeConfig(**values)
    _check(config)
    return config


def with_role(config: NodeConfig, role: str) -> NodeConfig:
    return replace(config, role=role)


def seconds(value: object, what: str) -> float:
    """250, 0.25 (seconds) or "250ms"."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    if isinstance(value, str):
        for unit in ("us", "ms", "s", "m"):
            number = value.removesuffix(unit)
            if number != value:
                try:
                    found = float(number) * _UNITS[unit]
                except ValueError:
                    continue
                if found > 0 and math.isfinite(found):
                    return found
    raise DataError(f'{what} must be a length of time such as "250ms", not {value!r}')


def _neighbour(given: Any, what: str) -> Neighbour:
    try:
        copies = tuple(str(each) for each in given["copies"])
        found = Neighbour(str(given["node"]), str(given["query"]), str(given["stream"]), copies)
    except (KeyError, TypeError):
        raise DataError(f"each of {what} needs node, query, stream and copies") from None
    if not 1 <= len(copies) <= 2:
        raise DataError(f"{what}: {found.node} must have one or two copies, not {len(copies)}")
    for address in copies:
        split_address(address)
    return found


def _batch(value: object) -> int | str | None:
    if value == "auto":
        return "auto"
    if value in ("infinite", "none"):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise DataError(f'batch must be a number from 1 on, "infinite" or "auto", not {value!r}')


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as fault:
        raise DataError(f"{file}: {fault.strerror}") from None


def split_address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise DataError(f"{address!r} is not an address such as 127.0.0.1:7001")
    return host, int(port)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _check(config: NodeConfig) -> None:
    choices = {
        "role": (PRIMARY, SECONDARY),
        "compression": COMPRESSIONS,
        "ack": ("safe", "document"),
        "standby": ("semi-active", "passive"),
        "engine": ("local", "spark"),
    }
    for key, valid in choices.items():
        if getattr(config, key) not in valid:
            raise DataError(f"{key} must be one of {', '.join(valid)}, not {getattr(config, key)!r}")
    if config.engine == "spark" and (config.app is None or not config.inputs):
        raise DataError(f'{config.name}: engine = "spark" is for nodes that run an app on links')
    if (config.app is None) == (config.sink is None):
        raise DataError(f"{config.name} needs either an app to run or a sink to write to")
    if config.role == SECONDARY and config.peer is None:
        raise DataError(f"{config.name} is a secondary, and needs the address of its peer")
    if config.sink is not None and config.peer is not None:
        raise DataError(
            f"{config.name} writes files, and two copies would write them twice: a sink has one copy, which"
            " goes on where its journal ends when it is started again"
        )
    bounds = [config.max_recovery, config.max_overhead]
    if (config.batch == "auto") != (sum(bound is not None for bound in bounds) == 1):
        raise DataError('batch = "auto" goes with exactly one of max_recovery and max_overhead')
    if config.rate is not None and config.speed is not None:
        raise DataError("a source has a rate (tuples a second) or a speed (times its own time), not both")
    host, _ = split_address(config.listen)
    if not is_loopback(host) and (config.tls is None or config.token is None):
        raise DataError(
            f"{config.name} would listen on {host}, which others can reach, without TLS and a token: anybody"
            " could read and write its streams; give tls_certificate, tls_key, tls_authority and token, or"
            " listen on 127.0.0.1"
        )
