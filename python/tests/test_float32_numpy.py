"""What holds for all functions of `megrez.float32`: public calls, errors, refusals, threads, the page."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from megrez import Error, float32
from megrez.float32._arrays import FUNCTIONS, REFUSED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "numpy.md"

NUMPY: Any = np
"""For calls with secrets, which NumPy's types do not know."""
Array = npt.NDArray[Any]
Case = Callable[..., Any]


@pytest.fixture(scope="module")
def clear() -> float32.Pair:
    return float32.clear()


def numbers(seed: int, *shape: int) -> Array:
    generator = np.random.default_rng(seed)
    return (generator.uniform(-1, 1, shape) * 2.0 ** generator.integers(-3, 3, shape)).astype(np.float32)


X = numbers(1, 3, 5)
EDGES = np.array(
    [
        np.nan,
        np.inf,
        -np.inf,
        -0.0,
        0.0,
        1e-37,
        -2.5,
        2.5,
        0.5,
        -0.5,
        1.5,
        8388607.5,
        -8388609,
        1e30,
        -1e-30,
        -0.75,
    ],
    np.float32,
)


def opened(got: Any) -> list[Array]:
    parts = got if isinstance(got, list | tuple) else [got]
    return [part.reveal() if isinstance(part, float32.Array) else part for part in parts]


def test_programs_of_public_numbers_have_the_bits_of_secret_ones(clear: float32.Pair) -> None:
    x, y = numbers(5, 6, 37), np.concatenate([EDGES, [np.float32(1e-40)]])
    x[0, :3] = 1e-40, -1e-41, 3e-39
    calls: list[Case] = [
        *(
            lambda np, x, _, name=name: getattr(np, name)(x)
            for name in ("exp", "log", "sin", "tanh", "sigmoid", "erf")
        ),
        *(
            lambda np, x, _, name=name: getattr(np, name)(x, axis=1)
            for name in ("sum", "mean", "var", "std", "cumsum")
        ),
        *(
            lambda np, x, _, name=name: getattr(np, name)(x)
            for name in ("max", "prod", "sort", "median", "argmax")
        ),
        lambda np, x, _: np.matmul(x, np.transpose(x)),
        lambda np, x, y: np.einsum("ij,k->jk", x, y),
        lambda np, _, y: np.add(y, y),
        lambda np, _, y: np.maximum(y, 0.0),
        lambda np, _, y: np.where(np.less(y, 0), y, np.multiply(y, 2)),
        lambda np, _, y: np.power(y, 2),
        lambda np, _, y: np.divide(y, 4),
        lambda np, _, y: np.divide(1, y),
        lambda np, x, _: np.linalg.norm(x),
        lambda np, x, _: np.linalg.inv(x[:, :6]),
        lambda np, x, _: np.count_nonzero(x),
        lambda np, _, y: np.sign(y),
    ]
    for i, call in enumerate(calls):
        public = call(float32, x, y)
        secret = call(float32, clear.array(x, owner=0), clear.array(y, owner=1)).reveal()
        assert isinstance(public, np.ndarray | np.generic), i
        assert public.astype(secret.dtype).tobytes() == secret.tobytes(), i


def test_public_integers_stay_integers() -> None:
    cases: list[tuple[Any, Any]] = [
        (float32.max([3, 4]), 4),
        (float32.add(16777217, 2), 16777219),
        (float32.where(np.arange(3) > 1, 1, 0), [0, 0, 1]),
        (float32.argmax(np.array([1.0, 3.0, 2.0])), 1),
        (float32.sum([True, False, True]), 2),
        (float32.mod(7, 4), 3),
    ]
    for got, want in cases:
        assert got.dtype.kind == "i"
        assert np.array_equal(got, want)
    assert float32.sqrt(2).dtype == np.float32
    assert float32.divide(1, 3).dtype == np.float32
    assert float32.nonzero([0, 1])[0].tolist() == float32.where([0, 1])[0].tolist() == [1]
    assert float32.linalg.eigvalsh(np.eye(2)).tolist() == [1, 1]


def test_nothing_to_reduce(clear: float32.Pair) -> None:
    x = clear.array(np.zeros((0, 3)), owner=0)
    for name in ("sum", "prod", "any", "all", "count_nonzero"):
        for axis in (0, 1, None):
            want = getattr(np, name)(np.zeros((0, 3), np.float32), axis=axis)
            np.testing.assert_array_equal(getattr(np, name)(x, axis=axis).reveal(), want)
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(ValueError, match=r"zero-size|empty sequence"):
            getattr(np, name)(x, axis=0)
    assert np.isnan(x.mean(axis=0).reveal()).all()
    assert np.isnan(NUMPY.median(x, axis=0).reveal()).all()


