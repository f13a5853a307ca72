"""Reads every import of the package and fails on what breaks the architecture.

    python ci/check_layers.py [--graph]

* upward arrow: a module imports one of a higher layer;
* cycle: modules import each other, directly or around;
* deep import: a module reaches past the face of a package it is not in
  (`from morok.ir.uop import UOp` instead of `from morok.ir import UOp`);
* a module that no layer claims, an import of one that does not exist.

Imports inside functions count, and so do `cimport`s and `importlib.import_module("…")`.
Declarations (imports under `if TYPE_CHECKING:`, `cimport`s) count for all but cycles.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "morok"

# Bottom first. A module belongs to the entry that is the longest prefix of its name. The entries of
# one layer may import each other as long as there is no cycle.
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "morok.errors",
        "morok.float_format",
        "morok.forking",
        "morok.caches",
        "morok.config",
        "morok.cores",
        "morok.dtype",
    ),
    ("morok._core",),
    ("morok.ir",),
    ("morok.symbolic",),
    ("morok.rangeify", "morok.optimizer", "morok.codegen"),
    ("morok.renderers",),
    ("morok.runtime",),
    ("morok.engine",),
    ("morok.tensor",),
    ("morok.nn", "morok.optim", "morok.interop", "morok.capture"),
    ("morok.tools", "morok.__main__"),
    ("morok",),
)


@dataclass(frozen=True)
class Import:
    """One import statement: `module` imports `target`, entered as `spelled`."""

    module: str
    line: int
    target: str
    spelled: str
    declares: bool


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> int | None:
    """The layer that claims `module`; the bare package claims only its own face."""
    claims = [
        (len(entry), number)
        for number, layer in enumerate(LAYERS)
        for entry in layer
        if module == entry or (entry != PACKAGE and module.startswith(entry + "."))
    ]
    return max(claims)[1] if claims else None


def _is_type_checking(node: ast.If) -> bool:
    test = node.test
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


Statement = tuple[int, int, str, tuple[str, ...], bool]


def python_imports(tree: ast.AST) -> Iterator[Statement]:
    """(line, level, module, names, is a declaration) of every import below `tree`."""

    def walk(node: ast.AST, declares: bool) -> Iterator[Statement]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, 0, alias.name, (), declares
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield node.lineno, node.level, node.module or "", names, declares
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            first = node.args[0] if node.args else None
            literal = first.value if isinstance(first, ast.Constant) else None
            if called in ("import_module", "__import__") and isinstance(literal, str):
                yield node.lineno, 0, literal, (), declares
        if isinstance(node, ast.If) and _is_type_checking(node):
            for statement in node.body:
                yield from walk(statement, True)
            for statement in node.orelse:
                yield from walk(statement, declares)
            return
        for child in ast.iter_child_nodes(node):
            yield from walk(child, declares)

    yield from walk(tree, False)


_CYTHON_FROM = re.compile(r"^[ \t]*from\s+([\w.]+)\s+(c?)import\s+\(?([^#\n]*)", re.MULTILINE)
_CYTHON_IMPORT = re.compile(r"^[ \t]*(c?)import\s+([\w.]+)", re.MULTILINE)


def cython_imports(text: str) -> Iterator[Statement]:
    """The same for Cython, read line by line; names of a `from` on further lines do not matter."""
    for match in _CYTHON_FROM.finditer(text):
        module = match[1].lstrip(".")
        names = tuple(re.findall(r"(\w+)(?:\s+as\s+\w+)?\s*(?:,|$|\))", match[3]))
        line = text.count("\n", 0, match.start()) + 1
        yield line, len(match[1]) - len(module), module, names, match[2] == "c"
    for match in _CYTHON_IMPORT.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, 0, match[2], (), match[1] == "c"


class Project:
    """Every module of the package and what it imports."""

    def __init__(self, root: Path) -> None:
        paths = sorted(
            path for path in (root / PACKAGE).rglob("*") if path.suffix in (".py", ".pyx", ".pxd")
        )
        self.modules = {module_name(path, root) for path in paths}
        self.packages = {module_name(p, root) for p in paths if p.name == "__init__.py"}
        self.imports = [one for path in paths for one in self._read(path, root)]

    def _read(self, path: Path, root: Path) -> Iterator[Import]:
        module = module_name(path, root)
        text = path.read_text()
        found = python_imports(ast.parse(text)) if path.suffix == ".py" else cython_imports(text)
        for line, level, name, names, declares in found:
            if level:
                here = module.split(".") if module in self.packages else module.split(".")[:-1]
                base = here[: len(here) - level + 1]
                name = ".".join([*base, name] if name else base)
            if name.split(".")[0] != PACKAGE:
                continue
            submodules = [f"{name}.{n}" for n in names if f"{name}.{n}" in self.modules]
            if not names or len(submodules) < len(names):
                yield Import(module, line, self._known(name), name, declares)
            for target in submodules:
                yield Import(module, line, target, name, declares)

    def _known(self, name: str) -> str:
        """`name`, or the module it is an attribute of."""
        while name not in self.modules and "." in name:
            name = name.rpartition(".")[0]
        return name

    def problems(self) -> list[str]:
        found = [f"{module}: in no layer of ci/check_layers.py" for module in sorted(self.modules)
                 if layer_of(module) is None]  # fmt: skip
        for one in self.imports:
            where = f"{one.module}:{one.line}"
            if one.target == PACKAGE != one.spelled:
                found.append(f"{where}: {one.spelled} does not exist")
                continue
            mine, theirs = layer_of(one.module), layer_of(one.target)
            if mine is not None and theirs is not None and theirs > mine:
                found.append(
                    f"{where}: upward arrow, layer {mine} imports {one.target} of layer {theirs}"
                )
            face = self._face_passed(one)
            if face:
                found.append(f"{where}: deep import of {one.spelled}, take it from {face}")
        return found + [f"cycle: {' -> '.join(cycle)}" for cycle in self.cycles()]

    def _face_passed(self, one: Import) -> str | None:
        """The package whose face this import should have used, if it went past it."""
        parts = one.spelled.split(".")
        for end in range(2, len(parts)):
            package = ".".join(parts[:end])
            inside = one.module == package or one.module.startswith(package + ".")
            if package in self.packages and not inside:
                return package
        return None

    def cycles(self) -> list[list[str]]:
        """One cycle for every knot of modules that import each other."""
        edges: dict[str, set[str]] = {module: set() for module in self.modules}
        for one in self.imports:
            if one.module != one.target and not one.declares:
                edges[one.module].add(one.target)
        found: list[list[str]] = []
        done: set[str] = set()
        for start in sorted(edges):
            path: list[str] = []
            self._visit(start, edges, path, done, found)
        return found

    def _visit(
        self,
        module: str,
        edges: dict[str, set[str]],
        path: list[str],
        done: set[str],
        found: list[list[str]],
    ) -> None:
        if module in path:
            found.append([*path[path.index(module) :], module])
            return
        if module in done:
            return
        path.append(module)
        for target in sorted(edges[module]):
            self._visit(target, edges, path, done, found)
        path.pop()
        done.add(module)


def main() -> int:
    project = Project(ROOT)
    if "--graph" in sys.argv:
        for one in project.imports:
            print(f"{one.module}:{one.line} -> {one.target}")
    problems = project.problems()
    for problem in problems:
        print(problem)
    print(f"{len(project.modules)} modules, {len(project.imports)} imports, "
          f"{len(problems)} problems")  # fmt: skip
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
