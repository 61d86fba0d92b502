"""Calls of clients: commands that must end in time, with the right numbers or a clear error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KINDS = (
    "invalid",
    "not-permitted",
    "unsupported",
    "out-of-range",
    "damaged-file",
    "timed-out",
    "peer-lost",
    "internal",
    "busy",
)
"""The kinds of `megrez.error/1`."""
CONNECT_SECONDS = 30.0
"""What a command may take to connect to three parties, one after the other."""


@dataclass
class Outcome:
    """How a call ended: what it printed, or what it failed of."""

    printed: dict[str, Any] | None
    kind: str | None = None
    error: str = ""
    killed: bool = False


@dataclass
class Findings:
    """Everything that must not be."""

    hangs: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    growth: list[str] = field(default_factory=list)
    script: list[str] = field(default_factory=list)

    def all(self) -> dict[str, list[str]]:
        """By name."""
        return dict(vars(self))


@dataclass
class Tally:
    """What became of the calls of one sort."""

    succeeded: int = 0
    killed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)


class Calls:
    """Makes calls, counts how they end, and notes those that end badly. Threads may share it."""

    def __init__(self, words: Sequence[str], timeout: float, margin: float, findings: Findings) -> None:
        self.timeout, self.margin, self.findings = timeout, margin, findings
        self.tallies: dict[str, Tally] = {}
        self.begun = time.monotonic()
        self._words = list(words)
        self._lock = threading.Lock()
        self._running: dict[int, tuple[subprocess.Popen[str], list[bool]]] = {}

    def limit(self, requests: int) -> float:
        """Seconds after which a call of so many requests hangs."""
        return CONNECT_SECONDS + requests * self.timeout + self.margin

    def command(
        self, sort: str, cluster: Path, client: str, *arguments: object, requests: int = 1
    ) -> Outcome:
        """Run a command of `megrez` on the cluster to its end."""
        words = [*self._words, "--json", *map(str, arguments), "--cluster", str(cluster)]
        words += ["--certs", str(cluster.parent / "certs"), "--client", client]
        words += ["--timeout", str(round(self.timeout))]
        began = time.monotonic()
        killed = [False]
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        with self._lock:
            self._running[process.pid] = (process, killed)
        try:
            printed, said = process.communicate(timeout=self.limit(requests))
        except subprocess.TimeoutExpired:
            what = " ".join(words[len(self._words) :]) + _where(process.pid)
            self.hang(sort, time.monotonic() - began, what)
            process.kill()
            process.communicate()
            return Outcome(None, "hang")
        finally:
            with self._lock:
                del self._running[process.pid]
        if killed[0] and process.returncode < 0:
            return self.ended(sort, began, Outcome(None, killed=True))
        return self.ended(sort, began, self._read(sort, process.returncode, printed, said))

    def local(self, *arguments: object) -> str | None:
        """Run a command that asks no party; what is wrong if it fails."""
        words = [*self._words, "--json", *map(str, arguments)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=self.limit(1), check=False)
        return None if done.returncode == 0 else done.stderr.strip() or done.stdout.strip()

    def _read(self, sort: str, code: int, printed: str, said: str) -> Outcome:
        try:
            if code == 0:
                found: dict[str, Any] = json.loads(printed)
                return Outcome(found)
            error = json.loads(printed)
            said_so = error["schema"] == "megrez.error/1" and error["kind"] in KINDS and error["error"]
            if code == 2 and said_so:
                return Outcome(None, error["kind"], error["error"])
        except (ValueError, KeyError, TypeError):
            pass
        self.note(self.findings.unclear, f"{sort}: exit code {code}: {said.strip()[-400:] or printed[-200:]}")
        return Outcome(None, "unclear", said)

    def ended(self, sort: str, began: float, outcome: Outcome) -> Outcome:
        """Count how a call ended."""
        seconds = time.monotonic() - began
        with self._lock:
            tally = self.tallies.setdefault(sort, Tally())
            tally.longest = max(tally.longest, seconds)
            if outcome.killed:
                tally.killed += 1
            elif outcome.kind is None:
                tally.succeeded += 1
            else:
                tally.refused[outcome.kind] += 1
                tally.errors[f"{outcome.kind}: {outcome.error[:300]}"] += 1
        return outcome

    def hang(self, sort: str, seconds: float, what: str) -> None:
        """Note a call that has not ended."""
        self.note(self.findings.hangs, f"{sort} had not ended after {seconds:.0f} s: {what}")

    def note(self, place: list[str], what: str) -> None:
        """Note something that must not be."""
        said = f"[{time.monotonic() - self.begun:.1f} s] {what}"
        with self._lock:
            place.append(said)
        print(f"chaos: {said}", file=sys.stderr, flush=True)

    def running(self) -> int:
        """How many commands run."""
        with self._lock:
            return len(self._running)

    def kill_one(self, choice: float) -> bool:
        """End one of the commands that run, by a number from 0 to 1, as a user's `kill -9` does."""
        with self._lock:
            if not self._running:
                return False
            process, killed = list(self._running.values())[int(choice * len(self._running))]
            killed[0] = True
            process.kill()
            return True


def _where(pid: int) -> str:
    """What the threads of a process wait in, for whoever looks for the reason."""
    tasks = Path(f"/proc/{pid}/task")
    try:
        return "; waits in " + ", ".join((tasks / t / "wchan").read_text() for t in os.listdir(tasks))
    except OSError:
        return ""
