"""Two triples under Ray on this machine, and a data set mapped over them."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import megrez
import megrez.ray
import numpy as np
import pytest
from conftest import DIGITS, Array
from megrez._supervised import write_triple
from megrez.ray import MAY_BE_RETRIED, Replicas, Runner, Spread, Triple


def test_work_is_spread_evenly_and_leaves_triples_that_fail() -> None:
    now = [100.0]
    spread = Spread(2, rest=10.0, clock=lambda: now[0])
    assert [spread.place(w) for w in "abcd"] == [0, 1, 0, 1]
    # Whoever asks again stays.
    assert [spread.place(w) for w in "abcd"] == [0, 1, 0, 1]
    assert spread.place("a", failed=0) == 1
    assert spread.place("c") == 1
    # Triple 1 fails as well: the one whose rest ends first.
    now[0] += 4
    assert spread.place("b", failed=1) == 0
    now[0] += 20
    assert sorted(spread.place(w) for w in "abcd") == [0, 0, 1, 1]
    # Workers that are gone do not count.
    now[0] += 700
    assert sorted(spread.place(w) for w in "xy") == [0, 1]
    with pytest.raises(megrez.InvalidError):
        Spread(0)


class Flaky:
    """A cluster whose runs end as they are told."""

    def __init__(self, ends: list[Exception | None]) -> None:
        self.ends, self.calls, self.closed = ends, 0, 0

    def run_stored(self, _: str, data: Any, *, batch: int) -> Any:
        """Give rows plus the batch size, or fail."""
        self.calls += 1
        end = self.ends.pop(0)
        if end is not None:
            raise end
        return megrez.Result({"y": data + batch}, None)  # type: ignore[arg-type]

    def close(self) -> None:
        """Count it."""
        self.closed += 1


def runner(
    monkeypatch: pytest.MonkeyPatch, *ends: list[Exception | None], **options: Any
) -> tuple[Runner, Any]:
    clusters = [Flaky(end) for end in ends]
    monkeypatch.setattr(Triple, "connect", lambda triple: clusters[int(triple.config)])
    monkeypatch.setattr(time, "sleep", lambda _: None)
    made = Runner([Triple(str(k)) for k in range(len(ends))], "m", inputs="x", batch=4, **options)
    return made, clusters


@pytest.mark.parametrize("kind", MAY_BE_RETRIED)
def test_what_may_be_retried_goes_elsewhere(monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    run, (first, second) = runner(monkeypatch, [kind("gone"), None], [None])
    rows = {"x": np.ones(3), "id": np.arange(3)}
    done = run(rows)
    assert (done["y"] == 5).all()
    assert (done["id"] == rows["id"]).all()
    assert (first.calls, first.closed, second.calls) == (1, 1, 1)


def test_retries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[Exception | None] = [megrez.PeerLostError("gone") for _ in range(9)]
    run, clusters = runner(monkeypatch, gone[:4], gone[4:], attempts=3)
    with pytest.raises(megrez.PeerLostError):
        run({"x": np.ones(3)})
    assert sum(cluster.calls for cluster in clusters) == 3
    # One triple alone is tried again as well.
    run, (only,) = runner(monkeypatch, [megrez.BusyError("busy"), None])
    assert (run({"x": np.ones(3)})["y"] == 5).all()
    assert only.calls == 2


@pytest.mark.parametrize(
    "kind", [megrez.InvalidError, megrez.OutOfRangeError, megrez.NotPermittedError, megrez.UnsupportedError]
)
def test_other_errors_are_not_retried(monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    run, (first, second) = runner(monkeypatch, [kind("no")], [None])
    with pytest.raises(kind):
        run({"x": np.ones(3)})
    assert (first.calls, second.calls) == (1, 0)


def test_columns_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = runner(monkeypatch, [None])
    with pytest.raises(megrez.InvalidError, match="no columns"):
        run({"z": np.ones(3)})
    with pytest.raises(megrez.InvalidError, match="rename"):
        run({"x": np.ones(3), "y": np.ones(3)})


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Ray on this machine."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'ray[data]'")
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100_000_000,
        configure_logging=False,
    )
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def triples(ray: Any, small: megrez.Model) -> Iterator[tuple[Replicas, list[Triple]]]:
    """Two triples that both have a model."""
    assert ray.is_initialized()
    replicas, triples = megrez.ray.local(2)
    for triple in triples:
        with triple.connect() as cluster:
            cluster.upload(small, name="digits", allow=[], batches=[10])
    yield replicas, triples
    replicas.stop(timeout=5)


def until(what: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for something."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def began(triple: Triple) -> int:
    """Runs that party 0 of a triple has begun."""
    log = Path(triple.config).parent / "data0" / "audit.jsonl"
    return sum('"began"' in line for line in log.read_text().splitlines())


def test_a_data_set_is_mapped_over_triples(
    ray: Any, triples: tuple[Replicas, list[Triple]], small: megrez.Model, images: Array
) -> None:
    _, where = triples
    before = [began(triple) for triple in where]
    rows = ray.data.from_items([{"id": i, "image": images[i]} for i in range(240)]).repartition(24)
    mapped = megrez.ray.map_batches(rows, where, "digits", inputs="image", batch=10).take_all()
    mapped.sort(key=lambda row: int(row["id"]))
    scores = np.stack([row["logits"] for row in mapped])
    assert np.abs(scores - small.plain(images[:240])).max() < 5e-3
    both = [began(triple) - b for triple, b in zip(where, before, strict=True)]
    assert sum(both) == 24
    assert min(both) >= 1


def test_a_party_that_dies_is_started_again_and_rows_go_elsewhere(
    ray: Any, triples: tuple[Replicas, list[Triple]], small: megrez.Model, images: Array
) -> None:
    replicas, where = triples
    health = replicas.health()
    assert [(party["replica"], party["state"]) for party in health] == [
        (k, "serving") for k in (0, 0, 0, 1, 1, 1)
    ]
    victim = health[4]
    begun = began(where[1])
    at: list[float] = []

    def kill() -> None:
        until(lambda: began(where[1]) >= begun + 2)
        os.kill(victim["pid"], signal.SIGKILL)
        at.append(time.monotonic())

    killer = threading.Thread(target=kill)
    killer.start()
    compiled = functools.partial(megrez.compile, DIGITS / "lenet.onnx", batch=10)
    rows = ray.data.from_items([{"id": i, "image": images[i]} for i in range(300)]).repartition(30)
    mapped = megrez.ray.map_batches(rows, where, compiled, inputs={"input": "image"}, batch=10).take_all()
    done = time.monotonic()
    killer.join()
    # There was work left when it died.
    assert done > at[0]
    assert began(where[1]) < begun + 28
    mapped.sort(key=lambda row: int(row["id"]))
    scores = np.stack([row["logits"] for row in mapped])
    assert np.abs(scores - small.plain(images[:300])).max() < 5e-3
    until(lambda: replicas.health()[4].get("restarts") == 1)
    replicas.wait()
    after = replicas.health()[4]
    assert (after["state"], after["exit_code"]) == ("serving", -signal.SIGKILL)
    assert after["pid"] != victim["pid"]
    with where[1].connect() as cluster:
        assert cluster.run(small, images[:2]).output.shape == (2, 10)


def test_an_actor_that_dies_takes_its_parties_with_it_and_comes_back(
    ray: Any, triples: tuple[Replicas, list[Triple]], small: megrez.Model, images: Array
) -> None:
    replicas, where = triples
    before = [party["pid"] for party in replicas.health() if party["replica"] == 0]
    ray.kill(replicas._actors[0], no_restart=False)
    until(lambda: not any(alive(pid) for pid in before))

    def back() -> bool:
        now = [party for party in replicas.health() if party["replica"] == 0]
        return len(now) == 3 and all(party["state"] == "serving" for party in now)

    until(back)
    with where[0].connect() as cluster:
        assert (
            np.abs(cluster.run_stored("digits", images[:3], batch=10).output - small.plain(images[:3])).max()
            < 5e-3
        )


def alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_a_triple_that_is_drained_loses_nothing(
    ray: Any, triples: tuple[Replicas, list[Triple]], small: megrez.Model, images: Array
) -> None:
    # The last test: the second triple does not come back.
    replicas, where = triples
    begun = began(where[1])

    def stop() -> None:
        until(lambda: began(where[1]) >= begun + 2)
        replicas.stop(1)

    stopper = threading.Thread(target=stop)
    stopper.start()
    rows = ray.data.from_items([{"id": i, "image": images[i]} for i in range(300)]).repartition(30)
    mapped = megrez.ray.map_batches(rows, where, "digits", inputs="image", batch=10).take_all()
    stopper.join()
    assert began(where[1]) < begun + 28
    mapped.sort(key=lambda row: int(row["id"]))
    assert np.abs(np.stack([row["logits"] for row in mapped]) - small.plain(images[:300])).max() < 5e-3
    assert [party["state"] for party in replicas.health()] == ["serving"] * 3 + ["lost"]
    # What is wrong with the data is said at once, and by its name.
    bad = ray.data.from_items([{"image": images[0] * 3}])
    with pytest.raises(Exception, match="outside the declared range"):
        megrez.ray.map_batches(bad, where, "digits", inputs="image", batch=10).take_all()


def test_three_organisations_make_a_triple(
    ray: Any, tmp_path: Path, small: megrez.Model, images: Array
) -> None:
    """One actor for each party, which another program finds by name."""
    files = write_triple(tmp_path, ["alice"])
    address = ray.util.get_node_ip_address()
    organisations = [
        megrez.ray.serve([file], nodes=[address], name=f"organisation{k}", cpus=0.1)
        for k, file in enumerate(files)
    ]
    try:
        with Triple(str(tmp_path / "cluster.toml"), str(tmp_path / "certs")).connect() as cluster:
            output = cluster.run(small, images[:2]).output
            assert np.abs(output - small.plain(images[:2])).max() < 5e-3
        script = (
            "import sys, ray, megrez.ray; ray.init(address=sys.argv[1], log_to_driver=False);"
            "print([party['state'] for party in megrez.ray.find('organisation1').health()])"
        )
        gcs = ray.get_runtime_context().gcs_address
        other = subprocess.run(
            [sys.executable, "-c", script, gcs], capture_output=True, text=True, check=True
        )
        assert "['serving']" in other.stdout
        found = megrez.ray.find("organisation2")
        assert len(found) == 1
        before = found.health()[0]
        found.reload()
        assert found.health()[0]["pid"] == before["pid"]
    finally:
        for replicas in organisations:
            replicas.stop(timeout=5)
    with pytest.raises(megrez.InvalidError, match="no parties"):
        megrez.ray.find("organisation1")


def test_parties_that_cannot_be_started(ray: Any, tmp_path: Path) -> None:
    with pytest.raises(megrez.InvalidError, match="nodes"):
        megrez.ray.serve(["party0.toml"], nodes=[])
    (tmp_path / "wrong.toml").write_text("party = 0\n")
    with pytest.raises(megrez.InvalidError, match="cannot start"):
        megrez.ray.serve([tmp_path / "wrong.toml"], cpus=0.1)
    assert ray.is_initialized()
