"""Functions element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from megrez.float32._arrays import FUNCTIONS, Array, Operand, apply, function, number, registered, truth


def _operation(name: str, op: str, what: str, is_truth: bool = False) -> Callable[..., Any]:
    """The function that does the parties' `op`."""

    def one(x: Operand) -> Any:
        return apply([number(x)], lambda of: {"Apply": {"op": op, "of": of}}, is_truth)

    def two(x: Operand, y: Operand) -> Any:
        numbers = [number(x), number(y)]
        return apply(numbers, lambda of: {"Apply": {"op": op, "of": of}}, is_truth)

    body = two if op in _TWO else one
    body.__qualname__, body.__doc__ = name, what
    return function(body, name=name)


_TWO = {"add", "sub", "mul", "div", "max", "min", "lt", "le", "eq", "pow", "atan2", "hypot", "fmod"}

add = _operation("add", "add", "x + y.")
subtract = _operation("subtract", "sub", "x - y.")
multiply = _operation("multiply", "mul", "x * y.")
_divide = _operation("true_divide", "div", "x / y.")
maximum = _operation("maximum", "max", "The larger one of x and y; NaN if one is.")
minimum = _operation("minimum", "min", "The smaller one of x and y; NaN if one is.")
less = _operation("less", "lt", "x < y.", is_truth=True)
less_equal = _operation("less_equal", "le", "x <= y.", is_truth=True)
_equal = _operation("equal", "eq", "x == y.", is_truth=True)
negative = _operation("negative", "neg", "-x; free.")
absolute = registered(_operation("absolute", "abs", "|x|; free."), "abs", "fabs")
sqrt = _operation("sqrt", "sqrt", "The square root.")
exp = _operation("exp", "exp", "e to the power of x.")
exp2 = _operation("exp2", "exp2", "2 to the power of x.")
log = _operation("log", "ln", "The natural logarithm.")
log2 = _operation("log2", "log2", "The logarithm to base 2.")
log10 = registered(_operation("log10", "log10", "The logarithm to base 10."))
log1p = registered(_operation("log1p", "log1p", "log(1 + x), with all bits of a small x."))
expm1 = registered(_operation("expm1", "expm1", "exp(x) - 1, with all bits of a small x."))
sin = _operation("sin", "sin", "The sine of radians.")
cos = _operation("cos", "cos", "The cosine of radians.")
tan = _operation("tan", "tan", "The tangent of radians.")
arcsin = registered(_operation("arcsin", "asin", "The inverse sine."), "asin")
arccos = registered(_operation("arccos", "acos", "The inverse cosine."), "acos")
arctan = registered(_operation("arctan", "atan", "The inverse tangent."), "atan")
arctan2 = registered(_operation("arctan2", "atan2", "The angle of the point (second, first)."), "atan2")
sinh = registered(_operation("sinh", "sinh", "The hyperbolic sine."))
cosh = registered(_operation("cosh", "cosh", "The hyperbolic cosine."))
tanh = _operation("tanh", "tanh", "The hyperbolic tangent.")
sinpi = _operation("sinpi", "sinpi", "sin(pi x), at a third of the price of sin.")
cospi = _operation("cospi", "cospi", "cos(pi x).")
tanpi = _operation("tanpi", "tanpi", "tan(pi x).")
erf = _operation("erf", "erf", "The error function.")
sigmoid = _operation("sigmoid", "sigmoid", "1 / (1 + exp(-x)).")
relu = _operation("relu", "relu", "max(x, 0).")
hypot = registered(_operation("hypot", "hypot", "The square root of x² + y²; NaN with a NaN."))
fmod = registered(_operation("fmod", "fmod", "The rest of x / y with the sign of x, exactly."))
_power = _operation("power", "pow", "x to the power of y.")


def power(x: Operand, y: Operand) -> Any:
    """The power x ** y; the public powers 2 and 0.5 are a product and a root, and cheap."""
    if not isinstance(y, Array) and np.ndim(y) == 0:
        if y == 2:
            return multiply(x, x)
        if y == 0.5:
            return sqrt(x)
    return _power(x, y)


def divide(x: Operand, y: Operand) -> Any:
    """The quotient x / y; by public powers of two a product, with the same bits, and cheap."""
    if not isinstance(y, Array) and np.asarray(y).dtype.kind in "fiu":
        mantissas, exponents = np.frexp(np.asarray(y, np.float32))
        if ((np.abs(mantissas) == 0.5) & (np.abs(exponents) < 126)).all():
            return multiply(x, 1 / np.asarray(y, np.float32))
    return _divide(x, y)


registered(power, "pow", "float_power")
registered(divide, "true_divide")


@function
def positive(x: Operand) -> Any:
    """The numbers as they are."""
    return number(x)


def square(x: Operand) -> Any:
    """The square x * x."""
    return multiply(x, x)


