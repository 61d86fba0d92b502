"""Writes the networks of the secure-computation papers as ONNX files with random weights (He-normal, seeded).

    python make_models.py net-a vgg16-cifar --folder /somewhere

For timing and testing; nothing here is trained. Prints per file the number of weights and biases and of
values that pass a ReLU for one sample.
"""

import argparse
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "digits"))
import numpy_nn as nn

MNIST = (1, 28, 28)
CIFAR = (3, 32, 32)


def fully_connected(rng: np.random.Generator, widths: list[int]) -> list[nn.Layer]:
    """Flatten, then linear layers from width to width with ReLU between them, none after the last."""
    layers: list[nn.Layer] = [nn.Flatten()]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(rng, inputs, outputs), nn.Relu()]
    return layers[:-1]


def net_a(rng: np.random.Generator) -> nn.Network:
    """Fully connected 784-128-128-10."""
    return nn.Network("net-a", MNIST, fully_connected(rng, [784, 128, 128, 10]))


def net_b(rng: np.random.Generator) -> nn.Network:
    """Convolution 5@5×5 with stride 2, fully connected 980-100-10."""
    layers: list[nn.Layer] = [nn.Conv(rng, 1, 5, 5, stride=2, pad=2), nn.Relu()]
    return nn.Network("net-b", MNIST, layers + fully_connected(rng, [980, 100, 10]))


def _two_convolutions(
    rng: np.random.Generator, name: str, first: int, second: int, widths: list[int]
) -> nn.Network:
    layers: list[nn.Layer] = [nn.Conv(rng, 1, first, 5), nn.Relu(), nn.MaxPool(2, 2)]
    layers += [nn.Conv(rng, first, second, 5), nn.Relu(), nn.MaxPool(2, 2)]
    return nn.Network(name, MNIST, layers + fully_connected(rng, widths))


def net_c(rng: np.random.Generator) -> nn.Network:
    """Convolutions 16@5×5 and 16@5×5, each with max-pool 2, fully connected 256-100-10."""
    return _two_convolutions(rng, "net-c", 16, 16, [256, 100, 10])


def lenet(rng: np.random.Generator) -> nn.Network:
    """Convolutions 20@5×5 and 50@5×5, each with max-pool 2, fully connected 800-500-10."""
    return _two_convolutions(rng, "lenet", 20, 50, [800, 500, 10])


def alexnet_cifar(rng: np.random.Generator, max_pool: bool) -> nn.Network:
    """AlexNet on 3×32×32; pools come before the ReLU: averages as in Piranha, or maxima as in Falcon."""
    pool = nn.MaxPool if max_pool else nn.AveragePool
    layers: list[nn.Layer] = [nn.Conv(rng, 3, 96, 11, stride=4, pad=9), pool(3, 2), nn.Relu()]  # 32 → 10 → 4
    layers += [nn.Conv(rng, 96, 256, 5, pad=1), pool(2, 1), nn.Relu()]  # 4 → 2 → 1
    for inputs, outputs in ((256, 384), (384, 384), (384, 256)):
        layers += [nn.Conv(rng, inputs, outputs, 3, pad=1), nn.Relu()]
    name = "alexnet-cifar-max" if max_pool else "alexnet-cifar"
    return nn.Network(name, CIFAR, layers + fully_connected(rng, [256, 256, 256, 10]))


def vgg16_cifar(rng: np.random.Generator, name: str, max_pool: bool, widths: list[int]) -> nn.Network:
    """VGG16 on 3×32×32: ReLU then average-pool (MIZAR), or max-pool then ReLU (METEOR)."""
    layers: list[nn.Layer] = []
    channels = 3
    for width, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            layers += [nn.Conv(rng, channels, width, 3, pad=1), nn.Relu()]
            channels = width
        if max_pool:
            layers.insert(-1, nn.MaxPool(2, 2))
        else:
            layers.append(nn.AveragePool(2, 2))
    return nn.Network(name, CIFAR, layers + fully_connected(rng, widths))


MODELS: dict[str, Callable[[np.random.Generator], nn.Network]] = {
    "net-a": net_a,
    "net-b": net_b,
    "net-c": net_c,
    "lenet": lenet,
    "alexnet-cifar": lambda rng: alexnet_cifar(rng, max_pool=False),
    "alexnet-cifar-max": lambda rng: alexnet_cifar(rng, max_pool=True),
    "vgg16-cifar": lambda rng: vgg16_cifar(rng, "vgg16-cifar", False, [512, 256, 256, 10]),
    "vgg16-cifar-max": lambda rng: vgg16_cifar(rng, "vgg16-cifar-max", True, [512, 256, 256, 10]),
    "vgg16-cifar-max-wide": lambda rng: vgg16_cifar(
        rng, "vgg16-cifar-max-wide", True, [512, 4096, 4096, 1000]
    ),
}


def relu_count(network: nn.Network) -> int:
    """Values that pass a ReLU for one sample."""
    sample = np.zeros((1, *network.input_shape), np.float32)
    return sum(y.size for _, layer, y in network.trace(sample) if isinstance(layer, nn.Relu))


def main() -> None:
    """Writes the models named on the command line."""
    parser = argparse.ArgumentParser(description="Write ONNX models with random weights.")
    parser.add_argument("names", nargs="+", choices=MODELS, metavar="model", help=", ".join(MODELS))
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent, help="where to write NAME.onnx")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name in arguments.names:
        network = MODELS[name](np.random.default_rng(arguments.seed))
        path = arguments.folder / f"{name}.onnx"
        nn.save_onnx(network, path)
        print(f"{path}: {network.weight_count():,} weights, {relu_count(network):,} ReLU values")


if __name__ == "__main__":
    main()
