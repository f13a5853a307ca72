"""LLVM IR to running kernels: compilation in process, the loader, what is refused and how."""

from __future__ import annotations

import gc
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from morok import config
from morok.errors import DeviceError, InvalidGraphError
from morok.runtime import (
    Buffer,
    CpuDevice,
    DiskCache,
    ExecutionPlan,
    KernelSource,
    Library,
    LLVMCompiler,
    build_kernels,
)
from morok.runtime import llvm as llvm_module

pytest.importorskip("llvmlite")
ROOT = Path(__file__).resolve().parents[2]
PARAMS = "ptr %bufs, ptr %vars, ptr %scratch, i64 %lo, i64 %hi"


def ir(name: str, body: str, tail: str = "") -> str:
    """A module with one kernel of this body."""
    return f"define void @{name}({PARAMS}) #0 {{\n{body}\n  ret void\n}}\n{tail}\n" + (
        "attributes #0 = { nounwind }\n"
    )


def adding(number: int, name: str = "add") -> KernelSource:
    """x[0] += number"""
    body = f"""entry:
  %p = load ptr, ptr %bufs, align 8
  %x = load i32, ptr %p, align 4
  %y = add i32 %x, {number}
  store i32 %y, ptr %p, align 4"""
    return KernelSource(name, ir(name, body), "llvm")


def result(kernel: object, start: int = 1) -> int:
    data = np.array([start], np.int32)
    ExecutionPlan([(kernel, (0,))], 1).run([Buffer.from_object(data)])
    return int(data[0])


@pytest.fixture(scope="module")
def llvm(tmp_path_factory: pytest.TempPathFactory) -> LLVMCompiler:
    return LLVMCompiler(cache=DiskCache(tmp_path_factory.mktemp("cache"), 1 << 24))


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache", 1 << 24)


# Compiling ----------------------------------------------------------------------------------------


def test_many_kernels_of_one_name(llvm: LLVMCompiler, cache: DiskCache) -> None:
    kernels = build_kernels([adding(k) for k in range(50)], llvm, cache)
    assert [result(kernel) for kernel in kernels] == [1 + k for k in range(50)]
    assert len({kernel.library for kernel in kernels}) == 7  # modules of eight


def test_what_two_kernels_declare_stands_once(llvm: LLVMCompiler, cache: DiskCache) -> None:
    body = """entry:
  %p = load ptr, ptr %bufs, align 8
  %x = load float, ptr %p, align 4
  %y = call float @llvm.sqrt.f32(float %x)
  store float %y, ptr %p, align 4"""
    declared = "declare float @llvm.sqrt.f32(float)"
    sources = [KernelSource(name, ir(name, body, declared), "llvm") for name in ("a", "b")]
    with config.override(jobs=1):
        kernels = build_kernels(sources, llvm, cache)
    assert kernels[0].library is kernels[1].library
    data = np.array([16], np.float32)
    ExecutionPlan([(k, (0,)) for k in kernels], 1).run([Buffer.from_object(data)])
    assert data[0] == 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("entry:\n  %x = add i32 1, 2.0", "floating point constant"),
        ("entry:\n  this is no IR", "expected instruction"),
        ("entry:\n  %x = add i32 %y, 1\n  %y = add i32 1, 1", "does not dominate"),
        ("entry:\n  br label %a\na:\n  %x = phi i32 [ 0, %a ]", "do not match predecessors"),
    ],
)
def test_refused_ir_is_an_error_and_the_process_lives(
    llvm: LLVMCompiler, cache: DiskCache, body: str, said: str
) -> None:
    bad = KernelSource("bad", ir("bad", body), "llvm")
    with pytest.raises(InvalidGraphError, match="LLVM refuses the IR of kernel bad_") as caught:
        build_kernels([adding(1), bad, adding(2)], llvm, cache)
    error = caught.value
    assert error.stage == "llvm"
    assert said.lower() in str(error.got).lower()
    (saved,) = [word for word in error.message.split() if word.endswith(".ll")]
    assert body in Path(saved).read_text()
    assert result(build_kernels([adding(4)], llvm, cache)[0]) == 5


