"""A cluster of services with certificates, as on three machines."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import megrez
import numpy as np
import pytest
from conftest import Array
from megrez._networks import perceptron
from megrez._supervised import write_triple


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "megrez", *arguments]


def start(folder: Path, party: int) -> subprocess.Popen[bytes]:
    """Start a party whose configuration lies in the folder, and wait until it listens."""
    service = subprocess.Popen(
        command("party", "--config", str(folder / f"party{party}.toml")), stderr=subprocess.PIPE
    )
    assert service.stderr is not None
    assert any(b"listens" in line for line in service.stderr)
    return service


@pytest.fixture(scope="module")
def services() -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes of the deployment, which end with the module."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for service in started:
        service.kill()
        service.communicate()


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, services: list[subprocess.Popen[bytes]]) -> Path:
    """Three services; the folder has cluster.toml and certs."""
    folder = tmp_path_factory.mktemp("deployment")
    write_triple(folder, ["alice", "bob", "carol"])
    services.extend(start(folder, party) for party in range(3))
    return folder


def connect(folder: Path, client: str) -> megrez.Cluster:
    return megrez.connect(folder / "cluster.toml", certs=folder / "certs", client=client)


def test_a_client_runs_its_own_model(deployment: Path, small: megrez.Model, images: Array) -> None:
    with connect(deployment, "alice") as cluster:
        assert cluster.client == "alice"
        assert [party["party"] for party in cluster.parties()] == [0, 1, 2]
        result = cluster.run(small, images[:3])
        assert np.abs(result.output - small.plain(images[:3])).max() < 5e-3
        assert cluster.check(small, images[:2]).max_error < 5e-3


def test_one_owns_the_model_and_another_the_data(
    deployment: Path, small: megrez.Model, images: Array
) -> None:
    with connect(deployment, "bob") as bob:
        bob.upload(small, name="digits", allow=["alice"])
    with connect(deployment, "alice") as alice:
        result = alice.run_stored("digits", images[:5], batch=2)
        assert np.abs(result.output - small.plain(images[:5])).max() < 5e-3
    with connect(deployment, "carol") as carol, pytest.raises(megrez.Error, match="no model `digits`"):
        carol.run_stored("digits", images[:2], batch=2)


def test_a_training_survives_a_party_and_its_client(
    deployment: Path, services: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    random = np.random.RandomState(0)
    rows = random.uniform(-1, 1, (64, 4)).astype(np.float32)
    kinds = (rows[:, 0] > 0).astype(np.int64)
    model = megrez.compile(perceptron([4, 2], None), batch=16)
    heard: list[int] = []
    with connect(deployment, "alice") as alice:
        training = alice.fit(
            model, rows, kinds, epochs=20, batch=16, rate=0.5, rehearse=2, progress=heard.append, wait=False
        )
        training.save(tmp_path / "training.json")
        while len(training.history["loss"]) < 2:
            training.look()
        assert 8 <= heard[-1] < 80
        assert training.seconds_left is not None
        assert training.seconds_left > 0
        services[1].kill()
        services[1].communicate()
        with pytest.raises(megrez.PeerLostError):
            training.wait()
    services[1] = start(deployment, 1)
    with connect(deployment, "alice") as alice:
        training = alice.training(tmp_path / "training.json")
        assert training.resume().wait().state == "done"
        losses = training.history["loss"]
        assert len(losses) == 20
        assert losses[-1] < losses[0] / 2
        assert (alice.run_stored(training.model, rows, batch=16).output.argmax(axis=1) == kinds).all()
        # A second handle finds nothing left to do, nor to clear away.
        assert alice.training(tmp_path / "training.json").resume().state == "done"
        alice.remove(training.model)
        with pytest.raises(megrez.NotPermittedError):
            alice.run_stored(training.model, rows, batch=16)


def test_mistakes(deployment: Path, tmp_path: Path) -> None:
    with pytest.raises(megrez.Error, match="nobody"):
        connect(deployment, "nobody")
    with pytest.raises(megrez.Error, match=r"cluster\.toml"):
        connect(tmp_path, "alice")
    (tmp_path / "cluster.toml").write_text('parties = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]')
    start = time.monotonic()
    with pytest.raises(megrez.Error, match="party 0"):
        megrez.connect(tmp_path / "cluster.toml", certs=deployment / "certs", client="alice")
    assert time.monotonic() - start < 15


def test_busy_parties_are_waited_for_no_longer_than_asked(
    small: megrez.Model, images: Array, tmp_path: Path
) -> None:
    for config in write_triple(tmp_path, ["alice", "bob"]):
        config.write_text(config.read_text() + "max_sessions = 1\n\n[capacity]\nturn_seconds = 1\n")
    parties = [start(tmp_path, party) for party in range(3)]
    try:
        with connect(tmp_path, "bob") as bob:
            begun = threading.Event()

            def long() -> None:
                # 180 runs of two images.
                bob.run(small, images[:360], progress=lambda _: begun.set())

            running = threading.Thread(target=long)
            running.start()
            assert begun.wait(60)
            cluster, certs = tmp_path / "cluster.toml", tmp_path / "certs"
            with megrez.connect(cluster, certs=certs, client="alice", busy=0) as alice:
                with pytest.raises(megrez.BusyError):
                    alice.run(small, images[:2])
                running.join()
                assert alice.run(small, images[:2]).output.shape == (2, 10)
    finally:
        for party in parties:
            party.kill()
            party.communicate()
