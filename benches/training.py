"""How well networks train in fixed point: over seeds, roundings, fraction bits and rings, beside float32.

    python benches/training.py --output training.json
    python benches/training.py --mnist x.npy y.npy --output mnist.json

`megrez study training` walks the steps' plans on plain words, truncations as parties compute them. Without
`--mnist` the data is scikit-learn's digits (1,437 rows of 64 numbers, 360 more held out) and the network
64-64-10; with it LeNet learns from all of these rows but the last 2,000.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from megrez._networks import perceptron
from sklearn.datasets import load_digits

_SEEDS = (1, 2, 3, 4, 5)


def study(model: str | Path, files: list[Path], *options: object) -> dict[str, Any]:
    """What `megrez study training` says."""
    rows = ["--inputs", files[0], "--labels", files[1], "--model", model]
    command = ["megrez", "--json", "study", "training", *map(str, [*rows, *options])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def digits(folder: Path) -> list[dict[str, Any]]:
    """A perceptron on scikit-learn's digits, its weights and its order of rows by the seed."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    files = [folder / "x.npy", folder / "y.npy"]
    np.save(files[0], (images[order] / 16).astype(np.float32))
    np.save(files[1], labels[order].astype(np.float32))
    learning = ("--held-out", 360, "--batch", 32, "--epochs", 30, "--rate", "2^-2")
    found = []
    for seed in _SEEDS:
        model = folder / f"{seed}.onnx"
        model.write_bytes(perceptron([64, 64, 10], np.random.RandomState(seed)))
        own = (*learning, "--seeds", seed)
        kinds = [
            ("--frac", "16,13,10", "--rounding", "exact,floor,mizar-fig10"),
            ("--ring", "48", "--frac", "14", "--rounding", "exact"),
            ("--ring", "40", "--frac", "10", "--rounding", "exact"),
        ]
        found += [study(model, files, *own, *kind) for kind in kinds]
    return found


def lenet(files: list[Path], epochs: int, seeds: int) -> list[dict[str, Any]]:
    """LeNet from random weights, on images [N, 1, 28, 28]."""
    learning = ("--held-out", 2000, "--batch", 32, "--epochs", epochs, "--rate", "2^-4")
    kinds = ("--frac", "16,10", "--rounding", "exact,floor")
    return [study("lenet", files, *learning, *kinds, "--seeds", seed) for seed in _SEEDS[:seeds]]


def table(studies: list[dict[str, Any]]) -> str:
    """Percent of the held-out rows that are right after the last epoch, over seeds."""
    kinds: dict[str, list[float]] = {"float32": []}
    seen = set()
    for one in studies:
        for plain in one["plain"]:
            if plain["seed"] not in seen:
                seen.add(plain["seed"])
                kinds["float32"].append(plain["accuracy"][-1])
        for row in one["trainings"]:
            kind = f"{row['rounding']}, {row['ring']} bits, f = {row['frac']}"
            kinds.setdefault(kind, []).append(row["accuracy"][-1])
    lines = ["| | mean | least | most |", "| --- | --- | --- | --- |"]
    for kind, right in kinds.items():
        cells = [100 * float(value) for value in (np.mean(right), min(right), max(right))]
        lines.append(f"| {kind} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mnist", type=Path, nargs=2, metavar=("IMAGES", "LABELS"))
    parser.add_argument("--epochs", type=int, default=4, help="of LeNet")
    parser.add_argument("--seeds", type=int, default=5, help="of LeNet")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = lenet(args.mnist, args.epochs, args.seeds) if args.mnist else digits(Path(name))
    print(table(found))
    if args.output:
        args.output.write_text(
            json.dumps({"schema": "megrez.bench.training-accuracy/1", "studies": found}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
