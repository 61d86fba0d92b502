"""Training as a job of the parties."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from megrez import _native

if TYPE_CHECKING:
    from megrez._cluster import Cluster

EpochEnd = Callable[[int, float], Any]
"""Called after an epoch with its number, from 0, and its mean loss."""


class Training:
    """A job that `Cluster.fit` has begun: it runs at the parties, whoever waits for it."""

    def __init__(
        self, cluster: Cluster, job: bytes, model: str, own: Sequence[str], callbacks: Sequence[EpochEnd]
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._own = list(own)
        self._callbacks = list(callbacks)
        self._losses: list[float] = []
        self._state: dict[str, Any] = {"state": "runs"}
        self.model = model
        """The name under which the parties keep the weights once training has ended: for `run_stored`."""

    @property
    def history(self) -> dict[str, list[float]]:
        """What is known of each epoch so far: its mean `loss`."""
        return {"loss": list(self._losses)}

    @property
    def state(self) -> str:
        """`runs`, `waits` (stopped, or a party has ended) or `done`, as it was when somebody last looked."""
        return str(self._state["state"])

    def look(self) -> str:
        """Ask the parties how the job stands, and call the callbacks for epochs that are new."""
        self._state = json.loads(_native.job_state(self._cluster._native, self._job))
        for epoch, loss in enumerate(self._state["losses"]):
            if epoch >= len(self._losses):
                self._losses.append(loss)
                for callback in self._callbacks:
                    callback(epoch, loss)
        if self.state == "done":
            # Nothing else uses what was stored for this job.
            while self._own:
                _native.remove_stored(self._cluster._native, self._own.pop())
        return self.state

    def wait(self) -> Training:
        """Wait until the job no longer runs."""
        while self.look() == "runs":
            time.sleep(0.2)
        return self

    def stop(self) -> None:
        """Have the parties stop at the border of a step. What finished epochs left is sealed there."""
        _native.stop_job(self._cluster._native, self._job)

    def resume(self) -> Training:
        """Have the parties go on after the last epoch that all of them have sealed."""
        if self.look() == "waits":
            _native.resume_job(self._cluster._native, self._job)
        return self

    def __repr__(self) -> str:
        return f"<megrez.Training of `{self.model}`, {self.state}, {len(self._losses)} epochs>"
