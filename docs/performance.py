"""Prints the tables of performance.md, each row from one `megrez bench` command, which `--commands` shows.

Run it on a quiet machine: python3 docs/performance.py ops models (after `make build`)
"""

import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys

NETWORKS = ["loopback", "lan", "wan"]
OPERATIONS = ["mul", "fixed-mul", "truncate", "sign-bit", "relu", "maxpool"]
NETS = [
    ("net-a", 1, 9),
    ("net-b", 1, 9),
    ("net-c", 1, 9),
    ("lenet", 1, 9),
    ("lenet", 32, 5),
    ("vgg16-cifar", 1, 3),
]
MIB = 1 << 20


def bench(arguments: list[str], options: argparse.Namespace) -> dict:
    """Run one benchmark and return its report, which must be verified."""
    command = [options.megrez, "bench", *arguments]
    if options.commands:
        print("   ", shlex.join(command))
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    if not report["verified"]:
        sys.exit(f"wrong results: {shlex.join(command)}")
    return report


def at_party(phase: dict, party: int) -> int:
    """Payload bytes that a party sent and received in a phase."""
    return sum(count for link, count in phase["sent_bytes"].items() if str(party) in link.split(">"))


def row(name: str, reports: list[dict], scale: float) -> str:
    """Bytes at the busier worker and rounds, which no network changes, then the online median of each."""
    phases = reports[0]["phases"]
    offline, online = (
        max(at_party(phases[phase], worker) for worker in (0, 1)) / scale for phase in ("offline", "online")
    )
    times = [f"{report['phases']['online']['seconds']['median'] * 1000:.1f}" for report in reports]
    made = f"{reports[0]['phases']['offline']['seconds']['median'] * 1000:.1f}"
    cells = [name, f"{offline:.2f}", f"{online:.2f}", str(phases["online"]["rounds"]), made, *times]
    return "| " + " | ".join(cells) + " |"


def header(name: str, unit: str) -> None:
    """Print the head of a table."""
    columns = [f"offline {unit}", f"online {unit}", "rounds", "offline ms"]
    columns += [f"{net} ms" for net in NETWORKS]
    print(f"| {name} | " + " | ".join(columns) + " |")
    print("| --- " * (len(columns) + 1) + "|")


def operations(options: argparse.Namespace) -> None:
    """Operations on 2^17 elements; bytes are per element."""
    elements = 1 << 17
    header(f"{elements} elements", "B")
    for ring in (64, 32):
        for op in OPERATIONS:
            for kind in ["bits", "digits"] if op in ("sign-bit", "relu", "maxpool") else ["bits"]:
                common = [op, "--batch", str(elements), "--ring", str(ring), "--list", kind, "--repeat", "5"]
                reports = [bench(["op", *common, "--net", net], options) for net in NETWORKS]
                label = f"{op}, ℓ={ring}" + (f", {kind}" if op in ("sign-bit", "relu", "maxpool") else "")
                print(row(label, reports, elements), flush=True)


def models(options: argparse.Namespace) -> None:
    """Networks with random weights; bytes are MiB of a whole run."""
    header("network", "MiB")
    for name, batch, repeat in NETS:
        common = ["model", name, "--batch", str(batch), "--repeat", str(repeat)]
        reports = [bench([*common, "--net", net], options) for net in NETWORKS]
        print(row(f"{name}, batch {batch}", reports, MIB), flush=True)


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", choices=["ops", "models"])
    built = pathlib.Path(__file__).parent.parent / "target/release/megrez"
    parser.add_argument("--megrez", default=str(built))
    parser.add_argument("--commands", action="store_true", help="show the command behind each row")
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.2f}", file=sys.stderr)
    for table in options.tables:
        {"ops": operations, "models": models}[table](options)
        print()
    print(f"load after: {os.getloadavg()[0]:.2f}", file=sys.stderr)


if __name__ == "__main__":
    main()
