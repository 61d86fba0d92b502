"""Splines of crates/megrez-float/src/math/tables.rs.

A spline has 2^index pieces of equal width. In a piece a function is a polynomial c0 + c1*t + c2*t^2 + ... of
the position t in [0, 1), all coefficients being integers at one scale. The polynomial is the minimax one: a
linear program per piece over Chebyshev points (SciPy, HiGHS), on what remains after interpolation with high
precision (mpmath). Coefficients are rounded from the highest degree down, the lower ones being fitted again
each time. Horner's rule on shares rounds every product down, so that all but the highest carry half a unit
more.

    python scripts/float_tables.py > crates/megrez-float/src/math/tables.rs

needs numpy, scipy and mpmath, and takes seconds. What the tables are good for is measured on all 2^32 inputs
by `megrez float exhaustive`; docs/float.md keeps the results.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp
import numpy as np
from scipy.optimize import linprog

mp.mp.prec = 120
POINTS = 48
# A slope of so few units is taken for zero.
SMALL = 64


@dataclass(frozen=True)
class Spline:
    """A function of the position in [0, 1) over all pieces, and the shape of its table."""

    name: str
    text: str
    function: Callable[[mp.mpf], mp.mpf]
    index: int
    inside: int
    scale: int
    # Bits of c0's ring; the others follow from their size.
    width: int
    degree: int = 2
    # Whether all slopes have one sign, where rounding leaves it to them.
    one_sign: bool = True


def at(function, x):
    """The value, also where the formula divides zero by zero."""
    return function(x) if x else function(mp.mpf(2) ** -50)


def fit(rows, target):
    """Minimax coefficients of the columns of rows."""
    n, k = rows.shape
    ones = np.ones((n, 1))
    bounds = [(None, None)] * k + [(0, None)]
    result = linprog(
        [0.0] * k + [1.0],
        A_ub=np.block([[rows, -ones], [-rows, -ones]]),
        b_ub=np.concatenate([target, -target]),
        bounds=bounds,
        method="highs",
    )
    if not result.success:
        sys.exit(result.message)
    return result.x[:k], result.x[k]


def piece(spline, i):
    """Integer coefficients of a piece, and its error before evaluation, in units."""
    n = 2**spline.index
    unit = mp.mpf(2) ** spline.scale
    nodes = [(1 - mp.cos(mp.pi * (j + mp.mpf(1) / 2) / POINTS)) / 2 for j in range(POINTS)]
    values = [at(spline.function, (i + t) / n) * unit for t in nodes]
    fixed: list[int] = []
    error = 0.0
    for degree in range(spline.degree, -1, -1):
        known = [sum(c * t ** (spline.degree - k) for k, c in enumerate(fixed)) for t in nodes]
        left = [v - k for v, k in zip(values, known, strict=True)]
        inner = [round(j * (POINTS - 1) / max(degree, 1)) for j in range(degree + 1)]
        matrix = mp.matrix([[nodes[j] ** k for k in range(degree + 1)] for j in inner])
        start = mp.lu_solve(matrix, mp.matrix([left[j] for j in inner]))
        rest = [v - sum(start[k] * t**k for k in range(degree + 1)) for t, v in zip(nodes, left, strict=True)]
        rows = np.array([[float(t) ** k for k in range(degree + 1)] for t in nodes])
        more, error = fit(rows, np.array([float(r) for r in rest]))
        half = 0.0 if degree == spline.degree else 0.5
        coefficient = int(mp.nint(start[degree] + more[degree] + half))
        # Where a slope passes zero it keeps the sign of its piece.
        if spline.one_sign and degree == 1 and abs(coefficient) < SMALL:
            coefficient = min(coefficient, -1) if values[-1] < values[0] else max(coefficient, 0)
        fixed.append(coefficient)
    return fixed[::-1], error


def emit(spline):
    """Prints the table as Rust."""
    rows, errors = zip(*(piece(spline, i) for i in range(2**spline.index)), strict=True)
    widths = [spline.width]
    signs = []
    for low in range(1, spline.degree + 1):
        # What Horner's rule has before it multiplies for the last `low` times; one bit holds its sign.
        tails = [sum(c * (j / 8) ** k for k, c in enumerate(row[low:])) for row in rows for j in range(9)]
        widths.append(int(max(abs(v) for v in tails)).bit_length() + 1)
        negative = {v < 0 for v in tails}
        signs.append("None" if len(negative) == 2 else f"Some({str(negative.pop()).lower()})")
    print(f"/// {spline.text} Error of the polynomials: {max(errors):.2f} units of 2^-{spline.scale}.")
    print("#[rustfmt::skip]")
    print(f"pub(crate) const {spline.name}: Spline = Spline {{")
    print(f"    index: {spline.index},")
    print(f"    inside: {spline.inside},")
    print(f"    widths: &{widths},")
    print(f"    negative: &[{', '.join(signs)}],")
    print("    coefficients: &[")
    for row in rows:
        print(f"        {', '.join(map(str, row))},")
    print("    ],\n};\n")


def log_piece(log):
    """log(z)/(z - 1) for a mantissa 1 + x: z is half of it from 1.5 on."""

    def function(x):
        z = 1 + x if x < mp.mpf(1) / 2 else (1 + x) / 2
        return log(z) / (z - 1)

    return function


def erf_piece(x):
    """erf(y)/y for y = 4x below 1, 2·erf(y) from there on."""
    return mp.erf(4 * x) / (4 * x) if x < mp.mpf(1) / 4 else 2 * mp.erf(4 * x)


def expm1_piece(u):
    """(e^x - 1)/x for x = (4u - 2) ln 2, twice that for negative x; a little beyond 1 it stays as it is."""
    far = mp.mpf(93) / 64
    x = max(min(4 * u - 2, far), -far) * mp.log(2)
    value = mp.expm1(x) / x if x else mp.mpf(1)
    return 2 * value if x < 0 else value


def sinh_piece(u):
    """sinh(x)/x for x = 2u ln 2."""
    x = 2 * u * mp.log(2)
    return mp.sinh(x) / x


SPLINES = [
    Spline("EXP2", "2^x on [0, 1).", lambda x: mp.mpf(2) ** x, 6, 22, 28, 29),
    Spline("SINPI", "sin(πx)/x on [0, 1/2).", lambda x: mp.sinpi(x / 2) / (x / 2), 7, 20, 28, 31),
    Spline("TANPI", "tan(πx)/x on [0, 1/4).", lambda x: mp.tan(mp.pi * x / 4) / (x / 4), 7, 19, 27, 31),
    Spline(
        "LOG2",
        "log2(z)/(z − 1), z = m below 1.5, else m/2.",
        log_piece(lambda z: mp.log(z, 2)),
        7,
        16,
        27,
        29,
    ),
    Spline("LN", "ln(z)/(z − 1), z = m below 1.5, else m/2.", log_piece(mp.log), 7, 16, 27, 29),
    Spline(
        "LOG2_FINE", "log2(z)/(z − 1), as above.", log_piece(lambda z: mp.log(z, 2)), 8, 15, 36, 38, degree=3
    ),
    Spline(
        "LOG10",
        "2·log10(z)/(z − 1), as above.",
        log_piece(lambda z: 2 * mp.log(z, 10)),
        7,
        16,
        27,
        29,
    ),
    Spline("EXPM1", "(e^x − 1)/x of x·log2 e + 2 on [0, 4); twice that below 2.", expm1_piece, 8, 22, 28, 31),
    Spline("SINH", "sinh(x)/x of x·log2 e on [0, 2).", sinh_piece, 7, 22, 28, 30),
    Spline("ASIN", "asin(x)/x on [0, 1/2).", lambda x: mp.asin(x / 2) / (x / 2), 6, 21, 28, 30),
    Spline("ATAN", "atan(x)/x on [0, 1).", lambda x: mp.atan(x) / x, 7, 21, 28, 30),
    Spline("SIN", "sin(x)/x on [0, 1).", lambda x: mp.sin(x) / x, 7, 21, 28, 30),
    Spline("COS", "cos(x) on [0, 1).", mp.cos, 7, 21, 28, 30),
    Spline("TAN", "tan(x)/x on [0, 1).", lambda x: mp.tan(x) / x, 8, 20, 28, 30),
    Spline("TANH", "tanh(x)/x on [0, 1).", lambda x: mp.tanh(x) / x, 7, 21, 28, 30),
    Spline(
        "ERF",
        "erf(4x)/4x on [0, 1/4), 2·erf(4x) on [1/4, 1).",
        erf_piece,
        7,
        21,
        28,
        30,
        degree=3,
        one_sign=False,
    ),
]


def main():
    """Prints the file."""
    print("//! Splines, made by `scripts/float_tables.py`: minimax per piece, then rounded.")
    print("//! A line is a piece: c0, c1, c2 and so on.\n")
    print("use super::spline::Spline;\n")
    for spline in SPLINES:
        emit(spline)


main()
