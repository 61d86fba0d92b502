"""Single-precision arrays that two parties hold in shares: numerical code runs on them with another import.

    from megrez import float32 as np

    with np.local() as pair:
        x = pair.array([0.5, 1.5, 2.5], owner=0)
        y = pair.array([1.0, 2.0, 3.0], owner=1)
        z = np.where(x < y, np.sqrt(x * y), np.exp(-x))
        print(z.sum().reveal())

Functions have the names that NumPy gives them, and `numpy.sqrt(x)` works as well as `float32.sqrt(x)`.
Nothing is computed before something is revealed; then the parties run what is needed for it, each
operation on as many numbers at once as the program allows. `clear()` instead of `local()` runs the same
in this process, without parties, with the same bits.

`connect` instead of `local` runs it at the parties of a cluster: two or three organisations run the same
program, each with its own inputs only.

What holds for rounding, infinities, NaN and denormals is in docs/float.md. Secrets decide nothing: use
`where` for conditions, and reveal what a loop should depend on.
"""

from __future__ import annotations

import builtins
import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from megrez import _native
from megrez._native import Error
from megrez._program import program
from megrez._tape import Cost, Tape, Value

__all__ = ["Array", "Cost", "Pair", "clear", "connect", "local"]  # and the functions, which are NumPy's

Operand: TypeAlias = "Array | npt.ArrayLike"
"""A secret array, or public numbers."""
Axis: TypeAlias = "int | tuple[int, ...] | None"


def __getattr__(name: str) -> Any:
    """What is not here is NumPy's: constants, and functions of public numbers."""
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(np, name)


class Pair(Tape):
    """Parties, or none. `local`, `connect` and `clear` make one; `cost` says what it has spent."""

    client: str | None = None
    """Who this process is among several clients; `None` where it plays all of them."""

    def array(
        self,
        values: npt.ArrayLike | None = None,
        *,
        owner: Literal[0, 1] | str,
        shape: int | tuple[int, ...] | None = None,
    ) -> Array:
        """Numbers that somebody brings: a client, by name, or without `connect` also a party, 0 or 1.

        The others learn their shape only. With `connect` the owner gives `values`, and the others give none
        but the `shape`.
        """
        place = self._owner(owner)
        if self.client is not None and self.client != owner:
            if values is not None:
                raise Error(f"these are `{owner}`'s numbers, not `{self.client}`'s: give the shape")
            if shape is None:
                raise Error(f"say the shape of what `{owner}` brings")
            places = _places((shape,) if isinstance(shape, int) else tuple(shape))
            return Array(Value(self, places.size, {"Input": {"owner": place, "lanes": places.size}}), places)
        if values is None:
            raise Error(f"`{owner}` brings these numbers: give them")
        bits = _bits(values)
        if shape is not None and bits.shape != ((shape,) if isinstance(shape, int) else tuple(shape)):
            raise Error(f"the numbers have the shape {bits.shape}, not {shape}")
        entry = {"Input": {"owner": place, "lanes": bits.size}}
        return Array(Value(self, bits.size, entry, bits=bits.ravel().tolist()), _places(bits.shape))

    def _owner(self, owner: int | str) -> int:
        """The number under which the parties know an owner."""
        if not isinstance(owner, str):
            if self.client is not None:
                raise Error("with connect() an owner is the name of a client")
            return owner
        if owner not in self.clients:
            self.clients.append(owner)
        place = self.clients.index(owner)
        return place if self.client is not None else place % 2

    def public(self, values: npt.ArrayLike) -> Array:
        """Numbers that everybody knows."""
        bits = _bits(values)
        return Array(Value(self, bits.size, {"Public": bits.ravel().tolist()}), _places(bits.shape))

    def reveal(self, *arrays: Array, to: str | Sequence[str] | None = None) -> tuple[Any, ...]:
        """Open arrays: numbers, or truth values.

        Without `connect` both parties and this process learn them. With it the clients `to` do, by default
        all that were named so far; the others get `None` for each array.
        """
        names = [*self.clients] if to is None else [to] if isinstance(to, str) else list(to)
        for name in names:
            self._owner(name)
        if self.client is not None and not names:
            raise Error("nobody is to learn this: name the clients who are, with to=")
        opened = self.run([array._vector() for array in arrays], names)
        if self.client is not None and self.client not in names:
            return (None,) * len(arrays)
        pairs = zip(arrays, opened, strict=True)
        return tuple(_numbers(bits, array.is_truth).reshape(array.shape) for array, bits in pairs)


