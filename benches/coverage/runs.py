"""What the scripts of this folder share: models with data as folders, the runner, the tables of a page."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import faces
import numpy as np
from faces import Outcome

# `library` is the built example.
FACES = ("library", "python", "command")
# How many folders one process of the runner gets, and how long it has.
AT_ONCE = 50
SECONDS = 1200


def options(description: str | None) -> argparse.ArgumentParser:
    """The options that every script has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runner", default="target/debug/examples/onnx_cases", help="the built example")
    parser.add_argument("--protocol", default="clear")
    parser.add_argument("--face", choices=FACES, default="library", help="what the cases go through")
    parser.add_argument("--only", default="", help="what has this in its name")
    parser.add_argument("--write", metavar="FILE", help="put the table behind the marker of this page")
    return parser


def save(
    folder: Path,
    model: bytes,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    samples: Sequence[Sequence[Any]] = (),
) -> None:
    """A model, its inputs with what is expected of them, and perhaps other inputs, as a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model)
    named = [("input", inputs), ("output", outputs)]
    named += [(f"sample{i}", sample) for i, sample in enumerate(samples)]
    for what, arrays in named:
        for i, array in enumerate(map(np.asarray, arrays)):
            kind = array.dtype if array.dtype.kind in "iub" else np.float32
            np.save(folder / f"{what}_{i}.npy", array.astype(kind))


def attempt(arguments: argparse.Namespace, folders: Sequence[Path]) -> dict[str, Outcome]:
    """What happened in each folder, and why."""
    if arguments.face != "library":
        return faces.attempt(arguments.face, arguments.protocol, folders)
    done: dict[str, Outcome] = {}
    left = [str(folder) for folder in folders]
    while left:
        command = [arguments.runner, arguments.protocol, *left[:AT_ONCE]]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
            output = ended.stdout
        except subprocess.TimeoutExpired as late:
            output = (late.stdout or b"").decode()
        for line in output.rstrip("\n").split("\n") if output else []:
            folder, what, why = line.split("\t")
            done[folder] = (what, why)
        # What ended the process itself is a crash of the folder that it worked on.
        ran, left = left[:AT_ONCE], left[AT_ONCE:]
        missing = [folder for folder in ran if folder not in done]
        if missing:
            done[missing.pop(0)] = ("crash", "the process ended")
            left = missing + left
    return done


def told(outcome: Outcome) -> str:
    """An outcome as a cell of a table."""
    what, why = outcome
    return what if what == "passed" else f"{what}: {why[:300]}".replace("|", ";")


def finish(arguments: argparse.Namespace, marker: str, text: str, *, bad: bool) -> int:
    """Prints a table, puts it behind a marker of a page if that is asked for, and says how this ends."""
    print(text)
    if arguments.write:
        put(Path(arguments.write), marker, text)
    return int(bad)


def put(page: Path, marker: str, text: str) -> None:
    """Puts a text behind a marker of a page, in place of what stands there up to the next section."""
    head, _, rest = page.read_text(encoding="utf-8").partition(marker)
    ends = [end for end in (rest.find("\n## "), rest.find("\n<!-- ")) if end >= 0]
    tail = rest[min(ends) :] if ends else ""
    page.write_text(f"{head}{marker}\n\n{text}\n{tail}", encoding="utf-8")
