"""A deployment of three real parties on this machine, which are killed, stopped and started again."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relays import Relay

CLIENTS = ("alice", "bob")
SETTINGS = """\
silence_seconds = 5
log = { level = "info", format = "json" }

[capacity]
client_seconds = 20
turn_seconds = 60
drain_seconds = 20
"""
"""Shorter than the defaults, so that the many stalls of a run are noticed within it."""
DRAIN_SECONDS = 20
PARTIES = range(3)


def free_ports(dice: random.Random, count: int) -> list[int]:
    """Find ports, all different, that no client's connection can take while their party is down."""
    ports: list[int] = []
    for port in dice.sample(range(20000, 32000), 12000):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"there are no {count} free ports from 20000 to 31999")


@dataclass(frozen=True)
class Sample:
    """What a party's process holds at a moment."""

    at: float
    party: int
    pid: int
    rss_mib: float
    descriptors: int
    threads: int


class Party:
    """One `megrez party`, and what it says."""

    def __init__(self, words: Sequence[str], folder: Path, number: int, port: int, admin: int) -> None:
        self.number, self.port, self.admin = number, port, admin
        self.data = folder / f"data{number}"
        self.log = folder / f"party{number}.log"
        self.deaths: list[str] = []
        """How it has ended when nobody had asked it to."""
        self.starts = 0
        self._words = [*words, "party", "--config", str(folder / f"party{number}.toml")]
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()
        self._wanted = False

    @property
    def pid(self) -> int | None:
        """The process, while it is one."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self, patience: float) -> None:
        """Start it, and wait until it listens."""
        end = time.monotonic() + patience
        with self._lock:
            if self.pid is not None:
                return
            while True:
                before = self.log.stat().st_size if self.log.exists() else 0
                with self.log.open("ab") as log:
                    # SIGXFSZ stays ignored, as it is in Python: a write beyond a limit is an error.
                    self._process = subprocess.Popen(
                        self._words,
                        stdin=subprocess.DEVNULL,
                        stderr=log,
                        start_new_session=True,
                        restore_signals=False,
                    )
                self.starts += 1
                self._wanted = True
                while b'"event":"listening"' not in self._said(before):
                    if self._process.poll() is not None or time.monotonic() > end:
                        break
                    time.sleep(0.02)
                else:
                    return
                if time.monotonic() > end:
                    words = self._said(before).decode(errors="replace").strip()
                    self.deaths.append(f"party {self.number} does not start: {words[-500:]}")
                    return
                time.sleep(0.5)

    def _said(self, since: int) -> bytes:
        with self.log.open("rb") as log:
            log.seek(since)
            return log.read()

    def watch(self) -> bool:
        """Whether it runs as it should; an end that nobody wanted is written down."""
        with self._lock:
            if self._process is not None and self._wanted and self._process.poll() is not None:
                said = self._said(max(0, self.log.stat().st_size - 1000)).decode(errors="replace")
                self.deaths.append(f"party {self.number} ended with {self._process.returncode}: {said}")
                self._wanted = False
            return self._wanted

    def send(self, what: signal.Signals) -> None:
        """Send a signal, if it runs."""
        with self._lock:
            if self.pid is not None:
                os.kill(self.pid, what)

    def kill(self) -> None:
        """End it as a loss of power does to a process."""
        with self._lock:
            self.watch()
            self._wanted = False
            if self._process is not None:
                self._process.kill()
                self._process.wait(30)

    def drain(self, patience: float) -> str | None:
        """Ask it to end, and wait for that: what is wrong with how it ends."""
        with self._lock:
            if not self.watch() or self._process is None:
                return None
            self._wanted = False
            self._process.terminate()
            try:
                code = self._process.wait(DRAIN_SECONDS + patience)
            except subprocess.TimeoutExpired:
                self.kill()
                return f"party {self.number} had not drained after {DRAIN_SECONDS + patience:.0f} s"
        return None if code == 0 else f"party {self.number} drained with exit code {code}"

    def fill_disk(self, spare: int, *, mounted: bool) -> None:
        """Leave room for so many bytes in its data folder, or in each file if that is no file system."""
        if mounted:
            used = os.statvfs(self.data)
            bytes_used = (used.f_blocks - used.f_bfree) * used.f_frsize
            _remount(self.data, max(bytes_used + spare, 4096))
        elif self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (spare, resource.RLIM_INFINITY))

    def empty_disk(self, *, mounted: bool) -> None:
        """Lift what `fill_disk` has done."""
        if mounted:
            _remount(self.data, DISK)
        elif self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
                resource.prlimit(self.pid, resource.RLIMIT_FSIZE, unlimited)

    def metric(self, name: str) -> float | None:
        """One of the numbers that it shows to its operator."""
        with contextlib.suppress(OSError, ValueError):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
            return next((float(line.split()[-1]) for line in lines if line.split()[0] == name), None)
        return None

    def ready(self) -> bool:
        """What `/readyz` says."""
        with contextlib.suppress(OSError):
            url = f"http://127.0.0.1:{self.admin}/readyz"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == 200)
        return False

    def sample(self, at: float) -> Sample | None:
        """What it holds now."""
        pid = self.pid
        with contextlib.suppress(OSError, StopIteration):
            if pid is None:
                return None
            status = Path(f"/proc/{pid}/status").read_text().splitlines()
            value = {line.partition(":")[0]: line.split()[1] for line in status if line.startswith(_WANTED)}
            descriptors = len(os.listdir(f"/proc/{pid}/fd"))
            if "VmRSS" in value:
                rss = int(value["VmRSS"]) / 1024
                return Sample(at, self.number, pid, rss, descriptors, int(value["Threads"]))
        return None


_WANTED = ("VmRSS:", "Threads:")
DISK = 1 << 32
"""Bytes of a party's disk when it is not full."""


