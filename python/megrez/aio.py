"""The client for applications that use asyncio: a service behind which private inference runs.

    async with megrez.aio.connect("cluster.toml", certs="certs", client="alice") as cluster:
        result = await cluster.run_stored("lenet", images, batch=60)

A call waits in a thread, on a connection of its own; `connections` says how many there are at most. Calls
beyond them wait in the order in which they came. Connections are kept between calls, and made anew after an
error.

A call that is cancelled (`asyncio.wait_for`, a client of the service who goes away) ends at once for its
caller, and never begins if it still waits. If it runs, its connection is taken again when the parties have
ended the run that they are in; of several runs, one more may begin before they are told.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from megrez import _cluster, _native
from megrez._aio_training import Training, heard
from megrez._batcher import Batcher
from megrez._cluster import Mode, Progress
from megrez._data import Array, Given, GivenTensor
from megrez._model import Model
from megrez._results import Check, Generated, Result
from megrez._stored import Stored
from megrez._training import EpochEnd
from megrez._triples import Triples

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

__all__ = ["Batcher", "Cluster", "Training", "Triples", "connect", "connect_all", "local"]

T = TypeVar("T")


class Cluster:
    """Parties, and this process as their client, as `megrez.Cluster`. `connect` and `local` make one.

    Use it in an `async with` statement, or call `close`. Its methods take and give what those of
    `megrez.Cluster` do, and raise the same errors; `progress` and callbacks are called by the event loop.
    """

    def __init__(self, make: Callable[[], _cluster.Cluster], connections: int) -> None:
        if connections < 1:
            raise _native.InvalidError(f"a cluster has one connection at least, not {connections}")
        self.connections = connections
        """Calls that run at a time, each on a connection of its own; more wait."""
        self._make = make
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="megrez.aio")
        # A thread that works takes one from here or makes one, so there are never more than threads.
        self._idle: deque[_cluster.Cluster] = deque()
        self._closed = False

    async def _call(
        self, work: Callable[[_cluster.Cluster, Progress], T], progress: Progress | None = None
    ) -> T:
        """Do something with a connection, in a thread.

        The threads' queue is the queue of calls: in order, and a call that is cancelled there never begins.
        """
        if self._closed:
            raise _native.InvalidError("this cluster is closed")
        loop, given_up = asyncio.get_running_loop(), threading.Event()

        def heard(run: int) -> None:
            if given_up.is_set():
                raise _native.InvalidError("nobody waits for this call any more")
            if progress is not None:
                loop.call_soon_threadsafe(progress, run)

        def call() -> T:
            if self._closed:
                raise _native.InvalidError("this cluster was closed before the call's turn came")
            try:
                one = self._idle.pop()
            except IndexError:
                one = self._make()
            try:
                return work(one, heard)
            finally:
                # After an error it has thrown its connection away, and makes another for the next call.
                self._idle.append(one)

        try:
            return await asyncio.wrap_future(self._threads.submit(call))
        except asyncio.CancelledError:
            given_up.set()
            raise

    @overload
    async def run(
        self, model: Model, data: Given, *, progress: Progress | None = None, mode: Mode = "execute"
    ) -> Result[Array]: ...
    @overload
    async def run(
        self, model: Model, data: GivenTensor, *, progress: Progress | None = None, mode: Mode = "execute"
    ) -> Result[torch.Tensor]: ...
    async def run(
        self, model: Model, data: Any, *, progress: Progress | None = None, mode: Mode = "execute"
    ) -> Result[Any]:
        """Run a model on data, as `megrez.Cluster.run`."""
        return await self._call(lambda one, heard: one.run(model, data, progress=heard, mode=mode), progress)

    @overload
    async def run_stored(
        self,
        name: str,
        data: Given,
        *,
        batch: int | None = None,
        material: str | None = None,
        progress: Progress | None = None,
    ) -> Result[Array]: ...
    @overload
    async def run_stored(
        self,
        name: str,
        data: GivenTensor,
        *,
        batch: int | None = None,
        material: str | None = None,
        progress: Progress | None = None,
    ) -> Result[torch.Tensor]: ...
    async def run_stored(
        self,
        name: str,
        data: Any,
        *,
        batch: int | None = None,
        material: str | None = None,
        progress: Progress | None = None,
    ) -> Result[Any]:
        """Run a model that is stored at the parties, as `megrez.Cluster.run_stored`."""
        return await self._call(
            lambda one, heard: one.run_stored(name, data, batch=batch, material=material, progress=heard),
            progress,
        )

    async def prepare(self, name: str, *, batch: int = 1) -> str:
        """Have correlated randomness made ahead, as `megrez.Cluster.prepare`."""
        return await self._call(lambda one, _: one.prepare(name, batch=batch))

    async def keep(self, name: str, runs: int, *, batch: int = 1) -> list[str]:
        """Have correlated randomness made until there is a stock of it, as `megrez.Cluster.keep`."""
        return await self._call(lambda one, _: one.keep(name, runs, batch=batch))

    async def generate(
        self,
        model: str | os.PathLike[str],
        prompt: Sequence[int],
        tokens: int,
        *,
        choose: Literal["client", "parties"] = "client",
        temperature: float = 0.0,
        top: int | None = None,
        draft: str | os.PathLike[str] | None = None,
        draft_tokens: int = 4,
        on_token: Callable[[int, float], Any] | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> Generated:
        """Continue a text of tokens, as `megrez.Cluster.generate`; `on_token` is called in the event loop."""
        loop = asyncio.get_running_loop()

        def told(token: int, seconds: float) -> None:
            if on_token is not None:
                loop.call_soon_threadsafe(on_token, token, seconds)

        return await self._call(
            lambda one, heard: one.generate(
                model,
                prompt,
                tokens,
                choose=choose,
                temperature=temperature,
                top=top,
                draft=draft,
                draft_tokens=draft_tokens,
                on_token=told,
                progress=heard,
                **options,
            ),
            progress,
        )

    async def upload(
        self, model: Model, *, name: str, allow: Sequence[str], batches: Sequence[int] | None = None
    ) -> None:
        """Keep the model's weights at the parties, as `megrez.Cluster.upload`."""
        await self._call(lambda one, _: one.upload(model, name=name, allow=allow, batches=batches))

    async def fit(
        self,
        model: Model,
        x: Given | GivenTensor,
        y: Given | GivenTensor,
        *,
        epochs: int = 1,
        batch: int = 32,
        shards: int = 1,
        rate: float | str = "2^-4",
        optimizer: Literal["sgd", "adam", "amsgrad"] = "sgd",
        momentum: float | None = None,
        weight_decay: float | str = 0.0,
        halve_every: int | None = None,
        loss: Literal["cross-entropy", "binary-cross-entropy", "hinge", "mse"] = "cross-entropy",
        only: Sequence[str] = (),
        keep: str | None = None,
        allow: Sequence[str] = (),
        batches: Sequence[int] | None = None,
        validation_data: tuple[Given | GivenTensor, Given | GivenTensor] | None = None,
        guard: bool = True,
        rehearse: int = 200,
        epsilon: float | None = None,
        delta: float = 1e-5,
        clip: float = 1.0,
        callbacks: Sequence[EpochEnd] = (),
        progress: Progress | Literal[True] | None = None,
        wait: bool = True,
    ) -> Training:
        """Train a model on shares, and have the parties keep it, as `megrez.Cluster.fit`.

        While it waits for the job it holds no connection. Cancelled, it leaves the job to the parties.
        """
        told = heard(callbacks, progress)
        training = await self._call(
            lambda one, _: one.fit(
                model,
                x,
                y,
                epochs=epochs,
                batch=batch,
                shards=shards,
                rate=rate,
                optimizer=optimizer,
                momentum=momentum,
                weight_decay=weight_decay,
                halve_every=halve_every,
                loss=loss,
                only=only,
                keep=keep,
                allow=allow,
                batches=batches,
                validation_data=validation_data,
                guard=guard,
                rehearse=rehearse,
                epsilon=epsilon,
                delta=delta,
                clip=clip,
                wait=False,
                **told,
            )
        )
        job = Training(self, training)
        return await job.wait() if wait else job

    async def fit_trees(
        self,
        x: Given | GivenTensor,
        y: Given | GivenTensor,
        *,
        objective: Literal["logistic", "squares"],
        trees: int = 20,
        depth: int = 4,
        rate: float = 0.3,
        penalty: float = 1.0,
        keep: str | None = None,
        allow: Sequence[str] = (),
        batches: Sequence[int] = (64,),
        callbacks: Sequence[EpochEnd] = (),
        progress: Progress | Literal[True] | None = None,
        wait: bool = True,
    ) -> Training:
        """Grow boosted trees on shares, as `megrez.Cluster.fit_trees`; it waits as `fit` does."""
        told = heard(callbacks, progress)
        training = await self._call(
            lambda one, _: one.fit_trees(
                x,
                y,
                objective=objective,
                trees=trees,
                depth=depth,
                rate=rate,
                penalty=penalty,
                keep=keep,
                allow=allow,
                batches=batches,
                wait=False,
                **told,
            )
        )
        job = Training(self, training)
        return await job.wait() if wait else job

    async def training(
        self,
        path: str | os.PathLike[str],
        *,
        callbacks: Sequence[EpochEnd] = (),
        progress: Progress | Literal[True] | None = None,
    ) -> Training:
        """Take up a training that `Training.save` has written, as `megrez.Cluster.training`."""
        told = heard(callbacks, progress)
        taken = await self._call(lambda one, _: one.training(path, **told))
        return Training(self, taken)

    async def stored(self) -> list[Stored]:
        """What the parties keep that this client owns or may use, as `megrez.Cluster.stored`."""
        return await self._call(lambda one, _: one.stored())

    async def allow(
        self,
        name: str,
        clients: Sequence[str],
        *,
        runs: int | None = None,
        rows: int | None = None,
        days: int | None = None,
        rules: str | os.PathLike[str] | None = None,
    ) -> None:
        """Say who may use a model or rows of this client, as `megrez.Cluster.allow`."""
        await self._call(
            lambda one, _: one.allow(name, clients, runs=runs, rows=rows, days=days, rules=rules)
        )

    async def remove(self, name: str) -> None:
        """Have the parties remove a model, or rows, of this client, as `megrez.Cluster.remove`."""
        await self._call(lambda one, _: one.remove(name))

    async def discard(self, material: str) -> None:
        """Have the parties remove unused correlated randomness, as `megrez.Cluster.discard`."""
        await self._call(lambda one, _: one.discard(material))

    async def check(self, model: Model, data: Given | GivenTensor) -> Check:
        """Compare every layer with the clear, as `megrez.Cluster.check`."""
        return await self._call(lambda one, _: one.check(model, data))

    async def parties(self) -> list[dict[str, Any]]:
        """What each party says of itself, as `megrez.Cluster.parties`."""
        return await self._call(lambda one, _: one.parties())

    async def close(self) -> None:
        """Refuse calls that wait, wait for those that run, then end connections and what `local` started."""
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._end)

    def _end(self) -> None:
        self._threads.shutdown()
        while self._idle:
            self._idle.pop().close()

    async def __aenter__(self) -> Self:
        # A wrong address or certificate shows here, not at the first request of somebody.
        try:
            await self._call(lambda *_: None)
        except BaseException:
            self._closed = True
            self._threads.shutdown(wait=False)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<megrez.aio.Cluster of {self.connections} connections, {state}>"


