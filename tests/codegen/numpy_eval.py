"""Evaluates straight-line UOp arithmetic with NumPy, for tests of single functions."""

from __future__ import annotations

import ctypes
import ctypes.util

import numpy as np

from morok.dtype import dtypes, to_numpy
from morok.ir import Ops, UOp

_BINARY = {
    Ops.ADD: np.add,
    Ops.SUB: np.subtract,
    Ops.MUL: np.multiply,
    Ops.FDIV: np.divide,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.LT: np.less,
    Ops.LE: np.less_equal,
    Ops.GT: np.greater,
    Ops.GE: np.greater_equal,
    Ops.EQ: np.equal,
    Ops.NE: np.not_equal,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
}


def _cast(value: np.ndarray, target: np.dtype) -> np.ndarray:
    if value.dtype.kind == "f" and target.kind in "iu":
        info = np.iinfo(target)
        wide = np.trunc(
            np.nan_to_num(value.astype(np.float64), nan=0.0, posinf=1e300, neginf=-1e300)
        )
        inside = np.clip(wide, float(info.min), float(info.max))
        out = np.where(inside >= float(info.max), info.max, 0).astype(target)
        ok = inside < float(info.max)
        out[ok] = inside[ok].astype(target)
        return out
    return value.astype(target)


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a*b + c by the C library's function, rounded once."""
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    single = a.dtype == np.float32
    function = library.fmaf if single else library.fma
    kind = ctypes.c_float if single else ctypes.c_double
    function.restype, function.argtypes = kind, [kind] * 3
    return np.asarray(np.vectorize(function, otypes=[a.dtype])(a, b, c))


def evaluate(root: UOp, values: dict[UOp, np.ndarray]) -> np.ndarray:
    """The value of a graph of scalar ALU ops, its leaves given as arrays."""
    known = dict(values)
    with np.errstate(all="ignore"):
        for node in root.toposort(stop=set(values)):
            if node not in known:
                known[node] = _value(node, [known[s] for s in node.src])
    return np.asarray(known[root])


def _value(node: UOp, src: list[np.ndarray]) -> np.ndarray:
    dtype = to_numpy(node.dtype)
    match node.op:
        case Ops.CONST:
            return np.array(node.arg, dtype)
        case Ops.CAST:
            return _cast(np.asarray(src[0]), dtype)
        case Ops.BITCAST:
            return np.ascontiguousarray(src[0]).view(dtype)
        case Ops.WHERE:
            return np.where(src[0], src[1], src[2])
        case Ops.NEG:
            return np.negative(src[0])
        case Ops.NOT:
            return ~src[0]
        case Ops.SQRT:
            return np.sqrt(src[0])
        case Ops.SHL | Ops.SHR:
            bits = node.dtype.bits
            count = np.asarray(src[1]).astype(np.uint64)
            assert np.all(count < bits)
            shift = np.left_shift if node.op is Ops.SHL else np.right_shift
            return shift(src[0], np.asarray(src[1]).astype(dtype))
        case Ops.MULACC:
            return np.asarray(_fma(*(np.asarray(s, dtype) for s in src)))
        case _:
            result = _BINARY[node.op](src[0], src[1])
            return result if node.dtype is dtypes.bool_ else result.astype(dtype)