def reciprocal(x: Operand) -> Any:
    """1 / x."""
    return divide(1.0, x)


_LARGE = 1e18
"""From here on adding or subtracting 1 changes no number, nor its square."""


def _log_of_twice(x: Any, large: Any, otherwise: Any) -> Any:
    """log(2x) where x is large, elsewhere log(1 + otherwise)."""
    return add(log1p(where(large, x, otherwise)), where(large, float(np.log(2.0)), 0.0))


def _odd(x: Any, found: Any) -> Any:
    """What was found for |x|, with the sign of x."""
    return where(less(x, 0.0), negative(found), where(equal(x, 0.0), x, found))


@function
def arcsinh(x: Operand) -> Any:
    """The inverse hyperbolic sine, of rounded steps: log1p(|x| + x² / (1 + √(1 + x²)))."""
    size = absolute(x)
    more = multiply(size, divide(size, add(1.0, hypot(1.0, size))))
    return _odd(x, _log_of_twice(size, less_equal(_LARGE, size), add(size, more)))


@function
def arccosh(x: Operand) -> Any:
    """The inverse hyperbolic cosine, of rounded steps: log1p(t + √t √(t + 2)) with t = x - 1."""
    t = subtract(x, 1.0)
    more = multiply(sqrt(t), sqrt(add(t, 2.0)))
    return _log_of_twice(x, less_equal(_LARGE, x), add(t, more))


@function
def arctanh(x: Operand) -> Any:
    """The inverse hyperbolic tangent, of rounded steps: log1p(2|x| / (1 - |x|)) / 2."""
    size = absolute(x)
    return _odd(x, divide(log1p(divide(multiply(2.0, size), subtract(1.0, size))), 2.0))


for _inverse, _short in ((arcsinh, "asinh"), (arccosh, "acosh"), (arctanh, "atanh")):
    registered(_inverse, _short)


@function
def radians(x: Operand) -> Any:
    """Degrees in radians."""
    return multiply(x, np.pi / 180)


@function
def degrees(x: Operand) -> Any:
    """Radians in degrees."""
    return multiply(x, 180 / np.pi)


registered(radians, "deg2rad")
registered(degrees, "rad2deg")


def greater(x: Operand, y: Operand) -> Any:
    """Whether x > y."""
    return less(y, x)


def greater_equal(x: Operand, y: Operand) -> Any:
    """Whether x >= y."""
    return less_equal(y, x)


@function
def equal(x: Operand, y: Operand) -> Any:
    """Whether x == y; free for two truth values."""
    if x.is_truth and y.is_truth:
        return logical_not(logical_xor(x, y))
    return _equal(x, y)


def not_equal(x: Operand, y: Operand) -> Any:
    """Whether x != y; true with a NaN."""
    return logical_not(equal(x, y))


@function
def isnan(x: Operand) -> Any:
    """Whether x is not a number; free."""
    return apply([number(x)], lambda of: {"Apply": {"op": "isnan", "of": of}}, True)


@function
def isfinite(x: Operand) -> Any:
    """Whether x is neither infinite nor NaN; free."""
    return logical_not(logical_xor(isnan(x), isinf(x)))


@function
def isinf(x: Operand) -> Any:
    """Whether x is infinite; free."""
    return apply([number(x)], lambda of: {"Apply": {"op": "isinf", "of": of}}, True)


for _composed in (square, reciprocal, greater, greater_equal, not_equal):
    registered(_composed)


@function
def logical_not(x: Operand) -> Any:
    """Not x; free."""
    return apply([truth(x)], lambda of: {"Not": of[0]}, True)


@function
def logical_xor(x: Operand, y: Operand) -> Any:
    """Either x or y; free."""
    return apply([truth(x), truth(y)], lambda of: {"Xor": of}, True)


@function
def logical_and(x: Operand, y: Operand) -> Any:
    """Both x and y."""
    return apply([truth(x), truth(y)], lambda of: {"And": of}, True)


@function
def logical_or(x: Operand, y: Operand) -> Any:
    """X or y, or both."""
    return logical_not(logical_and(logical_not(x), logical_not(y)))


def _of_truth(name: str, logical: Callable[..., Any], *aliases: str) -> None:
    def check(*operands: Any) -> None:
        if not all(x.is_truth for x in operands):
            raise TypeError(f"{name} is for truth values: compare numbers first, or use {logical.__name__}")

    def one(x: Operand) -> Any:
        check(x)
        return logical(x)

    def two(x: Operand, y: Operand) -> Any:
        check(x, y)
        return logical(x, y)

    body = one if logical is logical_not else two
    body.__doc__ = f"As `{logical.__name__}`, for truth values only."
    registered(function(body, name=name), *aliases)


