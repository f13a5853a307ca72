"""The devices of this process: memory, a compiler and a renderer each.

    Device["CPU"].allocator.allocate(4096)
    Device["CPU"].build([KernelSource("add", text)])

`Device.list()` names them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from morok import config
from morok._core import Buffer, Kernel, Library, clear_pool, memory_stats, set_pool_limit
from morok.errors import CompileError, DeviceError, InvalidGraphError
from morok.runtime.build import Building, KernelSource
from morok.runtime.compiler import CCompiler
from morok.runtime.llvm import LLVMCompiler

if TYPE_CHECKING:
    from morok.ir import Renderer, UOp


class CpuAllocator:
    """Host memory: see `Buffer`."""

    def __init__(self) -> None:
        set_pool_limit(config.get().pool_size)

    def allocate(self, nbytes: int) -> Buffer:
        """`nbytes`, not initialised. OutOfMemoryError with the sizes."""
        return Buffer(nbytes)

    def wrap(self, memory: object) -> Buffer:
        """The memory of an array or any object with the buffer protocol, in place."""
        return Buffer.from_object(memory)

    def stats(self) -> dict[str, int]:
        """Counters of buffers and bytes; see `memory_stats`."""
        return memory_stats()

    def release(self) -> None:
        """Gives free memory back to the system."""
        clear_pool()


class CpuDevice:
    """The machine's own processor."""

    name = "CPU"

    def __init__(self) -> None:
        self.allocator = CpuAllocator()
        self._compilers: dict[tuple[str, ...] | None, CCompiler] = {}
        self._llvm: LLVMCompiler | None = None
        self._without_llvm = False  # once a C compiler had to serve, it goes on serving
        self._renderers: dict[CCompiler | LLVMCompiler, Renderer] = {}
        self._hooks: dict[str, Callable[[object], Kernel]] = {}

    @property
    def compiler(self) -> CCompiler | LLVMCompiler:
        """What makes machine code, as the setting `cpu_compiler` has it: LLVM, or a C compiler.

        DeviceError if there is none, which is not remembered: install one and go on.
        """
        wanted = config.get().cpu_compiler
        if wanted == "c" or (wanted == "auto" and self._without_llvm):
            return self.c_compiler
        try:
            return self.llvm_compiler
        except DeviceError as error:
            if wanted == "llvm":
                raise
            reason = error.message
        try:
            compiler = self.c_compiler
        except DeviceError as error:
            raise DeviceError(f"{error.message}; or install LLVM ({reason})") from error
        self._without_llvm = True
        return compiler

    @property
    def llvm_compiler(self) -> LLVMCompiler:
        """The LLVM of llvmlite, found when it is needed. DeviceError without it."""
        if self._llvm is None:  # no lock, which a fork could leave held: asking twice does no harm
            self._llvm = LLVMCompiler()
        return self._llvm

    @property
    def c_compiler(self) -> CCompiler:
        """The compiler of the setting `cc`, found when it is needed. DeviceError without one."""
        wanted = config.get().cc
        compiler = self._compilers.get(wanted)
        if compiler is None:
            compiler = self._compilers[wanted] = CCompiler(wanted)
        return compiler

    def compiler_of(self, language: str) -> CCompiler | LLVMCompiler:
        """The compiler of texts in a language, "c" or "llvm". DeviceError without one."""
        return self.llvm_compiler if language == "llvm" else self.c_compiler

    @property
    def renderer(self) -> Renderer:
        """Renders kernels for this CPU, as the compiler in force describes it."""
        return self._renderer_for(self.compiler)

    def renderer_of(self, kernel: UOp) -> Renderer:
        """What renders this kernel: C if there is C text in it, else as ever."""
        from morok.ir import Ops  # running needs nothing of the IR

        has_text = kernel.has(Ops.CUSTOM) or kernel.has(Ops.CUSTOM_I)
        return self._renderer_for(self.c_compiler) if has_text else self.renderer

    def _renderer_for(self, compiler: CCompiler | LLVMCompiler) -> Renderer:
        renderer = self._renderers.get(compiler)
        if renderer is None:
            from morok.renderers import CRenderer, LLVMRenderer

            made = LLVMRenderer if isinstance(compiler, LLVMCompiler) else CRenderer
            renderer = self._renderers[compiler] = made.for_target(compiler.target.has)
        return renderer

    def load(self, binary: bytes) -> Library:
        """A compiled binary, ready to run. DeviceError if it is none of this machine's."""
        return Library(binary)

    def build(self, sources: Sequence[KernelSource]) -> list[Kernel]:
        """The kernels of `sources`, from the cache or compiled together; see `build_kernels`."""
        with self.building() as building:
            for source in sources:
                building.add(source)
            return building.finish()

    def building(self) -> DeviceBuilding:
        """Kernels to be built while the texts of later ones are made; see `Building`."""
        return DeviceBuilding(self)

    def register_hook(self, kind: str, make: Callable[[object], Kernel]) -> None:
        """Has CUSTOM_FUNCTIONs of this kind ("EncDec", "Graph") call the kernel `make(payload)`."""
        self._hooks[kind] = make

    def hook(self, kind: str, payload: object) -> Kernel:
        """What a CUSTOM_FUNCTION of this kind calls. DeviceError if nobody has registered it."""
        make = self._hooks.get(kind)
        if make is None:
            have = ", ".join(sorted(self._hooks)) or "none"
            raise DeviceError(
                f"device {self.name} has no hook for a CUSTOM_FUNCTION of kind {kind} "
                f"(registered: {have}); see `register_hook`"
            )
        return make(payload)

    def __repr__(self) -> str:
        return f"<CpuDevice {self.name}>"


