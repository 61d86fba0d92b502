"""Trained estimators of scikit-learn, LightGBM and XGBoost as ONNX models.

Their exporters are imported here only, when an estimator is compiled.
"""

from __future__ import annotations

from typing import Any, Protocol

from megrez._native import Error

_EXPORTERS = "the exporters are missing: pip install 'megrez[estimators]'"


class Estimator(Protocol):
    """What scikit-learn calls an estimator, once it is trained."""

    n_features_in_: int

    def get_params(self, deep: bool = ...) -> dict[str, Any]:
        """The parameters that it was made with."""
        ...


def is_estimator(model: object) -> bool:
    """Whether a model is an estimator, by what all of them have."""
    return all(hasattr(model, method) for method in ("fit", "get_params"))


def export(estimator: Any) -> bytes:
    """The estimator as an ONNX model with a free batch dimension, its scores as an array."""
    try:
        features = int(estimator.n_features_in_)
    except AttributeError as error:
        raise Error(f"the {type(estimator).__name__} is not trained: call its fit first") from error
    source = type(estimator).__module__.split(".")[0]
    if source == "megrez":
        raise Error("nobody holds the weights of this model: ask it by `predict`, or by `Cluster.run_stored`")
    try:
        model = _boosted(estimator, source, features) or _scikit_learn(estimator, features)
    except ImportError as error:
        raise Error(_EXPORTERS) from error
    except Exception as error:
        raise Error(f"the {type(estimator).__name__} could not be exported: {error}") from error
    return bytes(model.SerializeToString())


def _boosted(estimator: Any, source: str, features: int) -> Any:
    """A model of LightGBM or XGBoost; None for others."""
    if source not in ("lightgbm", "xgboost"):
        return None
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    types = [("X", FloatTensorType([None, features]))]
    if source == "xgboost":
        return onnxmltools.convert_xgboost(estimator, initial_types=types, target_opset=15)
    options = {"zipmap": False} if hasattr(estimator, "predict_proba") else {}
    return onnxmltools.convert_lightgbm(estimator, initial_types=types, target_opset=15, **options)


def _scikit_learn(estimator: Any, features: int) -> Any:
    """An estimator or a pipeline of scikit-learn."""
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType

    types = [("X", FloatTensorType([None, features]))]

    def convert(options: dict[int, dict[str, bool]] | None) -> Any:
        return skl2onnx.convert_sklearn(estimator, initial_types=types, options=options, target_opset=17)

    if not hasattr(estimator, "classes_"):
        return convert(None)
    try:
        return convert({id(estimator): {"zipmap": False}})
    except NameError:
        # A classifier that makes no map of its scores has no such option.
        return convert(None)
