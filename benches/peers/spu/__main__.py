"""SecretFlow-SPU's ABY3 beside megrez: pairs measured in one run on one machine.

    python3.11 benches/peers/spu msb relu:131072 softmax:128x1000 lenet --net loopback --net lan

SPU runs as three processes over its own brpc link, megrez as three over TLS. They take turns.
"""

import argparse
import json
import math
import os
import platform
import queue
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environment import PACKAGES, environment
from relay import NETWORKS, Network, free_ports, measure, relayed

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[3]
PARTIES = 3
ELEMENTS = (1 << 17,)
SENT = re.compile(r"Link details: total send bytes (\d+), recv bytes \d+, send actions (\d+)")


@dataclass(frozen=True)
class Case:
    """Something to measure: `name` or `name:size`, the size as in 131072 or 128x1000."""

    name: str
    size: tuple[int, ...]

    def __str__(self) -> str:
        return ":".join([self.name, "x".join(map(str, self.size))] if self.size else [self.name])

    def megrez(self) -> list[str]:
        """The bench of megrez that does the same."""
        if self.name in MODELS:
            return ["model", self.name, "--batch", "1", "--frac", "18"]
        if self.name in TRAININGS:
            # Of 18 fraction bits a gradient's products leave the ring no room that is proven.
            step = ["train", self.name.removeprefix("train-"), "--batch", str(self.size[0]), "--streamed"]
            return [*step, "--frac", "16"]
        shape = ["--shape", ",".join(map(str, self.size))]
        elements = ["--batch", str(self.size[0])]
        return ["op", OPS[self.name][0], *(shape if len(self.size) > 1 else elements), "--frac", "18"]


# megrez's name, and the size if none is given.
OPS: dict[str, tuple[str, tuple[int, ...]]] = {
    "msb": ("sign-bit", ELEMENTS),
    "relu": ("relu", ELEMENTS),
    "mul": ("mul", ELEMENTS),
    "fixed-mul": ("fixed-mul", ELEMENTS),
    "sigmoid": ("sigmoid", ELEMENTS),
    "gelu": ("gelu", ELEMENTS),
    "exp": ("exp", ELEMENTS),
    "log": ("log", ELEMENTS),
    "reciprocal": ("reciprocal", ELEMENTS),
    "maxpool": ("maxpool", ELEMENTS),
    "softmax": ("softmax", (128, 1000)),
    "matmul": ("matmul", (128, 500, 100)),
    "fixed-matmul": ("fixed-matmul", (128, 500, 100)),
}
MODELS = ("lenet", "vgg16-cifar", "gpt2-block")
# A step of training, and the rows of its batch if none are given.
TRAININGS = {"train-net-a": (128,), "train-lenet": (32,)}


def case(text: str) -> Case:
    """Reads a case of the command line."""
    name, _, size = text.partition(":")
    if name not in OPS and name not in MODELS and name not in TRAININGS:
        raise argparse.ArgumentTypeError(f"{name} is none of {', '.join([*OPS, *MODELS, *TRAININGS])}")
    default = OPS[name][1] if name in OPS else TRAININGS.get(name, ())
    given = tuple(map(int, size.split("x"))) if size else default
    if len(given) != len(default) or 0 in given:
        raise argparse.ArgumentTypeError(f"{text}: the size of {name} has {len(default)} numbers above 0")
    return Case(name, given)


class Failed(Exception):  # noqa: N818 - a measurement that failed, not an error of this program
    """Why there is no figure."""


