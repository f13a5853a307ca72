"""`python -m morok doctor`: what this machine has, what is missing, and the command that mends it.

Every check is a function that gives `Finding`s. The exit status is 1 if something morok cannot do
without is missing, else 0.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from morok import config
from morok.errors import CompileError, ConfigError, DeviceError

OTHER_VARIABLES = ("MOROK_BUILD",)
"""Variables with our prefix that are read while building, so are in no table here."""

EXTRAS = {
    "torch": ("test, compared with", "torch==2.13.0"),
    "sklearn": ("demo data", "scikit-learn"),
    "matplotlib": ("demo pictures", "matplotlib"),
    "pyopencl": ("OpenCL devices", "pyopencl"),
    "z3": ("proofs of rules", "z3-solver"),
}
"""Optional module -> (what for, what to install)."""

CPU_FEATURES = ("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512_bf16", "asimd", "sve")


@dataclass(frozen=True)
class Finding:
    """One line of the report. `remedy` is a command or an instruction; `needed` makes it fatal."""

    topic: str
    ok: bool
    text: str
    remedy: str = ""
    needed: bool = False

    def __str__(self) -> str:
        mark = "ok  " if self.ok else "FAIL" if self.needed else "note"
        line = f"{mark}  {self.topic:<12} {self.text}"
        return f"{line}\n{'':19}mend: {self.remedy}" if self.remedy and not self.ok else line


def check_python() -> Iterable[Finding]:
    """The interpreter and what morok imports."""
    ok = sys.version_info >= (3, 11)
    text = f"{platform.python_version()} on {platform.platform()}"
    yield Finding("python", ok, text, "install Python 3.11 or newer", needed=True)
    for package in ("numpy", "cffi"):
        try:
            yield Finding(package, True, importlib.metadata.version(package), needed=True)
        except importlib.metadata.PackageNotFoundError:
            yield Finding(package, False, "not installed", f"pip install {package}", needed=True)


def check_core() -> Iterable[Finding]:
    """Whether the compiled core is there and loads."""
    folder = Path(__file__).resolve().parent.parent / "_core"
    missing = sorted(
        source.stem
        for source in folder.glob("*.pyx")
        if not any(folder.glob(f"{source.stem}.*.so"))
    )
    remedy = "python setup.py build_ext --inplace (in a source tree), else pip install morok again"
    if missing:
        yield Finding("core", False, f"not built: {', '.join(missing)}", remedy, needed=True)
        return
    try:
        importlib.import_module("morok._core")
    except ImportError as error:
        yield Finding("core", False, f"does not load: {error}", remedy, needed=True)
    else:
        yield Finding("core", True, str(folder), needed=True)


def check_llvm() -> Iterable[Finding]:
    """Whether LLVM is there and makes machine code that can be loaded."""
    chosen = config.get().cpu_compiler
    try:
        text = _llvm_facts()
    except (DeviceError, CompileError) as error:
        remedy = "pip install llvmlite (without it a C compiler makes machine code, slower)"
        yield Finding("llvm", False, error.message, remedy, needed=chosen == "llvm")
    else:
        yield Finding("llvm", True, text + ("" if chosen != "c" else ", not used (cpu_compiler=c)"))


def _llvm_facts() -> str:
    """What LLVM says of itself, after a function was compiled and loaded."""
    from morok.runtime import Library, LLVMCompiler

    compiler = LLVMCompiler()
    Library(compiler.compile(["define void @answer() {\n  ret void\n}\n"])).symbol("answer")
    return f"llvmlite {compiler.version}, for {compiler.target.cpu}"


def check_compiler() -> Iterable[Finding]:
    """Whether a C compiler is found and makes a shared object, with the flags kernels get."""
    from morok.runtime import CCompiler

    remedy = "apt-get install gcc, or pip install ziglang, or set MOROK_CC to a C compiler"
    try:
        compiler = CCompiler()
        compiler.compile(["int answer(void) { return 42; }"])
    except (DeviceError, CompileError) as error:
        yield Finding("compiler", False, str(error), remedy, needed=not _without_c())
    else:
        text = f"{shlex.join(compiler.command)}: {compiler.target.version}"
        yield Finding("compiler", True, text)


def _without_c() -> bool:
    """Whether kernels are made without a C compiler."""
    if config.get().cpu_compiler != "auto":
        return config.get().cpu_compiler == "llvm"
    try:
        _llvm_facts()
    except (DeviceError, CompileError):
        return False
    return True


def check_cpu() -> Iterable[Finding]:
    """Cores this process may use, and the vector instructions they have."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    have = _cpu_flags()
    found = [name for name in CPU_FEATURES if name in have]
    yield Finding("cpu", True, f"{platform.machine()}, {cores} cores, {' '.join(found) or 'plain'}")


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            return set(value.split())
    return set()