class DeviceBuilding:
    """Kernels of any language that are built while more are added; see `Building`."""

    def __init__(self, device: CpuDevice) -> None:
        self._device = device
        self._languages: list[str] = []  # of the sources
        self._by_language: dict[str, Building] = {}

    def __enter__(self) -> DeviceBuilding:
        return self

    def __exit__(self, *raised: object) -> None:
        for building in self._by_language.values():
            building.stop()

    def add(self, source: KernelSource) -> None:
        """One more kernel. DeviceError without a compiler for its language."""
        language, device = source.language, self._device
        building = self._by_language.get(language)
        if building is None:
            compiler = device.compiler_of(language)
            building = self._by_language[language] = Building(compiler)
        building.add(source)
        self._languages.append(language)

    def finish(self) -> list[Kernel]:
        """The kernels, in the order in which they were added; errors as `Building.finish`."""
        built = {name: iter(each.finish()) for name, each in self._by_language.items()}
        return [next(built[language]) for language in self._languages]

    def outcomes(self) -> list[Kernel | CompileError | InvalidGraphError]:
        """As `finish`, with errors in the place of kernels."""
        built = {name: iter(each.outcomes()) for name, each in self._by_language.items()}
        return [next(built[language]) for language in self._languages]


class DeviceRegistry:
    """`Device[name]` is a device, made at its first use; names are not case-sensitive."""

    default = "CPU"

    def __init__(self) -> None:
        self._makers: dict[str, Callable[[], CpuDevice]] = {"CPU": CpuDevice}
        self._made: dict[str, CpuDevice] = {}

    def __getitem__(self, name: str) -> CpuDevice:
        """The device of that name; "CPU:0" is "CPU". DeviceError if there is none."""
        known = name.upper().removesuffix(":0")
        if known not in self._makers:
            import difflib  # slow to import, and only needed here

            near = difflib.get_close_matches(known, self._makers, 1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise DeviceError(
                f"there is no device {name!r}{hint} (there are: {', '.join(self._makers)})"
            )
        if known not in self._made:
            self._made.setdefault(known, self._makers[known]())
        return self._made[known]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.upper().removesuffix(":0") in self._makers

    def list(self) -> list[str]:
        """The names of all devices."""
        return [*self._makers]


Device = DeviceRegistry()
