"""What privacy of rows costs in accuracy: digits of scikit-learn, two estimators trained on shares.

    python benches/privacy.py --output privacy.json

Three processes under `mizar`; a quarter of the rows is held out. Accuracies are means over the seeds, which
split the rows; noise is new in every fit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import megrez
import numpy as np
from megrez.sklearn import LogisticRegression, MLPClassifier
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SETTINGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "LogisticRegression": (LogisticRegression, {"learning_rate_init": 4.0, "momentum": 0.0}),
    "MLPClassifier (32)": (MLPClassifier, {"learning_rate_init": 2.0, "momentum": 0.0}),
}


def main() -> None:
    """Fit, count, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[8.0, 4.0, 2.0, 1.0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    found = []
    data = load_digits()
    with megrez.local() as cluster:
        for name, (estimator, settings) in SETTINGS.items():
            for epsilon in [None, *args.epsilons]:
                scores, seconds = [], []
                for seed in range(args.seeds):
                    x, held_x, y, held_y = train_test_split(data.data, data.target, random_state=seed)
                    own = settings if epsilon is not None else {**settings, "learning_rate_init": 0.5}
                    model = estimator(
                        cluster,
                        max_iter=args.epochs,
                        batch_size=len(x) if epsilon is not None else 32,
                        feature_range=(0.0, 16.0),
                        epsilon=epsilon,
                        random_state=seed,
                        **own,
                    )
                    start = time.monotonic()
                    model.fit(x, y)
                    seconds.append(time.monotonic() - start)
                    scores.append(float(np.mean(model.predict(held_x) == held_y)))
                row = {
                    "estimator": name,
                    "epsilon": epsilon,
                    "accuracy": statistics.mean(scores),
                    "least": min(scores),
                    "fit_s": statistics.median(seconds),
                }
                found.append(row)
                print(json.dumps(row), flush=True)
    if args.output is not None:
        report = {
            "schema": "megrez.bench.privacy/1",
            "epochs": args.epochs,
            "seeds": args.seeds,
            "found": found,
        }
        args.output.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
