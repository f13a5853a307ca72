"""What fails outside of the user's program, or inside of the compiler: no C compiler, one that
fails, settings with no meaning, graphs that break the rules. Each time the session goes on, and
what was computed before is intact."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from morok import config, engine
from morok.dtype import dtypes
from morok.errors import CompileError, ConfigError, DeviceError, InvalidGraphError
from morok.ir import AxisType, KernelInfo, Ops, UOp
from morok.runtime import Device
from morok.tensor import Tensor

ROOT = Path(__file__).resolve().parents[2]


def run_program(text: str, **environment: str) -> str:
    """What a new process prints, given this environment on top of a clean one."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MOROK_") and k != "CC"}
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- compilers -----------------------------------------------------------------------------------

WITHOUT_A_COMPILER = """
import importlib.util, os
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "ziglang" else find(name, *rest)
from morok.errors import DeviceError
from morok.tensor import Tensor

x = Tensor([1.0, 2.0, 3.0])
y = x * 2 + 1
for attempt in range(2):
    try:
        y.tolist()
    except DeviceError as error:
        print(error)
print(x.tolist())  # what needs no kernel works without a compiler
os.environ["PATH"] = os.environ["REAL_PATH"]
print(y.tolist(), (x.sum() + y.sum()).item())
"""


def test_no_compiler_on_the_path_and_then_one(tmp_path: Path) -> None:
    said = run_program(
        WITHOUT_A_COMPILER,
        PATH=str(tmp_path),
        REAL_PATH=os.environ["PATH"],
        MOROK_CACHE_DIR=str(tmp_path / "cache"),
        MOROK_CPU_COMPILER="c",
    ).splitlines()
    assert len(said) == 4
    assert said[0] == said[1]
    assert said[0].startswith("no C compiler found")
    for advice in ("cc, gcc, clang", "apt install gcc", "pip install ziglang", "MOROK_CC"):
        assert advice in said[0]
    assert said[2:] == ["[1.0, 2.0, 3.0]", "[3.0, 5.0, 7.0] 21.0"]


@pytest.fixture
def _saved_sources_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def broken_compiler(tmp_path: Path) -> Iterator[Path]:
    """A compiler that answers what it is asked about itself, and refuses every source."""
    real = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert real is not None, "these tests need a C compiler"
    script = tmp_path / "brokencc"
    script.write_text(
        f"""#!/bin/sh
case "$*" in *-dM*) exec {real} "$@" ;; esac
for word in "$@"; do case "$word" in *.c) file="$word" ;; esac; done
echo "$file:7:3: error: the flux capacitor is empty" >&2
exit 1
"""
    )
    script.chmod(0o755)
    with config.override(cpu_compiler="c", cc=(str(script),), cache_dir=tmp_path / "cache"):
        yield script


@pytest.mark.usefixtures("_saved_sources_go")
def test_a_compiler_that_fails(broken_compiler: Path, tmp_path: Path) -> None:
    kept = Tensor([1.0, 2.0]).realize()
    y = (kept * 5 - 4).sqrt()
    for _ in range(2):
        with pytest.raises(CompileError) as caught:
            y.realize()
        error = caught.value
        assert "the flux capacitor is empty" in error.message
        assert error.source_path is not None
        saved = Path(error.source_path)
        assert saved.read_text() == error.source
        assert "void " in error.source
        assert error.command[0] == str(broken_compiler)
        assert str(saved) in error.command
        assert f"{saved}:7:3: error: the flux capacitor is empty" in error.output
        for fact in (error.source_path, str(broken_compiler), error.output.strip()):
            assert fact in str(error)
    assert kept.tolist() == [1.0, 2.0]
    with config.override(cc=None):
        assert y.tolist() == [1.0, np.sqrt(np.float32(6))]
        assert (kept + y).sum().item() == pytest.approx(4 + 6**0.5)


@pytest.mark.usefixtures("_saved_sources_go")
def test_a_failed_write_is_still_pending(broken_compiler: Path) -> None:
    """The write, the lazy reader of the old value and what stood in memory: all as they were, and
    done later."""
    x = Tensor([1.0, 2.0, 3.0]).realize()
    before = x * 10
    x += 1
    x.assign(x * x)
    with pytest.raises(CompileError):
        x.realize()
    with pytest.raises(CompileError):
        Tensor.realize(before, x)
    with config.override(cc=None):
        assert before.tolist() == [10.0, 20.0, 30.0]
        assert x.tolist() == [4.0, 9.0, 16.0]


def test_a_compiler_that_does_not_exist() -> None:
    y = Tensor([1.0, 2.0]) * 7
    with (
        config.override(cpu_compiler="c", cc=("no-such-compiler",)),
        pytest.raises(DeviceError, match=r"'no-such-compiler' does not exist: install one"),
    ):
        y.realize()
    assert y.tolist() == [7.0, 14.0]


