"""float16, bfloat16 and the 8-bit floats: stored as they are, computed in float32.

Values are widened when they are read and rounded once when they leave the kernel; a cast or PRECAST
that the program asks for rounds where it stands. Conversions between float16 and float32 are every
target's own; the others are integer arithmetic on the bits, the same on all.
"""

from __future__ import annotations

import math

from morok._core import toposort
from morok.dtype import AddrSpace, DType, dtypes
from morok.float_format import FORMATS
from morok.ir import GroupOp, Ops, Pat, RuleSet, UOp

__all__ = ["SMALL_FLOATS", "promote_small_floats", "small_floats"]

SMALL_FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2)

_COMPUTED = GroupOp.ALU - {Ops.CAST, Ops.BITCAST, Ops.WHERE}
_MOVED = frozenset({Ops.WHERE, Ops.VECTORIZE, Ops.GEP, Ops.CAT})


def promote_small_floats(sink: UOp) -> UOp:
    """Arithmetic on small floats -> arithmetic on float32.

    Before: ALU ops of any float dtype. After: values of small float dtypes are only read, written,
    moved, cast and bitcast; accumulators are float32.
    """
    order = toposort(sink)
    if not any(_is_small(node.dtype) for node in order):
        return sink
    promotion = _Promotion()
    for node in order:
        promotion.visit(node)
    return promotion.narrow[sink]


def _is_small(dtype: DType) -> bool:
    return dtype.scalar in SMALL_FLOATS


def _float32(dtype: DType) -> DType:
    return dtypes.float32.vec(dtype.count)


class _Promotion:
    """The rewritten graph: each node in its own dtype, and small floats in float32 as well."""

    def __init__(self) -> None:
        self.narrow: dict[UOp, UOp] = {}
        self._wide: dict[UOp, UOp] = {}
        self._unrounded: set[UOp] = set()  # small floats computed in float32

    def visit(self, node: UOp) -> None:
        """Rebuilds a node whose sources have been visited."""
        small = _is_small(node.dtype)
        moved = node.op in _MOVED and any(s in self._unrounded for s in node.src)
        if small and (node.op in _COMPUTED or moved or self._from_register(node)):
            src = tuple([self.wide(s) for s in node.src])
            self._wide[node] = UOp(node.op, _float32(node.dtype), src, node.arg)
            self.narrow[node] = self._wide[node].cast(node.dtype)
            self._unrounded.add(node)
        elif node.op is Ops.PRECAST:
            self.narrow[node] = self.narrow[node.src[0]]  # which is rounded
        elif self._is_register(node):
            base = _float32(node.dtype.base)
            src = tuple([self.narrow[s] for s in node.src])
            dtype = base.ptr(AddrSpace.REG) if node.dtype.is_ptr else _float32(node.dtype)
            self.narrow[node] = UOp(node.op, dtype, src, node.arg)
        elif node.op in _COMPUTED or node.op is Ops.CAST or self._to_register(node):
            src = tuple([self.wide(s) for s in node.src])
            same = node.op is Ops.CAST and src[0].dtype is node.dtype
            self.narrow[node] = src[0] if same else UOp(node.op, node.dtype, src, node.arg)
        else:
            src = tuple([self.narrow[s] for s in node.src])
            self.narrow[node] = UOp(node.op, node.dtype, src, node.arg)

    def wide(self, node: UOp) -> UOp:
        """A value in float32 if it is a small float, else as it is."""
        if not _is_small(node.dtype) or node.op is Ops.INDEX:
            return self.narrow[node]
        if node not in self._wide:
            if node.op in (Ops.CONST, Ops.VCONST):
                self._wide[node] = UOp(node.op, _float32(node.dtype), (), node.arg)
            else:
                self._wide[node] = self.narrow[node].cast(dtypes.float32)
        return self._wide[node]

    def _is_register(self, node: UOp) -> bool:
        """Whether a node is a register of small floats or an address in it."""
        pointer = node.src[0] if node.op is Ops.INDEX else node
        dtype = pointer.dtype
        return dtype.addrspace is AddrSpace.REG and _is_small(dtype.base)

    def _from_register(self, node: UOp) -> bool:
        return node.op is Ops.LOAD and self._is_register(node.src[1])

    def _to_register(self, node: UOp) -> bool:
        return node.op is Ops.STORE and self._is_register(node.src[0])


small_floats = RuleSet("small_floats")
"""Conversions of small floats that no target has."""


