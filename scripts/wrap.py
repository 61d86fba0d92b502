"""Wrap comments of Rust at 100 columns and prose of Markdown at 120: `python scripts/wrap.py [--check]`.

Only paragraphs with a line that is too long, or with code that goes on in the next line, are touched; tables,
code and aligned lines are left as they are. With `--check` nothing is written, and it fails if something
would be.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("benches", "crates", "deploy", "docs", "examples", "fuzz", "notebooks", "python", "scripts")
COMMENT = re.compile(r"^(\s*)(///|//!|//)( ?)(.*)$")
ITEM = re.compile(r"^(\s*)([-*+]|\d+\.) +")
# Words, with code that holds blanks in one piece.
WORD = re.compile(r"(?:`[^`]*`|[^\s`]|`)+")
# What would mean something else at the beginning of a line.
MARKUP = re.compile(r"^([-*+>|=#]|\d+[.)]$|```|:$)")


def fill(words: list[str], first: str, rest: str, width: int) -> list[str]:
    """Lines of these words: as many to a line as fit, none that begins with what would be markup."""
    lines, line = [], first + words[0]
    for at, word in enumerate(words[1:], 1):
        following = words[at + 1] if at + 1 < len(words) else ""
        # A word goes with one that must not begin a line.
        needed = len(word) + (1 + len(following) if MARKUP.match(following) else 0)
        if len(line) + 1 + needed > width and not MARKUP.match(word):
            lines.append(line)
            line = rest + word
        else:
            line += " " + word
    return [*lines, line]


def verbatim(text: str) -> bool:
    """A line whose form means something: a heading, a table, a quotation, columns, the target of a link."""
    stripped = text.strip()
    return bool(
        re.match(r"[#|>!<$]|\[[^]]+\]:|```|~~~|---", stripped)
        or re.search(r"\S {2,}\S", stripped)
        or re.match(r"\s{4,}", text)
    )


def wrapped(texts: list[str], margin: int, width: int) -> list[str]:
    """Text in lines, whose left margin is so many columns wide, with its long paragraphs wrapped."""
    out: list[str] = []
    paragraph: list[str] = []
    fenced = False

    def flush() -> None:
        if not paragraph:
            return
        if all(margin + len(line) <= width and line.count("`") % 2 == 0 for line in paragraph):
            out.extend(paragraph)
        else:
            item = ITEM.match(paragraph[0])
            first = item[0] if item else re.match(r"\s*", paragraph[0])[0]  # type: ignore[index]
            text = " ".join([paragraph[0][len(first) :], *(line.strip() for line in paragraph[1:])])
            words = WORD.findall(text)
            out.extend(fill(words, first, " " * len(first), width - margin))
        paragraph.clear()

    for text in texts:
        fence = bool(re.match(r"\s*(```|~~~)", text))
        if fenced or fence or not text.strip():
            flush()
            out.append(text)
            fenced ^= fence
        elif ITEM.match(text):
            flush()
            paragraph.append(text)
        elif verbatim(text) and not (paragraph and ITEM.match(paragraph[0]) and re.match(r"\s+\S", text)):
            flush()
            out.append(text)
        else:
            paragraph.append(text)
    flush()
    return out


def rust(text: str) -> str:
    """A file of Rust with its comments wrapped."""
    out: list[str] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        match = COMMENT.match(lines[at])
        if not match:
            out.append(lines[at])
            at += 1
            continue
        indent, marker = match[1], match[2]
        block = []
        while at < len(lines) and (m := COMMENT.match(lines[at])) and (m[1], m[2]) == (indent, marker):
            block.append(m[4])
            at += 1
        head = f"{indent}{marker} "
        out += [(head + line).rstrip() for line in wrapped(block, len(head), 100)]
    return "\n".join(out)


def markdown(text: str) -> str:
    """A page with its prose wrapped."""
    return "\n".join(wrapped(text.split("\n"), 0, 120))


def changed() -> Iterator[tuple[Path, str]]:
    """The files that are not as they should be, and what they should be."""
    inside = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.*")))
    for path in [*sorted(ROOT.glob("*.md")), *inside]:
        if path.suffix not in (".rs", ".md") or "target" in path.parts[len(ROOT.parts) :]:
            continue
        text = path.read_text()
        want = (rust if path.suffix == ".rs" else markdown)(text)
        if want != text:
            yield path, want


def main() -> int:
    """Wrap all files, or say which are not wrapped."""
    check = "--check" in sys.argv[1:]
    found = list(changed())
    for path, want in found:
        if check:
            print(f"{path.relative_to(ROOT)}: long lines; run `python scripts/wrap.py`")
        else:
            path.write_text(want)
    return int(check and bool(found))


if __name__ == "__main__":
    sys.exit(main())
