"""Finding a C compiler and running it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from morok import config
from morok.errors import CompileError, DeviceError
from morok.runtime import Buffer, CCompiler, DiskCache, ExecutionPlan, Library

OFF = DiskCache("/nonexistent", 0)


def script(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def run(image: bytes, name: str, values: np.ndarray) -> np.ndarray:
    library = Library(image)
    out = Buffer(values.nbytes)
    view = out.view(values.dtype, values.shape)
    view[...] = values
    ExecutionPlan([(library.kernel(name), (0,), 0, 0, values.size)], 1).run([out])
    return view


@pytest.fixture
def real(compiler) -> str:
    """The compiler as a shell writes it."""
    return shlex.join(compiler.command)


@pytest.fixture
def any_compiler(monkeypatch) -> None:
    """No setting names one."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("MOROK_CC", raising=False)
    config.reload()


# ---- finding -------------------------------------------------------------------------------------


def test_a_compiler_is_found_and_says_what_it_is(compiler):
    assert Path(compiler.command[0]).exists()
    assert compiler.target.version[0].isdigit() or compiler.target.is_clang
    assert compiler.target.version in compiler.identity
    assert "-march=native" in compiler.identity
    assert compiler.target.has("x86_64") or compiler.target.has("aarch64")
    assert not compiler.target.has("no_such_feature")


def test_the_setting_names_the_compiler(real, any_compiler, tmp_path, monkeypatch):
    mine = script(tmp_path / "mycc", f'exec {real} "$@"')
    with config.override(cc=[mine, "-DONE"]):
        compiler = CCompiler(cache=OFF)
    assert compiler.command == (mine, "-DONE")
    assert compiler.compile(["#ifndef ONE\n#error\n#endif"])
    monkeypatch.setenv("CC", mine)
    config.reload()
    assert CCompiler(cache=OFF).command == (mine,)


def test_names_are_looked_for_in_the_path(real, any_compiler, tmp_path, monkeypatch):
    script(tmp_path / "gcc", f'exec {real} "$@"')
    monkeypatch.setenv("PATH", str(tmp_path))
    assert CCompiler(cache=OFF).command == (str(tmp_path / "gcc"),)


