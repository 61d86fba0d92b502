"""Trains a deeper network with batch normalisation on the digits and writes cnn.onnx beside this file.

Six 3×3 convolutions (16, 16, average-pool, 32, 32, average-pool, 64, 64; the last two without padding), each
followed by batch normalisation and ReLU, then fully connected 576-64-10. The batch normalisations stay nodes
of their own in the exported file. About a minute on one core.
"""

from pathlib import Path

import numpy as np
import numpy_nn as nn
from data import augment, load_split, scale_up

SEED = 1
EPOCHS = 30
DECAY = 1.0


def build(rng: np.random.Generator) -> nn.Network:
    """The untrained network, [N, 1, 28, 28] to [N, 10]."""
    layers: list[nn.Layer] = []
    channels = 1
    for width, pad in ((16, 1), (32, 1), (64, 0)):
        for _ in range(2):
            layers += [nn.Conv(rng, channels, width, 3, pad=pad, bias=False), nn.BatchNorm(width), nn.Relu()]
            channels = width
        if pad:
            layers.append(nn.AveragePool(2, 2))
    layers += [nn.Flatten(), nn.Linear(rng, channels * 3 * 3, 64), nn.Relu(), nn.Linear(rng, 64, 10)]
    return nn.Network("cnn", (1, 28, 28), layers)


def main() -> None:
    """Trains, exports, and prints the accuracy and ranges on the held-out images."""
    train_x, train_y, test_x, test_y = load_split()
    rng = np.random.default_rng(SEED)
    network = build(rng)
    nn.train(network, train_x, train_y, augment, rng, epochs=EPOCHS, decay=DECAY)
    nn.save_onnx(network, Path(__file__).parent / "cnn.onnx")
    images = scale_up(test_x)
    print(f"{network.weight_count()} weights; held-out accuracy {network.accuracy(images, test_y):.2%}")
    nn.print_ranges(network, images)


if __name__ == "__main__":
    main()
