"""What must hold when the load pauses and nothing is wrong any more."""

from __future__ import annotations

import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from answers import MARKER
from calls import Outcome
from deployment import Deployment, Party, Sample
from load import Load

TEMPORARY = (".new", ".claimed")
"""What a file is called while it is written or used up."""
LATER = ("timed-out", "peer-lost", "busy")
"""The kinds of errors after which the same call may succeed."""
HELD = ("rss_mib", "descriptors", "threads")
"""What is watched of a party."""
GROWTH = 1.5
"""How much larger it may be at the end than after a quarter, and then by a constant."""
LOADED = {"rss_mib": ("max", 128.0), "descriptors": ("median", 24.0), "threads": ("median", 24.0)}
"""Under load. How many sessions wait at a time is chance, which medians even out; an allocator keeps what
it once had, so of memory the maxima are compared: medians say how old the processes are."""
IDLE = {"rss_mib": 128.0, "descriptors": 8.0, "threads": 8.0}
"""While nothing is asked of them."""
LONG = 240
"""Samples of all parties in a quarter without which nothing is said: processes first grow into their load."""


class Checks:
    """Looks at parties, files and logs."""

    def __init__(self, deployment: Deployment, load: Load, patience: float) -> None:
        self.samples: list[Sample] = []
        self.idle: list[dict[str, float]] = []
        """What parties hold while nothing is asked of them, one entry for each pause."""
        self.stranded = 0
        """Files of material that can serve no run any more."""
        self.halves: dict[str, str] = {}
        """Models of which some parties have a share, and others none: which, and what became of the name."""
        self._deployment, self._load, self._patience = deployment, load, patience
        self._found = load.calls.findings
        self._seen = dict.fromkeys(range(3), 0)
        self.events: Counter[str] = Counter()

    def sample(self) -> None:
        """Note what all parties hold."""
        now = time.monotonic()
        found = (party.sample(now) for party in self._deployment.parties)
        self.samples += [sample for sample in found if sample is not None]

    def _note(self, place: list[str], what: str) -> None:
        self._load.calls.note(place, what)

    def hold(self) -> None:
        """Note what parties hold while nothing is asked of them."""
        self._quiet()
        held = [sample for party in self._deployment.parties if (sample := party.sample(0.0)) is not None]
        if held:
            self.idle.append({name: max(float(getattr(one, name)) for one in held) for name in HELD})

    def pause(self, dice: random.Random) -> None:
        """Check all promises. Nothing may be wrong with the deployment."""
        self._quiet()
        self._answers(dice)
        self._files()
        self.read_logs()

    def _quiet(self) -> None:
        """Wait until no party has a session any more."""
        end = time.monotonic() + 90 + self._patience
        for party in self._deployment.parties:
            while (left := self._left(party)) and time.monotonic() < end:
                time.sleep(0.2)
            if left:
                self._note(self._found.hangs, f"party {party.number} still has {left} while nobody asks")
            while not party.ready() and time.monotonic() < end:
                time.sleep(0.2)
            if not party.ready():
                self._note(self._found.ends, f"party {party.number} is not ready, and nothing is wrong")

    @staticmethod
    def _left(party: Party) -> str | None:
        counts = {name: party.metric(f"megrez_{name}") for name in ("sessions", "waiting", "connections")}
        left = {name: count for name, count in counts.items() if count != 0}
        return str(left) if left else None

    def _answers(self, dice: random.Random) -> None:
        """Whatever was done is there, and right."""
        promises, load = self._load.promises, self._load
        for name in [name for name, state in promises.models.items() if state == "stored"]:
            outcome = _patiently(lambda name=name: load.run_stored(name, dice, "verify"))  # type: ignore[misc]
            if outcome.kind is not None:
                self._note(self._found.lost, f"the stored model {name}: {outcome.error}")
        for name, (file, _) in promises.jobs.items():
            outcome = _patiently(lambda file=file: load.job(file))  # type: ignore[misc]
            job = outcome.printed["jobs"][0] if outcome.printed is not None else {"state": outcome.error}
            if job["state"] != "done":
                self._note(self._found.lost, f"the finished job {name}: {job['state']}")
            elif (wrong := load.losses_differ(job["losses"])) is not None:
                self._note(self._found.wrong, f"the finished job {name}: {wrong}")
            outcome = _patiently(lambda name=name: load.run_trained(name))  # type: ignore[misc]
            if outcome.kind is not None:
                self._note(self._found.lost, f"the trained model {name}: {outcome.error}")
        while promises.material:
            name = promises.material[0]
            outcome = load.use_material(dice)
            # It serves one attempt, whatever comes of that.
            if outcome.kind not in (None, *LATER):
                self._note(self._found.lost, f"the material {name}: {outcome.error}")

    def _files(self) -> None:
        """No file is half written, or one party's alone."""
        models: dict[str, list[int]] = {}
        material: dict[str, int] = {}
        for party in self._deployment.parties:
            for file in sorted(party.data.rglob("*")):
                if file.is_dir():
                    continue
                if file.suffix in TEMPORARY or file.name.startswith(".writable"):
                    self._note(self._found.leftovers, f"party {party.number}: {file.name}")
                    file.unlink()
                if file.parent.name == "models":
                    models.setdefault(file.stem, []).append(party.number)
                if file.parent.name == "material":
                    material[file.stem] = material.get(file.stem, 0) + 1
        # What clients were promised has just been used, and what all parties have is in stock.
        self.stranded = sum(count for count in material.values() if count < 3)
        states = self._load.promises.models
        for name, parties in models.items():
            count = len(parties)
            if count < 3 and name not in self.halves:
                self.halves[name] = f"at {parties}: {self._load.again(name)}"
            if states.get(name) == "stored" and count < 3:
                self._note(self._found.lost, f"the stored model {name} is at {count} parties")
            if states.get(name) == "removed":
                self._note(self._found.leftovers, f"the removed model {name} is at {count} parties")

    def read_logs(self) -> None:
        """No panic, no secret; how often which event is logged."""
        keys = [line for file in self._deployment.folder.glob("certs/*.key") for line in _secret_lines(file)]
        for party in self._deployment.parties:
            with party.log.open("rb") as log:
                log.seek(self._seen[party.number])
                text = log.read()
                self._seen[party.number] = log.tell()
            for line in text.decode(errors="replace").splitlines():
                self._line(party, line, keys)
            audit = party.data / "audit.jsonl"
            if audit.exists() and any(word in audit.read_text() for word in [str(MARKER), *keys]):
                self._note(self._found.logs, f"a secret is in {audit}")

    def _line(self, party: Party, line: str, keys: list[str]) -> None:
        if any(word in line for word in [str(MARKER), *keys]):
            self._note(self._found.logs, f"a secret in the log of party {party.number}: {line[:300]}")
        event: Any = None
        try:
            event = json.loads(line)
            self.events[f"{event['event']}{':' + event['kind'] if event.get('kind') else ''}"] += 1
        except (ValueError, KeyError, TypeError):
            # A party that is killed may leave half of a line.
            if not line.startswith(("megrez: ", "{")):
                self._note(self._found.logs, f"party {party.number} says {line[:300]}")
        if "asked for nothing" in line:
            self._note(
                self._found.logs, f"party {party.number} found a client idle for an hour: {line[:300]}"
            )
        if "panicked" in line:
            self._note(self._found.logs, f"party {party.number} panicked: {line[:300]}")

    def audits(self) -> None:
        """All audit logs follow from one another, crashes and all."""
        for party in self._deployment.parties:
            if (wrong := self._load.calls.local("audit", "verify", party.data / "audit.jsonl")) is not None:
                self._note(self._found.logs, f"the audit log of party {party.number}: {wrong}")

    def quarters(self) -> list[dict[str, Any]]:
        """What parties held in each quarter of the run: medians and maxima."""
        if len(self.samples) < 8:
            return []
        first, last = self.samples[0].at, self.samples[-1].at
        parts: list[list[Sample]] = [[], [], [], []]
        for sample in self.samples:
            parts[min(3, int(4 * (sample.at - first) / max(last - first, 1e-9)))].append(sample)
        return [
            {
                name: {
                    "median": statistics.median(getattr(one, name) for one in part),
                    "max": max(getattr(one, name) for one in part),
                }
                for name in HELD
            }
            for part in parts
            if part
        ]

    def flat(self) -> None:
        """Note what grows from the second quarter to the last, under load and idle."""
        quarters = self.quarters()
        if len(self.samples) < 4 * LONG or len(quarters) < 4:
            return
        for name, (of, slack) in LOADED.items():
            second, last = quarters[1][name][of], quarters[3][name][of]
            if last > GROWTH * second + slack:
                self._note(self._found.growth, f"{of} {name} under load: {second} in quarter 2, then {last}")
        if len(self.idle) >= 4:
            for name, slack in IDLE.items():
                second, last = self.idle[len(self.idle) // 4][name], self.idle[-1][name]
                if last > GROWTH * second + slack:
                    self._note(self._found.growth, f"{name} idle: {second} after a quarter, then {last}")


def _patiently(call: Callable[[], Outcome]) -> Outcome:
    """Make a call again that a busy machine has made late."""
    for _ in range(4):
        outcome = call()
        if outcome.kind not in LATER:
            break
    return outcome


def _secret_lines(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if len(line) > 40]
