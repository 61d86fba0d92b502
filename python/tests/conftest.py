"""What the tests share: the digits, and parties of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import megrez
import megrez.aio
import numpy as np
import numpy.typing as npt
import pytest
from megrez._supervised import Supervised, write_triple

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"

Array = npt.NDArray[Any]
T = TypeVar("T")


@pytest.fixture(scope="session")
def images() -> Array:
    """All held-out images."""
    array: Array = np.load(DIGITS / "test_images.npy")
    return array


@pytest.fixture(scope="session")
def labels() -> Array:
    """Their labels."""
    array: Array = np.load(DIGITS / "test_labels.npy")
    return array


@pytest.fixture(scope="session")
def lenet() -> megrez.Model:
    """LeNet in batches of 60."""
    return megrez.compile(DIGITS / "lenet.onnx", batch=60)


@pytest.fixture(scope="session")
def small() -> megrez.Model:
    """LeNet in batches of 2."""
    return megrez.compile(DIGITS / "lenet.onnx", batch=2)


@pytest.fixture(scope="session")
def processes() -> Iterator[megrez.Cluster]:
    """Three parties in processes of their own."""
    with megrez.local() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def threads() -> Iterator[megrez.Cluster]:
    """Three parties in threads."""
    with megrez.local(parties="thread") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three services with certificates for alice and bob, as on three machines, that no test ends.

    The folder has cluster.toml and certs.
    """
    folder = tmp_path_factory.mktemp("services")
    parties = [Supervised(config) for config in write_triple(folder, ["alice", "bob"])]
    for party in parties:
        party.wait()
    yield folder
    for party in parties:
        party.stop(timeout=5)


@pytest.fixture(scope="session")
def stored(deployment: Path, small: megrez.Model) -> str:
    """LeNet at the parties, for alice in batches of 1, 2, 4, 8 and 16."""
    with megrez.connect(deployment / "cluster.toml", certs=deployment / "certs", client="bob") as bob:
        bob.upload(small, name="aio-lenet", allow=["alice"], batches=[1, 2, 4, 8, 16])
    return "aio-lenet"


def run(test: Callable[[], Awaitable[T]]) -> T:
    """Run a test in an event loop of its own, which must not hang."""

    async def bounded() -> T:
        return await asyncio.wait_for(test(), 120)

    return asyncio.run(bounded())


def connect(folder: Path, **options: Any) -> megrez.aio.Cluster:
    """A client of `deployment`, or another such folder, for asyncio."""
    return megrez.aio.connect(folder / "cluster.toml", certs=folder / "certs", **options)
