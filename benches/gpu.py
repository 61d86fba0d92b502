"""Measures on a machine with a GPU what docs/gpu.md calls unmeasured, and writes it to one JSON file.

Run it on a quiet machine: make bench-gpu, or python3 benches/gpu.py --output gpu.json
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ["lenet", "alexnet-cifar", "vgg16-cifar"]
MILLION = str(1 << 20)


def call(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command of this repository; its messages stay on the terminal."""
    print("+", " ".join(command), file=sys.stderr, flush=True)
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)


def report(megrez: str, *arguments: str) -> dict:
    """One report of `megrez`; an error is a report too, and the others still run."""
    ran = call([megrez, *arguments])
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    made = json.loads(lines[-1]) if lines else {"error": f"exit code {ran.returncode}"}
    return {"command": ["megrez", *arguments], **made}


def build(target: str) -> tuple[str, str, str]:
    """Build the command, the kernel bench and the tests; returns their paths."""
    for what in (["build", "-p", "megrez"], ["build", "-p", "megrez-cuda", "--example", "bench"]):
        if call(["cargo", *what, "--release", "--locked"]).returncode != 0:
            sys.exit("the build failed")
    listed = ["--lib", "--no-run", "--message-format=json"]
    tests = call(["cargo", "test", "--release", "--locked", "-p", "megrez-cuda", *listed])
    messages = [json.loads(line) for line in tests.stdout.splitlines() if line.startswith("{")]
    found = [m["executable"] for m in messages if m.get("executable")]
    if not found:
        sys.exit("the tests of megrez-cuda do not build")
    return f"{target}/release/megrez", f"{target}/release/examples/bench", found[-1]


def timed(command: list[str]) -> dict:
    """Whether a command succeeds, how long it takes and its last lines."""
    start = time.monotonic()
    ran = call(command)
    seconds = time.monotonic() - start
    tail = ran.stdout.splitlines()[-30:]
    return {"command": command, "passed": ran.returncode == 0, "seconds": seconds, "tail": tail}


def correctness(tests: str, quick: bool) -> dict:
    """The differential suite on the real device, and under the sanitizers where they are installed."""
    out = {"differential": timed([tests, "tests::", "--nocapture"])}
    sanitizer = shutil.which("compute-sanitizer")
    for tool in ("memcheck", "racecheck"):
        if sanitizer is None or quick:
            why = "left out" if quick else "compute-sanitizer is not installed"
            out[tool] = {"passed": None, "tail": [why]}
        else:
            out[tool] = timed([sanitizer, "--tool", tool, "--error-exitcode", "1", tests, "tests::"])
    return out


def operations(megrez: str, device: str) -> list[dict]:
    """Products, streams and a million comparisons; the protocols' parties share the device."""
    gemm = ["bench", "op", "gemm", "--shape", "4096,4096,4096", "--repeat", "9", "--device", device]
    stream = ["bench", "op", "stream", "--batch", str(1 << 27), "--repeat", "9", "--device", device]
    made = [report(megrez, *gemm, "--ring", ring) for ring in ("64", "32")]
    made.append(report(megrez, *stream))
    lists = ["bench", "op", "masked-list", "--batch", MILLION, "--repeat", "9"]
    made.extend(report(megrez, *lists, "--ring", ring, "--device", device) for ring in ("64", "32"))
    for where in (device, "cpu"):
        for op in ("sign-bit", "relu", "maxpool"):
            for kind in ("bits", "digits"):
                common = ["bench", "op", op, "--batch", MILLION, "--list", kind, "--repeat", "5"]
                made.append(report(megrez, *common, "--device", where))
        for protocol in ("aby3", "meteor", "alkaid"):
            common = ["bench", "op", "relu", "--batch", MILLION, "--protocol", protocol, "--repeat", "5"]
            made.append(report(megrez, *common, "--device", where))
    return made


def networks(megrez: str, device: str) -> list[dict]:
    """Each network on the GPU and on the processor, the ratio, and planned beside measured memory."""
    made = []
    for name in MODELS:
        for batch in ("1", "128"):
            common = [name, "--batch", batch, "--repeat", "3"]
            one = {"model": name, "batch": int(batch)}
            planned = report(megrez, "bench", "memory", name, "--batch", batch)
            runs = {
                where: report(megrez, "bench", "model", *common, "--device", where)
                for where in (device, "cpu")
            }
            try:
                median = {w: r["phases"]["online"]["seconds"]["median"] for w, r in runs.items()}
                faster = median["cpu"] / median[device]
            except KeyError:
                faster = None
            made.append({**one, "times_faster_online": faster, "planned": planned, "runs": runs})
    return made


def main() -> None:
    """Build, check, measure, write."""
    parser = argparse.ArgumentParser(description="Measure a GPU: see docs/gpu.md.")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--output", default="gpu.json", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="without the sanitizers, which take long")
    options = parser.parse_args()
    metadata = json.loads(call(["cargo", "metadata", "--no-deps", "--format-version=1"]).stdout)
    megrez, kernels, tests = build(metadata["target_directory"])
    doctor = report(megrez, "--json", "doctor")
    if not doctor.get("gpus"):
        sys.exit(f"no GPU to measure on: {doctor.get('no_gpu')}")
    ordinal = options.device.removeprefix("cuda:")
    lines = call([kernels, ordinal]).stdout.splitlines()
    made = {
        "schema": "megrez.gpu/1",
        "device": options.device,
        "doctor": doctor,
        "correctness": correctness(tests, options.quick),
        "kernels": [json.loads(line) for line in lines if line.startswith("{")],
        "operations": operations(megrez, options.device),
        "networks": networks(megrez, options.device),
        "tables": [
            report(megrez, "--json", "bench", "table", f"mizar-{number}", "--device", options.device)
            for number in range(3, 8)
        ],
    }
    options.output.write_text(json.dumps(made, indent=1) + "\n")
    print(f"written to {options.output}", file=sys.stderr)
    if not made["correctness"]["differential"]["passed"]:
        sys.exit("the differential suite fails on this GPU")


if __name__ == "__main__":
    main()
