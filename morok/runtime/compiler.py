"""C source text in, shared objects out, through any C compiler of this machine.

No include files, no library but the compiler's own helpers: what that saves is half the time of a
small compilation. Several translation units are compiled side by side, one process each.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

from morok import config
from morok.cores import available_cores
from morok.errors import CompileError, DeviceError
from morok.runtime.diskcache import DiskCache, default_cache
from morok.runtime.profile import span

# subprocess and tempfile are imported where they are used: a process that finds all its kernels on
# disk does without them, which is a tenth of morok's time to import.

# What every compiler is told. Never -fno-trapping-math: gcc then turns (float)(int)x into trunc(x),
# which gives -0.0 for -0.5. Never -ffast-math or its parts: they change results.
_FLAGS = (
    "-std=gnu17",
    "-O2",
    "-march=native",
    "-ffp-contract=off",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-fPIC",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-Wno-psabi",
    "-Werror=implicit-function-declaration",
)
# No vectorising by gcc: vectors are explicit in the source, and gcc 12.2 at -O2 with the dynamic
# cost model loses iterations of a loop whose gate is a conjunction of outer and inner conditions,
# in the loop vectoriser's if-conversion (`test_gated_copy_keeps_every_element` shows it).
_GCC_FLAGS = ("-pipe", "-fno-tree-vectorize", "-fno-use-linker-plugin")
_CLANG_FLAGS = ("-fno-sanitize=undefined",)  # zig's default
_X86_FLAGS = ("-fcf-protection=none",)

# A raw link: no start files, and libc only as found in the process. The compiler's helper library
# (wide division, half-float conversions) is linked statically and costs nothing unless it is used.
_LINK_FLAGS = ("-shared", "-nostdlib", "-s", "-Wl,--build-id=none,--hash-style=gnu")
_GCC_X86_LINK_FLAGS = ("-Wl,-z,noseparate-code,-z,max-page-size=4096",)  # a third of the size
_LIBRARIES = ("-lgcc",)

_CANDIDATES = ("cc", "gcc", "clang")
_HELP = (
    "install one (`apt install gcc`, `dnf install gcc`, or `pip install ziglang`), "
    "or name one in MOROK_CC"
)


@dataclass(frozen=True, slots=True)
class Target:
    """What a compiler says about itself and about the CPU it generates code for."""

    macros: Mapping[str, str]  # all it predefines under -march=native

    @property
    def version(self) -> str:
        return self.macros.get("__VERSION__", "unknown").strip('"')

    @property
    def is_clang(self) -> bool:
        return "__clang__" in self.macros

    @property
    def digest(self) -> str:
        """Changes whenever the compiler or the CPU's features do."""
        lines = (f"{name} {value}\n" for name, value in sorted(self.macros.items()))
        return hashlib.blake2b("".join(lines).encode(), digest_size=16).hexdigest()

    def has(self, feature: str) -> bool:
        """Whether a feature is there, by its GNU name: "x86_64", "avx2", "fma", "ARM_NEON"."""
        spellings = (f"__{feature}__", f"__{feature.upper()}__", f"__{feature.upper()}")
        return any(spelling in self.macros for spelling in spellings)


