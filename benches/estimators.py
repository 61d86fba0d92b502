"""Compares the estimators of `megrez.sklearn` with scikit-learn's own, on data sets that come with it.

    unshare -rn sh -c 'ip link set lo up && python benches/estimators.py --output estimators.json'

Of each data set a quarter is held out, in another way for each seed; both train on the same rest,
standardised in the same way:

- `score` on what was held out: accuracy, or R² of `LinearRegression`; `worst` is the difference of the worst
  seed; `same` the share of predictions that are the same, or their mean distance;
- `reference`: of `MLPClassifier` scikit-learn's under the same settings (SGD, the same rate, momentum, batch
  and epochs, no penalty), of the others scikit-learn's with its defaults;
- seconds of `fit` and `predict`, three processes on loopback;
- bytes of `fit` and of `predict`: all that goes over the loopback interface, with TLS, TCP and the client's
  uploads. Other programs' bytes count as well: hence `unshare`, which gives this one an interface of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import megrez
import numpy as np
from megrez.sklearn import LinearRegression, LogisticRegression, MLPClassifier
from sklearn import datasets, linear_model, neural_network
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

SETS: dict[str, Callable[..., Any]] = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast_cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
    "diabetes": datasets.load_diabetes,
}
# Digits have ten times the rows, so each epoch has ten times the steps.
EPOCHS = {"digits": 20}


def sent() -> int:
    """Bytes that have gone over the loopback interface."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[8])
    raise SystemExit("there is no loopback interface")


def own(name: str, cluster: megrez.Cluster, seed: int, epochs: int) -> Any:
    """An estimator that is trained on shares."""
    kinds = {"logistic": LogisticRegression, "mlp": MLPClassifier, "linear": LinearRegression}
    return kinds[name](cluster, random_state=seed, max_iter=epochs)


def reference(name: str, ours: Any) -> Any:
    """What scikit-learn has in its place."""
    if name == "logistic":
        return linear_model.LogisticRegression(max_iter=5000)
    if name == "linear":
        return linear_model.LinearRegression()
    return neural_network.MLPClassifier(
        ours.hidden_layer_sizes,
        solver="sgd",
        alpha=0.0,
        batch_size=ours.batch_,
        learning_rate_init=ours.rate_,
        momentum=ours.momentum,
        nesterovs_momentum=False,
        max_iter=ours.max_iter,
        n_iter_no_change=ours.max_iter,
        random_state=ours.random_state,
    )


def measured(call: Callable[[], Any]) -> tuple[Any, float, int]:
    """What a call gives, its seconds and its bytes."""
    start, bytes_before = time.monotonic(), sent()
    result = call()
    return result, time.monotonic() - start, sent() - bytes_before


def compare(cluster: megrez.Cluster, data: str, name: str, seed: int) -> dict[str, Any]:
    """One seed: both train, both predict."""
    rows, labels = SETS[data](return_X_y=True)
    kept = None if name == "linear" else labels
    x, held_out, y, wanted = train_test_split(rows, labels, test_size=0.25, random_state=seed, stratify=kept)
    ours = own(name, cluster, seed, EPOCHS.get(data, 50))
    _, seconds, size = measured(lambda: ours.fit(x, y))
    predicted, asked_seconds, asked_size = measured(lambda: ours.predict(held_out))
    theirs = make_pipeline(StandardScaler(), reference(name, ours)).fit(x, y)
    expected = theirs.predict(held_out)
    same = np.abs(predicted - expected) if name == "linear" else predicted == expected
    cluster.remove(ours.model_)
    return {
        "rows": len(x),
        "steps": ours.training_.steps[0],
        "score": score(name, predicted, wanted),
        "reference": score(name, expected, wanted),
        "same": float(np.mean(same)),
        "loss": ours.loss_,
        "fit_seconds": seconds,
        "fit_bytes": size,
        "predict_rows": len(held_out),
        "predict_seconds": asked_seconds,
        "predict_bytes": asked_size,
    }


def score(name: str, predicted: Any, wanted: Any) -> float:
    """Accuracy, or R²."""
    if name != "linear":
        return float((predicted == wanted).mean())
    return float(1 - ((predicted - wanted) ** 2).sum() / ((wanted - wanted.mean()) ** 2).sum())


def main() -> None:
    """Measure, print and write."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", default=",".join(SETS), help="names of data sets")
    parser.add_argument("--estimators", default="logistic,mlp,linear", help="names of estimators")
    parser.add_argument("--protocol", default="mizar")
    parser.add_argument("--net", default="loopback")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    found = []
    with megrez.local(protocol=arguments.protocol, net=arguments.net) as cluster:
        for data in arguments.sets.split(","):
            fitting = {"linear"} if data == "diabetes" else {"logistic", "mlp"}
            for name in sorted(fitting & {*arguments.estimators.split(",")}):
                runs = [compare(cluster, data, name, seed) for seed in range(arguments.seeds)]
                row: dict[str, Any] = {"data": data, "estimator": name}
                for key in ("score", "reference", "same"):
                    row[key] = statistics.mean(run[key] for run in runs)
                row["worst"] = min(run["score"] - run["reference"] for run in runs)
                for key in ("fit_seconds", "predict_seconds", "fit_bytes", "predict_bytes", "steps"):
                    row[key] = statistics.median(run[key] for run in runs)
                found.append({**row, "runs": runs})
                print(json.dumps(row), flush=True)
    report = {
        "schema": "megrez.bench-estimators/1",
        "protocol": arguments.protocol,
        "net": arguments.net,
        "processors": os.cpu_count(),
        "seeds": arguments.seeds,
        "rows": found,
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
