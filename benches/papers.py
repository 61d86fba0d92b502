"""Runs the papers' tables and says which claims of their abstracts hold here.

    make paper-tables                                     # target/papers: index.html, papers.json
    .venv/bin/python benches/papers.py --output papers --tables alkaid-5 truncation-1
    .venv/bin/python benches/papers.py --from papers/papers.json --docs docs/papers.md

With `--from`, what has run is taken from there, and only the tables that are named run again.

Every table is run by `megrez bench table NAME --quick`, for `--limit` seconds at most. A claim is judged by
the figures of these tables only: it holds, it does not, or it was not measured, and then why.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ABOUT = """
What the abstracts of the five papers claim, in our words, and what was measured here. `make paper-tables`
runs every table of `megrez bench table`, writes them with the papers' figures beside ours into
`target/papers/index.html`, and prints this list; `benches/papers.py --docs` writes it as this page. A
claim that compares with a system that does not run here is judged by that system's printed figures where
these are bytes, and not at all where they are seconds.
"""

ROOT = Path(__file__).resolve().parents[1]

Report = dict[str, Any]
Reports = dict[str, Report]
Judged = tuple[str, str]
"""What was found, and whether the claim holds."""

HOLDS, IN_PART, FAILS = "holds", "in part", "does not hold"
UNKNOWN = "not measured"

LARGE = {"mizar-5"}
"""Tables whose large rows run too: claims compare with them."""


class Claim(NamedTuple):
    """A claim of an abstract, in our words."""

    paper: str
    text: str
    tables: list[str]
    judge: Callable[[Reports], Judged | None] | None
    """None where a table that it needs has not run."""
    why_not: str = ""
    """Why it cannot be judged, if there is nothing to judge it by."""


def names(megrez: str) -> list[str]:
    """The tables that the command has."""
    said = subprocess.run([megrez, "bench", "table", "--help"], capture_output=True, text=True, check=True)
    found = re.search(r"possible values: ([^\]]+)\]", said.stdout)
    if not found:
        sys.exit("`megrez bench table --help` names no tables")
    return [name.strip() for name in found[1].split(",")]


def run(megrez: str, name: str, limit: float) -> Report:
    """A table's report, or why there is none."""
    command = [megrez, "--json", "bench", "table", name, "--quick", *(["--large"] if name in LARGE else [])]
    print("+", " ".join(command), file=sys.stderr, flush=True)
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"table": name, "error": f"not done after {limit:.0f} s"}
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"table": name, "error": ran.stderr.strip()[-300:]}


def figure(
    report: Report, row: str, system: str, column: str, whose: str, net: str | None = None
) -> float | None:
    """The figure of a row that is `ours` or the `paper`'s, if there is one."""
    for line in report.get("rows", []):
        if (line["row"], line["system"]) == (row, system):
            for found in line["figures"]:
                if (found["column"], found["net"]) == (column, net) and found[whose] is not None:
                    return float(found[whose])
    return None


def ours(report: Report, row: str, system: str, column: str, net: str | None = None) -> float | None:
    """What was measured."""
    return figure(report, row, system, column, "ours", net)


def printed(report: Report, row: str, system: str, column: str) -> float | None:
    """What the paper prints."""
    return figure(report, row, system, column, "paper")


def labels(report: Report) -> list[str]:
    """The rows' names, each once."""
    return list(dict.fromkeys(line["row"] for line in report.get("rows", [])))


def ratios(
    report: Report, systems: tuple[str, str], column: str, nets: tuple[str | None, ...]
) -> Iterator[float]:
    """The first system's figure over the second's, both measured, of all rows that have both."""
    for row in labels(report):
        for net in nets:
            one, other = (ours(report, row, system, column, net) for system in systems)
            if one and other:
                yield one / other


def over_tables(
    reports: Reports, tables: tuple[str, ...], systems: tuple[str, str], column: str, net: str | None
) -> list[float]:
    """Those of several tables, on one network."""
    return [ratio for table in tables for ratio in ratios(reports[table], systems, column, (net,))]


def between(values: list[float]) -> str:
    """The smallest and the largest, as factors."""
    return f"{min(values):.2g} to {max(values):.2g} times"


def mizar_bytes(reports: Reports) -> Judged | None:
    """Bytes online beside those of Aegis."""
    values = list(ratios(reports["mizar-5"], ("MIZAR", "Aegis"), "online MiB", (None,)))
    if not values:
        return None
    fewer = 100 * (1 - min(values))
    return f"{fewer:.0f}% fewer, both measured", HOLDS if fewer >= 49 else IN_PART


