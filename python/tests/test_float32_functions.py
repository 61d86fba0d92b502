"""Every function of `megrez.float32` beside NumPy's, in the clear."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from megrez import float32

NUMPY: Any = np
"""For calls with secrets, which NumPy's types do not know."""

Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def clear() -> float32.Pair:
    return float32.clear()


def numbers(seed: int, *shape: int) -> Array:
    generator = np.random.default_rng(seed)
    return (generator.uniform(-1, 1, shape) * 2.0 ** generator.integers(-3, 3, shape)).astype(np.float32)


SCALES = np.array([2.0**-70, 1, 2.0**40, 2.0**120], np.float32)
X, Y, Z = numbers(1, 3, 5), numbers(2, 5), numbers(3, 2, 3, 4)
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
TIES = np.array([[1, 3, 3, 0, 3], [2, 2, 2, 2, 2], [-0.0, 0.0, -1, -0.0, 0.0]], np.float32)
UNKNOWN = np.array([[1, np.nan, np.inf, np.nan, 0], [np.inf, 1, 2, np.nan, np.inf]], np.float32)

Case = Callable[..., Any]

ARRANGED: dict[str, Case] = {
    "append": lambda np, x: np.append(x[0], x[1:]),
    "append along": lambda np, x: np.append(x, x[:1], axis=0),
    "array_split": lambda np, x: np.array_split(x, 3, axis=1),
    "atleast_1d": lambda np, x: np.atleast_1d(x[0, 0], x[0]),
    "atleast_2d": lambda np, x: np.atleast_2d(x[0]),
    "atleast_3d": lambda np, x: np.atleast_3d(x),
    "broadcast_arrays": lambda np, x: np.broadcast_arrays(x, x[0], 2.0),
    "broadcast_to": lambda np, x: np.broadcast_to(x[:, :1], (2, 3, 4)),
    "column_stack": lambda np, x: np.column_stack([x[0], x[1]]),
    "concatenate": lambda np, x: np.concatenate([x, x[:, :2], x[:, ::-1]], axis=-1),
    "concatenate an array": lambda np, x: np.concatenate(x),
    "copy": lambda np, x: np.copy(x),
    "delete": lambda np, x: np.delete(x, [1, 3], axis=1),
    "diag": lambda np, x: np.diag(x[0], 1),
    "diag of a matrix": lambda np, x: np.diag(x, -1),
    "diagflat": lambda np, x: np.diagflat(x[:2, :2]),
    "diagonal": lambda _, x: x.diagonal(1),
    "dsplit": lambda np, x: np.dsplit(x[None], [2]),
    "dstack": lambda np, x: np.dstack([x, x[:, ::-1]]),
    "empty size": lambda _, x: (x[:0], x[:, 2:2].T),
    "expand_dims": lambda np, x: np.expand_dims(x, (0, -1)),
    "flatten": lambda _, x: x.T.flatten(),
    "flip": lambda np, x: np.flip(x, 1),
    "fliplr": lambda np, x: np.fliplr(x),
    "flipud": lambda np, x: np.flipud(x),
    "full_like": lambda np, x: np.full_like(x, 3.5),
    "hsplit": lambda np, x: np.hsplit(x, [1, 4]),
    "hstack": lambda np, x: np.hstack([x, x]),
    "index": lambda _, x: x[[2, 0], None, 1:-1:2],
    "mask": lambda _, x: x[numpy_mask(x.shape)],
    "meshgrid": lambda np, x: np.meshgrid(x[0], x[1, :2], indexing="ij"),
    "moveaxis": lambda np, x: np.moveaxis(x[None], 0, -1),
    "mT": lambda _, x: x[None].swapaxes(1, 2),
    "ones_like": lambda np, x: np.ones_like(x),
    "pad": lambda np, x: np.pad(x, ((1, 0), (0, 2))),
    "pad with edges": lambda np, x: np.pad(x, 1, mode="reflect"),
    "ravel": lambda np, x: np.ravel(x, order="F"),
    "repeat": lambda np, x: np.repeat(x, [1, 0, 2], axis=0),
    "repeat of all": lambda _, x: x.repeat(2),
    "reshape": lambda np, x: np.reshape(x, (5, -1)),
    "reshape in order": lambda np, x: np.reshape(x, (5, 3), order="F"),
    "resize": lambda np, x: np.resize(x, (4, 4)),
    "roll": lambda np, x: np.roll(x, 2),
    "roll along": lambda np, x: np.roll(x, (1, -1), axis=(0, 1)),
    "rollaxis": lambda np, x: np.rollaxis(x, 1),
    "rot90": lambda np, x: np.rot90(x),
    "split": lambda np, x: np.split(x, 5, axis=1),
    "squeeze": lambda np, x: np.squeeze(x[None, :1], axis=0),
    "stack": lambda np, x: np.stack([x[0], x[1]], axis=-1),
    "swapaxes": lambda np, x: np.swapaxes(x, 0, 1),
    "take": lambda np, x: np.take(x, [[3, -1]], axis=1),
    "take_along_axis": lambda np, x: np.take_along_axis(x, numpy_places(x.shape), axis=1),
    "tile": lambda np, x: np.tile(x, (2, 1, 2)),
    "transpose": lambda np, x: np.transpose(x[None], (2, 0, 1)),
    "tril": lambda np, x: np.tril(x, -1),
    "triu": lambda np, x: np.triu(x),
    "vsplit": lambda np, x: np.vsplit(x, 3),
    "vstack": lambda np, x: np.vstack([x[0], x]),
    "zeros_like": lambda np, x: np.zeros_like(x),
}