@small_floats.opaque(Pat(Ops.CAST, (Pat(name="x"),), name="cast", dtype="biuf"))
def convert_small_float(x: UOp, cast: UOp) -> UOp | None:
    """CAST from or to a small float -> CAST float32, and integer arithmetic on its bits"""
    source, target = x.dtype.scalar, cast.dtype.scalar
    if source in SMALL_FLOATS and target is not dtypes.float32:
        return x.cast(dtypes.float32).cast(target)
    if target not in SMALL_FLOATS:
        return None if source not in SMALL_FLOATS[1:] else _widened(x)
    if source is not dtypes.float32:
        return _sticky_float32(x).cast(target)
    return None if target is dtypes.float16 else _rounded(x, target)


def _widened(x: UOp) -> UOp:
    """A bfloat16 or 8-bit float as float32."""
    source, count = x.dtype.scalar, x.dtype.count
    form = FORMATS[source.name]
    bits = x.bitcast((dtypes.uint16 if source.bits == 16 else dtypes.uint8).vec(count))
    bits = bits.cast(dtypes.uint32)
    if source is dtypes.bfloat16:
        return (bits << 16).bitcast(_float32(x.dtype))
    sign = (bits >> (source.bits - 1)) << 31
    field = bits & ((1 << (source.bits - 1)) - 1)
    # As a float32 with the small format's exponent; one multiplication corrects the exponent and
    # makes subnormals normal.
    moved = (field << (23 - form.mantissa)).bitcast(_float32(x.dtype))
    value = moved * 2.0 ** (126 + form.least_exponent + form.mantissa)
    top = ((1 << (source.bits - 1)) - 1) >> form.mantissa << form.mantissa
    if form.has_inf:
        special = (field << (23 - form.mantissa)) | 0x7F800000
        exact = (field >= top).where(special, value.bitcast(bits.dtype))
    else:
        exact = field.eq((1 << (source.bits - 1)) - 1).where(0x7FC00000, value.bitcast(bits.dtype))
    return (exact | sign).bitcast(_float32(x.dtype))


def _rounded(x: UOp, target: DType) -> UOp:
    """A float32 as a bfloat16 or 8-bit float, rounded to nearest even."""
    count = x.dtype.count
    form = FORMATS[target.name]
    drop = 23 - form.mantissa
    bits = x.bitcast(dtypes.uint32.vec(count))
    size = bits & 0x7FFFFFFF
    sign = (bits >> 31) << (target.bits - 1)
    half_even = ((size >> drop) & 1) + ((1 << (drop - 1)) - 1)
    if target is dtypes.bfloat16:
        value = (size + half_even) >> drop
    else:
        # The exponent of the least normal number becomes 1.
        rebias = (126 + form.least_exponent + form.mantissa) << 23
        normal = (size - rebias + half_even) >> drop
        # Adding a number whose last place is the smallest subnormal rounds to it.
        anchor = 2.0 ** (form.least_exponent + 23)
        tiny = (size.bitcast(x.dtype) + anchor).bitcast(bits.dtype) - _pattern(anchor)
        value = (size < rebias + (1 << 23)).where(tiny, normal)
    largest = form.encode(form.largest)
    value = (value > largest).where(largest + 1 if form.has_inf else largest, value)
    nan = form.encode(math.nan)
    value = (size > 0x7F800000).where(nan, value) | sign
    integer = dtypes.uint16 if target.bits == 16 else dtypes.uint8
    return value.cast(integer).bitcast(target.vec(count))


def _pattern(value: float) -> int:
    """The bits of a float32."""
    return FORMATS["float32"].encode(value)


def _sticky_float32(x: UOp) -> UOp:
    """A number as a float32 that rounds to any small float as the number itself does.

    Rounded to odd: an inexact result has its last bit set, so no tie is made up (S. Boldo,
    G. Melquiond, "Emulation of FMA and correctly rounded sums", IEEE Trans. Comput. 57, 2008).
    """
    if x.dtype.kind in "bui" and x.dtype.bits <= 16:
        return x.cast(dtypes.float32)
    if x.dtype.kind in "ui":
        x = (_sticky_int64(x) if x.dtype.bits == 64 else x).cast(dtypes.float64)
    near = x.cast(dtypes.float32)
    back = near.cast(dtypes.float64)
    bits = near.bitcast(dtypes.int32.vec(x.dtype.count))
    # Toward zero first: then setting the last bit is rounding to odd.
    above = ((back > x) & (x > 0.0)) | ((back < x) & (x < 0.0))
    inexact = back.ne(x) & x.eq(x)
    odd = (bits + above.where(-1, bits.const_like(0))) | 1
    return inexact.where(odd, bits).bitcast(_float32(x.dtype))


def _sticky_int64(x: UOp) -> UOp:
    """A 64-bit integer that float64 holds exactly, on the same side of every small float's ties."""
    low = x & 0xFFF
    cut = (x - low) | low.ne(0).where(0x1000, x.const_like(0))
    big = (x >= 1 << 53) if x.dtype.kind == "u" else (x >= 1 << 53) | (x <= -(1 << 53))
    return big.where(cut, x)
