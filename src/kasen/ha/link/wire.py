"""What goes over a link, and how a node reaches another one.

A link is one Arrow Flight DoExchange, opened by the upstream copy. Its data messages are record batches (a
query's changes with their instants, in order) with a small JSON text beside them: the stretch of time that
the message completes. Acknowledgements come back as JSON texts alone. Positions are times: everything below a
position is meant, so a message always ends between two times, and `part` marks all but the last piece of one
that is too large. A tuple's name is its instant and its place in the instant's value order, which is the
order on the link; no copy counts what it has sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import xxhash

from kasen.errors import DataError
from kasen.ha.config import NodeConfig

BEGIN = -(2**63)
_CONNECT_MS = 5000
#: How a call to another node fails.
FAULTS = (flight.FlightError, pa.ArrowException, DataError, OSError)
Json = dict[str, Any]


def pack(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def unpack(content: bytes | pa.Buffer | None) -> Json:
    """DataError if it is not a JSON object."""
    try:
        found = json.loads(bytes(content) if content is not None else b"")
    except (ValueError, UnicodeDecodeError):
        raise DataError("a message that is not JSON") from None
    if not isinstance(found, dict):
        raise DataError("a message that is not a JSON object")
    return found


def digest(content: bytes | pa.Buffer) -> str:
    """The checksum that goes with what a link carries: TCP's own misses one damaged message in 65,536."""
    return xxhash.xxh3_64_hexdigest(content)


@dataclass(frozen=True, slots=True)
class LinkPiece:
    """A query's changes at times in [start, upto), complete; `ended` if nothing comes after them."""

    batch: pa.RecordBatch | None
    start: int
    upto: int
    ended: bool = False

    @property
    def rows(self) -> int:
        return 0 if self.batch is None else int(self.batch.num_rows)


# ---------------------------------------------------------------- reaching others


class _TokenFactory(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses calls without the right token before anything else is read."""

    def __init__(self, token: str) -> None:
        self._wanted = f"Bearer {token}"

    def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> None:
        del info
        given = [
            value for key, values in headers.items() if key.lower() == "authorization" for value in values
        ]
        if len(given) != 1 or not compare_digest(given[0].encode(), self._wanted.encode()):
            raise flight.FlightUnauthenticatedError("wrong token")


def server_options(config: NodeConfig) -> Json:
    """What FlightServerBase takes for the node's security."""
    options: Json = {}
    if config.token is not None:
        options["middleware"] = {"token": _TokenFactory(config.token)}
    if config.tls is not None:
        options["tls_certificates"] = [(config.tls.certificate, config.tls.key)]
    return options


def location(config: NodeConfig, address: str) -> str:
    return f"{'grpc' if config.tls is None else 'grpc+tls'}://{address}"


def connect(config: NodeConfig, address: str) -> flight.FlightClient:
    """A client; nothing is sent before its first call."""
    roots = {} if config.tls is None else {"tls_root_certs": config.tls.authority}
    # A peer that died and came back must be found at once, not after gRPC's growing pauses. The least pause
    # is also the time that an attempt gets: on a slow network or a busy machine, a short one never succeeds.
    pauses = [("grpc.initial_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 200)]
    pauses.append(("grpc.min_reconnect_backoff_ms", _CONNECT_MS))
    dialled = config.routes.get(address, address)
    return flight.FlightClient(location(config, dialled), generic_options=pauses, **roots)


def call_options(config: NodeConfig, timeout: float | None = None) -> flight.FlightCallOptions:
    headers = [] if config.token is None else [(b"authorization", f"Bearer {config.token}".encode())]
    return flight.FlightCallOptions(timeout=timeout, headers=headers)


def ask(config: NodeConfig, client: flight.FlightClient, action: str, body: Json, timeout: float) -> Json:
    """One question to another node; FlightError if it does not answer in time."""
    results = client.do_action(flight.Action(action, pack(body)), call_options(config, timeout))
    answers = [unpack(result.body) for result in results]
    if len(answers) != 1:
        raise DataError(f"{len(answers)} answers to {action}")
    return answers[0]


def reason(fault: BaseException) -> str:
    """The first line of a Flight error, without gRPC's own details."""
    text = str(fault).split(". gRPC client debug context", 1)[0].split(". Detail:", 1)[0]
    if isinstance(fault, flight.FlightUnavailableError):
        return "not reachable"
    return text.splitlines()[0] if text else type(fault).__name__
