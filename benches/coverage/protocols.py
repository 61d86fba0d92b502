"""Run the node tests of ONNX under every three-party protocol: through the library, Python and the command.

    pip install . "onnx==1.23.2" numpy
    cargo build -p megrez-graph --example onnx_cases
    python benches/coverage/protocols.py --write docs/coverage.md

What counts and what passes is what `onnx_nodes.py` says. The library (`onnx_cases`) and Python
(`megrez.compile`, `Cluster.run`) run all tests, the command (`megrez infer`) every `--every`-th. Whatever
passes under `clear` and not under another protocol is listed. All of it takes hours: outcomes are kept in a
folder, and taken up again. This ends with 1 if any result is wrong or any test crashes.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
from pathlib import Path

import onnx
from faces import Outcome
from onnx_nodes import Case, cases, results
from runs import FACES, finish, options

MARKER = "<!-- protocols -->"
# The first is what the others are held to.
PROTOCOLS = ("clear", "mizar", "aby3", "alkaid", "alkaid-masked", "meteor", "concurrent", "bicoptor")


def kept_at(arguments: argparse.Namespace) -> Path:
    """Where the outcomes of a protocol through a face are kept."""
    return Path(arguments.kept) / f"{arguments.protocol}-{arguments.face}.json"


def outcomes(arguments: argparse.Namespace, tests: list[Case]) -> dict[str, Outcome]:
    """What happened to each test, from the folder where that is kept or now."""
    path = kept_at(arguments)
    kept = json.loads(path.read_text()) if path.exists() else {}
    if kept.keys() != {case[0] for case in tests}:
        kept = results(arguments, tests)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(kept))
    return {name: (what, why) for name, (what, why) in kept.items()}


def main() -> int:
    """Run everything, and write the table after each row."""
    parser = options(__doc__)
    parser.add_argument("--under", action="append", choices=PROTOCOLS, help="these protocols only")
    parser.add_argument("--through", action="append", choices=FACES, help="these ways only")
    parser.add_argument("--every", type=int, default=10, help="which tests go through the command")
    parser.add_argument("--kept", default="target/coverage", help="the folder of outcomes")
    parser.add_argument("--no-run", action="store_true", help="list what is kept, and run nothing")
    arguments = parser.parse_args()
    everything = cases(arguments.only)
    lines = [f"onnx {onnx.__version__}.", ""]
    lines += ["| protocol | through | tests | passed | refused | wrong or crashed |", "| --- " * 6 + "|"]
    bad = status = 0
    for face in arguments.through or FACES:
        tests = everything[:: arguments.every if face == "command" else 1]
        passed: set[str] = set()
        for protocol in arguments.under or PROTOCOLS:
            arguments.protocol, arguments.face = protocol, face
            if arguments.no_run and not kept_at(arguments).exists():
                continue
            found = outcomes(arguments, tests)
            passes = {name for name, (what, _) in found.items() if what.startswith("passed")}
            count = collections.Counter(what for what, _ in found.values())
            for name in sorted(passed - passes):
                print(f"{protocol}, {face}: {name}: {': '.join(found[name])}", flush=True)
            passed = passed or passes
            wrong = count["wrong"] + count["crash"]
            bad += wrong
            refused = count["unsupported"]
            lines.append(f"| `{protocol}` | {face} | {len(found)} | {len(passes)} | {refused} | {wrong} |")
            status = finish(arguments, MARKER, "\n".join(lines), bad=bool(bad))
    return status


if __name__ == "__main__":
    sys.exit(main())
