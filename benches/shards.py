"""Training in shards: a job on one triple and on two, all parties on this machine.

    python benches/shards.py --model lenet --batch 32 --net wan

With two triples a step has twice the rows, a shard for each. What is compared is how long the rows of an
epoch take. The time of a job of one epoch is taken off that of a longer one, so sharing the rows, rehearsing
and compiling do not count. Where a network is slow the parties of both triples wait for it and hardly for
each other's work, although they share processors here.
"""

import argparse
import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"
PARTIES = 3


def free_addresses(count: int) -> list[str]:
    """Addresses that nobody listens on at the moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]


@contextlib.contextmanager
def triples(megrez: str, count: int) -> Iterator[Path]:
    """Run so many triples that share their models; gives the folder with cluster.toml and certificates."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(
            [megrez, "certs", "--folder", folder / "certs", "--clients", "alice"],
            check=True,
            capture_output=True,
        )
        addresses = free_addresses(PARTIES * count)
        by_triple = [addresses[PARTIES * i :][:PARTIES] for i in range(count)]
        (folder / "cluster.toml").write_text(
            f"parties = {json.dumps(by_triple[0])}\nreplicas = {json.dumps(by_triple[1:])}\n"
        )
        running = []
        try:
            for i, address in enumerate(addresses):
                party, replica = i % PARTIES, i // PARTIES
                config = folder / f"party{i}.toml"
                config.write_text(
                    f'party = {party}\nreplica = {replica}\nlisten = "{address}"\ncluster = "cluster.toml"\n'
                    f'certs = "certs"\ndata = "data{i}"\nmodels = "models{party}"\nallow_shaping = true\n'
                )
                running.append(
                    subprocess.Popen([megrez, "party", "--config", config], stderr=subprocess.DEVNULL)
                )
            deadline = time.monotonic() + 30
            for address in addresses:
                host, port = address.split(":")
                while True:
                    with contextlib.suppress(OSError):
                        socket.create_connection((host, int(port)), 1).close()
                        break
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"no party listens on {address}")
                    time.sleep(0.1)
            yield folder
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()


def seconds(megrez: str, folder: Path, epochs: int, shards: int, args: argparse.Namespace) -> float:
    """How long a job takes."""
    command = [megrez, "--json", "train", "--cluster", folder / "cluster.toml", "--certs", folder / "certs"]
    command += ["--client", "alice", "--model", args.model, "--protocol", args.protocol, "--net", args.net]
    command += ["--activations", "lookup", "--rate", "2^-5", "--rehearse", "10", "--keep", f"kept-{epochs}"]
    command += ["--inputs", DIGITS / "test_images.npy", "--labels", DIGITS / "test_labels.npy"]
    command += ["--batch", args.batch * shards, "--shards", shards, "--epochs", epochs]
    began = time.monotonic()
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return time.monotonic() - began


def main() -> None:
    """Measure, and print lines of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megrez", default=shutil.which("megrez") or "megrez", help="the command to measure")
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--protocol", default="mizar")
    parser.add_argument("--batch", type=int, default=32, help="rows of a shard")
    parser.add_argument("--epochs", type=int, default=3, help="epochs of the longer job")
    parser.add_argument("--net", default="wan")
    args = parser.parse_args()
    rows = 360
    first = 0.0
    for count, shards in [(1, 1), (1, 2), (2, 2)]:
        with triples(args.megrez, count) as folder:
            short = seconds(args.megrez, folder, 1, shards, args)
            long = seconds(args.megrez, folder, args.epochs, shards, args)
        steps = rows // (args.batch * shards)
        used = steps * args.batch * shards
        a_row = (long - short) / (args.epochs - 1) / used
        first = first or a_row
        told = {
            "schema": "megrez.shards/1",
            "model": args.model,
            "net": args.net,
            "triples": count,
            "shards": shards,
            "rows_of_a_shard": args.batch,
            "seconds_of_a_step": round(a_row * args.batch * shards, 3),
            "rows_a_second": round(1 / a_row, 2),
            "times": round(first / a_row, 2),
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