def test_eight_threads_compile_at_once(llvm: LLVMCompiler, cache: DiskCache) -> None:
    wrong: list[object] = []

    def work(first: int) -> None:
        try:
            kernels = build_kernels([adding(first + k) for k in range(20)], llvm, cache)
            got = [result(kernel) for kernel in kernels]
            wrong.extend([got] if got != [1 + first + k for k in range(20)] else [])
        except Exception as error:  # whatever it is, the test must see it
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(100 * k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_interruption_while_threads_start(
    llvm: LLVMCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever runs by then is over before anybody else may use its target machine."""
    working: set[int] = set()
    real = llvm._emit

    def emit(text: str, machine: int) -> bytes:
        assert machine not in working
        working.add(machine)
        time.sleep(0.02)
        made = real(text, machine)
        working.remove(machine)
        return made

    class Interrupted(threading.Thread):
        def start(self) -> None:
            super().start()
            if self.name == "third":
                raise KeyboardInterrupt

    names = iter(["first", "second", "third", "fourth"])

    def thread(target: Callable[..., None], args: tuple[int]) -> threading.Thread:
        return Interrupted(target=target, args=args, name=next(names))

    monkeypatch.setattr(llvm, "_emit", emit)
    units = [[adding(n).text] for n in range(9)]
    with monkeypatch.context() as patched, config.override(jobs=5):
        patched.setattr(llvm_module, "Thread", thread)
        with pytest.raises(KeyboardInterrupt):
            llvm.compile_units(units)
        assert not working
    assert all(llvm.compile_units(units))


def test_fork_while_compiling(llvm: LLVMCompiler, cache: DiskCache) -> None:
    """A child compiles although another thread was compiling when it was made."""
    stop = threading.Event()

    def work() -> None:
        number = 1000
        while not stop.is_set():
            build_kernels([adding(number + k) for k in range(8)], llvm, cache)
            number += 8

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for k in range(5):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    (kernel,) = build_kernels([adding(-k)], llvm, cache)
                    status = 0 if result(kernel) == 1 - k else 2
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()


SECOND = """
import sys
import morok as mk
x = mk.Tensor([1.0, 2.0, 3.0])
assert (x * x + 1).sum().item() == 17
print(any(name.split(".")[0] == "llvmlite" for name in sys.modules),
      "libllvmlite" in open("/proc/self/maps").read())
"""


def test_a_second_process_loads_nothing_of_llvm(tmp_path: Path) -> None:
    environ = {**os.environ, "MOROK_CACHE_DIR": str(tmp_path), "MOROK_CPU_COMPILER": "llvm"}
    environ["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-c", SECOND]
    said = [subprocess.check_output(command, env=environ, text=True).split() for _ in range(2)]
    assert said == [["False", "True"], ["False", "False"]]


def foreign(image: bytes) -> bytes:
    """The object as one of another machine: AArch64."""
    return image[:18] + struct.pack("<H", 183) + image[20:]


@pytest.mark.parametrize(
    "change",
    [
        lambda image: image[: len(image) // 2],
        lambda image: b"",
        lambda image: b"no object at all",
        foreign,
    ],
    ids=["cut off", "empty", "something else", "of another machine"],
)
def test_a_bad_object_on_disk_is_a_miss(
    llvm: LLVMCompiler, cache: DiskCache, change: Callable[[bytes], bytes]
) -> None:
    """The entry's checksum is right, so that only the loader can tell."""
    sources = [adding(k) for k in range(9)]
    puts: dict[bytes, bytes] = {}

    class Recording(DiskCache):
        def put(self, key: bytes, value: bytes) -> bool:
            puts[key] = value
            return super().put(key, value)

    build_kernels(sources, llvm, Recording(cache.path, cache.max_bytes))
    objects = {key: value for key, value in puts.items() if value[:4] == b"\x7fELF"}
    assert len(objects) == 2
    for key, image in objects.items():
        assert cache.put(key, change(image))
    gc.collect()
    kernels = build_kernels(sources, llvm, cache)
    assert [result(kernel) for kernel in kernels] == [1 + k for k in range(9)]


def test_an_object_without_the_kernel_is_a_miss(llvm: LLVMCompiler, cache: DiskCache) -> None:
    (kernel,) = build_kernels([adding(3, "first")], llvm, cache)
    other = llvm.compile([adding(9, "second").text])
    del kernel
    gc.collect()
    for path in (cache.path / "v1").iterdir():
        stored = path.read_bytes()
        at = stored.find(b"\x7fELF")
        if at >= 0:
            path.write_bytes(stored[:at] + other)  # the checksum is wrong, too
    assert result(build_kernels([adding(3, "first")], llvm, cache)[0]) == 4


# The loader ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def binary(llvm: LLVMCompiler) -> bytes:
    return llvm.compile([adding(41).text])


def test_objects_that_are_cut_off_or_changed_are_errors_or_harmless(binary: bytes) -> None:
    for size in range(0, len(binary), 7):
        with pytest.raises(DeviceError, match="cannot load the library"):
            Library(binary[:size])
    table = struct.unpack_from("<Q", binary, 40)[0]
    places = [*range(64), *range(table, len(binary))]
    refused = 0
    for place in places:  # headers only: nobody can tell changed code from other code
        for value in (0, 255, 1 << 7):
            try:
                Library(binary[:place] + bytes([value]) + binary[place + 1 :])
            except DeviceError:
                refused += 1
    assert refused > 200


def test_unresolved_symbols_are_all_named(llvm: LLVMCompiler) -> None:
    text = ir(
        "f",
        "entry:\n  call void @first()\n  call void @second()",
        "declare void @first()\ndeclare void @second()",
    )
    with pytest.raises(DeviceError, match="functions that kernels do not have: first, second"):
        Library(llvm.compile([text]), "f")


def test_variables_of_its_own_are_refused(llvm: LLVMCompiler) -> None:
    text = ir("f", "entry:\n  store i32 1, ptr @x", "@x = global i32 7")
    with pytest.raises(DeviceError, match="variables of its own"):
        Library(llvm.compile([text]), "f")


def test_calls_and_constants(llvm: LLVMCompiler) -> None:
    """frem calls fmod, a large copy memcpy, a table is read from behind the code."""
    body = """entry:
  %p = load ptr, ptr %bufs, align 8
  %x = load double, ptr %p, align 8
  %i = load i64, ptr %vars, align 8
  %q = getelementptr double, ptr @f.table, i64 %i
  %y = load double, ptr %q, align 8
  %r = frem double %x, %y
  %to = getelementptr i8, ptr %p, i64 8
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %p, i64 4096, i1 false)
  store double %r, ptr %p, align 8"""
    tail = """declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
@f.table = private unnamed_addr constant [3 x double] [double 1.0, double 2.5, double 4.0]"""
    library = Library(llvm.compile([ir("f", body, tail)]), "f")
    data = np.zeros(600)
    data[0] = 12.25
    plan = ExecutionPlan([(library.kernel("f"), (0,), 0, 0, 1, (0,), "f")], 1, n_vars=1)
    plan.run([Buffer.from_object(data)], [1])
    assert data[0] == 2.25
    assert data[1] == 12.25


def mapped(access: str) -> int:
    """Mappings of this process that belong to no file."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum(f"{access} 00000000 00:00 0" in line for line in lines)


def test_code_is_never_writable_and_freed_with_its_kernels(binary: bytes) -> None:
    writable = mapped("rwxp")  # other packages may have some
    library = Library(binary, "add")
    before = mapped("r-xp")
    others = [Library(binary, "add") for _ in range(20)]
    kernel = others[3].kernel("add")
    with pytest.raises(DeviceError, match="no kernel 'sub'"):
        library.kernel("sub")
    del others
    assert mapped("r-xp") <= before + 1
    assert mapped("rwxp") == writable
    assert result(kernel) == 42


# The choice ---------------------------------------------------------------------------------------


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nonexistent")


def test_the_setting_chooses() -> None:
    device = CpuDevice()
    with config.override(cpu_compiler="llvm"):
        assert isinstance(device.compiler, LLVMCompiler)
        assert device.renderer.language == "llvm"
    with config.override(cpu_compiler="c"):
        assert device.compiler is device.c_compiler
        assert device.renderer.language == "c"
    with config.override(cpu_compiler="auto"):
        assert isinstance(device.compiler, LLVMCompiler)


@pytest.mark.usefixtures("nothing_installed")
def test_with_neither_the_error_says_what_to_install() -> None:
    with config.override(cpu_compiler="auto", cc=None), pytest.raises(DeviceError) as caught:
        _ = CpuDevice().compiler
    assert "apt install gcc" in str(caught.value)
    assert "pip install llvmlite" in str(caught.value)
    with (
        config.override(cpu_compiler="llvm"),
        pytest.raises(DeviceError, match="llvmlite is not installed: `pip install llvmlite`"),
    ):
        _ = CpuDevice().compiler


def test_without_llvmlite_a_c_compiler_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    device = CpuDevice()
    with config.override(cpu_compiler="auto"):
        assert device.compiler is device.c_compiler


WORKS = """
import importlib.util, sys
missing = sys.argv[1].split(",")
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in missing else find(name, *rest)
import morok as mk
from morok.runtime import Device
print((mk.Tensor([1.0, 2.0, 3.0]) * 2 + 1).sum().item(), type(Device["CPU"].compiler).__name__)
"""


def run_without(missing: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """A program in a process that has none of the packages `missing`."""
    given = {k: v for k, v in os.environ.items() if k not in ("MOROK_CPU_COMPILER", "CC")}
    given |= {"PYTHONPATH": str(ROOT), "MOROK_CACHE_DIR": str(folder), **environ}
    command = [sys.executable, "-c", WORKS, missing]
    return subprocess.run(command, env=given, capture_output=True, text=True, check=False)


def test_without_a_c_compiler_llvm_does_all(tmp_path: Path) -> None:
    ran = run_without("ziglang", tmp_path, PATH="/nonexistent")
    assert ran.stdout.split() == ["15.0", "LLVMCompiler"], ran.stderr


def test_without_llvmlite_the_c_compiler_does_all(tmp_path: Path) -> None:
    ran = run_without("llvmlite", tmp_path)
    assert ran.stdout.split() == ["15.0", "CCompiler"], ran.stderr


def test_without_either_a_program_ends_with_what_to_install(tmp_path: Path) -> None:
    ran = run_without("llvmlite,ziglang", tmp_path, PATH="/nonexistent")
    last = ran.stderr.strip().splitlines()[-1]
    assert "DeviceError" in last
    assert "pip install llvmlite" in last
    assert "apt install gcc" in last


def test_another_machine_has_a_c_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects can be loaded on x86-64 only: elsewhere the C compiler serves, unless LLVM is
    insisted on."""
    here = os.uname()
    there = os.uname_result((*here[:4], "aarch64"))
    monkeypatch.setattr("os.uname", lambda: there)
    device = CpuDevice()
    with config.override(cpu_compiler="auto"):
        assert device.compiler is device.c_compiler
    with (
        config.override(cpu_compiler="llvm"),
        pytest.raises(DeviceError, match="x86-64 only, this machine is aarch64"),
    ):
        _ = CpuDevice().compiler
