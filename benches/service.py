"""Measures a deployment of three parties on loopback under load and under attack.

    cargo build --release -p megrez-cli && make python
    .venv/bin/python benches/service.py --output service.json

Each figure is a ratio to the quiet deployment in the same run, since machines differ:

- latency of an inference (LeNet, one image, a process for each) while strangers open connections and say
  nothing, and once all are open;
- the same with one client who opens a thousand connections, with its certificate; while sixteen sessions of
  one client stand still in the middle; memory of a party that is sent six requests of a GiB;
- throughput of 16 and of 64 clients at once (a batch of 32 each), and how many succeed;
- sessions a second, a process for each and over kept connections; how alike eight clients are served who
  ask without pause; 256 clients at once, of whom each is served or told that the parties are busy;
- memory of the parties in a run of 360 images, at its peak and ten seconds later, and of the whole; their
  exit codes when they are asked to end.

`--only memory,crowd` leaves the others out. `scripts/chaos/run.py --drains` has the sessions of two triples
while one party after the other is drained.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import ssl
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import megrez
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "examples" / "digits"
CROWD = 256
"""How many clients ask at once."""


def free_ports(count: int) -> list[int]:
    """Find different ports that nobody uses at present."""
    with contextlib.ExitStack() as bound:
        sockets = [bound.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


class Deployment:
    """Three `megrez party` processes with certificates and files as on three hosts."""

    def __init__(self, megrez: Path, folder: Path, clients: int) -> None:
        self.megrez, self.folder = megrez, folder
        names = ",".join(f"client{i}" for i in range(clients))
        self.command("certs", "--folder", folder / "certs", "--clients", names)
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
        (folder / "cluster.toml").write_text(f"parties = {json.dumps(self.addresses)}\n")
        self.parties = [self.start(i) for i in range(3)]

    def start(self, party: int) -> subprocess.Popen[str]:
        """Start a party and wait until it listens."""
        path = self.folder / f"party{party}.toml"
        path.write_text(
            f'party = {party}\nlisten = "{self.addresses[party]}"\ncluster = "cluster.toml"\n'
            f'certs = "certs"\ndata = "data{party}"\n'
        )
        process = subprocess.Popen(
            [self.megrez, "party", "--config", path], stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        while "listens on" not in process.stderr.readline():
            if process.poll() is not None:
                raise SystemExit(f"party {party} did not start")
        threading.Thread(target=lambda: [None for _ in process.stderr or ()], daemon=True).start()
        return process

    def command(self, *words: object) -> None:
        """Run the command to its end."""
        subprocess.run([self.megrez, *map(str, words)], check=True, stdout=subprocess.DEVNULL)

    def infer(self, client: int, images: Path, *more: str) -> subprocess.Popen[str]:
        """Start an inference of a client; `more` are further options."""
        words = ["infer", "--cluster", self.folder / "cluster.toml", "--certs", self.folder / "certs"]
        words += ["--client", f"client{client}", "--model", DIGITS / "lenet.onnx"]
        words += ["--input", images, "--json", *more]
        return subprocess.Popen(
            [str(self.megrez), *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def infer_stored(self, client: int, images: Path) -> bool:
        """Run the stored model in a process of its own; whether that succeeded."""
        words = ["infer", "--cluster", self.folder / "cluster.toml", "--certs", self.folder / "certs"]
        words += ["--client", f"client{client}", "--model-name", "lenet", "--batch", "1", "--input", images]
        run = subprocess.run([self.megrez, *map(str, words)], stdout=subprocess.DEVNULL, check=False)
        return run.returncode == 0

    def latency(self, images: Path, client: int = 0) -> float | None:
        """Seconds of one inference; none if it failed."""
        start = time.monotonic()
        return time.monotonic() - start if self.infer(client, images).wait() == 0 else None

    def channel(self, client: int, address: str) -> ssl.SSLSocket:
        """Connect to a party as a client, as far as TLS goes."""
        certs = self.folder / "certs"
        context = ssl.create_default_context(cafile=certs / "ca.pem")
        context.load_cert_chain(certs / f"client{client}.pem", certs / f"client{client}.key")
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        host, port = address.split(":")
        plain = socket.create_connection((host, int(port)), timeout=10)
        return context.wrap_socket(plain, server_hostname=f"party{self.addresses.index(address)}.megrez")

    def mib(self, party: int, what: str) -> float:
        """Memory of a party in MiB: at its peak (`VmHWM`) or now (`VmRSS`)."""
        status = Path(f"/proc/{self.parties[party].pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(what))
        return int(line.split()[1]) / 1024

    def forget_peak(self, party: int) -> None:
        """Count the peak of a party's memory anew."""
        Path(f"/proc/{self.parties[party].pid}/clear_refs").write_text("5")

    def connect(self, client: int) -> megrez.Cluster:
        """Connect as a client."""
        certs = self.folder / "certs"
        return megrez.connect(self.folder / "cluster.toml", certs=certs, client=f"client{client}", busy=0)

    def stop(self) -> list[int]:
        """Ask all parties to end; their exit codes."""
        for party in self.parties:
            party.terminate()
        return [party.wait(60) for party in self.parties]


