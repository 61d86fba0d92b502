"""Measures a deployment of three parties on loopback under load and under attack.

    cargo build --release -p megrez-cli
    python benches/service.py --output service.json

Each figure is a ratio to the quiet deployment in the same run, since machines differ:

- latency of an inference (LeNet, one image, a process for each) while strangers open connections and say
  nothing;
- throughput of 16 and of 64 clients at once (a batch of 32 each), and how many succeed;
- peak memory of the parties, and their exit codes when they are asked to end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "examples" / "digits"


def free_port() -> int:
    """Find a port that nobody uses at present."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Deployment:
    """Three `megrez party` processes with certificates and files as on three hosts."""

    def __init__(self, megrez: Path, folder: Path, clients: int) -> None:
        self.megrez, self.folder = megrez, folder
        names = ",".join(f"client{i}" for i in range(clients))
        self.command("certs", "--folder", folder / "certs", "--clients", names)
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(3)]
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

    def infer(self, client: int, images: Path) -> subprocess.Popen[str]:
        """Start an inference of a client."""
        words = ["infer", "--cluster", self.folder / "cluster.toml", "--certs", self.folder / "certs"]
        words += ["--client", f"client{client}", "--model", DIGITS / "lenet.onnx"]
        words += ["--input", images, "--json"]
        return subprocess.Popen(
            [str(self.megrez), *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def latency(self, images: Path) -> float | None:
        """Seconds of one inference; none if it failed."""
        start = time.monotonic()
        return time.monotonic() - start if self.infer(0, images).wait() == 0 else None

    def peak_mib(self, party: int) -> float:
        """Peak memory of a party in MiB."""
        status = Path(f"/proc/{self.parties[party].pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    def stop(self) -> list[int]:
        """Ask all parties to end; their exit codes."""
        for party in self.parties:
            party.terminate()
        return [party.wait(60) for party in self.parties]


def images(folder: Path, count: int) -> Path:
    """The first test images as a file."""
    import numpy as np

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


def under_flood(deployment: Deployment, one: Path, connections: int, tries: int) -> dict[str, object]:
    """Latency on the quiet deployment, and while connections flood it."""
    quiet = [t for t in (deployment.latency(one) for _ in range(tries)) if t is not None]
    opened: list[socket.socket] = []
    floods = [
        threading.Thread(target=flood, args=(address, connections // 3, 67, opened), daemon=True)
        for address in deployment.addresses
    ]
    for thread in floods:
        thread.start()
    times = []
    while any(thread.is_alive() for thread in floods):
        times.append(deployment.latency(one))
    done = [t for t in times if t is not None]
    return {
        "connections": len(opened),
        "succeeded": len(done),
        "of": len(times),
        "quiet_seconds": statistics.median(quiet),
        "flooded_seconds": statistics.median(done) if done else None,
        "ratio": statistics.median(done) / statistics.median(quiet) if done else None,
    }


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


def main() -> None:
    """Measure, print and write."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--megrez", type=Path, default=ROOT / "target" / "release" / "megrez")
    parser.add_argument("--connections", type=int, default=10_000, help="idle connections of the flood")
    parser.add_argument("--tries", type=int, default=20, help="inferences on the quiet deployment")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        deployment = Deployment(arguments.megrez, folder, 64)
        one, batch = images(folder, 1), images(folder, 32)
        report: dict[str, object] = {"schema": "megrez.bench-service/1", "processors": os.cpu_count()}
        report["flood"] = under_flood(deployment, one, arguments.connections, arguments.tries)
        report["clients"] = [together(deployment, n, batch, 32) for n in (16, 64)]
        report["peak_mib"] = [deployment.peak_mib(i) for i in range(3)]
        report["exit_codes"] = deployment.stop()
    text = json.dumps(report, indent=2)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
