"""TCP relays between the processes of a deployment, which spoil what goes through them.

They know nothing of what they carry: TLS between the two ends must notice whatever they do to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

_CHUNK = 1 << 16
_FORTH, _BACK = 0, 1
"""Directions: from whoever dials, and to it."""


@dataclass
class _Spoil:
    """What happens to the next bytes of a direction."""

    how: str
    at: int


@dataclass(eq=False)
class _Connection:
    """One connection: the two sockets, and what is to happen to either direction."""

    writers: list[asyncio.StreamWriter]
    spoils: list[_Spoil | None] = field(default_factory=lambda: [None, None])

    def end(self, *, reset: bool) -> None:
        """Close both sides, in order or as a crashed host would."""
        for writer in self.writers:
            if reset:
                sock: socket.socket = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                writer.close()


class Link:
    """What one process dials in place of another: its connections, and what is done to them.

    All methods are called in the relay's thread: `Relay.do` gets them there.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.connections: set[_Connection] = set()
        self.delay = 0.0
        self.refuses = False
        self.port = 0
        self._open = [asyncio.Event(), asyncio.Event()]
        for gate in self._open:
            gate.set()

    def heal(self) -> None:
        """Carry everything again, at once."""
        self.delay, self.refuses = 0.0, False
        for connection in self.connections:
            connection.spoils = [None, None]
        for gate in self._open:
            gate.set()

    def stall(self, directions: tuple[int, ...] = (_FORTH, _BACK)) -> None:
        """Carry nothing in these directions until `heal`: both ends think that the other is there."""
        for direction in directions:
            self._open[direction].clear()

    def cut(self, *, reset: bool) -> None:
        """End all connections."""
        for connection in list(self.connections):
            connection.end(reset=reset)

    def spoil(self, how: str, dice: random.Random) -> None:
        """Have `truncate`, `garbage` or `flip` happen to what every connection carries next, once."""
        for connection in self.connections:
            connection.spoils[dice.randrange(2)] = _Spoil(how, dice.randrange(4096))

    def half_open(self, side: int) -> None:
        """End one side of every connection, and leave the other to believe that nothing has happened.

        It ends with `heal`.
        """
        self.stall()
        for connection in self.connections:
            connection.writers[side].transport.abort()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until it ends."""
        if self.refuses:
            writer.transport.abort()
            return
        try:
            there, forth = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection([writer, forth])
        self.connections.add(connection)
        try:
            await asyncio.gather(
                self._pump(connection, reader, forth, _FORTH), self._pump(connection, there, writer, _BACK)
            )
        finally:
            self.connections.discard(connection)
            connection.end(reset=False)

    async def _pump(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: int
    ) -> None:
        try:
            while data := await reader.read(_CHUNK):
                await self._open[way].wait()
                if self.delay > 0:
                    await asyncio.sleep(self.delay)
                spoil, connection.spoils[way] = connection.spoils[way], None
                if spoil is not None:
                    at = spoil.at % len(data)
                    data = _spoilt(spoil.how, data, at)
                writer.write(data)
                await writer.drain()
                if spoil is not None and spoil.how == "truncate":
                    connection.end(reset=False)
                    return
            await self._open[way].wait()
            if writer.can_write_eof():
                writer.write_eof()
        except (OSError, RuntimeError):
            # One side is gone, and the other hears of it as it would without a relay; unless that
            # is what must not happen.
            await self._open[way].wait()
            connection.end(reset=True)


def _spoilt(how: str, data: bytes, at: int) -> bytes:
    if how == "truncate":
        return data[:at]
    if how == "flip":
        return data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
    return data[:at] + random.Random(at).randbytes(1 + at) + data[at:]


class Relay:
    """All links of a deployment, in a thread of their own."""

    def __init__(self) -> None:
        self.links: dict[tuple[str, int], Link] = {}
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda *_: None)
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._thread.start()

    def link(self, source: str, party: int, target: int) -> int:
        """Make a link from a process to the port of a party: the port to dial in its place."""
        return asyncio.run_coroutine_threadsafe(self._listen(source, party, target), self._loop).result(30)

    async def _listen(self, source: str, party: int, target: int) -> int:
        link = Link(target)
        server = await asyncio.start_server(link.accept, "127.0.0.1", 0)
        link.port = int(server.sockets[0].getsockname()[1])
        self.links[source, party] = link
        return link.port

    def do(self, what: Callable[[], None]) -> None:
        """Have something done in the relay's thread, and wait for it."""
        done = threading.Event()

        def act() -> None:
            try:
                what()
            finally:
                done.set()

        self._loop.call_soon_threadsafe(act)
        done.wait(30)

    def heal(self) -> None:
        """Carry everything again."""

        def heal() -> None:
            for link in self.links.values():
                link.heal()

        self.do(heal)
