"""A cluster of services with certificates, as on three machines."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import megrez
import numpy as np
import pytest
from conftest import Array


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "megrez", *arguments]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three services; the folder has cluster.toml and certs."""
    folder = tmp_path_factory.mktemp("deployment")
    certs = ["certs", "--folder", str(folder / "certs"), "--clients", "alice,bob,carol"]
    subprocess.run(command(*certs), check=True, stdout=subprocess.DEVNULL)
    sockets = [socket.socket() for _ in range(3)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    (folder / "cluster.toml").write_text(f"parties = {addresses!r}".replace("'", '"'))
    services = []
    for party, address in enumerate(addresses):
        config = folder / f"party{party}.toml"
        config.write_text(
            f'party = {party}\nlisten = "{address}"\ncluster = "cluster.toml"\ncerts = "certs"\n'
            f'data = "data{party}"\n'
        )
        services.append(subprocess.Popen(command("party", "--config", str(config)), stderr=subprocess.PIPE))
    for service in services:
        assert service.stderr is not None
        assert b"listens" in service.stderr.readline()
    yield folder
    for service in services:
        service.kill()
        service.communicate()


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


def test_mistakes(deployment: Path, tmp_path: Path) -> None:
    with pytest.raises(megrez.Error, match="nobody"):
        connect(deployment, "nobody")
    with pytest.raises(megrez.Error, match=r"cluster\.toml"):
        connect(tmp_path, "alice")
    (tmp_path / "cluster.toml").write_text('parties = ["127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1"]')
    start = time.monotonic()
    with pytest.raises(megrez.Error, match="party 0"):
        megrez.connect(tmp_path / "cluster.toml", certs=deployment / "certs", client="alice")
    assert time.monotonic() - start < 15