def connect(
    config: str | os.PathLike[str],
    *,
    client: str,
    name: str,
    certs: str | os.PathLike[str] = "certs",
    protocol: str = "secfloat",
    patience: float = 600,
    threads: int = 1,
) -> Pair:
    """Connect to parties that run elsewhere, as one of several clients who run the same program.

    Whenever something is revealed, the clients that it concerns meet at the parties: those who own the inputs
    that it is made of, and those who learn it. Nothing runs, and no share leaves a client, before all of them
    have come and the parties agree that all have brought the same program. Parties keep nothing in between:
    what is revealed later is computed from the inputs on, so reveal together what can be.

    Args:
        config: the cluster's file, the same as the parties have.
        client: this client's name, as in the certificate.
        name: what all clients call the program; another for each that runs at the same time.
        certs: the folder with `ca.pem` and this client's certificate and key.
        protocol: `secfloat` between two parties, `mizar-float` between two and a dealer.
        patience: how many seconds to wait for the other clients; parties have a limit of their own.
        threads: of each party; the same at all clients.

    """
    pair = Pair(_native.Float32.connect(config, certs, client, name, protocol, patience, threads))
    pair.client = client
    return pair


def local(*, protocol: str = "secfloat", net: str = "loopback") -> Pair:
    """Parties in processes of this machine: two with `secfloat`, with `mizar-float` two and a dealer.

    `net` is as for `megrez.local`. Clients who are named play the parts of the parties in turns.
    """
    return Pair(_native.Float32.processes(protocol, net, *program()))


def clear() -> Pair:
    """No parties: everything in the clear, for trying a program out. The results have the same bits."""
    return Pair(_native.Float32.clear())


