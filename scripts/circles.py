"""Find circles of imports among the files of each crate: list them, and fail if there are any.

An arrow goes from a file to the file that defines a name which it takes: by `use`, or by a path in its
code. Names that a module passes on count where they are defined; `mod` lines and tests do not count.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFINED = re.compile(
    r"^(?:pub(?:\([^)]*\))? )?(?:unsafe |const |async |extern \"C\" )*"
    r"(?:fn|struct|enum|union|trait|type|const|static|macro_rules!) (?:mut )?(\w+)",
    re.M,
)
USE = re.compile(r"^\s*(pub(?:\([^)]*\))? )?use ([^;]+);", re.M)
PATH = re.compile(r"\b(?:\w+::)+\w+")
Module = tuple[str, ...]


def code_of(path: Path) -> str:
    """The code of a file without comments, strings' contents and what only tests see."""
    text = path.read_text()
    text = re.split(r"^#\[cfg\((?:all\()?test", text, flags=re.M)[0] + "".join(
        part for part in re.findall(r"^#\[cfg\(test\)\]\s*\nmod \w+;\n([\s\S]*)", text, flags=re.M)[:1]
    )
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)


def leaves(tree: str) -> list[tuple[str, str]]:
    """The paths of a `use` tree, each with the name that it gets."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        path, _, name = tree.partition(" as ")
        path = path.strip().removesuffix("::self")
        return [(path, name.strip() or path.rsplit("::", 1)[-1])]
    head, depth, start, found = tree[:brace], 0, brace + 1, []
    for at in range(brace, len(tree)):
        depth += (tree[at] == "{") - (tree[at] == "}")
        if (depth == 1 and tree[at] == ",") or depth == 0:
            if part := tree[start:at].strip():
                found += leaves(head + part)
            start = at + 1
        if depth == 0:
            break
    return found


class Crate:
    """The files of a crate by their modules, and what each defines and passes on."""

    def __init__(self, folder: Path) -> None:
        source = folder / "src"
        self.files: dict[Module, Path] = {}
        for path in sorted(source.rglob("*.rs")):
            parts = path.relative_to(source).with_suffix("").parts
            if any("tests" in part for part in parts) or parts[-1] == "main":
                continue
            self.files[tuple(p for p in parts if p not in ("lib", "mod"))] = path
        self.code = {module: code_of(path) for module, path in self.files.items()}
        self.defined = {module: set(DEFINED.findall(code)) for module, code in self.code.items()}
        self.taken: dict[Module, dict[str, Module]] = defaultdict(dict)
        self.all_of: dict[Module, list[Module]] = defaultdict(list)
        for module, code in self.code.items():
            for match in USE.finditer(code):
                for path, name in leaves(match[2]):
                    if (target := self.absolute(module, path)) is None:
                        continue
                    if name == "*":
                        self.all_of[module].append(target[:-1])
                    else:
                        self.taken[module][name] = target

    def absolute(self, module: Module, path: str) -> Module | None:
        """A path as seen from a module, from the crate's root; none if it leads to another crate."""
        parts = path.split("::")
        if parts[0] == "crate":
            return tuple(parts[1:])
        if parts[0] == "self":
            return module + tuple(parts[1:])
        if parts[0] == "super":
            while parts and parts[0] == "super":
                module, parts = module[:-1], parts[1:]
            return module + tuple(parts)
        if (*module, parts[0]) in self.files:
            return module + tuple(parts)
        return None

    def home(self, path: Module, steps: int = 8) -> Module | None:
        """The module whose file defines what a path names."""
        if path in self.files or not path or not steps:
            return None
        module, name = path[:-1], path[-1]
        if module not in self.files:
            # A variant or an associated name: what counts is the type.
            via = self.taken.get(module[:-1], {}).get(module[-1]) if module else None
            return self.home(module if via is None else (*via, name), steps - 1)
        if name in self.defined[module]:
            return module
        via = self.taken[module].get(name, path)
        others = [via] if via != path else [(*other, name) for other in self.all_of[module]]
        homes = (self.home(other, steps - 1) for other in others)
        return next((home for home in homes if home is not None), None)

    def arrows(self) -> dict[Module, dict[Module, set[str]]]:
        """For each file the files from which it takes names, and the names."""
        found: dict[Module, dict[Module, set[str]]] = defaultdict(lambda: defaultdict(set))
        for module, code in self.code.items():
            body = re.sub(r"^\s*(?:pub(?:\([^)]*\))? )?mod \w+;", "", USE.sub("", code), flags=re.M)
            taken = self.taken[module].items()
            wanted = [target for name, target in taken if re.search(rf"\b{name}\b", body)]
            for path in PATH.findall(body):
                first, _, rest = path.partition("::")
                if first in self.taken[module]:
                    wanted.append(self.taken[module][first] + tuple(rest.split("::")))
                elif (target := self.absolute(module, path)) is not None:
                    wanted.append(target)
            for target in wanted:
                home = self.home(target)
                if home is not None and home != module:
                    found[module][home].add(target[-1])
        return found


def circles(arrows: dict[Module, dict[Module, set[str]]]) -> list[list[Module]]:
    """Sets of files each of which leads to each other of them (Tarjan)."""
    number: dict[Module, int] = {}
    low: dict[Module, int] = {}
    stack: list[Module] = []
    found = []

    def visit(at: Module) -> None:
        number[at] = low[at] = len(number)
        stack.append(at)
        for to in arrows.get(at, {}):
            if to not in number:
                visit(to)
                low[at] = min(low[at], low[to])
            elif to in stack:
                low[at] = min(low[at], number[to])
        if low[at] == number[at]:
            part = stack[stack.index(at) :]
            del stack[stack.index(at) :]
            if len(part) > 1:
                found.append(sorted(part))

    for module in list(arrows):
        if module not in number:
            visit(module)
    return found


def main() -> int:
    """Print every circle of every crate with the names that tie it."""
    count = 0
    for folder in sorted((ROOT / "crates").iterdir()):
        crate = Crate(folder)
        arrows = crate.arrows()
        for circle in circles(arrows):
            count += 1
            print(f"{folder.name}: a circle of {len(circle)} files")
            for module in circle:
                for to, names in sorted(arrows[module].items()):
                    if to in circle:
                        here, there = (crate.files[m].relative_to(folder / "src") for m in (module, to))
                        print(f"  {here} takes from {there}: {', '.join(sorted(names))}")
    print(f"{count} circles of imports")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
