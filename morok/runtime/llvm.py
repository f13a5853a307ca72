"""LLVM IR text in, relocatable objects out, compiled in this process on all cores.

The library that the llvmlite wheel brings is called directly: llvmlite's own functions share one
lock, while LLVM itself only wants every thread to have a context and a target machine of its own.
Text is always parsed and verified before code is made of it, since malformed IR ends the process.

A process that finds its kernels on disk loads nothing of this.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import RLock, Thread

from morok.errors import CompileError, DeviceError, InvalidGraphError
from morok.forking import held_at_fork
from morok.runtime.compiler import cpu_facts, save_source, worker_count
from morok.runtime.diskcache import DiskCache, default_cache
from morok.runtime.profile import span

HELP = "`pip install llvmlite`, or set MOROK_CPU_COMPILER=c to use a C compiler"
_OLDEST = (0, 45)  # LLVM 20: earlier ones have no splat constants
_LEVEL = 1  # of code generation: what the passes of higher ones find is in the text already

_lock = held_at_fork(RLock())
"""Held while LLVM works, so that no child of a fork finds it halfway through."""


@dataclass(frozen=True, slots=True)
class LLVMTarget:
    """The CPU that code is made for, as LLVM describes it."""

    triple: str
    cpu: str
    features: str  # "+avx2,-avx512f,…"

    def has(self, feature: str) -> bool:
        """Whether a feature is there, by its GNU name: "x86_64", "avx2", "fma", "ARM_NEON"."""
        if feature == "x86_64":
            return self.triple.startswith("x86_64")
        name = {"ARM_NEON": "neon"}.get(feature, feature.replace("sse4_", "sse4."))
        return f"+{name}" in self.features.split(",")


class LLVMCompiler:
    """The LLVM of the llvmlite wheel.

    DeviceError, which says what to install, if there is none that works on this machine.
    """

    def __init__(self, *, cache: DiskCache | None = None) -> None:
        self._path = library_path()
        cache = cache if cache is not None else default_cache()
        self._machines: list[int] = []  # target machines nobody uses
        file = self._path.stat()
        self._file = f"{self._path} {file.st_size} {file.st_mtime_ns} {file.st_ino}"
        self.target = self._probe(cache)

    @property
    def version(self) -> str:
        """Of llvmlite."""
        return llvmlite_version(self._path) or "unknown"

    @cached_property
    def identity(self) -> str:
        """Equal identities compile equal texts to equal code: part of every cache key."""
        target = self.target
        facts = ("llvm", f"O{_LEVEL}", self._file, target.triple, target.cpu, target.features)
        return "|".join(facts)

    def compile(self, sources: Sequence[str]) -> bytes:
        """An object's bytes, all sources being one module; see `compile_units`."""
        return self.compile_units([sources])[0]

    def compile_units(self, units: Sequence[Sequence[str]]) -> list[bytes]:
        """An object for each module, made side by side on all CPUs we may use.

        InvalidGraphError if LLVM's parser or verifier refuses a text, which is saved to a file that
        the error names; CompileError if code generation fails. All units are tried; the error is
        about the first that failed.
        """
        texts = [joined(unit) for unit in units]
        results: list[bytes | Exception] = [b""] * len(texts)
        waiting = iter(range(len(texts)))

        def work(machine: int) -> None:
            try:
                for i in waiting:
                    try:
                        results[i] = self._emit(texts[i], machine)
                    except Exception as error:
                        results[i] = error
            finally:
                self._machines.append(machine)  # not before: nobody else may use it meanwhile

        workers = min(worker_count(), len(texts))
        with _lock, span("compile", f"{workers} jobs"):
            first, *others = self._target_machines(workers)
            threads = [Thread(target=work, args=(machine,)) for machine in others]
            try:
                for thread in threads:
                    thread.start()
                work(first)
            finally:
                for _ in waiting:  # after an interruption nobody starts another
                    pass
                for thread in threads:
                    if thread.is_alive():
                        thread.join()
        objects = []
        for result in results:
            if isinstance(result, Exception):
                raise result
            objects.append(result)
        return objects

    # ---- LLVM ------------------------------------------------------------------------------------

    @cached_property
    def _llvm(self) -> Mapping[str, ctypes._NamedFuncPointer]:
        return _functions(self._path)

    def _target_machines(self, count: int) -> list[int]:
        """Target machines that nobody else uses, until they are given back."""
        while len(self._machines) < count:
            self._machines.append(self._new_machine())
        return [self._machines.pop() for _ in range(count)]

    def _new_machine(self) -> int:
        llvm, target = self._llvm, self.target
        reason = ctypes.c_char_p()
        triple = target.triple.encode()
        found = llvm["GetTargetFromTriple"](triple, ctypes.byref(reason))
        machine = found and llvm["CreateTargetMachine"](
            found,
            triple,
            target.cpu.encode(),
            target.features.encode(),
            _LEVEL,
            b"pic",
            b"small",
            0,
            0,
            b"",
        )
        if not machine:
            raise DeviceError(f"llvmlite {self.version} makes no code for {target.triple}; {HELP}")
        return int(machine)

    def _emit(self, text: str, machine: int) -> bytes:
        """The object of one module."""
        llvm = self._llvm
        reason = ctypes.c_char_p()
        context = llvm["ContextCreate"]()
        module = buffer = None
        try:
            module = llvm["ParseAssembly"](context, text.encode(), ctypes.byref(reason))
            if not module or llvm["VerifyModule"](module, ctypes.byref(reason)):
                raise _refusal(text, reason.value)
            buffer = llvm["TargetMachineEmitToMemory"](machine, module, 1, ctypes.byref(reason))
            if not buffer:
                said = (reason.value or b"").decode(errors="replace")
                saved = save_source(text, ".ll")
                raise CompileError(
                    "LLVM makes no code of a kernel", source=text, source_path=saved, output=said
                )
            size = llvm["GetBufferSize"](buffer)
            return ctypes.string_at(llvm["GetBufferStart"](buffer), size)
        finally:
            if reason.value is not None:
                llvm["DisposeString"](reason)
            if buffer:
                llvm["DisposeMemoryBuffer"](buffer)
            if module:
                llvm["DisposeModule"](module)
            llvm["ContextDispose"](context)

    def _probe(self, cache: DiskCache) -> LLVMTarget:
        """This CPU in LLVM's words, remembered on disk until LLVM or the CPU change."""
        facts = "\n".join(("llvm probe", cpu_facts(), self._file))
        key = hashlib.blake2b(facts.encode(), digest_size=32).digest()
        known = cache.get(key)
        lines = known.decode(errors="replace").split("\n") if known is not None else []
        if len(lines) == 3:
            return LLVMTarget(*lines)
        with _lock:
            target = LLVMTarget(
                self._ask("GetDefaultTargetTriple"),
                self._ask("GetHostCPUName"),
                self._ask("GetHostCPUFeatures"),
            )
        cache.put(key, "\n".join((target.triple, target.cpu, target.features)).encode())
        return target

    def _ask(self, function: str) -> str:
        answer = ctypes.c_char_p()
        self._llvm[function](ctypes.byref(answer))
        text = (answer.value or b"").decode(errors="replace")
        self._llvm["DisposeString"](answer)
        return text


