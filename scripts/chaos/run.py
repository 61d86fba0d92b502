"""Breaks a deployment of three parties in every way that a host, a network or a user can, and looks on.

    cargo build --release -p megrez-cli && pip install .
    python scripts/chaos/run.py --minutes 5 --seed 1

Clients keep working meanwhile. Every call must end within its time-out, with the right numbers or with an
error of a documented kind; what was reported as done must be there after any restart; no party may die,
panic, grow, or leave half-written files. The exit code is 0 if all that holds, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from answers import Answers
from calls import Calls, Findings
from checks import Checks
from deployment import Deployment
from drain import drained, judge
from events import WEIGHTS, Events
from load import Load

ROOT = Path(__file__).resolve().parents[2]
_APART = "MEGREZ_CHAOS_APART"
_NAMESPACES = [
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
]


def options() -> argparse.Namespace:
    """What was asked for."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__, formatter_class=formatter)
    parser.add_argument(
        "--megrez", type=Path, help="the command; by default target/release/megrez, or the package's"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="how long things go wrong [5]")
    parser.add_argument("--events", type=int, help="at most so many events [as many as there is time for]")
    parser.add_argument("--seed", type=int, default=1, help="seed of events and clients, never of shares [1]")
    parser.add_argument("--pause", type=float, default=1.0, help="mean seconds between two events [1]")
    parser.add_argument(
        "--calm", type=int, default=60, help="events between two checks of all that was promised [60]"
    )
    parser.add_argument("--timeout", type=float, default=30.0, help="the clients' --timeout, in seconds [30]")
    parser.add_argument(
        "--margin",
        type=float,
        default=60.0,
        help="seconds beyond which a late call hangs: for busy machines [60]",
    )
    parser.add_argument(
        "--without", default="", help=f"kinds of events to leave out, with commas: {', '.join(WEIGHTS)}"
    )
    parser.add_argument(
        "--drains", type=int, default=6, help="parties of two triples to drain at the end [6]"
    )
    parser.add_argument(
        "--disk", choices=["auto", "mount", "limit"], default="auto",
        help="how a disk gets full: a file system for each party, or a limit on the size of its files",
    )  # fmt: skip
    parser.add_argument("--keep", type=Path, help="a new folder for all files, which is kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return parser.parse_args()


def apart(disk: str) -> bool:
    """Go on in namespaces of our own, whose mounts and processes end with us; whether that was possible."""
    if _APART in os.environ:
        return True
    if disk == "limit" or shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*_NAMESPACES, "true"], check=False, capture_output=True)
    if tried.returncode == 0:
        os.environ[_APART] = "1"
        os.execvp("unshare", [*_NAMESPACES, sys.executable, *sys.argv])
    if disk == "mount":
        sys.exit(f"no namespaces here: {tried.stderr.decode().strip()}")
    return False