def numpy_mask(shape: tuple[int, ...]) -> Any:
    return np.arange(np.prod(shape)).reshape(shape) % 3 == 1


def numpy_places(shape: tuple[int, ...]) -> Any:
    return np.arange(np.prod(shape)).reshape(shape)[:, ::2] % shape[1]


def opened(got: Any) -> list[Array]:
    parts = got if isinstance(got, list | tuple) else [got]
    return [part.reveal() if isinstance(part, float32.Array) else part for part in parts]


def same(got: Any, want: Any, near: float = 0.0) -> None:
    wanted = list(want) if isinstance(want, list | tuple) else [want]
    for one, other in zip(opened(got), wanted, strict=True):
        assert np.shape(one) == np.shape(other)
        assert (one.dtype == np.bool_) == (np.asarray(other).dtype == np.bool_)
        if near:
            np.testing.assert_allclose(one, other, rtol=near, atol=near)
        else:
            np.testing.assert_array_equal(one, other)
            if one.dtype == np.float32:
                number = ~np.isnan(one)
                assert (np.signbit(one) == np.signbit(other))[number].all(), "signs of zeros"


@pytest.mark.parametrize("name", ARRANGED)
def test_what_moves_elements_does_as_numpy(clear: float32.Pair, name: str) -> None:
    case = ARRANGED[name]
    for values in (X, EDGES[:15].reshape(3, 5)):
        want = case(np, values)
        for library in (float32, np):
            same(case(library, clear.array(values, owner=0)), want)
    flags = X > 0
    if not name.startswith(("full_like", "broadcast_arrays")):
        same(case(float32, clear.array(X, owner=0) > 0), case(np, flags))
    public = case(float32, np.arange(15).reshape(3, 5))
    for part in public if isinstance(public, list | tuple) else [public]:
        assert part.dtype.kind in "if"
    assert clear.cost.sent_bytes == (0, 0)


