"""The client for asyncio, and batches of several callers."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import megrez
import megrez.aio
import numpy as np
import pytest
from conftest import Array, connect, run
from megrez._native import InvalidError, OutOfRangeError, PeerLostError


@pytest.mark.parametrize("kind", ["Cluster", "Training", "connect", "local"])
def test_signatures_are_those_of_the_other_client(kind: str) -> None:
    """What differs is `connections` alone, and that methods are awaited."""

    def parameters(of: Any) -> list[Any]:
        return [p for p in inspect.signature(of).parameters.values() if p.name != "connections"]

    here, there = getattr(megrez.aio, kind), getattr(megrez, kind)
    if not inspect.isclass(here):
        assert parameters(here) == parameters(there)
        return
    methods = [name for name, value in vars(there).items() if inspect.isfunction(value) and name[0] != "_"]
    left_out = {"plot"} if kind == "Training" else set()
    assert methods
    for name in set(methods) - left_out:
        method = getattr(here, name)
        assert inspect.iscoroutinefunction(method) or name == "save", name
        assert parameters(method) == parameters(getattr(there, name)), name


def test_calls_share_connections(deployment: Path, stored: str, small: megrez.Model, images: Array) -> None:
    made: list[megrez.Cluster] = []

    async def test() -> None:
        async with connect(deployment, connections=3) as cluster:
            make = cluster._make
            cluster._make = lambda: made.append(make()) or made[-1]  # type: ignore[func-returns-value]
            calls = [cluster.run_stored(stored, images[i : i + 2], batch=2) for i in range(12)]
            results, parties = await asyncio.gather(asyncio.gather(*calls), cluster.parties())
            assert [party["party"] for party in parties] == [0, 1, 2]
            for i, result in enumerate(results):
                assert np.abs(result.output - small.plain(images[i : i + 2])).max() < 5e-3
            own = await cluster.run(small, images[:3])
            assert np.abs(own.output - small.plain(images[:3])).max() < 5e-3
            assert own.report.rounds() > 0
        # One was made when the statement was entered.
        assert len(made) <= 2
        with pytest.raises(InvalidError, match="closed"):
            await cluster.parties()

    run(test)


def test_calls_wait_in_order_and_waiting_ones_can_be_cancelled(deployment: Path) -> None:
    order: list[int] = []

    async def test() -> None:
        gate = threading.Event()
        async with connect(deployment, connections=1) as cluster:

            def call(i: int) -> Callable[..., None]:
                return lambda *_: order.append(i)

            first = asyncio.create_task(cluster._call(lambda *_: gate.wait()))
            await asyncio.sleep(0.05)
            tasks = [asyncio.create_task(cluster._call(call(i))) for i in range(6)]
            await asyncio.sleep(0.05)
            tasks[3].cancel()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(cluster._call(call(99)), 0.05)
            assert order == []
            gate.set()
            assert await first
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(done[3], asyncio.CancelledError)
            assert await cluster.parties()

    run(test)
    assert order == [0, 1, 2, 4, 5]


def test_a_cancelled_run_leaves_the_cluster_as_it_was(
    deployment: Path, small: megrez.Model, images: Array
) -> None:
    heard: list[int] = []

    async def test() -> None:
        async with connect(deployment, connections=2) as cluster:
            begin = time.monotonic()
            # 180 runs: many seconds, if they were not given up.
            long = asyncio.create_task(cluster.run(small, images[:360], progress=heard.append))
            while len(heard) < 2:
                await asyncio.sleep(0.01)
            long.cancel()
            with pytest.raises(asyncio.CancelledError):
                await long
            single = asyncio.create_task(cluster.run(small, images[:2]))
            await asyncio.sleep(0.01)
            single.cancel()
            results = await asyncio.gather(*(cluster.run(small, images[i : i + 2]) for i in range(4)))
            for i, result in enumerate(results):
                assert np.abs(result.output - small.plain(images[i : i + 2])).max() < 5e-3
        # The statement's end waits for what runs: it was given up.
        assert time.monotonic() - begin < 10
        assert heard == sorted(heard)
        assert heard[-1] < 100

    run(test)


def test_errors_are_those_of_the_other_client(
    deployment: Path, small: megrez.Model, images: Array, tmp_path: Path
) -> None:
    async def test() -> None:
        async with connect(deployment, connections=1) as cluster:
            with pytest.raises(OutOfRangeError):
                await cluster.run(small, images[:2] * 2)
            with pytest.raises(megrez.NotPermittedError):
                await cluster.run_stored("nobody-has-this", images[:1])
            assert (await cluster.run(small, images[:2])).output.shape == (2, 10)
        with pytest.raises(megrez.Error, match="nobody"):
            async with connect(deployment, client="nobody"):
                pass
        (tmp_path / "cluster.toml").write_text('parties = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]')
        with pytest.raises(PeerLostError, match="party 0"):
            async with megrez.aio.connect(tmp_path / "cluster.toml", certs=deployment / "certs"):
                pass
        with pytest.raises(InvalidError, match="connection"):
            connect(deployment, connections=0)

    run(test)


def test_closing_refuses_what_waits_and_waits_for_what_runs(deployment: Path) -> None:
    async def test() -> None:
        gate = threading.Event()
        cluster = connect(deployment, connections=1)
        running = asyncio.create_task(cluster._call(lambda *_: gate.wait()))
        await asyncio.sleep(0.3)
        waiting = asyncio.create_task(cluster.parties())
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(cluster.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        gate.set()
        assert await running
        with pytest.raises(InvalidError, match="closed before"):
            await waiting
        await closing

    run(test)


def test_a_local_cluster_trains() -> None:
    from megrez._networks import perceptron

    random = np.random.RandomState(0)
    rows = random.uniform(-1, 1, (32, 4)).astype(np.float32)
    kinds = (rows[:, 0] > 0).astype(np.int64)
    losses: list[tuple[int, float]] = []
    loop_thread: list[bool] = []

    async def test() -> None:
        here = threading.get_ident()
        model = megrez.compile(perceptron([4, 2], None), batch=16)

        def told(epoch: int, loss: float) -> None:
            losses.append((epoch, loss))
            loop_thread.append(threading.get_ident() == here)

        async with megrez.aio.local(connections=2) as cluster:
            training = await cluster.fit(
                model, rows, kinds, epochs=3, batch=16, rate=0.5, rehearse=2, callbacks=[told]
            )
            assert training.state == "done"
            assert training.history["loss"] == [loss for _, loss in losses]
            asked = await cluster.run_stored(training.model, rows, batch=16)
            assert asked.output.shape == (32, 2)
            await cluster.remove(training.model)

    run(test)
    assert [epoch for epoch, _ in losses] == [0, 1, 2]
    assert all(loop_thread)