def joined(sources: Sequence[str]) -> str:
    """One module of several: what more than one declares stands once."""
    functions: list[str] = []
    shared: dict[str, None] = {}
    for source in sources:
        body, end, rest = source.rpartition("\n}\n")
        functions.append(body + end)
        shared |= dict.fromkeys(rest.splitlines())
    return "".join((*functions, "\n".join(shared), "\n"))


def _refusal(text: str, reason: bytes | None) -> InvalidGraphError:
    """The error of a text that LLVM does not take, which is saved."""
    said = (reason or b"no reason given").decode(errors="replace").strip()
    names = re.findall(r"^define .*@(\w+)\(", text, re.MULTILINE)
    saved = save_source(text, ".ll")
    where = f"; its text is in {saved}" if saved is not None else ""
    return InvalidGraphError(
        f"LLVM refuses the IR of kernel {' or '.join(names) or 'without a name'}{where}",
        stage="llvm",
        rule="verified IR",
        got=said,
    )


# ---- the library ---------------------------------------------------------------------------------

_MACHINES = ("x86_64", "AMD64")  # whose objects can be loaded


def library_path() -> Path:
    """Where llvmlite's library is. DeviceError if there is none that can be used here."""
    machine = os.uname().machine
    if machine not in _MACHINES:
        raise DeviceError(
            f"kernels are compiled by LLVM on x86-64 only, this machine is {machine}; "
            "set MOROK_CPU_COMPILER=c to use a C compiler"
        )
    spec = importlib.util.find_spec("llvmlite")
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        raise DeviceError(f"llvmlite is not installed: {HELP}")
    path = Path(folders[0], "binding", "libllvmlite.so")
    if not path.is_file():
        raise DeviceError(f"llvmlite has no library {path}: {HELP}")
    version = llvmlite_version(path)
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    if numbers and (int(numbers[1]), int(numbers[2])) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise DeviceError(f"llvmlite {version} is older than {oldest}: {HELP}")
    return path


def llvmlite_version(library: Path) -> str | None:
    """The version of the llvmlite that a library belongs to; None if it does not say."""
    try:
        text = (library.parent.parent / "_version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"version_version = '([^']+)'", text)
    return found[1] if found else None


_P, _S, _I = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_OUT = ctypes.POINTER(ctypes.c_char_p)
_SIGNATURES: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "InitializeNativeTarget": (None, ()),
    "InitializeNativeAsmPrinter": (None, ()),
    "GetDefaultTargetTriple": (None, (_OUT,)),
    "GetHostCPUName": (None, (_OUT,)),
    "GetHostCPUFeatures": (_I, (_OUT,)),
    "GetTargetFromTriple": (_P, (_S, _OUT)),
    "CreateTargetMachine": (_P, (_P, _S, _S, _S, _I, _S, _S, _I, _I, _S)),
    "ContextCreate": (_P, ()),
    "ContextDispose": (None, (_P,)),
    "ParseAssembly": (_P, (_P, _S, _OUT)),
    "VerifyModule": (ctypes.c_bool, (_P, _OUT)),
    "DisposeModule": (None, (_P,)),
    "TargetMachineEmitToMemory": (_P, (_P, _P, _I, _OUT)),
    "GetBufferStart": (_P, (_P,)),
    "GetBufferSize": (ctypes.c_size_t, (_P,)),
    "DisposeMemoryBuffer": (None, (_P,)),
    "DisposeString": (None, (_S,)),
}
"""Functions of llvmlite's library: result and arguments. Their names begin with LLVMPY_."""


def _functions(path: Path) -> dict[str, ctypes._NamedFuncPointer]:
    """The functions of the library, initialised; calls of them release the GIL."""
    try:
        library = ctypes.CDLL(str(path))
        functions = {name: library[f"LLVMPY_{name}"] for name in _SIGNATURES}
    except (OSError, AttributeError) as error:
        raise DeviceError(f"the library of llvmlite cannot be used ({error}): {HELP}") from error
    for name, (result, arguments) in _SIGNATURES.items():
        functions[name].restype, functions[name].argtypes = result, arguments
    functions["InitializeNativeTarget"]()
    functions["InitializeNativeAsmPrinter"]()
    return functions