EXACT: dict[str, Case] = {
    "floor": lambda np, x: np.floor(x),
    "ceil": lambda np, x: np.ceil(x),
    "trunc": lambda np, x: np.trunc(x),
    "fmod": lambda np, x: np.fmod(x, np.float32(0.7)),
    "fix": lambda np, x: np.fix(x),
    "rint": lambda np, x: np.rint(x),
    "round": lambda np, x: np.round(x),
    "round method": lambda _, x: x.round(1),
    "sign": lambda np, x: np.sign(x),
    "clip": lambda np, x: np.clip(x, -1, 2),
    "clip below": lambda _, x: x.clip(min_or(0.25)),
    "clip by keywords": lambda _, x: x.clip(max=0.5, min=-0.5),
    "clip above": lambda np, x: np.clip(x, None, 0.25),
    "isnan": lambda np, x: np.isnan(x),
    "isinf": lambda np, x: np.isinf(x),
    "isfinite": lambda np, x: np.isfinite(x),
    "nan_to_num": lambda np, x: np.nan_to_num(x),
    "nan_to_num with": lambda np, x: np.nan_to_num(x, nan=1.0, posinf=2.0, neginf=-3.0),
    "isclose": lambda np, x: np.isclose(x, x[..., ::-1]),
    "select": lambda np, x: np.select([x > 1, x > 0, x < -1], [x, x * 2, -x], 7),
    "positive": lambda _, x: +x,
    "fabs": lambda np, x: np.fabs(x),
    "equal truths": lambda _, x: (x > 0) == (x > 1),
    "logical": lambda np, x: np.logical_or(x, np.logical_and(x > 1, np.logical_not(x))),
    "where": lambda np, x: np.where(x > 0, x, 2),
    "where of truths": lambda np, x: np.where(x > 0, x > 1, True),
    "divide by a power": lambda _, x: x / 8,
    "divide by a large power": lambda _, x: (x * 1e38) / np.float32(2**127) + x / np.float32(2.0**-126),
    "divide": lambda _, x: x / 3,
    "astype": lambda _, x: (x > 0).astype(np.float32),
    "any": lambda np, x: np.any(x, axis=-1),
    "any of truths": lambda _, x: (x > 1).any(axis=0, keepdims=True),
    "all": lambda np, x: np.all(x),
    "all of truths": lambda _, x: (x > -9).all(axis=-1),
    "count_nonzero": lambda np, x: np.count_nonzero(x, axis=0),
    "count_nonzero of all": lambda np, x: np.count_nonzero(x > 0, keepdims=True),
    "sum of truths": lambda _, x: (x > 0).sum(axis=-1),
    "max": lambda np, x: np.max(x, axis=0),
    "amin": lambda np, x: np.amin(x, axis=-1, keepdims=True),
    "max of truths": lambda _, x: (x > 0).max(axis=0),
    "argmax": lambda np, x: np.argmax(x, axis=-1),
    "argmax of all": lambda _, x: x.argmax(),
    "argmin": lambda np, x: np.argmin(x, axis=0, keepdims=True),
    "argmin of rows": lambda _, x: x.argmin(axis=-1),
    "argmax of truths": lambda np, x: np.argmax(x > 0.1, axis=-1),
    "fmax": lambda np, x: np.fmax(x[..., ::-1], 0.75),
    "fmin": lambda np, x: np.fmin(x, 0.75),
    "allclose": lambda np, x: np.allclose(x, x + 1e-9),
    "insert": lambda np, x: np.insert(x, 1, x[:, 0], axis=1),
    "nanmax": lambda np, x: np.nanmax(x),
    "nanmin": lambda np, x: np.nanmin(x, axis=None, keepdims=True),
    "diff": lambda np, x: np.diff(x),
    "diff twice": lambda np, x: np.diff(x, 2, axis=0),
    "diff of truths": lambda np, x: np.diff(x > 0),
    "array_equal": lambda np, x: (np.array_equal(x, x), np.array_equal(x, x[..., 1:])),
}


def min_or(bound: float) -> float:
    return bound