# ---- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("MOROK_DEBUG", "loud", "an integer 0 to 5"),
        ("MOROK_DEBUG", "6", "an integer 0 to 5"),
        ("MOROK_VERIFY", "yes", "0 or 1"),
        ("MOROK_DEFAULT_FLOAT", "float31", "one of float16, bfloat16, float32, float64"),
        ("MOROK_CACHE_SIZE", "lots", "a number of bytes"),
        ("MOROK_JOBS", "-1", "an integer 0 to 1024"),
    ],
)
def test_an_unknown_value_of_a_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, allowed: str
) -> None:
    y = Tensor([1.0, 2.0]) * 9
    with monkeypatch.context() as patch:
        patch.setenv(variable, value)
        with pytest.raises(ConfigError) as caught:
            config.reload()
    assert (caught.value.variable, caught.value.value) == (variable, value)
    assert f"{variable}={value}: expected {allowed}" in str(caught.value)
    assert y.tolist() == [9.0, 18.0]


def test_an_unknown_value_at_the_start_of_a_process() -> None:
    """It is said where the first tensor needs the settings, and once it is mended everything
    works."""
    said = run_program(
        """
import os
import morok as mk
from morok.errors import ConfigError
try:
    print((mk.Tensor([1.0, 2.0]) * 3).tolist())
except ConfigError as error:
    print(error)
os.environ["MOROK_DEFAULT_INT"] = "int64"
print((mk.Tensor([1.0, 2.0]) * 3).tolist(), mk.Tensor([1]).dtype)
""",
        MOROK_DEFAULT_INT="int33",
    )
    assert said == "MOROK_DEFAULT_INT=int33: expected one of int32, int64\n[3.0, 6.0] Int64\n"


# ---- graphs --------------------------------------------------------------------------------------


def _value() -> UOp:
    return Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)).realize().uop


def _mixed() -> tuple[UOp, UOp]:
    x = _value()
    bad = UOp(Ops.ADD, dtypes.float32, (x, UOp(Ops.CAST, dtypes.int32, (x,))))
    return bad, bad


def _shifted_float() -> tuple[UOp, UOp]:
    x = _value()
    bad = UOp(Ops.SHL, dtypes.float32, (x, x))
    return UOp(Ops.NEG, dtypes.float32, (bad,)), bad


def _comparison_that_is_no_bool() -> tuple[UOp, UOp]:
    x = _value()
    bad = UOp(Ops.LT, dtypes.float32, (x, x))
    return bad, bad


def _open_loop() -> tuple[UOp, UOp]:
    loop = UOp.range(3, 0)
    return UOp(Ops.ADD, dtypes.float32, (_value(), UOp(Ops.CAST, dtypes.float32, (loop,)))), loop


def _op_of_another_level() -> tuple[UOp, UOp]:
    x = _value()
    bad = UOp(Ops.LOAD, dtypes.float32, (x, x))
    return bad, bad


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (_mixed, "operands"),
        (_shifted_float, "operand-class"),
        (_comparison_that_is_no_bool, "dtype"),
        (_open_loop, "ranges-closed"),
        (_op_of_another_level, "level-ops"),
    ],
)
def test_an_ill_formed_tensor_graph(make, rule: str) -> None:
    root, offender = make()
    with config.override(verify=True), pytest.raises(InvalidGraphError) as caught:
        engine.realize([root])
    error = caught.value
    assert (error.stage, error.rule) == ("normalise", rule)
    assert error.node.op is offender.op
    text = str(error)
    for fact in (f"stage: {error.stage}", f"rule: {rule}", "node: [0] " + offender.op.name):
        assert fact in text
    assert (Tensor._wrap(_value()) + 1).tolist() == [[1, 2, 3], [4, 5, 6]]


def _kernel(length: int, *, closed: bool) -> UOp:
    """out[i] = 2 * x[i] for i < length, over memory of four elements."""
    out, x = (UOp(Ops.PARAM, dtypes.float32.ptr(), (), (slot, 4)) for slot in range(2))
    i = UOp.range(length, 0, AxisType.LOOP, renumbered=True)
    store = UOp(Ops.STORE, dtypes.void, (out[i], x[i] * 2, *((i,) if closed else ())))
    return UOp(Ops.SINK, dtypes.void, (store,), KernelInfo(name="doubled"))


@pytest.mark.parametrize(
    ("kernel", "rule", "op"),
    [
        (_kernel(8, closed=True), "index-bounds", Ops.INDEX),
        (_kernel(4, closed=False), "ranges-closed", Ops.RANGE),
    ],
)
def test_an_ill_formed_kernel(kernel: UOp, rule: str, op: Ops) -> None:
    arrays = [np.zeros(4, np.float32), np.arange(4, dtype=np.float32)]
    with config.override(verify=True), pytest.raises(InvalidGraphError) as caught:
        engine.run_kernel(kernel, arrays, Device["CPU"])
    assert (caught.value.rule, caught.value.node.op) == (rule, op)
    assert caught.value.stage
    out, _ = engine.run_kernel(_kernel(4, closed=True), arrays, Device["CPU"])
    assert out.tolist() == [0, 2, 4, 6]


def test_memory_that_was_overwritten_is_not_read() -> None:
    x = Tensor([1.0, 2.0]).realize()
    old = x.uop
    x.assign(Tensor([5.0, 6.0])).realize()
    if x.uop is not old:
        with pytest.raises(InvalidGraphError, match="overwritten by a later assignment"):
            engine.realize([UOp(Ops.NEG, dtypes.float32, (old,))])
    assert x.tolist() == [5.0, 6.0]