class CCompiler:
    """A C compiler of this machine.

    `command` names it; without one, the setting `cc` (MOROK_CC, CC) does, else the first of cc,
    gcc, clang and the ziglang wheel that works is taken. It is asked once, at construction, for its
    version and the CPU's features; the answer is remembered on disk until compiler or CPU change.

    DeviceError if there is no compiler or it does not work; the text says how to get one.
    """

    def __init__(
        self, command: Sequence[str] | None = None, *, cache: DiskCache | None = None
    ) -> None:
        cache = cache if cache is not None else default_cache()
        wanted = command if command is not None else config.get().cc
        if wanted is not None:
            self.command = _resolved(wanted)
            self.target = _probe(self.command, cache)
            return
        reasons = []
        for candidate in _installed():
            try:
                self.target = _probe(candidate, cache)
            except DeviceError as error:
                reasons.append(f"; {error.message}")
                continue
            self.command = candidate
            return
        raise DeviceError(
            f"no C compiler found (looked for {', '.join(_CANDIDATES)} and the ziglang wheel"
            f"{''.join(reasons)}): {_HELP}"
        )

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """All it is given besides the source, the output and the libraries."""
        x86, clang = self.target.has("x86_64"), self.target.is_clang
        flags = _FLAGS + (_CLANG_FLAGS if clang else _GCC_FLAGS) + (_X86_FLAGS if x86 else ())
        return flags + _LINK_FLAGS + (_GCC_X86_LINK_FLAGS if x86 and not clang else ())

    @cached_property
    def identity(self) -> str:
        """Equal identities compile equal sources to equal code: part of every cache key."""
        return "|".join((*self.command, self.target.version, self.target.digest, *self.flags))

    def compile(self, sources: Sequence[str]) -> bytes:
        """A shared object's bytes, all sources being one translation unit.

        CompileError if the compiler refuses; it carries the source, which it saved to a file, the
        command and what the compiler said. The compiler object stays usable.
        """
        return self.compile_units([sources])[0]

    def compile_units(self, units: Sequence[Sequence[str]]) -> list[bytes]:
        """`compile` of several translation units, side by side on all CPUs we may use.

        All of them are tried; CompileError is about the first that failed.
        """
        import tempfile

        texts = ["\n".join(unit) for unit in units]
        try:
            with tempfile.TemporaryDirectory(prefix="morok-") as directory:
                return self._compile_in(Path(directory), texts)
        except OSError as error:
            raise DeviceError(
                f"cannot run the C compiler {self.command[0]} in {tempfile.gettempdir()}: {error}"
            ) from error

    def _compile_in(self, directory: Path, texts: list[str]) -> list[bytes]:
        commands = []
        for i, text in enumerate(texts):
            (directory / f"{i}.c").write_text(text, encoding="utf-8")
            files = (str(directory / f"{i}.c"), "-o", str(directory / f"{i}.so"))
            commands.append((*self.command, *self.flags, *files, *_LIBRARIES))
        with span("compile", f"{len(texts)} units"):
            codes = _run_all(commands, [directory / f"{i}.log" for i in range(len(texts))])
        binaries = []
        for i, (text, command, code) in enumerate(zip(texts, commands, codes, strict=True)):
            if code != 0:
                output = (directory / f"{i}.log").read_text(encoding="utf-8", errors="replace")
                raise _compile_error(text, str(directory / f"{i}.c"), command, code, output)
            binaries.append((directory / f"{i}.so").read_bytes())
        return binaries

    def __repr__(self) -> str:
        return f"<CCompiler {' '.join(self.command)} {self.target.version}>"


def worker_count() -> int:
    """How many compiler processes run at a time."""
    return config.get().jobs or available_cores()


# ---- finding one ---------------------------------------------------------------------------------


def _resolved(command: Sequence[str]) -> tuple[str, ...]:
    program = shutil.which(command[0])
    if program is None:
        raise DeviceError(f"the C compiler {command[0]!r} does not exist: {_HELP}")
    return (program, *command[1:])


def _installed() -> Iterator[tuple[str, ...]]:
    for name in _CANDIDATES:
        program = shutil.which(name)
        if program is not None:
            yield (program,)
    # The wheel's program itself: `python -m ziglang` would start an interpreter every time.
    wheel = importlib.util.find_spec("ziglang")
    for place in (wheel.submodule_search_locations or ()) if wheel is not None else ():
        program = shutil.which("zig", path=place)
        if program is not None:
            yield (program, "cc")


