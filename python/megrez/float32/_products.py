"""Products of matrices and their kin: products are rounded, then summed as in `sum`."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import numpy as np

from megrez._native import Error
from megrez._tape import Value
from megrez.float32._arranging import diagonal
from megrez.float32._arrays import Array, Operand, _lanes, function, number
from megrez.float32._elementwise import multiply, subtract
from megrez.float32._reductions import sum


@function
def matmul(x1: Operand, x2: Operand) -> Any:
    """The matrix product: products are rounded, then summed as in `sum`."""
    return _matrices("matmul", x1, x2, lambda x, y: sum(x * y, axis=-2))


@function
def fused_matmul(x1: Operand, x2: Operand) -> Any:
    """The matrix product, each element rounded once: nearer to the exact one, in fewer rounds and bytes.

    Before its rounding an element is off by less than 1 ULP of the sum of its products' magnitudes, up to
    1024 of them.
    """
    return _matrices("fused_matmul", x1, x2, _fused)


def _fused(x: Array, y: Array) -> Array:
    """The sums of products over the last axis but one, as arrays of one shape by NumPy's broadcasting."""
    places = [np.moveaxis(each, -2, 0) for each in np.broadcast_arrays(x._where, y._where)]
    shape = places[0].shape[1:]
    lanes = int(np.prod(shape, dtype=np.int64))
    if not places[0].size:
        return x._pair.public(np.zeros(shape, np.float32))
    of = [each._at(at)._vector() for each, at in zip((x, y), places, strict=True)]
    value = Value(x._pair, lanes, {"Dot": {"of": [one.name for one in of], "lanes": lanes}}, of)
    return Array(value, _lanes(shape))


def _matrices(name: str, x1: Array, x2: Array, product_of: Callable[[Array, Array], Array]) -> Array:
    """A matrix product of what NumPy takes for one; `product_of` multiplies and sums over the axis -2."""
    x, y = number(x1), number(x2)
    if 0 in (x.ndim, y.ndim):
        raise ValueError(f"{name}: Input operand does not have enough dimensions: for single numbers use *")
    left = x if x.ndim > 1 else x[None, :]
    right = y if y.ndim > 1 else y[:, None]
    if left.shape[-1] != right.shape[-2]:
        raise ValueError(f"{name} of shapes {x.shape} and {y.shape}: the inner lengths differ")
    product = product_of(left[..., :, :, None], right[..., None, :, :])
    product = product if y.ndim > 1 else product[..., 0]
    return product if x.ndim > 1 else product[..., 0, :] if y.ndim > 1 else product[..., 0]


@function
def tensordot(a: Operand, b: Operand, axes: Any = 2) -> Any:
    """The sum of products over axes of both, as a matrix product."""
    if isinstance(axes, int):
        axes = (range(a.ndim - axes, a.ndim), range(axes))
    of_a, of_b = [[int(i) for i in np.atleast_1d(list(one) if np.iterable(one) else one)] for one in axes]
    if [a.shape[i] for i in of_a] != [b.shape[i] for i in of_b]:
        raise ValueError("shape-mismatch for sum")
    left = a._at(np.moveaxis(a._where, of_a, range(a.ndim - len(of_a), a.ndim)))
    right = b._at(np.moveaxis(b._where, of_b, range(len(of_b))))
    rest = left.shape[: a.ndim - len(of_a)], right.shape[len(of_b) :]
    terms = int(np.prod(right.shape[: len(of_b)], dtype=np.int64))
    rows, columns = (int(np.prod(shape, dtype=np.int64)) for shape in rest)
    return matmul(left.reshape(rows, terms), right.reshape(terms, columns)).reshape((*rest[0], *rest[1]))


@function
def dot(a: Operand, b: Operand) -> Any:
    """The product of numbers, vectors or matrices; of more axes, over a's last and b's last but one."""
    if 0 in (a.ndim, b.ndim):
        return multiply(a, b)
    return matmul(a, b) if b.ndim == 1 or (a.ndim < 3 and b.ndim < 3) else tensordot(a, b, (-1, -2))


@function
def vdot(a: Operand, b: Operand) -> Any:
    """The product of all elements as vectors."""
    return matmul(a.ravel(), b.ravel())


