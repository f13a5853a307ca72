"""Dtypes: identity, promotion, exact conversions."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morok import config
from morok.dtype import (
    AddrSpace,
    DType,
    acc_dtype,
    cast_value,
    default_float,
    default_int,
    dtype_by_id,
    dtype_by_name,
    dtypes,
    from_bits,
    from_numpy,
    max_value,
    min_value,
    np_cast,
    parse_dtype,
    promote,
    sum_dtype,
    to_bits,
    to_numpy,
)
from morok.errors import DTypeError

SMALL_FLOATS = [dtypes.fp8e4m3, dtypes.fp8e5m2, dtypes.float16, dtypes.bfloat16]
IN_NUMPY = [t for t in dtypes.all if t not in (dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2)]


def same(a: float, b: float) -> bool:
    """Equal as numbers, NaN and the sign of zero included."""
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b and math.copysign(1, a) == math.copysign(1, b)


# Identity ----------------------------------------------------------------------------------------


def test_fields() -> None:
    f32 = dtypes.float32
    assert (f32.name, f32.kind, f32.bits, f32.count, f32.itemsize) == ("float32", "f", 32, 1, 4)
    assert f32.scalar is f32
    assert (f32.is_ptr, f32.base, f32.addrspace) == (False, f32, None)
    vector = f32.vec(4)
    assert (vector.name, vector.kind, vector.bits, vector.itemsize) == ("float32x4", "f", 32, 16)
    assert vector.scalar is f32
    pointer = f32.ptr()
    assert (pointer.name, pointer.kind, pointer.bits) == ("float32*global", "p", 64)
    assert (pointer.is_ptr, pointer.base, pointer.addrspace) == (True, f32, AddrSpace.GLOBAL)
    lanes = pointer.vec(2)
    assert (lanes.scalar, lanes.base, lanes.count, lanes.is_ptr) == (pointer, f32, 2, True)
    assert dtypes.bool is dtypes.bool_
    assert [t.kind for t in (dtypes.bool, dtypes.int8, dtypes.uint8, dtypes.index)] == list("biux")


def test_interned() -> None:
    assert dtypes.int8.vec(4) is dtypes.int8.vec(4)
    assert dtypes.int8.vec(1) is dtypes.int8
    assert dtypes.int8.ptr() is dtypes.int8.ptr(AddrSpace.GLOBAL)
    assert dtypes.int8.ptr() is not dtypes.int8.ptr(AddrSpace.LOCAL)


def test_interned_from_many_threads() -> None:
    gate = threading.Barrier(8)
    made: list[DType] = []

    def make() -> None:
        gate.wait()
        made.extend(dtypes.uint16.vec(n) for n in range(100, 140))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(t) for t in made}) == 40
    assert all(dtype_by_id(t.id) is t for t in made)


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (dtypes.float32, "Float32"),
        (dtypes.bfloat16, "BFloat16"),
        (dtypes.index, "Index"),
        (dtypes.void, "Void"),
        (dtypes.bool, "Bool"),
        (dtypes.uint8, "UInt8"),
        (dtypes.float32.vec(4), "<4 x Float32>"),
        (dtypes.float16.ptr(), "Float16*"),
        (dtypes.float16.ptr(AddrSpace.REG), "Float16*reg"),
        (dtypes.float32.vec(4).ptr(AddrSpace.LOCAL), "<4 x Float32>*local"),
        (dtypes.float32.ptr().vec(4), "<4 x Float32*>"),
    ],
)
def test_text_and_back(dtype: DType, text: str) -> None:
    assert str(dtype) == text
    assert parse_dtype(text) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype


def test_parse_makes_what_is_new_and_refuses_nonsense() -> None:
    assert parse_dtype("<77 x Int64>*reg") is dtypes.int64.vec(77).ptr(AddrSpace.REG)
    for text in ("", "float32", "<4 x Nope>", "<0 x Int8>", "Int8**", "Float32*nowhere"):
        with pytest.raises(DTypeError):
            parse_dtype(text)


def test_misuse() -> None:
    with pytest.raises(TypeError, match="not constructed"):
        DType()
    with pytest.raises(AttributeError, match="cannot be changed"):
        dtypes.int8.bits = 9
    with pytest.raises(AttributeError, match="cannot be changed"):
        del dtypes.int8.bits
    for wrong in (
        lambda: dtypes.int8.vec(2).vec(2),
        lambda: dtypes.int8.vec(0),
        lambda: dtypes.void.vec(2),
        lambda: dtypes.void.ptr(),
        lambda: dtypes.int8.ptr().ptr(),
        lambda: dtype_by_name("float"),
    ):
        with pytest.raises(DTypeError):
            wrong()


def test_ids_are_dense() -> None:
    count = max(dtypes.int32.vec(1000).id, 0) + 1
    assert [dtype_by_id(i).id for i in range(count)] == list(range(count))


# Promotion ---------------------------------------------------------------------------------------

# The table printed in JAX's documentation ("Type promotion semantics"); the first row and column
# are its headings too. `f*`, the weak float, is the default float here.
JAX_TABLE = """
b1 u1 u2 u4 u8 i1 i2 i4 i8 bf f2 f4 f8
u1 u1 u2 u4 u8 i2 i2 i4 i8 bf f2 f4 f8
u2 u2 u2 u4 u8 i4 i4 i4 i8 bf f2 f4 f8
u4 u4 u4 u4 u8 i8 i8 i8 i8 bf f2 f4 f8
u8 u8 u8 u8 u8 f* f* f* f* bf f2 f4 f8
i1 i2 i4 i8 f* i1 i2 i4 i8 bf f2 f4 f8
i2 i2 i4 i8 f* i2 i2 i4 i8 bf f2 f4 f8
i4 i4 i4 i8 f* i4 i4 i4 i8 bf f2 f4 f8
i8 i8 i8 i8 f* i8 i8 i8 i8 bf f2 f4 f8
bf bf bf bf bf bf bf bf bf bf f4 f4 f8
f2 f2 f2 f2 f2 f2 f2 f2 f2 f4 f2 f4 f8
f4 f4 f4 f4 f4 f4 f4 f4 f4 f4 f4 f4 f8
f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8
"""
CODES = {
    "b1": dtypes.bool, "u1": dtypes.uint8, "u2": dtypes.uint16, "u4": dtypes.uint32,
    "u8": dtypes.uint64, "i1": dtypes.int8, "i2": dtypes.int16, "i4": dtypes.int32,
    "i8": dtypes.int64, "bf": dtypes.bfloat16, "f2": dtypes.float16, "f4": dtypes.float32,
    "f8": dtypes.float64,
}  # fmt: skip


def test_promotion_is_jaxs_table() -> None:
    rows = [line.split() for line in JAX_TABLE.split("\n") if line]
    order = rows[0]
    for (row, a), (column, b) in itertools.product(enumerate(order), enumerate(order)):
        code = rows[row][column]
        expected = default_float() if code == "f*" else CODES[code]
        assert promote(CODES[a], CODES[b]) is expected, (a, b)


def test_weak_scalars_bend() -> None:
    for dtype in dtypes.all:
        assert promote(dtype, weak=[True]) is dtype
        assert promote(dtype, weak=[1]) is (default_int() if dtype.is_bool else dtype)
        assert promote(dtype, weak=[1.0]) is (dtype if dtype.is_float else default_float())
    assert promote(weak=[True]) is dtypes.bool
    assert promote(weak=[1, True]) is dtypes.int32
    assert promote(weak=[1, 2.5]) is dtypes.float32
    assert promote(weak=[int, float]) is dtypes.float32
    with config.override(default_float="float64", default_int="int64"):
        assert promote(dtypes.int8, weak=[0.5]) is dtypes.float64
        assert promote(dtypes.bool, weak=[5]) is dtypes.int64


def test_eight_bit_floats_do_not_widen_silently() -> None:
    for small in (dtypes.fp8e4m3, dtypes.fp8e5m2):
        assert promote(small, dtypes.int64) is small
        assert promote(small, dtypes.bool, weak=[1.5]) is small
        for other in dtypes.floats:
            if other is not small:
                with pytest.raises(DTypeError, match="no common dtype"):
                    promote(small, other)


def test_promotion_is_a_join() -> None:
    """Commutative always, and associative: only the order of reading differs, never the answer."""
    wide = [t for t in dtypes.all if t not in (dtypes.fp8e4m3, dtypes.fp8e5m2)]
    for a, b, c in itertools.product(wide, repeat=3):
        assert promote(a, b, c) is promote(c, b, a)
    for a in wide:
        assert promote(a, a) is promote(a) is a


def test_promotion_of_vectors_index_and_nonsense() -> None:
    assert promote(dtypes.int8.vec(4), dtypes.float16.vec(4)) is dtypes.float16.vec(4)
    assert promote(dtypes.index, dtypes.index) is dtypes.index
    assert promote(dtypes.index, weak=[3]) is dtypes.index
    for args in (
        (dtypes.index, dtypes.int32),
        (dtypes.int8.vec(4), dtypes.int8),
        (dtypes.void, dtypes.int8),
        (dtypes.float32.ptr(), dtypes.int8),
        (),
    ):
        with pytest.raises(DTypeError):
            promote(*args)
    with pytest.raises(DTypeError):
        promote(dtypes.index, weak=[1.0])
    with pytest.raises(DTypeError, match="str is not a Python number"):
        promote(dtypes.int8, weak=["1"])


def test_accumulators() -> None:
    got = {t.name: (acc_dtype(t).name, sum_dtype(t).name) for t in dtypes.all}
    assert got["bool"] == got["int8"] == got["int16"] == got["int32"] == ("int32", "int32")
    assert got["uint8"] == got["uint16"] == got["uint32"] == ("uint32", "uint32")
    assert got["float16"] == ("float32", "float16")
    assert got["bfloat16"] == ("float32", "bfloat16")
    assert got["fp8e4m3"] == ("float32", "fp8e4m3")
    for name in ("int64", "uint64", "float32", "float64"):
        assert got[name] == (name, name)
    assert acc_dtype(dtypes.float16.vec(8)) is dtypes.float32.vec(8)
    with pytest.raises(DTypeError):
        acc_dtype(dtypes.void)


# Conversions -------------------------------------------------------------------------------------


def test_ints_wrap() -> None:
    for dtype in dtypes.ints:
        target = to_numpy(dtype).type
        for value in (0, 1, -1, 127, 128, 255, 256, -128, -129, 2**31, 2**63, -(2**63), 2**64 - 1):
            raw = np.array([value % 2**64], dtype=np.uint64)
            assert cast_value(value, dtype) == int(raw.astype(target)[0])
    assert cast_value(2**200 + 5, dtypes.int8) == 5
    assert cast_value(True, dtypes.int8) == 1
    assert type(cast_value(True, dtypes.int8)) is int
    assert cast_value(2**63, dtypes.index) == -(2**63)


def test_floats_truncate_and_saturate() -> None:
    for dtype in (*dtypes.ints, dtypes.index):
        low, high = int(min_value(dtype)), int(max_value(dtype))
        assert cast_value(math.nan, dtype) == 0
        assert cast_value(math.inf, dtype) == high
        assert cast_value(-math.inf, dtype) == low
        assert cast_value(1e300, dtype) == high
        assert cast_value(-1e300, dtype) == low
        assert cast_value(2.9, dtype) == 2
        assert cast_value(-0.9, dtype) == 0
        assert cast_value(-2.9, dtype) == (0 if dtype.is_unsigned else -2)
        assert cast_value(float(high), dtype) == high
    assert cast_value(2.0**63, dtypes.uint64) == 2**63
    assert cast_value(127.9, dtypes.int8) == 127
    assert cast_value(128.0, dtypes.int8) == 127


def test_to_bool() -> None:
    assert [cast_value(v, dtypes.bool) for v in (0, 0.0, -0.0, 5e-324, math.nan, -7, True)] == [
        False, False, False, True, True, True, True,
    ]  # fmt: skip


def test_no_number_becomes_a_pointer_vector_or_void() -> None:
    for dtype in (dtypes.float32.ptr(), dtypes.float32.vec(2), dtypes.void):
        with pytest.raises(DTypeError, match="expected a scalar"):
            cast_value(1, dtype)


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=lambda t: t.name)
def test_every_bit_pattern_round_trips(dtype: DType) -> None:
    for bits in range(1 << dtype.bits):
        value = from_bits(bits, dtype)
        assert same(cast_value(value, dtype), value)
        if value == value:
            assert to_bits(value, dtype) == bits
        else:
            assert math.isnan(from_bits(to_bits(value, dtype), dtype))


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=lambda t: t.name)
def test_rounding_between_every_two_neighbours(dtype: DType) -> None:
    """Against the definition: the nearest value, on a tie the one whose last bit is 0."""
    top = 1 << (dtype.bits - 1)
    patterns = [b for b in range(top) if math.isfinite(from_bits(b, dtype))]
    if dtype.bits == 16:
        patterns = patterns[::13]
    for bits in patterns:
        low, high = from_bits(bits, dtype), from_bits(bits + 1, dtype)
        if not math.isfinite(high):
            continue
        middle = (low + high) / 2  # exact in float64
        assert Fraction(middle) * 2 == Fraction(low) + Fraction(high)
        even = high if bits & 1 else low
        assert same(cast_value(middle, dtype), even)
        assert same(cast_value(-middle, dtype), -even)
        assert cast_value(math.nextafter(middle, 0), dtype) == low
        assert cast_value(math.nextafter(middle, math.inf), dtype) == high


@pytest.mark.parametrize(
    ("dtype", "largest", "last_down", "past"),
    [
        (dtypes.fp8e4m3, 448.0, 470.0, 448.0),
        (dtypes.fp8e5m2, 57344.0, math.nextafter(61440.0, 0), math.inf),
        (dtypes.float16, 65504.0, math.nextafter(65520.0, 0), math.inf),
        (dtypes.bfloat16, 3.3895313892515355e38, 3.395e38, math.inf),
        (dtypes.float32, 3.4028234663852886e38, 3.4028235e38, math.inf),
    ],
    ids=lambda v: getattr(v, "name", None),
)
def test_overflow(dtype: DType, largest: float, last_down: float, past: float) -> None:
    assert cast_value(last_down, dtype) == largest
    for sign in (1, -1):
        assert same(cast_value(sign * 1e39, dtype), sign * past)
        assert same(cast_value(sign * math.inf, dtype), sign * past)
    assert math.isnan(cast_value(math.nan, dtype))
    assert same(cast_value(-0.0, dtype), -0.0)
    assert same(cast_value(-1e-60, dtype), -0.0)


def test_tie_past_the_largest_goes_to_infinity() -> None:
    assert cast_value(65520.0, dtypes.float16) == math.inf
    assert cast_value(61440.0, dtypes.fp8e5m2) == math.inf


@given(st.floats(allow_nan=True), st.sampled_from([dtypes.float16, dtypes.float32]))
def test_narrowing_is_numpys(value: float, dtype: DType) -> None:
    with np.errstate(over="ignore"):
        expected = float(np.float64(value).astype(to_numpy(dtype)))
    assert same(cast_value(value, dtype), expected)


@given(st.floats(width=32))
def test_bfloat16_is_the_upper_half_rounded(value: float) -> None:
    bits = int(np.float32(value).view(np.uint32))
    if value != value:
        return
    expected = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    assert to_bits(value, dtypes.bfloat16) == expected


@given(st.integers(-(2**70), 2**70) | st.integers(-500, 500), st.sampled_from(dtypes.floats))
def test_ints_are_rounded_once(value: int, dtype: DType) -> None:
    """Not through float64: 2**24 + 1 + a tiny bit must not tie."""
    got = cast_value(value, dtype)
    if dtype in (dtypes.float32, dtypes.float64) and -(2**63) <= value < 2**63:
        assert got == float(np.int64(value).astype(to_numpy(dtype)))
    if abs(value) >= (448 if dtype is dtypes.fp8e4m3 else 2**15):
        return  # overflow is tested on its own
    step = 1 << max(abs(value).bit_length() - 1 - {8: 2, 16: 7, 32: 23, 64: 52}[dtype.bits], 0)
    assert abs(Fraction(got) - value) <= step


def test_int_that_double_rounding_would_get_wrong() -> None:
    value = 2**60 + 2**36 + 1  # just past a float32 tie; float64 drops the 1
    assert cast_value(value, dtypes.float32) == float(2**60 + 2**37)
    assert cast_value(float(value), dtypes.float32) == float(2**60)
    assert cast_value(10**400, dtypes.float64) == math.inf


def test_bits_of_ints_and_bools() -> None:
    assert to_bits(-1, dtypes.int8) == 0xFF
    assert from_bits(0xFF, dtypes.int8) == -1
    assert (to_bits(True, dtypes.bool), from_bits(2, dtypes.bool)) == (1, True)
    assert to_bits(1.0, dtypes.float32) == 0x3F800000
    assert from_bits(0x3FF0000000000000, dtypes.float64) == 1.0


def test_extremes() -> None:
    for dtype in IN_NUMPY:
        low, high = min_value(dtype), max_value(dtype)
        if dtype.is_float:
            assert (low, high) == (-math.inf, math.inf)
        elif dtype.is_int:
            info = np.iinfo(to_numpy(dtype))
            assert (low, high) == (info.min, info.max)
    assert (min_value(dtypes.bool), max_value(dtypes.bool)) == (False, True)
    assert (min_value(dtypes.fp8e4m3), max_value(dtypes.fp8e4m3)) == (-448.0, 448.0)
    assert max_value(dtypes.uint8.vec(4)) == 255
    with pytest.raises(DTypeError):
        max_value(dtypes.void)


# NumPy and PyTorch -------------------------------------------------------------------------------


def test_numpy_both_ways() -> None:
    for dtype in IN_NUMPY:
        assert from_numpy(to_numpy(dtype)) is dtype
        assert to_numpy(dtype).itemsize == dtype.itemsize
    assert from_numpy("float32") is dtypes.float32
    assert from_numpy(np.longlong) is dtypes.int64
    assert to_numpy(dtypes.index) == np.int64


def test_what_numpy_lacks_says_so() -> None:
    for dtype in (dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2):
        with pytest.raises(DTypeError, match=f"NumPy has no {dtype.name}: cast to float32"):
            to_numpy(dtype)
    for dtype in (dtypes.void, dtypes.float32.vec(4), dtypes.float32.ptr()):
        with pytest.raises(DTypeError, match="NumPy has no dtype for"):
            to_numpy(dtype)
    for wrong in ("complex64", "O", "U3", "M8[s]", "longdouble"):
        with pytest.raises(DTypeError, match="a tensor cannot hold"):
            from_numpy(wrong)
    with pytest.raises(DTypeError, match="byte order"):
        from_numpy(">f4")


@pytest.mark.parametrize("source", IN_NUMPY, ids=lambda t: t.name)
@pytest.mark.parametrize("target", IN_NUMPY, ids=lambda t: t.name)
def test_np_cast_is_cast_value(source: DType, target: DType) -> None:
    specials = [0, 1, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1]
    values = [v for s in specials for v in (s, -s)]
    if source.is_float:
        values += [0.5, -0.5, -1.9, 300.7, 1e30, -1e30, math.inf, -math.inf, math.nan, -0.0]
    array = np.array([cast_value(v, source) for v in values], dtype=to_numpy(source))
    got = np_cast(array, target)
    assert got.dtype == to_numpy(target)
    for before, after in zip(array.tolist(), got.tolist(), strict=True):
        assert same(after, cast_value(before, target)), before


@pytest.mark.torch
def test_small_floats_are_torchs() -> None:
    import torch

    generator = np.random.default_rng(7)
    bits = generator.integers(0, 2**32, 20000, dtype=np.uint32)
    values = bits.view(np.float32)
    values = np.concatenate([values, generator.normal(0, 100, 20000).astype(np.float32)])
    for dtype, theirs in (
        (dtypes.bfloat16, torch.bfloat16),
        (dtypes.float16, torch.float16),
        (dtypes.fp8e5m2, torch.float8_e5m2),
        (dtypes.fp8e4m3, torch.float8_e4m3fn),
    ):
        converted = torch.from_numpy(values).to(theirs).to(torch.float32).tolist()
        for value, expected in zip(values.tolist(), converted, strict=True):
            assert same(cast_value(value, dtype), expected), (dtype, value)
