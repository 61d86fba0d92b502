"""Continue many texts on shares with the bundled language model, and hold every letter to onnxruntime's.

    pip install numpy onnxruntime
    cargo build --release -p megrez-cli
    python benches/language.py --prompts 50 --tokens 64

Prompts are cut from sentences of the documentation, in the letters that the model knows. Each is continued by
the likeliest letter, by three processes on this machine under `--protocol`, and by onnxruntime. What follows
`--` is handed to `megrez generate`. Prints the prompts that went another way, and where.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "examples/language/model.onnx"
LETTERS = (ROOT / "examples/language/letters.txt").read_text()


def prompts(count: int, longest: int) -> list[str]:
    """Beginnings of sentences that are in the model's letters."""
    found: list[str] = []
    for page in sorted((ROOT / "docs").glob("*.md")):
        for sentence in re.split(r"(?<=[.:])\s+", page.read_text().lower()):
            words = " ".join(sentence.split())[:longest].rsplit(" ", 1)[0] + " "
            if len(words) >= longest // 2 and set(words) <= set(LETTERS) and words not in found:
                found.append(words)
    step = max(1, len(found) // count)
    return found[::step][:count]


def reference(session: Any, prompt: str, tokens: int) -> str:
    """The text that onnxruntime writes."""
    ids = [LETTERS.index(letter) for letter in prompt]
    inputs = session.get_inputs()
    past = [i for i in inputs if i.name.startswith("past.")]
    names = [i.name for i in inputs if i not in past]
    held = {}
    for of in past:
        shape = [d if isinstance(d, int) else int(at == 0) for at, d in enumerate(of.shape)]
        held[of.name] = np.zeros(shape, np.float32)
    outputs = [o.name for o in session.get_outputs()]
    new = ids
    for _ in range(tokens):
        feed = {names[0]: np.array([new], np.int64), **held}
        results = dict(zip(outputs, session.run(None, feed), strict=True))
        held = {name: results["present." + name.removeprefix("past.")] for name in held}
        new = [int(results[outputs[0]][0, -1].argmax())]
        ids.extend(new)
    return "".join(LETTERS[i] for i in ids)


def main() -> int:
    """Print how many texts are the same."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--megrez", default=str(ROOT / "target/release/megrez"))
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--protocol", default="mizar")
    parser.add_argument("options", nargs="*", help="of `megrez generate`")
    args = parser.parse_args()
    session = onnxruntime.InferenceSession(str(MODEL))
    same, passes = 0, 0
    texts = prompts(args.prompts, 96 - args.tokens)
    for number, prompt in enumerate(texts):
        command = [args.megrez, "generate", "--model", str(MODEL)]
        command += ["--letters", str(ROOT / "examples/language/letters.txt"), "--prompt", prompt]
        command += ["--tokens", str(args.tokens), "--protocol", args.protocol, "--range", "assume"]
        command += ["--no-clear", "--json", *args.options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not done.stdout:
            sys.exit(done.stderr)
        report = json.loads(done.stdout)
        text, wanted = report["text"], reference(session, prompt, args.tokens)
        passes += report["passes"]
        same += text == wanted
        if text != wanted:
            at = next(i for i, (a, b) in enumerate(zip(text, wanted, strict=True)) if a != b)
            print(f"{number}: another letter at {at - len(prompt)}: {text!r}, not {wanted!r}")
    written = f"{same} of {len(texts)} texts of {args.tokens} letters"
    print(f"{args.protocol}: {written} are onnxruntime's, in {passes} runs")
    return 0 if same == len(texts) else 1


if __name__ == "__main__":
    sys.exit(main())
