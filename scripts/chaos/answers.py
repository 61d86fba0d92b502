"""What the right answers are: models and data of this repository, computed in the clear."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import megrez
import numpy as np
import numpy.typing as npt

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
MARKER = 0.7351928
"""A pixel of every image: no log may have it."""
TOLERANCE = 5e-3
"""Of a model's answers: its fixed point against floating point."""
LOSS_TOLERANCE, TRAINED_TOLERANCE = 0.02, 0.05
"""Of a loss, and of the answers of a model that was trained on shares."""
BATCH, EPOCHS, ROWS = 2, 12, 24

Array = npt.NDArray[Any]


class Answers:
    """Files of inputs, and what every kind of call must give on them."""

    def __init__(self, words: Sequence[str], folder: Path) -> None:
        folder.mkdir()
        self.model = DIGITS / "cnn.onnx"
        images: Array = np.load(DIGITS / "test_images.npy")
        images[:, 0, 0, 0] = MARKER
        self.compiled = megrez.compile(self.model, batch=BATCH)
        self.inputs = [images[i : i + BATCH] for i in range(0, 40, BATCH)]
        self.outputs = [np.asarray(self.compiled.plain(one)) for one in self.inputs]
        self.files = [folder / f"images{i}.npy" for i in range(len(self.inputs))]
        for file, one in zip(self.files, self.inputs, strict=True):
            np.save(file, one)
        self.rows, self.labels = folder / "rows.npy", folder / "labels.npy"
        np.save(self.rows, images[:ROWS])
        np.save(self.labels, np.load(DIGITS / "test_labels.npy")[:ROWS])
        # One batch of all rows, so that no order of rows changes what is learnt.
        self.training = ["--model", "net-b", "--inputs", self.rows, "--labels", self.labels, "--batch", ROWS]
        self.training += ["--epochs", EPOCHS, "--rate", "2^-5"]
        weights = folder / "weights"
        plain = [*words, "--json", "train", "--plain", "--weights-to", weights, *self.training]
        done = subprocess.run([str(word) for word in plain], check=True, capture_output=True, text=True)
        self.losses = [float(epoch["loss"]) for epoch in json.loads(done.stdout)["epochs"]]
        self.trained = _net_b({file.stem: np.load(file) for file in weights.glob("*.npy")}, self.inputs[0])

    def wrong(self, printed: dict[str, Any], which: int) -> str | None:
        """What is wrong with what `megrez infer` has printed for one of the files."""
        return differ(printed.get("output"), self.outputs[which], TOLERANCE)


def differ(given: Any, wanted: Array, tolerance: float) -> str | None:
    """In what numbers differ from those wanted by more than they may."""
    found = np.asarray(given, dtype=np.float64).reshape(-1)
    if found.size != wanted.size:
        return f"{found.size} numbers in place of {wanted.size}"
    error = float(np.abs(found - wanted.reshape(-1)).max())
    said = f"numbers are {error} off, {found[:4]} for {wanted.reshape(-1)[:4]}"
    return None if error <= tolerance else said


def _net_b(weights: dict[str, Array], images: Array) -> Array:
    """The network `net-b`, in the clear: a convolution of stride 2, and two layers behind it."""
    padded = np.pad(images[:, 0].astype(np.float64), ((0, 0), (2, 2), (2, 2)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), axis=(1, 2))[:, ::2, ::2]
    features = np.einsum("bhwij,oij->bohw", windows, weights["conv1.weight"][:, 0])
    features = np.maximum(features + weights["conv1.bias"][:, None, None], 0).reshape(len(images), -1)
    hidden = np.maximum(features @ weights["fc1.weight"].T + weights["fc1.bias"], 0)
    answers: Array = hidden @ weights["fc2.weight"].T + weights["fc2.bias"]
    return answers
