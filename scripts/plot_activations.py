"""Plots of docs/activations.md: every activation and function with its approximation, and the error.

Needs numpy and matplotlib.

python scripts/plot_activations.py docs/img
"""

import math
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import splines

# The same file for the same numbers.
matplotlib.rcParams["svg.hashsalt"] = "megrez"
matplotlib.rcParams["svg.fonttype"] = "none"
LABELS = {"SIGMOID": "Sigmoid", "TANH": "Tanh", "ERF": "Erf", "GELU": "GELU", "SILU": "SiLU"}
MIZAR = {"SIGMOID": splines.mizar_sigmoid, "GELU": splines.mizar_gelu}
X = np.linspace(-9, 9, 721)


def plot(name, end, k, c, fine, path):
    """One activation with its approximations, and their errors."""
    exact = splines.FUNCTIONS[name](X)
    ours = splines.spline(name, end, k, c, X)
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(6.4, 5), sharex=True, height_ratios=[3, 2])
    top.plot(X, exact, color="0.7", linewidth=4, label=LABELS[name])
    top.plot(X, ours, color="C0", linewidth=1.2, label="spline")
    bottom.plot(X, ours - exact, color="C0", linewidth=1.2, label="spline")
    bottom.plot(X, splines.spline(name, *fine, X) - exact, color="C2", linewidth=1, label="finer spline")
    if name in MIZAR:
        theirs = MIZAR[name](X)
        top.plot(X, theirs, "--", color="C3", linewidth=1, label="MIZAR, Appendix B")
        bottom.plot(X, theirs - exact, "--", color="C3", linewidth=1, label="MIZAR, Appendix B")
    bottom.legend(fontsize=8)
    for axis in (top, bottom):
        axis.grid(alpha=0.3)
        for border in (-end, 0, end):
            axis.axvline(border, color="0.5", linewidth=0.6, linestyle=":")
    top.legend(fontsize=8)
    bottom.set_ylabel("error")
    bottom.set_xlabel("x; dotted: borders of segments")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def octave(c, undo, x):
    """A function of many octaves: its polynomial on [1/2, 1), and what undoes the scaling."""
    e = np.floor(np.log2(x)) + 1
    return np.polyval(c[::-1], 4 * x / 2**e - 3), undo(e)


def functions(path):
    """Errors of the functions that are no activations, in exact arithmetic."""
    c = {name: splines.fit_polynomial(name)[1] for name in splines.POLYNOMIALS}

    def of_octaves(name, undo):
        return lambda x: np.prod(octave(c[name], undo, x), axis=0)

    def decay(x):
        return np.polyval(c["QUARTER"][::-1], np.maximum(x, -16) / 8 + 1) ** 4

    def rise(x):
        n = np.floor(x / math.log(2))
        return np.polyval(c["REST"][::-1], 2 * (x - n * math.log(2)) - 1) * 2**n

    positive = np.geomspace(2**-8, 2**8, 961)
    panels = [
        ("1/x, relative", positive, lambda x: 1 / x, of_octaves("RECIPROCAL", lambda e: 2**-e), True),
        (
            "1/√x, relative",
            positive,
            lambda x: x**-0.5,
            of_octaves("INVERSE_ROOT", lambda e: 2 ** (-e / 2)),
            True,
        ),
        ("√x, relative", positive, np.sqrt, of_octaves("ROOT", lambda e: 2 ** (e / 2)), True),
        (
            "ln x",
            positive,
            np.log,
            lambda x: np.sum(octave(c["LOGARITHM"], lambda e: e * math.log(2), x), axis=0),
            False,
        ),
        ("e^x, x ≤ 0 (Softmax)", np.linspace(-20, 0, 601), np.exp, decay, False),
        (
            "e^x within ±4, relative",
            np.linspace(-4, 4, 601),
            np.exp,
            lambda x: np.polyval(c["WHOLE"][::-1], x / 4) ** 4,
            True,
        ),
        ("e^x, relative", np.linspace(-10, 10, 601), np.exp, rise, True),
    ]
    figure, axes = plt.subplots(4, 2, figsize=(8, 9))
    axes.flat[-1].axis("off")
    for axis, (title, x, exact, ours, relative) in zip(axes.flat, panels, strict=False):
        y = exact(x)
        axis.plot(x, (ours(x) - y) / (y if relative else 1), linewidth=1)
        axis.set_title(title, fontsize=9)
        axis.grid(alpha=0.3)
        if x[0] > 0:
            axis.set_xscale("log", base=2)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "docs/img")
    folder.mkdir(parents=True, exist_ok=True)
    finer = splines.table(fine=7)
    for name, (_, end, k, c) in splines.table().items():
        plot(name, end, k, c, finer[name][1:], folder / f"{name.lower()}.svg")
    functions(folder / "functions.svg")
