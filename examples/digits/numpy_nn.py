"""A small convolutional network library in pure NumPy: layers with gradients, AdamW, export to ONNX.

Tensors are float32 and laid out [N, C, H, W], or [N, features] after `Flatten`. A layer keeps what its
backward pass needs from the latest forward pass with training=True.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]
Attributes = dict[str, Any]

OPSET = 17
IR_VERSION = 8  # the ONNX release that opset 17 came with


class Layer:
    """One node of a sequential network: `params` are trained along `grads`, `state` is only exported."""

    kind: str
    op_type: str

    def __init__(self) -> None:
        self.params: dict[str, Floats] = {}
        self.grads: dict[str, Floats] = {}
        self.state: dict[str, Floats] = {}

    def forward(self, x: Floats, training: bool = False) -> Floats:
        """Output for a batch."""
        raise NotImplementedError

    def backward(self, dy: Floats) -> Floats:
        """Gradient with respect to the input; fills `grads`."""
        raise NotImplementedError

    def attributes(self) -> Attributes:
        """Attributes of the ONNX node."""
        return {}


class Conv(Layer):
    """2-D convolution, weight [out, in, k, k]; kernel, stride and zero padding are the same on both axes."""

    kind, op_type = "conv", "Conv"

    def __init__(
        self,
        rng: np.random.Generator,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        pad: int = 0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.kernel, self.stride, self.pad = kernel, stride, pad
        self.params["weight"] = _he_normal(rng, (outputs, inputs, kernel, kernel))
        if bias:
            self.params["bias"] = _small_bias(rng, outputs, inputs * kernel * kernel)

    def forward(self, x: Floats, training: bool = False) -> Floats:
        weight = self.params["weight"]
        outputs = len(weight)
        padded = np.pad(x, ((0, 0), (0, 0), (self.pad, self.pad), (self.pad, self.pad)))
        windows = _windows(padded, self.kernel, self.stride)  # [N, C, OH, OW, k, k]
        n, channels, oh, ow = windows.shape[:4]
        patches = windows.transpose(0, 1, 4, 5, 2, 3).reshape(n, channels * self.kernel**2, oh * ow)
        if training:
            self.patches, self.padded_shape, self.output_hw = patches, padded.shape, (oh, ow)
        y: Floats = np.matmul(weight.reshape(outputs, -1), patches)
        if "bias" in self.params:
            y += self.params["bias"][:, None]
        return y.reshape(n, outputs, oh, ow)

    def backward(self, dy: Floats) -> Floats:
        weight, k = self.params["weight"], self.kernel
        oh, ow = self.output_hw
        flat = dy.reshape(len(dy), len(weight), oh * ow)
        per_sample = np.matmul(flat, self.patches.transpose(0, 2, 1))
        self.grads["weight"] = per_sample.sum(axis=0).reshape(weight.shape)
        if "bias" in self.params:
            self.grads["bias"] = flat.sum(axis=(0, 2))
        dpatches = np.matmul(weight.reshape(len(weight), -1).T, flat).reshape(len(dy), -1, k, k, oh, ow)
        dx = _add_windows(dpatches.transpose(0, 1, 4, 5, 2, 3), self.padded_shape, self.stride)
        height, width = dx.shape[2:]
        return dx[:, :, self.pad : height - self.pad, self.pad : width - self.pad]

    def attributes(self) -> Attributes:
        k, s, p = self.kernel, self.stride, self.pad
        return {"kernel_shape": [k, k], "strides": [s, s], "pads": [p] * 4}


class Linear(Layer):
    """Fully connected layer, weight [out, in]; exported as Gemm with transB = 1."""

    kind, op_type = "fc", "Gemm"

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int) -> None:
        super().__init__()
        self.params["weight"] = _he_normal(rng, (outputs, inputs))
        self.params["bias"] = _small_bias(rng, outputs, inputs)

    def forward(self, x: Floats, training: bool = False) -> Floats:
        if training:
            self.x = x
        return x @ self.params["weight"].T + self.params["bias"]

    def backward(self, dy: Floats) -> Floats:
        self.grads["weight"] = dy.T @ self.x
        self.grads["bias"] = dy.sum(axis=0)
        return dy @ self.params["weight"]

    def attributes(self) -> Attributes:
        return {"transB": 1}


class BatchNorm(Layer):
    """Batch normalisation per channel; inference uses running mean and variance."""

    kind, op_type = "bn", "BatchNormalization"
    epsilon = 1e-5
    momentum = 0.9

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.params["scale"] = np.ones(channels, np.float32)
        self.params["bias"] = np.zeros(channels, np.float32)
        self.state["mean"] = np.zeros(channels, np.float32)
        self.state["var"] = np.ones(channels, np.float32)

    def forward(self, x: Floats, training: bool = False) -> Floats:
        mean, var = self.state["mean"], self.state["var"]
        if training:
            mean, var = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
            for name, batch in (("mean", mean), ("var", var)):
                self.state[name] = self.momentum * self.state[name] + np.float32(1 - self.momentum) * batch
        deviation = np.sqrt(var + np.float32(self.epsilon))
        normal = (x - _per_channel(mean)) / _per_channel(deviation)
        if training:
            self.normal, self.deviation = normal, deviation
        return _per_channel(self.params["scale"]) * normal + _per_channel(self.params["bias"])

    def backward(self, dy: Floats) -> Floats:
        axes = (0, 2, 3)
        self.grads["scale"] = (dy * self.normal).sum(axis=axes)
        self.grads["bias"] = dy.sum(axis=axes)
        count = np.float32(dy.size // dy.shape[1])
        along_normal = self.normal * _per_channel(self.grads["scale"] / count)
        across = dy - _per_channel(self.grads["bias"] / count) - along_normal
        return _per_channel(self.params["scale"] / self.deviation) * across

    def attributes(self) -> Attributes:
        return {"epsilon": self.epsilon, "momentum": self.momentum}


class Relu(Layer):
    """max(x, 0)."""

    kind, op_type = "relu", "Relu"

    def forward(self, x: Floats, training: bool = False) -> Floats:
        if training:
            self.positive = x > 0
        return np.maximum(x, 0)

    def backward(self, dy: Floats) -> Floats:
        return dy * self.positive


class Pool(Layer):
    """Pooling over square windows, no padding; rows and columns that fill no window are dropped."""

    kind = "pool"

    def __init__(self, kernel: int, stride: int) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def attributes(self) -> Attributes:
        return {"kernel_shape": [self.kernel] * 2, "strides": [self.stride] * 2}

    def _see(self, x: Floats) -> Floats:
        """The windows of x, [N, C, OH, OW, k, k]."""
        self.input_shape = x.shape
        return _windows(x, self.kernel, self.stride)


class MaxPool(Pool):
    """Largest value of each window; equal ones share the gradient."""

    op_type = "MaxPool"

    def forward(self, x: Floats, training: bool = False) -> Floats:
        windows = self._see(x)
        y: Floats = windows.max(axis=(4, 5))
        if training:
            largest = (windows == y[..., None, None]).astype(np.float32)
            self.shares = largest / largest.sum(axis=(4, 5), keepdims=True)
        return y

    def backward(self, dy: Floats) -> Floats:
        return _add_windows(self.shares * dy[..., None, None], self.input_shape, self.stride)


class AveragePool(Pool):
    """Mean of each window."""

    op_type = "AveragePool"

    def forward(self, x: Floats, training: bool = False) -> Floats:
        y: Floats = self._see(x).mean(axis=(4, 5))
        return y

    def backward(self, dy: Floats) -> Floats:
        shares = np.full((self.kernel, self.kernel), 1 / self.kernel**2, np.float32)
        return _add_windows(shares * dy[..., None, None], self.input_shape, self.stride)


class Flatten(Layer):
    """[N, …] to [N, features]."""

    kind, op_type = "flatten", "Flatten"

    def forward(self, x: Floats, training: bool = False) -> Floats:
        self.input_shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, dy: Floats) -> Floats:
        return dy.reshape(self.input_shape)

    def attributes(self) -> Attributes:
        return {"axis": 1}


class Network:
    """Layers in sequence, named after their kind and place among it (conv1, relu1, pool1, conv2, …)."""

    def __init__(self, name: str, input_shape: tuple[int, ...], layers: list[Layer]) -> None:
        """input_shape is that of one sample, without the batch dimension."""
        self.name, self.input_shape = name, input_shape
        self.layers: dict[str, Layer] = {}
        seen: Counter[str] = Counter()
        for layer in layers:
            seen[layer.kind] += 1
            self.layers[f"{layer.kind}{seen[layer.kind]}"] = layer

    def forward(self, x: Floats, training: bool = False) -> Floats:
        """Logits [N, classes] for a batch."""
        for layer in self.layers.values():
            x = layer.forward(x, training)
        return x

    def trace(self, x: Floats) -> Iterator[tuple[str, Layer, Floats]]:
        """Name, layer and inference output of each layer in turn."""
        for name, layer in self.layers.items():
            x = layer.forward(x)
            yield name, layer, x

    def train_step(self, x: Floats, labels: Labels) -> float:
        """Fills the gradients of all layers; returns the mean cross-entropy of the batch in nats."""
        logits = self.forward(x, training=True)
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_probability = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        rows = np.arange(len(labels))
        gradient = np.exp(log_probability)
        gradient[rows, labels] -= 1
        gradient /= len(labels)
        for layer in reversed(self.layers.values()):
            gradient = layer.backward(gradient)
        return float(-log_probability[rows, labels].mean())

    def accuracy(self, x: Floats, labels: Labels) -> float:
        """Share of the samples whose largest logit is at the label."""
        return float((self.forward(x).argmax(axis=1) == labels).mean())

    def weight_count(self) -> int:
        """Trained numbers: weights, biases, and the scales and biases of batch normalisation."""
        return sum(param.size for layer in self.layers.values() for param in layer.params.values())


class AdamW:
    """Adam with decoupled weight decay (on weights only, not on biases and scales)."""

    def __init__(self, network: Network, decay: float) -> None:
        self.layers = list(network.layers.values())
        self.decay = decay
        self.steps = 0
        self.moments = [
            {name: (np.zeros_like(p), np.zeros_like(p)) for name, p in layer.params.items()}
            for layer in self.layers
        ]

    def step(self, rate: float) -> None:
        """One update of all parameters from the layers' latest gradients."""
        beta1, beta2, epsilon = 0.9, 0.999, 1e-8
        self.steps += 1
        step_size = rate * np.sqrt(1 - beta2**self.steps) / (1 - beta1**self.steps)
        for layer, moments in zip(self.layers, self.moments, strict=True):
            for name in layer.params:
                gradient = layer.grads[name]
                first, second = moments[name]
                first += np.float32(1 - beta1) * (gradient - first)
                second += np.float32(1 - beta2) * (gradient * gradient - second)
                if name == "weight":
                    layer.params[name] *= np.float32(1 - rate * self.decay)
                layer.params[name] -= np.float32(step_size) * first / (np.sqrt(second) + np.float32(epsilon))