def mizar_time(reports: Reports) -> Judged | None:
    """Seconds online beside P-FALCON's, on both networks."""
    values = [
        ratio
        for table in ("mizar-5", "mizar-6", "mizar-7")
        for ratio in ratios(reports[table], ("P-FALCON", "MIZAR"), "online s", ("lan", "wan"))
    ]
    if not values:
        return None
    verdict = HOLDS if min(values) >= 1.5 else IN_PART if max(values) >= 1.5 else FAILS
    found = f"{between(values)} as fast as P-FALCON online, whose bits are packed here, both on processors"
    return found, verdict


def truncation_time(reports: Reports) -> Judged | None:
    """Seconds online of the improved Bicoptor beside P-Falcon's."""
    values = list(ratios(reports["truncation-3"], ("P-Falcon", "improved Bicoptor"), "s", ("lan1",)))
    if not values:
        return None
    found = f"the paper compares 8 bits; on 30, {between(values)} as fast as P-Falcon online (processors)"
    return found, UNKNOWN


def alkaid_time(reports: Reports) -> Judged | None:
    """Seconds online beside ABY3's, on the WAN."""
    values = over_tables(reports, ("alkaid-5", "alkaid-6"), ("ABY3", "ALKAID"), "online ms", "wan")
    if not values:
        return None
    verdict = HOLDS if min(values) >= 1.5 else IN_PART if max(values) >= 1.5 else FAILS
    return f"{between(values)} faster than ABY3 online on the WAN, both measured", verdict


def alkaid_bytes(reports: Reports) -> Judged | None:
    """Bytes online beside ABY3's."""
    values = over_tables(reports, ("alkaid-5", "alkaid-6"), ("ABY3", "ALKAID"), "online KB", None)
    if not values:
        return None
    verdict = HOLDS if min(values) >= 0.9 else IN_PART if max(values) >= 1 else FAILS
    return f"ABY3 sends {between(values)} its bytes online, both measured", verdict


def meteor_bytes(reports: Reports) -> Judged | None:
    """Bytes online beside FALCON's printed ones."""
    values = []
    for table in ("meteor-4", "meteor-5"):
        for row in labels(reports[table]):
            falcon = printed(reports[table], row, "FALCON", "online MB")
            meteor = ours(reports[table], row, "METEOR", "online MB")
            if falcon and meteor:
                values.append(falcon / meteor)
    if not values:
        return None
    return f"FALCON's printed bytes are {between(values)} ours", HOLDS if max(values) >= 1.5 else FAILS


def meteor_time(reports: Reports) -> Judged | None:
    """Seconds online beside those of FALCON's comparison, which runs here as Piranha has it."""
    fastest, values = {}, []
    for net in ("lan", "wan"):
        systems = ("P-FALCON", "METEOR")
        of_net = over_tables(reports, ("meteor-4", "meteor-5"), systems, "online s", net)
        if not of_net:
            return None
        fastest[net] = max(of_net)
        values.append(f"{between(of_net)} on {net}")
    found = f"{', '.join(values)}, as fast as P-FALCON with random masks, both measured"
    if fastest["lan"] >= 1.5 and fastest["wan"] >= 2.1:
        return found, HOLDS
    return found, IN_PART if max(fastest.values()) > 1 else FAILS


def few_bits(reports: Reports) -> Judged | None:
    """Bits and rounds of a ReLU on seven bits."""
    row = ("7 bits", "improved Bicoptor")
    bits = ours(reports["truncation-1"], *row, "bits")
    rounds = ours(reports["truncation-1"], *row, "rounds")
    if bits is None or rounds is None:
        return None
    return f"{bits:.0f} bits, {rounds:.0f} rounds", HOLDS if bits <= 704 and rounds <= 2 else FAILS


def secfloat_precision(reports: Reports) -> Judged | None:
    """The largest error of the inputs on which others fail."""
    errors = [
        value
        for row in labels(reports["secfloat-5"])
        if (value := ours(reports["secfloat-5"], row, "SECFLOAT", "ULP")) is not None
    ]
    if not errors:
        return None
    return f"at most {max(errors):.2f} ULP where ABY-F has millions", HOLDS if max(errors) < 1 else FAILS


