"""Trains the LeNet of the secure-computation papers on the digits and writes it beside this file.

Convolution 20@5×5, ReLU, max-pool 2, convolution 50@5×5, ReLU, max-pool 2, fully connected 800-500-10 with a
ReLU between. Writes lenet.onnx, test_images.npy and test_labels.npy. About a minute on one core.
"""

from pathlib import Path

import numpy as np
import numpy_nn as nn
from data import augment, load_split, save_held_out, scale_up

SEED = 1
EPOCHS = 40
DECAY = 3.0  # strong: it halves the L1 norms of the weights at the same accuracy


def build(rng: np.random.Generator) -> nn.Network:
    """The untrained network, [N, 1, 28, 28] to [N, 10]."""
    layers: list[nn.Layer] = [nn.Conv(rng, 1, 20, 5), nn.Relu(), nn.MaxPool(2, 2)]
    layers += [nn.Conv(rng, 20, 50, 5), nn.Relu(), nn.MaxPool(2, 2), nn.Flatten()]
    layers += [nn.Linear(rng, 800, 500), nn.Relu(), nn.Linear(rng, 500, 10)]
    return nn.Network("lenet", (1, 28, 28), layers)


def main() -> None:
    """Trains, exports, and prints the accuracy and ranges on the held-out images."""
    folder = Path(__file__).parent
    train_x, train_y, test_x, test_y = load_split()
    rng = np.random.default_rng(SEED)
    network = build(rng)
    nn.train(network, train_x, train_y, augment, rng, epochs=EPOCHS, decay=DECAY)
    nn.save_onnx(network, folder / "lenet.onnx")
    save_held_out(folder)
    images = scale_up(test_x)
    print(f"{network.weight_count()} weights; held-out accuracy {network.accuracy(images, test_y):.2%}")
    nn.print_ranges(network, images)


if __name__ == "__main__":
    main()
