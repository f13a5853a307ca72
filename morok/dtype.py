"""Element types: scalars, vectors of them, pointers to them; how they promote and convert.

A `DType` is interned: equal types are the same object, so `is` compares and dicts are cheap.
The numeric rules (promotion, casts, accumulation) here are the only ones in the package; constant
folding, the reference interpreter and the renderers' tests all measure themselves against them.
"""

from __future__ import annotations

import math
import re
import struct
import threading
from collections.abc import Iterable
from enum import IntEnum
from functools import cache
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from morok import config
from morok.errors import DTypeError
from morok.float_format import FORMATS

Scalar = bool | int | float
"""A Python number as it stands in a CONST."""


class AddrSpace(IntEnum):
    """Where a pointer points: device memory, work-group memory, registers."""

    GLOBAL = 0
    LOCAL = 1
    REG = 2


class DType:
    """One element type. Take them from `dtypes`, `.vec(n)` and `.ptr()`; never construct one.

    id         dense small number, in order of creation; differs between processes
    name       "float32", "float32x4", "float32*global"; the same in every process
    kind       "b" bool, "i" signed, "u" unsigned, "f" float, "x" index, "v" void, "p" pointer
    bits       width of one element in memory (bool 8, index and pointers 64, void 0)
    count      number of lanes, 1 for a scalar
    scalar     the type of one lane (itself for a scalar)
    is_ptr     whether a lane is a pointer
    base       what a pointer points to; itself for everything else
    addrspace  a pointer's address space; None for everything else
    """

    __slots__ = (
        "__weakref__",
        "_text",
        "addrspace",
        "base",
        "bits",
        "count",
        "id",
        "is_ptr",
        "kind",
        "name",
        "scalar",
    )

    id: int
    name: str
    kind: str
    bits: int
    count: int
    scalar: DType
    is_ptr: bool
    base: DType
    addrspace: AddrSpace | None
    _text: str

    def __init__(self) -> None:
        raise TypeError("DType is not constructed directly: use morok.dtypes, .vec(n) or .ptr()")

    def vec(self, count: int) -> DType:
        """The vector of `count` lanes of this scalar; `count` 1 gives the scalar back."""
        if self.count != 1:
            raise DTypeError(f"{self} is a vector already: call .scalar.vec({count})")
        if self.kind == "v":
            raise DTypeError("void has no vectors")
        if not 1 <= count < 1 << 16:
            raise DTypeError(f"a vector of {self} has 1 to 65535 lanes, got {count}")
        return self if count == 1 else _intern(self, count, None)

    def ptr(self, addrspace: AddrSpace = AddrSpace.GLOBAL) -> DType:
        """The pointer to this type in `addrspace`. How much it points at is not part of it."""
        if self.kind in "vp":
            raise DTypeError(f"there is no pointer to {self}")
        return _intern(self, 1, AddrSpace(addrspace))

    @property
    def itemsize(self) -> int:
        """Bytes of one value in memory, all lanes."""
        return self.bits * self.count // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        """Signed, unsigned or index."""
        return self.kind in "iux"

    @property
    def is_unsigned(self) -> bool:
        return self.kind == "u"

    @property
    def is_bool(self) -> bool:
        return self.kind == "b"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a DType cannot be changed (setting {name!r} of {self.name})")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a DType cannot be changed (deleting {name!r} of {self.name})")

    def __repr__(self) -> str:
        return f"dtypes.{self.name}" if self.name in _BY_NAME else f"<dtype {self.name}>"

    def __str__(self) -> str:
        """The spelling in printed graphs: `Float32`, `<4 x Float32>`, `Float32*`."""
        return self._text

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return parse_dtype, (self._text,)


_SPACE_SUFFIX: Final = {AddrSpace.GLOBAL: "*", AddrSpace.LOCAL: "*local", AddrSpace.REG: "*reg"}

_lock = threading.Lock()
_table: dict[tuple[DType, int, AddrSpace | None], DType] = {}
_by_id: list[DType] = []
_by_text: dict[str, DType] = {}


def _scalar(name: str, text: str, kind: str, bits: int) -> DType:
    """A scalar with the next id; runs at import only."""
    made: DType = object.__new__(DType)
    fields = {"name": name, "kind": kind, "bits": bits, "count": 1, "scalar": made, "base": made}
    fields |= {"id": len(_by_id), "is_ptr": False, "addrspace": None, "_text": text}
    _publish(made, fields)
    return made


def _publish(made: DType, fields: dict[str, object]) -> None:
    for field, value in fields.items():
        object.__setattr__(made, field, value)
    _by_id.append(made)
    _by_text[made._text] = made


