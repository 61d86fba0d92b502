"""Floating point on two parties, in the clear, and what NumPy says."""

from __future__ import annotations

import os
import runpy
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from megrez import Error, float32

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "float32"

Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def clear() -> float32.Pair:
    return float32.clear()


@pytest.fixture(scope="module", params=["secfloat", "mizar-float"])
def pair(request: pytest.FixtureRequest) -> Iterator[float32.Pair]:
    with float32.local(protocol=request.param) as pair:
        yield pair


def numbers(seed: int, *shape: int) -> Array:
    generator = np.random.default_rng(seed)
    scale = 2.0 ** generator.integers(-3, 3, shape)
    return (generator.uniform(-1, 1, shape) * scale).astype(np.float32)


def single(values: Any) -> Array:
    return np.array(values, np.float32)


X, Y = numbers(1, 3, 5), numbers(2, 5)

EXACT: list[Callable[[Any, Any, Any], Any]] = [
    lambda _, x, y: x + y,
    lambda _, x, y: y - x,
    lambda _, x, y: x * y,
    lambda _, x, y: y / x,
    lambda _, x, __: 2 - x,
    lambda _, x, __: 1 / x + x * 0.5,
    lambda _, x, __: -abs(x),
    lambda _, x, __: x**2,
    lambda np, x, __: np.sqrt(x * x),
    lambda np, x, y: np.maximum(x, y) - np.minimum(x, 0.25),
    lambda _, x, y: x < y,
    lambda _, x, y: (x <= y) & ~(x > 0) | (y >= 0.5),
    lambda _, x, y: (x == +x) ^ (x != y),
    lambda np, x, y: np.where(x < y, x, y),
    lambda np, x, __: np.where(x > 0, np.sqrt(abs(x)), np.pi),
    lambda np, x, y: np.where(x < 0, x < y, x > 1),
    lambda _, x, __: x[1:, ::-1].T,
    lambda _, x, __: x[[2, 0], None, 1:3],
    lambda _, x, __: x.reshape(5, 3).transpose().ravel(),
    lambda np, x, y: np.concatenate([x, y[None, :], 2 * x]),
    lambda np, x, y: np.stack([x[0], y], axis=1),
    lambda _, x, __: x.max(axis=0),
    lambda _, x, __: x.min(),
    lambda _, x, __: x.max(axis=-1, keepdims=True) - x,
    lambda np, x, __: np.sum(x > 0),
    lambda np, x, y: np.array([1, 2, 3], np.float32)[:, None] * x + y,
]


@pytest.mark.parametrize("program", EXACT)
def test_what_is_correctly_rounded_is_what_numpy_has(clear: float32.Pair, program: Any) -> None:
    want = program(np, X, Y)
    for library in (float32, np):
        got = program(library, clear.array(X, owner=0), clear.array(Y, owner=1)).reveal()
        np.testing.assert_array_equal(got, want)
        assert got.shape == want.shape
        assert (got.dtype == np.bool_) == (want.dtype == np.bool_)


