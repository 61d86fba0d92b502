"""Runs, batches, reports and clusters."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import megrez
import numpy as np
import pytest
from conftest import DIGITS, Array
from models import model, node, reference


def test_any_number_of_inputs_is_cut_into_batches(
    threads: megrez.Cluster, small: megrez.Model, images: Array
) -> None:
    expected = small.plain(images[:5])
    result = threads.run(small, images[:5])
    assert result.output.shape == (5, 10)
    assert np.abs(result.output - expected).max() < 5e-3
    report = result.report.to_dict()
    assert (report["batch"], report["runs"]) == (2, 3)
    one = threads.run(small, images[:1].tolist())
    assert np.abs(one.output - expected[:1]).max() < 5e-3
    wide = threads.run(small, images[:3].astype(np.float64)[:, :, ::1, :])
    assert np.abs(wide.output - expected[:3]).max() < 5e-3


def test_several_inputs_go_by_name(threads: megrez.Cluster) -> None:
    source = model([node("Add", ["a", "b"], "sum")], {"a": ["n", 3], "b": ["n", 3]}, "sum")
    compiled = megrez.compile(source, batch=2, input_range={"a": 2.0, "b": (0.0, 3.0)})
    assert compiled.inputs == {"a": (2, 3), "b": (2, 3)}
    a, b = np.full((3, 3), -2.0), np.arange(9.0).reshape(3, 3) / 3
    result = threads.run(compiled, {"b": b, "a": a})
    np.testing.assert_allclose(result.output, a + b, atol=1e-3)
    np.testing.assert_allclose(compiled.plain({"a": a, "b": b}), a + b, atol=1e-6)
    assert list(result.outputs) == ["sum"]
    with pytest.raises(megrez.Error, match="by name"):
        threads.run(compiled, a)
    with pytest.raises(megrez.Error, match=r"missing: \['b'\], unknown: \['c'\]"):
        threads.run(compiled, {"a": a, "c": b})
    with pytest.raises(megrez.Error, match="first dimension"):
        threads.run(compiled, {"a": a, "b": b[:2]})
    assert len(threads.check(compiled, {"a": a, "b": b})) == 1


@pytest.mark.parametrize("protocol", ["mizar", "secfloat"])
def test_outputs_are_whole_and_all_there(protocol: str) -> None:
    nodes = [node("Transpose", ["x"], "turned"), node("Add", ["x", "x"], "double")]
    source = model(nodes, {"x": ["n", 3]}, "turned", others=["double"])
    x = np.arange(12, dtype=np.float32).reshape(4, 3) / 16
    numbers = "float32" if protocol == "secfloat" else "fixed"
    compiled = megrez.compile(source, batch=4, numbers=numbers)  # type: ignore[arg-type]
    with megrez.local(protocol=protocol, parties="thread") as cluster:
        result = cluster.run(compiled, x)
        assert list(result.outputs) == ["turned", "double"]
        np.testing.assert_allclose(result.outputs["turned"], x.T, atol=1e-3)
        np.testing.assert_allclose(result.outputs["double"], 2 * x, atol=1e-3)
        with pytest.raises(megrez.Error, match="2 outputs, turned, double"):
            _ = result.output
        report = result.report.to_dict()
        shapes = [{"name": "turned", "shape": [3, 4], "output": None}]
        assert report["outputs"] == [*shapes, {"name": "double", "shape": [4, 3], "output": None}]
        for rows in (3, 5):
            with pytest.raises(megrez.Error, match="`turned` is not made input by input"):
                cluster.run(compiled, x[:rows] if rows < 5 else np.concatenate([x, x[:1]]))
        one = megrez.compile(source, numbers=numbers)  # type: ignore[arg-type]
        with pytest.raises(megrez.Error, match="not made input by input"):
            cluster.run(one, x)
    np.testing.assert_allclose(compiled.plain_outputs(x)["turned"], x.T)
    with pytest.raises(megrez.Error, match="take one by its name"):
        compiled.plain(x)


def test_one_input_at_a_time_is_no_other_model(threads: megrez.Cluster) -> None:
    nodes = [node("ReduceSum", ["x", "axes"], "sum"), node("Sub", ["x", "sum"], "y")]
    source = model(nodes, {"x": ["n", 3]}, "y", axes=np.array([0]))
    x = np.arange(6, dtype=np.float32).reshape(2, 3) / 16
    for run in (lambda m: threads.run(m, x), lambda m: m.plain(x)):
        with pytest.raises(megrez.Error, match="not made input by input"):
            run(megrez.compile(source))
    np.testing.assert_allclose(
        threads.run(megrez.compile(source, batch=2), x).output, x - x.sum(axis=0), atol=1e-3
    )


def test_the_report_has_the_schema_of_the_command(
    processes: megrez.Cluster, small: megrez.Model, images: Array
) -> None:
    result = processes.run(small, images[:2])
    report = result.report.to_dict()
    assert report["schema"] == "megrez.infer/1"
    assert report["shape"] == [2, 10]
    assert (report["protocol"], report["insecure"], report["range"]) == ("mizar", False, "proven")
    cost = report["cost"]
    assert set(cost) >= {"phases", "wire_bytes", "layers", "device", "peak_rss_mib"}
    online = cost["phases"]["online"]
    assert set(online) >= {"seconds", "busy_seconds", "rounds", "sent_bytes"}
    assert set(online["seconds"]) == {"median", "min", "max"}
    assert len(cost["device"]) == len(online["busy_seconds"]) == 3
    assert all(sent > 0 for sent in cost["wire_bytes"].values())
    assert [layer["layer"] for layer in cost["layers"]] == [layer.layer for layer in small.layers]
    assert result.report.rounds() == online["rounds"] > 0
    assert result.report.bytes() == sum(layer["online_bytes"] for layer in cost["layers"]) > 0
    assert result.report.bytes("offline") > 0
    assert result.report.seconds() > 0
    with pytest.raises(KeyError, match="online"):
        result.report.seconds("later")
    report["cost"].clear()
    assert result.report.to_dict()["cost"], "a copy"


def test_reports_print(threads: megrez.Cluster, small: megrez.Model, images: Array) -> None:
    result = threads.run(small, images[:2])
    for text in (repr(result), repr(result.report)):
        assert "online" in text
        assert "conv1" in text
    html = result._repr_html_()
    assert html.count("<table>") == html.count("</table>") == 2
    assert "conv1" in html
    assert "<svg" in html
    assert "logits" in repr(small)
    assert "mizar" in repr(threads)


def test_a_report_is_a_page_without_numbers_of_the_run(
    threads: megrez.Cluster, small: megrez.Model, images: Array, tmp_path: Path
) -> None:
    report = threads.run(small, images[:2]).report
    page = tmp_path / "report.html"
    report.save(page, model=small, before=report)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    for part in ("conv1", "Who learns what", "Compared", "1.00 ×", "Ranges", "proven"):
        assert part in text
    assert "<script" not in text
    assert "src=" not in text
    assert "Who learns what" not in report.to_html()


def test_check_compares_every_layer(processes: megrez.Cluster, small: megrez.Model, images: Array) -> None:
    check = processes.check(small, images[:2])
    assert [layer.layer for layer in check] == [layer.layer for layer in small.layers]
    assert check.ok
    assert 0 < check.max_error < 5e-3
    conv = check["conv1"]
    assert conv.op == "Conv"
    assert conv.proven
    assert conv.outside == 0
    assert conv.mean_error <= conv.max_error
    assert "conv1" in repr(check)
    assert check._repr_html_().count("<tr>") == len(check) + 1
    assert "Accuracy by layer" in check.to_html(model=small)
    with pytest.raises(KeyError):
        check["conv9"]


def test_check_opens_sums_that_a_run_leaves_for_the_next_layer(processes: megrez.Cluster) -> None:
    source = model([node("LpNormalization", ["x"], "y")], {"x": [2, 3]}, "y")
    compiled = megrez.compile(source, batch=2, ranges="assume")
    given = np.array([[0.5, -0.25, 1.0], [0.125, 0.75, 0.5]], dtype=np.float32)
    assert processes.check(compiled, given).ok
    assert np.allclose(processes.run(compiled, given).output, compiled.plain(given), atol=1e-3)


def test_two_clusters_and_two_threads_at_once(small: megrez.Model, images: Array) -> None:
    expected = small.plain(images[:4])
    with megrez.local() as one, megrez.local() as two, ThreadPoolExecutor(4) as pool:
        clusters = [one, two, one, two]
        results = list(pool.map(lambda cluster: cluster.run(small, images[:4]), clusters))
    for result in results:
        assert np.abs(result.output - expected).max() < 5e-3


def test_other_threads_go_on(threads: megrez.Cluster, lenet: megrez.Model, images: Array) -> None:
    ticks = 0
    end = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not end.wait(0.01):
            ticks += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    threads.run(lenet, images[:60])
    end.set()
    ticker.join()
    assert ticks > 3


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C as in a terminal: a test run in the background of a shell inherits that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_the_wait_and_the_cluster_stays_usable(
    processes: megrez.Cluster, small: megrez.Model, images: Array
) -> None:
    begun = threading.Event()

    def press() -> None:
        begun.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        processes.run(small, np.concatenate([images] * 20), progress=lambda _: begun.set())
    assert time.monotonic() - start < 20
    result = processes.run(small, images[:2])
    assert np.abs(result.output - small.plain(images[:2])).max() < 5e-3


def test_an_error_of_progress_comes_through(
    threads: megrez.Cluster, small: megrez.Model, images: Array
) -> None:
    def fail(_: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        threads.run(small, np.concatenate([images] * 20), progress=fail)


def children() -> int:
    """Parties that are children of this process, from the Linux process table."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            arguments = (process / "cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            continue  # it has just ended
        count += parent == os.getpid() and b"party.py" in arguments
    return count


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no process table in /proc")
def test_parties_end_with_their_cluster(small: megrez.Model, images: Array) -> None:
    before = children()
    cluster = megrez.local()
    assert children() == before + 3
    cluster.close()
    cluster.close()
    assert children() == before
    with pytest.raises(megrez.Error, match="closed"):
        cluster.run(small, images[:2])
    assert "closed" in repr(cluster)
    forgotten = megrez.local()
    assert len(forgotten.parties()) == 3
    del forgotten
    gc.collect()
    assert children() == before