def _intern(of: DType, count: int, addrspace: AddrSpace | None) -> DType:
    """The vector (`addrspace` None) or pointer made of `of`."""
    key = (of, count, addrspace)
    found = _table.get(key)
    if found is not None:
        return found
    with _lock:
        found = _table.get(key)
        if found is not None:
            return found
        made: DType = object.__new__(DType)
        fields: dict[str, object] = {"id": len(_by_id), "count": count}
        if addrspace is None:
            fields |= {"name": f"{of.name}x{count}", "_text": f"<{count} x {of}>"}
            fields |= {"kind": of.kind, "bits": of.bits, "scalar": of, "is_ptr": of.is_ptr}
            fields |= {"base": of.base if of.is_ptr else made, "addrspace": of.addrspace}
        else:
            fields |= {"name": f"{of.name}*{addrspace.name.lower()}"}
            fields |= {"_text": f"{of}{_SPACE_SUFFIX[addrspace]}", "kind": "p", "bits": 64}
            fields |= {"scalar": made, "is_ptr": True, "base": of, "addrspace": addrspace}
        _publish(made, fields)
        _table[key] = made
        return made


class dtypes:
    """The scalar types.

    fp8e4m3 is the OCP format: no infinities, largest value 448, one NaN per sign. fp8e5m2 and
    bfloat16 are IEEE-like. `index` is the type of index arithmetic before it gets a machine width.
    """

    void: Final = _scalar("void", "Void", "v", 0)
    bool_: Final = _scalar("bool", "Bool", "b", 8)
    int8: Final = _scalar("int8", "Int8", "i", 8)
    int16: Final = _scalar("int16", "Int16", "i", 16)
    int32: Final = _scalar("int32", "Int32", "i", 32)
    int64: Final = _scalar("int64", "Int64", "i", 64)
    uint8: Final = _scalar("uint8", "UInt8", "u", 8)
    uint16: Final = _scalar("uint16", "UInt16", "u", 16)
    uint32: Final = _scalar("uint32", "UInt32", "u", 32)
    uint64: Final = _scalar("uint64", "UInt64", "u", 64)
    fp8e4m3: Final = _scalar("fp8e4m3", "FP8E4M3", "f", 8)
    fp8e5m2: Final = _scalar("fp8e5m2", "FP8E5M2", "f", 8)
    float16: Final = _scalar("float16", "Float16", "f", 16)
    bfloat16: Final = _scalar("bfloat16", "BFloat16", "f", 16)
    float32: Final = _scalar("float32", "Float32", "f", 32)
    float64: Final = _scalar("float64", "Float64", "f", 64)
    index: Final = _scalar("index", "Index", "x", 64)
    bool: Final = bool_

    signed: Final = (int8, int16, int32, int64)
    unsigned: Final = (uint8, uint16, uint32, uint64)
    ints: Final = signed + unsigned
    floats: Final = (fp8e4m3, fp8e5m2, float16, bfloat16, float32, float64)
    all: Final = (bool_, *ints, *floats)
    """Every type a tensor can have."""


_BY_NAME: Final = {dtype.name: dtype for dtype in (*dtypes.all, dtypes.void, dtypes.index)}


def dtype_by_id(number: int) -> DType:
    """The dtype whose `id` is `number`."""
    return _by_id[number]


def dtype_by_name(name: str) -> DType:
    """The scalar dtype called `name`, as in `dtypes`."""
    try:
        return _BY_NAME[name]
    except KeyError:
        known = ", ".join(_BY_NAME)
        raise DTypeError(f"no dtype is called {name!r}: expected one of {known}") from None


_VECTOR = re.compile(r"<(\d{1,9}) x (.+)>")
_POINTER = re.compile(r"(.+)\*(local|reg)?")


def parse_dtype(text: str) -> DType:
    """The inverse of `str(dtype)`."""
    found = _by_text.get(text)
    if found is not None:
        return found
    if vector := _VECTOR.fullmatch(text):
        return parse_dtype(vector[2]).vec(int(vector[1]))
    if pointer := _POINTER.fullmatch(text):
        return parse_dtype(pointer[1]).ptr(AddrSpace[(pointer[2] or "global").upper()])
    raise DTypeError(f"{text!r} is not a dtype: expected e.g. Float32, <4 x Float32>, Float32*")


# Promotion ---------------------------------------------------------------------------------------

# JAX's published type promotion lattice (docs.jax.dev, "Type promotion semantics"), without complex
# and 4-bit types. Each entry points at the types directly above it; the result of a promotion is
# the least upper bound. "int" and "float" are Python scalars, which have no width of their own.
_LATTICE: Final[dict[str, tuple[str, ...]]] = {
    "bool": ("int",),
    "int": ("uint8", "int8"),
    "uint8": ("uint16", "int16"),
    "uint16": ("uint32", "int32"),
    "uint32": ("uint64", "int64"),
    "uint64": ("float",),
    "int8": ("int16",),
    "int16": ("int32",),
    "int32": ("int64",),
    "int64": ("float",),
    "float": ("fp8e4m3", "fp8e5m2", "float16", "bfloat16"),
    "fp8e4m3": (),
    "fp8e5m2": (),
    "float16": ("float32",),
    "bfloat16": ("float32",),
    "float32": ("float64",),
    "float64": (),
}


