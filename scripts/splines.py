"""Coefficients of the approximations in crates/megrez-graph/src/layers; errors of MIZAR's Appendix B.

The splines of spline.rs.

With t = min(|x|, T), v = max(-T, min(x, T)), borders -T, 0 and T, u = (t - T/2) / 2^k in [-1, 1], they are
    sigmoid, tanh, erf:  y = y(0) + v / 2^k * (c1 + c2*u + c3*u^2 + c4*u^3)
    gelu, silu:          y = max(x, 0) + c0 + c1*u + c2*u^2 + c3*u^3 + c4*u^4, which is 0 at 0
For every T on a grid of quarters the coefficients are the minimax fit on [0, inf): least squares weighted by
the error of the round before (Lawson's algorithm) on Chebyshev points of [0, T], and one point more for the
limit at infinity, which the clamp turns into the value at T. The best T is kept. The fit is in powers of t; u
keeps the coefficients small, so that little of the precision is lost.

The finer splines have degree 7 in u, and for more than 16 fraction bits 15 (for a sigmoid: and a factor v),
on a fixed T, a power of two where that is nearly as good. Those of octaves.rs and exp.rs have degree 7 in w
in [-1, 1] and are fitted alike.

Needs numpy. Prints all tables, with the errors on a dense grid.
"""

import math

import numpy as np

erf = np.vectorize(math.erf)


def sigmoid(x):
    """1 / (1 + e^-x)."""
    return 1 / (1 + np.exp(-x))


def gelu(x):
    """The form with erf."""
    return x * (1 + erf(x / math.sqrt(2))) / 2


def silu(x):
    """X * sigmoid(x)."""
    return x * sigmoid(x)


def gelu_slope(x):
    """The derivative of GELU."""
    return (1 + erf(x / math.sqrt(2))) / 2 + x * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


FUNCTIONS = {"SIGMOID": sigmoid, "TANH": np.tanh, "ERF": erf, "GELU": gelu, "SILU": silu}
FUNCTIONS["GELU_SLOPE"] = gelu_slope
ODD = {"SIGMOID": 0.5, "TANH": 0.0, "ERF": 0.0, "GELU_SLOPE": 0.5}
DEGREE = 4
FINE_ENDS = {
    7: {"SIGMOID": 8, "TANH": 4, "ERF": 2.75, "GELU": 3.75, "SILU": 8, "GELU_SLOPE": 4},
    15: {"SIGMOID": 16, "TANH": 8, "ERF": 4, "GELU": 4, "SILU": 16, "GELU_SLOPE": 4},
}
GRID = np.linspace(-32, 32, 640_001)


def remainder(name, t):
    """What the polynomial in t stands for, t >= 0, and its limit at infinity."""
    f = FUNCTIONS[name]
    if name in ODD:
        return f(t) - ODD[name], 1 - ODD[name]
    return f(t) - t, 0.0


def minimax(basis, target, rounds=2000):
    """The largest error and the coefficients of the best fit that the rounds found."""
    weights = np.full(len(target), 1 / len(target))
    best = (math.inf, None)
    for _ in range(rounds):
        root = np.sqrt(weights)
        c, *_ = np.linalg.lstsq(basis * root[:, None], target * root, rcond=None)
        error = np.abs(basis @ c - target)
        best = min(best, (error.max(), tuple(c)))
        weights = weights * error / (weights @ error)
    return best


def fit(name):
    """Error, T, k and coefficients of an activation."""
    best = (math.inf,)
    for end in np.arange(1, 10, 0.25):
        k = math.ceil(math.log2(end))
        t = end * (1 - np.cos(np.linspace(0, math.pi, 300))) / 2
        target, limit = remainder(name, t)
        basis = np.stack([(t / 2**k) ** d for d in range(1, DEGREE + 1)], axis=1)
        basis, target = np.vstack([basis, basis[-1:]]), np.append(target, limit)
        rounds = 2000 if minimax(basis, target, 60)[0] < 1.2 * best[0] else 0
        if rounds:
            error, c = minimax(basis, target, rounds)
            best = min(best, (error, end, k, c))
    error, end, k, c = best
    # From powers 0.. of t / 2^k to those of u = (t - end/2) / 2^(k-1). An odd function keeps a factor for v.
    inner = np.polynomial.Polynomial([end / 2 / 2**k, 0.5])
    outer = np.polynomial.Polynomial(np.array(c) / 2 if name in ODD else (0, *c))
    return error, end, k - 1, (0.0,) * (name in ODD) + tuple(outer(inner).coef.round(6))