@pytest.mark.parametrize("name", EXACT)
def test_what_is_exact_is_what_numpy_has(clear: float32.Pair, name: str) -> None:
    case = EXACT[name]
    for values in (X, EDGES[None, :], EDGES.reshape(4, 4), TIES, UNKNOWN):
        with np.errstate(all="ignore"):
            want = case(np, values)
        for library in (float32, np):
            got = opened(case(library, clear.array(values, owner=0)))
            same(got, list(want) if isinstance(want, tuple) else [want])


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_sorting(clear: float32.Pair, axis: int | None) -> None:
    for values in (X, Z, TIES, UNKNOWN, EDGES.reshape(2, 8), numbers(9, 2, 17), X[:1, :1], X[:, :0], X > 0):
        want = np.sort(values, axis)
        got = NUMPY.sort(clear.public(values), axis).reveal()
        np.testing.assert_array_equal(got, want)  # zeros are equal
        # Not of what NumPy sorts: its vector code may give a zero the other sign.
        zeros = [int(np.signbit(x[x == 0]).sum()) for x in (got, values.astype(np.float32))]
        assert zeros[0] == zeros[1]
        if values.size:
            with np.errstate(all="ignore"):
                median = NUMPY.median(clear.public(values), axis).reveal()
                np.testing.assert_array_equal(median, np.median(values.astype(np.float32), axis))


NEAR: dict[str, Case] = {
    "log10": lambda np, x: np.log10(abs(x)),
    "hypot": lambda np, x: np.hypot(x * 1e30, x[0] * 1e30),
    "arctan2": lambda np, x: np.arctan2(x, x[0]),
    "arcsin": lambda np, x: np.arcsin(np.clip(x, -1, 1)),
    "arccos": lambda np, x: np.arccos(np.clip(x, -1, 1)),
    "arcsinh": lambda np, x: np.arcsinh(x * SCALES),
    "arccosh": lambda np, x: np.arccosh(1 + abs(x * SCALES)),
    "arctanh": lambda np, x: np.arctanh(np.clip(x, -1, 1) * np.float32(0.96875)),
    "fmod": lambda np, x: np.fmod(x * SCALES, x[::-1]),
    "radians": lambda np, x: np.radians(x * 90),
    "rad2deg": lambda np, x: np.rad2deg(x),
    "kron": lambda np, x: np.kron(x[0], x[1, :2]),
    "kron of unlike": lambda np, x: np.kron(x[0, 0], x[1, :2]),
    "cross": lambda np, x: np.cross(x[0, :, :3], x[1, 0, :3]),
    "nansum": lambda np, x: np.nansum(np.where(x > 0.5, np.nan, x), axis=1),
    "nanmean": lambda np, x: np.nanmean(np.where(x > 0.5, np.nan, x), axis=1, keepdims=True),
    "quantile": lambda np, x: np.quantile(x, 0.3, axis=1),
    "quantiles": lambda np, x: np.quantile(x, [0, 0.5, 0.81, 1], axis=(0, 2), keepdims=True),
    "percentile": lambda np, x: np.percentile(x, 17),
    "sum": lambda np, x: np.sum(x, axis=(0, -1)),
    "prod": lambda np, x: np.prod(x, axis=1),
    "prod of all": lambda _, x: x.prod(),
    "mean": lambda _, x: x.mean(axis=-1, keepdims=True),
    "mean of truths": lambda _, x: (x > 0).mean(axis=0),
    "var": lambda np, x: np.var(x, axis=(1, 2)),
    "std": lambda _, x: x.std(axis=0, ddof=1, keepdims=True),
    "ptp": lambda np, x: np.ptp(x, axis=1),
    "average": lambda np, x: np.average(x, axis=1),
    "average by weights": lambda np, x: np.average(x, axis=1, weights=abs(x[0, :, 0])),
    "average of all": lambda np, x: np.average(x, weights=abs(x) + 1),
    "cumsum": lambda np, x: np.cumsum(x),
    "cumsum along": lambda _, x: x.cumsum(axis=1),
    "cumprod": lambda np, x: np.cumprod(x, axis=-1),
    "cumsum of truths": lambda np, x: np.cumsum(x > 0, axis=-1) * 1.0,
    "inner": lambda np, x: np.inner(x, x[1]),
    "outer": lambda np, x: np.outer(x[0], x[1, 0]),
    "vdot": lambda np, x: np.vdot(x, x),
    "dot": lambda np, x: np.dot(x, x[0].T),
    "dot of many": lambda np, x: np.dot(x, x.swapaxes(1, 2)),
    "dot by a number": lambda np, x: np.dot(x, x[0, 0, 0]),
    "dot method": lambda _, x: x[0].dot(x[0, 0]),
    "matmul": lambda np, x: np.matmul(x, x.swapaxes(-1, -2)),
    "trace": lambda np, x: np.trace(x, 1, 1, 2),
    "tensordot": lambda np, x: np.tensordot(x, x, axes=([0, 1], [0, 1])),
    "tensordot by 2": lambda np, x: np.tensordot(x, x[0], 2),
    "tensordot by 0": lambda np, x: np.tensordot(x[0], x[0, 0], 0),
    "einsum": lambda np, x: np.einsum("bij,bkj->bik", x, x),
    "einsum of three": lambda np, x: np.einsum("bij,j,bk->ik", x, x[0, 0], x[:, :, 0]),
    "einsum implicit": lambda np, x: np.einsum("ij,kj", x[0], x[1]),
    "einsum of dots": lambda np, x: np.einsum("...ij,...j->...i", x, x[0, 0]),
    "einsum of a diagonal": lambda np, x: np.einsum("bii->b", x[:, :3, :3]),
    "einsum of a number": lambda np, x: np.einsum("bij->", x),
    "einsum transposed": lambda np, x: np.einsum("...ij->...ji", x),
    "norm": lambda np, x: np.linalg.norm(x),
    "norm of vectors": lambda np, x: np.linalg.norm(x, axis=1),
    "norm of order 1": lambda np, x: np.linalg.norm(x, 1, axis=-1, keepdims=True),
    "norm of order inf": lambda np, x: np.linalg.norm(x, np.inf, axis=0),
    "norm of order 0": lambda np, x: np.linalg.norm(x, 0, axis=0),
    "norm of order 3": lambda np, x: np.linalg.norm(x, 3, axis=0),
    "norm fro": lambda np, x: np.linalg.norm(x, "fro", axis=(1, 2)),
    "norm of matrices 1": lambda np, x: np.linalg.norm(x[0], 1),
    "norm of matrices inf": lambda np, x: np.linalg.norm(x, -np.inf, axis=(2, 0), keepdims=True),
    "floor_divide": lambda _, x: (x * 16) // 3,
    "mod": lambda np, x: np.floor(x * 64) % 7.0,
    "mod of a secret": lambda np, x: 7 % np.floor(abs(x * 64) + 1),
    "divmod": lambda np, x: np.divmod(np.floor(x * 64), -3),
    "remainder": lambda np, x: np.remainder(np.floor(x * 64), 5),
    "power": lambda np, x: np.power(abs(x), 1.5),
    "reciprocal": lambda np, x: np.reciprocal(x),
    "round to tens": lambda np, x: np.round(x * 100, -1),
}


