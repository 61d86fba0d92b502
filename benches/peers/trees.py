"""Boosted trees of SecretFlow (SS-XGB on SPU), on the data of `benches/boosting.py` and counted as there.

    python3.10 -m venv target/peers/secretflow
    target/peers/secretflow/bin/pip install secretflow==1.11.0b1
    unshare -rn sh -c 'ip link set lo up && target/peers/secretflow/bin/python benches/peers/trees.py'

Two owners have half of the columns each, the first the labels too; three processes compute under ABY3 with
64 bits, over links of this machine without TLS. Seconds are those of training, with its compilation, and of
eight rows of prediction, which wait for it.
"""

from __future__ import annotations

import argparse
import json
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import secretflow as sf
import spu
from secretflow.data import FedNdarray, PartitionWay
from secretflow.device.driver import reveal
from secretflow.ml.boost.ss_xgb_v import Xgb
from sklearn.datasets import make_classification
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

NAMES = ["alice", "bob", "carol"]


def sent() -> int:
    """Bytes that have crossed the loopback interface."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[9]) for line in lines if line.strip().startswith("lo:"))


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def device() -> Any:
    """The three parties."""
    sf.init(NAMES, address="local", num_cpus=8, object_store_memory=2 * 10**9, log_to_driver=False)
    nodes = [{"party": name, "address": f"127.0.0.1:{free_port()}"} for name in NAMES]
    runtime = {"protocol": spu.ProtocolKind.ABY3, "field": spu.FieldType.FM64}
    link = {"http_timeout_ms": 600_000, "recv_timeout_ms": 600_000}
    return sf.SPU({"nodes": nodes, "runtime_config": runtime}, link_desc=link)


def of_two(rows: Any) -> Any:
    """Rows whose columns two owners have."""
    half = rows.shape[1] // 2
    parts = zip(NAMES, (rows[:, :half], rows[:, half:]), strict=False)
    held = {sf.PYU(name): sf.PYU(name)(lambda part: part)(part.astype(np.float32)) for name, part in parts}
    return FedNdarray(held, PartitionWay.VERTICAL)


def measured(rows: int, features: int, trees: int, depth: int, bins: int) -> dict[str, Any]:
    """One training."""
    x, y = make_classification(
        rows + rows // 3, features, n_informative=features // 2, flip_y=0.05, random_state=0
    )
    x, held_out, y, wanted = train_test_split(x, y, train_size=rows, random_state=0)
    parties = device()
    inputs = of_two(x)
    owner = sf.PYU(NAMES[0])
    labels = owner(lambda part: part)(y.reshape(-1, 1).astype(np.float32))
    how = {
        "num_boost_round": trees,
        "max_depth": depth,
        "learning_rate": 0.3,
        "sketch_eps": 1 / bins,
        "objective": "logistic",
        "reg_lambda": 1.0,
        "subsample": 1.0,
        "colsample_by_tree": 1.0,
        "base_score": 0.5,
    }
    begun, before = time.perf_counter(), sent()
    model = Xgb(parties).train(how, inputs, FedNdarray({owner: labels}, PartitionWay.VERTICAL))
    # Training goes on by itself until something is asked of its result.
    reveal(model.predict(of_two(x[:8])))
    seconds, bytes_sent = time.perf_counter() - begun, sent() - before
    begun = time.perf_counter()
    scores = reveal(model.predict(of_two(held_out)))
    return {
        "system": f"secretflow {sf.__version__}",
        "rows": rows,
        "features": features,
        "trees": trees,
        "depth": depth,
        "fit_seconds": round(seconds, 1),
        "bytes": bytes_sent,
        "predict_seconds": round(time.perf_counter() - begun, 2),
        "auc": roc_auc_score(wanted, scores),
    }


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--bins", type=int, default=32)
    args = parser.parse_args()
    result = measured(args.rows, args.features, args.trees, args.depth, args.bins)
    print(json.dumps({"schema": "megrez.boosting/1", **result}, indent=1))


if __name__ == "__main__":
    main()