def fit_fine(name, degree=7):
    """Error, T, k and coefficients of a finer spline."""
    end = FINE_ENDS[degree][name]
    k = math.ceil(math.log2(end)) - 1
    t = end * (1 - np.cos(np.linspace(0, math.pi, 800 if degree > 7 else 400))) / 2
    target, limit = remainder(name, t)
    basis = np.polynomial.chebyshev.chebvander(2 * t / end - 1, degree)
    if name in ODD:
        basis = basis * t[:, None] / 2**k
    rounds = 1000 if degree > 7 else 2000
    error, c = minimax(np.vstack([basis, basis[-1:]]), np.append(target, limit), rounds)
    return error, end, k, (0.0,) * (name in ODD) + powers(c, 2 ** (k + 1) / end)


def powers(c, scale=1.0):
    """Coefficients of powers of u for those of Chebyshev polynomials of u * scale."""
    inner = np.polynomial.Polynomial([0, scale])
    return tuple(np.polynomial.Polynomial(np.polynomial.chebyshev.cheb2poly(c))(inner).coef.round(7))


# The function of w, and what its error is weighted with; the decay's as the error of (e^(2w - 2))^4.
POLYNOMIALS = {
    "RECIPROCAL": (lambda w: 4 / (w + 3), lambda y: 1 / y),
    "INVERSE_ROOT": (lambda w: 2 / np.sqrt(w + 3), lambda y: 1 / y),
    "ROOT": (lambda w: np.sqrt(w + 3) / 2, lambda y: 1 / y),
    "LOGARITHM": (lambda w: np.log((w + 3) / 4), np.ones_like),
    "QUARTER": (lambda w: np.exp(2 * w - 2), lambda y: 4 * y**3 + 1e-4),
    "WHOLE": (np.exp, lambda y: 1 / y),
    "REST": (lambda w: np.exp((w + 1) / 2), lambda y: 1 / y),
}


def fit_polynomial(name):
    """Weighted error and coefficients of a polynomial of octaves.rs or exp.rs."""
    function, weight = POLYNOMIALS[name]
    w = np.cos(np.linspace(0, math.pi, 801))
    y = function(w)
    basis = np.polynomial.chebyshev.chebvander(w, 7)
    error, c = minimax(basis * weight(y)[:, None], y * weight(y))
    return error, powers(c)


def spline(name, end, k, c, x):
    """The approximation, as spline.rs computes it."""
    t = np.minimum(np.abs(x), end)
    u = (t - end / 2) / 2**k
    if name in ODD:
        return ODD[name] + np.sign(x) * t / 2**k * np.polyval(c[:0:-1], u)
    return np.maximum(x, 0) + np.polyval(c[::-1], u)


def mizar_sigmoid(x):
    """Three segments, as printed."""
    return np.clip(0.5 + 0.125 * x, 0, 1)


def mizar_gelu(x):
    """Four segments, as printed."""
    cubic = [-0.011034134030615728, -0.11807612951181953, -0.42226581151983866, -0.5054031199708174]
    f0 = np.polyval(cubic, x)
    even = [0.0018067462606141187, 0, -0.037688200365904236, 0, 0.3603292692789629, 0.5, 0.008526321541038084]
    f1 = np.polyval(even, x)
    return np.select([x < -4, x < -1.95, x <= 3], [0 * x, f0, f1], x)


def table(fine=0):
    """Per activation: the error, end, k and the coefficients; of finer splines if a degree is given."""
    return {name: fit_fine(name, fine) if fine else fit(name) for name in FUNCTIONS}


if __name__ == "__main__":
    for kind in (0, 7, 15):
        for name, (_, end, k, c) in table(kind).items():
            error = np.abs(spline(name, end, k, c, GRID) - FUNCTIONS[name](GRID)).max()
            numbers = ", ".join(f"{a:.7f}" for a in c)
            label = f"FINE_{kind}_{name}" if kind else name
            print(f"{label}: end {end}, k {k}, coefficients [{numbers}], error {error:.7f}")
    for name in POLYNOMIALS:
        error, c = fit_polynomial(name)
        print(f"{name}: coefficients [{', '.join(f'{a:.7f}' for a in c)}], weighted error {error:.2e}")
    for name, spline_of in [("sigmoid", mizar_sigmoid), ("gelu", mizar_gelu)]:
        error = np.abs(spline_of(GRID) - FUNCTIONS[name.upper()](GRID))
        print(f"MIZAR, Appendix B, {name}: error {error.max():.5f} at {GRID[error.argmax()]:.2f}")
