"""Boosted trees on shares: area under the curve, seconds and bytes, beside the same algorithm in the clear.

    unshare -rn sh -c 'ip link set lo up && python benches/boosting.py --output boosting.json'

The data is scikit-learn's `make_classification`; a third as many rows as are trained on are held out. In the
clear are the same trees by NumPy, scikit-learn's own histograms and, where it is installed, XGBoost.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import megrez
import numpy as np
import numpy.typing as npt
from estimators import sent
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


def measured(rows: int, features: int, trees: int, depth: int, bins: int, protocol: str) -> dict[str, Any]:
    """One training on shares, and its likes in the clear."""
    x, y = make_classification(
        rows + rows // 3, features, n_informative=features // 2, flip_y=0.05, random_state=0
    )
    x, held_out, y, wanted = train_test_split(x, y, train_size=rows, random_state=0)
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
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    result = measured(args.rows, args.features, args.trees, args.depth, args.bins, args.protocol)
    text = json.dumps({"schema": "megrez.boosting/1", **result}, indent=1)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