def test_errors_are_those_of_numpy(clear: float32.Pair) -> None:
    secret = clear.array(X, owner=0)
    cases: list[Case] = [
        lambda np, x: np.reshape(x, (4, 4)),
        lambda np, x: np.sum(x, axis=2),
        lambda np, x: np.sum(x, axis=(0, 0)),
        lambda np, x: np.sort(x, axis=2),
        lambda np, x: np.argmax(x, axis=-3),
        lambda np, x: np.concatenate([x, x[0]]),
        lambda np, x: np.concatenate([]) if x is None else np.concatenate([x, x[:, 1:]]),
        lambda np, x: np.stack([x, x[1:]]),
        lambda np, x: np.split(x, 2),
        lambda np, x: np.squeeze(x, 0),
        lambda np, x: np.take(x, 17),
        lambda _, x: x[3],
        lambda _, x: x[:, :, 0],
        lambda _, x: len(x[0, 0]),
        lambda np, x: np.add(x, x[:, 1:]),
        lambda _, x: x @ x,
        lambda np, x: np.einsum("ij,jk->ik", x, x),
        lambda np, x: np.einsum("ijk->i", x),
        lambda np, x: np.tensordot(x, x, 1),
        lambda np, x: np.inner(x, x[0, 1:]),
        lambda np, x: np.select([x > 0], [x, x]),
        lambda np, x: np.diff(x, -1),
        lambda np, x: np.diff(x[0, 0]),
        lambda np, x: np.broadcast_to(x, (2, 2)),
        lambda _, x: x & x,
        lambda _, x: ~x,
        lambda np, x: np.average(x, weights=x[0]),
    ]
    for i, case in enumerate(cases):
        try:
            case(np, X)
        except Exception as expected:
            kinds = tuple(kind for kind in (ValueError, IndexError, TypeError) if isinstance(expected, kind))
            with pytest.raises(kinds):
                opened(case(float32, secret))
            with pytest.raises(kinds):
                opened(case(np, secret))
        else:
            pytest.fail(f"NumPy takes case {i}")
    for call in (float32.linalg.solve, float32.linalg.inv, float32.linalg.det, float32.linalg.cholesky):
        with pytest.raises(ValueError, match="square"):
            call(*([secret, secret] if call is float32.linalg.solve else [secret]))


def test_what_secrets_cannot_do_says_what_to_do_instead(clear: float32.Pair) -> None:
    x = clear.array(X, owner=0)
    place = np.argmax(x[0])
    w = np.zeros(5, np.float32)

    def changed() -> None:
        x[0] = 1.0

    def subtracted() -> None:
        nonlocal w
        w -= x[0]

    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: x[x > 0], "where"),
        (lambda: x[place], "cannot be an index"),
        (lambda: x[0, place], "cannot be an index"),
        (lambda: [1, 2][place], "reveal"),
        (lambda: np.arange(5)[place], "reveal"),
        (lambda: int(place), "reveal"),
        (lambda: x.tolist(), "reveal"),
        (lambda: 1 if place else 0, "where"),
        (lambda: sorted(x[0]), "where"),
        (changed, "where"),
        (lambda: x.sort(), r"np.sort\(x\)"),
        (subtracted, r"w = w \+ x"),
        (lambda: np.add.reduce(x), r"add\.reduce"),
        (lambda: np.take(x, place), "places"),
        (lambda: float32.roll(X, place), "places"),
        (lambda: float32.sum(X, axis=place), "axis"),
        (lambda: np.unique(x), "instead, compare"),
        (lambda: np.where(x > 0), "instead, keep the mask"),
        (lambda: np.nonzero(x), "instead, keep the mask"),
        (lambda: np.searchsorted(X[0], x), "instead, count"),
        (lambda: np.argsort(x), "sort"),
        (lambda: np.cbrt(x), "no `cbrt`"),
        (lambda: np.fft.fft(x), "no `fft`"),
        (lambda: np.linalg.eigh(x), r"no `linalg\.eigh`"),
        (lambda: float32.maximum([x[0], x[1]], 0), "stack"),
        (lambda: np.array([x, x]), "stack"),
        (lambda: np.pad(x, 1, mode="mean"), "constant"),
        (lambda: x.astype(np.int64), "float32 or bool"),
    ]
    for i, (case, words) in enumerate(cases):
        with pytest.raises(Error, match=words):
            case()
        assert i >= 0
    for name in REFUSED:
        assert callable(getattr(np, name)), "there is something to refuse"
    v = x[0]
    v -= 1.0
    assert v.reveal().tolist() == (X[0] - 1).tolist()
    assert (x > 0).dtype == np.bool_
    assert x.dtype == np.float32


def test_a_pair_goes_on_after_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = float32.clear()
    native, x = pair._native, pair.array([1.0, 2.0], owner=0)
    x.reveal()
    y, x = x * 2, x + 1  # the parties have the old x, which is to be forgotten

    class Interrupted:
        def run(self, request: str) -> str:
            native.run(request)
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pair, "_native", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            y.reveal()
    assert y.reveal().tolist() == [2.0, 4.0]
    assert (x + y).reveal().tolist() == [4.0, 7.0]


def test_threads_share_a_pair() -> None:
    pair, wrong = float32.clear(), list[Any]()
    shared = pair.array(X, owner=0) * 2

    def work(seed: int) -> None:
        try:
            for i in range(15):
                values = numbers(100 * seed + i, 7)
                got = (pair.array(values, owner=0) * shared[0, 0] + shared.max()).reveal()
                want = values * (X[0, 0] * 2) + (X * 2).max()
                if got.tobytes() != want.tobytes():
                    wrong.append((seed, i))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_page_lists_what_there_is() -> None:
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    listed = [name for row in rows for name in re.findall(r"`([\w.]+)`", row[2])]
    assert len(listed) == len(set(listed)), "nothing is listed twice"
    assert set(listed) == set(FUNCTIONS)
