"""What SPU computes: the operations and networks of the pairs, in plain jax, as an SPU user would write them.

Shapes, weights' sizes and ranges of data are those of megrez's benches of the same names.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = Any
Function = Callable[..., Array]
"""A function of arrays, and the arrays: all of them are secret."""
Program = tuple[Function, list[np.ndarray]]

# Name: the function of one array, and the range of its elements.
ELEMENTWISE: dict[str, tuple[Function, float, float]] = {
    "msb": (lambda x: x < 0, -16, 16),
    "relu": (jax.nn.relu, -16, 16),
    "sigmoid": (jax.nn.sigmoid, -16, 16),
    "gelu": (jax.nn.gelu, -16, 16),
    "exp": (jnp.exp, -4, 4),
    "log": (jnp.log, 1 / 16, 16),
    "reciprocal": (lambda x: 1 / x, 1 / 16, 16),
}


def uniform(low: float, high: float, shape: Sequence[int]) -> np.ndarray:
    """Test data."""
    return np.random.default_rng(1).uniform(low, high, shape).astype(np.float32)


class Weights:
    """Random weights, in the order of their use."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(2)
        self.arrays: list[np.ndarray] = []

    def add(self, shape: Sequence[int], deviation: float) -> None:
        """Of a standard deviation."""
        self.arrays.append((self.random.standard_normal(shape) * deviation).astype(np.float32))

    def layer(self, shape: Sequence[int]) -> None:
        """Of a convolution or a fully connected layer, and its bias."""
        self.add(shape, math.sqrt(2 / math.prod(shape[:-1])))
        self.add([shape[-1]], 0.1)


def max_pool(x: Array) -> Array:
    """2×2 windows of NHWC."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def average_pool(x: Array) -> Array:
    """2×2 windows of NHWC."""
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4


def conv(x: Array, weight: Array, bias: Array, padding: str) -> Array:
    """A convolution of NHWC."""
    dimensions = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, weight, (1, 1), padding, dimension_numbers=dimensions) + bias


def dense(x: Array, weights: Sequence[Array]) -> Array:
    """Fully connected layers with ReLUs between them."""
    x = x.reshape(x.shape[0], -1)
    for i in range(0, len(weights), 2):
        x = x @ weights[i] + weights[i + 1]
        if i + 2 < len(weights):
            x = jax.nn.relu(x)
    return x


def lenet() -> Program:
    """Conv 20@5, max-pool, conv 50@5, max-pool, FC 800-500-10."""
    weights = Weights()
    for shape in ([5, 5, 1, 20], [5, 5, 20, 50], [800, 500], [500, 10]):
        weights.layer(shape)

    def run(x: Array, *w: Array) -> Array:
        x = max_pool(jax.nn.relu(conv(x, w[0], w[1], "VALID")))
        x = max_pool(jax.nn.relu(conv(x, w[2], w[3], "VALID")))
        return dense(x, w[4:])

    return run, [uniform(0, 1, [1, 28, 28, 1]), *weights.arrays]


def net_a() -> Program:
    """FC 784-128-128-10."""
    weights = Weights()
    for shape in ([784, 128], [128, 128], [128, 10]):
        weights.layer(shape)
    return lambda x, *w: dense(x, w), [uniform(0, 1, [1, 784]), *weights.arrays]


def training(model: Program, batch: int) -> Program:
    """A step of SGD on the mean cross-entropy of a batch, rate 2^-4; the new weights behind each other."""
    run, (one, *weights) = model
    labels = np.eye(10, dtype=np.float32)[np.arange(batch) % 10]

    def loss(w: Sequence[Array], x: Array, y: Array) -> Array:
        return -(y * jax.nn.log_softmax(run(x, *w))).sum() / batch

    def step(x: Array, y: Array, *w: Array) -> Array:
        gradients = jax.grad(loss)(list(w), x, y)
        moved = [part - gradient / 16 for part, gradient in zip(w, gradients, strict=True)]
        return jnp.concatenate([part.reshape(-1) for part in moved])

    return step, [uniform(0, 1, [batch, *one.shape[1:]]), labels, *weights]


def vgg16() -> Program:
    """13 convolutions 3×3, average pools after the ReLUs, FC 512-256-256-10."""
    weights, channels = Weights(), 3
    blocks = [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)]
    for count, filters in blocks:
        for _ in range(count):
            weights.layer([3, 3, channels, filters])
            channels = filters
    for shape in ([512, 256], [256, 256], [256, 10]):
        weights.layer(shape)

    def run(x: Array, *w: Array) -> Array:
        at = 0
        for count, _ in blocks:
            for _ in range(count):
                x = jax.nn.relu(conv(x, w[at], w[at + 1], "SAME"))
                at += 2
            x = average_pool(x)
        return dense(x, w[at:])

    return run, [uniform(0, 1, [1, 32, 32, 3]), *weights.arrays]


def gpt2_block() -> Program:
    """One block of GPT-2: width 768, 12 heads, 8 tokens, causal."""
    width, heads, tokens = 768, 12, 8
    weights = Weights()
    for inputs, outputs in ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)):
        weights.add([inputs, outputs], 0.02)
        weights.add([outputs], 0.02)
    # Scale and offset of both normalisations.
    weights.arrays += [np.ones(width, np.float32), np.zeros(width, np.float32)] * 2
    past = np.tril(np.ones([tokens, tokens], bool))

    def norm(x: Array, scale: Array, offset: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-5) * scale + offset

    def attention(x: Array, w: Sequence[Array]) -> Array:
        q, k, v = (
            part.reshape(tokens, heads, -1).transpose(1, 0, 2) for part in jnp.split(x @ w[0] + w[1], 3, 1)
        )
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(width // heads)
        scores = jax.nn.softmax(jnp.where(past, scores, -1e4), axis=-1)
        return (scores @ v).transpose(1, 0, 2).reshape(tokens, width) @ w[2] + w[3]

    def run(x: Array, *w: Array) -> Array:
        x = x + attention(norm(x, w[8], w[9]), w)
        return x + jax.nn.gelu(norm(x, w[10], w[11]) @ w[4] + w[5]) @ w[6] + w[7]

    return run, [uniform(0, 1, [tokens, width]), *weights.arrays]


MODELS: dict[str, Callable[[], Program]] = {"lenet": lenet, "vgg16-cifar": vgg16, "gpt2-block": gpt2_block}


TRAININGS: dict[str, Callable[[], Program]] = {"train-net-a": net_a, "train-lenet": lenet}


def program(name: str, size: Sequence[int]) -> Program:
    """A program by name: elements of an operation, or rows and columns."""
    if name in ELEMENTWISE:
        function, low, high = ELEMENTWISE[name]
        return function, [uniform(low, high, size)]
    if name in MODELS:
        return MODELS[name]()
    if name in TRAININGS:
        return training(TRAININGS[name](), size[0])
    if name == "softmax":
        return jax.nn.softmax, [uniform(-16, 16, size)]
    if name == "maxpool":
        return max_pool, [uniform(-16, 16, [1, 2, 2 * size[0], 1])]
    if name.endswith("matmul"):
        m, k, n = size
        function, factors = jnp.matmul, [uniform(-16, 16, [m, k]), uniform(-16, 16, [k, n])]
    else:
        function, factors = jnp.multiply, [uniform(-16, 16, size), uniform(-16, 16, size)]
    # A product of whole numbers is not truncated.
    return function, factors if name.startswith("fixed") else [x.astype(np.int32) for x in factors]