def train(
    network: Network,
    images: Floats,
    labels: Labels,
    augment: Callable[[Floats, np.random.Generator], Floats],
    rng: np.random.Generator,
    *,
    epochs: int,
    decay: float,
    batch: int = 32,
    peak_rate: float = 2e-3,
) -> None:
    """AdamW; the rate climbs over the first tenth of the steps, then falls along a cosine to zero."""
    optimizer = AdamW(network, decay)
    per_epoch = len(images) // batch
    total = epochs * per_epoch
    warm_up = total // 10
    for epoch in range(epochs):
        order = rng.permutation(len(images))
        loss = 0.0
        for index in range(per_epoch):
            chosen = order[index * batch : (index + 1) * batch]
            loss += network.train_step(augment(images[chosen], rng), labels[chosen])
            done = epoch * per_epoch + index + 1
            fall = 0.5 * (1 + np.cos(np.pi * max(0, done - warm_up) / (total - warm_up)))
            optimizer.step(peak_rate * min(1.0, done / warm_up) * fall)
        print(f"epoch {epoch + 1:3}/{epochs}  loss {loss / per_epoch:.4f}", flush=True)


def print_ranges(network: Network, x: Floats) -> None:
    """Per layer: its largest |output| on x, and the largest L1 norm of the weights that feed one output.

    The norm beside a batch normalisation is that of the preceding convolution with it folded in.
    """
    print(f"{'layer':10} {'max |output|':>12} {'max L1 row':>10}")
    norms = np.zeros(0, np.float32)
    for name, layer, y in network.trace(x):
        shown = ""
        if isinstance(layer, BatchNorm):
            norms = norms * np.abs(layer.params["scale"]) / np.sqrt(layer.state["var"] + layer.epsilon)
            shown = f"{norms.max():.3f}"
        elif "weight" in layer.params:
            weight = layer.params["weight"]
            norms = np.abs(weight).reshape(len(weight), -1).sum(axis=1)
            shown = f"{norms.max():.3f}"
        print(f"{name:10} {np.abs(y).max():12.3f} {shown:>10}")


