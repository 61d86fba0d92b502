"""Exports networks of torchvision and Hugging Face, random weights, and compares megrez with onnxruntime.

python examples/models/export.py resnet18 bert-tiny --folder build/models
python examples/models/export.py bert-tiny --check target/release/megrez --protocol alkaid

Writes NAME.onnx and NAME.npy, an input for it. With --check it then runs `megrez infer` on them, with all
options that this script does not know, and prints the largest error against onnxruntime. Nothing is
downloaded: configurations are built here, weights are random. Needs examples/models/requirements.txt.
"""

import argparse
import pathlib
import subprocess

import numpy as np
import torch

TOKENS = 8
IMAGE = 224


class Logits(torch.nn.Module):
    """A model of transformers as a function of tokens alone."""

    def __init__(self, model):
        """Wraps it."""
        super().__init__()
        self.model = model

    def forward(self, tokens):
        """The logits."""
        return self.model(input_ids=tokens, use_cache=False).logits


def resnet(depth):
    """A residual network as torchvision has it, and an image."""
    import torchvision

    return getattr(torchvision.models, f"resnet{depth}")(), torch.rand(1, 3, IMAGE, IMAGE)


def bert(hidden, layers, heads):
    """A BERT that classifies a sequence."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        use_cache=False,
        attn_implementation="eager",
    )
    tokens = torch.randint(0, config.vocab_size, (1, TOKENS))
    return Logits(BertForSequenceClassification(config)), tokens


def gpt2(hidden, layers, heads, vocabulary):
    """A GPT-2 that gives the logits of every position."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_embd=hidden,
        n_layer=layers,
        n_head=heads,
        vocab_size=vocabulary,
        use_cache=False,
        attn_implementation="eager",
    )
    return Logits(GPT2LMHeadModel(config)), torch.randint(0, vocabulary, (1, TOKENS))


MODELS = {
    "resnet18": lambda: resnet(18),
    "resnet50": lambda: resnet(50),
    "bert-tiny": lambda: bert(128, 2, 2),
    "bert-base": lambda: bert(768, 12, 12),
    "gpt2-tiny": lambda: gpt2(64, 2, 4, 1000),
    "gpt2": lambda: gpt2(768, 12, 12, 50257),
}


def export(name, folder, seed):
    """Writes the model and an input; returns their paths."""
    torch.manual_seed(seed)
    model, data = MODELS[name]()
    model.eval()
    folder.mkdir(parents=True, exist_ok=True)
    path, numbers = folder / f"{name}.onnx", folder / f"{name}.npy"
    # The older exporter gives plainer graphs, but does not know all that GPT-2's masks are made of.
    new = name.startswith("gpt2")
    names = {"input_names": ["x"], "output_names": ["y"], "external_data": False}
    torch.onnx.export(model, (data,), str(path), opset_version=18 if new else 17, dynamo=new, **names)
    np.save(numbers, data.numpy().astype(np.float32))
    return path, numbers


def check(command, path, numbers, options):
    """The largest error of a private run, the largest output, and whether it is onnxruntime's."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (parameter,) = session.get_inputs()
    x = np.load(numbers)
    expected = session.run(None, {parameter.name: x.astype(np.int64) if "int64" in parameter.type else x})[0]
    output = path.with_suffix(".out.npy")
    arguments = [command, "infer", "--model", path, "--input", numbers, "--output", output]
    subprocess.run([*map(str, arguments), *options], check=True, stdout=subprocess.DEVNULL)
    got = np.load(output)
    error = np.abs(got - expected).max()
    same = (got.argmax(-1) == expected.argmax(-1)).all()
    return error, np.abs(expected).max(), same


def main():
    """The command line; what it does not know goes to `megrez infer`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", choices=MODELS)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/models"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", metavar="MEGREZ", help="the command to compare with onnxruntime")
    arguments, options = parser.parse_known_args()
    for name in arguments.models:
        path, numbers = export(name, arguments.folder, arguments.seed)
        print(f"{name}: {path} ({path.stat().st_size / 1e6:.1f} MB), {numbers}")
        if arguments.check:
            error, largest, same = check(arguments.check, path, numbers, ["--range", "assume", *options])
            verdict = "same" if same else "OTHER"
            print(f"  error {error:.1e}, outputs up to {largest:.2f}, largest output: {verdict}", flush=True)


if __name__ == "__main__":
    main()
