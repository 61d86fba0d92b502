"""Compare two builds of `megrez` in one run: bytes and rounds to the digit, seconds as a ratio.

    python benches/compare.py BEFORE AFTER [--turns 5] [--only lenet] [--net loopback]

BEFORE and AFTER are two commands. They take turns, so that whatever else the machine does falls on both;
seconds are the smallest of all repetitions, which other work disturbs least. It fails if bytes or rounds
have grown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

# What a bench is called with, by the name of its row.
CASES = {
    f"{model} {protocol}": [
        *("model", model, "--protocol", protocol, "--range", "assume"),
        *("--activations", "minimax", "--form", "auto", "--pool", "tournament", "--repeat", "3"),
    ]
    for model in ("lenet", "vgg16-cifar", "gpt2")
    for protocol in ("mizar", "aby3", "alkaid")
}
PHASES = ("offline", "online")


def measured(command: str, case: list[str], net: str) -> dict[str, Any]:
    """The report of one bench."""
    call = [command, "bench", *case, "--net", net, "--json"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(call)}: {done.stderr.strip()}")
    report: dict[str, Any] = json.loads(done.stdout)
    if not report["verified"]:
        sys.exit(f"{' '.join(call)}: wrong numbers")
    return report["phases"]


def main() -> int:
    """Print a row for each case and phase."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", default="", help="rows whose names contain this")
    parser.add_argument("--net", default="loopback")
    args = parser.parse_args()
    grown = False
    print("| case | phase | bytes before, after | rounds | seconds | after / before |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, case in CASES.items():
        if args.only not in name:
            continue
        runs = [
            [measured(command, case, args.net) for command in (args.before, args.after)]
            for _ in range(args.turns)
        ]
        for phase in PHASES:
            sent = [sum(run[phase]["sent_bytes"].values()) for run in runs[0]]
            rounds = [run[phase]["rounds"] for run in runs[0]]
            seconds = [min(turn[which][phase]["seconds"]["min"] for turn in runs) for which in (0, 1)]
            ratio = seconds[1] / seconds[0] if seconds[0] else 1.0
            grown |= sent[1] > sent[0] or rounds[1] > rounds[0]
            print(
                f"| {name} | {phase} | {sent[0]:,}, {sent[1]:,} | {rounds[0]}, {rounds[1]} "
                f"| {seconds[0]:.4f}, {seconds[1]:.4f} | {ratio:.3f} |",
                flush=True,
            )
    return int(grown)


if __name__ == "__main__":
    sys.exit(main())