def save_onnx(network: Network, path: Path) -> None:
    """Writes `network` with input "input" [N, …], output "logits" [N, classes], and one node per layer."""
    nodes, initializers = [], []
    tensor = "input"
    last = list(network.layers)[-1]
    for name, layer in network.layers.items():
        inputs = [tensor]
        for key, value in (layer.params | layer.state).items():
            inputs.append(f"{name}.{key}")
            initializers.append(numpy_helper.from_array(value, inputs[-1]))
        tensor = "logits" if name == last else f"{name}.out"
        nodes.append(helper.make_node(layer.op_type, inputs, [tensor], name, **layer.attributes()))
    classes = network.layers[last].params["bias"].size
    graph = helper.make_graph(
        nodes,
        network.name,
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", *network.input_shape])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", classes])],
        initializers,
    )
    model = helper.make_model(
        graph,
        producer_name="megrez examples",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def _he_normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Normal weights with variance 2 / (inputs of one output)."""
    fan_in = int(np.prod(shape[1:]))
    return rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / fan_in))


def _small_bias(rng: np.random.Generator, outputs: int, fan_in: int) -> Floats:
    limit = fan_in**-0.5
    return rng.uniform(-limit, limit, outputs).astype(np.float32)


def _windows(x: Floats, kernel: int, stride: int) -> Floats:
    """View of [N, C, H, W] as overlapping windows [N, C, OH, OW, k, k]."""
    return sliding_window_view(x, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]


def _add_windows(windows: Floats, shape: tuple[int, ...], stride: int) -> Floats:
    """Transpose of `_windows`: adds [N, C, OH, OW, k, k] into zeros of `shape` where the windows lie."""
    x = np.zeros(shape, np.float32)
    oh, ow, k = windows.shape[2:5]
    for i in range(k):
        for j in range(k):
            x[:, :, i : i + stride * oh : stride, j : j + stride * ow : stride] += windows[..., i, j]
    return x


def _per_channel(values: Floats) -> Floats:
    """[C] as [C, 1, 1], to meet [N, C, H, W]."""
    return values[:, None, None]
