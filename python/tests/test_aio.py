"""The client for asyncio, and batches of several callers."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import megrez
import megrez.aio
import numpy as np
import pytest
from conftest import Array
from megrez._native import BusyError, InvalidError, OutOfRangeError, PeerLostError
from megrez._supervised import Supervised, write_triple
from models import model, node

T = TypeVar("T")


def run(test: Callable[[], Awaitable[T]]) -> T:
    """Run a test in an event loop of its own, which must not hang."""

    async def bounded() -> T:
        return await asyncio.wait_for(test(), 120)

    return asyncio.run(bounded())


def connect(folder: Path, **options: Any) -> megrez.aio.Cluster:
    return megrez.aio.connect(folder / "cluster.toml", certs=folder / "certs", **options)


@pytest.fixture(scope="module")
def stored(deployment: Path, small: megrez.Model) -> str:
    """LeNet at the parties, for alice in batches of 1, 2, 4, 8 and 16."""
    with megrez.connect(deployment / "cluster.toml", certs=deployment / "certs", client="bob") as bob:
        bob.upload(small, name="aio-lenet", allow=["alice"], batches=[1, 2, 4, 8, 16])
    return "aio-lenet"


@pytest.fixture(scope="module")
def adds(deployment: Path) -> str:
    """A model at the parties whose rows mix: every row of the output is the sum of all."""
    nodes = [
        node("MatMul", ["x", "w"], "own"),
        node("ReduceSum", ["own", "axes"], "total", keepdims=1),
        node("Add", ["own", "total"], "y"),
    ]
    weights: dict[str, Any] = {"w": np.eye(2, dtype=np.float32), "axes": np.array([0], dtype=np.int64)}
    source = model(nodes, {"x": ["n", 2]}, "y", **weights)
    compiled = megrez.compile(source, batch=4)
    with megrez.connect(deployment / "cluster.toml", certs=deployment / "certs") as alice:
        alice.upload(compiled, name="aio-adds", allow=["alice"], batches=[1, 4])
    return "aio-adds"


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
        (tmp_path / "cluster.toml").write_text('parties = ["127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1"]')
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


def count_runs(cluster: megrez.aio.Cluster) -> list[tuple[int, int | None]]:
    """Rows and batch size of each stored run from now on."""
    seen: list[tuple[int, int | None]] = []
    before = cluster.run_stored

    async def counted(name: str, data: Any, *, batch: int | None = None, **options: Any) -> Any:
        seen.append((len(data), batch))
        return await before(name, data, batch=batch, **options)

    cluster.run_stored = counted  # type: ignore[method-assign]
    return seen


def test_callers_of_one_batch_get_their_own_rows(
    deployment: Path, stored: str, small: megrez.Model, images: Array
) -> None:
    plain = small.plain(images[:20])

    async def test() -> None:
        async with connect(deployment) as cluster:
            seen = count_runs(cluster)
            async with megrez.aio.Batcher(cluster, stored, batches=[1, 4, 8], wait=0.05, runs=1) as batcher:
                results = await asyncio.gather(*(batcher.run(images[i : i + 1]) for i in range(17)))
                for i, result in enumerate(results):
                    assert result.output.shape == (1, 10)
                    assert np.abs(result.output - plain[i : i + 1]).max() < 5e-3
                assert seen == [(7, 8), (7, 8), (3, 4)]
                # One caller alone has the smallest size, and a whole batch if it brings one.
                assert (await batcher.run(images[:1])).output.shape == (1, 10)
                assert (await batcher.run(images[:8])).output.shape == (8, 10)
                assert seen[3:] == [(1, 1), (8, 8)]
                mixed = await asyncio.gather(batcher.run(images[:3]), batcher.run(images[3:6]))
                assert [r.output.shape for r in mixed] == [(3, 10), (3, 10)]
                assert np.abs(mixed[1].output - plain[3:6]).max() < 5e-3
                assert seen[5:] == [(6, 8)]
            async with megrez.aio.Batcher(cluster, stored, batches=[1, 4, 16], runs=1) as batcher:
                # Five in a run of sixteen would be more filling than rows.
                pairs = await asyncio.gather(*(batcher.run(images[i : i + 1]) for i in range(5)))
                assert np.abs(pairs[4].output - plain[4:5]).max() < 5e-3
                assert seen[6:] == [(3, 4), (2, 4)]

    run(test)


def test_a_compiled_model_is_batched_too(small: megrez.Model, lenet: megrez.Model, images: Array) -> None:
    async def test() -> None:
        async with megrez.aio.local(parties="thread") as cluster:
            async with megrez.aio.Batcher(cluster, lenet, wait=0.2) as batcher:
                results = await asyncio.gather(*(batcher.run({"input": images[i : i + 1]}) for i in range(3)))
            plain = lenet.plain(images[:3])
            for i, result in enumerate(results):
                assert np.abs(result.output - plain[i : i + 1]).max() < 5e-3
                assert result.report.rounds() == results[0].report.rounds()
            with pytest.raises(InvalidError, match="one batch size"):
                megrez.aio.Batcher(cluster, small, batches=[1])
            with pytest.raises(InvalidError, match="sizes"):
                megrez.aio.Batcher(cluster, "stored")

    run(test)


def test_bad_data_is_refused_to_its_caller_alone(
    deployment: Path, stored: str, small: megrez.Model, images: Array
) -> None:
    async def test() -> None:
        async with (
            connect(deployment) as cluster,
            megrez.aio.Batcher(cluster, stored, batches=[8]) as batcher,
        ):
            seen = count_runs(cluster)
            given = [images[i : i + 1] for i in range(7)]
            given[4] = given[4] * 3
            results = await asyncio.gather(*map(batcher.run, given), return_exceptions=True)
            for i, result in enumerate(results):
                if i == 4:
                    assert isinstance(result, OutOfRangeError)
                else:
                    assert not isinstance(result, BaseException)
                    assert np.abs(result.output - small.plain(images[i : i + 1])).max() < 5e-3
            # All, then by halves: three runs have taken place, and those with the bad row were not begun.
            assert [rows for rows, _ in seen] == [7, 3, 4, 2, 1, 1, 2]
            flat = await asyncio.gather(
                batcher.run(images[:1]), batcher.run(images[:1].reshape(1, -1)), return_exceptions=True
            )
            assert not isinstance(flat[0], BaseException)
            assert isinstance(flat[1], InvalidError)
            for bad in (images[0, 0, 0, 0], images[:0], images[:9]):
                with pytest.raises(InvalidError, match="first dimension"):
                    await batcher.run(bad)

    run(test)


def test_models_that_mix_rows_are_not_run_for_several_callers(deployment: Path, adds: str) -> None:
    rows = np.array([[0.25, 0.5], [0.125, -0.5], [0.5, 0.5], [-0.25, 0.0]], dtype=np.float32)

    async def test() -> None:
        async with connect(deployment) as cluster:
            # By itself a whole batch is right: all rows are one caller's.
            async with megrez.aio.Batcher(cluster, adds, batches=[4]) as batcher:
                whole = (await batcher.run(rows)).output
                assert np.abs(whole - (rows + rows.sum(axis=0))).max() < 1e-3
                calls = [batcher.run(rows[i : i + 1]) for i in range(4)]
                for refused in await asyncio.gather(*calls, return_exceptions=True):
                    assert isinstance(refused, InvalidError)
                    assert "input by input" in str(refused)
                # Two callers of two rows each would fill a run, which would not be refused.
                pairs = [batcher.run(rows[:2]), batcher.run(rows[2:])]
                for refused in await asyncio.gather(*pairs, return_exceptions=True):
                    assert isinstance(refused, InvalidError)
            sums = model(
                [node("MatMul", ["x", "w"], "own"), node("ReduceSum", ["own"], "y", keepdims=0)],
                {"x": ["n", 2]},
                "y",
                w=np.eye(2, dtype=np.float32),
            )
            async with megrez.aio.Batcher(cluster, megrez.compile(sums, batch=4)) as batcher:
                assert abs(float((await batcher.run(rows)).output) - rows.sum()) < 1e-3
                refused = (
                    await asyncio.gather(*map(batcher.run, (rows[:2], rows[2:])), return_exceptions=True)
                )[1]
                assert isinstance(refused, InvalidError)
            async with megrez.aio.Batcher(cluster, adds, batches=[1, 4]) as batcher:
                alone = await asyncio.gather(*(batcher.run(rows[i : i + 1]) for i in range(4)))
                for i, result in enumerate(alone):
                    assert np.abs(result.output - 2 * rows[i : i + 1]).max() < 1e-3

    run(test)


def test_a_caller_who_goes_away_leaves_the_others(
    deployment: Path, stored: str, small: megrez.Model, images: Array
) -> None:
    async def test() -> None:
        async with (
            connect(deployment) as cluster,
            megrez.aio.Batcher(cluster, stored, batches=[8]) as batcher,
        ):
            seen = count_runs(cluster)
            calls = [asyncio.create_task(batcher.run(images[i : i + 1])) for i in range(7)]
            while not seen:
                await asyncio.sleep(0.001)
            calls[2].cancel()
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(answers.pop(2), asyncio.CancelledError)
            for i, answer in zip([0, 1, 3, 4, 5, 6], answers, strict=True):
                assert not isinstance(answer, BaseException)
                assert np.abs(answer.output - small.plain(images[i : i + 1])).max() < 5e-3
            assert seen == [(7, 8)]

    run(test)


def test_other_errors_reach_every_caller_and_a_full_queue_is_told(images: Array) -> None:
    class Broken:
        """A cluster that loses a party whenever it runs something."""

        calls = 0

        async def run_stored(self, name: str, data: Any, *, batch: int) -> Any:
            self.calls += 1
            await asyncio.sleep(0.05)
            raise PeerLostError(f"{name}: party 2 left the session, {len(data)} of {batch}")

    async def test() -> None:
        broken = Broken()
        batcher = megrez.aio.Batcher(broken, "m", batches=[8], wait=0.01, runs=1, waiting=10)  # type: ignore[arg-type]
        calls = [asyncio.create_task(batcher.run(images[i : i + 1])) for i in range(7)]
        await asyncio.sleep(0.02)
        more = [asyncio.create_task(batcher.run(images[:5])) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="10 rows wait"):
            await batcher.run(images[:1])
        more[0].cancel()
        await asyncio.sleep(0)
        last = asyncio.create_task(batcher.run(images[:1]))
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(error, PeerLostError) and "7 of 8" in str(error) for error in errors)
        assert len({id(error) for error in errors}) == 7
        await batcher.close()
        assert "6 of 8" in str(more[1].exception())
        assert "6 of 8" in str(last.exception())
        assert broken.calls == 2
        with pytest.raises(InvalidError, match="closed"):
            await batcher.run(images[:1])

    run(test)


class Ends:
    """A cluster whose calls end as they are told."""

    def __init__(self, *ends: Exception | None) -> None:
        self.ends, self.calls, self.closed = list(ends), 0, False

    async def parties(self) -> list[dict[str, Any]]:
        """Succeed or fail."""
        self.calls += 1
        end = self.ends.pop(0) if self.ends else None
        if end is not None:
            raise end
        return []

    async def close(self) -> None:
        """Note it."""
        self.closed = True


def triples(*clusters: Ends, **options: Any) -> megrez.aio.Triples:
    return megrez.aio.Triples(list(clusters), **options)  # type: ignore[arg-type]


def test_calls_go_on_to_another_triple_if_their_error_says_so() -> None:
    lost = PeerLostError("party 1 left")

    async def test() -> None:
        first, second = Ends(lost), Ends()
        both = triples(first, second)
        await both.parties()
        assert (first.calls, second.calls) == (1, 1)
        # The first is left alone for now.
        await both.parties()
        assert (first.calls, second.calls) == (1, 2)
        for kind in (InvalidError, OutOfRangeError, megrez.NotPermittedError, megrez.InternalError):
            first, second = Ends(kind("no")), Ends()
            with pytest.raises(kind):
                await triples(first, second).parties()
            assert (first.calls, second.calls) == (1, 0)
        first, second = Ends(*[lost] * 9), Ends(*[BusyError("busy")] * 9)
        with pytest.raises(PeerLostError):
            await triples(first, second).parties()
        assert first.calls + second.calls == 3
        # Whoever starts needs one that is well, and is told of mistakes.
        async with triples(Ends(lost), Ends()):
            pass
        first, second = Ends(megrez.NotPermittedError("who is this?")), Ends()
        with pytest.raises(megrez.NotPermittedError):
            await triples(first, second).__aenter__()
        assert (first.closed, second.closed) == (True, True)
        with pytest.raises(PeerLostError):
            await triples(Ends(lost), Ends(lost)).__aenter__()

    run(test)


def test_a_triple_that_is_drained_under_load_loses_no_call(
    deployment: Path, stored: str, small: megrez.Model, images: Array, tmp_path: Path
) -> None:
    parties = [Supervised(config) for config in write_triple(tmp_path, ["alice", "bob"])]
    for party in parties:
        party.wait()
    with megrez.connect(tmp_path / "cluster.toml", certs=tmp_path / "certs", client="bob") as bob:
        bob.upload(small, name=stored, allow=["alice"], batches=[2])
    plain = small.plain(images[:10])

    def begun(folder: Path) -> int:
        return (folder / "data0" / "audit.jsonl").read_text().count('"began"')

    async def test() -> None:
        before = begun(deployment), begun(tmp_path)
        stopped = asyncio.Event()
        done = 0
        async with megrez.aio.Triples([connect(deployment), connect(tmp_path)]) as both:

            async def caller(i: int) -> None:
                nonlocal done
                left = 3
                while left > 0:
                    left -= stopped.is_set()
                    result = await both.run_stored(stored, images[i : i + 2])
                    assert np.abs(result.output - plain[i : i + 2]).max() < 5e-3
                    done += 1

            callers = [asyncio.create_task(caller(i)) for i in range(8)]
            while begun(tmp_path) < before[1] + 5:
                await asyncio.sleep(0.005)
            await asyncio.gather(*(asyncio.to_thread(party.stop) for party in parties))
            stopped.set()
            there = begun(tmp_path) - before[1]
            await asyncio.gather(*callers)
        # Both had their part, and what the one no longer took went to the other.
        assert begun(tmp_path) - before[1] == there >= 5
        assert begun(deployment) - before[0] >= done - there
        assert begun(deployment) - before[0] >= 24

    run(test)