def test_a_program_that_forgets_to_close_leaves_nothing() -> None:
    code = "import megrez; c = megrez.local(); print(len(c.parties()))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "3\n"
    assert done.stderr == ""


def test_protocols() -> None:
    protocols = {protocol.name: protocol for protocol in megrez.protocols()}
    assert protocols["mizar"].parties == 3
    assert not protocols["mizar"].insecure
    assert protocols["clear"].insecure
    assert protocols["alkaid"].factors == 4
    assert (protocols["alkaid"].floats, protocols["meteor"].floats) == ("mizar-float", None)
    assert (protocols["mizar"].level, protocols["clear"].level) == ("semi-honest", "none")
    floats = [name for name, protocol in protocols.items() if protocol.numbers == "float32"]
    assert floats == ["secfloat", "mizar-float"]


def test_a_protocol_that_does_not_protect_has_to_be_insisted_on(small: megrez.Model, images: Array) -> None:
    with (
        megrez.local(protocol="clear", parties="thread") as cluster,
        pytest.raises(megrez.Error, match="does not protect"),
    ):
        cluster.run(small, images[:2])
    with megrez.local(protocol="clear", parties="thread", insecure=True) as cluster:
        result = cluster.run(small, images[:2])
        assert result.report.to_dict()["insecure"]
        assert np.abs(result.output - small.plain(images[:2])).max() < 5e-3
    with pytest.raises(megrez.Error, match="thread"):
        megrez.local(protocol="clear", insecure=True)


