"""A TCP relay that makes loopback behave like a network: each pair of parties has ports of its own.

One direction between two parties delivers what it gets at time t at max(t, busy) + bytes / rate + rtt / 2,
and is busy for bytes / rate: the rule of megrez's own `--net`. Nothing is lost, and there is no slow start.
"""

import asyncio
import multiprocessing
import os
import selectors
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

CHUNK = 1 << 18
# Chunks that may wait on one connection before its sender is held back.
WAITING = 1024
PINGS = 15


@dataclass(frozen=True)
class Network:
    """A round-trip time and a rate per ordered pair of parties; zeros mean unshaped."""

    name: str
    rtt_ms: float
    mbps: float

    @property
    def shaped(self) -> bool:
        """Whether a relay is needed."""
        return self.mbps > 0


NETWORKS = {n.name: n for n in (Network("loopback", 0, 0), Network("lan", 2, 1000), Network("wan", 50, 160))}


class Wire:
    """One direction between two parties."""

    def __init__(self, network: Network) -> None:
        self.delay = network.rtt_ms / 2e3
        self.seconds_per_byte = 8 / (network.mbps * 1e6)
        self.busy = 0.0

    def arrival(self, size: int) -> float:
        """When `size` bytes that are sent now arrive."""
        self.busy = max(time.monotonic(), self.busy) + size * self.seconds_per_byte
        return self.busy + self.delay


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wire: Wire) -> None:
    """Moves one direction of a connection over a wire until it ends."""
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(WAITING)

    async def deliver() -> None:
        while True:
            arrival, chunk = await waiting.get()
            await asyncio.sleep(max(0.0, arrival - time.monotonic()))
            if not chunk:
                break
            writer.write(chunk)
            await writer.drain()
        writer.close()

    async def collect() -> None:
        chunk = b"more"
        while chunk:
            chunk = await reader.read(CHUNK)
            await waiting.put((wire.arrival(len(chunk)), chunk))

    # A party that has gone is noticed by the other party.
    with suppress(ConnectionError):
        await asyncio.gather(collect(), deliver())


async def relay(network: Network, ports: dict[int, int], ready: Connection) -> None:
    """Opens a port per ordered pair of parties, tells `ready` which, and relays to the parties' `ports`."""
    wires = {(i, j): Wire(network) for i in ports for j in ports if i != j}

    async def listen(sender: int, receiver: int) -> int:
        async def accept(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
            try:
                far, forth = await asyncio.open_connection("127.0.0.1", ports[receiver], limit=CHUNK)
            except OSError:
                back.close()
                return
            await asyncio.gather(
                pump(near, forth, wires[sender, receiver]), pump(far, back, wires[receiver, sender])
            )

        server = await asyncio.start_server(accept, "127.0.0.1", limit=CHUNK)
        port: int = server.sockets[0].getsockname()[1]
        return port

    ready.send({pair: await listen(*pair) for pair in wires})
    await asyncio.get_running_loop().create_future()


def serve(network: Network, ports: dict[int, int], ready: Connection) -> None:
    """Runs the relay for ever."""
    # Waiting for a processor would be added to SPU's network; where it may, the relay goes first.
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    # epoll rounds waits up to milliseconds; select does not.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    loop.run_until_complete(relay(network, ports, ready))


@contextmanager
def relayed(network: Network, ports: dict[int, int]) -> Iterator[dict[tuple[int, int], int]]:
    """The port that each party finds each other party at, on a network; a process shapes what passes."""
    if not network.shaped:
        yield {(i, j): ports[j] for i in ports for j in ports if i != j}
        return
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(network, ports, there), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.terminate()
        process.join()


def read_exactly(connection: socket.socket, size: int) -> None:
    """Reads and forgets."""
    while size:
        got = len(connection.recv(min(size, CHUNK)))
        if not got:
            raise ConnectionError("the connection ended early")
        size -= got


def measure(network: Network, entry: int, target: int) -> dict[str, float]:
    """Round trip and rate that a relay gives from its port `entry` to `target`, which must be free.

    The median of pings, and one transfer of a quarter of a second.
    """
    size = int(network.mbps * 1e6 / 8 / 4)

    def answer(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for message in [1] * PINGS + [size]:
                read_exactly(connection, message)
                connection.sendall(b"!")

    with socket.create_server(("127.0.0.1", target)) as server:
        thread = threading.Thread(target=answer, args=(server,), daemon=True)
        thread.start()
        with socket.create_connection(("127.0.0.1", entry)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            times = []
            for message in [1] * PINGS + [size]:
                start = time.monotonic()
                connection.sendall(bytes(message))
                read_exactly(connection, 1)
                times.append(time.monotonic() - start)
        thread.join()
    rtt = statistics.median(times[:-1])
    return {"rtt_ms": rtt * 1e3, "mbps": size * 8e-6 / (times[-1] - rtt)}


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports
