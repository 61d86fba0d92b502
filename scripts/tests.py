"""Build all tests of Rust, and run two of their programs at a time: `tests.py [ARGUMENT OF cargo test]...`.

`cargo test` runs one after the other, and most end with a single long test, for which all cores but one wait.
What failed is said at the end; the rest runs all the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

# What takes longest, in the order in which it begins.
LONGEST = [
    "command",
    "engine",
    "views",
    "graph",
    "megrez_twoparty",
    "masks",
    "megrez_kernels",
    "megrez_cuda",
    "lists",
]


class Program(NamedTuple):
    """One program of tests."""

    crate: Path
    target: str
    path: str

    def name(self) -> str:
        """As people look for it."""
        return f"{self.crate.name} {self.target}"


def built(arguments: list[str]) -> list[Program]:
    """Builds all, and says what there is to run."""
    command = ["cargo", "test", *arguments, "--tests", "--no-run", "--message-format=json-render-diagnostics"]
    build = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if build.returncode != 0:
        sys.exit(build.returncode)
    programs = []
    for message in map(json.loads, build.stdout.splitlines()):
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            crate = Path(message["manifest_path"]).parent
            target = message["target"]["name"].replace("-", "_")
            programs.append(Program(crate, target, message["executable"]))
    order = {name: place for place, name in enumerate(LONGEST)}
    return sorted(programs, key=lambda program: (order.get(program.target, len(order)), program))


def run(program: Program) -> bool:
    """Runs a program as `cargo test` does, and prints what it said; whether all is well."""
    start = time.monotonic()
    # So that one can tell what hangs.
    print(f"---- {program.name()} begins", flush=True)
    environment = os.environ | {"CARGO_MANIFEST_DIR": str(program.crate)}
    done = subprocess.run(
        program.path,
        cwd=program.crate,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    print(f"==== {program.name()}, {time.monotonic() - start:.0f} s\n{done.stdout}", end="", flush=True)
    return done.returncode == 0


def main() -> None:
    """The command."""
    programs = built(sys.argv[1:])
    if not programs:
        sys.exit("there are no tests")
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(run, programs))
    failed = [program for program, well in zip(programs, results, strict=True) if not well]
    if failed:
        sys.exit("tests failed: " + ", ".join(program.name() for program in failed))
    print(f"all of {len(programs)} programs passed")


if __name__ == "__main__":
    main()
