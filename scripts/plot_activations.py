"""Plots of docs/activations.md: every activation with its spline, and the error. Needs numpy and matplotlib.

python scripts/plot_activations.py docs/img
"""

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


def plot(name, end, k, c, path):
    """One activation with its approximations, and their errors."""
    exact = splines.FUNCTIONS[name](X)
    ours = splines.spline(name, end, k, c, X)
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(6.4, 5), sharex=True, height_ratios=[3, 2])
    top.plot(X, exact, color="0.7", linewidth=4, label=LABELS[name])
    top.plot(X, ours, color="C0", linewidth=1.2, label="spline")
    bottom.plot(X, ours - exact, color="C0", linewidth=1.2, label="spline")
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


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "docs/img")
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, end, k, c) in splines.table().items():
        plot(name, end, k, c, folder / f"{name.lower()}.svg")