def local(
    *,
    protocol: str = "mizar",
    net: str = "loopback",
    parties: Literal["process", "thread"] = "process",
    device: str = "auto",
    insecure: bool = False,
    connections: int = 8,
) -> Cluster:
    """Start parties on this machine, for trying things out, as `megrez.local`.

    They start when the `async with` statement is entered, or with the first call.
    """
    first = threading.Lock()
    started: list[_cluster.Cluster] = []

    def make() -> _cluster.Cluster:
        # All connections are to the same parties.
        with first:
            if not started:
                options: dict[str, Any] = {"parties": parties, "device": device, "insecure": insecure}
                started.append(_cluster.local(protocol=protocol, net=net, **options))
        return started[0]

    return Cluster(make, connections)


def connect(
    config: str | os.PathLike[str],
    *,
    certs: str | os.PathLike[str] = "certs",
    client: str = "alice",
    protocol: str = "mizar",
    net: str = "loopback",
    insecure: bool = False,
    timeout: float | None = None,
    busy: float | None = None,
    replica: int | None = None,
    connections: int = 8,
) -> Cluster:
    """Connect to parties that run elsewhere, as `megrez.connect`.

    The first connection is made when the `async with` statement is entered, the others when calls need them.
    More `connections` than the sessions that parties run for one client, 8 by default, only move the waiting
    there. `timeout` bounds what a call takes at the parties; `asyncio.wait_for` bounds the waiting here as
    well.
    """
    return Cluster(
        lambda: _cluster.connect(
            config,
            certs=certs,
            client=client,
            protocol=protocol,
            net=net,
            insecure=insecure,
            timeout=timeout,
            busy=busy,
            replica=replica,
        ),
        connections,
    )


def connect_all(
    config: str | os.PathLike[str], *, attempts: int = 3, rest: float = 10.0, **options: Any
) -> Triples:
    """Connect to all replicas of a cluster as one: calls are spread over them, as `Triples` says.

    `options` are those of `connect`.
    """
    count = _native.replicas(config)
    clusters = [connect(config, replica=replica, **options) for replica in range(count)]
    return Triples(clusters, attempts=attempts, rest=rest)
