"""One small graph for every op, as the field guide shows them: for the generated page of the ops,
and for tests that build, print and parse each."""

from __future__ import annotations

from collections.abc import Callable

from morok.dtype import AddrSpace, DType, dtypes
from morok.ir import (
    OPS,
    AxisType,
    BufferizeOpts,
    CallInfo,
    CustomFunctionKind,
    DeviceSpec,
    GroupOp,
    KernelInfo,
    Ops,
    ReduceOp,
    UOp,
    WmmaMetadata,
    WmmaUpcastAxes,
)

F32 = dtypes.float32
_INTS_ONLY = frozenset(
    {Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR}
)


def _buffer(*shape: int, dtype: DType = F32) -> UOp:
    size = 1
    for n in shape:
        size *= n
    unique = UOp(Ops.UNIQUE, dtypes.void, (), 0)
    buffer = UOp(Ops.BUFFER, dtype, (unique, UOp.new_device()), size)
    return buffer if len(shape) == 1 else buffer.reshape(shape)


def _loop(end: int = 128, number: int = 0, kind: AxisType = AxisType.GLOBAL) -> UOp:
    return UOp.range(end, number, kind, renumbered=True)


def _memory(slot: int = 0, size: int = 128, dtype: DType = F32) -> UOp:
    return UOp.param(slot, dtype.ptr(), size)


def _value(dtype: DType = F32, count: int = 1) -> UOp:
    if count == 1:
        return UOp.const(dtype, 2)
    kind = float if dtype.kind == "f" else int
    return UOp.vconst(dtype, tuple(kind(i) for i in range(count)))


def _element(slot: int, dtype: DType) -> UOp:
    return _memory(slot, dtype=dtype).at(_loop())


def _kernel() -> UOp:
    i = _loop()
    store = _memory(0).at(i).store(_memory(1).at(i) * 2.0, i)
    return UOp(Ops.SINK, dtypes.void, (store,), KernelInfo("E_128"))


def _function() -> UOp:
    info = CallInfo(name="double")
    return UOp(Ops.FUNCTION, dtypes.void, (_kernel(), _memory(0), _memory(1)), info)


def _program() -> UOp:
    return UOp(Ops.PROGRAM, dtypes.void, (_kernel(), UOp.new_device()), ())


def _lanes() -> UOp:
    return _value(count=4).unroll(((0, 4),))


def _condition() -> UOp:
    return UOp(Ops.IF, dtypes.void, (_loop() < 100, _memory(0).at(_loop()).store(_value())))


def _wmma() -> UOp:
    half = dtypes.float16
    metadata = WmmaMetadata(
        "__hmma_m16n8k16",
        (8, 16, 16),
        half,
        F32,
        "CUDA",
        upcast_axes=WmmaUpcastAxes(((0, 8),), ((0, 4),), ((0, 4),)),
    )
    a, b = _value(half, 8), _value(half, 4)
    return UOp(Ops.WMMA, F32.vec(4), (a, b, _value(count=4)), metadata)


def _arithmetic(op: Ops) -> UOp:
    """An elementwise op on elements of buffers."""
    if op is Ops.WHERE:
        return UOp(op, F32, (_loop() < 100, _element(0, F32), _value()))
    if op is Ops.THREEFRY:
        word = dtypes.uint64
        return UOp(op, word, (_element(0, word), _element(1, word)))
    dtype = dtypes.int32 if op in _INTS_ONLY or op is Ops.NOT else F32
    src = tuple(_element(i, dtype) for i in range(OPS[op].arity))
    return UOp(op, dtypes.bool_ if OPS[op].comparison else dtype, src)


