"""The page of a party's operator, in a browser without a screen; skipped where there is none.

What it looked like lies in pytest's temporary folder.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import megrez
import numpy as np
import pytest
from conftest import Array
from megrez._networks import perceptron
from megrez._supervised import Supervised, write_triple

playwright: Any = pytest.importorskip(
    "playwright.sync_api", reason="Playwright is not installed: pip install -r python/requirements-test.txt"
)

BROWSERS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]
LONG = "m" * 64
"""The longest name of a model."""
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)<"
"""The name of a file that somebody has put among the models."""
SHAPES = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
READABLE = 4.5
"""The least contrast of text, by WCAG 2 at level AA."""

CONTRASTS = """() => {
  const paint = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = (color) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = color;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (c) => c.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.backgroundColor = "Canvas";
  const behind = rgb(getComputedStyle(probe).backgroundColor);
  probe.remove();
  return [...document.body.querySelectorAll("*")].filter(e => e.childElementCount == 0).map(e => {
    let shown = 1;
    for (let at = e; at; at = at.parentElement) shown *= getComputedStyle(at).opacity;
    const ink = rgb(getComputedStyle(e).color).map((v, i) => v * shown + behind[i] * (1 - shown));
    const [more, less] = [light(ink), light(behind)].sort((a, b) => b - a);
    return [(more + 0.05) / (less + 0.05), e.textContent];
  });
}"""
"""Of every text its contrast with the page behind it."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = [path for path in map(shutil.which, BROWSERS) if path is not None]
    if not found:
        pytest.skip("there is no browser: install Debian's chromium-headless-shell")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=found[0])
        yield started
        started.close()


def megrez_command(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "megrez", *arguments, "--cluster", "cluster.toml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def consoles(
    browser: Any, tmp_path_factory: pytest.TempPathFactory, small: megrez.Model, images: Array
) -> Iterator[list[str]]:
    """The pages of three parties that have something of everything."""
    assert browser.is_connected()
    folder = tmp_path_factory.mktemp("consoles")
    parties = [Supervised(config) for config in write_triple(folder, ["alice", "bob"])]
    for party in parties:
        party.wait()
    random = np.random.RandomState(0)
    rows = random.uniform(-1, 1, (32, 4)).astype(np.float32)
    kinds = (rows[:, 0] > 0).astype(np.int64)
    np.save(folder / "rows.npy", rows)
    np.save(folder / "kinds.npy", kinds)
    (folder / "model.onnx").write_bytes(perceptron([4, 2], None))
    files, certs = folder / "cluster.toml", folder / "certs"
    with megrez.connect(files, certs=certs, client="bob") as bob:
        bob.upload(small, name=LONG, allow=["alice"], batches=[1, 2, 4, 8, 16])
    owner = ["--client", "bob", "--labels", "kinds.npy", "--classes", "2", "--allow", "alice"]
    megrez_command(folder, "upload-data", "--name", "ward", "--inputs", "rows.npy", *owner)
    learn = ["--model", "model.onnx", "--data", "ward", "--epochs", "1", "--batch", "16", "--rate", "2^-5"]
    megrez_command(folder, "train", "--client", "alice", *learn, "--propose", "job")
    megrez_command(folder, "approve", "--client", "bob", "--job", "job", "--of", "ward")
    for models in folder.glob("data*/models"):
        (models / f"{HOSTILE}.model").write_bytes(b"no model")
    with megrez.connect(files, certs=certs, client="alice") as alice:
        assert (
            np.abs(alice.run_stored(LONG, images[:2], batch=2).output - small.plain(images[:2])).max() < 5e-3
        )
        alice.prepare(LONG, batch=2)
        alice.fit(megrez.compile(folder / "model.onnx", batch=16), rows, kinds, epochs=2, batch=16, rate=0.5)
        yield [f"http://{party._admin}/console" for party in parties]
    for party in parties:
        party.stop(timeout=5)


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page of a party that nobody has asked for anything."""
    party = Supervised(write_triple(tmp_path_factory.mktemp("lonely"), ["alice"])[0])
    party.wait()
    yield f"http://{party._admin}/console"
    party.stop(timeout=5)


def look(browser: Any, address: str, picture: Path, width: int, scheme: str) -> dict[str, list[str]]:
    """The words of the page below each of its headings; the page is as a page should be."""
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url))
    answer = page.goto(address)
    assert answer.status == 200
    page.screenshot(path=picture, full_page=True)
    assert set(asked) == {address}, "nothing is loaded"
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("script, img, link, iframe, form").count() == 0
    # Each table is moved by itself where it is wider than the page; on a screen none is.
    hidden = page.eval_on_selector_all(
        ".wide", "all => all.filter(e => e.scrollWidth > e.clientWidth).length"
    )
    assert hidden <= (0 if width > 1000 else 1)
    faint = [(ratio, text) for ratio, text in page.evaluate(CONTRASTS) if ratio < READABLE]
    assert faint == []
    dark = page.evaluate("getComputedStyle(document.body).color") == "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    parts = "all => all.map(h => [h.textContent, h.nextElementSibling.innerText.split(/[\\t\\n]+/)])"
    sections = dict(page.eval_on_selector_all("h1, h2", parts))
    sections["figures"] = page.locator("dl").inner_text().split("\n")
    context.close()
    return {heading: [word for word in words if word.strip()] for heading, words in sections.items()}


@pytest.mark.parametrize(("width", "scheme"), SHAPES)
def test_the_console_shows_everything_that_a_party_keeps(
    browser: Any, consoles: list[str], tmp_path: Path, width: int, scheme: str
) -> None:
    for party, address in enumerate(consoles):
        shown = look(browser, address, tmp_path / f"party{party}.png", width, scheme)
        assert "wire version" in shown[f"Party {party} of 3"][0]
        figures = dict(zip(shown["figures"][::2], shown["figures"][1::2], strict=True))
        assert {"sessions", "waiting", "connections", "requests a minute"} <= figures.keys()
        assert float(figures["requests a minute"]) > 0
        assert figures["certificate, left"] in ("364 days", "365 days")
        assert shown["Clients"][:4] == ["client", "connections", "sessions", "waiting"]
        assert shown["Clients"][4:6] == ["alice", "1"]
        assert {"upload", "prepare", "run", "train", "approve"} <= set(shown["Requests"])
        others = [f"party {other}" for other in range(3) if other != party]
        assert set(others) & set(shown["Sent to other parties"])
        assert {HOSTILE, "unreadable", LONG, "bob", "mizar", "1, 2, 4, 8, 16", "ward"} <= set(
            shown["Stored models and rows"]
        )
        assert shown["Randomness made ahead"][:3] == ["batches", "size", "1"]
        assert {"alice", "done", "2 of 2"} <= set(shown["Training jobs"])
        assert shown["Approvals of jobs that have not begun"][-2:] == ["bob", "ward"]


@pytest.mark.parametrize(("width", "scheme"), SHAPES)
def test_a_party_that_nobody_has_asked_says_so(
    browser: Any, lonely: str, tmp_path: Path, width: int, scheme: str
) -> None:
    shown = look(browser, lonely, tmp_path / "party0.png", width, scheme)
    del shown["figures"], shown["Party 0 of 3"]
    said = [words for [words] in shown.values()]
    assert said == [
        "no client is connected",
        "nothing has been asked yet",
        "nothing yet",
        "nothing is stored",
        "none",
        "no job has begun here",
        "none",
    ]
