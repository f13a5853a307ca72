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
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from morok import config
from morok.errors import ConfigError

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


def check_compiler() -> Iterable[Finding]:
    """Whether a C compiler is found and makes a shared object."""
    remedy = "apt-get install gcc, or pip install ziglang, or set MOROK_CC to a C compiler"
    command = _compiler()
    if command is None:
        yield Finding("compiler", False, "no C compiler found", remedy, needed=True)
        return
    shown = shlex.join(command)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "a.c"), Path(folder, "a.so")
        source.write_text("int answer(void) { return 42; }\n")
        line = [*command, "-shared", "-fPIC", "-O2", "-o", str(target), str(source)]
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            yield Finding("compiler", False, f"{shown}: {error}", remedy, needed=True)
            return
        if done.returncode != 0 or not target.exists():
            said = (done.stderr.strip().splitlines() or ["no message"])[0]
            yield Finding("compiler", False, f"{shown} fails: {said}", remedy, needed=True)
            return
    yield Finding("compiler", True, f"{shown}: {_version(command)}", needed=True)


def _compiler() -> tuple[str, ...] | None:
    """The compiler asked for, else the first one found."""
    wanted = config.get().cc
    if wanted is not None:
        return wanted
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return (name,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    return None


def _version(command: tuple[str, ...]) -> str:
    done = subprocess.run(
        [*command, "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    return (done.stdout.splitlines() or ["version unknown"])[0]


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
    if not folder.exists():
        yield Finding("cache", True, f"{folder}: empty, made at the first use")
        return
    status = folder.stat()
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        remedy = "set MOROK_CACHE_DIR to a folder of your own"
        yield Finding("cache", False, f"{folder} belongs to another user: not used", remedy)
        return
    if stat.S_IMODE(status.st_mode) & 0o077:
        remedy = f"chmod 700 {shlex.quote(str(folder))}"
        yield Finding("cache", False, f"{folder} is open to other users: not used", remedy)
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        remedy = f"chmod u+rwx {shlex.quote(str(folder))}"
        yield Finding("cache", False, f"{folder} cannot be written", remedy)
        return
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    text = f"{folder}: {len(sizes)} files, {_mib(sum(sizes))} of {_mib(limit)}"
    free = shutil.disk_usage(folder).free
    remedy = "free some disk space, or set MOROK_CACHE_DIR"
    yield Finding("cache", free > 100 << 20, f"{text}, {_mib(free)} free on disk", remedy)


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
        except ConfigError:
            continue  # reported by check_settings; what it decides cannot be looked at
        for finding in findings:
            print(finding)
            broken += finding.needed and not finding.ok
    print(f"{broken} problems" if broken else "morok can run here")
    return int(broken > 0)
