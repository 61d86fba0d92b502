"""Models: compiled from ONNX files or PyTorch modules."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

from megrez import _native
from megrez._data import Array, Given, GivenTensor, Numbers, arrays, outputs, single
from megrez._disclosure import Disclosure
from megrez._results import Forecast, only

if TYPE_CHECKING:
    import torch

    from megrez._estimators import Estimator

Interval = tuple[float, float]


@dataclass(frozen=True)
class Layer:
    """A layer of a compiled model, and what is known of its numbers."""

    layer: str
    """Its name."""
    op: str
    """Its operator."""
    shape: tuple[int, ...]
    """The dimensions of its output."""
    range: Interval | None = None
    """The bounds of its output. This and what follows are None in float32, which nothing exceeds."""
    bits: int | None = None
    """The magnitude of its ring elements is below 2^bits, ..."""
    limit: int | None = None
    """... and must be below 2^limit."""
    proven: bool | None = None
    """Whether this was proven, or taken from data or assumed because it could not be."""
    calibrated: bool | None = None
    """Whether it was taken from what `calibrate` measured on data."""


class Model:
    """A compiled model, which any cluster can run. `compile` makes one."""

    def __init__(self, native: _native.Model) -> None:
        self._native = native
        self._about: dict[str, Any] = json.loads(native.describe())

    @property
    def batch(self) -> int:
        """Inputs per run."""
        return self._native.batch

    @property
    def numbers(self) -> str:
        """What it computes with: `fixed` or `float32`."""
        return str(self._about["numbers"])

    @property
    def ring(self) -> int | None:
        """Bits of the ring; None in float32."""
        ring: int | None = self._about.get("ring")
        return ring

    @property
    def frac(self) -> int | None:
        """Fraction bits of fixed point; None in float32."""
        frac: int | None = self._about.get("frac")
        return frac

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """The inputs and the dimensions of one batch."""
        return {entry["name"]: tuple(entry["shape"]) for entry in self._about["inputs"]}

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return list(self._about["outputs"])

    @property
    def classes(self) -> dict[str, list[str]]:
        """Of outputs that are labels, the names of the classes; everybody sees them."""
        return {name: [*names] for name, names in self._about["classes"].items() if names}

    @property
    def columns(self) -> dict[str, list[str]]:
        """Of outputs whose columns have names, as a ZipMap has them, these names; everybody sees them."""
        return {name: [*names] for name, names in self._about["columns"].items() if names}

    def to_dict(self) -> dict[str, Any]:
        """The model's description as plain data."""
        copy: dict[str, Any] = json.loads(json.dumps(self._about))
        return copy

    @property
    def layers(self) -> list[Layer]:
        """The layers in the order in which they run."""
        return [_layer(entry) for entry in self._about["layers"]]

    @property
    def proven(self) -> bool | None:
        """Whether the range of every layer was proven to fit the ring; None in float32."""
        proven: bool | None = self._about.get("proven")
        return proven

    @overload
    def plain(self, data: Given) -> Array: ...
    @overload
    def plain(self, data: GivenTensor) -> torch.Tensor: ...
    def plain(self, data: Any) -> Any:
        """Run the model in the clear, in floating point: the reference, of a model with one output."""
        return only(self.plain_outputs(data))

    @overload
    def plain_outputs(self, data: Given) -> dict[str, Array]: ...
    @overload
    def plain_outputs(self, data: GivenTensor) -> dict[str, torch.Tensor]: ...
    def plain_outputs(self, data: Any) -> dict[str, Any]:
        """As `plain`, all outputs by name."""
        given, tensors = arrays(data, list(self.inputs))
        return outputs(self._native.plain(given), tensors, self.classes)

    def calibrate(self, data: Given | GivenTensor, *, margin: float = 2.0) -> dict[str, Any]:
        """Measure how large the values of each layer get, for the `calibration` of `compile`.

        Bounds are `margin` times what is seen. The result can be kept as JSON.
        """
        given, _ = arrays(data, list(self.inputs))
        calibration: dict[str, Any] = json.loads(self._native.calibrate(given, margin))
        return calibration

    def disclosure(
        self,
        protocol: str | None = None,
        *,
        model_owner: str = "owner of the model",
        data_owner: str = "owner of the data",
        recipient: str = "recipient",
    ) -> Disclosure:
        """Say what a run tells whom: who gives what, who learns what, what everybody sees.

        Nothing runs. `protocol` defaults to `mizar`, and to `secfloat` for a model in float32. The names are
        those that the table uses.
        """
        known = protocol or ("mizar" if self.numbers == "fixed" else "secfloat")
        return Disclosure(*self._native.disclosure(known, (model_owner, data_owner, recipient)))

    def forecast(
        self, *, rows: int | None = None, protocol: str | None = None, net: str = "loopback"
    ) -> Forecast:
        """Reckon what runs will cost, before anything runs.

        Args:
            rows: how many inputs there are; by default one batch.
            protocol: defaults to `mizar`, and to `secfloat` for a model in float32.
            net: the network between the parties: `loopback`, `lan`, `wan`, or its round trip and rate.

        """
        known = protocol or ("mizar" if self.numbers == "fixed" else "secfloat")
        runs = 1 if rows is None else -(-rows // self.batch)
        if runs < 1:
            raise _native.InvalidError(f"there is one row at least, not {rows}")
        return Forecast(*self._native.forecast(known, net, runs))

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name} {list(shape)}" for name, shape in self.inputs.items())
        rest = [layer for layer in self.layers if not layer.proven]
        ranges = "proven" if not rest else "calibrated" if all(x.calibrated for x in rest) else "assumed"
        fixed = f"ring of {self.ring} bits with {self.frac} fraction bits, ranges {ranges}"
        numbers = self.numbers if self.ring is None else fixed
        return f"<megrez.Model {inputs} -> {', '.join(self.outputs)}: {len(self.layers)} layers, {numbers}>"