FUNCTIONS = [
    "exp",
    "exp2",
    "log",
    "log2",
    "log10",
    "log1p",
    "expm1",
    "sin",
    "cos",
    "tan",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "sinpi",
    "cospi",
    "tanpi",
    "sigmoid",
    "erf",
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_near(clear: float32.Pair, name: str) -> None:
    function = getattr(float32, name)
    x = np.abs(X) if "log" in name else X
    np.testing.assert_allclose(function(clear.array(x, owner=0)).reveal(), function(x), rtol=1e-6, atol=1e-6)


def test_sums_and_products(clear: float32.Pair) -> None:
    a, b = numbers(3, 2, 4, 3), numbers(4, 3, 6)
    x, y = clear.array(a, owner=0), clear.array(b, owner=1)
    for got, want in [
        (x @ y, a @ b),
        (x[0] @ y[:, 0], a[0] @ b[:, 0]),
        (y.T[0] @ y, b.T[0] @ b),
        (np.dot(y[:, 0], y[:, 1]), b[:, 0] @ b[:, 1]),
        (b.T @ x[0].T, b.T @ a[0].T),
        (x.sum(axis=(0, -1)), a.sum(axis=(0, -1))),
        (x.mean(), a.mean()),
        (float32.sum(x, axis=1, keepdims=True), a.sum(axis=1, keepdims=True)),
        (abs(x) ** 1.5, abs(a) ** 1.5),
        (2.0**x, 2.0**a),
    ]:
        revealed = got.reveal()
        assert revealed.shape == want.shape
        np.testing.assert_allclose(revealed, want, rtol=1e-5, atol=1e-6)


def program(np: Any, x: Any, y: Any) -> list[Any]:
    """A bit of everything."""
    z = np.where(x < y, np.sqrt(x * x + 1), np.exp(-y))
    mean = (np.log2(z) + np.sinpi(y)).sum(axis=0) / 3
    return [z, mean, mean > 0.1, np.tanh(z @ y), np.maximum(z, 0.5).max()]


def test_processes_give_the_bits_of_the_clear(pair: float32.Pair, clear: float32.Pair) -> None:
    y = numbers(5, 5)
    revealed = []
    for where in (pair, clear):
        results = program(float32, where.array(X, owner=0), where.array(y, owner=1))
        first = results[0].reveal()
        np.testing.assert_array_equal(first, where.reveal(*results)[0])
        revealed.append(where.reveal(*results))
    for on_shares, in_the_clear in zip(*revealed, strict=True):
        assert on_shares.tobytes() == in_the_clear.tobytes()
    assert pair.cost.rounds > 100
    assert min(pair.cost.sent_bytes) > 10_000
    assert clear.cost.sent_bytes == (0, 0)


@pytest.mark.parametrize("protocol", ["mizar-float", "aby3"])
def test_a_dealer_is_a_third_party(protocol: str) -> None:
    with float32.local(protocol=protocol) as pair:
        assert (pair.array(X, owner=0) * X).reveal().tolist() == (X * X).tolist()
        assert len(pair.cost.sent_bytes) == 3


def test_values_that_are_gone_are_forgotten(pair: float32.Pair) -> None:
    x = pair.array([1.0, 2.0], owner=0)
    for _ in range(3):
        x = x * x
        x.reveal()
    assert len(pair.unused) == 1
    assert x.reveal().tolist() == [1.0, 256.0]


def test_special_values(clear: float32.Pair) -> None:
    x = clear.array([np.inf, -np.inf, np.nan, -0.0, 1e-40, 3.4e38], owner=0)
    np.testing.assert_array_equal((x - x).reveal(), single([np.nan, np.nan, np.nan, 0, 0, 0]))
    np.testing.assert_array_equal((x * 2).reveal(), single([np.inf, -np.inf, np.nan, -0.0, 0, np.inf]))
    assert float32.isnan(x).reveal().tolist() == [False, False, True, False, False, False]
    assert clear.array(np.zeros((2, 0)), owner=0).shape == (2, 0)


def test_secrets_stay_secret(clear: float32.Pair) -> None:
    x = clear.array([1.0, 2.0], owner=0)
    for use in (bool, float, np.asarray, lambda v: np.array([1.0])[v], lambda v: [0, 1][v[0]]):
        with pytest.raises(Error, match=r"reveal\(\)"):
            use(x[0] if use in (bool, float) else x)
    assert "1.0" not in repr(x)


def test_mistakes(clear: float32.Pair) -> None:
    x = clear.array([1.0, 2.0], owner=0)
    with pytest.raises(Error, match="different parties"):
        x + float32.clear().array([1.0], owner=0)
    with pytest.raises(Error, match="`meteor` does not compute in floating point"):
        float32.local(protocol="meteor")
    with pytest.raises(Error, match="no `cbrt`"):
        np.cbrt(x)
    with pytest.raises(Error, match="real numbers"):
        clear.array(["a"], owner=0)
    with pytest.raises(Error, match="no party 2"):
        clear.array([1.0], owner=2).reveal()  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="zero-size"):
        clear.array([], owner=0).max()
    with pytest.raises(ValueError, match="matmul of shapes"):
        x @ clear.array([1.0, 2.0, 3.0], owner=0)
    with pytest.raises(ValueError, match="broadcast"):
        x + np.zeros(3)
    assert (x + 1).reveal().tolist() == [2.0, 3.0]