class Array:
    """Secret numbers, or secret truth values, which comparisons give.

    Indexing, slicing, transposing, reshaping and broadcasting are as in NumPy and free. Arrays do not change:
    what writes into one in NumPy is a `where` or a `concatenate` here.
    """

    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]
    dtype = np.dtype(np.float32)

    def __init__(self, value: Value, places: npt.NDArray[np.int64], *, is_truth: bool = False) -> None:
        self._value = value
        self._where = places
        """The lane of every element."""
        self.is_truth = is_truth

    @property
    def _pair(self) -> Pair:
        assert isinstance(self._value.tape, Pair), "pairs make arrays"
        return self._value.tape

    def _vector(self) -> Value:
        """A value whose lanes are the elements, in order."""
        places = self._where.ravel()
        if places.size == self._value.lanes and (places == np.arange(places.size)).all():
            return self._value
        return Value(
            self._value.tape,
            places.size,
            {"Gather": {"of": self._value.name, "lanes": places.tolist()}},
            [self._value],
        )

    def _at(self, places: npt.NDArray[np.int64]) -> Array:
        return Array(self._value, np.asarray(places, np.int64), is_truth=self.is_truth)

    def reveal(self, to: str | Sequence[str] | None = None) -> Any:
        """Open the array: see `Pair.reveal`."""
        return self._pair.reveal(self, to=to)[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """As in NumPy."""
        return self._where.shape

    @property
    def ndim(self) -> int:
        """As in NumPy."""
        return self._where.ndim

    @property
    def size(self) -> int:
        """As in NumPy."""
        return self._where.size

    @property
    def T(self) -> Array:  # noqa: N802
        """As in NumPy."""
        return self._at(self._where.T)

    def reshape(self, *shape: Any) -> Array:
        """As in NumPy."""
        return self._at(self._where.reshape(*shape))

    def transpose(self, *axes: Any) -> Array:
        """As in NumPy."""
        return self._at(self._where.transpose(*axes))

    def ravel(self) -> Array:
        """As in NumPy."""
        return self._at(self._where.ravel())

    def sum(self, axis: Axis = None, keepdims: bool = False) -> Any:
        """The sum along axes, in the order that docs/float.md states."""
        return sum(self, axis, keepdims)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Any:
        """The sum divided by the number of terms."""
        return mean(self, axis, keepdims)

    def max(self, axis: Axis = None, keepdims: bool = False) -> Any:
        """The largest number along axes."""
        return max(self, axis, keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> Any:
        """The smallest number along axes."""
        return min(self, axis, keepdims)

    def __getitem__(self, key: Any) -> Array:
        return self._at(self._where[key])

    def __len__(self) -> int:
        return len(self._where)

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))

    def __add__(self, other: Operand) -> Any:
        return add(self, other)

    def __radd__(self, other: Operand) -> Any:
        return add(other, self)

    def __sub__(self, other: Operand) -> Any:
        return subtract(self, other)

    def __rsub__(self, other: Operand) -> Any:
        return subtract(other, self)

    def __mul__(self, other: Operand) -> Any:
        return multiply(self, other)

    def __rmul__(self, other: Operand) -> Any:
        return multiply(other, self)

    def __truediv__(self, other: Operand) -> Any:
        return divide(self, other)

    def __rtruediv__(self, other: Operand) -> Any:
        return divide(other, self)

    def __pow__(self, other: Operand) -> Any:
        return power(self, other)

    def __rpow__(self, other: Operand) -> Any:
        return power(other, self)

    def __matmul__(self, other: Operand) -> Any:
        return matmul(self, other)

    def __rmatmul__(self, other: Operand) -> Any:
        return matmul(other, self)

    def __neg__(self) -> Any:
        return negative(self)

    def __pos__(self) -> Array:
        return self

    def __abs__(self) -> Any:
        return absolute(self)

    def __lt__(self, other: Operand) -> Any:
        return less(self, other)

    def __le__(self, other: Operand) -> Any:
        return less_equal(self, other)

    def __gt__(self, other: Operand) -> Any:
        return greater(self, other)

    def __ge__(self, other: Operand) -> Any:
        return greater_equal(self, other)

    def __eq__(self, other: Operand) -> Any:  # type: ignore[override]
        return equal(self, other)

    def __ne__(self, other: Operand) -> Any:  # type: ignore[override]
        return not_equal(self, other)

    def __and__(self, other: Operand) -> Any:
        return logical_and(self, other)

    def __or__(self, other: Operand) -> Any:
        return logical_or(self, other)

    def __xor__(self, other: Operand) -> Any:
        return logical_xor(self, other)

    def __invert__(self) -> Any:
        return logical_not(self)

    def __bool__(self) -> bool:
        raise Error("a secret cannot decide what a program does: use where(), or reveal() it")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise Error("a secret is no NumPy array: reveal() it")

    __float__ = __int__ = __index__ = __array__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            return NotImplemented
        return _of_numpy(ufunc.__name__)(*inputs)

    def __array_function__(self, func: Callable[..., Any], _: Any, args: Any, options: Any) -> Any:
        return _of_numpy(func.__name__)(*args, **options)

    def __repr__(self) -> str:
        what = "truth values" if self.is_truth else "numbers"
        return f"<megrez.float32.Array of {what}, shape {self.shape}>"


def _of_numpy(name: str) -> Callable[..., Any]:
    """What stands for the function of NumPy with this name."""
    renamed = {
        "amax": "max",
        "amin": "min",
        "bitwise_and": "logical_and",
        "bitwise_or": "logical_or",
        "bitwise_xor": "logical_xor",
        "invert": "logical_not",
        "true_divide": "divide",
    }
    function = globals().get(renamed.get(name, name))
    if not name.startswith("_") and callable(function) and function.__module__ == __name__:
        return function  # type: ignore[no-any-return]
    raise Error(f"megrez.float32 has no `{name}`")


