"""Reductions along axes, by trees, and running sums."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from megrez._tape import Value
from megrez.float32._arranging import concatenate, stack
from megrez.float32._arrays import (
    Array,
    Operand,
    Places,
    _lanes,
    arranged,
    function,
    number,
    registered,
    truth,
)
from megrez.float32._elementwise import (
    add,
    divide,
    fmax,
    fmin,
    isclose,
    isnan,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    sqrt,
    subtract,
    where,
)

Axis: TypeAlias = "int | tuple[int, ...] | None"

_TABLE = 8
"""So many bits of a count are looked up at once, which takes 2^8 selections."""


def along(x: Array, axis: Axis) -> tuple[Array, Callable[[Array, bool], Array]]:
    """The terms of a reduction as rows, and what gives the row that is left its shape."""
    every = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = [a % x.ndim if -x.ndim <= a < x.ndim else a for a in map(operator.index, every)]
    places = np.moveaxis(x._where, axes, range(len(axes)))
    rest = places.shape[len(axes) :]
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    terms = int(np.prod(places.shape[: len(axes)], dtype=np.int64))

    def shaped(row: Array, keepdims: bool) -> Array:
        return row.reshape(kept if keepdims else rest)

    return x._at(places.reshape(terms, int(np.prod(rest, dtype=np.int64)))), shaped


def fold(better: Callable[..., Any], terms: Array) -> Array:
    """The row that is left: n rows become half as many by joining row i and row i + ceil(n/2), and so on."""
    while len(terms) > 1:
        half = (len(terms) + 1) // 2
        pairs = len(terms) - half
        terms = concatenate([better(terms[:pairs], terms[half:]), terms[pairs:half]])
    return terms[0]


def _folding(
    better: Callable[..., Any], empty: float | bool | None, name: str, a: Array, axis: Axis, keepdims: bool
) -> Array:
    terms, shaped = along(a, axis)
    if len(terms):
        return shaped(fold(better, terms), keepdims)
    if empty is None:
        raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
    return shaped(a._pair.public(np.full(terms.shape[1], empty)), keepdims)


@function
def sum(a: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum: n terms become half as many by adding term i + ceil(n/2) to term i, and so on.

    Truth values are counted as bits, which costs next to nothing.
    """
    terms, shaped = along(a, axis)
    lanes = terms.shape[1]
    if not terms.size:
        return shaped(a._pair.public(np.zeros(lanes, np.float32)), keepdims)
    if a.is_truth:
        return shaped(_count(terms), keepdims)
    of = terms._vector()
    value = Value(a._pair, lanes, {"Sum": {"of": of.name, "lanes": lanes}}, [of])
    return shaped(Array(value, _lanes((lanes,))), keepdims)


