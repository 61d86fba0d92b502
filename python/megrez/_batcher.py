"""Small requests of several callers as one run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from megrez import _native
from megrez._data import Array, Given, GivenTensor, arrays, outputs
from megrez._model import Model
from megrez._results import Result

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from megrez._triples import Triples
    from megrez.aio import Cluster


@dataclass(eq=False)
class _Call:
    """Rows of one caller."""

    names: tuple[str, ...] | None
    """The inputs' names, where the caller gave them."""
    data: list[Array]
    rows: int
    tensors: bool
    since: float
    """When it came, by the event loop's clock."""
    answer: asyncio.Future[Result[Any]]

    def joins(self, other: _Call) -> bool:
        """Whether both fit one run."""
        shapes = [array.shape[1:] for array in self.data]
        return self.names == other.names and shapes == [array.shape[1:] for array in other.data]


class Batcher:
    """Joins small requests of concurrent callers to runs of one model, which share its rounds.

    Requests wait at most `wait` seconds for others, and longer only while `runs` runs are under way. They are
    served in the order in which they came. Every caller gets the rows that are its own, filled-up rows
    nobody. Callers are told apart here and not at the parties, for which all rows are data of one client: use
    it where that is so, in a service.

    Only models whose outputs are made input by input are run for several callers at once: that is found from
    the plan, and others are refused. Such a run has a row less than its batch size, by which this is found.
    Data that is refused is refused to its caller alone; any other error reaches every caller of the run. A
    caller who is cancelled leaves the others as they are.

    Use it in an `async with` statement, or call `close`.
    """

    def __init__(
        self,
        cluster: Cluster | Triples,
        model: Model | str,
        *,
        batches: Sequence[int] | None = None,
        wait: float = 0.01,
        runs: int = 2,
        waiting: int = 1024,
    ) -> None:
        """Make one for a model.

        Args:
            cluster: where the model runs.
            model: a compiled model, or the name of one that is stored at the parties.
            batches: for a stored model, the batch sizes to use, all of which its owner must have approved. A
                run has the smallest that holds the rows that wait, or one that they fill at least half.
                A compiled model has one, its own.
            wait: seconds that a request waits for others to join it.
            runs: most runs at a time.
            waiting: most rows that wait; who would exceed it is told `BusyError` at once.

        """
        if isinstance(model, Model):
            if batches is not None:
                raise _native.InvalidError(
                    "a compiled model has one batch size: batches is for stored models"
                )
            sizes = [model.batch]
        else:
            sizes = sorted(set(batches or ()))
        if not sizes or sizes[0] < 1:
            raise _native.InvalidError(
                "batches are the sizes that a stored model may be run in, such as [1, 32]"
            )
        if wait < 0 or runs < 1 or waiting < 1:
            raise _native.InvalidError("wait is not negative, runs and waiting are 1 or more")
        self._cluster, self._model, self._sizes = cluster, model, sizes
        self._wait, self._runs, self._most_waiting = wait, runs, waiting
        self._waiting: deque[_Call] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @overload
    async def run(self, data: Given) -> Result[Array]: ...
    @overload
    async def run(self, data: GivenTensor) -> Result[torch.Tensor]: ...
    async def run(self, data: Any) -> Result[Any]:
        """Run the model on data, as `Cluster.run`: an array or tensor, or several by the inputs' names.

        The first dimension counts inputs; there are at most as many as the largest batch. The report is that
        of the whole run.
        """
        if self._closed:
            raise _native.InvalidError("this batcher is closed")
        loop = asyncio.get_running_loop()
        names = tuple(sorted(data)) if isinstance(data, Mapping) else None
        given, tensors = arrays(data, ["data"] if names is None else list(names))
        counts = {array.shape[0] if array.ndim else 0 for array in given}
        rows = counts.pop() if len(counts) == 1 else 0
        if counts or not 1 <= rows <= self._sizes[-1]:
            raise _native.InvalidError(
                f"the first dimension of every input counts inputs, the same from 1 to {self._sizes[-1]}: "
                f"the data has {', '.join(str(list(array.shape)) for array in given) or 'none'}"
            )
        there = sum(call.rows for call in self._waiting)
        if there + rows > self._most_waiting:
            raise _native.BusyError(f"busy: {there} rows wait for this model already; try again later")
        call = _Call(names, given, rows, tensors, loop.time(), loop.create_future())
        self._waiting.append(call)
        self._begin()
        try:
            return await call.answer
        finally:
            # Only who was cancelled still waits.
            if call in self._waiting:
                self._waiting.remove(call)

    def _size(self, calls: int, rows: int) -> int | None:
        """The batch size for so many rows of so many callers, if there is one.

        Several callers leave a row free. The library proves from the plan that rows do not mix whenever it
        has to fill a run up, and refuses other models; in a full run it would have no reason to, and callers
        could get numbers that depend on others' data.
        """
        return next((n for n in self._sizes if n > rows or (n == rows and calls == 1)), None)

    def _next(self) -> tuple[list[_Call], bool]:
        """The requests that the next run has, oldest first, and whether no other could join it."""
        calls, rows = [self._waiting[0]], self._waiting[0].rows
        for call in list(self._waiting)[1:]:
            if call.joins(calls[0]):
                if self._size(len(calls) + 1, rows + call.rows) is None:
                    return calls, True
                calls.append(call)
                rows += call.rows
        full = self._size(len(calls) + 1, rows + 1) is None
        return self._worth(calls, rows), full

    def _worth(self, calls: list[_Call], rows: int) -> list[_Call]:
        """As many of these as fill at least half of a run: filling up costs as much as rows do.

        Those that are left are for the next run, which may begin at once.
        """
        size, smaller = (
            self._size(len(calls), rows),
            max((n for n in self._sizes if 1 < n <= rows), default=0),
        )
        if size is None or 2 * rows >= size or smaller == 0:
            return calls
        fewer: list[_Call] = []
        for call in calls:
            joined = sum(c.rows for c in fewer) + call.rows
            if (self._size(len(fewer) + 1, joined) or size) > smaller:
                break
            fewer.append(call)
        return fewer if len(fewer) > 1 else calls

    def _begin(self) -> None:
        """Begin the runs whose time has come: a request came, has waited long enough, or a run has ended."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and len(self._running) < self._runs:
            calls, full = self._next()
            due = self._waiting[0].since + self._wait
            if not full and not self._closed and loop.time() < due:
                self._timer = loop.call_at(due, self._begin)
                return
            for call in calls:
                self._waiting.remove(call)
            task = loop.create_task(self._run(calls))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._begin()

    async def _run(self, calls: list[_Call]) -> None:
        """Run the rows of these callers, and answer them."""
        calls = [call for call in calls if not call.answer.done()]
        if not calls:
            return
        try:
            results = await self._together(calls)
        except (_native.InvalidError, _native.OutOfRangeError) as error:
            # It may be somebody's data, which was refused before the parties heard of any: by halves, it is
            # found with few runs more.
            if len(calls) == 1:
                _fail(calls, error)
            else:
                middle = len(calls) // 2
                await self._run(calls[:middle])
                await self._run(calls[middle:])
        except asyncio.CancelledError:
            for call in calls:
                call.answer.cancel()
            raise
        except Exception as error:
            _fail(calls, error)
        else:
            for call, result in zip(calls, results, strict=True):
                if not call.answer.done():
                    call.answer.set_result(result)

    async def _together(self, calls: list[_Call]) -> list[Result[Any]]:
        """What each of these callers gets of one run."""
        rows = sum(call.rows for call in calls)
        size = self._size(len(calls), rows)
        assert size is not None, "whoever puts callers together looks for a size"
        joined = [np.concatenate(parts) for parts in zip(*(call.data for call in calls), strict=True)]
        names = calls[0].names
        data: Any = joined[0] if names is None else dict(zip(names, joined, strict=True))
        if isinstance(self._model, Model):
            result: Result[Any] = await self._cluster.run(self._model, data)
        else:
            result = await self._cluster.run_stored(self._model, data, batch=size)
        if len(calls) == 1:
            # One caller's outputs need not be made input by input.
            return [Result(outputs([*result.outputs.items()], calls[0].tensors), result.report)]
        results, start = [], 0
        for call in calls:
            own = [(name, array[start : start + call.rows]) for name, array in result.outputs.items()]
            results.append(Result(outputs(own, call.tensors), result.report))
            start += call.rows
        return results

    async def close(self) -> None:
        """Refuse what comes from now on, and wait until all requests that came before are answered."""
        self._closed = True
        self._begin()
        while self._running:
            await asyncio.wait(set(self._running))
            # Whoever was answered begins the next run in a callback.
            await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _fail(calls: list[_Call], error: Exception) -> None:
    """Give every caller an error of its own: who catches it may add to it."""
    for call in calls:
        if not call.answer.done():
            call.answer.set_exception(type(error)(*error.args) if isinstance(error, _native.Error) else error)
