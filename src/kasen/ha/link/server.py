"""The Flight server of a node: incoming links, and questions from other nodes."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from kasen.errors import DataError
from kasen.ha.acknowledgements import acknowledge
from kasen.ha.config import NodeConfig
from kasen.ha.link.codec import expand
from kasen.ha.link.inbox import Inbox
from kasen.ha.link.journal import PieceJournal
from kasen.ha.link.out_queue import check_stretch
from kasen.ha.link.wire import Json, LinkPiece, digest, location, pack, reason, server_options, unpack
from kasen.ha.node import Node


class NodeServer(flight.FlightServerBase):  # type: ignore[misc]
    """What ends a connection is logged with its reason, and ends nothing else."""

    def __init__(self, config: NodeConfig, node: Node) -> None:
        try:
            super().__init__(location(config, config.listen), **server_options(config))
        except pa.ArrowException as fault:
            raise DataError(f"{config.name} cannot listen on {config.listen}: {reason(fault)}") from None
        self._node = node
        self.answers: dict[str, Any] = {}
        self._journal: PieceJournal | None = None

    def give_out(self, journal: PieceJournal) -> None:
        """The engine of this node reads pieces from here."""

        def forget(body: bytes) -> Json:
            journal.forget(unpack(body)["number"])
            return {}

        self._journal = journal
        self.answers |= {"journal end": lambda _: {"end": journal.end}, "journal forget": forget}

    # ------------------------------------------------------------ links

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        node = self._node
        try:
            hello = unpack(descriptor.command)
            inbox, schema = self._accept(hello)
        except Exception as fault:
            if not node.stopping.is_set():
                node.log.warning("refused a link from %s: %s", context.peer(), fault)
            raise flight.FlightServerError(f"refused: {fault}") from None
        closed = threading.Event()
        acks = threading.Thread(target=self._send_acks, args=(inbox, writer, closed), daemon=True)
        with node.lock:
            node.exchanges += 1
        acks.start()
        try:
            self._read(reader, inbox, hello, schema)
        except Exception as fault:  # whatever came, it ends this link and nothing else
            why = f"a message without {fault}" if isinstance(fault, KeyError) else str(fault)
            if not node.stopping.is_set():
                node.log.warning("ended the link from %s: %s", hello.get("from"), why)
            raise flight.FlightServerError(f"ended: {why}") from None
        finally:
            closed.set()
            with node.lock:
                node.exchanges -= 1
                node.acks_ready.notify_all()
            acks.join()

    def _accept(self, hello: Json) -> tuple[Inbox, pa.Schema]:
        node = self._node
        if node.stopping.is_set():
            raise DataError("this node is stopping")
        inbox = node.inboxes.get(hello["stream"])
        if inbox is None or (inbox.link.node, inbox.link.query) != (hello["from"], hello["query"]):
            raise DataError(f"no input is for {hello['query']} of {hello['from']} as {hello['stream']}")
        if hello["copy"] not in inbox.link.copies:
            copies = ", ".join(inbox.link.copies)
            raise DataError(f"{hello['copy']} is not a copy of {hello['from']}; its copies: {copies}")
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(hello["schema"])))
        with node.lock:
            if hello["to"] > node.generation:
                node.fence(hello["to"])
            if node.work is not None:
                node.work.accept(inbox.link, schema)
        return inbox, schema

    def _read(self, reader: Any, inbox: Inbox, hello: Json, schema: pa.Schema) -> None:
        node = self._node
        parts: list[pa.RecordBatch] = []
        while not node.stopping.is_set():
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            text, _, small = (
                chunk.app_metadata.to_pybytes().partition(b"\0") if chunk.app_metadata else (b"", b"", b"")
            )
            meta = unpack(text)
            batch = _checked(chunk.data, small, meta, schema, node.config.max_message)
            if batch is not None and batch.num_rows:
                parts.append(batch)
            if meta.get("part"):
                continue
            whole = None
            if parts:
                whole = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
                parts = []
            piece = LinkPiece(whole, int(meta["start"]), int(meta["upto"]), bool(meta.get("ended")))
            check_stretch(piece)
            if whole is not None and node.work is not None:
                node.work.check(inbox.link.stream, whole)
            node.receiver.receive(inbox, hello["copy"], meta, piece)
        raise DataError("this node is stopping")

    def _send_acks(self, inbox: Inbox, writer: Any, closed: threading.Event) -> None:
        """Level-0 acknowledgements at every interval, and sooner when a part of the queue has been worked on,
        as the sender may wait for room; a level-1 one as soon as it is known."""
        node = self._node
        version, worked = -1, 0
        part = node.config.queue // 4
        try:
            while not closed.is_set():
                with node.lock:
                    due = time.monotonic() + (node.config.ack_interval if version >= 0 else 0.0)
                    while version == node.version and inbox.worked_rows - worked <= part:
                        left = due - time.monotonic()
                        if closed.is_set() or left <= 0:
                            break
                        node.acks_ready.wait(left)
                    version, worked = node.version, inbox.worked_rows
                    ack = acknowledge(node, inbox)
                if not closed.is_set():
                    writer.write_metadata(pack(ack))
        except (pa.ArrowException, OSError):
            pass  # the other side is gone; its reader notices too

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Pieces of the journal, for the engine of this node."""
        if self._journal is None:
            raise flight.FlightServerError("this node has no journal")
        try:
            wanted = unpack(ticket.ticket)
            return flight.RecordBatchStream(self._journal.read(int(wanted["first"]), int(wanted["last"])))
        except (DataError, KeyError, TypeError, ValueError) as fault:
            self._node.log.warning("refused pieces to %s: %s", context.peer(), fault)
            raise flight.FlightServerError(f"refused: {fault}") from None

    # ------------------------------------------------------------ questions

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        handler = self.answers.get(action.type)
        if handler is None:
            raise flight.FlightServerError(f"no action {action.type!r}")
        try:
            answer = handler(action.body.to_pybytes())
        except Exception as fault:  # whatever it was asked, this node goes on
            self._node.log.warning("refused %s from %s: %s", action.type, context.peer(), fault)
            raise flight.FlightServerError(f"refused: {fault}") from None
        return iter([pack(answer)])


def _checked(
    batch: pa.RecordBatch | None, small: bytes, meta: Json, schema: pa.Schema, most: int
) -> pa.RecordBatch | None:
    """The rows of a message. Nothing looks at them before they are known to be whole and well formed.

    Arrow reads a batch as its header says. Offsets of texts beyond their buffer would be followed into
    foreign memory, so a batch is validated before it is even measured.
    """
    if small:
        if digest(small) != meta.get("sum"):
            raise DataError("a message that is damaged: its checksum does not fit")
        batch = expand(small, meta["squeezed"], schema, most)
    if batch is None:
        return None
    if batch.schema != schema:
        raise DataError("a message with other columns than the link's")
    batch.validate(full=True)
    if batch.nbytes > most:
        raise DataError(f"a message of {batch.nbytes} bytes; at most {most} are taken")
    if not small and digest(batch.serialize()) != meta.get("sum"):
        raise DataError("a message that is damaged: its checksum does not fit")
    return batch
