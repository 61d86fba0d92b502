"""Tapes: what `megrez.float32` records, and whoever runs it."""

from __future__ import annotations

import itertools
import json
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from megrez import _native

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Cost:
    """What has run so far costs, without the opening of results and without what Ctrl-C interrupted."""

    seconds: float = 0.0
    rounds: int = 0
    sent_bytes: tuple[int, ...] = (0, 0)
    """Of each party."""


class Value:
    """A vector at the parties, or the recipe for one."""

    def __init__(
        self, tape: Tape, lanes: int, entry: Any, of: Sequence[Value] = (), bits: list[int] | None = None
    ) -> None:
        self.tape, self.lanes, self.of, self.bits = tape, lanes, tuple(of), bits
        self.name = next(tape.names)
        self.entry = entry
        """What the parties have to do; `None` once they have done it."""

    def __del__(self) -> None:
        if self.entry is None:
            self.tape.unused.append(self.name)


class Tape:
    """What is to run, and the parties that run it."""

    def __init__(self, native: _native.Float32) -> None:
        self._native = native
        self._end = weakref.finalize(self, native.close)
        self.names = itertools.count()
        self.unused: list[int] = []
        """Values that the parties have and nobody here refers to any more."""
        self.clients: list[str] = []
        """Who is named in the program, in the order in which they were."""
        self.cost = Cost()
        self._running = threading.Lock()

    def run(self, values: Sequence[Value], to: Sequence[str] = ()) -> list[list[int]]:
        """Run what these values need, and open them: numbers as bits, truth values as 0 and 1.

        `to` are the clients who learn them, where clients bring the inputs. One thread at a time: others
        wait, for what one runs the others may need.
        """
        with self._running:
            return self._run(values, to)

    def _run(self, values: Sequence[Value], to: Sequence[str]) -> list[list[int]]:
        entries = _unfinished(values)
        unused = self.unused[:]
        request = {
            "tape": [(value.name, value.entry) for value in entries],
            "numbers": {value.name: value.bits for value in entries if value.bits is not None},
            "forget": unused,
            "open": [value.name for value in values],
            "clients": self.clients,
            "to": list(to),
        }
        text = json.dumps(request)
        try:
            reply = json.loads(self._native.run(text))
        except KeyboardInterrupt:  # the parties finish what they have begun
            self._have_run(entries, unused)
            raise
        self._have_run(entries, unused)
        sent = itertools.zip_longest(self.cost.sent_bytes, reply["sent_bytes"], fillvalue=0)
        self.cost = Cost(
            self.cost.seconds + reply["seconds"],
            self.cost.rounds + reply["rounds"],
            tuple(before + more for before, more in sent),
        )
        opened: list[list[int]] = reply["opened"]
        return opened

    def _have_run(self, entries: list[Value], unused: list[int]) -> None:
        del self.unused[: len(unused)]
        for value in entries:
            value.entry, value.of, value.bits = None, (), None

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        # As clusters: scikit-learn copies the parameters of estimators, and parties have no copies.
        return self

    def close(self) -> None:
        """End the parties."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _unfinished(values: Sequence[Value]) -> list[Value]:
    """What has to run for these values, in order."""
    done: dict[int, Value] = {}
    waiting = [(value, False) for value in reversed(values)]
    while waiting:
        value, expanded = waiting.pop()
        if value.entry is None or value.name in done:
            continue
        if expanded:
            done[value.name] = value
        else:
            waiting.append((value, True))
            waiting.extend((before, False) for before in value.of)
    return list(done.values())
