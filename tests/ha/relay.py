"""A TCP relay to put between nodes: it counts bytes, limits bandwidth, and cuts links. For experiments and
chaos.

A link that is cut carries nothing and says nothing, as when a cable is pulled; when it is joined again, what
waited goes on.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from random import Random

_CHUNK = 1 << 16
_LEAST_DAMAGED = 1024


@dataclass(slots=True)
class Route:
    """From one copy to another. `forth` and `back` count bytes; `open` is cleared while the link is cut;
    `delay` is how many seconds whatever arrives waits, beside the relay's own delay; `flips` is how many bits
    of each larger message are changed on the way."""

    target: tuple[str, int]
    port: int = 0
    forth: int = 0
    back: int = 0
    delay: float = 0.0
    flips: int = 0
    random: Random = field(default_factory=Random)
    carried: set[asyncio.StreamWriter] = field(default_factory=set)
    open: asyncio.Event = field(default_factory=asyncio.Event)


class Limit:
    """Bytes a second that all routes share, as a hub's capacity is shared."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0

    async def pass_(self, count: int) -> None:
        now = asyncio.get_running_loop().time()
        self._free_at = max(now, self._free_at) + count / self._rate
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)


class Relay:
    """Runs in a thread of its own; all routes are on loopback. `delay` is how long what arrives waits."""

    def __init__(self, bytes_per_second: float | None = None, delay: float = 0.0) -> None:
        self._delay = delay
        self._loop = asyncio.new_event_loop()
        self._limit = Limit(bytes_per_second) if bytes_per_second is not None else None
        self._servers: list[asyncio.Server] = []
        self._carried: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._thread.start()

    def add(self, address: str) -> Route:
        """A route to an address; its own port is `route.port`."""
        return asyncio.run_coroutine_threadsafe(self._add(address), self._loop).result(60)

    async def _add(self, address: str) -> Route:
        host, _, port = address.rpartition(":")
        route = Route((host, int(port)))
        route.open.set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._carry(route, reader, writer))
            self._carried[task] = writer
            task.add_done_callback(self._done)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self._servers.append(server)
        route.port = server.sockets[0].getsockname()[1]
        return route

    def _done(self, task: asyncio.Task[None]) -> None:
        self._carried.pop(task).transport.abort()

    def cut(self, routes: list[Route]) -> None:
        for route in routes:
            self._loop.call_soon_threadsafe(route.open.clear)

    def join(self, routes: list[Route]) -> None:
        for route in routes:
            self._loop.call_soon_threadsafe(route.open.set)

    def drop(self, routes: list[Route]) -> None:
        """Ends the connections that there are, as a firewall that is restarted does; new ones can be made."""
        for route in routes:
            self._loop.call_soon_threadsafe(self._abort, route)

    @staticmethod
    def _abort(route: Route) -> None:
        for writer in route.carried:
            writer.transport.abort()

    def flip(self, route: Route, bits: int, random: Random) -> None:
        """Damages what goes to the target from now on, but for the few bytes with which connections begin."""
        route.flips, route.random = bits, random

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._cancel(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _cancel(self) -> None:
        for server in self._servers:
            server.close()
        me = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not me]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.05)  # transports close at the next turns of the loop

    async def _carry(self, route: Route, near: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await route.open.wait()
            far, far_writer = await asyncio.open_connection(*route.target)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            return
        route.carried |= {writer, far_writer}
        try:
            await asyncio.gather(
                self._copy(route, near, far_writer, forth=True), self._copy(route, far, writer, forth=False)
            )
        finally:
            route.carried -= {writer, far_writer}

    async def _copy(
        self, route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, forth: bool
    ) -> None:
        try:
            while data := await reader.read(_CHUNK):
                await route.open.wait()
                if delay := self._delay + route.delay:
                    await asyncio.sleep(delay)
                if self._limit is not None:
                    await self._limit.pass_(len(data))
                writer.write(_damaged(route, data) if forth and route.flips else data)
                await writer.drain()
                if forth:
                    route.forth += len(data)
                else:
                    route.back += len(data)
        except OSError:
            pass
        finally:
            writer.close()


def _damaged(route: Route, data: bytes) -> bytes:
    if len(data) < _LEAST_DAMAGED:
        return data
    changed = bytearray(data)
    for _ in range(route.flips):
        changed[route.random.randrange(len(changed))] ^= 1 << route.random.randrange(8)
    return bytes(changed)