def _bits(values: npt.ArrayLike) -> npt.NDArray[np.uint32]:
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise Error(f"the data has the type {array.dtype}: give real numbers, such as float32")
    with np.errstate(over="ignore"):  # an infinity is a number here
        return np.ascontiguousarray(array, np.float32).reshape(array.shape).view(np.uint32)


def _numbers(bits: list[int], truth: bool) -> npt.NDArray[Any]:
    array = np.array(bits, np.uint32)
    return array.astype(np.bool_) if truth else array.view(np.float32)


def _places(shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    return np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)


def _secret(operands: Sequence[Any]) -> Pair | None:
    """Whose the secrets among these are."""
    pairs = {id(x._pair): x._pair for x in operands if isinstance(x, Array)}
    if len(pairs) > 1:
        raise Error("these arrays are at different parties")
    return next(iter(pairs.values()), None)


def _truth(x: Operand, pair: Pair) -> Array:
    """Truth values; numbers are true where they are not zero."""
    if isinstance(x, Array):
        return x if x.is_truth else not_equal(x, 0.0)
    known = np.asarray(x, np.bool_)
    value = Value(pair, known.size, {"Known": known.ravel().tolist()})
    return Array(value, _places(known.shape), is_truth=True)


def _number(x: Operand, pair: Pair) -> Array:
    """Numbers; truth values are 0 and 1."""
    if isinstance(x, Array):
        return where(x, 1.0, 0.0) if x.is_truth else x
    return pair.public(x)


def _apply(operands: Sequence[Array], entry: Callable[[list[int]], Any], is_truth: bool = False) -> Array:
    """An operation lane by lane, of operands that are made the same shape."""
    shapes = np.broadcast_arrays(*[x._where for x in operands])
    of = [x._at(places)._vector() for x, places in zip(operands, shapes, strict=True)]
    value = Value(of[0].tape, of[0].lanes, entry([x.name for x in of]), of)
    return Array(value, _places(shapes[0].shape), is_truth=is_truth)


def _operation(
    name: str, op: str, what: str, plain: Any = None, is_truth: bool = False
) -> Callable[..., Any]:
    """A function: the parties' `op` on secrets, `plain` or NumPy's function of the name on public numbers."""

    def function(*operands: Operand) -> Any:
        pair = _secret(operands)
        if pair is None:
            known = plain or getattr(np, name)
            return known(*[np.asarray(x, np.float32) for x in operands])
        numbers = [_number(x, pair) for x in operands]
        return _apply(numbers, lambda of: {"Apply": {"op": op, "of": of}}, is_truth)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = what
    return function


add = _operation("add", "add", "x + y.")
subtract = _operation("subtract", "sub", "x - y.")
multiply = _operation("multiply", "mul", "x * y.")
divide = _operation("divide", "div", "x / y.")
maximum = _operation("maximum", "max", "The larger one of x and y; NaN if one is.")
minimum = _operation("minimum", "min", "The smaller one of x and y; NaN if one is.")
less = _operation("less", "lt", "x < y.", is_truth=True)
less_equal = _operation("less_equal", "le", "x <= y.", is_truth=True)
equal = _operation("equal", "eq", "x == y.", is_truth=True)
negative = _operation("negative", "neg", "-x; free.")
absolute = _operation("absolute", "abs", "|x|; free.")
sqrt = _operation("sqrt", "sqrt", "The square root.")
exp = _operation("exp", "exp", "e to the power of x.")
exp2 = _operation("exp2", "exp2", "2 to the power of x.")
log = _operation("log", "ln", "The natural logarithm.")
log2 = _operation("log2", "log2", "The logarithm to base 2.")
sin = _operation("sin", "sin", "The sine of radians below 16; NaN beyond.")
cos = _operation("cos", "cos", "The cosine of radians below 16; NaN beyond.")
tan = _operation("tan", "tan", "The tangent of radians below 16; NaN beyond.")
arctan = _operation("arctan", "atan", "The inverse tangent.")
tanh = _operation("tanh", "tanh", "The hyperbolic tangent.")
sinpi = _operation("sinpi", "sinpi", "sin(pi x), at half the price of sin.", lambda x: np.sin(np.pi * x))
cospi = _operation("cospi", "cospi", "cos(pi x).", lambda x: np.cos(np.pi * x))
tanpi = _operation("tanpi", "tanpi", "tan(pi x).", lambda x: np.tan(np.pi * x))
erf = _operation("erf", "erf", "The error function.", np.vectorize(math.erf, otypes=[np.float32]))
sigmoid = _operation("sigmoid", "sigmoid", "1 / (1 + exp(-x)).", lambda x: 1 / (1 + np.exp(-x)))
relu = _operation("relu", "relu", "max(x, 0).", lambda x: np.maximum(x, 0))
abs = absolute
_pow = _operation("power", "pow", "x to the power of y.")


