"""Boosted trees on shares: area under the curve, seconds and bytes, beside the same algorithm in the clear.

    unshare -rn sh -c 'ip link set lo up && python benches/boosting.py --output boosting.json'

With `--owners` two clients have half of the columns each, one of them the labels, as three services of this
machine see it: `megrez boost` trains and `megrez predict` asks.

The data is scikit-learn's `make_classification`; a third as many rows as are trained on are held out. In the
clear are the same trees by NumPy, scikit-learn's own histograms and, where it is installed, XGBoost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import megrez
import numpy as np
import numpy.typing as npt
from estimators import sent
from megrez._supervised import Supervised, write_triple
from megrez.sklearn import GradientBoostingClassifier
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

_Numbers = npt.NDArray[np.floating[Any]]


def scores_in_the_clear(
    asked: _Numbers, labels: _Numbers, held_out: _Numbers, trees: int, depth: int, rate: float, penalty: float
) -> _Numbers:
    """The scores of held out rows by the algorithm that runs on shares; rows are indicators."""
    scores, found = np.zeros(len(asked)), np.zeros(len(held_out))
    for _ in range(trees):
        p = 1 / (1 + np.exp(-scores))
        g, h = p - labels, p * (1 - p)
        nodes, of = np.zeros(len(asked), int), np.zeros(len(held_out), int)
        for level in range(depth):
            members = np.eye(2**level)[nodes]
            sums = [(members * part[:, None]).T for part in (g, h)]
            right = [part @ asked for part in sums]
            left = [part.sum(axis=1)[:, None] - of_right for part, of_right in zip(sums, right, strict=True)]
            values = [of_g / (of_h + penalty) for of_g, of_h in (left, right)]
            gains = left[0] * values[0] + right[0] * values[1]
            best = gains.argmax(axis=1)
            leaves = np.concatenate([value[np.arange(2**level), best] for value in values])
            nodes = nodes + 2**level * (asked[np.arange(len(asked)), best[nodes]] > 0)
            of = of + 2**level * (held_out[np.arange(len(held_out)), best[of]] > 0)
        scores -= rate * leaves[nodes]
        found -= rate * leaves[of]
    return found


def data(rows: int, features: int) -> tuple[_Numbers, _Numbers, _Numbers, _Numbers]:
    """Rows, held out rows, and the labels of both."""
    x, y = make_classification(
        rows + rows // 3, features, n_informative=features // 2, flip_y=0.05, random_state=0
    )
    x, held_out, y, wanted = train_test_split(x, y, train_size=rows, random_state=0)
    return x, held_out, y, wanted


def by_owners(rows: int, features: int, trees: int, depth: int, bins: int, protocol: str) -> dict[str, Any]:
    """One training on the columns of two owners, by the command."""
    x, held_out, y, wanted = data(rows, features)
    half = features // 2
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as ends:
        folder = Path(name)
        for party in [Supervised(config) for config in write_triple(folder, ["alice", "bob"])]:
            party.wait()
            ends.callback(party.stop)

        def say(client: str, *words: object) -> dict[str, Any]:
            there = ["--cluster", folder / "cluster.toml", "--certs", folder / "certs", "--client", client]
            at = [] if words[0] == "indicators" else there
            command = ["megrez", "--json", *map(str, [*words, *at])]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
            return json.loads(done.stdout)  # type: ignore[no-any-return]

        begun, before = time.perf_counter(), sent()
        for kind, part in (("learnt", x), ("held-out", held_out)):
            ids = folder / f"{kind}.ids"
            ids.write_text("".join(f"{kind} {row}\n" for row in range(len(part))))
            for client, own in (("alice", part[:, :half]), ("bob", part[:, half:])):
                files = [folder / f"{client}-{what}.npy" for what in (kind, f"{kind}-answers", "thresholds")]
                np.save(files[0], own.astype(np.float32))
                made = ("--inputs", files[0], "--output", files[1], "--thresholds", files[2])
                say(client, "indicators", *made, *(("--bins", bins) if kind == "learnt" else ()))
                labels: tuple[object, ...] = ()
                if client == "bob" and kind == "learnt":
                    np.save(folder / "labels.npy", y.astype(np.float32))
                    labels = ("--labels", folder / "labels.npy", "--classes", 1)
                upload = ("upload-data", "--name", f"{client}-{kind}", "--inputs", files[1], "--ids", ids)
                form = ("--input-range", "0,1", "--protocol", protocol, "--allow", "alice")
                say(client, *upload, *form, *labels)
        job = folder / "job"
        of = ("--protocol", protocol, "--data")
        how = ("--estimators", trees, "--depth", depth, "--keep", "scores", "--propose", job)
        stored, sent_before = time.perf_counter(), sent()
        proposed = say("alice", "boost", *of, "alice-learnt+bob-learnt", *how)
        say("bob", "approve", "--job", job, "--of", "bob-learnt")
        trained = time.perf_counter()
        losses = say("alice", "train", "--job", job)["losses"]
        seconds, bytes_sent, asking = time.perf_counter() - trained, sent() - sent_before, time.perf_counter()
        how = ("--estimators", trees, "--depth", depth, "--model-name", "scores", "--propose", job)
        say("alice", "predict", *of, "alice-held-out+bob-held-out", *how)
        say("bob", "approve", "--job", job, "--of", "bob-held-out,scores")
        say("alice", "predict", "--job", job, "--output", folder / "said.npy")
        asked = [np.load(folder / f"{client}-learnt-answers.npy") for client in ("alice", "bob")]
        others = [np.load(folder / f"{client}-held-out-answers.npy") for client in ("alice", "bob")]
        indicators = [np.concatenate(parts, axis=1).astype(np.float64) for parts in (asked, others)]
        plain = scores_in_the_clear(indicators[0], y, indicators[1], trees, depth, 0.3, 1.0)
        return {
            "protocol": protocol,
            "owners": 2,
            "rows": rows,
            "features": features,
            "columns": indicators[0].shape[1],
            "trees": trees,
            "depth": depth,
            "upload_seconds": round(stored - begun, 1),
            "upload_bytes": sent_before - before,
            "propose_seconds": round(trained - stored, 1),
            "fit_seconds": round(seconds, 1),
            "bytes": bytes_sent,
            "predict_seconds": round(time.perf_counter() - asking, 1),
            "held_out": len(wanted),
            "auc": {
                "on shares": roc_auc_score(wanted, np.load(folder / "said.npy")[:, 0]),
                "the same in the clear": roc_auc_score(wanted, plain),
            },
            "loss": losses,
            "says": proposed["says"],
        }


def measured(rows: int, features: int, trees: int, depth: int, bins: int, protocol: str) -> dict[str, Any]:
    """One training on shares, and its likes in the clear."""
    x, held_out, y, wanted = data(rows, features)
    begun, before = time.perf_counter(), sent()
    with megrez.local(protocol=protocol) as cluster:
        model = GradientBoostingClassifier(
            cluster, n_estimators=trees, max_depth=depth, max_bins=bins, predict_batch=500
        )
        model.fit(x, y)
        seconds, bytes_sent = time.perf_counter() - begun, sent() - before
        begun = time.perf_counter()
        auc = roc_auc_score(wanted, model.decision_function(held_out))
        asked = time.perf_counter() - begun
    indicators = model._indicators(x), model._indicators(held_out)
    plain = scores_in_the_clear(
        indicators[0], y, indicators[1], trees, depth, model.learning_rate, model.reg_lambda
    )
    others = {
        "HistGradientBoosting": HistGradientBoostingClassifier(
            max_iter=trees,
            max_depth=depth,
            learning_rate=model.learning_rate,
            max_bins=bins,
            l2_regularization=model.reg_lambda,
            early_stopping=False,
        )
    }
    try:
        import xgboost
    except ImportError:
        pass
    else:
        others["XGBoost"] = xgboost.XGBClassifier(
            n_estimators=trees,
            max_depth=depth,
            learning_rate=model.learning_rate,
            max_bin=bins,
            reg_lambda=model.reg_lambda,
            tree_method="hist",
            min_child_weight=0,
        )
    aucs = {
        name: roc_auc_score(wanted, other.fit(x, y).predict_proba(held_out)[:, 1])
        for name, other in others.items()
    }
    return {
        "protocol": protocol,
        "rows": rows,
        "features": features,
        "columns": indicators[0].shape[1],
        "trees": trees,
        "depth": depth,
        "fit_seconds": round(seconds, 1),
        "bytes": bytes_sent,
        "predict_seconds": round(asked, 2),
        "held_out": len(wanted),
        "auc": {"on shares": auc, "the same in the clear": roc_auc_score(wanted, plain), **aucs},
        "loss": model.loss_curve_,
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
    parser.add_argument("--protocol", default="mizar")
    parser.add_argument("--owners", action="store_true")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    measure = by_owners if args.owners else measured
    result = measure(args.rows, args.features, args.trees, args.depth, args.bins, args.protocol)
    text = json.dumps({"schema": "megrez.boosting/1", **result}, indent=1)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