def test_a_pair_that_is_closed_says_so() -> None:
    with float32.clear() as pair:
        x = pair.array([1.0], owner=0)
    with pytest.raises(Error, match="ended"):
        x.reveal()


def children() -> set[int]:
    lists = Path("/proc/self/task").glob("*/children")
    return {int(child) for text in lists for child in text.read_text().split()}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the parties in Linux's process table")
@pytest.mark.parametrize("which", [0, 1])
def test_a_party_that_dies_is_no_reason_to_hang(which: int) -> None:
    before = children()
    with float32.local() as pair:
        x = pair.array([1.0, 2.0], owner=0)
        assert (x * x).reveal().tolist() == [1.0, 4.0]
        os.kill(sorted(children() - before)[which], signal.SIGKILL)
        with pytest.raises(Error):
            (x + 1).reveal()
        with pytest.raises(Error, match="the parties have ended"):
            (x + 2).reveal()


def test_the_example(clear: float32.Pair) -> None:
    prices = runpy.run_path(str(EXAMPLES / "options.py"))["prices"]
    spot, strike = single([90, 100, 110, 95]), single([100, 100, 100, 90])
    rate, volatility, years = 0.03, single([0.2, 0.25, 0.3, 0.15]), single([1, 0.5, 2, 0.25])
    want = prices(np, spot, strike, rate, volatility, years)
    x, k, v, t = [clear.array(value, owner=0) for value in (spot, strike, volatility, years)]
    got = prices(float32, x, k, rate, v, t).reveal()
    np.testing.assert_allclose(got, want, rtol=2e-4)


def test_sums_that_are_rounded_once(pair: float32.Pair, clear: float32.Pair) -> None:
    generator = np.random.default_rng(3)
    x = (generator.normal(size=(3, 4, 7)) * 10.0 ** generator.integers(-3, 4, (3, 4, 7))).astype(np.float32)
    y = generator.normal(size=(3, 7, 2)).astype(np.float32)
    wide = x.astype(np.float64)

    def within(got: Any, want: Any, magnitude: Any) -> None:
        # One unit in the last place of the magnitudes' sum, and the one rounding.
        assert got.shape == want.shape
        assert (abs(got - want) <= np.spacing(np.float32(magnitude)) * 1.5).all()

    for axis, keepdims in ((None, False), (0, True), ((0, 2), False), (-1, False)):
        got = float32.fused_sum(clear.array(x, owner=0), axis=axis, keepdims=keepdims).reveal()
        want = np.asarray(wide.sum(axis=axis, keepdims=keepdims))
        within(got, want, abs(wide).sum(axis=axis, keepdims=keepdims))
        # As public numbers.
        np.testing.assert_array_equal(float32.fused_sum(x, axis=axis, keepdims=keepdims), got)
    product = float32.fused_matmul(clear.array(x, owner=0), clear.array(y, owner=1)).reveal()
    within(product, wide @ y.astype(np.float64), abs(wide) @ abs(y.astype(np.float64)))
    vector = float32.fused_matmul(clear.array(x[0, 0], owner=0), clear.array(y[0], owner=1)).reveal()
    np.testing.assert_array_equal(vector, product[0, 0])
    assert (
        float32.fused_sum(clear.array(x[:0], owner=0), axis=0).reveal().tolist() == np.zeros((4, 7)).tolist()
    )
    with pytest.raises(ValueError, match="fused_matmul of shapes"):
        float32.fused_matmul(clear.array(x, owner=0), y[:, :3])
    # The same bits on shares, in fewer rounds than sums that round every addition.
    rounds = []
    for summed in (float32.fused_sum, float32.sum):
        before = pair.cost.rounds
        shares = summed(pair.array(x, owner=0), axis=None).reveal()
        rounds.append(pair.cost.rounds - before)
        np.testing.assert_array_equal(shares, summed(clear.array(x, owner=0), axis=None).reveal())
    assert rounds[0] < rounds[1] / 2
    shares = float32.fused_matmul(pair.array(x[0], owner=0), pair.array(y[0], owner=1)).reveal()
    np.testing.assert_array_equal(shares, product[0])