def test_stored_models(processes: megrez.Cluster, small: megrez.Model, images: Array) -> None:
    processes.upload(small, name="lenet", allow=["local"], batches=[1, 3])
    expected = small.plain(images[:4])
    for batch in (1, 3):
        result = processes.run_stored("lenet", images[:4], batch=batch)
        assert np.abs(result.output - expected).max() < 5e-3
    assert result.report.to_dict()["range"] is None
    whole = processes.run_stored("lenet", images[:3])
    assert np.abs(whole.output - expected[:3]).max() < 5e-3
    with pytest.raises(megrez.Error, match=r"np.transpose\(x, \(0, 3, 1, 2\)\)"):
        processes.run_stored("lenet", images[:4].transpose(0, 2, 3, 1), batch=1)
    with pytest.raises(megrez.Error, match=r"x.reshape\(-1, 1, 28, 28\)"):
        processes.run_stored("lenet", images[:4].reshape(4, 784), batch=1)
    with pytest.raises(megrez.Error, match="batches of 1, 3"):
        processes.run_stored("lenet", images[:4], batch=4)
    with pytest.raises(megrez.Error, match="no model `other`"):
        processes.run_stored("other", images[:4], batch=1)
    with pytest.raises(megrez.Error, match="stored already"):
        processes.upload(small, name="lenet", allow=["local"])
    with pytest.raises(megrez.Error, match="list of clients"):
        processes.upload(small, name="second", allow="local")


