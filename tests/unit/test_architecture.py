"""The script that guards the architecture (`ci/lint` runs it) finds what it should."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def layers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_layers", ROOT / "ci/check_layers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_layers"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def problems(layers: ModuleType, root: Path, files: dict[str, str]) -> list[str]:
    for name, text in {"morok/__init__.py": "", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found: list[str] = layers.Project(root).problems()
    return found


IR = {
    "morok/ir/__init__.py": "from morok.ir.uop import UOp\n",
    "morok/ir/uop.py": "class UOp: ...\n",
}


def test_downwards_by_the_face_is_fine(layers: ModuleType, tmp_path: Path) -> None:
    user = "from morok.ir import UOp\nfrom morok.ir import uop\nimport numpy\n"
    assert problems(layers, tmp_path, {**IR, "morok/engine.py": user}) == []


@pytest.mark.parametrize(
    "text",
    [
        "import morok.engine\n",
        "from morok import engine\n",
        "from ..engine import x\n",
        "def f():\n    from morok.engine import x\n",
        "import importlib\nimportlib.import_module('morok.engine')\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from morok.engine import x\n",
    ],
)
def test_upward(layers: ModuleType, tmp_path: Path, text: str) -> None:
    files = {"morok/engine.py": "", "morok/ir/__init__.py": "", "morok/ir/a.py": text}
    (found,) = problems(layers, tmp_path, files)
    assert "morok.ir.a:" in found
    assert "upward arrow, layer 2 imports morok.engine of layer 7" in found


def test_the_face_of_all_is_above_all(layers: ModuleType, tmp_path: Path) -> None:
    files = {"morok/__init__.py": "Tensor = 1\n", "morok/errors.py": "from morok import Tensor\n"}
    (found,) = problems(layers, tmp_path, files)
    assert "upward arrow" in found


def test_deep_import(layers: ModuleType, tmp_path: Path) -> None:
    (found,) = problems(layers, tmp_path, {**IR, "morok/engine.py": "from morok.ir.uop import UOp"})
    assert found == "morok.engine:1: deep import of morok.ir.uop, take it from morok.ir"


def test_cycles(layers: ModuleType, tmp_path: Path) -> None:
    files = {
        "morok/rangeify.py": "def f():\n    import morok.codegen\n",
        "morok/codegen.py": "import morok.optimizer\n",
        "morok/optimizer.py": "import morok.rangeify\n",
    }
    (found,) = problems(layers, tmp_path, files)
    assert found.startswith("cycle: ")
    assert found.count("->") == 3


def test_declarations_make_no_cycle(layers: ModuleType, tmp_path: Path) -> None:
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import morok.codegen\n"
    files = {
        "morok/rangeify.py": guarded,
        "morok/codegen.py": "import morok.rangeify\n",
        "morok/_core/a.pyx": "from morok._core.b cimport x\n",
        "morok/_core/b.pyx": "from morok._core.a cimport y, z\ncdef int x\n",
    }
    assert problems(layers, tmp_path, files) == []


def test_cython_upward(layers: ModuleType, tmp_path: Path) -> None:
    files = {"morok/ir/__init__.py": "", "morok/_core/a.pyx": "# c\n\nfrom morok.ir import UOp\n"}
    (found,) = problems(layers, tmp_path, files)
    assert found == "morok._core.a:3: upward arrow, layer 1 imports morok.ir of layer 2"


def test_unclaimed_and_missing_modules(layers: ModuleType, tmp_path: Path) -> None:
    found = problems(layers, tmp_path, {"morok/stray.py": "", "morok/ir.py": "import morok.nope\n"})
    assert found == [
        "morok.stray: in no layer of ci/check_layers.py",
        "morok.ir:1: morok.nope does not exist",
    ]
