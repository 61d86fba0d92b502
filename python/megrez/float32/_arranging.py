"""Arrays of the same elements at other places: all of it free, for shapes and places are public."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from megrez._native import Error
from megrez.float32._arrays import (
    FUNCTIONS,
    Array,
    Operand,
    Places,
    arranged,
    arrays_in,
    function,
    lifted,
    pair_of,
    registered,
)

# fmt: off
_FIRST = [
    "array_split", "broadcast_to", "delete", "diag", "diagflat", "diagonal", "dsplit", "expand_dims", "flip",
    "fliplr", "flipud", "hsplit", "moveaxis", "ravel", "repeat", "reshape", "resize", "roll", "rollaxis",
    "rot90", "split", "squeeze", "swapaxes", "take", "take_along_axis", "tile", "transpose", "tril", "triu",
    "vsplit",
]
"""Of one array, the first argument."""
# fmt: on
_EVERY = ["append", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "meshgrid"]
"""Of all arguments that are given by position, but for `append`'s axis."""
_LIST = ["concatenate", "stack", "hstack", "vstack", "dstack", "column_stack"]
"""Of the arrays in a list."""
_ALIASES = {"concatenate": "concat", "transpose": "permute_dims"}


def _arranging(name: str, operands: Callable[[tuple[Any, ...]], int], listed: bool = False) -> None:
    """NumPy's function, done to the places. Public arrays keep their types."""
    plain = getattr(np, name)

    def function(*args: Any, **options: Any) -> Any:
        given = args[0] if listed and args else args[: operands(args)]
        if isinstance(given, Array):
            given = tuple(given)
        of, rest = list(given), () if not args else args[1 if listed else operands(args) :]
        pair = pair_of(of)
        if arrays_in([*rest, *options.values()]):
            raise Error(f"`{name}` takes secrets first, and none as places, axes or options")
        if pair is None:
            return plain(*args, **options)
        if options.get("out") is not None:
            raise Error(f"`{name}` makes a new array: leave out `out`")

        def how(places: list[Places]) -> Any:
            return plain(places, *rest, **options) if listed else plain(*places, *rest, **options)

        return arranged([lifted(x, pair) for x in of], how)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"As `numpy.{name}`; free."
    registered(function, *([_ALIASES[name]] if name in _ALIASES else []))


for _name in _FIRST:
    _arranging(_name, lambda _: 1)
for _name in _EVERY:
    _arranging(_name, len if _name != "append" else lambda _: 2)
for _name in _LIST:
    _arranging(_name, lambda _: 1, listed=True)
del _name

concatenate, stack, diagonal, broadcast_arrays = (
    FUNCTIONS[name] for name in ("concatenate", "stack", "diagonal", "broadcast_arrays")
)


def insert(arr: Operand, obj: Any, values: Operand, axis: int | None = None) -> Any:
    """As `numpy.insert`; free."""
    pair = pair_of([arr, values])
    if pair is None:
        return np.insert(arr, obj, values, axis)
    both = [lifted(arr, pair), lifted(values, pair)]
    return arranged(both, lambda of: np.insert(of[0], obj, of[1], axis))


def pad(array: Operand, pad_width: Any, mode: str = "constant") -> Any:
    """As `numpy.pad`, with zeros or with elements of the array; free."""
    if not isinstance(array, Array):
        return np.pad(array, pad_width, mode)  # type: ignore[call-overload]
    if mode not in ("constant", "edge", "reflect", "symmetric", "wrap"):
        raise Error(
            f"pad in the mode {mode!r}: there are constant (zeros), edge, reflect, symmetric and wrap"
        )
    return arranged([array], lambda places: np.pad(places[0], pad_width, mode))  # type: ignore[call-overload]


def _like(name: str, value: float) -> Callable[..., Any]:
    def like(a: Operand, dtype: npt.DTypeLike | None = None, *, shape: Any = None) -> Any:
        if not isinstance(a, Array):
            return getattr(np, name)(a, dtype, shape=shape)
        filled = np.full(a.shape if shape is None else shape, value, np.float32)
        return a._pair.public(filled.astype(a.dtype if dtype is None else dtype))

    like.__name__ = like.__qualname__ = name
    like.__doc__ = f"An array of the shape of another one, full of {value:g}."
    return registered(like)


zeros_like, ones_like = _like("zeros_like", 0), _like("ones_like", 1)
registered(zeros_like, "empty_like")


def full_like(a: Operand, fill_value: Operand, *, shape: Any = None) -> Any:
    """An array of the shape of another one, full of a number, which may be secret."""
    pair = pair_of([a, fill_value])
    if pair is None:
        return np.full_like(a, fill_value, shape=shape)
    wanted = np.shape(a) if shape is None else shape
    return FUNCTIONS["broadcast_to"](lifted(fill_value, pair), wanted)


def shape(a: Operand) -> tuple[int, ...]:
    """The lengths of the axes."""
    return a.shape if isinstance(a, Array) else np.shape(a)


def ndim(a: Operand) -> int:
    """The number of axes."""
    return a.ndim if isinstance(a, Array) else np.ndim(a)


def size(a: Operand, axis: int | None = None) -> int:
    """The number of elements, or of those along an axis."""
    return np.size(a._where if isinstance(a, Array) else a, axis)


def copy(a: Operand) -> Any:
    """The array, for arrays do not change."""
    return a if isinstance(a, Array) else np.copy(a)


for _plain in (insert, pad, full_like, shape, ndim, size, copy):
    registered(_plain)


@function
def diff(a: Operand, n: int = 1, axis: int = -1) -> Any:
    """The differences of neighbours, n times; of truth values whether they differ."""
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if a.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional")
    apart = FUNCTIONS["not_equal"] if a.is_truth else FUNCTIONS["subtract"]
    rows = FUNCTIONS["moveaxis"](a, axis, 0)
    for _ in range(n):
        rows = apart(rows[1:], rows[:-1])
    return FUNCTIONS["moveaxis"](rows, 0, axis)