def test_material_is_made_ahead_and_used_up(processes: megrez.Cluster, images: Array) -> None:
    small = megrez.compile(DIGITS / "lenet.onnx", batch=2)
    processes.upload(small, name="ahead", allow=["local"])
    material = processes.prepare("ahead", batch=2)
    result = processes.run_stored("ahead", images[:2], material=material)
    assert np.abs(result.output - small.plain(images[:2])).max() < 5e-3
    assert "offline" not in result.report.to_dict()["cost"]["phases"]
    with pytest.raises(megrez.Error, match="used up"):
        processes.run_stored("ahead", images[:2], material=material)
    with pytest.raises(megrez.InvalidError, match="32 hexadecimal digits"):
        processes.run_stored("ahead", images[:2], material="5f0c")


def test_runs_take_from_a_stock_by_themselves(processes: megrez.Cluster, images: Array) -> None:
    small = megrez.compile(DIGITS / "lenet.onnx", batch=2)
    processes.upload(small, name="stocked", allow=["local"])
    assert len(processes.keep("stocked", 2, batch=2)) == 2
    assert processes.keep("stocked", 2, batch=2) == []
    expected = small.plain(images[:6])
    # The second time nothing is left for the last two of three runs.
    for rows, offline in ((2, False), (6, True)):
        result = processes.run_stored("stocked", images[:rows], batch=2)
        assert np.abs(result.output - expected[: len(result.output)]).max() < 5e-3
        assert ("offline" in result.report.to_dict()["cost"]["phases"]) == offline
    assert [one for one in processes.stored() if one.kind == "material"] == []


def test_a_text_is_continued(processes: megrez.Cluster) -> None:
    folder = DIGITS.parent / "language"
    letters = (folder / "letters.txt").read_text(encoding="utf-8")
    written: list[int] = []
    result = processes.generate(
        folder / "model.onnx",
        [letters.index(letter) for letter in "the"],
        2,
        ranges="assume",
        activations="fine",
        progress=written.append,
    )
    assert "".join(letters[token] for token in result.tokens).isascii()
    assert len(result.tokens) == len(result.costs) == 2
    assert result.costs[0]["phases"]["online"]["rounds"] > 10
    assert not result.proven
    with pytest.raises(megrez.InvalidError, match="at least one token"):
        processes.generate(folder / "model.onnx", [], 2)