_SHAPED: dict[Ops, Callable[[], UOp]] = {
    Ops.RANGE: _loop,
    Ops.END: lambda: _memory().at(_loop()).store(_value()).close(_loop()),
    Ops.REDUCE_AXIS: lambda: _buffer(10, 20).reduce_axis(ReduceOp.ADD, (1,)),
    Ops.REDUCE: lambda: _element(0, F32).reduce(ReduceOp.ADD, _loop()),
    Ops.ALLREDUCE: lambda: UOp(Ops.ALLREDUCE, F32, (_buffer(8), UOp.new_device()), ReduceOp.ADD),
    Ops.BUFFER: lambda: _buffer(1024),
    Ops.BUFFER_VIEW: lambda: UOp(Ops.BUFFER_VIEW, F32, (_buffer(1024),), (256, 512)),
    Ops.BUFFERIZE: lambda: _element(0, F32).bufferize(
        _loop(), opts=BufferizeOpts(addrspace=AddrSpace.LOCAL)
    ),
    Ops.INDEX: lambda: _memory().at(_loop(), gate=_loop() < 100),
    Ops.POINTER_INDEX: lambda: UOp(Ops.POINTER_INDEX, F32.ptr(), (_memory(), _loop() * 4)),
    Ops.LOAD: lambda: _memory().at(_loop()).load(),
    Ops.STORE: lambda: _memory(0).at(_loop()).store(_memory(1).at(_loop()), _loop()),
    Ops.SINK: _kernel,
    Ops.CALL: lambda: UOp(
        Ops.CALL, dtypes.void, (_kernel(), _buffer(128), _buffer(128)), CallInfo(name="E_128")
    ),
    Ops.FUNCTION: _function,
    Ops.TUPLE: lambda: UOp(Ops.TUPLE, dtypes.void, (_buffer(8), _buffer(4, 4))),
    Ops.GET_TUPLE: lambda: UOp(
        Ops.GET_TUPLE, F32, (UOp(Ops.TUPLE, dtypes.void, (_buffer(8), _buffer(4, 4))),), 1
    ),
    Ops.PROGRAM: _program,
    Ops.LINEAR: lambda: UOp(
        Ops.LINEAR, dtypes.void, (_memory(), _value(), _memory().at(UOp.const(dtypes.int32, 0)))
    ),
    Ops.SOURCE: lambda: UOp(Ops.SOURCE, dtypes.void, (), "void E_128(void **bufs) {\n}\n"),
    Ops.PROGRAM_BINARY: lambda: UOp(Ops.PROGRAM_BINARY, dtypes.void, (), b"\x7fELF"),
    Ops.AFTER: lambda: _memory().after(_memory().at(_loop()).store(_value(), _loop())),
    Ops.BARRIER: lambda: UOp(Ops.BARRIER, F32.ptr(), (_memory(),)),
    Ops.VECTORIZE: lambda: UOp.vectorize(*(UOp.const(F32, float(i)) for i in range(4))),
    Ops.GEP: lambda: _value(count=4).gep([0, 2]),
    Ops.VCONST: lambda: _value(count=4),
    Ops.CAT: lambda: UOp.cat(_value(count=4), _value(count=4)),
    Ops.PTRCAT: lambda: UOp(
        Ops.PTRCAT,
        F32.vec(2),
        tuple(_memory().at(UOp.const(dtypes.index, i)) for i in range(2)),
    ),
    Ops.UNROLL: _lanes,
    Ops.CONTRACT: lambda: _lanes().contract(((0, 4),)),
    Ops.WMMA: _wmma,
    Ops.SPECIAL: lambda: UOp(
        Ops.SPECIAL, dtypes.index, (UOp.const(dtypes.index, 128),), "blockIdx.x"
    ),
    Ops.IF: _condition,
    Ops.ENDIF: lambda: UOp(Ops.ENDIF, dtypes.void, (_condition(),)),
    Ops.PARAM: lambda: _memory(),
    Ops.DEFINE_LOCAL: lambda: UOp(Ops.DEFINE_LOCAL, F32.ptr(AddrSpace.LOCAL), (), (0, 256)),
    Ops.DEFINE_VAR: lambda: UOp(Ops.DEFINE_VAR, dtypes.index, (), ("n", 1, 64)),
    Ops.DEFINE_REG: lambda: UOp(Ops.DEFINE_REG, F32.ptr(AddrSpace.REG), (), (1, 0)),
    Ops.BIND: lambda: UOp(
        Ops.BIND,
        dtypes.index,
        (UOp(Ops.DEFINE_VAR, dtypes.index, (), ("n", 1, 64)), UOp.const(dtypes.index, 8)),
    ),
    Ops.UNIQUE: lambda: UOp(Ops.UNIQUE, dtypes.void, (), 0),
    Ops.LUNIQUE: lambda: UOp(Ops.LUNIQUE, dtypes.void, (), 0),
    Ops.DEVICE: lambda: UOp(Ops.DEVICE, dtypes.void, (), DeviceSpec("CPU")),
    Ops.CONST: lambda: UOp.const(F32, 1.5),
    Ops.RESHAPE: lambda: _buffer(2, 3, 4).reshape((6, 4)),
    Ops.PERMUTE: lambda: _buffer(2, 3, 4).permute((2, 0, 1)),
    Ops.EXPAND: lambda: UOp(Ops.EXPAND, F32, (_buffer(1, 4), UOp.shape_const((3, 4)))),
    Ops.PAD: lambda: UOp(
        Ops.PAD, F32, (_buffer(3, 4), UOp.shape_const((1, 0)), UOp.shape_const((1, 2)))
    ),
    Ops.SHRINK: lambda: UOp(
        Ops.SHRINK, F32, (_buffer(3, 4), UOp.shape_const((0, 1)), UOp.shape_const((2, 4)))
    ),
    Ops.FLIP: lambda: UOp(Ops.FLIP, F32, (_buffer(3, 4),), (True, False)),
    Ops.COPY: lambda: UOp(
        Ops.COPY, F32, (_buffer(8), UOp(Ops.DEVICE, dtypes.void, (), DeviceSpec("CPU", 1)))
    ),
    Ops.MSTACK: lambda: UOp(Ops.MSTACK, F32, (_buffer(8), _buffer(8))),
    Ops.MSELECT: lambda: UOp(
        Ops.MSELECT, F32, (UOp(Ops.MSTACK, F32, (_buffer(8), _buffer(8))),), 1
    ),
    Ops.MULTI: lambda: UOp(Ops.MULTI, F32, (_buffer(4, 4),), 0),
    Ops.GROUP: lambda: UOp(Ops.GROUP, dtypes.void, (_memory().at(_loop()).store(_value()),)),
    Ops.DETACH: lambda: UOp(Ops.DETACH, F32, (_buffer(8),)),
    Ops.CONTIGUOUS: lambda: UOp(Ops.CONTIGUOUS, F32, (_buffer(4, 4).permute((1, 0)),)),
    Ops.CONTIGUOUS_BACKWARD: lambda: UOp(Ops.CONTIGUOUS_BACKWARD, F32, (_buffer(8),)),
    Ops.PRECAST: lambda: UOp(Ops.PRECAST, F32, (_buffer(8),)),
    Ops.NOOP: lambda: UOp(Ops.NOOP, F32, (_buffer(8),)),
    Ops.CUSTOM: lambda: UOp(Ops.CUSTOM, dtypes.void, (_value(),), "trace({0});"),
    Ops.CUSTOM_I: lambda: UOp(Ops.CUSTOM_I, F32, (_value(),), "fast_inverse({0})"),
    Ops.CUSTOM_FUNCTION: lambda: UOp(
        Ops.CUSTOM_FUNCTION, dtypes.void, (_buffer(8),), (CustomFunctionKind.GRAPH, None)
    ),
    Ops.CAST: lambda: _element(0, F32).cast(dtypes.float16),
    Ops.BITCAST: lambda: UOp(Ops.BITCAST, dtypes.int32, (_element(0, F32),)),
}


def example(op: Ops) -> UOp:
    """A graph whose root is `op`. The same node whenever it is built."""
    build = _SHAPED.get(op)
    if build is not None:
        return build()
    assert op in GroupOp.ALU, f"{op.name} has no example"
    return _arithmetic(op)
