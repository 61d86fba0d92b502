"""Show what two builds of `megrez` make of each other: `compatible.py OLD_MEGREZ NEW_MEGREZ`.

Parties and clients of both builds are mixed in every way, and each build is given the data folders of the
other. Whatever is asked must end in time, with the right answer, or with a refusal: an exit code that is
not 0, and words that say what is wrong and what to do. Mixtures that are refused must name both wire
versions. Anything else is a violation, and the exit code is 1. Needs numpy.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"
MODEL = DIGITS / "cnn.onnx"
INFER = ["--json", "infer", "--model", MODEL, "--input", "images.npy"]
"""Runs a client's own model."""
IMAGES, ROWS = 2, 64
TOLERANCE = 5e-3
"""Of a model's answers."""
REMEDIES = re.compile(r"release|version|again|anew|upload|remove|make ")
"""What a refusal of a data folder advises."""
BOTH = re.compile(r"\bversion (\d+)\b(?=.*\bversion (?!\1\b)\d+\b).*\brelease\b", re.DOTALL)
"""What a refusal of a mixture says: two versions, and to run one release."""


@dataclass(frozen=True)
class Build:
    """A `megrez` command."""

    name: str
    path: Path


@dataclass(frozen=True)
class Answer:
    """How a command ended; without an exit code if it did not."""

    code: int | None
    out: str
    err: str

    @property
    def words(self) -> str:
        """What it said, in one line."""
        return " ".join(self.err.split())[:240]


def ask(build: Build, folder: Path, seconds: float, *words: object) -> Answer:
    """Run a command of a client."""
    command = [str(build.path), *map(str, words)]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return Answer(None, "", f"no answer within {seconds:.0f} s")
    return Answer(done.returncode, done.stdout, done.stderr)


def prepare(build: Build, folder: Path) -> None:
    """Make certificates, configurations and the files of requests."""
    folder.mkdir()
    made = ask(build, folder, 60, "certs", "--folder", "certs", "--clients", "alice")
    if made.code != 0:
        raise SystemExit(f"{build.name}: {made.err}")
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    (folder / "cluster.toml").write_text(f"parties = {json.dumps(addresses)}\n", encoding="utf-8")
    for party, address in enumerate(addresses):
        text = f'party = {party}\nlisten = "{address}"\ncluster = "cluster.toml"\ncerts = "certs"\n'
        (folder / f"party{party}.toml").write_text(f'{text}data = "data{party}"\n', encoding="utf-8")
    images = np.load(DIGITS / "test_images.npy")
    np.save(folder / "images.npy", images[:IMAGES])
    np.save(folder / "rows.npy", images[:ROWS])
    np.save(folder / "labels.npy", np.load(DIGITS / "test_labels.npy")[:ROWS])


@contextlib.contextmanager
def parties(builds: Sequence[Build], folder: Path, seconds: float) -> Iterator[str | None]:
    """Three parties that serve; or why one does not."""
    processes: list[subprocess.Popen[bytes]] = []
    logs = [folder / f"party{party}.log" for party in range(len(builds))]
    try:
        for party, (build, log) in enumerate(zip(builds, logs, strict=True)):
            with log.open("wb") as file:
                command = [str(build.path), "party", "--config", f"party{party}.toml"]
                processes.append(subprocess.Popen(command, cwd=folder, stderr=file, stdout=file))
        problem = None
        end = time.monotonic() + seconds
        for process, log in zip(processes, logs, strict=True):
            while b"listens" not in log.read_bytes() and problem is None:
                if process.poll() is not None:
                    problem = " ".join(log.read_text(encoding="utf-8", errors="replace").split())[-160:]
                elif time.monotonic() > end:
                    problem = "a party does not start"
                time.sleep(0.05)
        yield problem
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Table:
    """What was tried, and what came of it."""

    def __init__(self) -> None:
        self.violations = 0

    def row(self, tried: str, outcome: str, words: str = "", *, well: bool = True) -> None:
        """Print a row as it is known."""
        self.violations += not well
        words = words.replace("|", "/")
        print(f"| {tried} | {outcome if well else f'VIOLATION: {outcome}'} | {words} |", flush=True)

    def judge(self, tried: str, answer: Answer, right: bool | None, refusal: re.Pattern[str]) -> bool:
        """Print whether an answer is right, or a refusal in such words; gives whether it is right.

        `right` says whether numbers are; None where there are none.
        """
        clean = answer.code is not None and 0 < answer.code < 100 and "panicked" not in answer.err
        if answer.code == 0:
            self.row(
                tried, "done" if right is None else "right" if right else "wrong", well=right is not False
            )
            return right is not False
        if answer.code is None:
            self.row(tried, "hangs", answer.words, well=False)
        elif not clean:
            self.row(tried, f"exit code {answer.code}", answer.words, well=False)
        else:
            found = refusal.search(answer.err) is not None
            self.row(tried, "refused" if found else "refused without a remedy", answer.words, well=found)
        return False


def near(answer: Answer, wanted: np.ndarray) -> bool:
    """Whether `infer --json` has printed these numbers."""
    if answer.code != 0:
        return False
    given = np.asarray(json.loads(answer.out)["output"], dtype=np.float64).reshape(-1)
    return given.size == wanted.size and bool(np.abs(given - wanted.reshape(-1)).max() < TOLERANCE)


