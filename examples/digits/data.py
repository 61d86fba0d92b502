"""scikit-learn's bundled handwritten digits, scaled up to 28×28.

The 1,797 images of 8×8 pixels (grey levels 0 to 16) are split once, stratified by label and with a fixed
seed, into 1,437 for training and 360 held out. Scaling is bilinear, written as two small matrices per image,
so that random shifts and stretches of the training images cost nothing more.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]

SIDE = 28
SOURCE_SIDE = 8
HELD_OUT = 360
SPLIT_SEED = 0


def load_split() -> tuple[Floats, Labels, Floats, Labels]:
    """Training images, training labels, held-out images, held-out labels; images are [N, 8, 8] in [0, 1]."""
    digits = load_digits()
    train_x, test_x, train_y, test_y = train_test_split(
        (digits.images / 16.0).astype(np.float32),
        digits.target.astype(np.int64),
        test_size=HELD_OUT,
        stratify=digits.target,
        random_state=SPLIT_SEED,
    )
    return train_x, train_y, test_x, test_y


def scale_up(images: Floats, stretch: Floats | None = None, shift: Floats | None = None) -> Floats:
    """Bilinear scaling of [N, 8, 8] to [N, 1, 28, 28]; outside the source image is background (0).

    stretch: [N, 2] factor per axis (rows, columns), 1 fills the frame. shift: [N, 2] in pixels of the result.
    """
    count = len(images)
    stretch = np.ones((count, 2), np.float32) if stretch is None else stretch
    shift = np.zeros((count, 2), np.float32) if shift is None else shift
    rows = _interpolation(stretch[:, 0], shift[:, 0])
    columns = _interpolation(stretch[:, 1], shift[:, 1])
    return np.ascontiguousarray((rows @ images @ columns.transpose(0, 2, 1))[:, None])


def augment(images: Floats, rng: np.random.Generator) -> Floats:
    """Scales [N, 8, 8] up to [N, 1, 28, 28], shifted by up to 2 pixels and stretched by up to 10 %."""
    stretch = rng.uniform(0.9, 1.1, (len(images), 2)).astype(np.float32)
    shift = rng.uniform(-2.0, 2.0, (len(images), 2)).astype(np.float32)
    return scale_up(images, stretch, shift)


def save_held_out(folder: Path) -> None:
    """Writes test_images.npy (float32 [360, 1, 28, 28] in [0, 1]) and test_labels.npy (int64 [360])."""
    _, _, images, labels = load_split()
    np.save(folder / "test_images.npy", scale_up(images))
    np.save(folder / "test_labels.npy", labels)


def _interpolation(stretch: Floats, shift: Floats) -> Floats:
    """Matrices [N, 28, 8] whose row i holds the weights of the 8 source pixels in pixel i of the result."""
    centred = np.arange(SIDE, dtype=np.float32) + 0.5 - SIDE / 2 - shift[:, None]
    source = centred / stretch[:, None] * (SOURCE_SIDE / SIDE) + (SOURCE_SIDE - 1) / 2
    distance = np.abs(source[:, :, None] - np.arange(SOURCE_SIDE, dtype=np.float32))
    return np.maximum(0.0, 1.0 - distance).astype(np.float32)