class Worker:
    """A process inside SPU's environment that answers requests, one JSON object per line."""

    def __init__(self, python: Path, role: str, arguments: Json, timeout: float) -> None:
        script = Path(__file__).with_name("parties.py")
        self.process = subprocess.Popen(
            [str(python), str(script), role, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.timeout = timeout
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        """Takes lines as they come."""
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def ask(self, **request: Any) -> None:
        """Sends a request."""
        assert self.process.stdin
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
        except BrokenPipeError as error:
            raise Failed("SPU has stopped") from error

    def reply(self) -> Json:
        """The answer; with it what SPU's log says that was sent meanwhile."""
        log: list[str] = []
        sent: Json = {}
        while True:
            try:
                line = self.lines.get(timeout=self.timeout)
            except queue.Empty:
                raise Failed(f"SPU took more than {self.timeout:.0f} s") from None
            if line is None:
                raise Failed("SPU has stopped: " + " | ".join(log[-5:]))
            if line.startswith("{"):
                sent.update(json.loads(line))
                return sent
            if match := SENT.search(line):
                sent = {"bytes": int(match[1]), "messages": int(match[2])}
            log.append(line.strip())

    def stop(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.wait()


class Spu:
    """Three parties and a client."""

    def __init__(self, python: Path, hosts: list[list[str]], timeout: float) -> None:
        self.workers = [Worker(python, "client", {}, timeout)]
        for rank, addresses in enumerate(hosts):
            arguments = {"rank": rank, "addresses": addresses, "timeout_ms": int(timeout * 1e3)}
            self.workers.append(Worker(python, "party", arguments, timeout))
        for worker in self.workers:
            worker.reply()

    def client(self, **request: Any) -> Json:
        """The client's answer."""
        self.workers[0].ask(**request)
        return self.workers[0].reply()

    def parties(self, **request: Any) -> list[Json]:
        """All parties' answers to one request."""
        for worker in self.workers[1:]:
            worker.ask(**request)
        return [worker.reply() for worker in self.workers[1:]]

    def prepare(self, case: Case, folder: Path) -> Json:
        """Compiles and shares, runs once to warm up, and opens what that gave."""
        self.client(do="prepare", folder=str(folder), name=case.name, size=case.size)
        self.parties(do="load", folder=str(folder))
        self.parties(do="run")
        self.parties(do="save", folder=str(folder))
        return self.client(do="open", folder=str(folder))

    def run(self) -> Json:
        """One execution: the slowest party's time, and what each party sent."""
        replies = self.parties(do="run")
        return {
            "seconds": max(r["seconds"] for r in replies),
            "bytes": [r["bytes"] for r in replies],
            "messages": [r["messages"] for r in replies],
        }

    def stop(self) -> None:
        """Ends all processes."""
        for worker in self.workers:
            worker.stop()


def megrez(binary: Path, case: Case, network: Network, protocol: str, runs: int, timeout: float) -> Json:
    """One bench of megrez: seconds and bytes per phase."""
    command = [str(binary), "bench", *case.megrez(), "--json", "--protocol", protocol, "--ring", "64"]
    # Of a step the median of several: the first has nothing to run beside.
    count = ["--steps", str(max(9, runs))] if case.name in TRAININGS else ["--repeat", str(runs)]
    command += ["--net", network.name, *count]
    if case.name in ("msb", "relu"):
        # Where there are lists: operations are measured with the paper's unless told.
        command += ["--list", "tree"]
    # Its parties are processes of their own: a group, so that all can be ended.
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Failed(f"megrez took more than {timeout:.0f} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    try:
        report = json.loads(output)
    except json.JSONDecodeError:
        raise Failed(errors.strip() or f"megrez ended with {process.returncode}") from None
    if "phases" not in report:
        raise Failed(f"megrez: {report.get('error')}")
    phases = report["phases"]
    seconds = {name: phase["seconds"]["median"] for name, phase in phases.items()}
    if streamed := report.get("streamed"):
        # Both phases run at the same time, one of them of the next step.
        seconds = {"offline": 0.0, "online": streamed["seconds"]}
    return {
        "command": " ".join(["megrez", *command[1:]]),
        "seconds": seconds,
        "bytes": {name: sum(phase["sent_bytes"].values()) / PARTIES for name, phase in phases.items()},
        "rounds": phases["online"]["rounds"],
        "max_abs_error": report["error"]["max_abs"],
        "verified": report["verified"],
    }


def median(values: list[float]) -> float:
    """The middle one."""
    return statistics.median(values)


@contextmanager
def parties(python: Path, network: Network, timeout: float) -> Iterator[tuple[Spu, Json]]:
    """SPU's processes on a network, and what the network gives."""
    ports = dict(enumerate(free_ports(PARTIES)))
    with relayed(network, ports) as entries, ExitStack() as stack:
        given = measure(network, entries[0, 1], ports[1]) if network.shaped else {}
        hosts = [
            [f"127.0.0.1:{ports[j] if i == j else entries[i, j]}" for j in range(PARTIES)]
            for i in range(PARTIES)
        ]
        spu = Spu(python, hosts, timeout)
        stack.callback(spu.stop)
        yield spu, given


def pair(args: argparse.Namespace, spu: Spu, case: Case, network: Network) -> Json:
    """SPU and megrez in turns."""
    peer: Json = {}
    own: dict[str, list[Json]] = {protocol: [] for protocol in args.protocol}
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        checked = spu.prepare(case, Path(folder))
    times: list[float] = []
    for _ in range(args.turns):
        for _ in range(args.runs):
            peer = spu.run()
            times.append(peer["seconds"])
        for protocol in args.protocol:
            if protocol in failures:
                continue
            try:
                own[protocol].append(megrez(args.megrez, case, network, protocol, args.runs, args.timeout))
            except Failed as failure:
                failures[protocol] = str(failure)
    result: Json = {"case": str(case), "net": network.name}
    result["spu"] = peer | checked | {"seconds": median(times), "runs": times}
    result["spu"]["bytes_per_party"] = sum(peer["bytes"]) / PARTIES
    result["megrez"] = {}
    for protocol, reports in own.items():
        if protocol in failures:
            result["megrez"][protocol] = {"failed": failures[protocol]}
            continue
        phase = {name: median([r["seconds"][name] for r in reports]) for name in ("offline", "online")}
        total = sum(phase.values())
        last = reports[-1]
        result["megrez"][protocol] = last | {
            "seconds": phase,
            "verified": all(r["verified"] for r in reports),
            "ratio": result["spu"]["seconds"] / total,
            "online_ratio": result["spu"]["seconds"] / phase["online"],
        }
    return result


def number(value: float) -> str:
    """Three digits that count."""
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:.{digits}f}"


def row(pair: Json, protocols: list[str]) -> str:
    """A pair as a line of the table."""
    spu = pair["spu"]
    if "failed" in spu:
        return f"| {pair['case']} | {pair['net']} | failed: {spu['failed'][:200]} |"
    cells = [pair["case"], pair["net"], number(spu["seconds"] * 1e3)]
    reports = [pair["megrez"][protocol] for protocol in protocols]
    for report in reports:
        if "failed" in report:
            cells.append("-")
            continue
        time = number(sum(report["seconds"].values()) * 1e3)
        cells.append(f"{time} ({report['ratio']:.1f}×)" + ("" if report["verified"] else " WRONG"))
    cells.append(f"{spu['bytes_per_party']:,.0f}")
    for report in reports:
        sent = report.get("bytes")
        offline = f" + {sent['offline']:,.0f}" if sent and sent["offline"] else ""
        cells.append(f"{sent['online']:,.0f}{offline}" if sent else "-")
    return "| " + " | ".join(cells) + " |"


def machine() -> Json:
    """What it was measured on."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    name = re.search(r"model name\s*: (.*)", text)
    return {
        "cpu": name[1] if name else platform.processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="spu", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("cases", nargs="*", type=case, help="name or name:size; all of them by default")
    parser.add_argument("--net", action="append", choices=list(NETWORKS), help="by default all three")
    parser.add_argument("--protocol", action="append", help="of megrez; by default aby3, alkaid and mizar")
    parser.add_argument("--runs", type=int, default=3, help="executions of each at its turn (default 3)")
    parser.add_argument("--turns", type=int, default=2, help="how often they take turns (default 2)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one step (default 300)")
    parser.add_argument("--megrez", type=Path, default=ROOT / "target/release/megrez", help="its program")
    parser.add_argument("--env", type=Path, default=ROOT / "target/peers/spu", help="SPU's environment")
    parser.add_argument("--python", help="the interpreter to make the environment with")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    args = parser.parse_args()
    args.cases = args.cases or [case(name) for name in [*OPS, *MODELS, *TRAININGS]]
    args.net = args.net or list(NETWORKS)
    args.protocol = args.protocol or ["aby3", "alkaid", "mizar"]
    if args.runs < 1 or args.turns < 1:
        parser.error("--runs and --turns are at least 1")
    if not args.megrez.is_file():
        parser.error(
            f"there is no {args.megrez}: cargo build --release -p megrez-cli, or name it with --megrez"
        )
    return args


def main() -> int:
    """Measures all pairs on all networks."""
    args = options()
    python = environment(args.env, args.python)
    report: Json = {"schema": "megrez.peers.spu/1", "packages": PACKAGES, "machine": machine()}
    report |= {"config": "ABY3, FM64, 18 fraction bits", "runs": args.runs, "turns": args.turns}
    report |= {"networks": {}, "pairs": []}
    notes = sys.stderr
    names = args.protocol
    print(f"{report['machine']}", file=notes, flush=True)
    if not args.json:
        print("| case | net | SPU ms | " + " | ".join(f"{p} ms" for p in names), end=" | SPU B/party | ")
        print(" | ".join(f"{p} B/party" for p in names) + " |\n" + "| --- " * (4 + 2 * len(names)) + "|")
    for network in (NETWORKS[name] for name in args.net):
        left = list(args.cases)
        while left:
            # After a failure the parties are started anew.
            try:
                with parties(python, network, args.timeout) as (spu, given):
                    if given:
                        report["networks"][network.name] = given
                        asked = f"{network.rtt_ms:g} ms, {network.mbps:g} Mbit/s"
                        measured = f"{given['rtt_ms']:.2f} ms, {given['mbps']:.0f} Mbit/s"
                        close = (
                            given["rtt_ms"] < 1.1 * network.rtt_ms + 0.5
                            and given["mbps"] > 0.9 * network.mbps
                        )
                        busy = "" if close else " (the machine is too busy: this slows SPU)"
                        print(f"{network.name}: asked for {asked}, relay gives {measured}{busy}", file=notes)
                    while left:
                        result = pair(args, spu, left[0], network)
                        report["pairs"].append(result)
                        left.pop(0)
                        if not args.json:
                            print(row(result, names), flush=True)
            except Failed as failure:
                result = {"case": str(left.pop(0)), "net": network.name, "spu": {"failed": str(failure)}}
                report["pairs"].append(result)
                if not args.json:
                    print(row(result, names), flush=True)
    report["machine"]["load_at_end"] = os.getloadavg()[0]
    if args.json:
        print(json.dumps(report))
    good = all(
        p["spu"].get("verified") and all(r.get("verified") for r in p["megrez"].values())
        for p in report["pairs"]
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
