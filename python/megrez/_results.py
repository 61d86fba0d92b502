"""What comes out of a run: numbers, and a report that prints well."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from megrez import _native
from megrez._native import InvalidError

if TYPE_CHECKING:
    from megrez._model import Model

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class _Costs:
    """Rounds and bytes by phase, which were measured or foretold."""

    def __init__(self, data: str, text: str) -> None:
        self._data: dict[str, Any] = json.loads(data)
        self._text = text

    def rounds(self, phase: str = "online") -> int:
        """Messages on the critical path of a phase."""
        return int(self._phase(phase)["rounds"])

    def bytes(self, phase: str = "online") -> int:
        """Payload bytes of a phase over all links."""
        return sum(self._phase(phase)["sent_bytes"].values())

    def _phases(self) -> dict[str, dict[str, Any]]:
        phases: dict[str, dict[str, Any]] = self._data["phases"]
        return phases

    def _phase(self, phase: str) -> dict[str, Any]:
        phases = self._phases()
        if phase not in phases:
            raise KeyError(f"there is no phase {phase!r}; there are {', '.join(phases)}")
        return phases[phase]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        copy: dict[str, Any] = json.loads(json.dumps(self._data))
        return copy

    def __repr__(self) -> str:
        return self._text


class Report(_Costs):
    """What a run cost: time, rounds and bytes per phase, party and layer.

    `to_dict` is what `megrez infer --json` prints, with None for outputs' numbers.
    """

    def seconds(self, phase: str = "online") -> float:
        """Seconds of one run in a phase (`offline`, `input`, `online`, `output`), median over the runs."""
        return float(self._phase(phase)["seconds"]["median"])

    @property
    def mode(self) -> str:
        """How the model ran: `execute`, `simulate` or `clear`. A stored model is always executed."""
        return str(self._data["mode"])

    @property
    def distances(self) -> dict[str, tuple[float, float]]:
        """Of a simulation: how far each output is from the clear, at most and in the mean."""
        return {far["name"]: (far["largest"], far["mean"]) for far in self._data["distances"]}

    def names(self, what: str) -> dict[str, list[str]]:
        """By output, the names of its `classes` or its `columns`, where it has any."""
        return {output["name"]: [*output[what]] for output in self._data["outputs"] if what in output}

    def _phases(self) -> dict[str, dict[str, Any]]:
        phases: dict[str, dict[str, Any]] = self._data["cost"]["phases"]
        return phases

    def to_html(
        self,
        *,
        model: Model | None = None,
        check: Check | None = None,
        before: Report | None = None,
    ) -> str:
        """Make a page of the report: cost by phase and layer, as tables and plots.

        The page stands alone, runs no script, and holds no inputs, weights or outputs. A `model` adds whom a
        run tells what and the ranges of its layers, a `check` their errors, `before` a comparison with an
        earlier report.
        """
        return page(run=self._data, before=before and before._data, model=model, check=check)

    def save(
        self,
        path: str | PathLike[str],
        *,
        model: Model | None = None,
        check: Check | None = None,
        before: Report | None = None,
    ) -> None:
        """Write `to_html` to a file."""
        Path(path).write_text(self.to_html(model=model, check=check, before=before), encoding="utf-8")

    def _repr_html_(self) -> str:
        return _native.fragment(json.dumps(self._data))


class Forecast(_Costs):
    """What runs will cost, by the formulas that reports are held to: rounds, bytes, network seconds.

    `to_dict` is what `megrez infer --dry-run --json` prints.
    """

    @property
    def runs(self) -> int:
        """How many runs the data takes."""
        return int(self._data["runs"])

    def seconds(self, phase: str = "online") -> float:
        """Seconds that the network takes for one run of a phase. What parties compute comes on top."""
        return float(self._phase(phase)["network_seconds"])

    @property
    def memory_bytes(self) -> int | None:
        """What a party holds at most in a run: values, masks and randomness. `None` in floating point."""
        memory = self._data["memory_bytes"]
        return None if memory is None else int(memory)


def page(
    *, run: object = None, before: object = None, model: Model | None = None, check: Check | None = None
) -> str:
    """A page of the parts that are there."""
    parts = {
        "run": run,
        "before": before,
        "check": check and check.to_dict(),
        "disclosure": model and dict(model.disclosure(_protocol(run))),
        "layers": model and model.to_dict()["layers"],
    }
    return _native.page({name: json.dumps(part) for name, part in parts.items() if part is not None})


def _protocol(run: object) -> str | None:
    return str(run["protocol"]) if isinstance(run, dict) else None


def only(outputs: Mapping[str, A]) -> A:
    """The only output; refuses several, of which none is meant more than the others."""
    if len(outputs) != 1:
        raise InvalidError(
            f"the model has {len(outputs)} outputs, {', '.join(outputs)}: take one by its name"
        )
    return next(iter(outputs.values()))


@dataclass(frozen=True, repr=False)
class Result(Generic[A_co]):
    """Outputs by name, and the report."""

    outputs: Mapping[str, A_co]
    """The outputs in the model's order, of the kind of the data: arrays, or tensors of PyTorch."""
    report: Report
    """What the run cost."""

    @property
    def maps(self) -> dict[str, list[dict[str, float]]]:
        """Of outputs whose columns have names, as a ZipMap has them, a number by name for each row."""
        rows: dict[str, Any] = {name: self.outputs[name] for name in self.report.names("columns")}
        columns = self.report.names("columns")
        return {
            name: [dict(zip(columns[name], row, strict=True)) for row in rows[name].tolist()] for name in rows
        }

    @property
    def output(self) -> A_co:
        """The output, of a model with one; a model with several has them in `outputs`."""
        return only(self.outputs)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {tuple(getattr(a, 'shape', ()))}" for name, a in self.outputs.items())
        return f"<megrez.Result {shapes}>\n{self.report!r}"

    def _repr_html_(self) -> str:
        return self.report._repr_html_()


