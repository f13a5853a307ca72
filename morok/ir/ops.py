"""The vocabulary of the IR: operations, axis and reduction kinds, and the records ops carry.

Every record is a frozen dataclass of canonical values (numbers, strings, enums, dtypes, tuples),
so that the core can intern it, compare it and digest it the same way in every process.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from morok import _core
from morok.dtype import AddrSpace, DType, Scalar, cast_value, max_value, min_value

__all__ = [
    "AddrSpace",
    "AxisId",
    "AxisType",
    "BufferizeOpts",
    "CallInfo",
    "CustomFunctionKind",
    "DeviceSpec",
    "Estimates",
    "Invalid",
    "InvalidType",
    "KernelInfo",
    "Ops",
    "ReduceOp",
    "WmmaMetadata",
    "WmmaUpcastAxes",
]


class _Vocabulary(enum.EnumType):
    """The metaclass of enums whose members are named all over: looking them up is quick."""


_core.plain_lookup(_Vocabulary)


class Ops(enum.IntEnum, metaclass=_Vocabulary):
    """Every operation. Numbers are positions in this list and mean nothing outside one process."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        """Numbers from 1 (so that no op is false) without gaps: a set of ops is a bit mask."""
        return count + 1

    # loop control
    RANGE = enum.auto()
    END = enum.auto()
    # reduction
    REDUCE_AXIS = enum.auto()
    REDUCE = enum.auto()
    ALLREDUCE = enum.auto()
    # memory
    BUFFER = enum.auto()
    BUFFER_VIEW = enum.auto()
    BUFFERIZE = enum.auto()
    INDEX = enum.auto()
    POINTER_INDEX = enum.auto()
    LOAD = enum.auto()
    STORE = enum.auto()
    # kernel and callable
    SINK = enum.auto()
    CALL = enum.auto()
    FUNCTION = enum.auto()
    TUPLE = enum.auto()
    GET_TUPLE = enum.auto()
    PROGRAM = enum.auto()
    LINEAR = enum.auto()
    SOURCE = enum.auto()
    PROGRAM_BINARY = enum.auto()
    AFTER = enum.auto()
    BARRIER = enum.auto()
    # vector
    VECTORIZE = enum.auto()
    GEP = enum.auto()
    VCONST = enum.auto()
    CAT = enum.auto()
    PTRCAT = enum.auto()
    # expansion
    UNROLL = enum.auto()
    CONTRACT = enum.auto()
    # hardware
    WMMA = enum.auto()
    SPECIAL = enum.auto()
    # control
    IF = enum.auto()
    ENDIF = enum.auto()
    # definition
    PARAM = enum.auto()
    DEFINE_LOCAL = enum.auto()
    DEFINE_VAR = enum.auto()
    DEFINE_REG = enum.auto()
    BIND = enum.auto()
    UNIQUE = enum.auto()
    LUNIQUE = enum.auto()
    DEVICE = enum.auto()
    CONST = enum.auto()
    # movement
    RESHAPE = enum.auto()
    PERMUTE = enum.auto()
    EXPAND = enum.auto()
    PAD = enum.auto()
    SHRINK = enum.auto()
    FLIP = enum.auto()
    # additional
    COPY = enum.auto()
    MSTACK = enum.auto()
    MSELECT = enum.auto()
    MULTI = enum.auto()
    GROUP = enum.auto()
    DETACH = enum.auto()
    CONTIGUOUS = enum.auto()
    CONTIGUOUS_BACKWARD = enum.auto()
    PRECAST = enum.auto()
    NOOP = enum.auto()
    CUSTOM = enum.auto()
    CUSTOM_I = enum.auto()
    CUSTOM_FUNCTION = enum.auto()
    # casts
    CAST = enum.auto()
    BITCAST = enum.auto()
    # unary
    NEG = enum.auto()
    NOT = enum.auto()
    SQRT = enum.auto()
    RSQRT = enum.auto()
    RECIPROCAL = enum.auto()
    EXP = enum.auto()
    EXP2 = enum.auto()
    LOG = enum.auto()
    LOG2 = enum.auto()
    SIN = enum.auto()
    COS = enum.auto()
    TAN = enum.auto()
    TRUNC = enum.auto()
    FLOOR = enum.auto()
    CEIL = enum.auto()
    ROUND = enum.auto()
    ABS = enum.auto()
    SIGN = enum.auto()
    ERF = enum.auto()
    SQUARE = enum.auto()
    # binary
    ADD = enum.auto()
    SUB = enum.auto()
    MUL = enum.auto()
    FDIV = enum.auto()
    IDIV = enum.auto()
    MOD = enum.auto()
    FLOORDIV = enum.auto()
    FLOORMOD = enum.auto()
    MAX = enum.auto()
    MIN = enum.auto()
    POW = enum.auto()
    AND = enum.auto()
    OR = enum.auto()
    XOR = enum.auto()
    SHL = enum.auto()
    SHR = enum.auto()
    LT = enum.auto()
    LE = enum.auto()
    GT = enum.auto()
    GE = enum.auto()
    EQ = enum.auto()
    NE = enum.auto()
    THREEFRY = enum.auto()
    # ternary
    WHERE = enum.auto()
    MULACC = enum.auto()


def _camel(name: str) -> str:
    """GROUP_REDUCE -> GroupReduce, the spelling of the printed form."""
    return "".join(part.capitalize() for part in name.split("_"))


class AxisType(enum.Enum, metaclass=_Vocabulary):
    """How the loop of a RANGE is scheduled."""

    PLACEHOLDER = 0
    LOOP = 1
    GLOBAL = 2
    THREAD = 3
    WARP = 4
    LOCAL = 5
    GROUP_REDUCE = 6
    UPCAST = 7
    REDUCE = 8
    UNROLL = 9

    @property
    def priority(self) -> int:
        """Default nesting: a lower value is an outer loop."""
        return _AXIS_PRIORITY[self]

    @property
    def is_reduce(self) -> bool:
        """True for the types that a REDUCE closes."""
        return self in (AxisType.REDUCE, AxisType.UNROLL, AxisType.GROUP_REDUCE)

    def __str__(self) -> str:
        return _camel(self.name)


_AXIS_PRIORITY = {
    AxisType.PLACEHOLDER: -3,
    AxisType.LOOP: -1,
    AxisType.GLOBAL: 0,
    AxisType.THREAD: 0,
    AxisType.WARP: 1,
    AxisType.LOCAL: 2,
    AxisType.GROUP_REDUCE: 2,
    AxisType.UPCAST: 3,
    AxisType.REDUCE: 4,
    AxisType.UNROLL: 5,
}


class _Accumulates(Protocol):
    """What `ReduceOp.step` needs of its operands: UOp and Tensor both have it."""

    def __add__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def maximum(self, other: Any, /) -> Any: ...
    def minimum(self, other: Any, /) -> Any: ...


_Acc = TypeVar("_Acc", bound=_Accumulates)


class ReduceOp(enum.Enum, metaclass=_Vocabulary):
    """A reduction: an associative, commutative step with an identity."""

    ADD = 0
    MUL = 1
    MAX = 2
    MIN = 3

    @property
    def alu(self) -> Ops:
        """The binary op of one step."""
        return _REDUCE_ALU[self]

    def identity(self, dtype: DType) -> Scalar:
        """The e with step(e, v) == v for every v of `dtype`; infinite for MIN and MAX of floats."""
        if self is ReduceOp.MAX:
            return min_value(dtype)
        if self is ReduceOp.MIN:
            return max_value(dtype)
        return cast_value(0 if self is ReduceOp.ADD else 1, dtype.scalar)

    def step(self, acc: _Acc, value: _Acc) -> _Acc:
        """acc + value, acc * value, or the larger or smaller, on anything with those operators."""
        result: _Acc
        match self:
            case ReduceOp.ADD:
                result = acc + value
            case ReduceOp.MUL:
                result = acc * value
            case ReduceOp.MAX:
                result = acc.maximum(value)
            case ReduceOp.MIN:
                result = acc.minimum(value)
        return result

    def __str__(self) -> str:
        return _camel(self.name)


_REDUCE_ALU = {
    ReduceOp.ADD: Ops.ADD,
    ReduceOp.MUL: Ops.MUL,
    ReduceOp.MAX: Ops.MAX,
    ReduceOp.MIN: Ops.MIN,
}


class InvalidType(enum.Enum):
    """The type of `Invalid`, the one constant that is no number."""

    INVALID = 0

    def __str__(self) -> str:
        return "Invalid"

    __repr__ = __str__


Invalid = InvalidType.INVALID
"""Value of an index CONST at a position that padding made unreachable; renderers never see it."""


class CustomFunctionKind(enum.Enum):
    """Which runtime hook a CUSTOM_FUNCTION calls."""

    ENC_DEC = 0
    GRAPH = 1

    def __str__(self) -> str:
        return _camel(self.name)


@dataclass(frozen=True, slots=True, order=True)
class AxisId:
    """Identity of a RANGE: U3 before kernels are split, R3 (renumbered) after."""

    number: int
    renumbered: bool = False

    def __str__(self) -> str:
        return f"{'R' if self.renumbered else 'U'}{self.number}"


@dataclass(frozen=True, slots=True, order=True)
class DeviceSpec:
    """A device by name and number; prints `CPU`, and `CPU:1` from the second on."""

    name: str = "CPU"
    index: int = 0

    @classmethod
    def parse(cls, text: str) -> DeviceSpec:
        """`cpu:1` -> DeviceSpec("CPU", 1). ValueError when what follows the colon is no number."""
        name, _, index = text.partition(":")
        return cls(name.upper(), int(index) if index else 0)

    def __str__(self) -> str:
        return f"{self.name}:{self.index}" if self.index else self.name


@dataclass(frozen=True, slots=True)
class BufferizeOpts:
    """Where a BUFFERIZE materialises."""

    device: DeviceSpec | None = None  # None: local to the kernel
    addrspace: AddrSpace = AddrSpace.GLOBAL
    removable: bool = True  # False: buffer_removal may not inline it


@dataclass(frozen=True, slots=True)
class CallInfo:
    """Annotations of a CALL or FUNCTION, safe as a cache key."""

    name: str | None = None
    grad_tag: str | None = None  # reserved for gradient callbacks
    metadata: tuple[str, ...] = ()
    precompile: bool = False
    precompile_backward: bool = False


@dataclass(frozen=True, slots=True)
class Estimates:
    """What one run of a kernel costs, counted on its graph."""

    flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def bytes_moved(self) -> int:
        """Both ways."""
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """Tells a kernel's SINK from any other SINK, and says what was done to it."""

    name: str = "kernel"
    axis_types: tuple[AxisType, ...] = ()
    applied_opts: tuple[Any, ...] = ()  # records of the optimizer, in order of application
    dont_use_locals: bool = False
    streaming: bool = False  # stores bypass the cache
    estimates: Estimates | None = None


@dataclass(frozen=True, slots=True)
class WmmaUpcastAxes:
    """Vectorisation of each operand of a WMMA: (axis, size) pairs."""

    a: tuple[tuple[int, int], ...] = ()
    b: tuple[tuple[int, int], ...] = ()
    c: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class WmmaMetadata:
    """Configuration of a tensor-core instruction D = A x B + C."""

    name: str  # e.g. "__hmma..."
    dims: tuple[int, int, int]  # N, M, K
    dtype_in: DType
    dtype_out: DType
    device: str  # the renderer or tensor-core backend, not a DEVICE node
    threads: int = 32  # per warp
    upcast_axes: WmmaUpcastAxes = WmmaUpcastAxes()
    reduce_axes: tuple[tuple[int, int], ...] = ()  # (axis, size)
    tile_grid: tuple[int, int] = (1, 1)  # rows, columns of fused accumulators

    @property
    def tile(self) -> tuple[int, int, int]:
        """Rows and columns of the whole result, and the length of its sums."""
        n, m, k = self.dims
        return m * self.tile_grid[0], n * self.tile_grid[1], k