def power(x: Operand, y: Operand) -> Any:
    """The power x ** y; the public powers 2 and 0.5 are a product and a root, and cheap."""
    if isinstance(x, Array) and not isinstance(y, Array) and np.ndim(y) == 0:
        if y == 2:
            return multiply(x, x)
        if y == 0.5:
            return sqrt(x)
    return _pow(x, y)


def square(x: Operand) -> Any:
    """The square x * x."""
    return multiply(x, x)


def reciprocal(x: Operand) -> Any:
    """1 / x."""
    return divide(1.0, x)


def greater(x: Operand, y: Operand) -> Any:
    """Whether x > y."""
    return less(y, x)


def greater_equal(x: Operand, y: Operand) -> Any:
    """Whether x >= y."""
    return less_equal(y, x)


def not_equal(x: Operand, y: Operand) -> Any:
    """Whether x != y; true with a NaN."""
    return logical_not(equal(x, y))


def isnan(x: Operand) -> Any:
    """Whether x is not a number."""
    return not_equal(x, x)


def logical_not(x: Operand) -> Any:
    """Not x; free."""
    pair = _secret([x])
    if pair is None:
        return np.logical_not(x)
    return _apply([_truth(x, pair)], lambda of: {"Not": of[0]}, True)


def logical_xor(x: Operand, y: Operand) -> Any:
    """Either x or y; free."""
    pair = _secret([x, y])
    if pair is None:
        return np.logical_xor(x, y)
    return _apply([_truth(x, pair), _truth(y, pair)], lambda of: {"Xor": of}, True)


def logical_and(x: Operand, y: Operand) -> Any:
    """Both x and y."""
    pair = _secret([x, y])
    if pair is None:
        return np.logical_and(x, y)
    return _apply([_truth(x, pair), _truth(y, pair)], lambda of: {"And": of}, True)


def logical_or(x: Operand, y: Operand) -> Any:
    """X or y, or both."""
    return logical_not(logical_and(logical_not(x), logical_not(y)))


def where(condition: Operand, x: Operand, y: Operand) -> Any:
    """The elements of x where the condition holds, elsewhere those of y. Nobody learns which."""
    pair = _secret([condition, x, y])
    if pair is None:
        return np.where(condition, x, y)
    bit = _truth(condition, pair)
    if builtins.all(isinstance(v, Array) and v.is_truth for v in (x, y)):
        return logical_xor(y, logical_and(bit, logical_xor(x, y)))

    def entry(of: list[int]) -> Any:
        return {"Choose": {"bit": of[0], "yes": of[1], "no": of[2]}}

    return _apply([bit, _number(x, pair), _number(y, pair)], entry)


def _along(x: Array, axis: Axis) -> tuple[npt.NDArray[np.int64], tuple[int, ...], tuple[int, ...]]:
    """Places with the terms of a reduction as rows; the shape of the result without and with the axes."""
    every = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    axes = [a % x.ndim if -x.ndim <= a < x.ndim else a for a in every]
    places = np.moveaxis(x._where, axes, range(len(axes)))
    rest = places.shape[len(axes) :]
    if places.size == 0:
        raise Error("there is nothing to reduce")
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    return places.reshape(-1, np.prod(rest, dtype=np.int64)), rest, kept