@dataclass(frozen=True, repr=False)
class Generated:
    """A text that was continued, and what that cost."""

    tokens: list[int]
    """The new tokens, without the prompt."""
    costs: list[dict[str, Any]]
    """What each run cost, as `cost` in the report of a run: of every token, or of several where they were
    proposed by a draft."""
    proven: bool
    """Whether the range of every layer of every plan was proven to fit the ring."""

    def __repr__(self) -> str:
        return f"<megrez.Generated {self.tokens}>"


@dataclass(frozen=True)
class LayerCheck:
    """One layer's numbers on shares against the clear."""

    layer: str
    """The layer's name."""
    op: str
    """Its operator."""
    max_error: float
    """Largest absolute difference."""
    mean_error: float
    """Mean absolute difference."""
    max_value: float
    """Largest magnitude in the clear."""
    headroom_bits: float
    """Bits between the largest magnitude and the ring's limit; negative if it was exceeded."""
    proven: bool
    """Whether the range was proven before the run."""
    calibrated: bool
    """Whether it rests on what was measured on data, where it was not proven."""
    outside: int
    """Elements that the layer cannot hold: wrong numbers on shares."""


@dataclass(frozen=True)
class FloatLayerCheck:
    """One layer's numbers in single precision on shares against the clear."""

    layer: str
    """The layer's name."""
    op: str
    """Its operator."""
    different: int
    """Numbers that differ from single precision in the clear in any bit."""
    max_error: float
    """Largest absolute difference from the layer computed with sums in double precision."""
    relative_error: float
    """The same over the layer's largest magnitude."""
    max_value: float
    """Largest magnitude."""
    min_value: float
    """Smallest magnitude but zero."""


class Check:
    """Every layer on shares against the clear: `LayerCheck`s, or in float32 `FloatLayerCheck`s."""

    def __init__(self, data: str, text: str) -> None:
        self.layers = [_layer(layer) for layer in json.loads(data)]
        self._text = text

    def to_dict(self) -> list[dict[str, Any]]:
        """The layers as plain data: those that `megrez check --json` prints."""
        return [asdict(layer) for layer in self.layers]

    def to_html(self, *, model: Model | None = None) -> str:
        """Make a page of the errors of all layers; a `model` adds whom a run tells what, and ranges."""
        return page(check=self, model=model)

    def save(self, path: str | PathLike[str], *, model: Model | None = None) -> None:
        """Write `to_html` to a file."""
        Path(path).write_text(self.to_html(model=model), encoding="utf-8")

    @property
    def ok(self) -> bool:
        """Whether every number was one that its layer can hold; in float32, whether every bit was right."""
        return all(
            layer.outside == 0 if isinstance(layer, LayerCheck) else layer.different == 0
            for layer in self.layers
        )

    @property
    def max_error(self) -> float:
        """The largest absolute difference of all layers."""
        return max((layer.max_error for layer in self.layers), default=0.0)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, layer: str) -> Any:
        for check in self.layers:
            if check.layer == layer:
                return check
        raise KeyError(layer)

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        names = [field.name for field in fields(self.layers[0])] if self.layers else []
        rows = [[_cell(getattr(layer, name)) for name in names] for layer in self.layers]
        return _table("every layer on shares against the clear", names, rows)


def _layer(entry: dict[str, Any]) -> LayerCheck | FloatLayerCheck:
    return LayerCheck(**entry) if "outside" in entry else FloatLayerCheck(**entry)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(title: str, head: list[str], rows: list[list[str]]) -> str:
    def row(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    caption = f"<caption>{escape(title)}</caption>" if title else ""
    body = "".join(row(cells, "td") for cells in rows)
    return f"<table>{caption}<thead>{row(head, 'th')}</thead><tbody>{body}</tbody></table>"