@function
def fused_sum(a: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum, rounded once: nearer to the exact sum than `sum`, in fewer rounds and bytes where it is long.

    Before its rounding it is off by less than 1 ULP of the sum of the terms' magnitudes, up to 4096 terms.
    """
    terms, shaped = along(number(a), axis)
    lanes = terms.shape[1]
    if not terms.size:
        return shaped(a._pair.public(np.zeros(lanes, np.float32)), keepdims)
    of = terms._vector()
    value = Value(a._pair, lanes, {"FusedSum": {"of": of.name, "lanes": lanes}}, [of])
    return shaped(Array(value, _lanes((lanes,))), keepdims)


def _count(terms: Array) -> Array:
    """How many rows are true: full adders on all columns at once, then numbers by their bits."""
    columns: dict[int, Array] = {0: terms}
    while builtins.any(len(rows) > 1 for rows in columns.values()):
        carried: dict[int, list[Array]] = {}
        for weight, rows in columns.items():
            third = len(rows) // 3 or len(rows) // 2
            a, b, c = rows[:third], rows[third : 2 * third], rows[2 * third : 3 * third]
            half = third and not len(c)  # two rows are left: a half adder
            carry = logical_and(a, b) if half else logical_xor(logical_and(a ^ c, b ^ c), c)
            bits = (a ^ b) if half else (a ^ b ^ c)
            carried.setdefault(weight, []).extend([bits, rows[3 * third :]] if third else [rows])
            if third:
                carried.setdefault(weight + 1, []).append(carry)
        columns = {weight: concatenate(parts) for weight, parts in carried.items()}
    bits = [columns[weight][0] for weight in range(len(columns))]
    digits = [_looked_up(bits[i : i + _TABLE], 2.0**i) for i in range(0, len(bits), _TABLE)]
    return fold(add, stack(digits))


def _looked_up(bits: list[Array], unit: float) -> Array:
    """The number of so many units that the bits say, lowest first."""
    table: Any = np.arange(2.0 ** len(bits), dtype=np.float32)[:, None] * np.float32(unit)
    for bit in bits:
        table = where(bit, table[1::2], table[::2])
    found: Array = table[0]
    return found


@function
def prod(a: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The product, by halving as `sum`."""
    return _folding(multiply, 1.0, "multiply", number(a), axis, keepdims)


@function
def max(a: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest number, by halving; NaN if there is one."""
    return _folding(logical_or if a.is_truth else maximum, None, "maximum", a, axis, keepdims)


@function
def min(a: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The smallest number, by halving; NaN if there is one."""
    return _folding(logical_and if a.is_truth else minimum, None, "minimum", a, axis, keepdims)


registered(max, "amax")
registered(min, "amin")


@function
def ptp(a: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest number less the smallest one."""
    return subtract(max(a, axis, keepdims), min(a, axis, keepdims))


@function
def any(a: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether one is true, or not zero."""
    return _folding(logical_or, False, "logical_or", truth(a), axis, keepdims)


@function
def all(a: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether all are true, or not zero."""
    return _folding(logical_and, True, "logical_and", truth(a), axis, keepdims)


@function(counts=True)
def count_nonzero(a: Operand, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """How many are true, or not zero, as a number."""
    return sum(truth(a), axis, keepdims)


@function
def array_equal(a1: Operand, a2: Operand) -> Any:
    """Whether the shapes are the same and all elements equal; the former is no secret."""
    return all(a1 == a2) if a1.shape == a2.shape else a1._pair.public(False)


@function
def allclose(a: Operand, b: Operand, rtol: float = 1e-5, atol: float = 1e-8) -> Any:
    """Whether `isclose` holds everywhere."""
    return all(isclose(a, b, rtol, atol))


@function
def nansum(a: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum of what is not NaN."""
    return sum(where(isnan(a), 0.0, a), axis, keepdims)


@function
def nanmax(a: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest number that is not NaN; NaN if there is none."""
    return _folding(fmax, None, "fmax", number(a), axis, keepdims)


@function
def nanmin(a: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The smallest number that is not NaN; NaN if there is none."""
    return _folding(fmin, None, "fmin", number(a), axis, keepdims)


@function
def nanmean(a: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The mean of what is not NaN, whose number is counted."""
    unknown = isnan(a)
    return divide(sum(where(unknown, 0.0, a), axis, keepdims), sum(logical_not(unknown), axis, keepdims))


@function
def mean(a: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum divided by the number of terms."""
    return divide(sum(a, axis, keepdims), np.float32(len(along(a, axis)[0])))


@function
def average(a: Operand, axis: Axis = None, weights: Operand | None = None, *, keepdims: bool = False) -> Any:
    """The mean, or the sum of weighted terms divided by that of the weights."""
    if weights is None:
        return mean(a, axis, keepdims)
    if weights.shape != a.shape:
        if axis is None:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        axes = axis if isinstance(axis, tuple) else (axis,)
        if weights.shape != tuple(a.shape[i] for i in axes):
            raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
        at = [i % a.ndim for i in axes]
        rows = np.transpose(weights._where, np.argsort(at))
        weights = weights._at(rows.reshape([n if i in at else 1 for i, n in enumerate(a.shape)]))
    shares = np.broadcast_to(weights._where, a.shape)
    return divide(sum(multiply(a, weights), axis, keepdims), sum(weights._at(shares), axis, keepdims))


@function
def var(a: Operand, axis: Axis = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """The mean square of the distances from the mean; with `ddof` degrees of freedom less."""
    away = subtract(a, mean(a, axis, True))
    return divide(sum(multiply(away, away), axis, keepdims), np.float32(len(along(a, axis)[0]) - ddof))


@function
def std(a: Operand, axis: Axis = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """The square root of `var`."""
    return sqrt(var(a, axis, ddof, keepdims))


def put(rows: Array, at: Places, new: Array) -> Array:
    """The rows with others at some places; free."""
    order = np.arange(len(rows))
    order[at] = len(rows) + np.arange(len(at))
    return arranged([rows, new], lambda of: np.concatenate(of)[order])  # type: ignore[no-any-return]


def _running(join: Callable[..., Any], a: Array, axis: int | None) -> Array:
    """All beginnings of the rows, joined: in step k odd runs of 2^k rows take on the last row before."""
    flat = number(a).ravel() if axis is None else number(a)
    rows = flat._at(np.moveaxis(flat._where, axis or 0, 0))
    step = 1
    while step < len(rows):
        at = np.flatnonzero(np.arange(len(rows)) & step)
        rows = put(rows, at, join(rows[(at & -step) - 1], rows[at]))
        step *= 2
    return rows._at(np.moveaxis(rows._where, 0, axis or 0))


@function
def cumsum(a: Operand, axis: int | None = None) -> Any:
    """Running sums, in log n steps: rounded in another order than NumPy's."""
    return _running(add, a, axis)


@function
def cumprod(a: Operand, axis: int | None = None) -> Any:
    """Running products, in log n steps."""
    return _running(multiply, a, axis)
