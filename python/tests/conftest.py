"""What the tests share: the digits, and parties of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import megrez
import numpy as np
import numpy.typing as npt
import pytest
from megrez._supervised import Supervised, write_triple

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"

Array = npt.NDArray[Any]


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
