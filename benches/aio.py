"""Small requests of many callers of one service, alone and joined by a batcher, on parties of this machine.

python benches/aio.py
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import megrez
import megrez.aio
import numpy as np
from megrez._supervised import Supervised, write_triple

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"


async def load(callers: int, seconds: float, call: Callable[[], Awaitable[object]]) -> dict[str, float]:
    """Have so many callers call one after another: calls a second, and their median time."""
    times: list[float] = []
    begin = time.monotonic()

    async def caller() -> None:
        while (start := time.monotonic()) < begin + seconds:
            await call()
            times.append(time.monotonic() - start)

    await asyncio.gather(*(caller() for _ in range(callers)))
    return {
        "callers": callers,
        "a_second": round(len(times) / (time.monotonic() - begin), 1),
        "median_ms": round(1000 * statistics.median(times)),
    }


async def measure(folder: Path, seconds: float) -> None:
    """Print a line for each number of callers."""
    image = np.load(DIGITS / "test_images.npy")[:1]
    model = megrez.compile(DIGITS / "lenet.onnx", batch=32)
    async with megrez.aio.connect(folder / "cluster.toml", certs=folder / "certs") as cluster:
        await cluster.upload(model, name="lenet", allow=[], batches=[1, 8, 32])
        for callers in (1, 8, 64):
            alone = await load(callers, seconds, lambda: cluster.run_stored("lenet", image, batch=1))
            print(json.dumps({"batcher": False, **alone}), flush=True)
        async with megrez.aio.Batcher(cluster, "lenet", batches=[1, 8, 32]) as batcher:
            for callers in (1, 8, 64, 256):
                joined = await load(callers, seconds, lambda: batcher.run(image))
                print(json.dumps({"batcher": True, **joined}), flush=True)


def main() -> None:
    """Start three parties, measure, and stop them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="for each measurement")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        parties = [Supervised(config) for config in write_triple(folder, ["alice"])]
        try:
            for party in parties:
                party.wait()
            asyncio.run(measure(Path(folder), seconds))
        finally:
            for party in parties:
                party.stop(timeout=5)


if __name__ == "__main__":
    main()
