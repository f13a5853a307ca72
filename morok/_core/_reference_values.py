"""Values in plain Python: bounds and constant folding. The second half of `_reference`."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from morok.dtype import DType, cast_value, max_value, min_value

I64 = (-(2**63), 2**63 - 1)


INTEGER_OPS: dict[str, Callable[..., Any]] = {
    "ADD": lambda a, b: a + b, "SUB": lambda a, b: a - b, "MUL": lambda a, b: a * b,
    "NEG": lambda a: -a, "FLOORDIV": lambda a, b: a // b, "FLOORMOD": lambda a, b: a % b,
    "MAX": max, "MIN": min, "SHL": lambda a, b: a << b, "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b, "GT": lambda a, b: a > b, "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b, "NE": lambda a, b: a != b, "AND": lambda a, b: a & b,
    "OR": lambda a, b: a | b, "XOR": lambda a, b: a ^ b, "NOT": lambda a: not a,
}  # fmt: skip


def spelled(arg: Any) -> object:
    """A key under which only the same argument is found."""
    if isinstance(arg, float):
        return ("float", struct.pack(">d", arg))
    if isinstance(arg, tuple):
        return ("tuple", *map(spelled, arg))
    return (type(arg).__name__, arg)


def lanes(n: Any) -> object:
    """The number a constant node is in every lane, spelled; None for anything else."""
    if n.name == "CONST":
        values = [n.arg]
    elif n.name == "VCONST" and isinstance(n.arg, tuple):
        values = list(n.arg)
    elif n.name == "VECTORIZE" and all(s.name == "CONST" for s in n.src):
        values = [s.arg for s in n.src]
    else:
        return None
    same = {spelled(v) for v in values}
    return values[0] if len(same) == 1 and type(values[0]) in (bool, int, float) else None


# ---- bounds --------------------------------------------------------------------------------------


def limits(dtype: DType) -> tuple[int, int] | None:
    """The range of an integer or bool dtype, as far as int64 can say it."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind in "iu" and not (dtype.kind == "u" and dtype.bits == 64):
        return int(min_value(dtype.scalar)), int(max_value(dtype.scalar))
    return None


def bounds_of(n: Any) -> tuple[int, int] | None:
    """The interval an integer or bool node lies in, or None while unknown."""
    if n.dtype.kind not in "biux":
        return None
    found = _interval(n)
    limit = limits(n.dtype)
    if found is None:
        return limit if n.name not in ("CONST", "RANGE", "DEFINE_VAR") else None
    low, high = found
    if limit is not None and (low < limit[0] or high > limit[1]):
        return limit  # it may wrap
    if low < I64[0] or high > I64[1] or (n.dtype.kind == "u" and low < 0):
        return limit
    return low, high


def _interval(n: Any) -> tuple[int, int] | None:
    if n.name in ("CONST", "VCONST"):
        lanes = n.arg if isinstance(n.arg, tuple) else (n.arg,)
        whole = all(type(v) in (int, bool) and I64[0] <= v <= I64[1] for v in lanes)
        return (min(map(int, lanes)), max(map(int, lanes))) if whole else None
    if n.name == "DEFINE_VAR":
        return int(n.arg[1]), int(n.arg[2])
    known = [s.bounds for s in n.src]
    if n.name == "RANGE":
        return None if known[0] is None else (0, known[0][1] - 1)
    if n.name == "VECTORIZE":
        if None in known:
            return None
        return min(b[0] for b in known if b), max(b[1] for b in known if b)
    if n.name == "WHERE":
        if known[0] is not None and known[0][0] == known[0][1]:
            chosen: tuple[int, int] | None = known[1] if known[0][0] else known[2]
            return chosen
        if known[1] is None or known[2] is None:
            return None
        return min(known[1][0], known[2][0]), max(known[1][1], known[2][1])
    if n.name in ("LT", "LE", "GT", "GE", "EQ", "NE"):
        return _compare(n.name, known[0], known[1])
    if None in known:
        divisor = known[1] if len(known) == 2 else None
        if n.name == "FLOORMOD" and n.dtype.kind == "x" and divisor and divisor[0] > 0:
            return 0, divisor[1] - 1
        return None
    return _arithmetic(n, *(b for b in known if b is not None))


def _compare(name: str, x: tuple[int, int] | None, y: tuple[int, int] | None) -> tuple[int, int]:
    if x is None or y is None:
        return 0, 1
    (a, b), (c, d) = x, y
    if name in ("GT", "GE"):
        return _compare({"GT": "LT", "GE": "LE"}[name], y, x)
    if name == "LT":
        return int(b < c), int(a < d)
    if name == "LE":
        return int(b <= c), int(a <= d)
    equal, apart = int(a == b == c == d), int(b < c or d < a)
    return (equal, 1 - apart) if name == "EQ" else (apart, 1 - equal)