@cache
def _above(name: str) -> frozenset[str]:
    """`name` and everything it may promote to."""
    return frozenset({name}).union(*(_above(upper) for upper in _LATTICE[name]))


@cache
def _join(names: frozenset[str]) -> str | None:
    """The least upper bound, None where the lattice has none."""
    common = frozenset.intersection(*(_above(name) for name in names))
    least = [name for name in common if common <= _above(name)]
    return least[0] if least else None


def _weak_name(scalar: object) -> str:
    kind = scalar if isinstance(scalar, type) else type(scalar)
    for python, name in ((bool, "bool"), (int, "int"), (float, "float")):
        if issubclass(kind, python):
            return name
    raise DTypeError(f"{kind.__name__} is not a Python number that can meet a tensor")


def promote(*args: DType, weak: Iterable[Scalar | type[Scalar]] = ()) -> DType:
    """The dtype in which values of these dtypes meet, on JAX's published lattice.

    `weak` are Python scalars (or their types): they bend to the dtypes and widen them only across
    kinds (int8 with 1 is int8; int32 with 1.0 is the default float). Where only scalars and bools
    meet, the default int and float of `morok.config` decide. Vectors of one length promote lane
    by lane. DTypeError where the lattice has no answer, e.g. for an 8-bit float with another float.
    """
    if not args:
        names = frozenset(map(_weak_name, weak))
        if not names:
            raise DTypeError("promote() needs at least one dtype or Python scalar")
        return _resolve(names, args)
    first = args[0]
    weak_names = frozenset(map(_weak_name, weak))
    if not weak_names and all(dtype is first for dtype in args):
        return first
    counts = {dtype.count for dtype in args}
    if len(counts) != 1:
        raise DTypeError(f"vectors of different length do not promote: {_listing(args)}")
    if any(dtype.scalar.name == "index" for dtype in args):
        if all(dtype is first for dtype in args) and "float" not in weak_names:
            return first
        raise DTypeError(f"index meets only itself and Python ints, not {_listing(args)}")
    names = frozenset(dtype.scalar.name for dtype in args) | weak_names
    return _resolve(names, args).vec(first.count)


def _resolve(names: frozenset[str], args: tuple[DType, ...]) -> DType:
    if not names <= _LATTICE.keys():
        raise DTypeError(f"no arithmetic on {_listing(args)}")
    joined = _join(names)
    if joined is None:
        raise DTypeError(
            f"{', '.join(sorted(names))} have no common dtype (8-bit floats never widen "
            "silently): cast one to the other's dtype or both to a wider one"
        )
    if joined == "int":
        return default_int()
    return default_float() if joined == "float" else _BY_NAME[joined]


def _listing(args: tuple[DType, ...]) -> str:
    return ", ".join(map(str, args))


def default_float() -> DType:
    """The dtype Python floats and `int / int` get (`config.default_float`)."""
    return _BY_NAME[config.get().default_float]


def default_int() -> DType:
    """The dtype Python ints get (`config.default_int`)."""
    return _BY_NAME[config.get().default_int]


def acc_dtype(dtype: DType) -> DType:
    """The dtype a sum or product of `dtype` is accumulated in.

    bool and narrow ints in 32 bits of their signedness (bool: int32), halves and 8-bit floats in
    float32, everything else in itself.
    """
    scalar = dtype.scalar
    if scalar.kind in "vp":
        raise DTypeError(f"no arithmetic on {dtype}")
    if scalar.kind == "f" and scalar.bits < 32:
        scalar = dtypes.float32
    elif scalar.kind == "u" and scalar.bits < 32:
        scalar = dtypes.uint32
    elif scalar.kind in "bi" and scalar.bits < 32:
        scalar = dtypes.int32
    return scalar.vec(dtype.count)


def sum_dtype(dtype: DType) -> DType:
    """The dtype a sum or product of `dtype` returns: as `acc_dtype`, but floats keep their own."""
    return dtype if dtype.kind == "f" else acc_dtype(dtype)


# Values ------------------------------------------------------------------------------------------


_SINGLE = struct.Struct("<f")


