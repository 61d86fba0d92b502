"""Calls that are spread over several triples of parties."""

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
from megrez._supervised import Supervised, write_triple


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
        # A triple that has just failed gets no call for a while.
        await both.parties()
        assert (first.calls, second.calls) == (1, 2)
        for kind in (InvalidError, OutOfRangeError, megrez.NotPermittedError, megrez.UnsupportedError):
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


def test_replicas_of_one_file_are_triples_that_share_their_models(
    small: megrez.Model, images: Array, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    configs = [write_triple(folder, ["alice", "bob"]) for folder in folders]
    first, second = ((folder / "cluster.toml").read_text().split("=")[1].strip() for folder in folders)
    cluster, certs = folders[0] / "cluster.toml", folders[0] / "certs"
    cluster.write_text(f"parties = {first}\nreplicas = [{second}]\n")
    for replica, of_replica in enumerate(configs):
        for number, config in enumerate(of_replica):
            text = config.read_text().replace('"cluster.toml"', f'"{cluster}"')
            models = tmp_path / f"models{number}"
            text = text.replace('certs = "certs"', f'certs = "{certs}"')
            config.write_text(f'{text}replica = {replica}\nmodels = "{models}"\n')
    parties = [Supervised(config) for of_replica in configs for config in of_replica]
    for party in parties:
        party.wait()
    with megrez.connect(cluster, certs=certs, client="bob", replica=1) as bob:
        bob.upload(small, name="shared", allow=["alice"], batches=[2])

    async def test() -> None:
        async with megrez.aio.connect_all(cluster, certs=certs, client="alice") as both:
            calls = [both.run_stored("shared", images[:2]) for _ in range(6)]
            for result in await asyncio.gather(*calls):
                assert np.abs(result.output - small.plain(images[:2])).max() < 5e-3

    run(test)
    for folder in folders:
        assert (folder / "data0" / "audit.jsonl").read_text().count('"began"') >= 2, folder
    with pytest.raises(InvalidError, match="no replica 2"):
        megrez.connect(cluster, certs=certs, replica=2)
    for party in parties:
        party.stop(timeout=5)
