"""What orders numbers: by trees and networks, whose comparisons are the same for all data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from megrez.float32._arranging import concatenate, stack
from megrez.float32._arrays import Array, Operand, Places, function, number
from megrez.float32._elementwise import (
    add,
    divide,
    isnan,
    less,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    multiply,
    subtract,
    where,
)
from megrez.float32._reductions import along, put


def _first(
    beats: Callable[[Array, Array], Array], name: str, a: Array, axis: int | None, keep: bool
) -> Array:
    """The place of the best row; of equals the first, and the first NaN if there is one.

    Neighbours are joined, so that what is on the left comes first.
    """
    x = number(a)
    terms, shaped = along(x, axis)
    if not len(terms):
        raise ValueError(f"attempt to get {name} of an empty sequence")
    at = x._pair.public(np.broadcast_to(np.arange(len(terms), dtype=np.float32)[:, None], terms.shape))
    unknown = isnan(terms)
    while len(terms) > 1:
        pairs = 2 * (len(terms) // 2)
        left, right = slice(0, pairs, 2), slice(1, pairs, 2)
        better = logical_xor(beats(terms[right], terms[left]), unknown[right])  # no NaN beats
        later = logical_and(better, logical_not(unknown[left]))
        terms = concatenate([where(later, terms[right], terms[left]), terms[pairs:]])
        at = concatenate([where(later, at[right], at[left]), at[pairs:]])
        unknown = concatenate([logical_or(unknown[left], unknown[right]), unknown[pairs:]])
    return shaped(at[0], keep)


@function(counts=True)
def argmax(a: Operand, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """The place of the largest number, as a number; of equals the first, or the first NaN."""
    return _first(lambda new, old: less(old, new), "argmax", a, axis, keepdims)


@function(counts=True)
def argmin(a: Operand, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """The place of the smallest number, as a number; of equals the first, or the first NaN."""
    return _first(less, "argmin", a, axis, keepdims)


def network(n: int) -> Iterator[tuple[Places, Places]]:
    """The steps of Batcher's merge exchange (Knuth, vol. 3, 5.2.2, algorithm M): what to compare at once."""
    p = 1
    while p < n:
        k = p
        while k:
            i = np.arange(n - k)
            low = i[((i - k % p) // k % 2 == 0) & (i >= k % p) & (i // (2 * p) == (i + k) // (2 * p))]
            yield low, low + k
            k //= 2
        p *= 2


def _sorted(rows: Array) -> Array:
    """Rows in order, lane by lane; NaN last."""
    if rows.is_truth:
        for low, high in network(len(rows)):
            both = logical_and(rows[low], rows[high])
            either = rows[low] ^ rows[high] ^ both
            rows = put(rows, np.concatenate([low, high]), concatenate([both, either]))
        return rows
    unknown = isnan(rows)
    rows = where(unknown, np.inf, rows)
    for low, high in network(len(rows)):
        a, b = rows[low], rows[high]
        swap = less(b, a)
        rows = put(rows, np.concatenate([low, high]), concatenate([where(swap, b, a), where(swap, a, b)]))
    ordered: Array = where(_sorted(unknown), np.nan, rows)
    return ordered


@function
def sort(a: Operand, axis: int | None = -1, kind: str | None = None) -> Any:
    """The numbers in order, NaN last; by a network of log n (log n + 1) / 2 steps, whatever `kind` says.

    Zeros of either sign are equal, and come in any order.
    """
    del kind
    if axis is None:
        return _sorted(a.ravel())
    rows = _sorted(a._at(np.moveaxis(a._where, axis, 0)))
    return rows._at(np.moveaxis(rows._where, 0, axis))


@function
def quantile(a: Operand, q: Any, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Any:
    """The numbers below which public parts of all lie, linearly between neighbours; NaN if there is one."""
    parts = np.asarray(q, np.float64)
    if not ((parts >= 0) & (parts <= 1)).all():
        raise ValueError("Quantiles must be in the range [0, 1]")
    terms, shaped = along(number(a), axis)
    if not terms.size:
        raise ValueError("there is no quantile of nothing")
    rows, at = _sorted(terms), parts.ravel() * (len(terms) - 1)
    low = np.minimum(np.floor(at).astype(int), max(len(terms) - 2, 0))
    apart = subtract(rows[np.minimum(low + 1, len(terms) - 1)], rows[low])
    found = add(rows[low], multiply(apart, (at - low)[:, None]))
    found = where(isnan(rows[-1]), np.nan, found)
    one = [shaped(row, keepdims) for row in found]
    return stack(one).reshape(parts.shape + one[0].shape)


@function
def percentile(
    a: Operand, q: Any, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False
) -> Any:
    """As `quantile`, in hundredths."""
    return quantile(a, np.asarray(q, np.float64) / 100, axis, keepdims=keepdims)


@function
def median(a: Operand, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Any:
    """The one in the middle, or the mean of the two; NaN if there is one."""
    terms, shaped = along(number(a), axis)
    if not terms.size:
        return shaped(a._pair.public(np.full(terms.shape[1], np.nan)), keepdims)
    rows, middle = _sorted(terms), len(terms) // 2
    found = rows[middle] if len(terms) % 2 else divide(add(rows[middle - 1], rows[middle]), 2.0)
    return shaped(where(isnan(rows[-1]), np.nan, found), keepdims)