def test_tokens_are_told_as_they_come_whoever_chooses_them(processes: megrez.Cluster) -> None:
    written = {}
    for choose in ("client", "parties"):
        told: list[tuple[int, float]] = []

        def tell(token: int, seconds: float, told: list[tuple[int, float]] = told) -> None:
            told.append((token, seconds))

        result = processes.generate(
            "llama-tiny",
            [17, 4, 250],
            3,
            choose=choose,
            ranges="assume",
            activations="fine",
            on_token=tell,
        )
        assert [token for token, _ in told] == result.tokens
        assert all(seconds > 0 for _, seconds in told)
        written[choose] = result.tokens
    assert written["client"] == written["parties"]
    drawn = processes.generate(
        "llama-tiny", [17, 4, 250], 2, choose="parties", temperature=30.0, ranges="assume", activations="fine"
    )
    assert len(drawn.tokens) == 2
    # Its own proposals are right, and come with the token before.
    told = []
    proposed = processes.generate(
        "llama-tiny", [17, 4, 250], 3, draft="llama-tiny", ranges="assume", activations="fine", on_token=tell
    )
    assert (proposed.tokens, len(proposed.costs)) == (written["client"], 1)
    with pytest.raises(megrez.InvalidError, match="from 0 to 100"):
        processes.generate("llama-tiny", [1], 1, temperature=-1.0, ranges="assume")
    with pytest.raises(megrez.UnsupportedError, match="64 logits"):
        processes.generate("llama-tiny", [1], 1, choose="parties", temperature=1.0, top=3, ranges="assume")
    with pytest.raises(megrez.InvalidError, match="client or parties"):
        processes.generate("llama-tiny", [1], 1, choose="nobody", ranges="assume")  # type: ignore[arg-type]


def test_a_range_that_is_taken_from_the_data_holds_it(threads: megrez.Cluster) -> None:
    source = model([node("Relu", ["x"], "y")], {"x": ["n", 2]}, "y")
    # The bound in decimals lies between two numbers: only one of them is the bound.
    x = np.array([[0.38367754, 0.9545905]], dtype=np.float32)
    compiled = megrez.compile(source, input_range=(float(x.min()), float(x.max())))
    np.testing.assert_allclose(threads.run(compiled, x).output, x, atol=1e-4)


def test_threads_store_nothing(threads: megrez.Cluster, small: megrez.Model) -> None:
    with pytest.raises(megrez.Error, match="threads keep nothing"):
        threads.upload(small, name="lenet", allow=["local"])


def test_outputs_that_only_the_recipient_finishes(threads: megrez.Cluster) -> None:
    weights = np.array([[0.5, -0.25], [1.0, 0.75]], dtype=np.float32)
    nodes = [node("Gemm", ["x", "w"], "y"), node("Softmax", ["y"], "p", axis=1)]
    source = model(nodes, {"x": ["n", 2]}, "p", w=weights)
    x = np.array([[1, 0], [0.5, -1], [0, 0.25]], dtype=np.float32)
    compiled = megrez.compile(source, batch=2)
    expected = reference(source, x=x)
    np.testing.assert_allclose(threads.run(compiled, x).output, expected, atol=1e-3)
    np.testing.assert_allclose(compiled.plain(x), expected, atol=1e-5)


