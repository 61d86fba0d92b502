"""Arrays in shares, and how a function of NumPy's name becomes one of them."""

from __future__ import annotations

import builtins
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, cast, overload

import numpy as np
import numpy.typing as npt

from megrez import _native
from megrez._native import Error
from megrez._tape import Tape, Value

Operand: TypeAlias = Any
"""A secret array, or public numbers; inside of a `function` an array."""
Places: TypeAlias = npt.NDArray[np.int64]
"""The lane of every element."""

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""What stands for NumPy's functions, by their names; those of `numpy.linalg` begin with `linalg.`."""


class Pair(Tape):
    """Parties, or none. `local`, `connect` and `clear` make one; `cost` says what it has spent.

    Several threads may use a pair and its arrays: one runs, the others wait.
    """

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
            places = _lanes((shape,) if isinstance(shape, int) else tuple(shape))
            return Array(Value(self, places.size, {"Input": {"owner": place, "lanes": places.size}}), places)
        if values is None:
            raise Error(f"`{owner}` brings these numbers: give them")
        bits = _bits(values)
        if shape is not None and bits.shape != ((shape,) if isinstance(shape, int) else tuple(shape)):
            raise Error(f"the numbers have the shape {bits.shape}, not {shape}")
        entry = {"Input": {"owner": place, "lanes": bits.size}}
        return Array(Value(self, bits.size, entry, bits=bits.ravel().tolist()), _lanes(bits.shape))

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
        """Numbers, or truth values, that everybody knows."""
        known = np.asarray(values)
        if known.dtype == np.bool_:
            value = Value(self, known.size, {"Known": known.ravel().tolist()})
            return Array(value, _lanes(known.shape), is_truth=True)
        bits = _bits(values)
        return Array(Value(self, bits.size, {"Public": bits.ravel().tolist()}), _lanes(bits.shape))

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


def clear() -> Pair:
    """No parties: everything in the clear, for trying a program out. The results have the same bits."""
    return Pair(_native.Float32.clear())


@functools.cache
def nobody() -> Pair:
    """Who computes when all numbers are public, so that the bits are those of the shares."""
    return clear()


def _bits(values: npt.ArrayLike) -> npt.NDArray[np.uint32]:
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise Error(f"the data has the type {array.dtype}: give real numbers, such as float32")
    with np.errstate(over="ignore"):  # an infinity is a number here
        return np.ascontiguousarray(array, np.float32).reshape(array.shape).view(np.uint32)


def _numbers(bits: list[int], truth: bool) -> npt.NDArray[Any]:
    array = np.array(bits, np.uint32)
    return array.astype(np.bool_) if truth else array.view(np.float32)


def _lanes(shape: tuple[int, ...]) -> Places:
    return np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)


def _method(name: str, swapped: bool = False) -> Callable[..., Any]:
    """The function of a name as a method; `swapped` where the array is the operand on the right."""

    def method(self: Array, *args: Any, **options: Any) -> Any:
        return FUNCTIONS[name](*((*args, self) if swapped else (self, *args)), **options)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"As the function `{name}`."
    return method


def _is_refused(what: str) -> Callable[..., Any]:
    def method(*_: Any, **__: Any) -> Any:
        raise Error(what)

    return method