def _remount(folder: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=False, capture_output=True)


class Deployment:
    """Three parties with certificates and files as on three hosts, and relays between all of them."""

    def __init__(self, words: Sequence[str], folder: Path, dice: random.Random, *, mounted: bool) -> None:
        self.words, self.folder, self.mounted = list(words), folder, mounted
        folder.mkdir(parents=True)
        self.relay = Relay()
        certs = ["certs", "--folder", str(folder / "certs"), "--clients", ",".join(CLIENTS)]
        subprocess.run([*words, *certs], check=True, stdout=subprocess.DEVNULL)
        found = free_ports(dice, 2 * len(PARTIES))
        ports, admin = found[: len(PARTIES)], found[len(PARTIES) :]
        self.cluster = folder / "cluster.toml"
        self._addresses(self.cluster, [self.relay.link("client", i, port) for i, port in enumerate(ports)])
        self.parties = [self._party(i, ports, admin[i]) for i in PARTIES]

    @staticmethod
    def _addresses(file: Path, ports: Sequence[int]) -> None:
        file.write_text(f"parties = {json.dumps([f'127.0.0.1:{port}' for port in ports])}\n")

    def _party(self, number: int, ports: Sequence[int], admin: int) -> Party:
        dialled = [
            port if peer == number else self.relay.link(f"party{number}", peer, port)
            for peer, port in enumerate(ports)
        ]
        self._addresses(self.folder / f"cluster{number}.toml", dialled)
        (self.folder / f"party{number}.toml").write_text(
            f'party = {number}\nlisten = "127.0.0.1:{ports[number]}"\ncluster = "cluster{number}.toml"\n'
            f'certs = "certs"\ndata = "data{number}"\nadmin = "127.0.0.1:{admin}"\n{SETTINGS}'
        )
        party = Party(self.words, self.folder, number, ports[number], admin)
        party.data.mkdir()
        if self.mounted:
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(party.data)], check=True
            )
        return party

    def start(self, patience: float) -> None:
        """Start all parties that do not run."""
        for party in self.parties:
            party.start(patience)

    def heal(self, patience: float) -> None:
        """Undo all that is wrong: parties run, links carry, disks have room."""
        self.relay.heal()
        for party in self.parties:
            party.send(signal.SIGCONT)
            party.empty_disk(mounted=self.mounted)
            party.watch()
            party.start(patience)

    def end(self) -> None:
        """End all parties at once."""
        for party in self.parties:
            party.send(signal.SIGCONT)
            party.kill()
