"""Trains a small language model on the prose of this project, and exports it for private generation.

The model reads letters: three GPT-2 blocks of width 64. It takes a few minutes on one core and leaves

    model.onnx      inputs tokens [1, n]; per block past.*.key, past.*.value [1, heads, p, width / heads];
                    outputs logits [1, n, letters], present.*.key and present.*.value with p + n positions
    letters.txt     the letter of every token, in order

Needs torch and onnx:  python train.py [--steps 4000]
Then:  megrez generate --model model.onnx --letters letters.txt --prompt "the parties "
"""

import argparse
import math
import re
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

HERE = Path(__file__).parent
LETTERS = "\n abcdefghijklmnopqrstuvwxyz.,:;'-"
WIDTH, HEADS, BLOCKS, CONTEXT = 64, 4, 3, 96


def corpus() -> str:
    """The sentences of the documentation, in small letters; no tables, code or headings."""
    root = HERE.parent.parent
    text = []
    for page in sorted([root / "README.md", *root.glob("docs/**/*.md"), *root.glob("crates/**/*.md")]):
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
        lines = [line for line in prose.splitlines() if not re.match(r"\s*(\||#|!|<)", line)]
        text.append(" ".join(lines))
    # What the sources say about themselves is prose as well.
    for source in sorted(root.glob("crates/**/*.rs")):
        comments = re.findall(r"^\s*//[/!] (.*)$", source.read_text(), flags=re.M)
        text.append(" ".join(line for line in comments if not re.match(r"\s*(\||#|```)", line)))
    small = "\n".join(text).lower().replace("`", "").replace("*", "")
    small = re.sub(r"[^a-z.,:;'\-\n ]", "", small)
    return re.sub(r" +", " ", small)


class Block(nn.Module):
    """One block of GPT-2: attention over what came before, then a feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, key, value, hidden):
        n = x.shape[1]
        heads = self.qkv(self.norm1(x)).view(-1, n, 3, HEADS, WIDTH // HEADS)
        q, k, v = (part.transpose(1, 2) for part in heads.unbind(2))
        key, value = torch.cat([key, k], 2), torch.cat([value, v], 2)
        scores = q @ key.transpose(2, 3) / math.sqrt(WIDTH // HEADS)
        weights = torch.softmax(scores.masked_fill(hidden, -math.inf), 3)
        y = (weights @ value).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        return x + self.down(functional.gelu(self.up(self.norm2(x)))), key, value


class Model(nn.Module):
    """Letters in, logits of the next letter out; what attention has seen goes in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens, *past):
        n, seen = tokens.shape[1], past[0].shape[2]
        places = torch.arange(seen, seen + n)
        hidden = torch.arange(seen + n)[None, :] > places[:, None]
        x = self.token(tokens) + self.position(places)
        present = []
        for block, seen_key, seen_value in zip(self.blocks, past[0::2], past[1::2], strict=True):
            x, key, value = block(x, seen_key, seen_value, hidden)
            present += [key, value]
        return functional.linear(self.norm(x), self.token.weight), *present


def nothing(batch: int, seen: int = 0) -> list[torch.Tensor]:
    """Keys and values of `seen` positions that hold nothing."""
    return [torch.zeros(batch, HEADS, seen, WIDTH // HEADS) for _ in range(2 * BLOCKS)]


def train(steps: int) -> Model:
    """A model after so many steps on the corpus."""
    torch.manual_seed(1)
    text = torch.tensor([LETTERS.index(c) for c in corpus()])
    print(f"{len(text)} letters")
    model = Model()
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=0.05 if "token" in name or "position" in name else WIDTH**-0.5)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps)
    for step in range(steps):
        starts = torch.randint(len(text) - CONTEXT - 1, (24,))
        rows = torch.stack([text[s : s + CONTEXT + 1] for s in starts])
        logits, *_ = model(rows[:, :-1], *nothing(len(rows)))
        loss = functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 250 == 0 or step + 1 == steps:
            print(f"step {step}: {loss.item() / math.log(2):.2f} bits per letter", flush=True)
    return model.eval()


def export(model: Model) -> None:
    """Writes the model with its keys and values as inputs and outputs."""
    names = [f"{i}.{part}" for i in range(BLOCKS) for part in ("key", "value")]
    past, present = [f"past.{n}" for n in names], [f"present.{n}" for n in names]
    seen = {name: {2: "seen"} for name in past} | {name: {2: "all"} for name in present}
    torch.onnx.export(
        model,
        (torch.zeros(1, 3, dtype=torch.long), *nothing(1, 2)),
        str(HERE / "model.onnx"),
        input_names=["tokens", *past],
        output_names=["logits", *present],
        dynamic_axes={"tokens": {1: "new"}, "logits": {1: "new"}} | seen,
        opset_version=17,
        dynamo=False,
    )
    (HERE / "letters.txt").write_text(LETTERS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4000)
    export(train(parser.parse_args().steps))