def _layer(entry: Mapping[str, Any]) -> Layer:
    of: dict[str, Any] = {**entry, "shape": tuple(entry["shape"])}
    if "range" in of:
        of["range"] = tuple(of["range"])
    return Layer(**of)


def compile(
    model: str | os.PathLike[str] | bytes | torch.nn.Module | Estimator,
    *,
    example_input: torch.Tensor | tuple[torch.Tensor, ...] | None = None,
    batch: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Numbers | float] | None = None,
    ring: int = 64,
    frac: int | None = None,
    input_range: float | Interval | Mapping[str, float | Interval] = 1.0,
    ranges: Literal["prove", "calibrated", "assume"] = "prove",
    list: Literal["bits", "digits", "tree"] = "digits",
    widths: Sequence[int] | None = None,
    bits: int | None = None,
    cut: int = 0,
    fit: bool = False,
    calibration: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    guard: bool = False,
    declared: Mapping[str, float | Interval] | str | os.PathLike[str] | None = None,
    form: Literal["3r", "2r", "2r-fresh", "table", "key", "digit-tables", "auto"] = "3r",
    keys: int | None = None,
    pool: Literal["tournament", "all-pairs"] | None = None,
    trees: Literal["hidden", "shape"] = "hidden",
    weights: Literal["private", "public", "public-int8"] = "private",
    mix: bool = False,
    activations: Literal["auto", "minimax", "fine", "lookup", "mizar"] = "auto",
    protocol: str | None = None,
    net: str = "loopback",
    offline_net: str | None = None,
    memory: int | None = None,
    numbers: Literal["fixed", "float32"] | None = None,
    group: int | None = None,
    threads: int | None = None,
) -> Model:
    """Compile a model for shares.

    Args:
        model: the path of an ONNX file, the bytes of one, a `torch.nn.Module`, or a trained estimator of
            scikit-learn, LightGBM or XGBoost, pipelines included.
        example_input: for a module: a tensor, or a tuple of them, of the shape that it takes, batch included.
        batch: inputs per run; data of any length is cut into runs of so many. By default that of
            `example_input`, or 1.
        shapes: whole shapes for inputs by name, where the model leaves more open than the batch.
        constants: inputs that are no data but constants of the model, such as a rate or a mask, by name:
            numbers or arrays of the inputs' shapes.
        ring: bits of the ring, 32, 40, 48 or 64: on the shorter ones less is sent, and less fits.
        frac: fraction bits of fixed point; by default 16, and 10 on the 32-bit ring.
        input_range: what every element of the data lies in: a bound of the magnitude, a pair of bounds, or
            one of these for each input by name. Data outside is refused before it is shared.
        ranges: refuse a model whose ranges cannot be proven to fit the ring, take what `calibration` has
            measured where proofs end, or assume that they do.
        list: how two workers and a dealer compare with zero: by a list of bits or of digits, or by a tree of
            digits, which needs no dealer online.
        widths: the digits' widths, most significant first; by default the best known.
        bits: how many bits a comparison looks at, sign included; by default all.
        cut: how many low bits a comparison ignores.
        fit: compare only as many bits as each layer's proven range needs. The plan then shows the parties how
            large each layer's values may get, to a factor of two.
        calibration: as `fit`, with magnitudes measured by `Model.calibrate`: what it gave, or a file of
            `megrez calibrate`. With `ranges="calibrated"` its ranges take the place of proofs, and nothing is
            fitted unless `fit` says so.
        guard: with `ranges="calibrated"`, compare what rests on measurements with them in every run. Data
            beyond them then raises `OutOfRangeError`, and the recipient learns that one bit; without it, such
            data gives wrong numbers.
        declared: ranges of the layers that read secret weights, so that the plan tells nothing about them:
            bounds by the layer's name, with "*" for all others, or a JSON or TOML file of these. The weights
            must prove them.
        form: the form of ReLU: three rounds, two rounds, two rounds with fresh masks, a table, a key, tables
            of digits, or `auto`: what is fastest for the protocol on the network.
        keys: ReLUs of at most so many elements take keys, which spare rounds, whatever the form of the
            others is; by default none do, or what is fastest where `form` is `auto`.
        pool: how pools find a maximum; by default a tournament of ReLUs, or what is fastest on the network
            where `form` is `auto` or the protocol has one form of ReLU only.
        trees: what everybody sees of ensembles of trees: how many there are, how deep, and how many leaves
            the largest has, up to a power of two; or their exact shape and which feature each test looks at,
            which takes fewer rounds. Thresholds and the numbers of leaves are secret in both.
        weights: who knows them: nobody but their owner; or every party, so that products with them send
            nothing. Those of large matrices then have 16 or 8 bits and lie in files that all parties of a
            host share.
        mix: under aby3 and alkaid, have ReLUs and maxima computed by MIZAR's steps, with party 2 as dealer,
            up to the size where that is faster on the network.
        activations: what stands for smooth activations: tables that a dealer deals where the protocol has
            one, and splines elsewhere; splines fitted for the least error, finer ones, tables as short as
            ranges (one round; the plan tells the ranges), or MIZAR's Appendix B to compare with.
        protocol: what the model is compiled for; by default mizar, or secfloat for float32. Other protocols
            can run it if they have its steps.
        net: the network that choices are made for.
        offline_net: the network while material is dealt, for `form="auto"`; by default as `net`.
        memory: MiB that a party may hold of a run, for `form="auto"`; by default any.
        numbers: fixed point, or IEEE single precision; by default what the protocol computes with. Single
            precision runs under `secfloat` between two parties, under `mizar`, `aby3` or `alkaid` between
            three. It has no ring, no ranges and no comparisons to choose: it takes none of the options from
            `ring` to `activations`.
        group: in float32, bits of a group of the transfer extension, 1, 2, 4 or 8: more is fewer bytes and
            more work. 0 is silent transfers: the fewest bytes for large runs on slow links, in one thread. By
            default 4, or 0 where that is faster on `net`.
        threads: in float32, threads of each party; by default half of this machine's cores.

    Raises:
        Error: with every operator that is not supported, and every range that does not fit.

    """
    if isinstance(model, (str, os.PathLike, bytes)):
        if example_input is not None:
            raise _native.InvalidError(
                "an ONNX model says its shapes itself: example_input is for a torch.nn.Module"
            )
        onnx: str | os.PathLike[str] | bytes = model
    else:
        from megrez import _estimators, _torch

        if _estimators.is_estimator(model):
            if example_input is not None:
                raise _native.InvalidError("an estimator knows its features: leave out example_input")
            onnx = _estimators.export(model)
        else:
            examples = _torch.examples(model, example_input)
            onnx = _torch.export(model, examples)
            batch = batch or examples[0].shape[0]
    if batch is not None and batch < 1:
        raise _native.InvalidError(f"a batch has one input at least, not {batch}")
    request = compile_request(
        ring=ring,
        frac=frac,
        input_range=input_range,
        ranges=ranges,
        list=list,
        widths=widths,
        bits=bits,
        cut=cut,
        fit=fit,
        calibration=calibration,
        guard=guard,
        declared=declared,
        form=form,
        keys=keys,
        pool=pool,
        trees=trees,
        weights=weights,
        mix=mix,
        activations=activations,
        protocol=protocol,
        net=net,
        offline_net=offline_net,
        memory=memory,
        numbers=numbers,
        group=group,
        threads=threads,
    )
    size = 1 if batch is None else batch
    if numbers == "float32" and (chosen := _native.Model.unused_in_float(request)):
        raise _native.InvalidError(f"float32 has nothing to choose of these: leave out {', '.join(chosen)}")
    whole = {name: [*dims] for name, dims in (shapes or {}).items()}
    fixed = {name: single(value) for name, value in (constants or {}).items()}
    compiled = Model(_native.Model.compile(onnx, size, whole, fixed, request))
    named = input_range if isinstance(input_range, Mapping) else {}
    for option, given_for in (("shapes", [*(shapes or {})]), ("input_range", [*named])):
        unknown = [name for name in given_for if name not in compiled.inputs]
        if unknown:
            raise _native.InvalidError(
                f"{option} names {unknown}; the model has the inputs {compiled.inputs}"
            )
    return compiled


