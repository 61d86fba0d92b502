"""Linear algebra of small matrices, by NumPy's names: `numpy.linalg.solve(a, b)` works as well.

A matrix that has no solution, or is not positive definite, gives infinities or NaN and not an error: an error
would tell of the secret.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from megrez.float32._arranging import concatenate, stack
from megrez.float32._arrays import FUNCTIONS, Array, Operand, function, number
from megrez.float32._elementwise import (
    absolute,
    divide,
    less,
    logical_xor,
    multiply,
    negative,
    not_equal,
    power,
    sqrt,
    subtract,
    where,
)
from megrez.float32._reductions import fold, max, min, put, sum

__all__ = ["cholesky", "det", "inv", "norm", "solve"]


def __getattr__(name: str) -> Any:
    """What is not here is NumPy's, of public numbers."""
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(np.linalg, name)


@function(name="linalg.norm")
def norm(x: Operand, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The length of vectors, of any order, or of matrices, of order "fro", 1 or inf, also negative."""
    x = number(x)
    axes = (
        tuple(axis) if isinstance(axis, tuple | list) else tuple(range(x.ndim)) if axis is None else (axis,)
    )
    if (ord is None and (axis is None or len(axes) < 3)) or (len(axes), ord) in ((1, 2), (2, "fro")):
        return sqrt(sum(multiply(x, x), axes, keepdims))
    size = absolute(x)
    if len(axes) == 1 and not isinstance(ord, str):
        return _vector_norm(size, ord, axes, keepdims)
    if len(axes) != 2 or ord not in (1, -1, np.inf, -np.inf):
        raise ValueError(
            f"no norm of order {ord!r} of {len(axes)} axes: of two there are 'fro', 1, inf, -1, -inf"
        )
    over, along = axes if ord in (1, -1) else axes[::-1]
    best = (max if ord > 0 else min)(sum(size, over, keepdims=True), along, keepdims=True)
    return best if keepdims else FUNCTIONS["squeeze"](best, axes)


def _vector_norm(size: Array, ord: float, axes: tuple[int, ...], keepdims: bool) -> Any:
    if ord in (np.inf, -np.inf):
        return (max if ord > 0 else min)(size, axes, keepdims)
    if ord in (0, 1):
        return sum(not_equal(size, 0.0) if ord == 0 else size, axes, keepdims)
    return power(sum(power(size, ord), axes, keepdims), 1 / ord)


def _square(a: Array) -> Array:
    """The matrices with their rows and columns as the first axes."""
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"arrays of square matrices are due in the last two axes, not the shape {a.shape}")
    return _rows_first(number(a))


def _rows_first(a: Array) -> Array:
    return a._at(np.moveaxis(a._where, (-2, -1), (0, 1)))


def _rows_last(a: Array) -> Array:
    return a._at(np.moveaxis(a._where, (0, 1), (-2, -1)))


def _pivoted(rows: Array) -> tuple[Array, Array]:
    """The row with the largest first element on top, by a tree of exchanges; and whether these were odd."""
    odd = rows._pair.public(np.zeros(rows.shape[2:], np.bool_))
    places = np.arange(len(rows))
    while len(places) > 1:
        half = len(places) // 2
        top, bottom = places[:half], places[half : 2 * half]
        a, b = rows[top], rows[bottom]
        swap = less(absolute(a[:, 0]), absolute(b[:, 0]))
        exchanged = concatenate([where(swap[:, None], b, a), where(swap[:, None], a, b)])
        rows = put(rows, np.concatenate([top, bottom]), exchanged)
        odd = logical_xor(odd, fold(logical_xor, swap))
        places = np.concatenate([top, places[2 * half :]])
    return rows, odd


def _solved(a: Array, b: Array) -> Array:
    """Gauss-Jordan elimination with the largest pivot of each column, all rows at once: n steps."""
    batch = np.broadcast_shapes(a.shape[2:], b.shape[2:])
    a, b = [x._at(np.broadcast_to(x._where, x.shape[:2] + batch)) for x in (a, b)]
    rows: Array = concatenate([a, b], axis=1)
    n = len(a)
    for done in range(n):  # rows[:done] are those of the columns that are gone
        rest, _ = _pivoted(rows[done:])
        others = concatenate([rows[:done], rest[1:]])
        pivot = divide(rest[0, 1:], rest[0, 0])
        others = subtract(others[:, 1:], multiply(others[:, :1], pivot))
        rows = concatenate([others[:done], pivot[None], others[done:]])
    return rows


def _aligned(a: Array, axes: int) -> Array:
    """With so many axes behind rows and columns, new ones first."""
    return a._at(a._where.reshape(a.shape[:2] + (1,) * (axes - a.ndim + 2) + a.shape[2:]))


@function(name="linalg.solve")
def solve(a: Operand, b: Operand) -> Any:
    """The solutions of a x = b, for a vector b or for matrices: 170 rounds or so for each row of a."""
    matrix = _square(a)
    right = b[:, None] if b.ndim == 1 else b
    if right.ndim < 2 or right.shape[-2] != a.shape[-1]:
        raise ValueError(f"solve of shapes {a.shape} and {b.shape}: the number of rows differs")
    columns = _rows_first(number(right))
    axes = np.maximum(matrix.ndim, columns.ndim) - 2
    solved = _rows_last(_solved(_aligned(matrix, axes), _aligned(columns, axes)))
    return solved[..., 0] if b.ndim == 1 else solved


@function(name="linalg.inv")
def inv(a: Operand) -> Any:
    """The inverse: what `solve` gives for the unit matrix."""
    _square(a)
    return solve(a, a._pair.public(np.eye(a.shape[-1], dtype=np.float32)))


@function(name="linalg.det")
def det(a: Operand) -> Any:
    """The determinant, by elimination with the largest pivot of each column."""
    rows = _square(a)
    odd, pivots = rows._pair.public(np.zeros(rows.shape[2:], np.bool_)), []
    while len(rows):
        rows, swapped = _pivoted(rows)
        odd = logical_xor(odd, swapped)
        pivots.append(rows[0, 0])
        factors = divide(rows[1:, :1], rows[0, 0])
        rows = subtract(rows[1:, 1:], multiply(factors, rows[0, 1:]))
    product = fold(multiply, stack(pivots)) if pivots else a._pair.public(np.ones(a.shape[:-2], np.float32))
    return where(odd, negative(product), product)


@function(name="linalg.cholesky")
def cholesky(a: Operand, *, upper: bool = False) -> Any:
    """The triangle L of a = L Lᵀ, of which the lower triangle of a is read, or Lᵀ, of the upper one."""
    if upper:
        return cholesky(a.mT).mT
    rest, n, columns = _square(a), a.shape[-1], []
    for done in range(n):
        root = sqrt(rest[0, 0])
        below = divide(rest[1:, 0], root)
        above = a._pair.public(np.zeros((done, *rest.shape[2:]), np.float32))
        columns.append(concatenate([above, root[None], below]))
        i, j = np.tril_indices(n - done - 1)
        lower = subtract(rest[1 + i, 1 + j], multiply(below[i], below[j]))
        at = np.zeros((n - done - 1,) * 2, np.int64)
        at[i, j] = at[j, i] = np.arange(len(i))
        rest = lower[at]
    return _rows_last(stack(columns, axis=1)) if columns else number(a)