def mixtures(old: Build, new: Build, folder: Path, seconds: float, table: Table, wanted: np.ndarray) -> None:
    """Every mixture of parties and client runs a client's own model."""
    for place, builds in enumerate(itertools.product([old, new], repeat=4)):
        *three, client = builds
        there = folder / f"mixture{place}"
        prepare(new, there)
        tried = f"parties {', '.join(build.name for build in three)}; client {client.name}"
        with parties(three, there, seconds) as problem:
            if problem is not None:
                table.row(tried, "does not start", problem, well=False)
                continue
            answer = ask(client, there, seconds, *INFER, "--cluster", "cluster.toml")
        if len(set(builds)) == 1 and answer.code != 0:
            table.row(tried, "one build, and no answer", answer.words, well=False)
        else:
            table.judge(tried, answer, near(answer, wanted), BOTH)


LEARN = ["--batch", "32", "--rate", "2^-5", "--model", "net-b", "--data", "rows"]
"""A training of the rows that are stored."""


def standing(printed: str, name: str) -> dict[str, Any]:
    """How a job stands, of what `jobs --json` has printed."""
    jobs: list[dict[str, Any]] = json.loads(printed)["jobs"]
    return next(job for job in jobs if job["job"] == name)


def fill(build: Build, folder: Path, seconds: float) -> tuple[str, str, np.ndarray]:
    """Have parties of a build store one of everything.

    Gives a batch of material, a job that was interrupted, and what the trained model says.
    """

    def must(*words: object) -> str:
        answer = ask(build, folder, seconds, *words, "--cluster", "cluster.toml")
        if answer.code != 0:
            raise SystemExit(f"{build.name} cannot even do this by itself: {answer.err}")
        return answer.out

    with parties([build] * 3, folder, seconds) as problem:
        if problem is not None:
            raise SystemExit(f"{build.name} does not start: {problem}")
        must("upload-model", "--model", MODEL, "--name", "digits", "--batch", IMAGES, "--allow", "alice")
        material = must("--json", "offline", "--model-name", "digits", "--batch", IMAGES)
        must(
            "upload-data", "--name", "rows", "--inputs", "rows.npy", "--labels", "labels.npy", "--classes", 10
        )
        must("train", *LEARN, "--epochs", 1, "--keep", "trained", "--run-batch", IMAGES)
        said = json.loads(must("--json", "infer", "--model-name", "trained", "--input", "images.npy"))
        job = must("--json", "train", *LEARN, "--epochs", 40, "--keep", "later", "--detach")
        name = json.loads(job)["job"]
        end = time.monotonic() + seconds
        while (stands := standing(must("--json", "jobs"), name))["epoch"] == 0:
            if time.monotonic() > end:
                raise SystemExit(f"{build.name} does not train")
        if stands["state"] != "runs":
            raise SystemExit(f"{build.name} trains too fast to be interrupted")
    return json.loads(material)["material"], name, np.asarray(said["output"])


def data(old: Build, new: Build, folder: Path, seconds: float, table: Table, wanted: np.ndarray) -> None:
    """What one build has stored is asked for at parties of the other."""
    prepare(old, folder)
    material, job, trained = fill(old, folder, seconds)
    tried = f"stored by {old.name}, asked of {new.name}:"
    with parties([new] * 3, folder, seconds) as problem:
        if problem is not None:
            table.judge(f"{tried} start", Answer(2, "", problem), None, REMEDIES)
            return
        infer = ["--json", "infer", "--input", "images.npy", "--batch", IMAGES, "--model-name"]
        asked: list[tuple[str, list[object], np.ndarray | None]] = [
            ("what there is", ["stored"], None),
            ("a model with randomness made ahead", [*infer, "digits", "--material", material], wanted),
            ("a model", [*infer, "digits"], wanted),
            ("a trained model", [*infer, "trained"], trained),
            ("jobs", ["jobs"], None),
            ("an interrupted job", ["resume", job], None),
            ("rows", ["train", *LEARN, "--epochs", 1, "--keep", "again"], None),
            ("removing a model", ["remove", "digits"], None),
            ("removing rows", ["remove", "rows"], None),
        ]
        for what, words, numbers in asked:
            answer = ask(new, folder, seconds, *words, "--cluster", "cluster.toml")
            right = None if numbers is None else near(answer, numbers)
            table.judge(f"{tried} {what}", answer, right, REMEDIES)


def main() -> int:
    """Try everything, and print a table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old", type=Path, metavar="OLD_MEGREZ")
    parser.add_argument("new", type=Path, metavar="NEW_MEGREZ")
    parser.add_argument("--seconds", type=float, default=60, help="after which a command hangs")
    options = parser.parse_args()
    old, new = Build("old", options.old.resolve()), Build("new", options.new.resolve())
    table = Table()
    print("| tried | outcome | in the words of the build |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(new, folder / "alone")
        alone = ask(new, folder / "alone", options.seconds, *INFER)
        if alone.code != 0:
            raise SystemExit(f"the new build cannot even run a model by itself: {alone.err}")
        wanted = np.asarray(json.loads(alone.out)["output"])
        mixtures(old, new, folder, options.seconds, table, wanted)
        data(old, new, folder / "forward", options.seconds, table, wanted)
        data(new, old, folder / "back", options.seconds, table, wanted)
    print(f"\n{table.violations} violations" if table.violations else "\nnothing is violated")
    return 1 if table.violations else 0


if __name__ == "__main__":
    sys.exit(main())
