"""`python -m morok bestiary [FILE]`: the page of all ops, from the op table.

Without FILE it is printed. With FILE, and `--check`, the exit status says whether FILE is up to
date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from morok.ir import OPS, Category, Ops, OpSpec
from morok.tools.examples import example

_DTYPES = {
    "given": "as constructed",
    "src0": "that of the first source",
    "src1": "that of the second source",
    "bool": "bool, as many lanes as the sources",
    "index": "index",
    "void": "void",
    "element": "the element of the buffer",
    "scalar": "scalar",
    "vector": "a vector of the sources' dtype",
}
_HEAD = """# The ops

Generated from the op table (`morok/ir/optable.py`) by `python -m morok bestiary docs/bestiary.md`;
`ci/lint` checks that it is up to date. A field is a property of the node by that name; `*name`
takes any number of sources, `[name]` may be absent. Every tree is the printed form of a node that
the tests build, print and parse back.
"""


def _fields(spec: OpSpec) -> Iterator[str]:
    start = spec.range_end
    for position, source in enumerate(spec.sources):
        ended = start is not None and position >= start
        yield f"- source `{source}`" + (": the loops that end here" if ended else "")
    for name in spec.args:
        yield f"- argument `{name}`"
    yield f"- dtype: {_DTYPES[spec.dtype_kind]}"
    notes = [
        text
        for flag, text in (
            (spec.expandable, "an UNROLL source spreads through it"),
            (spec.commutative, "commutative"),
            (spec.inherits_ended, "ends what its later sources end"),
        )
        if flag
    ]
    if notes:
        yield f"- {'; '.join(notes)}"


def _section(op: Ops) -> Iterator[str]:
    spec = OPS[op]
    arguments = ", ".join([*map(str, spec.sources), *spec.args])
    yield f"### {op.name}"
    yield ""
    yield f"`{op.name}({arguments})` {spec.doc}"
    yield ""
    yield from _fields(spec)
    yield ""
    yield "```"
    yield example(op).tree(ids=False)
    yield "```"
    yield ""


def page() -> str:
    """The whole page."""
    lines = [_HEAD]
    for category in Category:
        lines += [f"## {category.value[0].upper()}{category.value[1:]}", ""]
        for op, spec in OPS.items():
            if spec.category is category:
                lines += _section(op)
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    """Prints, writes or checks the page."""
    check = "--check" in arguments
    files = [a for a in arguments if a != "--check"]
    if not files:
        print(page(), end="")
        return 0
    path = Path(files[0])
    if not check:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page())
        return 0
    if path.exists() and path.read_text() == page():
        return 0
    print(f"{path} is not what the op table says: python -m morok bestiary {path}", file=sys.stderr)
    return 1
