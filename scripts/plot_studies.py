"""Plots of docs/studies.md from the report of `megrez study truncation --json`. Needs matplotlib.

megrez study truncation --images 360 --samples 4194304 --json > truncation.json
python scripts/plot_studies.py truncation.json docs/img
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

# The same file for the same numbers.
matplotlib.rcParams["svg.hashsalt"] = "megrez"
matplotlib.rcParams["svg.fonttype"] = "none"
STYLE = {
    "secureml": ("C0", "o"),
    "aby3-printed": ("C1", "s"),
    "mizar-fig10": ("C3", "^"),
    "fixed-r": ("0.6", "x"),
    "truncate-first": ("C4", "d"),
    "exact": ("C2", "*"),
}


def rates(report, ring, path):
    """Measured big errors by form, with what theory expects and the published bound."""
    figure, axis = plt.subplots(figsize=(6.4, 4))
    points = [r for r in report["rates"] if r["ring"] == ring]
    expected = [r for r in points if r["form"] == "aby3-printed"]
    slack = [r["slack"] for r in expected]
    axis.plot(slack, [r["expected"] for r in expected], color="k", linewidth=1, label="theory: |x| / 2^ℓ")
    axis.plot(slack, [r["bound"] for r in expected], "k--", linewidth=1, label="Theorem 1: 2^-(ℓ-ℓ_x-1)")
    first = [r for r in points if r["form"] == "truncate-first"]
    axis.plot(
        slack, [r["expected"] for r in first], color="C4", linewidth=1, label="theory: (|x| + |w|) / 2^ℓ"
    )
    never = []
    for form, (color, marker) in STYLE.items():
        seen = [(r["slack"], r["rate"]) for r in points if r["form"] == form and r["errors"] > 0]
        if seen:
            axis.plot(
                *zip(*seen, strict=True), marker, color=color, markersize=5, fillstyle="none", label=form
            )
        else:
            never.append(form)
    axis.set_yscale("log", base=2)
    axis.set_ylim(2**-23, 1)
    axis.set_xlabel("ℓ − ℓ_x: bits between the number and the ring")
    axis.set_ylabel("rate of big errors")
    title = f"ℓ = {ring}, {points[0]['samples']} truncations a point"
    axis.set_title(title + (f"; none: {', '.join(never)}" if never else ""), fontsize=9)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def accuracy(report, path):
    """Accuracy against f, a panel per model and ring."""
    panels = list(dict.fromkeys((a["model"], a["ring"]) for a in report["accuracy"]))
    figure, axes = plt.subplots(1, len(panels), figsize=(3.2 * len(panels), 3.2), sharey=True, squeeze=False)
    for axis, (model, ring) in zip(axes[0], panels, strict=True):
        for form, (color, marker) in STYLE.items():
            rows = [
                a for a in report["accuracy"] if (a["model"], a["ring"], a["form"]) == (model, ring, form)
            ]
            axis.plot(
                [a["frac"] for a in rows],
                [100 * a["accuracy"] for a in rows],
                marker=marker,
                color=color,
                linewidth=1,
                markersize=4,
                fillstyle="none",
                label=form,
            )
        axis.set_title(f"{model}, ℓ = {ring}", fontsize=9)
        axis.set_xlabel("f")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("accuracy, %")
    axes[0][-1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)


if __name__ == "__main__":
    study = json.loads(pathlib.Path(sys.argv[1]).read_text())
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "docs/img")
    folder.mkdir(parents=True, exist_ok=True)
    rates(study, 32, folder / "truncation-errors.svg")
    accuracy(study, folder / "truncation-accuracy.svg")
