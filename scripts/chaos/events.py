"""What goes wrong, and when: a schedule that follows from a seed."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from calls import Calls
from deployment import PARTIES, Deployment
from relays import Link

WEIGHTS = {
    "kill": 10,
    "stop": 8,
    "drain": 4,
    "reload": 5,
    "cut": 14,
    "half-open": 6,
    "stall": 8,
    "delay": 6,
    "truncate": 8,
    "garbage": 5,
    "flip": 5,
    "refuse": 5,
    "kill-client": 14,
    "full-disk": 8,
    "stranger": 4,
}
"""All kinds of events, and how often they come."""
SPARE = (0, 4096, 65536, 1 << 20, 4 << 20)
"""Bytes that are left on a full disk, or in each of its files."""
AT_ONCE = 2
"""Most events that last at a time."""


@dataclass
class _Lasting:
    """Something that lasts, and is undone."""

    until: float
    what: object
    undo: Callable[[], None]


class Events:
    """Does one event after the other."""

    def __init__(
        self, deployment: Deployment, calls: Calls, seed: int, left_out: set[str], patience: float
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.drained: list[float] = []
        """Seconds that each drain has taken."""
        self._deployment, self._calls, self._patience = deployment, calls, patience
        self._dice = random.Random(f"{seed}-events")
        self._weights = {kind: weight for kind, weight in WEIGHTS.items() if kind not in left_out}
        self._lasting: list[_Lasting] = []

    def next(self) -> None:
        """Do one event. What it takes from the dice does not depend on what happens elsewhere."""
        dice = random.Random(self._dice.random())
        kinds = list(self._weights)
        kind = dice.choices(kinds, weights=[self._weights[k] for k in kinds])[0]
        if self._do(kind, dice):
            self.counts[kind] += 1

    def pass_time(self, seconds: float) -> None:
        """Wait, and undo what has lasted long enough."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            for one in [one for one in self._lasting if one.until <= now]:
                self._lasting.remove(one)
                one.undo()
            for party in self._deployment.parties:
                if not party.watch() and not self._lasts(party):
                    party.start(self._patience)
            time.sleep(0.02)

    def calm(self) -> None:
        """Undo everything."""
        for one in self._lasting:
            one.undo()
        self._lasting.clear()
        self._deployment.heal(self._patience)

    def _lasts(self, what: object) -> bool:
        return any(one.what is what for one in self._lasting)

    def _last(self, what: object, seconds: float, undo: Callable[[], None]) -> None:
        self._lasting.append(_Lasting(time.monotonic() + seconds, what, undo))

    def _do(self, kind: str, dice: random.Random) -> bool:
        """Do one event; whether it could be done."""
        party = self._deployment.parties[dice.choice(PARTIES)]
        source = dice.choice([f"party{peer}" for peer in PARTIES if peer != party.number] + ["client"])
        link = self._deployment.relay.links[source, party.number]
        if kind == "kill-client":
            return self._calls.kill_one(dice.random())
        if kind == "reload":
            party.send(signal.SIGHUP)
            return True
        if kind == "stranger":
            return _strange(party.port, dice)
        if kind in ("kill", "stop", "drain", "full-disk"):
            if self._lasts(party) or len(self._lasting) >= AT_ONCE:
                return False
            if kind == "kill":
                party.kill()
                self._last(party, dice.uniform(0, 0.5), lambda: party.start(self._patience))
            elif kind == "stop":
                party.send(signal.SIGSTOP)
                self._last(party, _seconds(dice), lambda: party.send(signal.SIGCONT))
            elif kind == "drain":
                began = time.monotonic()
                if (wrong := party.drain(self._patience)) is not None:
                    self._calls.note(self._calls.findings.ends, wrong)
                self.drained.append(time.monotonic() - began)
                self._last(party, dice.uniform(0, 0.5), lambda: party.start(self._patience))
            else:
                mounted = self._deployment.mounted
                party.fill_disk(dice.choice(SPARE), mounted=mounted)
                party.ready()
                self._last(party, _seconds(dice), lambda: party.empty_disk(mounted=mounted))
            return True
        return self._spoil(kind, link, dice)

    def _spoil(self, kind: str, link: Link, dice: random.Random) -> bool:
        relay = self._deployment.relay
        if kind == "cut":
            reset = dice.random() < 0.5
            relay.do(lambda: link.cut(reset=reset))
            return True
        if kind in ("truncate", "garbage", "flip"):
            relay.do(lambda: link.spoil(kind, dice))
            return True
        if self._lasts(link) or len(self._lasting) >= AT_ONCE:
            return False
        seconds = _seconds(dice)
        if kind == "half-open":
            side = dice.randrange(2)
            relay.do(lambda: link.half_open(side))
        elif kind == "stall":
            ways = dice.choice([(0,), (1,), (0, 1)])
            relay.do(lambda: link.stall(ways))
        elif kind == "delay":
            link.delay = dice.uniform(0.005, 0.3)
        elif kind == "refuse":
            seconds = min(seconds, 1.0)
            link.refuses = True
            relay.do(lambda: link.cut(reset=True))
        self._last(link, seconds, lambda: relay.do(link.heal))
        return True


def _seconds(dice: random.Random) -> float:
    """How long something lasts: mostly a moment, sometimes longer than parties wait."""
    return min(0.1 + dice.expovariate(1 / 1.2), 12.0)


def _strange(port: int, dice: random.Random) -> bool:
    """Connect to a party without a certificate, and say something."""
    for _ in range(dice.randrange(1, 8)):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as one:
            one.sendall(dice.randbytes(dice.randrange(1, 500)))
    return True