class Array:
    """Secret numbers, or secret truth values, which comparisons give.

    Indexing, slicing, transposing, reshaping and broadcasting are as in NumPy and free. Arrays do not change:
    what writes into one in NumPy is a `where` or a `concatenate` here.
    """

    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Value, places: Places, *, is_truth: bool = False) -> None:
        self._value = value
        self._where = places
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

    def _at(self, places: Places) -> Array:
        return Array(self._value, np.asarray(places, np.int64), is_truth=self.is_truth)

    def reveal(self, to: str | Sequence[str] | None = None) -> Any:
        """Open the array: see `Pair.reveal`."""
        return self._pair.reveal(self, to=to)[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """What `reveal` gives: float32, or bool."""
        return np.dtype(np.bool_ if self.is_truth else np.float32)

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

    @property
    def mT(self) -> Array:  # noqa: N802
        """As in NumPy."""
        return self._at(np.swapaxes(self._where, -1, -2))

    def reshape(self, *shape: Any) -> Array:
        """As in NumPy."""
        return self._at(self._where.reshape(*shape))

    def transpose(self, *axes: Any) -> Array:
        """As in NumPy."""
        return self._at(self._where.transpose(*axes))

    def flatten(self) -> Array:
        """As in NumPy."""
        return self._at(self._where.ravel())

    def copy(self) -> Array:
        """The array, for arrays do not change."""
        return self

    def astype(self, dtype: npt.DTypeLike) -> Array:
        """Truth values as 0 and 1, numbers as whether they are not zero, or the array as it is."""
        wanted = np.dtype(dtype)
        if wanted == self.dtype:
            return self
        if wanted == np.float32:
            return number(self)
        if wanted == np.bool_:
            return truth(self)
        raise Error(f"arrays in shares are float32 or bool, not {wanted}")

    ravel, squeeze, swapaxes, repeat, take, diagonal = map(
        _method, ("ravel", "squeeze", "swapaxes", "repeat", "take", "diagonal")
    )
    sum, prod, mean, var, std, cumsum, cumprod = map(
        _method, ("sum", "prod", "mean", "var", "std", "cumsum", "cumprod")
    )
    max, min, argmax, argmin, any, all = map(_method, ("max", "min", "argmax", "argmin", "any", "all"))
    clip, round, dot, trace = map(_method, ("clip", "round", "dot", "trace"))

    __add__, __radd__ = _method("add"), _method("add", swapped=True)
    __sub__, __rsub__ = _method("subtract"), _method("subtract", swapped=True)
    __mul__, __rmul__ = _method("multiply"), _method("multiply", swapped=True)
    __truediv__, __rtruediv__ = _method("divide"), _method("divide", swapped=True)
    __floordiv__, __rfloordiv__ = _method("floor_divide"), _method("floor_divide", swapped=True)
    __mod__, __rmod__ = _method("mod"), _method("mod", swapped=True)
    __divmod__, __rdivmod__ = _method("divmod"), _method("divmod", swapped=True)
    __pow__, __rpow__ = _method("power"), _method("power", swapped=True)
    __matmul__, __rmatmul__ = _method("matmul"), _method("matmul", swapped=True)
    __and__, __rand__ = _method("bitwise_and"), _method("bitwise_and", swapped=True)
    __or__, __ror__ = _method("bitwise_or"), _method("bitwise_or", swapped=True)
    __xor__, __rxor__ = _method("bitwise_xor"), _method("bitwise_xor", swapped=True)
    __neg__, __pos__, __abs__ = _method("negative"), _method("positive"), _method("absolute")
    __invert__ = _method("invert")
    __lt__, __le__, __gt__, __ge__ = map(_method, ("less", "less_equal", "greater", "greater_equal"))
    __eq__, __ne__ = _method("equal"), _method("not_equal")

    def __getitem__(self, key: Any) -> Array:
        if arrays_in(key if isinstance(key, tuple) else [key]):
            raise Error(
                "a secret cannot be an index, for what it picks would show: make a one of it, as in "
                "(where(index == np.arange(n), x, 0)).sum(), or where(mask, x, 0); or reveal() it"
            )
        return self._at(self._where[key])

    def __len__(self) -> int:
        return len(self._where)

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        raise Error("a secret cannot decide what a program does: use where(), or reveal() it")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise Error("a secret is no NumPy array: reveal() it, or stack() several of them")

    __float__ = __int__ = __index__ = __complex__ = _is_refused(
        "a secret is no number of Python's, and cannot be an index: compute with it as it is, or reveal() it"
    )
    item = tolist = _is_refused("the parties hold these numbers: reveal() them")
    __setitem__ = _is_refused("arrays do not change: make another with where(), concatenate() or stack()")
    sort = _is_refused("arrays do not change: np.sort(x) makes another")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name = ufunc.__name__
        if options.get("out") is not None and not arrays_in(options["out"]):
            raise Error(
                f"a NumPy array cannot hold a secret: for w += x and the like write w = w + x ({name})"
            )
        if method != "__call__" or options:
            raise Error(f"megrez.float32 has no `{name}.{method}` and takes no {sorted(options)} there")
        return _of_numpy(name)(*inputs)

    def __array_function__(self, func: Callable[..., Any], _: Any, args: Any, options: Any) -> Any:
        prefix = "linalg." if func.__module__ == "numpy.linalg" else ""
        return _of_numpy(prefix + func.__name__)(*args, **options)

    def __repr__(self) -> str:
        what = "truth values" if self.is_truth else "numbers"
        return f"<megrez.float32.Array of {what}, shape {self.shape}>"


_BY_DATA = "what it gives has a shape, or places, that depend on the secret"
REFUSED = {
    "unique": "compare all pairs, x[:, None] == x",
    "nonzero": "keep the mask, and use where(mask, x, 0)",
    "flatnonzero": "keep the mask, and use where(mask, x, 0)",
    "argwhere": "keep the mask, and use where(mask, x, 0)",
    "extract": "use where(mask, x, 0)",
    "compress": "use where(mask, x, 0)",
    "argsort": "its places could index nothing; sort() sorts",
    "argpartition": "its places could index nothing; sort() sorts",
    "searchsorted": "count, (edges[:, None] < x).sum(axis=0)",
    "digitize": "count, (edges[:, None] <= x).sum(axis=0)",
    "bincount": "compare with every value, (x == np.arange(n)[:, None]).sum(axis=1)",
    "histogram": "count for every bin, ((low[:, None] <= x) & (x < high[:, None])).sum(axis=1)",
}


def _refusing(name: str, instead: str) -> Callable[..., Any]:
    """NumPy's function, which says what to do instead if it gets a secret."""
    plain = getattr(np, name)

    @functools.wraps(plain)
    def function(*args: Any, **options: Any) -> Any:
        if arrays_in([*args, *options.values()]):
            raise Error(f"no `{name}` of a secret, for {_BY_DATA}; instead, {instead}")
        return plain(*args, **options)

    return function


FUNCTIONS.update({name: _refusing(name, instead) for name, instead in REFUSED.items()})


def _of_numpy(name: str) -> Callable[..., Any]:
    """What stands for the function of NumPy with this name."""
    function = FUNCTIONS.get(name.rstrip("_"))  # NumPy 1 has round_
    if function is None:
        raise Error(f"megrez.float32 has no `{name}`")
    return function


def arrays_in(values: Iterable[Any]) -> list[Array]:
    """The secrets among these, and in lists among them."""
    lists = ([x] if not isinstance(x, list | tuple) else arrays_in(x) for x in values)
    return [x for x in itertools.chain.from_iterable(lists) if isinstance(x, Array)]


def pair_of(values: Iterable[Any]) -> Pair | None:
    """Whose the secrets among these are."""
    pairs = {id(x._pair): x._pair for x in arrays_in(values)}
    if len(pairs) > 1:
        raise Error("these arrays are at different parties")
    return next(iter(pairs.values()), None)


def lifted(x: Operand, pair: Pair) -> Array:
    """An array at the pair."""
    return x if isinstance(x, Array) else pair.public(x)


def truth(x: Array) -> Array:
    """Truth values; numbers are true where they are not zero."""
    return x if x.is_truth else cast(Array, FUNCTIONS["not_equal"](x, 0.0))


def number(x: Array) -> Array:
    """Numbers; truth values are 0 and 1."""
    return cast(Array, FUNCTIONS["where"](x, 1.0, 0.0)) if x.is_truth else x


def apply(operands: Sequence[Array], entry: Callable[[list[int]], Any], is_truth: bool = False) -> Array:
    """An operation lane by lane, of operands that are made the same shape."""
    shapes = np.broadcast_arrays(*[x._where for x in operands])
    of = [x._at(places)._vector() for x, places in zip(operands, shapes, strict=True)]
    value = Value(of[0].tape, of[0].lanes, entry([x.name for x in of]), of)
    return Array(value, _lanes(shapes[0].shape), is_truth=is_truth)


def registered(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Enter a function under its name and others."""
    FUNCTIONS.update(dict.fromkeys((function.__name__, *names), function))
    return function


@overload
def function(body: Callable[..., Any], *, name: str = ...) -> Callable[..., Any]: ...


@overload
def function(
    body: None = None, *, name: str = ..., counts: bool = ...
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...


def function(body: Callable[..., Any] | None = None, *, name: str = "", counts: bool = False) -> Any:
    """Make a body that takes and gives arrays of one pair a function of NumPy's kind, and enter it.

    Parameters that the body annotates with `Operand` may be given as public numbers. If all are, the body
    runs in the clear, so that the bits are those of the shares; but where NumPy makes integers or truth
    values of integers and truth values, so does this. `counts` is for results that are places or numbers of
    elements.
    """
    if body is None:
        return functools.partial(function, name=name, counts=counts)
    signature = inspect.signature(body)
    kinds = {
        p.name: "many" if p.kind is p.VAR_POSITIONAL or "Sequence" in str(p.annotation) else "one"
        for p in signature.parameters.values()
        if "Operand" in str(p.annotation)
    }
    name = name or body.__name__

    @functools.wraps(body)
    def call(*args: Any, **options: Any) -> Any:
        bound = signature.bind(*args, **options)
        given = bound.arguments
        operands = {key: given[key] for key in kinds if given.get(key) is not None}
        if len(arrays_in(given.values())) > len(arrays_in(operands.values())):
            raise Error(f"a secret cannot be an option of `{name}`, such as an axis")
        pair = pair_of(operands.values())
        if pair is None:
            leaves = [x for k, v in operands.items() for x in (v if kinds[k] == "many" else [v])]
            exact = _exact(name, leaves, args, options)
            if exact is not None:
                return exact
        at = pair or nobody()
        for key, value in operands.items():
            if kinds[key] == "one" and isinstance(value, list | tuple) and arrays_in(value):
                raise Error(f"`{name}` takes one array: stack() several of them")
            many = kinds[key] == "many"
            given[key] = tuple(lifted(x, at) for x in value) if many else lifted(value, at)
        result = body(*bound.args, **bound.kwargs)
        return result if pair else _opened(result, counts)

    call.__name__ = name.rpartition(".")[2]
    FUNCTIONS[name] = call
    return call


def _exact(name: str, operands: Sequence[Any], args: Any, options: Any) -> Any:
    """What NumPy makes of integers and truth values, if these are and it makes such; otherwise `None`."""
    plain = getattr(np, name, None)
    if plain is None or not operands or builtins.any(np.asarray(x).dtype.kind not in "iub" for x in operands):
        return None
    with np.errstate(all="ignore"):
        result = plain(*args, **options)
    parts = result if isinstance(result, tuple) else (result,)
    return result if builtins.all(np.asarray(x).dtype.kind in "iub" for x in parts) else None


def _opened(result: Any, counts: bool) -> Any:
    """A result of public numbers as NumPy would give it."""
    if isinstance(result, tuple):
        return tuple(_opened(x, counts) for x in result)
    if not isinstance(result, Array):
        return result
    opened = result.reveal()
    return (opened.astype(np.intp) if counts else opened)[()]


def arranged(arrays: Sequence[Array], how: Callable[[list[Places]], Any]) -> Any:
    """Elements at other places, which is free.

    `how` gets the places of every array, counted from 1, and gives places, or a list or a tuple of them;
    there, place 0 is a zero.
    """
    is_truth = builtins.all(x.is_truth for x in arrays)
    parts = arrays if is_truth else [number(x) for x in arrays]
    of = list({x._value.name: x._value for x in parts}.values())
    ends = itertools.accumulate(value.lanes for value in of)
    first = {value.name: end - value.lanes for value, end in zip(of, ends, strict=True)}
    made = how([x._where + first[x._value.name] + 1 for x in parts])
    results = list(made) if isinstance(made, list | tuple) else [made]
    pair = parts[0]._pair
    if builtins.any((np.asarray(places) == 0).any() for places in results):
        of.append(pair.public(np.zeros(1, np.bool_ if is_truth else np.float32))._value)
    lanes = builtins.sum(value.lanes for value in of)
    value = of[0] if len(of) == 1 else Value(pair, lanes, {"Concat": [value.name for value in of]}, of)
    at = [  # the zero is the last lane
        Array(value, np.asarray(np.where(np.equal(places, 0), lanes, places) - 1), is_truth=is_truth)
        for places in results
    ]
    return type(made)(at) if isinstance(made, list | tuple) else at[0]