def sum(x: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum along axes: n terms become half as many by adding term i + ceil(n/2) to term i, and so on."""
    pair = _secret([x])
    if pair is None:
        return np.sum(x, axis=axis, keepdims=keepdims)
    x = _number(x, pair)
    places, rest, kept = _along(x, axis)
    terms = x._at(places)._vector()
    lanes = places.shape[1]
    value = Value(pair, lanes, {"Sum": {"of": terms.name, "lanes": lanes}}, [terms])
    return Array(value, _places(kept if keepdims else rest))


def mean(x: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum divided by the number of terms."""
    total = sum(x, axis, keepdims)
    return divide(total, np.size(x) / np.size(total) if not isinstance(x, Array) else x.size / total.size)


def _extreme(better: Callable[..., Any], x: Array, axis: Axis, keepdims: bool) -> Array:
    places, rest, kept = _along(x, axis)
    terms = x._at(places)
    while len(terms) > 1:
        half = (len(terms) + 1) // 2
        pairs = len(terms) - half
        terms = concatenate([better(terms[:pairs], terms[half:]), terms[pairs:half]])
    return terms.reshape(kept if keepdims else rest)


def max(x: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest number along axes, by halving; NaN if there is one."""
    pair = _secret([x])
    if pair is None:
        return np.max(x, axis=axis, keepdims=keepdims)
    return _extreme(maximum, _number(x, pair), axis, keepdims)


def min(x: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The smallest number along axes, by halving; NaN if there is one."""
    pair = _secret([x])
    if pair is None:
        return np.min(x, axis=axis, keepdims=keepdims)
    return _extreme(minimum, _number(x, pair), axis, keepdims)


def matmul(x: Operand, y: Operand) -> Any:
    """The matrix product: products are rounded, then summed as in `sum`."""
    pair = _secret([x, y])
    if pair is None:
        return np.matmul(x, y)
    x, y = _number(x, pair), _number(y, pair)
    if 0 in (x.ndim, y.ndim):
        raise Error("matmul takes no single numbers: use *")
    left = x if x.ndim > 1 else x[None, :]
    right = y if y.ndim > 1 else y[:, None]
    if left.shape[-1] != right.shape[-2]:
        raise Error(f"matmul of shapes {x.shape} and {y.shape}")
    product = sum(left[..., :, :, None] * right[..., None, :, :], axis=-2)
    product = product if y.ndim > 1 else product[..., 0]
    return product if x.ndim > 1 else product[..., 0, :] if y.ndim > 1 else product[..., 0]


dot = matmul


def concatenate(arrays: Sequence[Operand], axis: int = 0) -> Any:
    """Arrays one after the other along an axis; free."""
    return _joined(arrays, lambda places: np.concatenate(places, axis))


def stack(arrays: Sequence[Operand], axis: int = 0) -> Any:
    """Arrays along a new axis; free."""
    return _joined(arrays, lambda places: np.stack(places, axis))


def _joined(arrays: Sequence[Operand], join: Callable[[list[npt.NDArray[Any]]], npt.NDArray[Any]]) -> Any:
    pair = _secret(arrays)
    if pair is None:
        return join([np.asarray(x) for x in arrays])
    truth = builtins.all(isinstance(x, Array) and x.is_truth for x in arrays)
    parts = [x if truth and isinstance(x, Array) else _number(x, pair) for x in arrays]
    of = [x._value for x in parts]
    ends = list(itertools.accumulate(value.lanes for value in of))
    value = Value(pair, ends[-1], {"Concat": [value.name for value in of]}, of)
    places = [x._where + end - x._value.lanes for x, end in zip(parts, ends, strict=True)]
    return Array(value, join(places), is_truth=truth)
