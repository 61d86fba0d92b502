"""Batches of several callers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import megrez
import megrez.aio
import numpy as np
import pytest
from conftest import Array, connect, run
from megrez._native import BusyError, InvalidError, OutOfRangeError, PeerLostError
from models import model, node


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
            async with megrez.aio.Batcher(cluster, stored, batches=[1, 4, 16], wait=0.05, runs=1) as batcher:
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
