"""Small C functions that kernels call: what has no operator in C, or another meaning there.

Each builder gives (name, definition, dtypes used). Definitions are guarded by the preprocessor, so
that kernels which stand in one translation unit may each bring theirs. All are total, as page 7's
table wants: no argument is undefined behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from morok.dtype import DType, dtypes
from morok.renderers.c_types import (
    literal,
    mask_dtype,
    mask_of,
    short_name,
    unaligned,
    unsigned,
    vector_name,
)

__all__ = ["Helper", "helper_name"]


@dataclass(frozen=True, slots=True)
class Helper:
    """A C function: its name, its text, and the types it mentions."""

    name: str
    text: str
    uses: tuple[DType, ...]

    @property
    def guarded(self) -> str:
        """The definition, empty where an earlier kernel of the same source has given it."""
        guard = f"MOROK_{self.name.upper()}"
        return f"#ifndef {guard}\n#define {guard}\n{self.text}\n#endif"


def helper_name(stem: str, *types: DType) -> str:
    """floordiv_i32, select_f32x8: a function of values of these types."""
    tags = [short_name(t.scalar) + (f"x{t.count}" if t.count > 1 else "") for t in types]
    return "_".join((stem, *tags))


def _function(
    stem: str, types: tuple[DType, ...], result: DType, params: str, body: str, *more: DType
) -> Helper:
    """A function called by `stem` and `types`."""
    name = helper_name(stem, *types)
    body = body.strip().replace("\n", "\n  ")
    text = f"static inline {vector_name(result)} {name}({params}) {{\n  {body}\n}}"
    return Helper(name, text, (result, *types, *more))


def _newer(builtin: str, text: str, older: str) -> str:
    """Statements with a `builtin` where the compiler has it, else another way."""
    return f"#if __has_builtin({builtin})\n{text}\n#else\n{older}\n#endif"


# ---- choosing ------------------------------------------------------------------------------------


def _select_text(dtype: DType, features: frozenset[str], mask: str, a: str, b: str) -> str:
    """`mask ? a : b` lane by lane. Where the processor has an instruction that gcc does not make of
    the masks, it is named."""
    value, bits = vector_name(dtype), vector_name(mask_of(dtype))
    width = _x86_vector(dtype)
    needed = {"": "sse4_1", "256": "avx"}.get(width)
    if needed in features and dtype.kind == "f" and "avx512f" not in features:
        kind = "ps" if dtype.bits == 32 else "pd"
        return f"__builtin_ia32_blendv{kind}{width}({b}, {a}, ({value}){mask})"
    return f"({value})(({mask} & ({bits}){a}) | (~{mask} & ({bits}){b}))"


@cache
def select(dtype: DType, features: frozenset[str]) -> Helper:
    """a where the mask is set, else b, on vectors."""
    mask, value = vector_name(mask_of(dtype)), vector_name(dtype)
    body = f"return {_select_text(dtype, features, 'm', 'a', 'b')};"
    params = f"{mask} m, {value} a, {value} b"
    return _function("select", (dtype,), dtype, params, body, mask_of(dtype))


@cache
def compared(stem: str, dtype: DType, features: frozenset[str]) -> Helper | None:
    """a < b ? a : b ("lesser") or a > b ? a : b ("greater") of vectors of floats: exactly what
    x86's min and max do. None where there is no such instruction."""
    builtin = _x86_extreme(stem, dtype, features)
    if builtin is None:
        return None
    value = vector_name(dtype)
    return _function(stem, (dtype,), dtype, f"{value} a, {value} b", f"return {builtin};")


def _x86_extreme(stem: str, dtype: DType, features: frozenset[str]) -> str | None:
    width = _x86_vector(dtype)
    if dtype.kind != "f" or {"": "sse2", "256": "avx"}.get(width) not in features:
        return None
    kind = "ps" if dtype.bits == 32 else "pd"
    return f"__builtin_ia32_{'min' if stem == 'lesser' else 'max'}{kind}{width}(a, b)"