def secfloat_bytes(reports: Reports) -> Judged | None:
    """Bytes beside the printed ones of MP-SPDZ and ABY-F."""
    values = []
    for row in labels(reports["secfloat-2"]):
        mine = ours(reports["secfloat-2"], row, "SECFLOAT", "KiB")
        for system in ("ABY-F", "MP-SPDZ"):
            theirs = printed(reports["secfloat-2"], row, system, "KiB")
            if mine and theirs:
                values.append(theirs / mine)
    if not values:
        return None
    return f"printed bytes of the others are {between(values)} ours", HOLDS if max(values) >= 100 else IN_PART


def random_masks(reports: Reports) -> Judged | None:
    """Accuracy with a constant in place of a mask, and with a mask."""
    found = {
        (row["row"], row["system"]): row["figures"][0]["ours"]
        for row in reports["truncation-2"].get("rows", [])
        if row["figures"][0]["ours"] is not None
    }
    pairs = [
        (found[row, "constant r"], value) for (row, system), value in found.items() if system == "random r"
    ]
    if not pairs:
        return None
    lost = [value < kept / 2 for kept, value in pairs]
    verdict = HOLDS if all(lost) else IN_PART if any(lost) else FAILS
    shown = " and ".join(f"{kept:.0f}% become {value:.0f}%" for kept, value in pairs)
    return f"{shown}, of ten classes", verdict


def secfloat_inference(reports: Reports) -> Judged | None:
    """The relevance network, bit for bit."""
    rows = [r for r in reports["secfloat-4"].get("rows", []) if r["verified"] is not None]
    bytes_ = ours(reports["secfloat-4"], "inference 1", "SECFLOAT", "GB")
    if not rows or bytes_ is None:
        return None
    verdict = HOLDS if all(row["verified"] for row in rows) else FAILS
    return f"equal to single precision bit for bit, {bytes_:.2g} GB (4.7 printed)", verdict


CLAIMS = [
    Claim(
        "MIZAR",
        "The list from an upper bound of prefix sums halves the bytes of a sign bit online, against Aegis.",
        ["mizar-5"],
        mizar_bytes,
    ),
    Claim(
        "MIZAR",
        "Sign bits are 2 to 2.5 times faster than those of GPU solutions, functions and networks 1.5 to 3.5.",
        ["mizar-5", "mizar-6", "mizar-7"],
        mizar_time,
    ),
    Claim(
        "MIZAR",
        "10 to 50% less memory on GPUs.",
        ["mizar-8"],
        None,
        "on processors P-FALCON takes less; on GPUs a fused step takes 44% or less of an unfused one",
    ),
    Claim(
        "ALKAID",
        "Conversions, most significant bits and functions are 1.5 to 2.5 times as efficient as before.",
        ["alkaid-5", "alkaid-6"],
        alkaid_time,
    ),
    Claim("ALKAID", "… with better or comparable communication.", ["alkaid-5", "alkaid-6"], alkaid_bytes),
    Claim(
        "METEOR",
        "Up to 1.5 times fewer bytes online than FALCON.",
        ["meteor-4", "meteor-5"],
        meteor_bytes,
    ),
    Claim(
        "METEOR",
        "Up to 1.5 (LAN) and 2.1 (WAN) times faster online than FALCON.",
        ["meteor-4", "meteor-5"],
        meteor_time,
    ),
    Claim(
        "Probabilistic truncation",
        "A ReLU on seven bits takes 2 rounds and 704 bits on the ring of 64 bits.",
        ["truncation-1"],
        few_bits,
    ),
    Claim(
        "Probabilistic truncation",
        "Parameters that others recommend give low accuracy once masks are random.",
        ["truncation-2"],
        random_masks,
    ),
    Claim(
        "Probabilistic truncation",
        "Inference 3 to 4 times faster on GPUs.",
        ["truncation-3"],
        truncation_time,
    ),
    Claim("SECFLOAT", "Up to six orders of magnitude more precise.", ["secfloat-5"], secfloat_precision),
    Claim("SECFLOAT", "Up to two orders of magnitude more efficient.", ["secfloat-2"], secfloat_bytes),
    Claim("SECFLOAT", "Accurate inference where fixed point fails.", ["secfloat-4"], secfloat_inference),
]


def judged(reports: Reports) -> list[tuple[Claim, str, str]]:
    """Every claim with what was found and a word on whether it holds."""
    made = []
    for claim in CLAIMS:
        ran = all("rows" in reports.get(table, {}) for table in claim.tables)
        found = claim.judge(reports) if claim.judge and ran else None
        if found:
            made.append((claim, *found))
        else:
            made.append((claim, claim.why_not or "the tables did not run to their end", UNKNOWN))
    return made


