"""The sending end of a link: one thread for each copy of a downstream node.

To the downstream primary everything goes at once. To the secondary a batch goes when so many tuples are
neither released nor sent. While this copy is a secondary itself it only listens: the connection is open and
the acknowledgements come, so that after a takeover the first message is one call away.
"""

from __future__ import annotations

import base64
import threading
import time
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from kasen.ha.acknowledgements import hear
from kasen.ha.link.codec import squeeze
from kasen.ha.link.wire import (
    BEGIN,
    FAULTS,
    Json,
    LinkPiece,
    call_options,
    connect,
    digest,
    pack,
    reason,
    unpack,
)
from kasen.ha.node import Node
from kasen.ha.node_state import LinkTraffic, OutputLink

_MOST_ROWS = 1 << 16
_PAUSE = 0.05
#: Messages of fewer rows say more of calls than of the link.
_MEASURED_ROWS = 64


class Sender:
    """Sends one output to one copy, over one connection after the other."""

    def __init__(self, node: Node, output: OutputLink, copy: str) -> None:
        self._node = node
        self._output = output
        self._copy = copy
        self._position = BEGIN
        self._ended = False
        self._broken = False
        self._reader: Any = None
        self._thread = threading.Thread(target=self._run, name=f"to {copy}", daemon=True)
        self._said = ""
        self._told: Json | None = None  # the release that this copy was told of last

    def start(self) -> None:
        self._thread.start()

    def cancel(self) -> None:
        """Gives up the connection, so that a write that waits for a silent peer returns."""
        reader = self._reader
        if reader is not None:
            reader.cancel()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def rewind(self, position: int) -> None:
        """The copy says what it has; called with the node's lock."""
        self._position = position
        self._ended = False
        self._node.send_ready.notify_all()

    @property
    def target(self) -> tuple[str, str]:
        return self._output.link.node, self._copy

    @property
    def stream(self) -> str:
        return self._output.link.stream

    # ------------------------------------------------------------ connections

    def _run(self) -> None:
        node = self._node
        while not node.stopping.is_set():
            try:
                self._connected()
            except (flight.FlightError, pa.ArrowException, OSError) as fault:
                self._say(reason(fault))
            finally:
                self._reader = None
            with node.lock:
                if not node.stopping.is_set():
                    node.send_ready.wait(_PAUSE)

    def _say(self, text: str) -> None:
        """Each reason once: a copy that is down would be told of twenty times a second."""
        if text != self._said and not self._node.stopping.is_set():
            self._node.log.info("link to %s %s: %s", *self.target, text)
            self._said = text
        if "fenced" in text:
            generation = text.rsplit("generation ", 1)[-1].split()[0]
            if generation.isdigit():
                self._node.fence(int(generation))

    def _connected(self) -> None:
        node, link, config = self._node, self._output.link, self._node.config
        with connect(config, self._copy) as client:
            with node.lock:
                to = node.known[link.node].generation
            schema = base64.b64encode(self._output.queue.schema.serialize().to_pybytes()).decode()
            hello = {"from": config.name, "query": link.query, "stream": link.stream, "copy": config.listen}
            descriptor = flight.FlightDescriptor.for_command(pack({**hello, "to": to, "schema": schema}))
            writer, reader = client.do_exchange(descriptor, call_options(config))
            self._reader = reader
            first = unpack(reader.read_chunk().app_metadata)
            self._said = ""
            with node.lock:
                self._broken = False
                self._position = first["received"]
                self._ended = False
            hear(node, self._output, self._copy, first)
            listener = threading.Thread(target=self._listen, args=(reader,), daemon=True)
            listener.start()
            try:
                writer.begin(self._output.queue.schema)
                self._write(writer)
                if node.verdict == "finished":
                    writer.done_writing()
                    listener.join(1.0)
            finally:
                reader.cancel()
                listener.join()
                with suppress(*FAULTS):
                    writer.close()

    def _listen(self, reader: Any) -> None:
        node = self._node
        try:
            while True:
                hear(node, self._output, self._copy, unpack(reader.read_chunk().app_metadata))
        except StopIteration:
            pass
        except (flight.FlightError, pa.ArrowException, OSError) as fault:
            self._say(reason(fault))
        finally:
            with node.lock:
                self._broken = True
                node.send_ready.notify_all()

    # ------------------------------------------------------------ sending

    def _write(self, writer: Any) -> None:
        node = self._node
        while True:
            with node.lock:
                while (found := self._next()) is None:
                    if self._broken or node.stopping.is_set():
                        return
                    node.send_ready.wait(0.5)
                piece, meta, sent = found
            begin = time.perf_counter()
            self._write_piece(writer, piece, meta, sent)
            if piece.rows >= _MEASURED_ROWS:
                self._output.cost.saw_transfer(time.perf_counter() - begin, piece.rows)

    def _next(self) -> tuple[LinkPiece, Json, LinkTraffic] | None:
        """What is to be sent now, if anything. Called with the lock."""
        node, output = self._node, self._output
        queue = output.queue
        if self._broken or not node.is_primary or node.stopping.is_set():
            return None
        known = node.known[output.link.node]
        to_primary = known.primary == self._copy
        if to_primary:
            if self._position >= queue.upto and (self._ended or not queue.ended):
                return None
        else:
            takes = output.heard[self._copy].takes_batches
            if not takes or output.batch is None or queue.rows_since(self._position) < output.batch:
                return None
            if queue.start > self._position and queue.restart is None:
                return None  # nobody has told yet how to start behind the gap
        most = _MOST_ROWS if to_primary else self._allowed(output)
        if not most:
            return None
        piece = queue.read(self._position, most)
        self._account(output, piece.rows, to_primary)
        meta: Json = {"g": node.generation, "to": known.generation, "start": piece.start, "upto": piece.upto}
        if piece.ended:
            meta["ended"] = True
        if piece.start > self._position:
            meta["gap"] = True
        news = not to_primary and queue.restart is not self._told
        if queue.restart is not None and (news or "gap" in meta):
            meta["restart"] = self._told = queue.restart
        self._position = piece.upto
        self._ended = piece.ended
        return piece, meta, output.main if to_primary else output.backup

    def _allowed(self, output: OutputLink) -> int:
        """How many tuples the secondary may be sent now, within a bound on the overhead."""
        assert output.batch is not None
        if self._node.config.max_overhead is None:
            return _MOST_ROWS
        return int(output.allowance) if output.allowance >= output.batch else 0

    def _account(self, output: OutputLink, rows: int, to_primary: bool) -> None:
        bound = self._node.config.max_overhead
        if bound is None:
            return
        if to_primary:
            # What was not spent in quiet times must not become a burst later.
            output.allowance = min(output.allowance + bound * rows, 2.0 * (output.batch or 0) + rows)
        else:
            output.allowance -= rows

    def _write_piece(self, writer: Any, piece: LinkPiece, meta: Json, sent: LinkTraffic) -> None:
        compression = self._node.config.compression
        if piece.batch is None:
            writer.write_metadata(pack(meta))
        elif sent is self._output.backup and compression != "none":
            small = squeeze(piece.batch, compression)
            content = pack({**meta, "squeezed": compression, "sum": digest(small)}) + b"\0" + small
            writer.write_metadata(content)
            sent.rows += piece.rows
            sent.payload += len(small)
            sent.wire += len(content)
        else:
            batch = piece.batch
            for first in range(0, batch.num_rows, _MOST_ROWS):
                last = first + _MOST_ROWS >= batch.num_rows
                part = batch.slice(first, _MOST_ROWS) if batch.num_rows > _MOST_ROWS else batch
                text = pack({**(meta if last else {"part": True}), "sum": digest(part.serialize())})
                writer.write_with_metadata(part, text)
                sent.rows += part.num_rows
                sent.payload += part.nbytes
                sent.wire += pa.ipc.get_record_batch_size(part) + len(text)