def check_cache() -> Iterable[Finding]:
    """The folder of compiled kernels: private, writable, how full."""
    folder, limit = config.get().cache_dir, config.get().cache_size
    if limit == 0:
        yield Finding("cache", True, "turned off (MOROK_CACHE_SIZE=0)")
        return
    from morok.runtime import DiskCache

    cache = DiskCache(folder, limit)
    entries, size = cache.size()
    if cache.problem is not None:
        remedy = "set MOROK_CACHE_DIR to a folder that is yours alone"
        yield Finding("cache", False, f"{folder} is not used: {cache.problem}", remedy)
        return
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        remedy = "set MOROK_CACHE_DIR to a folder you can write to"
        yield Finding("cache", False, f"{existing} cannot be written", remedy)
        return
    free = shutil.disk_usage(existing).free
    text = f"{folder}: {entries} entries, {_mib(size)} of {_mib(limit)}; {_mib(free)} free on disk"
    yield Finding("cache", free > 100 << 20, text, "free some space, or set MOROK_CACHE_DIR")


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"


def check_settings(environ: Mapping[str, str] | None = None) -> Iterable[Finding]:
    """Settings that differ from the default, impossible values, and misspelt variables."""
    environ = os.environ if environ is None else environ
    known = {variable for row in config.rows().values() for variable in row.env}
    for variable in sorted(environ):
        if variable.startswith("MOROK_") and variable not in known | {*OTHER_VARIABLES}:
            close = difflib.get_close_matches(variable, known, 1)
            remedy = f"did you mean {close[0]}?" if close else f"unset {variable}"
            yield Finding("settings", False, f"{variable} is no setting and has no effect", remedy)
    try:
        values, plain = config.from_environment(environ), config.from_environment({})
    except ConfigError as error:
        remedy = f"unset {error.variable}"
        yield Finding("settings", False, str(error), remedy, needed=True)
        return
    changed = [
        f"{name}={getattr(values, name)}"
        for name in config.rows()
        if getattr(values, name) != getattr(plain, name)
    ]
    yield Finding("settings", True, ", ".join(changed) or "all default")


def check_extras() -> Iterable[Finding]:
    """Packages only some parts of morok want."""
    for module, (purpose, package) in EXTRAS.items():
        found = importlib.util.find_spec(module) is not None
        state = "installed" if found else "not installed"
        yield Finding(module, found, f"{state} (optional: {purpose})", f"pip install {package}")


CHECKS: tuple[Callable[[], Iterable[Finding]], ...] = (
    check_python,
    check_core,
    check_settings,
    check_llvm,
    check_compiler,
    check_cpu,
    check_cache,
    check_extras,
)


def main(arguments: list[str]) -> int:
    """Prints the report; 1 if something needed is missing, 2 for arguments it does not take."""
    if arguments:
        print(f"doctor takes no arguments, got {shlex.join(arguments)}", file=sys.stderr)
        return 2
    broken = 0
    for check in CHECKS:
        try:
            findings = list(check())
        except (ConfigError, ImportError):
            continue  # reported by check_settings and check_core; what they break cannot be seen
        for finding in findings:
            print(finding)
            broken += finding.needed and not finding.ok
    print(f"{broken} problems" if broken else "morok can run here")
    return int(broken > 0)