def cell(figure: dict[str, Any]) -> str:
    """The paper's figure, ours, and the ratio where both are there."""
    paper, here = figure["paper"], figure["ours"]
    shown = [f"{value:.4g}" if value is not None else "–" for value in (paper, here)]
    ratio = f" <small>×{here / paper:.2g}</small>" if paper and here is not None else ""
    return f"<td>{shown[0]}</td><td>{shown[1]}{ratio}</td>"


def page(reports: Reports) -> str:
    """All tables and claims as one page."""
    out = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>The papers' tables</title>",
        "<style>body{font:15px system-ui;max-width:75rem;margin:2rem auto;padding:0 1rem}",
        "table{border-collapse:collapse;margin:1rem 0}td,th{border:1px solid #ccc;padding:.2rem .6rem}",
        "td{text-align:right}td:nth-child(-n+2){text-align:left}small{color:#666}</style>",
        "<h1>The papers' tables</h1>",
        "<p>Of every figure the paper's, then ours, with ours over the paper's.</p>",
        "<h2>Claims</h2><table><tr><th>paper<th>claim<th>found<th></tr>",
    ]
    for claim, found, verdict in judged(reports):
        cells = (claim.paper, claim.text, found, verdict)
        out.append("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in cells) + "</tr>")
    out.append("</table>")
    for name, report in reports.items():
        out.append(f"<h2 id={name}>{html.escape(report.get('title', name))}</h2>")
        if "rows" not in report:
            out.append(f"<p>{html.escape(report['error'])}</p>")
            continue
        out.append(f"<p>{html.escape(report['counts'])}</p><table><tr><th><th>")
        for figure in report["rows"][0]["figures"] if report["rows"] else []:
            out.append(
                f"<th colspan=2>{html.escape(' '.join(filter(None, (figure['column'], figure['net']))))}"
            )
        out.append("</tr>")
        for row in report["rows"]:
            wrong = " <strong>WRONG RESULT</strong>" if row["verified"] is False else ""
            out.append(f"<tr><td>{html.escape(row['row'])}<td>{html.escape(row['system'])}{wrong}</td>")
            out.extend(cell(figure) for figure in row["figures"])
            out.append("</tr>")
        out.append("</table>")
        if report["left_out"]:
            out.append(f"<p>Left out: {html.escape('; '.join(report['left_out']))}.</p>")
    return "".join(out) + "</html>\n"


def markdown(reports: Reports) -> str:
    """The claims as a page of the documentation."""
    out = [
        "# The papers' claims",
        "",
        textwrap.fill(" ".join(ABOUT.split()), 120),
        "",
        "| paper | claim | found | | tables |",
        "| --- | --- | --- | --- | --- |",
    ]
    for claim, found, verdict in judged(reports):
        tables = ", ".join(f"`{table}`" for table in claim.tables)
        out.append(f"| {claim.paper} | {claim.text} | {found} | {verdict} | {tables} |")
    return "\n".join(out) + "\n"


def main() -> None:
    """Run, judge, write."""
    parser = argparse.ArgumentParser(description="Run the papers' tables and judge their claims.")
    parser.add_argument("--megrez", default=str(ROOT / ".venv" / "bin" / "megrez"))
    parser.add_argument("--output", type=Path, default=ROOT / "target" / "papers")
    parser.add_argument("--tables", nargs="+", help="only these")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a table")
    parser.add_argument("--from", dest="made", type=Path, help="what has run before")
    parser.add_argument("--docs", type=Path, help="write the claims as Markdown, too")
    options = parser.parse_args()
    known = names(options.megrez)
    unknown = set(options.tables or []) - set(known)
    if unknown:
        sys.exit(f"no such table: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    reports: Reports = json.loads(options.made.read_text()) if options.made else {}
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.tables or ([] if options.made else known):
        reports[name] = run(options.megrez, name, options.limit)
        (options.output / "papers.json").write_text(json.dumps(reports, indent=1) + "\n")
    (options.output / "index.html").write_text(page(reports))
    for claim, found, verdict in judged(reports):
        print(f"{verdict:14} {claim.paper}: {claim.text} {found}.")
    if options.docs:
        options.docs.write_text(markdown(reports))


if __name__ == "__main__":
    main()