@pytest.mark.parametrize("name", NEAR)
def test_what_is_summed_is_near(clear: float32.Pair, name: str) -> None:
    case = NEAR[name]
    want = case(np, Z)
    for library in (float32, np):
        same(case(library, clear.array(Z, owner=0)), want, near=2e-6)


def test_random_shapes_axes_and_edges(clear: float32.Pair) -> None:
    generator = np.random.default_rng(1)
    some = np.array([np.nan, np.inf, -np.inf, 0, 1, 1, -2, 3.5], np.float32)
    exact = ["max", "min", "argmax", "argmin", "sort", "median", "any", "all", "count_nonzero", "nanmax"]
    rounded = ["sum", "prod", "mean", "var", "cumsum", "cumprod", "ptp", "nansum"]
    for trial in range(40):
        shape = tuple(generator.integers(1, 6, generator.integers(1, 4)))
        values = generator.choice(some, shape) if trial % 2 else numbers(trial, *shape)
        axis = int(generator.integers(-len(shape), len(shape))) if trial % 3 else None
        made = [getattr(float32, name)(clear.array(values, owner=0), axis=axis) for name in exact + rounded]
        for name, got in zip(exact + rounded, clear.reveal(*made), strict=True):
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # slices of NaN alone
                want = getattr(np, name)(values, axis=axis)
            assert got.shape == np.shape(want), name
            tolerance = 1e-5 if name in rounded else 0
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=name)