def images(folder: Path, count: int) -> Path:
    """The first test images as a file."""
    path = folder / f"images{count}.npy"
    np.save(path, np.load(DIGITS / "test_images.npy")[:count])
    return path


def flood(address: str, count: int, each_second: int, kept: list[socket.socket]) -> None:
    """Open connections and say nothing on them."""
    host, port = address.split(":")
    for _ in range(count):
        time.sleep(1 / each_second)
        with contextlib.suppress(OSError):
            kept.append(socket.create_connection((host, int(port)), timeout=5))


def known_flood(deployment: Deployment, address: str, count: int, kept: list[socket.socket]) -> None:
    """Open connections as a client who is known, and say nothing on them."""
    for _ in range(count):
        with contextlib.suppress(OSError):
            kept.append(deployment.channel(1, address))


def under_flood(
    deployment: Deployment, one: Path, tries: int, flood: Callable[[str, list[socket.socket]], None]
) -> dict[str, object]:
    """Latency on the quiet deployment, while connections flood it, and while they are only there."""
    quiet = [t for t in (deployment.latency(one) for _ in range(tries)) if t is not None]
    opened: list[socket.socket] = []
    floods = [
        threading.Thread(target=flood, args=(address, opened), daemon=True)
        for address in deployment.addresses
    ]
    for thread in floods:
        thread.start()
    times = []
    while any(thread.is_alive() for thread in floods):
        times.append(deployment.latency(one))
    held = [t for t in (deployment.latency(one) for _ in range(tries)) if t is not None]
    done = [t for t in times if t is not None]
    return {
        "connections": len(opened),
        "succeeded": len(done),
        "of": len(times),
        "quiet_seconds": statistics.median(quiet),
        "flooded_seconds": statistics.median(done) if done else None,
        "ratio": statistics.median(done) / statistics.median(quiet) if done else None,
        "held_succeeded": len(held),
        "held_seconds": statistics.median(held) if held else None,
    }


def stalled(deployment: Deployment, one: Path, many: Path, tries: int) -> dict[str, object]:
    """Latency of a client while sixteen runs of another one are stopped in the middle."""
    quiet = [t for t in (deployment.latency(one) for _ in range(tries)) if t is not None]
    stopped = [deployment.infer(1, many) for _ in range(16)]
    time.sleep(1)
    try:
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
        times = [deployment.latency(one, client=2) for _ in range(tries)]
    finally:
        for process in stopped:
            process.kill()
            process.wait()
    done = [t for t in times if t is not None]
    return {
        "sessions": len(stopped),
        "succeeded": len(done),
        "of": len(times),
        "quiet_seconds": statistics.median(quiet),
        "stalled_seconds": statistics.median(done) if done else None,
    }