def test_the_command(images: Array, tmp_path: Path) -> None:
    listing = subprocess.run(
        [sys.executable, "-m", "megrez", "protocols", "--json"], capture_output=True, text=True, check=True
    )
    names = [entry["protocol"]["name"] for entry in json.loads(listing.stdout)["protocols"]]
    assert names == [protocol.name for protocol in megrez.protocols()]
    # The demo needs no file: the command carries the digits.
    demo = [sys.executable, "-m", "megrez", "demo", "--images", "4", "--batch", "4", "--json"]
    run = subprocess.run(demo, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(run.stdout)["agree"] == 4
    assert len(images) == 360
    wrong = subprocess.run(
        [sys.executable, "-m", "megrez", "check", "--model", "no.onnx", "--input", "no.npy"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert wrong.returncode == 2
    assert "no.onnx" in wrong.stderr


def test_one_call_has_three_modes(threads: megrez.Cluster, small: megrez.Model, images: Array) -> None:
    data = images[:3]
    executed = threads.run(small, data)
    simulated = threads.run(small, data, mode="simulate")
    clear = threads.run(small, data, mode="clear")
    np.testing.assert_array_equal(clear.output, small.plain(data))
    assert (executed.report.mode, simulated.report.mode, clear.report.mode) == (
        "execute",
        "simulate",
        "clear",
    )
    for phase in ("offline", "online"):
        assert simulated.report.bytes(phase) == executed.report.bytes(phase)
        assert simulated.report.rounds(phase) == executed.report.rounds(phase)
    ((name, (largest, mean)),) = simulated.report.distances.items()
    assert name in simulated.outputs
    assert largest == pytest.approx(np.abs(simulated.output - clear.output).max(), rel=1e-5)
    assert 0 < mean < largest < 5e-3
    assert "nothing is private" in repr(simulated)
    assert "nothing was private" in simulated.report.to_html()
    assert "in the clear" in clear.report.to_html()
    assert executed.report.distances == {}
    with pytest.raises(megrez.InvalidError, match="execute, simulate or clear"):
        threads.run(small, data, mode="pretend")  # type: ignore[call-overload]


def test_costs_are_foretold(threads: megrez.Cluster, small: megrez.Model, images: Array) -> None:
    foretold = small.forecast(rows=3)
    report = threads.run(small, images[:3]).report
    assert foretold.runs == 2
    for phase in ("offline", "online"):
        assert (foretold.bytes(phase), foretold.rounds(phase)) == (report.bytes(phase), report.rounds(phase))
    assert small.forecast(net="wan").seconds() > 10 * small.forecast(net="lan").seconds() > 0
    assert foretold.to_dict()["schema"] == "megrez.forecast/1"
    assert foretold.memory_bytes is not None
    assert 1e3 < foretold.memory_bytes < 1e8
    assert "foretold" in repr(foretold)
    with pytest.raises(KeyError, match="there are"):
        foretold.bytes("input")
    with pytest.raises(megrez.InvalidError, match="one row at least"):
        small.forecast(rows=0)
    with pytest.raises(megrez.InvalidError, match="computes in float32"):
        small.forecast(protocol="secfloat")


def guarded_power() -> tuple[megrez.Model, Array]:
    """(w x)^16, whose ranges rest on data, and a row within them."""
    factors = [("x", "w", "u"), ("u", "u", "a"), ("a", "a", "b"), ("b", "b", "c"), ("c", "c", "y")]
    nodes = [node("Mul", [a, b], y) for a, b, y in factors]
    source = model(nodes, {"x": ["n", 3]}, "y", w=np.array([1.0, -1.0, 0.75], np.float32))
    seen = np.array([[1.25, -1.0, 0.5]], dtype=np.float32)
    measured = megrez.compile(source, input_range=8.0, ranges="assume").calibrate(seen)
    guarded = megrez.compile(
        source, input_range=8.0, ranges="calibrated", calibration=measured, guard=True, batch=2
    )
    return guarded, seen


def test_a_guard_gives_errors_for_wrong_numbers(threads: megrez.Cluster) -> None:
    guarded, seen = guarded_power()
    assert guarded.outputs == ["y"]
    assert len(guarded.disclosure()["opened"]) == 1
    three = np.repeat(seen, 3, axis=0)
    result = threads.run(guarded, three)
    np.testing.assert_allclose(result.output, guarded.plain(three), atol=0.02)
    assert result.report.to_dict()["range"] == "guarded"
    three[2, 1] = -6.0
    with pytest.raises(megrez.OutOfRangeError, match="calibrate on data like this"):
        threads.run(guarded, three)


def test_a_stored_model_is_guarded_too(deployment: Path) -> None:
    guarded, seen = guarded_power()
    three = np.repeat(seen, 3, axis=0)
    with megrez.connect(deployment / "cluster.toml", certs=deployment / "certs", client="bob") as bob:
        bob.upload(guarded, name="guarded", allow=["bob"], batches=[1, 2])
        np.testing.assert_allclose(
            bob.run_stored("guarded", three, batch=2).output, guarded.plain(three), atol=0.02
        )
        three[2, 1] = -6.0
        with pytest.raises(megrez.OutOfRangeError, match="calibrate on data like this"):
            bob.run_stored("guarded", three, batch=2)