def _arithmetic(n: Any, x: tuple[int, int], y: tuple[int, int] = (0, 0)) -> tuple[int, int] | None:
    (a, b), (c, d) = x, y
    match n.name:
        case "ADD":
            return a + c, b + d
        case "SUB":
            return a - d, b - c
        case "MUL":
            corners = [a * c, a * d, b * c, b * d]
            return min(corners), max(corners)
        case "NEG":
            return -b, -a
        case "CAST":
            return (int(not a <= 0 <= b), int(a != 0 or b != 0)) if n.dtype.kind == "b" else (a, b)
        case "MAX":
            return max(a, c), max(b, d)
        case "MIN":
            return min(a, c), min(b, d)
        case "NOT" if n.dtype.kind == "b":
            return 1 - b, 1 - a
        case "AND" if n.dtype.kind == "b":
            return int(a and c), int(b and d)
        case "OR" if n.dtype.kind == "b":
            return int(a or c), int(b or d)
        case "SHL" if c == d and 0 <= c < min(n.dtype.bits, 63):
            return a << c, b << c
        case "FLOORDIV" | "FLOORMOD":
            return _division(n.name, x, y, n.dtype.kind != "x")
    return None


def _division(
    name: str, x: tuple[int, int], y: tuple[int, int], total: bool
) -> tuple[int, int] | None:
    """Bounds of floor(x / y) or x - y * floor(x / y); `total`: by zero it is 0."""
    (a, b), (c, d) = x, y
    if name == "FLOORMOD":
        if c == d != 0 and a // c == b // c:
            return a % c, b % c
        if c == d == 0 and not total:
            return None
        high = 0 if d <= 0 else min(d - 1, b) if a >= 0 and c > 0 else d - 1
        return (c + 1 if c < 0 else 0), high
    divisors = [v for v in (c, d, -1, 1) if v != 0 and c <= v <= d]
    seen = [v // w for v in (a, b) for w in divisors] + ([0] if total and c <= 0 <= d else [])
    return (min(seen), max(seen)) if seen else None


# ---- folding -------------------------------------------------------------------------------------


def fold(table: Any, n: Any) -> Any | None:
    """The constant that an op of scalar constants is, or None."""
    values: list[Any] = [lanes(s) for s in n.src]
    if n.name == "WHERE" and values[0] is not None:
        return n.src[1] if values[0] else n.src[2]
    if not values or None in values or n.dtype.count > 1:
        return None
    operand = n.src[0].dtype
    if n.name == "CAST":
        return table.constant(n.dtype, cast_value(values[0], n.dtype))
    result = fold_float(n.name, operand, *values) if operand.kind == "f" else fold_int(n, *values)
    if result is None:
        return None
    if n.dtype.kind == "f" and result != result:
        result = math.nan
    return table.constant(n.dtype, result)


def fold_int(n: Any, a: int, b: int = 0) -> int | bool | None:
    """Exact arithmetic, wrapped in the dtype; None where index arithmetic would leave int64."""
    kind = n.src[0].dtype.kind
    if n.name in ("FLOORDIV", "FLOORMOD") and b == 0:
        return None if kind == "x" else 0
    if n.name not in INTEGER_OPS or (n.name == "SHL" and (b < 0 or (kind == "x" and b > 61))):
        return None
    if n.name == "SHL" and b >= n.dtype.bits:
        return 0
    if n.name == "NOT":
        result = not a if kind == "b" else ~a
    else:
        result = INTEGER_OPS[n.name](a, b) if len(n.src) == 2 else INTEGER_OPS[n.name](a)
    if n.dtype.kind == "b":
        return bool(result)
    if kind == "x":
        return int(result) if I64[0] <= result <= I64[1] else None
    return int(cast_value(int(result), n.dtype))


def fold_float(name: str, dtype: DType, a: float, b: float = 0.0) -> float | bool | None:
    """One operation, rounded once (float64 carries the narrower formats' exact rounding)."""
    if name in ("LT", "LE", "GT", "GE", "EQ", "NE"):
        return bool(INTEGER_OPS[name](a, b))
    if name in ("MAX", "MIN"):
        if a != a or b != b:
            return math.nan
        if a == b:
            return a if spelled(a) == spelled(b) else None
        return max(a, b) if name == "MAX" else min(a, b)
    if name == "FDIV" and b == 0:
        wide = math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)
    elif name in FLOAT_OPS:
        wide = FLOAT_OPS[name](a, b)
    else:
        return None
    return float(cast_value(wide, dtype))


FLOAT_OPS: dict[str, Callable[[float, float], float]] = {
    "ADD": lambda a, b: a + b, "SUB": lambda a, b: a - b, "MUL": lambda a, b: a * b,
    "FDIV": lambda a, b: a / b, "NEG": lambda a, b: -a, "ABS": lambda a, b: abs(a),
}  # fmt: skip