def huge(deployment: Deployment) -> dict[str, object]:
    """Memory of party 0, to which one client sends six requests of a GiB at once."""
    gib, piece = 1 << 30, bytes(1 << 18)
    sent, welcomes = [0] * 6, [False] * 6

    # The hello of a client, then the header of a message, as `megrez_net::frame` has them.
    def greet(channel: ssl.SSLSocket, version: bytes) -> bytes:
        channel.sendall(b"MGRZ" + version + bytes([2]) + bytes(25))
        return channel.recv(32)

    header = bytes([1]) + bytes(23) + gib.to_bytes(8, "little")
    # Every welcome says the version, one that refuses another's too.
    with deployment.channel(3, deployment.addresses[0]) as channel:
        version = greet(channel, bytes(2))[4:6]

    def work(place: int) -> None:
        with deployment.channel(3, deployment.addresses[0]) as channel:
            welcomes[place] = greet(channel, version)[6] == 0
            with contextlib.suppress(OSError):
                send(channel, place)

    def send(channel: ssl.SSLSocket, place: int) -> None:
        channel.sendall(header + piece)
        while sent[place] < gib:
            channel.sendall((2).to_bytes(24, "little") + len(piece).to_bytes(8, "little") + piece)
            sent[place] += len(piece)

    deployment.forget_peak(0)
    before = deployment.mib(0, "VmRSS")
    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(sent))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not all(welcomes):
        raise SystemExit("the party did not take the hello: this says nothing of its limits")
    taken = [size / (1 << 20) for size in sent]
    return {"before_mib": before, "peak_mib": deployment.mib(0, "VmHWM"), "sent_mib": taken}


def together(deployment: Deployment, clients: int, batch: Path, count: int) -> dict[str, object]:
    """Runs of clients who all begin at once."""
    start = time.monotonic()
    running = {i: deployment.infer(i, batch) for i in range(clients)}
    times: dict[int, float] = {}
    failures = []
    while running:
        for i, process in list(running.items()):
            if process.poll() is not None:
                times[i] = time.monotonic() - start
                if process.returncode != 0:
                    assert process.stderr is not None
                    failures.append(process.stderr.read().strip())
                del running[i]
        time.sleep(0.01)
    seconds = time.monotonic() - start
    succeeded = clients - len(failures)
    return {
        "clients": clients,
        "succeeded": succeeded,
        "seconds": seconds,
        "images_a_second": succeeded * count / seconds,
        "failures": failures[:3],
    }


def rate(deployment: Deployment, one: Path, seconds: float) -> dict[str, float]:
    """Sessions a second of a stored model at batch 1, four at a time: by processes, and over kept ones."""
    counts = without_pause(4, seconds, lambda _: deployment.infer_stored(0, one))
    served = ask(deployment, [0] * 4, seconds)
    return {"processes": sum(counts) / seconds, "kept_connections": sum(served) / seconds}


