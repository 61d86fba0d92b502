"""Run networks of torchvision and transformers through megrez, exported as `megrez.compile` does.

    pip install . torch torchvision transformers onnx onnxruntime onnxscript
    cargo build -p megrez-graph --example onnx_cases
    python benches/coverage/networks.py --write docs/coverage.md

The architectures are those of the packages; weights are random, because none can be downloaded here, and
images and configurations are small. Ranges are proven, or else taken from four other inputs with a margin
of 2. `passed` needs every number within 2^-8 absolute plus 2^-8 relative of what onnxruntime computes.
This ends with 1 if any result is wrong or any run crashes.
"""

from __future__ import annotations

import collections
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
import torchvision.models as vision
import transformers as hugging
from faces import Outcome
from megrez import _torch
from megrez._native import Error
from runs import attempt, finish, options, save, told
from torch import Tensor, nn

MARKER = "<!-- networks -->"
Make = Callable[[], tuple[nn.Module, Callable[[], Tensor]]]


class Output(nn.Module):
    """A network of transformers whose last hidden state or logits count."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """The first of what the network gives."""
        found: Tensor = self.network(x, return_dict=False)[0]
        return found


def images(make: Callable[..., nn.Module], size: int = 64, **options: Any) -> Make:
    """A classifier of images with ten classes."""
    return lambda: (make(num_classes=10, **options), lambda: torch.rand(1, 3, size, size))


def text(kind: str, **options: Any) -> Make:
    """A language model of two layers on eight tokens."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    names = {**sizes, "vocab_size": 50, "max_position_embeddings": 32, **options}

    def build() -> tuple[nn.Module, Callable[[], Tensor]]:
        config = getattr(hugging, f"{kind}Config")(**names, attn_implementation="eager")
        config.use_cache = False
        network = getattr(hugging, f"{kind}Model")(config)
        return Output(network), lambda: torch.randint(3, 50, (1, 8))

    return build


def pictures(kind: str, **options: Any) -> Make:
    """A network of transformers on an image."""

    def build() -> tuple[nn.Module, Callable[[], Tensor]]:
        config = getattr(hugging, f"{kind}Config")(**options)
        return Output(getattr(hugging, f"{kind}Model")(config)), lambda: torch.rand(1, 3, 32, 32)

    return build


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
NETWORKS: dict[str, Make] = {
    "AlexNet": images(vision.alexnet),
    "ResNet-18": images(vision.resnet18),
    "ResNet-50": images(vision.resnet50),
    "ResNeXt-50": images(vision.resnext50_32x4d),
    "DenseNet-121": images(vision.densenet121),
    "SqueezeNet 1.1": images(vision.squeezenet1_1),
    "GoogLeNet": images(vision.googlenet, init_weights=False, aux_logits=False),
    "Inception v3": images(vision.inception_v3, 80, init_weights=False, aux_logits=False),
    "MobileNet v2": images(vision.mobilenet_v2),
    "MobileNet v3": images(vision.mobilenet_v3_small),
    "MnasNet": images(vision.mnasnet0_5),
    "ShuffleNet v2": images(vision.shufflenet_v2_x0_5),
    "EfficientNet": images(vision.efficientnet_b0),
    "RegNet": images(vision.regnet_y_400mf),
    "ConvNeXt": images(vision.convnext_tiny, 32),
    "Swin": images(vision.swin_t, 32),
    "Vision transformer": images(
        vision.VisionTransformer,
        32,
        image_size=32,
        patch_size=8,
        num_layers=2,
        num_heads=4,
        hidden_dim=32,
        mlp_dim=64,
    ),
    "BERT": text("Bert"),
    "RoBERTa": text("Roberta", pad_token_id=1),
    "ELECTRA": text("Electra", embedding_size=16),
    "ALBERT": text("Albert", embedding_size=16),
    "DistilBERT": text("DistilBert", dim=32, n_layers=2, n_heads=4, hidden_dim=64),
    "MPNet": text("MPNet"),
    "GPT-2": text("GPT2", n_embd=32, n_layer=2, n_head=4),
    "GPT-NeoX": text("GPTNeoX"),
    "OPT": text("OPT", ffn_dim=64, word_embed_proj_dim=32),
    "Llama": text("Llama", num_key_value_heads=2),
    "Qwen 2": text("Qwen2", num_key_value_heads=2),
    "Mistral": text("Mistral", num_key_value_heads=2),
    "ViT": pictures("ViT", image_size=32, patch_size=8, **SMALL),
    "DeiT": pictures("DeiT", image_size=32, patch_size=8, **SMALL),
    "ConvNeXt v2": pictures("ConvNextV2", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2),
}


def settled(module: nn.Module, data: Callable[[], Tensor]) -> nn.Module:
    """A network whose normalisations know their data: without, numbers vanish or explode on the way."""
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    if norms:
        for layer in norms:
            layer.momentum = None
        with torch.no_grad():
            module.train()(torch.cat([data() for _ in range(16)]))
    return module.eval()


def write(folder: Path, make: Make) -> None:
    """The model as megrez exports it, an input with what onnxruntime makes of it, and a sample."""
    module, data = make()
    given = data()
    model = _torch.export(settled(module, data), (given,))
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, quiet)
    name = session.get_inputs()[0].name
    expected = session.run(None, {name: given.numpy()})
    whole = [x.numpy().astype(np.float32) for x in (given, *(data() for _ in range(4)))]
    save(folder, model, whole[:1], expected, [[sample] for sample in whole[1:]])


def main() -> int:
    """Run all networks and print how each went."""
    arguments = options(__doc__).parse_args()
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    lines = ["| network | outcome | ranges |", "| --- | --- | --- |"]
    counted: collections.Counter[str] = collections.Counter()
    for name, make in NETWORKS.items():
        if arguments.only not in name:
            continue
        with tempfile.TemporaryDirectory() as place:
            outcome: Outcome
            try:
                write(Path(place) / "it", make)
                outcome = attempt(arguments, [Path(place) / "it"])[str(Path(place) / "it")]
            except Error as error:
                outcome = ("unsupported", str(error).split("\n")[0])
        what, why = outcome
        counted[what] += 1
        counted[why] += what == "passed"
        lines.append(f"| {name} | {told(outcome)} | {why if what == 'passed' else ''} |")
        print(lines[-1], flush=True)
    of = sum(counted[what] for what in ("passed", "unsupported", "wrong", "crash"))
    bases = ", ".join(f"{counted[basis]} {basis}" for basis in ("proven", "calibrated", "assumed"))
    text = "\n".join([f"{counted['passed']} of {of}; ranges of those: {bases}.", "", *lines])
    return finish(arguments, MARKER, text, bad=bool(counted["wrong"] or counted["crash"]))


if __name__ == "__main__":
    sys.exit(main())