@cache
def extreme(stem: str, dtype: DType, features: frozenset[str]) -> Helper:
    """max or min; of floats NaN if one operand is NaN, the second operand if they are equal."""
    value, symbol = vector_name(dtype), ">" if stem == "max" else "<"
    params = f"{value} a, {value} b"
    if dtype.count == 1:
        if dtype.kind != "f":
            return _function(stem, (dtype,), dtype, params, f"return a {symbol} b ? a : b;")
        # An instruction, and a branch that is hardly ever taken: not one on which is greater.
        body = f"{value} r = a {symbol} b ? a : b;\nreturn a != a ? a : r;"
        return _function(stem, (dtype,), dtype, params, body)
    mask = vector_name(mask_of(dtype))
    builtin = _x86_extreme("greater" if stem == "max" else "lesser", dtype, features)
    if builtin is not None:  # gives b if one is NaN: only a needs a look
        body = f"""{mask} nan = ({mask})(a != a);
{value} r = {builtin};
return {_select_text(dtype, features, "nan", "a", "r")};"""
    else:
        nan = " | (a != a)" if dtype.kind == "f" else ""
        body = f"""{mask} m = ({mask})((a {symbol} b){nan});
return {_select_text(dtype, features, "m", "a", "b")};"""
    return _function(stem, (dtype,), dtype, params, body, mask_of(dtype))