_of_truth("bitwise_and", logical_and)
_of_truth("bitwise_or", logical_or)
_of_truth("bitwise_xor", logical_xor)
_of_truth("invert", logical_not, "bitwise_not")


@function(name="where")
def _choice(condition: Operand, x: Operand, y: Operand) -> Any:
    bit = truth(condition)
    if x.is_truth and y.is_truth:
        return logical_xor(y, logical_and(bit, logical_xor(x, y)))

    def entry(of: list[int]) -> Any:
        return {"Choose": {"bit": of[0], "yes": of[1], "no": of[2]}}

    return apply([bit, number(x), number(y)], entry)


def where(condition: Operand, *xy: Operand) -> Any:
    """The elements of x where the condition holds, elsewhere those of y. Nobody learns which."""
    return _choice(condition, *xy) if xy else FUNCTIONS["nonzero"](condition)


registered(where)


@function
def select(condlist: Sequence[Operand], choicelist: Sequence[Operand], default: Operand = 0) -> Any:
    """Of the first condition that holds, the choice; by a tree."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not condlist:
        raise ValueError("select with an empty condition list is not possible")
    cases = [(truth(c), x) for c, x in zip(condlist, choicelist, strict=True)]
    while len(cases) > 1:
        pairs = zip(cases[::2], cases[1::2], strict=False)
        merged = [(logical_or(c, d), where(c, x, y)) for (c, x), (d, y) in pairs]
        cases = merged + cases[2 * len(merged) :]
    return where(*cases[0], default)


@function
def sign(x: Operand) -> Any:
    """-1, 0 or 1; NaN for NaN. Zeros lose their sign, as NumPy's do."""
    return where(less(0.0, x), 1.0, where(less(x, 0.0), -1.0, absolute(x)))


@function(name="clip")
def _clipped(a: Operand, a_min: Operand | None = None, a_max: Operand | None = None) -> Any:
    if a_min is not None:
        a = maximum(a_min, a)
    return a if a_max is None else minimum(a_max, a)


def clip(
    a: Operand,
    a_min: Operand | None = None,
    a_max: Operand | None = None,
    *,
    min: Operand | None = None,
    max: Operand | None = None,
) -> Any:
    """The numbers, or the bounds where they are outside; an upper bound below the lower one wins."""
    return _clipped(a, a_min if min is None else min, a_max if max is None else max)


registered(clip)


def _ignoring(name: str, better: Callable[..., Any]) -> Callable[..., Any]:
    def body(x: Operand, y: Operand) -> Any:
        return where(isnan(x), y, where(isnan(y), x, better(x, y)))

    body.__doc__ = f"As `{better.__name__}`; of a number and NaN the number."
    return function(body, name=name)


fmax = _ignoring("fmax", maximum)
fmin = _ignoring("fmin", minimum)


@function
def nan_to_num(x: Operand, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Any:
    """Numbers in place of NaN and infinities; without others the largest there are."""
    most = float(np.finfo(np.float32).max)
    posinf, neginf = most if posinf is None else posinf, -most if neginf is None else neginf
    finite = where(equal(x, np.inf), posinf, where(equal(x, -np.inf), neginf, x))
    return where(isnan(x), nan, finite)


@function
def isclose(a: Operand, b: Operand, rtol: float = 1e-5, atol: float = 1e-8) -> Any:
    """Whether |a - b| <= atol + rtol |b|, or a == b."""
    near = less_equal(absolute(subtract(a, b)), add(atol, multiply(rtol, absolute(b))))
    return logical_or(logical_and(near, isfinite(b)), equal(a, b))


floor = _operation("floor", "floor", "The largest integer that is not above x.")
ceil = _operation("ceil", "ceil", "The smallest integer that is not below x.")
trunc = registered(_operation("trunc", "trunc", "The integer part."), "fix")
rint = _operation("rint", "round", "The nearest integer, of two the even one.")


@function
def round(a: Operand, decimals: int = 0) -> Any:
    """The nearest number of so many decimals: x times 10^decimals, to an integer, and divided again."""
    if decimals == 0:
        return rint(a)
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return divide(rint(multiply(a, scale)), scale)
    return multiply(rint(divide(a, scale)), scale)


registered(round, "around")


@function
def floor_divide(x: Operand, y: Operand) -> Any:
    """The floor of x / y, once rounded; exact for integers below 2^24."""
    return floor(divide(x, y))


@function
def mod(x: Operand, y: Operand) -> Any:
    """The rest x - y floor(x / y), of rounded steps; exact for integers below 2^24."""
    return subtract(x, multiply(floor(divide(x, y)), y))


registered(mod, "remainder")


@function
def divmod(x: Operand, y: Operand) -> Any:
    """`floor_divide` and `mod`."""
    quotient = floor(divide(x, y))
    return quotient, subtract(x, multiply(quotient, y))