def test_rounding_of_any_bits(clear: float32.Pair) -> None:
    bits = np.random.default_rng(1).integers(0, 2**32, 20000, np.uint32)
    bits[::2] = bits[::2] & 0x80FFFFFF | np.random.default_rng(2).integers(120, 153, 10000, np.uint32) << 23
    values = bits.view(np.float32)
    values = np.where(abs(values) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), values), values)
    x = clear.array(values, owner=0)
    with np.errstate(all="ignore"):
        for name in ("floor", "ceil", "trunc", "rint", "sign"):
            same(getattr(float32, name)(x), getattr(np, name)(values))


def test_rests_of_integers_are_exact(clear: float32.Pair) -> None:
    generator = np.random.default_rng(1)
    x = generator.integers(-(2**24), 2**24, 5000) >> generator.integers(0, 22, 5000)
    y = np.where(generator.random(5000) < 0.5, 1, -1) * (generator.integers(1, 2**24, 5000) >> 8)
    y = np.where(y == 0, 3, y)
    x[:1000] = x[:1000] // y[:1000] * y[:1000]  # no rest
    quotient, rest = float32.divmod(clear.array(x, owner=0), clear.array(y, owner=1))
    assert (quotient.reveal() == x // y).all()
    assert (rest.reveal() == x % y).all()


def test_counts_are_right_for_all_numbers_of_rows(clear: float32.Pair) -> None:
    for n in (*range(12), 64, 300, 1027):
        flags = np.random.default_rng(n).random((n, 3)) < 0.7
        got = clear.public(flags).sum(axis=0)
        assert got.dtype == np.float32
        assert got.reveal().tolist() == flags.sum(axis=0).tolist()
        assert clear.public(np.ones(n, bool)).sum().reveal() == n


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_linear_algebra(clear: float32.Pair, shape: tuple[int, ...]) -> None:
    for n in (1, 2, 3, 6):
        a, b = numbers(n, *shape, n, n), numbers(n + 7, *shape, n, 2)
        a[..., 0, 0] = 0 if n > 1 else 2  # pivots are needed
        x, y = clear.array(a, owner=0), clear.array(b, owner=1)
        for linalg in (float32.linalg, np.linalg):
            same(linalg.solve(x, y), np.linalg.solve(a, b), near=2e-4)
            vector = y[..., 0].ravel()[:n]
            want = np.linalg.solve(a, np.broadcast_to(vector.reveal()[:, None], (*shape, n, 1)))[..., 0]
            same(linalg.solve(x, vector), want, near=2e-4)
            same(linalg.inv(x), np.linalg.inv(a), near=2e-4)
            same(linalg.det(x), np.linalg.det(a), near=2e-5)
            positive = a @ np.swapaxes(a, -1, -2) + np.eye(n, dtype=np.float32)
            lower = linalg.cholesky(clear.array(np.tril(positive), owner=0))
            same(lower, np.linalg.cholesky(positive), near=1e-5)
            upper = float32.linalg.cholesky(clear.array(np.triu(positive), owner=0), upper=True)
            same(upper, np.swapaxes(np.linalg.cholesky(positive), -1, -2), near=1e-5)
    same(
        float32.linalg.solve(clear.array(np.eye(3)[[2, 0, 1]], owner=0), clear.array([1, 2, 3], owner=0)),
        np.array([2, 3, 1], np.float32),
    )
    assert np.isnan(NUMPY.linalg.cholesky(clear.array([[-1.0]], owner=0)).reveal()).all()
    assert not np.isfinite(NUMPY.linalg.inv(clear.array(np.zeros((2, 2)), owner=0)).reveal()).any()


def test_weights_along_axes(clear: float32.Pair) -> None:
    weights = abs(Z[:, 0, :])
    x, w = clear.array(Z, owner=0), clear.array(weights.T, owner=1)
    want = np.average(Z, axis=(0, 2), weights=np.broadcast_to(weights[:, None], Z.shape))
    same(float32.average(x, axis=(2, 0), weights=w), want, near=2e-6)
