"""`import morok`: light, and complete on demand."""

from __future__ import annotations

import subprocess
import sys

import pytest

import morok as mk


def test_every_public_name_is_there() -> None:
    for name in mk.__all__:
        assert getattr(mk, name) is getattr(mk, name)
        assert name in dir(mk)


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'tensr'"):
        _ = mk.tensr


def test_import_alone_loads_no_core() -> None:
    code = "import sys, morok; print([m for m in sys.modules if m.startswith('morok._core')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