def without_pause(count: int, seconds: float, work: Callable[[int], object]) -> list[int]:
    """How often each of `count` threads gets its work done, which must succeed, in so many seconds."""
    end, done = time.monotonic() + seconds, [0] * count

    def repeat(place: int) -> None:
        while time.monotonic() < end:
            assert work(place)
            done[place] += time.monotonic() < end

    threads = [threading.Thread(target=repeat, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def ask(deployment: Deployment, clients: list[int], seconds: float) -> list[int]:
    """How many runs each of these clients gets, who ask without pause over a connection of their own."""
    image = np.load(DIGITS / "test_images.npy")[:1]
    connected = [deployment.connect(client) for client in clients]
    return without_pause(
        len(clients), seconds, lambda place: connected[place].run_stored("lenet", image, batch=1)
    )


def crowd(deployment: Deployment, clients: int) -> dict[str, object]:
    """So many clients ask at once: who is served, who is sent away, and how soon."""
    image = np.load(DIGITS / "test_images.npy")[:1]
    connected = [deployment.connect(client) for client in range(clients)]
    ends: list[tuple[float, str]] = []
    begin = threading.Barrier(clients + 1)

    def work(place: int) -> None:
        begin.wait()
        start = time.monotonic()
        try:
            connected[place].run_stored("lenet", image, batch=1)
            how = "served"
        except megrez.BusyError:
            how = "busy"
        except megrez.Error as error:
            how = f"failed: {error}"
        ends.append((time.monotonic() - start, how))

    threads = [threading.Thread(target=work, args=(place,)) for place in range(clients)]
    for thread in threads:
        thread.start()
    begin.wait()
    for thread in threads:
        thread.join()
    busy = [took for took, how in ends if how == "busy"]
    return {
        "clients": clients,
        "served": sum(how == "served" for _, how in ends),
        "busy": len(busy),
        "busy_seconds": max(busy, default=None),
        "last_seconds": max(took for took, _ in ends),
        "failures": [how for _, how in ends if how.startswith("failed")][:3],
    }


def memory(deployment: Deployment, folder: Path) -> dict[str, object]:
    """Memory of the parties for 360 images in runs of 60 and in one, at its peak and ten seconds after."""
    many = images(folder, 360)

    def at_peak(*more: str) -> dict[str, object]:
        for party in range(3):
            deployment.forget_peak(party)
        assert deployment.infer(0, many, *more).wait() == 0
        peak = [deployment.mib(i, "VmHWM") for i in range(3)]
        time.sleep(10)
        return {"peak_mib": peak, "after_mib": [deployment.mib(i, "VmRSS") for i in range(3)]}

    return {"runs_of_60": at_peak("--batch", "60"), "one_run": at_peak()}


def main() -> None:
    """Measure, print and write."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--megrez", type=Path, default=ROOT / "target" / "release" / "megrez")
    parser.add_argument("--connections", type=int, default=10_000, help="idle connections of the flood")
    parser.add_argument("--tries", type=int, default=20, help="inferences on the quiet deployment")
    parser.add_argument("--seconds", type=float, default=20, help="how long rates are measured")
    parser.add_argument("--only", help="the parts to measure, by their names in the report")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        deployment = Deployment(arguments.megrez, folder, CROWD)
        one, batch = images(folder, 1), images(folder, 32)
        everybody = ",".join(f"client{i}" for i in range(CROWD))
        there = ["--cluster", folder / "cluster.toml", "--certs", folder / "certs", "--client", "client0"]
        stored = ["--model", DIGITS / "lenet.onnx", "--name", "lenet", "--allow", everybody]
        deployment.command("upload-model", *there, *stored)
        strangers = arguments.connections // 3
        parts: dict[str, Callable[[], object]] = {
            "memory": lambda: memory(deployment, folder),
            "huge": lambda: huge(deployment),
            "sessions_a_second": lambda: rate(deployment, one, arguments.seconds),
            "eight_clients": lambda: ask(deployment, list(range(8)), arguments.seconds),
            "crowd": lambda: crowd(deployment, CROWD),
            "stalled": lambda: stalled(deployment, one, images(folder, 360), arguments.tries),
            "flood": lambda: under_flood(
                deployment, one, arguments.tries, lambda address, kept: flood(address, strangers, 67, kept)
            ),
            "known_flood": lambda: under_flood(
                deployment, one, arguments.tries, lambda at, kept: known_flood(deployment, at, 1000, kept)
            ),
            "clients": lambda: [together(deployment, n, batch, 32) for n in (16, 64)],
        }
        wanted = arguments.only.split(",") if arguments.only else list(parts)
        if unknown := set(wanted) - set(parts):
            parser.error(f"--only: {', '.join(unknown)}: choose from {', '.join(parts)}")
        report: dict[str, object] = {"schema": "megrez.bench-service/1", "processors": os.cpu_count()}
        report["load"] = os.getloadavg()[0]
        for part in wanted:
            report[part] = parts[part]()
        report["peak_mib"] = [deployment.mib(i, "VmHWM") for i in range(3)]
        report["exit_codes"] = deployment.stop()
    text = json.dumps(report, indent=2)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