def compile_request(
    *,
    input_range: float | Interval | Mapping[str, float | Interval] = 1.0,
    widths: Sequence[int] | None = None,
    calibration: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    declared: Mapping[str, float | Interval] | str | os.PathLike[str] | None = None,
    protocol: str | None = None,
    numbers: str | None = None,
    **others: object,
) -> str:
    """A `CompileRequest` of the Rust library as JSON; it says what is right and what goes together."""
    by_name = dict(input_range) if isinstance(input_range, Mapping) else {}
    return _json(
        {
            **others,
            "protocol": protocol or ("secfloat" if numbers == "float32" else "mizar"),
            "numbers": numbers,
            "input_range": (-1.0, 1.0) if isinstance(input_range, Mapping) else _interval(input_range),
            "input_ranges": {name: _interval(bound) for name, bound in by_name.items()},
            "declared": _file_or(declared),
            "calibration": _file_or(calibration),
            "widths": None if widths is None else [*widths],
        }
    )


def _json(options: Mapping[str, Any]) -> str:
    try:
        return json.dumps(options, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise _native.InvalidError(f"options that cannot be: {error}") from error


def _file_or(given: Mapping[str, Any] | str | os.PathLike[str] | None) -> dict[str, Any] | str | None:
    if given is None or isinstance(given, Mapping):
        return None if given is None else dict(given)
    return os.fspath(given)


def _interval(bound: float | Interval) -> Interval:
    return bound if isinstance(bound, tuple) else (-float(bound), float(bound))