class Run:
    """One run."""

    def __init__(self, asked: argparse.Namespace, words: list[str], folder: Path, *, mounted: bool) -> None:
        self.asked, self.words, self.folder, self.mounted = asked, words, folder, mounted
        self.findings = Findings()
        self.calls = Calls(words, asked.timeout, asked.margin, self.findings)
        self.answers = Answers(words, folder / "answers")
        left_out = {kind for kind in asked.without.split(",") if kind}
        if not left_out <= WEIGHTS.keys():
            sys.exit(f"--without: there are no events {sorted(left_out - WEIGHTS.keys())}")
        dice = random.Random(f"{asked.seed}-ports")
        self.deployment = Deployment(words, folder / "cluster", dice, mounted=mounted)
        (folder / "jobs").mkdir()
        self.load = Load(self.calls, self.answers, self.deployment.cluster, folder / "jobs", asked.seed)
        self.events = Events(self.deployment, self.calls, asked.seed, left_out, asked.margin)
        self.checks = Checks(self.deployment, self.load, asked.margin)
        self.drains: dict[str, Any] | None = None

    def go(self) -> None:
        """Do everything."""
        asked = self.asked
        try:
            self.deployment.start(asked.margin)
            self.load.start()
            self._chaos()
            self.load.end(4 * self.calls.limit(3))
        finally:
            self.deployment.end()
            if self.mounted and asked.keep is not None:
                for party in self.deployment.parties:
                    shutil.copytree(party.data, self.folder / "kept" / party.data.name)
        if asked.drains > 0:
            self.drains = drained(
                self.words, self.folder / "triples", self.answers, asked.drains, asked.margin, asked.seed
            )
            judge(self.drains, self.findings)
        self.checks.flat()

    def _chaos(self) -> None:
        asked = self.asked
        dice = random.Random(f"{asked.seed}-pauses")
        end = time.monotonic() + 60 * asked.minutes
        limit = asked.events if asked.events is not None else sys.maxsize
        stop = threading.Event()

        def sample() -> None:
            while not stop.wait(1.0):
                self.checks.sample()

        sampler = threading.Thread(target=sample, daemon=True)
        sampler.start()
        since = 0
        while time.monotonic() < end and self.events.counts.total() < limit:
            before = self.events.counts.total()
            self.events.next()
            since += self.events.counts.total() - before
            self.events.pass_time(min(dice.expovariate(1 / asked.pause), 10 * asked.pause))
            if since >= asked.calm:
                self._pause(dice, restart=False)
                since = 0
        stop.set()
        sampler.join()
        self._pause(dice, restart=True)
        self.checks.audits()

    def _pause(self, dice: random.Random, *, restart: bool) -> None:
        """Undo all, have the clients wait, and check what was promised."""
        self.events.calm()
        if not self.load.pause(4 * self.calls.limit(3)):
            return
        self.checks.hold()
        if restart:
            self.deployment.end()
        self.deployment.heal(self.asked.margin)
        self.checks.pause(dice)
        for party in self.deployment.parties:
            self.findings.ends += party.deaths
            party.deaths.clear()
        self.load.go_on()
        done = self.events.counts.total()
        print(f"chaos: {done} events, {self._bad()} findings", file=sys.stderr, flush=True)

    def _bad(self) -> int:
        return sum(len(found) for found in self.findings.all().values())

    def report(self) -> dict[str, Any]:
        """What happened."""
        asked, promises = self.asked, self.load.promises
        drained_in = self.events.drained
        return {
            "schema": "megrez.chaos/1",
            "seed": asked.seed,
            "minutes": round((time.monotonic() - self.calls.begun) / 60, 2),
            "disk": "mount" if self.mounted else "limit",
            "events": {"all": self.events.counts.total(), **dict(sorted(self.events.counts.items()))},
            "starts": [party.starts for party in self.deployment.parties],
            "calls": {
                sort: {
                    "succeeded": tally.succeeded,
                    "killed": tally.killed,
                    "refused": dict(tally.refused),
                    "longest_seconds": round(tally.longest, 2),
                }
                for sort, tally in sorted(self.calls.tallies.items())
            },
            "uploads": promises.uploads,
            "trained": promises.trained,
            "longest_drain_seconds": round(max(drained_in), 2) if drained_in else None,
            "names_blocked": len(self.load.blocked),
            "halves": self.checks.halves,
            "stranded_material": self.checks.stranded,
            "quarters": self.checks.quarters(),
            "idle": self.checks.idle,
            "log_events": dict(self.checks.events.most_common()),
            "errors": {
                sort: dict(tally.errors.most_common(8)) for sort, tally in sorted(self.calls.tallies.items())
            },
            "drains": self.drains,
            "findings": self.findings.all(),
            "passed": self._bad() == 0,
        }


def show(report: dict[str, Any]) -> None:
    """Print it for people."""
    print(f"seed {report['seed']}, {report['minutes']} minutes, {report['events'].pop('all')} events:")
    print("  " + ", ".join(f"{count} {kind}" for kind, count in report["events"].items()))
    print(f"{'calls':<16}{'succeeded':>10}{'killed':>8}{'longest':>10}  refused")
    for sort, tally in report["calls"].items():
        refused = ", ".join(f"{count} {kind}" for kind, count in tally["refused"].items())
        seconds = f"{tally['longest_seconds']} s"
        print(f"{sort:<16}{tally['succeeded']:>10}{tally['killed']:>8}{seconds:>10}  {refused}")
    print(f"{report['uploads']} uploads and {report['trained']} training jobs were finished")
    print(f"parties were started {report['starts']} times; longest drain {report['longest_drain_seconds']} s")
    for number, quarter in enumerate(report["quarters"], 1):
        held = ", ".join(
            f"{name} {what['median']:.0f} (at most {what['max']:.0f})" for name, what in quarter.items()
        )
        print(f"quarter {number}: {held}")
    print(f"idle, first and last: {report['idle'][:1]} {report['idle'][-1:]}")
    print(f"{report['names_blocked']} names blocked, {len(report['halves'])} halves of models, ", end="")
    print(f"{report['stranded_material']} files of material that serves no run")
    if (drains := report["drains"]) is not None:
        counts = f"{drains['drains']} drains, {drains['sessions']} sessions, {len(drains['failed'])} failed"
        print(f"two triples: {counts}")
    for name, found in report["findings"].items():
        print(f"{name}: {len(found)}")
        for one in found[:20]:
            print(f"  {one}")
    print("passed" if report["passed"] else "FAILED")


def main() -> None:
    """Run, print, and say by the exit code whether all held."""
    asked = options()
    mounted = apart(asked.disk)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    built = ROOT / "target" / "release" / "megrez"
    chosen = asked.megrez or (built if built.exists() else None)
    words = [str(chosen.resolve())] if chosen is not None else [sys.executable, "-m", "megrez"]
    with tempfile.TemporaryDirectory(prefix="megrez-chaos-", ignore_cleanup_errors=True) as name:
        folder = asked.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        run = Run(asked, words, folder.resolve(), mounted=mounted)
        run.go()
        report = run.report()
        if asked.json:
            print(json.dumps(report, indent=2))
        else:
            show(report)
    sys.exit(0 if report["passed"] else 1)


if __name__ == "__main__":
    main()