@cache
def any_lane(mask: DType, features: frozenset[str]) -> Helper:
    """Whether a lane of a mask is set."""
    name = vector_name(mask)
    width = _x86_vector(mask)
    needed = {"": "sse2", "256": "avx"}.get(width)
    uses: tuple[DType, ...] = (mask,)
    if needed in features:
        floats = dtypes.float32.vec(mask.itemsize // 4)
        uses = (mask, floats)
        test = f"__builtin_ia32_movmskps{width}(({vector_name(floats)})m)"
    else:
        test = " | ".join(f"m[{lane}]" for lane in range(mask.count))
    helper = helper_name("any", mask)
    text = f"static inline _Bool {helper}({name} m) {{\n  return ({test}) != 0;\n}}"
    return Helper(helper, text, uses)


# ---- integers ------------------------------------------------------------------------------------


@cache
def divide(stem: str, dtype: DType) -> Helper:
    """Quotient (idiv) or remainder (mod), truncating; 0 for a divisor 0; minimum / -1 wraps."""
    value, signed = vector_name(dtype), dtype.kind == "i"
    symbol = "/" if stem == "idiv" else "%"
    params = f"{value} a, {value} b"
    if dtype.count == 1:
        special = ""
        if signed:
            special = f" : b == -1 ? ({value}){'-a' if stem == 'idiv' else '0'}"
        body = f"return b == 0 ? 0{special} : ({value})(a {symbol} b);"
        return _function(stem, (dtype,), dtype, params, body)
    mask = vector_name(mask_of(dtype))
    if not signed:
        body = f"""{mask} zero = ({mask})(b == 0);
return (a {symbol} (b | ({value})(zero & 1))) & ({value})~zero;"""
        return _function(stem, (dtype,), dtype, params, body, mask_of(dtype))
    # Divisors 0 and -1 are replaced by 1: then the quotient is a, to be cleared or negated.
    body = f"""{value} zero = b == 0, minus = b == -1;
{value} q = a {symbol} ((b & ~(zero | minus)) | ((zero | minus) & 1));
return ((q ^ minus) - minus) & ~zero;"""
    return _function(stem, (dtype,), dtype, params, body)


@cache
def shift(stem: str, dtype: DType) -> Helper:
    """shl or shr; a count of the width or more, or below 0, shifts everything out."""
    value, bits = vector_name(dtype), dtype.bits
    params = f"{value} a, {value} b"
    count = vector_name(unsigned(dtype))
    fill = "a < 0 ? -1 : 0" if stem == "shr" and dtype.kind == "i" else "0"
    symbol = "<<" if stem == "shl" else ">>"
    if dtype.count == 1:
        body = f"return ({count})b < {bits} ? ({value})(a {symbol} b) : {fill};"
        if "?" in fill:
            body = f"return ({value})(a >> (({count})b < {bits} ? b : {bits - 1}));"
        return _function(stem, (dtype,), dtype, params, body, unsigned(dtype))
    limit = literal(unsigned(dtype).scalar, bits).text
    inside = f"{value} inside = ({value})(({count})b < {limit});"
    if "?" in fill:
        last = literal(dtype.scalar, bits - 1).text
        body = f"{inside}\nreturn a >> ((b & inside) | (~inside & {last}));"
    else:
        body = f"{inside}\nreturn (a {symbol} (b & inside)) & inside;"
    return _function(stem, (dtype,), dtype, params, body, unsigned(dtype))


# ---- shuffles ------------------------------------------------------------------------------------


@cache
def lanes(dtype: DType, picked: tuple[int, ...]) -> Helper:
    """Some lanes of a vector, as a vector."""
    result = dtype.scalar.vec(len(picked))
    shuffled = f"return __builtin_shufflevector(a, a, {', '.join(map(str, picked))});"
    plain = f"return ({vector_name(result)}){{{', '.join(f'a[{i}]' for i in picked)}}};"
    body = _newer("__builtin_shufflevector", shuffled, plain)
    stem = f"lanes_{'_'.join(map(str, picked))}_of"
    return _function(stem, (dtype,), result, f"{vector_name(dtype)} a", body)


@cache
def shuffle(dtype: DType, picked: tuple[int, ...]) -> Helper:
    """Some lanes of two vectors, counted through, as a vector."""
    result, count = dtype.scalar.vec(len(picked)), dtype.count
    shuffled = f"return __builtin_shufflevector(a, b, {', '.join(map(str, picked))});"
    chosen = [f"{'ab'[i // count]}[{i % count}]" for i in picked]
    plain = f"return ({vector_name(result)}){{{', '.join(chosen)}}};"
    body = _newer("__builtin_shufflevector", shuffled, plain)
    stem = f"lanes_{'_'.join(map(str, picked))}_of_two"
    value = vector_name(dtype)
    return _function(stem, (dtype,), result, f"{value} a, {value} b", body)


@cache
def join(dtype: DType) -> Helper:
    """Two vectors as one."""
    result, value = dtype.scalar.vec(2 * dtype.count), vector_name(dtype)
    numbers = ", ".join(map(str, range(2 * dtype.count)))
    both = [f"{name}[{i}]" for name in "ab" for i in range(dtype.count)]
    body = _newer(
        "__builtin_shufflevector",
        f"return __builtin_shufflevector(a, b, {numbers});",
        f"return ({vector_name(result)}){{{', '.join(both)}}};",
    )
    return _function("join", (dtype,), result, f"{value} a, {value} b", body)


# ---- floats --------------------------------------------------------------------------------------


def _x86_vector(dtype: DType) -> str:
    """ "", "256" or "512", as x86 builtins name the width; "-" for others."""
    return {128: "", 256: "256", 512: "512"}.get(dtype.bits * dtype.count, "-")


@cache
def fma(dtype: DType, features: frozenset[str]) -> Helper:
    """a*b + c of vectors with one rounding."""
    value = vector_name(dtype)
    params = f"{value} a, {value} b, {value} c"
    scalar = "__builtin_fmaf" if dtype.bits == 32 else "__builtin_fma"
    kind = "ps" if dtype.bits == 32 else "pd"
    width = _x86_vector(dtype)
    if "fma" in features and width in ("", "256"):
        gcc = f"return __builtin_ia32_vfmadd{kind}{width}(a, b, c);"
    elif "avx512f" in features and width == "512":
        gcc = f"return __builtin_ia32_vfmadd{kind}512_mask(a, b, c, -1, 4);"
    else:
        lanes = _lanes(dtype, lambda i: f"{scalar}(a[{i}], b[{i}], c[{i}])")
        gcc = f"return ({value}){{{lanes}}};"
    builtin = "__builtin_elementwise_fma"
    body = _newer(builtin, f"return {builtin}(a, b, c);", gcc)
    return _function("fma", (dtype,), dtype, params, body)


@cache
def sqrt(dtype: DType, features: frozenset[str]) -> Helper:
    """Square root of each lane, correctly rounded."""
    value = vector_name(dtype)
    scalar = "__builtin_sqrtf" if dtype.bits == 32 else "__builtin_sqrt"
    kind = "ps" if dtype.bits == 32 else "pd"
    width = _x86_vector(dtype)
    if (width == "" and "sse2" in features) or (width == "256" and "avx" in features):
        gcc = f"return __builtin_ia32_sqrt{kind}{width}(a);"
    elif width == "512" and "avx512f" in features:
        gcc = f"return __builtin_ia32_sqrt{kind}512_mask(a, a, -1, 4);"
    else:
        gcc = f"return ({value}){{{_lanes(dtype, lambda i: f'{scalar}(a[{i}])')}}};"
    builtin = "__builtin_elementwise_sqrt"
    body = _newer(builtin, f"return {builtin}(a);", gcc)
    return _function("sqrt", (dtype,), dtype, f"{value} a", body)


def _lanes(dtype: DType, lane: Callable[[int], str]) -> str:
    return ", ".join(map(lane, range(dtype.count)))


# ---- conversions ---------------------------------------------------------------------------------


@cache
def float_to_int(source: DType, target: DType) -> Helper:
    """Truncates toward zero; what does not fit becomes the nearest that does; NaN becomes 0."""
    value, result = vector_name(source), vector_name(target)
    low, high = _limits(source.scalar, target.scalar)
    if source.count == 1:
        body = (
            f"return a != a ? 0 : a <= {low} ? {literal(target, _least(target)).text}"
            f" : a >= {high} ? {literal(target, _most(target)).text} : ({result})a;"
        )
        return _function("to", (target, source), target, f"{value} a", body, source)
    wide = mask_dtype(source.bits, source.count)
    mask, least, most = vector_name(wide), _least(target), _most(target)
    if target.kind == "u" and target.bits >= source.bits:
        return _float_to_wide_unsigned(source, target)
    if target.bits > source.bits:  # float32 to int64: exact in float64
        double = dtypes.float64.vec(source.count)
        inner = float_to_int(double, target)
        body = f"return {inner.name}(__builtin_convertvector(a, {vector_name(double)}));"
        outer = _function("to", (target, source), target, f"{value} a", body, double)
        return Helper(outer.name, f"{inner.guarded}\n{outer.text}", (*inner.uses, *outer.uses))
    if target.bits < source.bits:  # the limits are floats: clamp, then convert
        bottom = literal(source.scalar, float(least)).text
        top = literal(source.scalar, float(most)).text
        body = f"""{mask} below = ({mask})(a < {bottom}), above = ({mask})(a > {top});
{mask} r = ({mask})a & ({mask})(a == a) & ~(below | above);
r |= (below & ({mask})({bottom} - ({value}){{}})) | (above & ({mask})({top} - ({value}){{}}));
return __builtin_convertvector(({value})r, {result});"""
    else:
        body = f"""{mask} below = ({mask})(a <= {low}), above = ({mask})(a >= {high});
{mask} inside = ({mask})(a == a) & ~(below | above);
{mask} r = __builtin_convertvector(({value})(({mask})a & inside), {mask});
r |= (below & {literal(wide.scalar, least)}) | (above & {literal(wide.scalar, most)});
return r;"""
    return _function("to", (target, source), target, f"{value} a", body, source, wide)


def _float_to_wide_unsigned(source: DType, target: DType) -> Helper:
    """float32 to uint32 or wider, float64 to uint64, on vectors: lane by lane."""
    scalar = float_to_int(source.scalar, target.scalar)
    lanes = _lanes(source, lambda i: f"{scalar.name}(a[{i}])")
    body = f"return ({vector_name(target)}){{{lanes}}};"
    outer = _function("to", (target, source), target, f"{vector_name(source)} a", body)
    return Helper(outer.name, f"{scalar.guarded}\n{outer.text}", (*scalar.uses, *outer.uses))


def _least(target: DType) -> int:
    return 0 if target.kind == "u" else -(1 << (target.bits - 1))


def _most(target: DType) -> int:
    return (1 << target.bits) - 1 if target.kind == "u" else (1 << (target.bits - 1)) - 1


def _limits(source: DType, target: DType) -> tuple[str, str]:
    """The floats at and beyond which a conversion saturates: the least and one more than the most,
    which are powers of two, so that every float format has them."""
    low, high = float(_least(target)), float(_most(target) + 1)
    return literal(source, low).text, literal(source, high).text


# The algorithms below the instructions are the usual ones on the fields of the formats: a shift
# moves the mantissa, one float addition or multiplication handles subnormal numbers.
_HALF_TO_FLOAT = """
uint32_t size = a & 0x7fffu, sign = (uint32_t)(a >> 15) << 31;
union { uint32_t bits; float value; } r = {size << 13};
r.value *= 0x1p+112f;
if (size >= 0x7c00u) r.bits = (size << 13) | 0x7f800000u;
r.bits |= sign;
return r.value;"""
_FLOAT_TO_HALF = """
union { float value; uint32_t bits; } x = {a}, tiny;
uint32_t size = x.bits & 0x7fffffffu, sign = x.bits >> 31 << 15;
if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
if (size >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
if (size >= 0x38800000u)
  return (uint16_t)(sign | ((size - 0x38000000u + 0xfffu + (size >> 13 & 1)) >> 13));
tiny.bits = size;
tiny.value += 0.5f;
return (uint16_t)(sign | (tiny.bits - 0x3f000000u));"""


def _clang_halves(count: int, to_float: bool) -> str:
    """clang has the type, and makes the instruction of a conversion."""
    if count == 1:
        union = "union { uint16_t bits; _Float16 value; } h"
        body = f"{union} = {{a}};\nreturn (float)h.value;"
        back = f"{union};\nh.value = (_Float16)a;\nreturn h.bits;"
        return body if to_float else back
    half = f"typedef _Float16 halves __attribute__((vector_size({2 * count})));"
    result, source = (f"f32x{count}", "(halves)a") if to_float else ("halves", "a")
    value = f"__builtin_convertvector({source}, {result})"
    return f"{half}\nreturn {value if to_float else f'(u16x{count}){value}'};"


@cache
def half_to_float(count: int, features: frozenset[str]) -> Helper:
    """float16 bits to float32."""
    source, target = dtypes.uint16.vec(count), dtypes.float32.vec(count)
    if count > 1 and ("f16c" not in features or count not in (4, 8)):
        return _by_lanes(half_to_float(1, features), "half_to", source, target)
    name = vector_name(dtypes.int16.vec(8))
    lanes = _lanes(source, lambda i: f"a[{i}]") if count > 1 else "(int16_t)a"
    gcc = {
        1: f"return __builtin_ia32_vcvtph2ps(({name}){{{lanes}}})[0];",
        4: f"return __builtin_ia32_vcvtph2ps(({name}){{{lanes}}});",
        8: f"return __builtin_ia32_vcvtph2ps256(({name})a);",
    }[count]
    body = _HALF_TO_FLOAT
    if "f16c" in features:
        body = f"#ifdef __clang__\n{_clang_halves(count, True)}\n#else\n{gcc}\n#endif"
    uses = (source, dtypes.int16.vec(8), dtypes.uint32)
    return _function("half_to", (target,), target, f"{vector_name(source)} a", body, *uses)


@cache
def float_to_half(count: int, features: frozenset[str]) -> Helper:
    """float32 to float16 bits, rounded to nearest even."""
    source, target = dtypes.float32.vec(count), dtypes.uint16.vec(count)
    if count > 1 and ("f16c" not in features or count not in (4, 8)):
        return _by_lanes(float_to_half(1, features), "half_of", source, target)
    float4, short8 = dtypes.float32.vec(4), dtypes.int16.vec(8)
    lanes = _lanes(target, lambda i: f"(uint16_t)r[{i}]")
    gcc = {
        1: f"return (uint16_t)__builtin_ia32_vcvtps2ph(({vector_name(float4)}){{a}}, 0)[0];",
        4: f"{vector_name(short8)} r = __builtin_ia32_vcvtps2ph(a, 0);\n"
        f"return ({vector_name(target)}){{{lanes}}};",
        8: f"return ({vector_name(target)})__builtin_ia32_vcvtps2ph256(a, 0);",
    }[count]
    body = _FLOAT_TO_HALF
    if "f16c" in features:
        body = f"#ifdef __clang__\n{_clang_halves(count, False)}\n#else\n{gcc}\n#endif"
    uses = (source, short8, float4, dtypes.uint32)
    return _function("half_of", (source,), target, f"{vector_name(source)} a", body, *uses)


def _by_lanes(scalar: Helper, stem: str, source: DType, target: DType, params: int = 1) -> Helper:
    """The function of vectors that calls one of scalars for each lane."""
    names = "abc"[:params]
    value = vector_name(source)
    lanes = _lanes(
        source, lambda i: f"{scalar.name}({', '.join(f'{name}[{i}]' for name in names)})"
    )
    types = (source,) if stem == "half_of" else (target,)
    outer = _function(
        stem,
        types,
        target,
        ", ".join(f"{value} {name}" for name in names),
        f"return ({vector_name(target)}){{{lanes}}};",
        source,
    )
    return Helper(outer.name, f"{scalar.guarded}\n{outer.text}", (*scalar.uses, *outer.uses))


@cache
def remainder(dtype: DType) -> Helper:
    """x - trunc(x/y)*y, exact, as C's fmod: long division, one binary digit a step."""
    if dtype.count > 1:
        return _by_lanes(remainder(dtype.scalar), "fmod", dtype, dtype, 2)
    value, bits = vector_name(dtype), unsigned(dtype)
    word, mantissa = vector_name(bits), 23 if dtype.bits == 32 else 52
    top = (1 << (dtype.bits - 1 - mantissa)) - 1
    one, sign = f"({word})1", dtype.bits - 1
    body = f"""
union {{ {value} value; {word} bits; }} x = {{a}}, y = {{b}};
{word} sign = x.bits >> {sign} << {sign}, m = x.bits ^ sign, n = y.bits << 1 >> 1;
if (n == 0 || n > {word}_INF || m >= {word}_INF) return (a * b) / (a * b);
if (m < n) return a;
int e = (int)(m >> {mantissa}), f = (int)(n >> {mantissa});
m = e ? (m & (({one} << {mantissa}) - 1)) | {one} << {mantissa} : m;
n = f ? (n & (({one} << {mantissa}) - 1)) | {one} << {mantissa} : n;
e += e == 0, f += f == 0;
for (; m >> {mantissa} == 0; e--) m <<= 1;
for (; n >> {mantissa} == 0; f--) n <<= 1;
for (; e > f; e--) m = (m >= n ? m - n : m) << 1;
m = m >= n ? m - n : m;
if (m == 0) {{ x.bits = sign; return x.value; }}
for (; m >> {mantissa} == 0; e--) m <<= 1;
x.bits = e > 0 ? (m - ({one} << {mantissa})) | ({word})e << {mantissa} : m >> (1 - e);
x.bits |= sign;
return x.value;"""
    body = body.replace(f"{word}_INF", f"(({word}){top} << {mantissa})")
    return _function("fmod", (dtype,), dtype, f"{value} a, {value} b", body, bits)


@cache
def stream(dtype: DType, features: frozenset[str]) -> Helper | None:
    """A store that bypasses the cache where the address allows; None where the target has none."""
    width = _x86_vector(dtype)
    if {"": "sse2", "256": "avx", "512": "avx512f"}.get(width) not in features:
        return None
    doubles = dtypes.float64.vec(dtype.itemsize // 8)
    name = helper_name("stream", dtype)
    gcc = f"  __builtin_ia32_movntpd{width}(p, ({vector_name(doubles)})v);"
    builtin = "__builtin_nontemporal_store"
    store = _newer(builtin, f"  {builtin}(v, ({vector_name(dtype)} *)p);", gcc)
    text = f"""static inline void {name}(void *p, {vector_name(dtype)} v) {{
  if (((__UINTPTR_TYPE__)p & {dtype.itemsize - 1}) == 0)
{store}
  else
    *({unaligned(dtype)} *)p = v;
}}"""
    return Helper(name, text, (dtype, doubles))