@function
def inner(a: Operand, b: Operand) -> Any:
    """The sum of products over the last axes."""
    return multiply(a, b) if 0 in (a.ndim, b.ndim) else tensordot(a, b, (-1, -1))


@function
def outer(a: Operand, b: Operand) -> Any:
    """All products of an element of a and one of b."""
    return multiply(a.ravel()[:, None], b.ravel())


@function
def kron(a: Operand, b: Operand) -> Any:
    """The Kronecker product."""
    axes = np.maximum(a.ndim, b.ndim)
    left, right = (x.reshape((1,) * (axes - x.ndim) + x.shape) for x in (a, b))
    every = tuple(range(axes))
    rows = np.expand_dims(left._where, [2 * i + 1 for i in every])
    columns = np.expand_dims(right._where, [2 * i for i in every])
    product = multiply(left._at(rows), right._at(columns))
    return product.reshape([n * m for n, m in zip(left.shape, right.shape, strict=True)])


@function
def cross(a: Operand, b: Operand) -> Any:
    """The vector product of vectors of three numbers, in the last axis."""
    if a.shape[-1:] != (3,) or b.shape[-1:] != (3,):
        raise ValueError("incompatible dimensions for cross product (dimension must be 3)")
    after, before = [1, 2, 0], [2, 0, 1]
    products = multiply(a[..., after], b[..., before]), multiply(a[..., before], b[..., after])
    return subtract(*products)


@function
def trace(a: Operand, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The sum along the diagonal."""
    return sum(diagonal(a, offset, axis1, axis2), axis=-1)


@function
def einsum(subscripts: str, *operands: Operand, optimize: Any = False) -> Any:
    """Products summed over the axes that the result lacks, operand by operand from the left."""
    del optimize
    if not isinstance(subscripts, str):
        raise Error("einsum takes subscripts as a string, such as 'ij,jk->ik'")
    shapes = [np.broadcast_to(np.float32(0), x.shape) for x in operands]
    np.einsum_path(subscripts, *shapes)  # has NumPy's words for what is wrong
    inputs, output = _labels(subscripts.replace(" ", ""), [x.ndim for x in operands])
    parts = [_distinct(number(x), labels) for x, labels in zip(operands, inputs, strict=True)]
    labels, product = parts[0]
    for i, part in enumerate([*parts[1:], ("", None)], start=1):
        later = set(output).union(*(names for names, _ in parts[i:]))
        labels, product = _summed(labels, product, later)
        names, factor = part
        if factor is not None:
            names, factor = _summed(
                names, factor, set(output + labels).union(*(n for n, _ in parts[i + 1 :]))
            )
            union = labels + "".join(name for name in names if name not in labels)
            product = multiply(_placed(product, labels, union), _placed(factor, names, union))
            labels = union
    return product.transpose([labels.index(name) for name in output])


def _labels(subscripts: str, ndims: list[int]) -> tuple[list[str], str]:
    """The axes of every operand and of the result, with names in place of dots."""
    left, arrow, output = subscripts.partition("->")
    inputs = left.split(",")
    spare = [name for name in string.ascii_letters if name not in subscripts]
    hidden = [
        n - len(one.replace(".", "")) if "." in one else 0 for one, n in zip(inputs, ndims, strict=True)
    ]
    dots = "".join(spare[: max(hidden)])
    if not arrow:
        once = sorted(name for name in set(left) if name.isalpha() and left.count(name) == 1)
        output = "..." + "".join(once)
    named = [one.replace("...", dots[len(dots) - n :]) for one, n in zip(inputs, hidden, strict=True)]
    return named, output.replace("...", dots)


def _distinct(x: Array, labels: str) -> tuple[str, Array]:
    """Diagonals of the axes that have one name."""
    names = "".join(dict.fromkeys(labels))
    return names, x if names == labels else x._at(np.einsum(f"{labels}->{names}", x._where))


def _summed(labels: str, x: Array, later: set[str]) -> tuple[str, Array]:
    """Without the axes that nothing later has."""
    over = tuple(i for i, name in enumerate(labels) if name not in later)
    return "".join(name for name in labels if name in later), sum(x, axis=over) if over else x


def _placed(x: Array, labels: str, union: str) -> Array:
    """With the axes in the order of the union, of length 1 where there is none."""
    ordered = x.transpose([labels.index(name) for name in union if name in labels])
    return ordered[tuple(slice(None) if name in labels else None for name in union)]
