"""Work that is spread over several triples of parties, and goes elsewhere when one fails."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from megrez._data import Array, Given, GivenTensor
from megrez._model import Model
from megrez._native import (
    BusyError,
    DamagedFileError,
    InternalError,
    InvalidError,
    PeerLostError,
    TimedOutError,
)
from megrez._results import Result

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from megrez.aio import Cluster

T = TypeVar("T")

MAY_BE_RETRIED = (BusyError, DamagedFileError, InternalError, PeerLostError, TimedOutError)
"""After these the same rows may do well elsewhere; other errors would be the same on every triple."""

_FORGOTTEN = 600.0
"""Seconds after which a worker that asks no more is taken for gone."""


class Spread:
    """Which worker uses which triple: as evenly as can be, and none that has just failed.

    A worker stays where it is while that is even, so that it keeps its connection. A triple that has failed
    rests for `rest` seconds, in which it is used only if all rest.
    """

    def __init__(self, triples: int, rest: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        if triples < 1:
            raise InvalidError("there are no triples to spread work over")
        self._triples, self._rest, self._clock = triples, rest, clock
        self._at: dict[str, tuple[int, float]] = {}
        """Where each worker is, and when it last asked."""
        self._until = [0.0] * triples
        """When each triple may be used again."""

    def place(self, worker: str, failed: int | None = None) -> int:
        """Say where this worker runs next; `failed` is where its last run failed."""
        now = self._clock()
        if failed is not None:
            self._until[failed] = now + self._rest
        here = self._at[worker][0] if worker in self._at else None
        # Workers that are gone are not counted for ever.
        recent = [w for w, (_, seen) in self._at.items() if now - seen < _FORGOTTEN and w != worker]
        counts = Counter(self._at[w][0] for w in recent)

        def price(k: int) -> tuple[float, int, bool, int]:
            return (max(self._until[k] - now, 0.0), counts[k], k != here, k)

        best = min(range(self._triples), key=price)
        self._at = {w: self._at[w] for w in recent} | {worker: (best, now)}
        return best

    def leave(self, worker: str) -> None:
        """Count this worker no more."""
        self._at.pop(worker, None)


def pause(attempt: int) -> float:
    """Seconds before an attempt, from 2, where the triple that failed is the only one."""
    return float(min(2.0 ** (attempt - 2), 10.0))


class Triples:
    """Several triples of parties as one: each call goes to the one with the fewest calls, or on to another.

    A call that fails of `BusyError`, `DamagedFileError`, `InternalError`, `PeerLostError` or `TimedOutError`
    is repeated on another triple if one is well, `attempts` times at most in all, and for `rest` seconds a
    triple that has failed is left alone while another is well. Other errors would be the same everywhere. A
    stored model lies at every triple under one name.

    Use it in an `async with` statement, or call `close`: it closes the clusters as well.
    """

    def __init__(self, clusters: Sequence[Cluster], *, attempts: int = 3, rest: float = 10.0) -> None:
        if attempts < 1:
            raise InvalidError(f"a call is attempted once at least, not {attempts} times")
        self._clusters, self._attempts = list(clusters), attempts
        self._spread, self._calls = Spread(len(self._clusters), rest), itertools.count()

    async def _call(self, work: Callable[[Cluster], Awaitable[T]]) -> T:
        call, failed, attempt = str(next(self._calls)), None, 1
        try:
            while True:
                triple = self._spread.place(call, failed)
                if triple == failed:
                    await asyncio.sleep(pause(attempt))
                try:
                    return await work(self._clusters[triple])
                except MAY_BE_RETRIED:
                    if attempt == self._attempts:
                        raise
                failed, attempt = triple, attempt + 1
        finally:
            self._spread.leave(call)

    @overload
    async def run(self, model: Model, data: Given) -> Result[Array]: ...
    @overload
    async def run(self, model: Model, data: GivenTensor) -> Result[torch.Tensor]: ...
    async def run(self, model: Model, data: Any) -> Result[Any]:
        """Run a model on data, as `megrez.Cluster.run`."""
        return await self._call(lambda cluster: cluster.run(model, data))

    @overload
    async def run_stored(self, name: str, data: Given, *, batch: int | None = None) -> Result[Array]: ...
    @overload
    async def run_stored(
        self, name: str, data: GivenTensor, *, batch: int | None = None
    ) -> Result[torch.Tensor]: ...
    async def run_stored(self, name: str, data: Any, *, batch: int | None = None) -> Result[Any]:
        """Run a model that is stored at the parties of every triple, as `megrez.Cluster.run_stored`."""
        return await self._call(lambda cluster: cluster.run_stored(name, data, batch=batch))

    async def parties(self) -> list[dict[str, Any]]:
        """What each party of a triple that is well says of itself, as `megrez.Cluster.parties`."""
        return await self._call(lambda cluster: cluster.parties())

    async def close(self) -> None:
        """Close all clusters."""
        await asyncio.gather(*(cluster.close() for cluster in self._clusters))

    async def __aenter__(self) -> Self:
        # All triples are asked, so that what is wrong with none of them shows here; one that is well is
        # enough.
        asked = [cluster.parties() for cluster in self._clusters]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        grave = [error for error in errors if not isinstance(error, MAY_BE_RETRIED)]
        if grave or len(errors) == len(answers):
            await self.close()
            raise (grave or errors)[0]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