def cast_value(value: Scalar, dtype: DType) -> Scalar:
    """`value` converted to scalar `dtype`, as every backend converts it.

    to bool   whether it is not zero (NaN is True)
    to ints   ints wrap; floats truncate toward zero, saturate, NaN gives 0
    to floats rounded once to nearest even; past the largest value it is infinite (in fp8e4m3,
              which has no infinity, the largest value, as in PyTorch); the result is the Python
              float of that exact value
    """
    kind = dtype.kind
    if dtype.count != 1 or kind in "vp":
        raise DTypeError(f"a number cannot be cast to {dtype}: expected a scalar dtype")
    if kind == "f":
        if type(value) is float:
            if dtype is dtypes.float64:
                return value
            if dtype is dtypes.float32 and -3.4e38 < value < 3.4e38:  # rounds to a finite number
                single: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
                return single
        return FORMATS[dtype.name].round(value)
    if kind == "b":
        return value != 0
    low, high = _int_range(dtype)
    if isinstance(value, float):
        if value != value:
            return 0
        return high if value >= high else low if value <= low else int(value)
    wrapped = int(value) & ((1 << dtype.bits) - 1)
    return wrapped - (1 << dtype.bits) if wrapped > high else wrapped


def _int_range(dtype: DType) -> tuple[int, int]:
    if dtype.kind == "u":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def min_value(dtype: DType) -> Scalar:
    """The lowest value of a dtype's lane, -inf included: what MAX starts from."""
    return _extreme(dtype, 0)


def max_value(dtype: DType) -> Scalar:
    """The highest value of a dtype's lane, inf included: what MIN starts from."""
    return _extreme(dtype, 1)


def _extreme(dtype: DType, side: int) -> Scalar:
    if dtype.kind == "b":
        return bool(side)
    if dtype.kind in "iux":
        return _int_range(dtype)[side]
    if dtype.kind == "f":
        fmt = FORMATS[dtype.scalar.name]
        highest = math.inf if fmt.has_inf else fmt.largest
        return highest if side else -highest
    raise DTypeError(f"{dtype} has no values to order")


def to_bits(value: Scalar, dtype: DType) -> int:
    """The bit pattern, as an unsigned int, of `value` cast to scalar `dtype`; NaN is quiet."""
    cast = cast_value(value, dtype)
    if dtype.kind == "f":
        return FORMATS[dtype.name].encode(cast)
    return int(cast) & ((1 << dtype.bits) - 1)


def from_bits(bits: int, dtype: DType) -> Scalar:
    """The value whose bit pattern in scalar `dtype` is the unsigned int `bits`."""
    if dtype.kind == "f" and dtype.count == 1:
        return FORMATS[dtype.name].decode(bits)
    return cast_value(bits, dtype)


# NumPy -------------------------------------------------------------------------------------------

_NUMPY: Final = {
    dtype: np.dtype(dtype.name)
    for dtype in dtypes.all
    if dtype.name not in ("bfloat16", "fp8e4m3", "fp8e5m2")
}
_FROM_NUMPY: Final = {numpy_dtype: dtype for dtype, numpy_dtype in _NUMPY.items()}


def to_numpy(dtype: DType) -> np.dtype[Any]:
    """NumPy's dtype of the same name; `index` is int64. DTypeError where NumPy has none."""
    if dtype is dtypes.index:
        return np.dtype(np.int64)
    found = _NUMPY.get(dtype)
    if found is not None:
        return found
    if dtype.kind == "f" and dtype.count == 1:
        raise DTypeError(
            f"NumPy has no {dtype.name}: cast to float32 to get the values, "
            f"or bitcast to uint{dtype.bits} to get the bits"
        )
    raise DTypeError(f"NumPy has no dtype for {dtype}")


def from_numpy(numpy_dtype: npt.DTypeLike) -> DType:
    """The dtype of a NumPy dtype (or what `np.dtype` accepts). DTypeError where there is none."""
    wanted = np.dtype(numpy_dtype)
    found = _FROM_NUMPY.get(wanted)
    if found is not None:
        return found
    if not wanted.isnative and wanted.newbyteorder("=") in _FROM_NUMPY:
        raise DTypeError(f"{wanted} is not in native byte order: convert with .astype first")
    known = ", ".join(str(known) for known in _FROM_NUMPY)
    raise DTypeError(f"a tensor cannot hold NumPy's {wanted}: expected one of {known}")


def np_cast(array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """`array` converted to `to_numpy(dtype)` by the rules of `cast_value`, element by element."""
    target = to_numpy(dtype)
    if array.dtype.kind == "f" and dtype.is_int:
        low, high = _int_range(dtype)
        wide = array.astype(np.float64)
        # high + 1 and low are powers of two, so the comparisons are exact.
        above, below = wide >= float(high + 1), wide < float(low)
        inside = np.where(above | below | np.isnan(wide), 0.0, wide).astype(target)
        return np.where(above, target.type(high), np.where(below, target.type(low), inside))
    with np.errstate(over="ignore"):
        return array.astype(target)
