"""Run modules and functions of torch.nn through megrez, exported as `megrez.compile` does.

    pip install . torch onnx onnxscript
    cargo build -p megrez-graph --example onnx_cases
    python benches/coverage/torch_modules.py --write docs/coverage.md

Every module has random weights and random data. `passed` needs every number within 2^-8 absolute plus 2^-8
relative of what PyTorch computes. This ends with 1 if any result is wrong or any run crashes.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from faces import Outcome
from megrez import _torch
from megrez._native import Error
from runs import attempt, finish, options, save, told
from torch import Tensor, nn
from torch.nn import functional

MARKER = "<!-- torch modules -->"
Run = Callable[..., Tensor]
Entry = tuple[str, nn.Module, tuple[Tensor, ...]]


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, *inputs: Tensor) -> Tensor:
        """Calls it."""
        return self.run(*inputs)


def first(module: nn.Module) -> nn.Module:
    """A module whose first output counts, such as a recurrent one."""
    return Took(module, lambda outputs: outputs[0])


class Took(nn.Module):
    """A module, and what is taken of its outputs."""

    def __init__(self, module: nn.Module, take: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.module, self.take = module, take

    def forward(self, *inputs: Tensor) -> Tensor:
        """Calls the module."""
        return self.take(self.module(*inputs))


class Attends(nn.Module):
    """A sequence that attends to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Queries, keys and values of one sequence."""
        found: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return found


def activations() -> list[Entry]:
    """All activations of torch.nn without chance."""
    x = torch.linspace(-4, 4, 64).reshape(4, 16)
    modules = [
        nn.CELU(),
        nn.ELU(),
        nn.GELU(),
        nn.GELU(approximate="tanh"),
        nn.GLU(),
        nn.Hardshrink(),
        nn.Hardsigmoid(),
        nn.Hardswish(),
        nn.Hardtanh(),
        nn.LeakyReLU(0.1),
        nn.LogSigmoid(),
        nn.LogSoftmax(dim=1),
        nn.Mish(),
        nn.PReLU(),
        nn.ReLU(),
        nn.ReLU6(),
        nn.SELU(),
        nn.SiLU(),
        nn.Sigmoid(),
        nn.Softmax(dim=1),
        nn.Softmin(dim=1),
        nn.Softplus(),
        nn.Softshrink(),
        nn.Softsign(),
        nn.Tanh(),
        nn.Tanhshrink(),
        nn.Threshold(0.5, -1.0),
    ]
    return [(repr(module), module, (x,)) for module in modules]


def layers() -> list[Entry]:
    """Layers with weights, pools, norms and what rearranges images."""
    line, image, solid = torch.randn(2, 4, 12), torch.randn(2, 4, 8, 8), torch.randn(1, 2, 5, 5, 5)
    text, tokens = torch.randn(2, 6, 16), torch.randint(0, 20, (2, 6))
    modules: list[tuple[nn.Module, Tensor]] = [
        (nn.Linear(12, 5), line),
        (nn.Conv1d(4, 6, 3, padding=1), line),
        (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), image),
        (nn.Conv3d(2, 3, 3), solid),
        (nn.ConvTranspose1d(4, 3, 4, stride=2), line),
        (nn.ConvTranspose2d(4, 3, 4, stride=2, padding=1), image),
        (nn.MaxPool1d(2), line),
        (nn.MaxPool2d(3, 2, 1), image),
        (nn.AvgPool1d(3), line),
        (nn.AvgPool2d(2), image),
        (nn.AdaptiveAvgPool2d(1), image),
        (nn.AdaptiveAvgPool2d((4, 4)), image),
        (nn.AdaptiveMaxPool2d(2), image),
        (nn.BatchNorm2d(4), image),
        (nn.LayerNorm(12), line),
        (nn.GroupNorm(2, 4), image),
        (nn.InstanceNorm2d(4, affine=True), image),
        (nn.RMSNorm(12), line),
        (nn.LocalResponseNorm(2), image),
        (first(nn.RNN(12, 5, batch_first=True)), line),
        (first(nn.LSTM(12, 5, batch_first=True)), line),
        (first(nn.LSTM(12, 5, num_layers=2, bidirectional=True)), line),
        (first(nn.GRU(12, 5, batch_first=True)), line),
        (nn.LSTMCell(16, 5).requires_grad_(False), torch.randn(3, 16)),
        (nn.Embedding(20, 7), tokens),
        (Attends(), text),
        (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), text),
        (nn.Upsample(scale_factor=2), image),
        (nn.Upsample(scale_factor=2, mode="bilinear"), image),
        (nn.PixelShuffle(2), image),
        (nn.PixelUnshuffle(2), image),
        (nn.ReflectionPad2d(1), image),
        (nn.ReplicationPad2d(1), image),
        (nn.ZeroPad2d(1), image),
        (nn.CircularPad2d(1), image),
        (nn.ChannelShuffle(2), image),
        (nn.Flatten(), image),
        (nn.Unfold(2), image),
        (nn.Dropout(), line),
    ]
    # What takes several outputs is named after what it takes them of.
    entries = []
    for given, x in modules:
        module = first(given) if isinstance(given, nn.LSTMCell) else given
        inner = module.module if isinstance(module, Took) else module
        name = "MultiheadAttention(16, 4)" if isinstance(inner, Attends) else repr(inner).split("\n")[0]
        entries.append((name.rstrip("("), module, (x,)))
    return entries


def functions() -> list[Entry]:
    """Functions that modules are written with."""
    x, y = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    image, grid = torch.randn(1, 2, 5, 5), torch.rand(1, 4, 4, 2) * 1.6 - 0.8
    mask = torch.tril(torch.ones(3, 3)).bool()
    bicubic: Run = lambda a: functional.interpolate(a, size=(8, 8), mode="bicubic")  # noqa: E731
    scaled = functional.scaled_dot_product_attention
    runs: list[tuple[str, Run, tuple[Tensor, ...]]] = [
        ("einsum", lambda a, b: torch.einsum("bij,bjk->bik", a, b), (x, y)),
        ("bmm", torch.bmm, (x, y)),
        ("functional.cosine_similarity", lambda a: functional.cosine_similarity(a, 2 * a + 1, -1), (x,)),
        ("functional.normalize", lambda a: functional.normalize(a, dim=-1), (x,)),
        ("functional.interpolate(bicubic)", bicubic, (image,)),
        ("functional.grid_sample", lambda a: functional.grid_sample(a, grid), (image,)),
        ("functional.scaled_dot_product_attention", scaled, (x, x, x)),
        ("functional.scaled_dot_product_attention(masked)", lambda a: scaled(a, a, a, attn_mask=mask), (x,)),
        ("clamp", lambda a: a.clamp(-0.5, 0.5), (x,)),
        ("cumsum", lambda a: a.cumsum(1), (x,)),
        ("topk", lambda a: a.topk(2, dim=-1).values, (x,)),
        ("where", lambda a: torch.where(a > 0.1, a, 2 * a), (x,)),
        ("var", lambda a: a.var(-1), (x,)),
        ("chunk, cat, roll", lambda a: torch.cat(a.roll(1, -1).chunk(2, -1)[::-1], -1), (x,)),
        ("amax, argmax", lambda a: a.amax(1) + a.argmax(1), (x,)),
    ]
    return [(name, Function(run), given) for name, run, given in runs]


def write(folder: Path, entry: Entry) -> None:
    """The model as megrez exports it, its data and what PyTorch makes of it, as a folder."""
    _, module, given = entry
    model = _torch.export(module, given)
    with torch.no_grad():
        expected = module.eval()(*given)
    save(folder, model, [x.numpy().astype(np.float32) for x in given], [expected.numpy()])


def main() -> int:
    """Run all modules and print how each went."""
    arguments = options(__doc__).parse_args()
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    lines = ["| module | outcome |", "| --- | --- |"]
    tried = [entry for entry in activations() + layers() + functions() if arguments.only in entry[0]]
    outcomes: dict[int, Outcome] = {}
    with tempfile.TemporaryDirectory() as place:
        folders = {}
        for i, entry in enumerate(tried):
            folder = Path(place) / f"{i:02}"
            try:
                write(folder, entry)
                folders[str(folder)] = i
            except Error as error:
                outcomes[i] = ("unsupported", str(error).split("\n")[0])
        for where, outcome in attempt(arguments, [Path(folder) for folder in folders]).items():
            outcomes[folders[where]] = outcome
    for i, (name, _, _) in enumerate(tried):
        lines.append(f"| `{name}` | {told(outcomes[i])} |")
    kinds = [what for what, _ in outcomes.values()]
    head = f"PyTorch {torch.__version__.split('+')[0]}: {kinds.count('passed')} of {len(tried)}."
    text = "\n".join([head, "", *lines])
    return finish(arguments, MARKER, text, bad=bool("wrong" in kinds or "crash" in kinds))


if __name__ == "__main__":
    sys.exit(main())