def test_without_a_compiler_the_error_says_how_to_get_one(any_compiler, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for _ in range(2):
        with pytest.raises(DeviceError) as caught:
            CCompiler(cache=OFF)
        for words in ("no C compiler found", "cc, gcc, clang", "pip install ziglang", "MOROK_CC"):
            assert words in str(caught.value)
    monkeypatch.undo()
    assert CCompiler(cache=OFF).compile(["void f(void) {}"])


def test_a_broken_compiler_is_passed_over(real, any_compiler, tmp_path, monkeypatch):
    script(tmp_path / "cc", "echo license expired >&2; exit 3")
    script(tmp_path / "gcc", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DeviceError, match="license expired"):
        CCompiler(cache=OFF)
    script(tmp_path / "clang", f'PATH=/usr/bin:/bin exec {real} "$@"')
    assert CCompiler(cache=OFF).command == (str(tmp_path / "clang"),)


def test_a_named_compiler_is_never_replaced_by_another(tmp_path):
    with config.override(cc="no-such-compiler -x"), pytest.raises(DeviceError, match="no-such-com"):
        CCompiler(cache=OFF)
    broken = script(tmp_path / "cc", "exit 1")
    with pytest.raises(DeviceError, match="no working C compiler"):
        CCompiler([broken], cache=OFF)


def test_the_answer_is_remembered_until_the_compiler_changes(real, tmp_path):
    cache = DiskCache(tmp_path / "cache", 1 << 24)
    asked = tmp_path / "asked"
    mine = script(tmp_path / "cc", f'echo x >> {asked}; exec {real} "$@"')
    first = CCompiler([mine], cache=cache)
    assert CCompiler([mine], cache=cache).identity == first.identity
    assert asked.read_text().count("x") == 1
    script(tmp_path / "cc", f'echo x >> {asked}; exec {real} "$@" -DNEW_VERSION')
    assert CCompiler([mine], cache=cache).identity != first.identity
    assert asked.read_text().count("x") == 2


# ---- compiling -----------------------------------------------------------------------------------


def test_sources_share_a_unit(compiler):
    vector = "typedef float v8 __attribute__((vector_size(32)));"
    image = compiler.compile([f"{vector} void f(void) {{}}", f"{vector} void g(void) {{}}"])
    library = Library(image)
    assert library.symbol("f")
    assert library.symbol("g")


def test_units_are_compiled_side_by_side_and_come_in_order(compiler):
    units = [[f"int f{i}(void) {{ return {i}; }}"] for i in range(5)]
    for jobs in (1, 3):
        with config.override(jobs=jobs):
            images = compiler.compile_units(units)
        for i, image in enumerate(images):
            assert Library(image).symbol(f"f{i}")
    assert compiler.compile_units([]) == []


def test_no_start_files_and_no_libraries_but_what_is_needed(compiler):
    image = compiler.compile(["void f(void) {}"])
    assert b"libc.so" not in image
    assert b"_init" not in image
    assert len(image) < 16384


def test_the_same_source_gives_the_same_bytes(compiler):
    source = "double f(double x) { return x * x + 1; }"
    assert compiler.compile([source]) == compiler.compile([source])


def test_arithmetic_is_strict(compiler):
    """What the flags promise: wrapping, no fusing, no reordering, NaN and signed zero kept."""
    image = compiler.compile(
        [
            "typedef unsigned char u8;",
            "void wraps(void **b) { int *x = b[0]; x[1] = x[0] + 1 > x[0]; x[0] = x[0] + 1; }",
            "void apart(void **b) { float *x = b[0]; x[0] = x[0] * x[1] + x[2]; }",
            "void trunc_(void **b) { float *x = b[0]; x[0] = (float)(int)x[0]; }",
            "void nans(void **b) { float *x = b[0]; x[1] = x[0] == x[0]; x[2] = x[0] - x[0]; }",
            "void alias(void **b) { int *i = b[0]; float *f = b[0]; *i = 0; *f = 1; i[1] = *i; }",
            "void roots(void **b) { float *x = b[0]; x[0] = __builtin_sqrtf(x[0]); }",
        ]
    )
    assert run(image, "wraps", np.int32([2**31 - 1, 5])).tolist() == [-(2**31), 0]
    a, b, c = np.float32(1 + 2**-12), np.float32(1 + 2**-12), np.float32(-(1 + 2**-11))
    assert run(image, "apart", np.array([a, b, c]))[0] == a * b + c
    assert not np.signbit(run(image, "trunc_", np.float32([-0.5]))[0])
    assert run(image, "nans", np.float32([np.nan, 9, 0]))[1] == 0
    assert np.isnan(run(image, "nans", np.float32([np.inf, 9, 0]))[2])
    assert run(image, "alias", np.int32([9, 9]))[1] == np.float32(1).view(np.int32)
    assert np.isnan(run(image, "roots", np.float32([-1]))[0])


def test_refusal_carries_everything_and_hurts_nothing(compiler, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    source = "int f(void) {\n  return undeclared_thing;\n}"
    with pytest.raises(CompileError) as caught:
        compiler.compile([source])
    error = caught.value
    assert error.source == source
    assert "undeclared_thing" in error.message
    assert "undeclared_thing" in error.output
    assert error.command[: len(compiler.command)] == compiler.command
    assert error.source_path is not None
    assert Path(error.source_path).read_text() == source
    assert f"{error.source_path}:2:" in error.output
    assert error.source_path in error.command
    for fact in (error.source_path, "undeclared_thing", "-march=native"):
        assert fact in str(error)
    assert [path.name for path in tmp_path.iterdir()] == [Path(error.source_path).name]
    # The command, as printed, shows the same error again.
    again = subprocess.run(error.command, capture_output=True, text=True, check=False)
    assert "undeclared_thing" in again.stderr
    assert compiler.compile(["void f(void) {}"])


def test_the_first_bad_unit_is_named(compiler):
    good, bad = ["void f(void) {}"], ["int g(void) { return nothing_here; }"]
    with pytest.raises(CompileError, match="nothing_here"):
        compiler.compile_units([good, bad, good])


def test_undeclared_functions_are_errors(compiler):
    with pytest.raises(CompileError, match="typo"):
        compiler.compile(["void f(void) { typo(); }"])


def test_a_killed_compiler_is_a_compile_error(real, tmp_path):
    dying = script(tmp_path / "cc", f'case "$*" in *-dM*) exec {real} "$@";; esac; kill -9 $$')
    with pytest.raises(CompileError, match="signal 9"):
        CCompiler([dying], cache=OFF).compile(["void f(void) {}"])


def test_a_compiler_that_is_gone_is_a_device_error(real, tmp_path):
    mine = script(tmp_path / "cc", f'exec {real} "$@"')
    vanishing = CCompiler([mine], cache=OFF)
    os.unlink(mine)
    with pytest.raises(DeviceError, match="cannot run the C compiler"):
        vanishing.compile(["void f(void) {}"])
    script(tmp_path / "cc", f'exec {real} "$@"')
    assert vanishing.compile(["void f(void) {}"])


def test_an_unusable_temporary_directory_is_a_device_error(compiler, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(DeviceError, match="missing"):
        compiler.compile(["void f(void) {}"])


def test_interruption_leaves_no_process_and_no_file(real, tmp_path):
    """Ctrl-C while the compiler runs: in a process of its own, as it goes to the main thread."""
    marker = tmp_path / "started"
    sleepy = script(
        tmp_path / "cc",
        f'case "$*" in *-dM*) exec {real} "$@";; esac\n'
        f"trap '' INT; echo $$ > {marker}; exec sleep 30",
    )
    program = (
        "import pathlib, signal, threading, time\n"
        "from morok.runtime import CCompiler, DiskCache\n"
        f"marker = pathlib.Path({str(marker)!r})\n"
        f"compiler = CCompiler([{sleepy!r}], cache=DiskCache('/nonexistent', 0))\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job ignores it
        "def interrupt():\n"
        "    while not (marker.exists() and marker.read_text()): time.sleep(0.01)\n"
        "    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)\n"
        "threading.Thread(target=interrupt).start()\n"
        "try: compiler.compile(['void f(void) {}'])\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "interrupted\n", done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []
    process = int(marker.read_text())
    for _ in range(100):
        if not Path(f"/proc/{process}").exists():
            return
        time.sleep(0.02)
    pytest.fail(f"the compiler {process} still runs")


def test_an_interruption_while_the_compiler_starts_ends_it(compiler, monkeypatch):
    started = []
    begin = subprocess.Popen.__init__

    def interrupted(process, *args, **kwargs):
        begin(process, *args, **kwargs)
        started.append(process)
        raise KeyboardInterrupt

    assert compiler.identity  # asks the compiler itself
    monkeypatch.setattr(subprocess.Popen, "__init__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiler.compile(["void f(void) {}"])
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_threads_may_compile_at_once(compiler):
    images: dict[int, bytes] = {}

    def work(i: int) -> None:
        images[i] = compiler.compile([f"int f{i}(void) {{ return {i}; }}"])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        assert Library(images[i]).symbol(f"f{i}")
