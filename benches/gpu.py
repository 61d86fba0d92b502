"""Measures on a machine with a GPU what docs/gpu.md calls unmeasured, and writes it to one JSON file.

Run it on a quiet machine: make bench-gpu, or python3 benches/gpu.py --output gpu.json

A machine with a GPU and without Rust takes what another one has built:

    python3 benches/gpu.py --pack gpu-programs       # there
    python3 benches/gpu.py --built gpu-programs      # here, from a copy of this repository
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


PARTS = ["correctness", "kernels", "operations", "networks", "tables"]
# Seconds that a program may take: one that hangs does not keep the others from being measured.
LIMIT = 1800
# The programs that measure: the command, the bench of kernels, the differential suite.
PROGRAMS = ["megrez", "bench", "tests"]


def call(command: list[str], limit: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of this repository, for `limit` seconds at most; its messages stay on the terminal."""
    print("+", " ".join(command), file=sys.stderr, flush=True)
    try:
        return subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, timeout=limit
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout
        return subprocess.CompletedProcess(command, 124, said or "")


def report(megrez: str, *arguments: str) -> dict:
    """One report of `megrez`; an error is a report too, and the others still run."""
    ran = call([megrez, *arguments], LIMIT)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    made = json.loads(lines[-1]) if lines else {"error": f"exit code {ran.returncode}"}
    return {"command": ["megrez", *arguments], **made}


def build() -> dict[str, str]:
    """Build the programs; returns their paths."""
    for what in (["build", "-p", "megrez-cli"], ["build", "-p", "megrez-cuda", "--example", "bench"]):
        if call(["cargo", *what, "--release", "--locked"]).returncode != 0:
            sys.exit("the build failed")
    listed = ["--lib", "--no-run", "--message-format=json"]
    tests = call(["cargo", "test", "--release", "--locked", "-p", "megrez-cuda", *listed])
    messages = [json.loads(line) for line in tests.stdout.splitlines() if line.startswith("{")]
    found = [m["executable"] for m in messages if m.get("executable")]
    if not found:
        sys.exit("the tests of megrez-cuda do not build")
    metadata = json.loads(call(["cargo", "metadata", "--no-deps", "--format-version=1"]).stdout)
    release = pathlib.Path(metadata["target_directory"], "release")
    made = [release / "megrez", release / "examples" / "bench", pathlib.Path(found[-1])]
    return {name: str(path) for name, path in zip(PROGRAMS, made, strict=True)}


def timed(command: list[str]) -> dict:
    """Whether a command succeeds, how long it takes and its last lines."""
    start = time.monotonic()
    ran = call(command, LIMIT)
    seconds = time.monotonic() - start
    tail = ran.stdout.splitlines()[-30:]
    return {"command": command, "passed": ran.returncode == 0, "seconds": seconds, "tail": tail}


def correctness(tests: str, quick: bool) -> dict:
    """The differential suite on the real device, and under the sanitizers where they are installed."""
    # What the host stands in for is tested where there is no GPU.
    suite = [tests, "tests::", "--skip", "on_the_host"]
    out = {"differential": timed([*suite, "--nocapture"])}
    sanitizer = shutil.which("compute-sanitizer")
    for tool in ("memcheck", "racecheck"):
        if sanitizer is None or quick:
            why = "left out" if quick else "compute-sanitizer is not installed"
            out[tool] = {"passed": None, "tail": [why]}
        else:
            out[tool] = timed([sanitizer, "--tool", tool, "--error-exitcode", "1", *suite])
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


def measured(part: str, programs: dict[str, str], options: argparse.Namespace) -> object:
    """One part of what is measured."""
    megrez, device = programs["megrez"], options.device
    if part == "correctness":
        return correctness(programs["tests"], options.quick)
    if part == "kernels":
        lines = call([programs["bench"], device.removeprefix("cuda:")], LIMIT).stdout.splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]
    if part == "operations":
        return operations(megrez, device)
    if part == "networks":
        return networks(megrez, device)
    tables = (f"mizar-{number}" for number in range(3, 8))
    return [report(megrez, "--json", "bench", "table", table, "--device", device) for table in tables]


def main() -> None:
    """Build, check, measure, write."""
    parser = argparse.ArgumentParser(description="Measure a GPU: see docs/gpu.md.")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--output", default="gpu.json", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="without the sanitizers, which take long")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts")
    parser.add_argument("--pack", type=pathlib.Path, help="build the programs into this folder, and stop")
    parser.add_argument("--built", type=pathlib.Path, help="take the programs from this folder")
    options = parser.parse_args()
    if options.built:
        programs = {name: str((options.built / name).resolve()) for name in PROGRAMS}
    else:
        programs = build()
    if options.pack:
        options.pack.mkdir(parents=True, exist_ok=True)
        for name, path in programs.items():
            shutil.copy2(path, options.pack / name)
        return
    doctor = report(programs["megrez"], "--json", "doctor")
    if not doctor.get("gpus"):
        sys.exit(f"no GPU to measure on: {doctor.get('no_gpu')}")
    made: dict[str, object] = {"schema": "megrez.gpu/1", "device": options.device, "doctor": doctor}
    for part in options.only:
        made[part] = measured(part, programs, options)
        # What has been measured stays, whatever happens to the rest.
        options.output.write_text(json.dumps(made, indent=1) + "\n")
    print(f"written to {options.output}", file=sys.stderr)
    found = made.get("correctness")
    if isinstance(found, dict) and not found["differential"]["passed"]:
        sys.exit("the differential suite fails on this GPU")


if __name__ == "__main__":
    main()