def _probe(command: tuple[str, ...], cache: DiskCache) -> Target:
    """Asks the compiler for its macros; DeviceError if it does not work."""
    key = _probe_key(command)
    known = cache.get(key)
    if known is not None:
        return Target(_macros(known.decode()))
    import subprocess

    question = (*command, "-march=native", "-dM", "-E", "-x", "c", os.devnull)
    try:
        answer = subprocess.run(
            question,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=_environment(),
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise DeviceError(f"cannot run {command[0]}: {error.strerror}; {_HELP}") from error
    macros = _macros(answer.stdout)
    if answer.returncode != 0 or "__VERSION__" not in macros:
        said = answer.stderr.strip().splitlines()
        raise DeviceError(
            f"{' '.join(command)} is no working C compiler"
            f"{' (' + said[0] + ')' if said else ''}; {_HELP}"
        )
    cache.put(key, answer.stdout.encode())
    return Target(macros)


def _macros(listing: str) -> dict[str, str]:
    """The object-like macros of a `-dM` listing: name -> value."""
    lines = (line.split(maxsplit=2) for line in listing.splitlines())
    return {words[1]: " ".join(words[2:]) for words in lines if words[:1] == ["#define"]}


def _probe_key(command: tuple[str, ...]) -> bytes:
    """Changes when one of the programs in the command, or the CPU, is another one."""
    facts = [cpu_facts()]
    for word in command:
        program = shutil.which(word)
        if program is not None:
            path = os.path.realpath(program)
            file = os.stat(path)
            facts.append(f"{path} {file.st_size} {file.st_mtime_ns} {file.st_ino}")
        facts.append(word)
    return hashlib.blake2b("\n".join(("probe", *facts)).encode(), digest_size=32).digest()


_CPU_FACTS = ("vendor_id", "cpu family", "model", "stepping", "flags", "CPU", "Features")


def cpu_facts() -> str:
    """What tells this CPU's kind from others."""
    facts = [os.uname().machine]
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if not line.strip():
                    break  # the first CPU speaks for all
                if line.startswith(_CPU_FACTS):
                    facts.append(line)
    except OSError:
        facts.append(os.uname().release)
    return "\n".join(facts)


# ---- running it ----------------------------------------------------------------------------------


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}


def _run_all(commands: Sequence[Sequence[str]], logs: Sequence[Path]) -> list[int]:
    """Runs all commands, some at a time; their exit codes. What they say goes to `logs`."""
    import subprocess

    environment = _environment()
    started: list[Started] = []
    limit = worker_count()

    class Started(subprocess.Popen[bytes]):
        """Known before it runs: an interruption may come while it starts."""

        def __init__(self, command: Sequence[str], output: IO[bytes]) -> None:
            started.append(self)
            super().__init__(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    try:
        for i, (command, log) in enumerate(zip(commands, logs, strict=True)):
            if i >= limit:
                started[i - limit].wait()
            with log.open("wb") as output:
                Started(command, output)
        return [process.wait() for process in started]
    finally:
        for process in started:  # still running only if we were interrupted
            if getattr(process, "pid", None) is not None and process.poll() is None:
                process.kill()
                process.wait()


def save_source(source: str, suffix: str) -> str | None:
    """Writes a text that was refused to a file; its name, None if that does not work."""
    import tempfile

    try:
        descriptor, saved = tempfile.mkstemp(prefix="morok-", suffix=suffix)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(source)
    except OSError:
        return None  # the error carries the source anyway
    return saved


def _compile_error(
    source: str, path: str, command: Sequence[str], code: int, output: str
) -> CompileError:
    """The error of a failed run; saves the source and makes everything speak of that file."""
    if code < 0:
        message = f"the C compiler was ended by signal {-code}"
    else:
        told = [line for line in output.splitlines() if "error:" in line]
        reason = told[0].partition("error:")[2].strip() if told else f"exit code {code}"
        message = f"the C compiler refused a kernel: {reason}"
    saved = save_source(source, ".c")
    if saved is not None:
        base, saved_base = path.removesuffix(".c"), saved.removesuffix(".c")
        command = [word.replace(base, saved_base) for word in command]  # ready to be tried again
        output = output.replace(path, saved)
    return CompileError(message, source=source, source_path=saved, command=command, output=output)
