"""An example of every op: built, checked, printed, parsed, pickled; the generated page."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from morok.ir import OPS, Ops, UOp, check_node, parse
from morok.tools.bestiary import main, page
from morok.tools.examples import example


@pytest.mark.parametrize("op", list(OPS), ids=lambda op: op.name)
def test_every_op_has_an_example_that_survives_text_and_pickle(op: Ops) -> None:
    node = example(op)
    assert node.op is op
    for part in node.toposort():
        assert check_node(part) is part
    assert parse(node.tree()) is node
    assert pickle.loads(pickle.dumps(node)) is node
    names = {"UOp": UOp}
    exec(node.pyrender(), names)
    assert names["root"] is node


def test_the_page_names_every_op_and_is_up_to_date(tmp_path: Path) -> None:
    text = page()
    assert all(f"### {op.name}\n" in text for op in OPS)
    here = Path(__file__).resolve().parents[2] / "docs" / "bestiary.md"
    assert main(["--check", str(here)]) == 0
    stale = tmp_path / "bestiary.md"
    stale.write_text(text + "more\n")
    assert main(["--check", str(stale)]) == 1
    assert main([str(stale)]) == 0
    assert stale.read_text() == text
