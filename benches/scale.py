"""What more triples give: one is measured on this machine, 1 to 64 are modelled from it.

    python benches/scale.py --cores 16 --gbit 10

The model is in docs/scale-out.md: triples share nothing but links, so throughput grows with their number
until the client's processors, its link or that of two organisations is busy; a data set ends with a wave of
runs that need not be full.
"""

import argparse
import contextlib
import json
import math
import os
import socket
import struct
import threading
import time
from pathlib import Path

import megrez
import numpy as np

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"
TRIPLES = (1, 2, 4, 8, 16, 32, 64)


def carried() -> int:
    """Bytes that this process's TCP connections have carried in both directions, as Linux counts them."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as one:
            # bytes_acked and bytes_received of `struct tcp_info`.
            total += sum(
                struct.unpack_from("=QQ", one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192), 120)
            )
    return total


def measured(batch: int, workers: int, seconds: float) -> dict[str, float]:
    """Measure one triple of this machine: rows a second, and what a row costs the client."""
    images = np.load(DIGITS / "test_images.npy")[:batch]
    model = megrez.compile(DIGITS / "lenet.onnx", batch=batch)
    with megrez.local() as cluster:
        cluster.upload(model, name="lenet", allow=[], batches=[batch])
        cluster.run_stored("lenet", images, batch=batch)
        before = carried()
        report = cluster.run_stored("lenet", images, batch=batch).report
        through = carried() - before
        links: dict[str, int] = report.to_dict()["cost"]["wire_bytes"]
        done = []

        def work() -> None:
            while time.monotonic() < end:
                cluster.run_stored("lenet", images, batch=batch)
                done.append(time.monotonic())

        began, processor = time.monotonic(), time.process_time()
        end = began + seconds
        threads = [threading.Thread(target=work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rows = batch * len(done)
        return {
            "rows_a_second": rows / (max(done) - began),
            "run_seconds": workers * (max(done) - began) / len(done),
            "client_seconds_a_row": (time.process_time() - processor) / rows,
            "client_bytes_a_row": through / batch,
            "link_bytes_a_row": max(links.values()) / batch,
        }


def modelled(
    one: dict[str, float], triples: int, client: tuple[float, float], between: float
) -> tuple[float, str]:
    """Rows a second of so many triples, and what bounds them.

    The client has processors and a link of so many Gbit/s; `between` is the same for two organisations.
    """
    cores, gbit = client
    bounds = {
        "triples": triples * one["rows_a_second"],
        "client's processors": cores / one["client_seconds_a_row"],
        "client's link": gbit * 1e9 / 8 / one["client_bytes_a_row"],
        "link between organisations": between * 1e9 / 8 / one["link_bytes_a_row"],
    }
    bound = min(bounds, key=lambda name: bounds[name])
    return bounds[bound], bound


def ends(one: dict[str, float], triples: int, batch: int, workers: int, rows: int) -> float:
    """Seconds for a data set where the triples are the bound: whole waves of runs."""
    return math.ceil(rows / (batch * workers * triples)) * one["run_seconds"]


def main() -> None:
    """Measure, and print the model's table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2, help="clients of each triple")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--cores", type=float, default=16, help="the client's processors")
    parser.add_argument("--gbit", type=float, default=10, help="the client's link")
    parser.add_argument("--between", type=float, default=10, help="the link of two organisations")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of a data set")
    parser.add_argument("--measured", help="take these figures, as JSON, in place of a measurement")
    args = parser.parse_args()
    given = json.loads(args.measured) if args.measured else measured(args.batch, args.workers, args.seconds)
    print("measured, one triple:", json.dumps(given))
    client = f"a client of {args.cores:g} processors at {args.gbit:g} Gbit/s"
    print(f"modelled: {client}, organisations at {args.between:g} Gbit/s")
    print(f"| triples | rows a second | bound by | {args.rows:,} rows, seconds |\n| --- | --- | --- | --- |")
    for triples in TRIPLES:
        rate, bound = modelled(given, triples, (args.cores, args.gbit), args.between)
        seconds = max(ends(given, triples, args.batch, args.workers, args.rows), args.rows / rate)
        print(f"| {triples} | {rate:,.0f} | {bound} | {seconds:,.0f} |")


if __name__ == "__main__":
    main()
