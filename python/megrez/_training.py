"""Training as a job of the parties."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from megrez import _native

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from megrez._cluster import Cluster, Progress

EpochEnd = Callable[[int, float], Any]
"""Called after an epoch with its number, from 0, and its mean loss."""

_SCHEMA = "megrez.training/1"
_OWN = re.compile("(rows|start)-[0-9a-f]{16}")
"""What `Cluster.fit` calls what it stores for a job alone."""


class Training:
    """A job that `Cluster.fit` has begun: it runs at the parties, whoever waits for it."""

    def __init__(
        self,
        cluster: Cluster,
        job: bytes,
        model: str,
        epochs: int,
        own: Sequence[str],
        callbacks: Sequence[EpochEnd],
        progress: Progress | Literal[True] | None,
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._own = list(own)
        self._callbacks = list(callbacks)
        self._progress = progress
        self._losses: list[float] = []
        self._state: dict[str, Any] = {"state": "runs", "epoch": 0, "step": 0, "steps": 0}
        self._since: tuple[float, int] | None = None
        """When the pace began to be taken, and the steps that were done then."""
        self._pace: float | None = None
        self.model = model
        """The name under which the parties keep the weights once training has ended: for `run_stored`."""
        self.epochs = epochs
        """How often every row is learnt from."""

    @property
    def history(self) -> dict[str, list[float]]:
        """What is known of each epoch so far: its mean `loss`.

        With validation data also the `accuracy` after it or, without classes, the `validation_loss`.
        """
        others = {"accuracy": "accuracies", "validation_loss": "validation_losses"}
        found = {name: [float(v) for v in self._state.get(key, [])] for name, key in others.items()}
        return {"loss": list(self._losses)} | {name: values for name, values in found.items() if values}

    @property
    def state(self) -> str:
        """`runs`, `waits` (stopped, or a party has ended) or `done`, as it was when somebody last looked."""
        return str(self._state["state"])

    @property
    def steps(self) -> tuple[int, int]:
        """Steps that are done, and steps of all epochs, as it was when somebody last looked."""
        each = int(self._state["steps"])
        if self.state == "done":
            return each * self.epochs, each * self.epochs
        return each * int(self._state["epoch"]) + int(self._state["step"]), each * self.epochs

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the end, by the steps that were seen; None before two looks saw different ones."""
        done, all_steps = self.steps
        if self.state == "done":
            return 0.0
        return None if self._pace is None else self._pace * (all_steps - done)

    def look(self) -> str:
        """Ask the parties how the job stands, and call the callbacks for epochs that are new."""
        before, told = self.steps, len(self._losses)
        self._state = json.loads(_native.job_state(self._cluster._native, self._job))
        self._time()
        for epoch, loss in enumerate(self._state["losses"]):
            if epoch >= len(self._losses):
                self._losses.append(loss)
                for callback in self._callbacks:
                    callback(epoch, loss)
        news = self.steps != before
        if self._progress is True:
            if news or len(self._losses) > told or self.state != "runs":
                end = "\r" if self.state == "runs" else "\n"
                print(f"{self._line():<72}", end=end, file=sys.stderr, flush=True)
        elif self._progress is not None and news:
            self._progress(self.steps[0])
        if self.state == "done":
            # Nothing else uses what was stored for this job. Who has followed it as well may have removed it.
            while self._own:
                with contextlib.suppress(_native.NotPermittedError):
                    _native.remove(self._cluster._native, self._own.pop())
        return self.state

    def _time(self) -> None:
        """Take the pace, from the first look since the job began or went on."""
        now, done = time.monotonic(), self.steps[0]
        if self.state != "runs" or self._since is None or done < self._since[1]:
            self._since = (now, done) if self.state == "runs" else None
        elif done > self._since[1]:
            self._pace = (now - self._since[0]) / (done - self._since[1])

    def _line(self) -> str:
        done, all_steps = self.steps
        loss = f", loss {self._losses[-1]:.4f}" if self._losses else ""
        right = self._state.get("accuracies")
        loss += f", {right[-1]:.2%} right" if right else ""
        left = "" if self.seconds_left is None else f", {self.seconds_left:.0f} s left"
        return f"step {done} of {all_steps}, epoch {len(self._losses)} of {self.epochs}{loss}{left}"

    def wait(self) -> Training:
        """Wait until the job no longer runs."""
        while self.look() == "runs":
            time.sleep(0.2)
        return self

    def stop(self) -> None:
        """Have the parties stop at the border of a step. What finished epochs left is sealed there."""
        _native.stop_job(self._cluster._native, self._job)

    def resume(self) -> Training:
        """Have the parties go on after the last epoch that all of them have sealed.

        This works whatever the job failed of, once all parties are there again. From another connection, or
        another process, `Cluster.training` takes up what `save` has written.
        """
        # A job that failed is one to go on with, whatever it failed of: the parties say so if they cannot.
        with contextlib.suppress(_native.Error):
            if self.look() != "waits":
                return self
        _native.resume_job(self._cluster._native, self._job)
        self._state["state"] = "runs"
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what `Cluster.training` needs to follow this job from another process, as JSON.

        It holds the job as the parties know it: its plans and names, neither rows nor weights.
        """
        saved = {
            "schema": _SCHEMA,
            "model": self.model,
            "epochs": self.epochs,
            "stored": self._own,
            "job": base64.b64encode(self._job).decode(),
        }
        Path(path).write_text(json.dumps(saved), encoding="utf-8")

    @classmethod
    def _load(
        cls,
        cluster: Cluster,
        path: str | os.PathLike[str],
        callbacks: Sequence[EpochEnd],
        progress: Progress | Literal[True] | None,
    ) -> Training:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _native.InvalidError(f"{path}: {error}") from error
        try:
            saved = json.loads(text)
            job = base64.b64decode(saved["job"], validate=True)
            model, epochs, own = saved["model"], saved["epochs"], saved["stored"]
            right = saved["schema"] == _SCHEMA and isinstance(model, str) and isinstance(epochs, int)
            # These are removed when the job has ended, so a file cannot name anything else.
            right = right and isinstance(own, list) and all(_OWN.fullmatch(name) for name in own)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise _native.DamagedFileError(f"{path} is no training that was saved: {error!r}") from error
        if not right:
            raise _native.DamagedFileError(f"{path} is no training that was saved, as {_SCHEMA}")
        return cls(cluster, job, model, epochs, own, callbacks, progress)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the loss of each epoch so far, on new axes or on `ax`; needs matplotlib."""
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError as error:
                raise _native.UnsupportedError("a plot needs matplotlib: pip install matplotlib") from error
            _, ax = plt.subplots(figsize=(4, 2.5), layout="constrained")
        ax.plot(range(1, len(self._losses) + 1), self._losses, marker=".", label=self.model)
        ax.set_xlabel("epoch")
        ax.set_ylabel("mean loss")
        return ax

    def __repr__(self) -> str:
        return (
            f"<megrez.Training of `{self.model}`, {self.state}, {len(self._losses)} of {self.epochs} epochs>"
        )
