"""Programs and functions on shares, bit for bit as in the clear."""

from __future__ import annotations

import runpy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from megrez import float32

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "float32"
PROGRAMS = runpy.run_path(str(EXAMPLES / "programs.py"))
NUMPY: Any = np


@pytest.fixture(scope="module")
def pair() -> Iterator[float32.Pair]:
    with float32.local() as pair:
        yield pair


def test_the_examples(pair: float32.Pair) -> None:
    clear = float32.clear()
    for program, (mine, yours) in PROGRAMS["inputs"]().items():
        on_shares, in_the_clear = [
            program(float32, at.array(mine, owner=0), at.array(yours, owner=1)).reveal()
            for at in (pair, clear)
        ]
        assert on_shares.tobytes() == in_the_clear.tobytes(), program.__name__
        np.testing.assert_allclose(on_shares, program(np, mine, yours), rtol=1e-4, atol=1e-4)
    wave = np.fft.fft(PROGRAMS["inputs"]()[PROGRAMS["fft"]][0])
    np.testing.assert_allclose(on_shares, [wave.real, wave.imag], atol=1e-4)


def test_prices_of_options(pair: float32.Pair) -> None:
    prices = runpy.run_path(str(EXAMPLES / "options.py"))["prices"]
    contracts = np.array([[90, 110], [100, 100], [0.2, 0.3], [1, 2]], np.float32)
    revealed = []
    for at in (pair, float32.clear()):
        spot, strike, volatility, years = at.array(contracts, owner=0)
        revealed.append(prices(float32, spot, strike, 0.03, volatility, years).reveal())
    assert revealed[0].tobytes() == revealed[1].tobytes()


def test_functions_of_edges(pair: float32.Pair) -> None:
    values = np.array([3, np.nan, -0.0, np.inf, 0.0, -1e-40, 2.5, 3, -np.inf, -7.25, 1e30], np.float32)
    matrix = np.array([[0, 2, 1], [1, 1, 1], [4, 2, 1]], np.float32)

    def program(at: float32.Pair) -> list[float32.Array]:
        x, m = at.array(values, owner=0), at.array(matrix, owner=1)
        return [
            NUMPY.sort(x),
            NUMPY.argmax(x),
            NUMPY.argmin(x[2:]),
            NUMPY.floor(x),
            NUMPY.ceil(x),
            NUMPY.rint(x),
            NUMPY.sign(x),
            NUMPY.cumsum(x[4:8]),
            (x < 3).sum(),
            NUMPY.clip(x, -1, 2.75),
            NUMPY.nan_to_num(x),
            NUMPY.median(m, axis=0),
            NUMPY.mod(m, 3),
            NUMPY.var(m),
            NUMPY.linalg.solve(m, m[0]),
            NUMPY.linalg.det(m),
            NUMPY.einsum("ij,kj->ik", m, m),
            NUMPY.any(x > 1e20),
            NUMPY.select([x < 0, x < 3], [x, 1.0], 2.0),
            x[:0] + 1,
        ]

    clear = float32.clear()
    on_shares, in_the_clear = pair.reveal(*program(pair)), clear.reveal(*program(clear))
    for i, (one, other) in enumerate(zip(on_shares, in_the_clear, strict=True)):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes(), i


def test_truth_values_are_counted_as_bits(pair: float32.Pair) -> None:
    x = pair.array(np.arange(64), owner=0)
    flags = x < 40
    flags.reveal()
    before = sum(pair.cost.sent_bytes)
    assert flags.sum().reveal() == 40
    counting = sum(pair.cost.sent_bytes) - before
    assert x.sum().reveal() == 2016
    assert 10 * counting < sum(pair.cost.sent_bytes) - before - counting


def test_threads_share_parties(pair: float32.Pair) -> None:
    shared = pair.array([1.0, 2.0, 4.0], owner=0) * 3
    results: dict[int, list[float]] = {}

    def work(i: int) -> None:
        results[i] = ((shared + i) * pair.array([2.0], owner=1)).reveal().tolist()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: [2.0 * (3 * x + i) for x in (1, 2, 4)] for i in range(4)}
