"""Trainings for applications that use asyncio: names of `megrez.aio`."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from megrez import _cluster
from megrez._cluster import Progress
from megrez._training import EpochEnd
from megrez._training import Training as _Training

if TYPE_CHECKING:
    from megrez.aio import Cluster

T = TypeVar("T")


class Training:
    """A job that `Cluster.fit` has begun: `megrez.Training`, whose waiting is awaited."""

    def __init__(self, cluster: Cluster, training: _Training) -> None:
        self._cluster = cluster
        self._training = training
        # Two looks at once would tell the callbacks twice; one whose caller was cancelled still goes on.
        self._turn = threading.Lock()

    async def _call(self, work: Callable[[_Training], T]) -> T:
        def on(one: _cluster.Cluster, _: Progress) -> T:
            with self._turn:
                self._training._cluster = one
                return work(self._training)

        return await self._cluster._call(on)

    @property
    def model(self) -> str:
        """The name under which the parties keep the weights once training has ended: for `run_stored`."""
        return self._training.model

    @property
    def epochs(self) -> int:
        """How often every row is learnt from."""
        return self._training.epochs

    @property
    def history(self) -> dict[str, list[float]]:
        """What is known of each epoch so far: its mean `loss`."""
        return self._training.history

    @property
    def state(self) -> str:
        """`runs`, `waits` (stopped, or a party has ended) or `done`, as it was when somebody last looked."""
        return self._training.state

    @property
    def steps(self) -> tuple[int, int]:
        """Steps that are done, and steps of all epochs, as it was when somebody last looked."""
        return self._training.steps

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the end, by the steps that were seen; None before two looks saw different ones."""
        return self._training.seconds_left

    async def look(self) -> str:
        """Ask the parties how the job stands, and call the callbacks for epochs that are new."""
        return await self._call(lambda training: training.look())

    async def wait(self) -> Training:
        """Wait until the job no longer runs."""
        while await self.look() == "runs":
            await asyncio.sleep(0.2)
        return self

    async def stop(self) -> None:
        """Have the parties stop at the border of a step, as `megrez.Training.stop`."""
        await self._call(lambda training: training.stop())

    async def resume(self) -> Training:
        """Have the parties go on after the last epoch that all have sealed, as `megrez.Training.resume`."""
        await self._call(lambda training: training.resume())
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what `Cluster.training` needs to follow this job, as `megrez.Training.save`."""
        self._training.save(path)

    def __repr__(self) -> str:
        return repr(self._training).replace("megrez.Training", "megrez.aio.Training", 1)


def later_on(loop: asyncio.AbstractEventLoop, callback: Callable[..., Any]) -> Callable[..., None]:
    """Have the event loop call this, from whatever thread."""

    def later(*arguments: Any) -> None:
        loop.call_soon_threadsafe(callback, *arguments)

    return later


def heard(callbacks: Sequence[EpochEnd], progress: Progress | Literal[True] | None) -> dict[str, Any]:
    """`callbacks` and `progress` for a thread, which has the running loop call these."""
    loop = asyncio.get_running_loop()
    told = progress if progress is None or progress is True else later_on(loop, progress)
    return {"callbacks": [later_on(loop, callback) for callback in callbacks], "progress": told}
