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


def _buffer(*shape: int, dtype: DType = F32, device: str = "CPU", unique: int = 0) -> UOp:
    size = 1
    for n in shape:
        size *= n
    buffer = UOp.new_buffer(dtype, size, device, UOp.new_unique(unique))
    return buffer if len(shape) == 1 else buffer.reshape(shape)


def _stack() -> UOp:
    """A buffer on each of two devices."""
    return UOp.mstack(_buffer(8), _buffer(8, device="CPU:1", unique=1))


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
    return UOp.new_sink(store, info=KernelInfo("E_128"))


def _function() -> UOp:
    return _kernel().function(_memory(0), _memory(1), info=CallInfo(name="double"))


def _program() -> UOp:
    return UOp.program(_kernel(), UOp.new_device())


def _lanes() -> UOp:
    return _value(count=4).unroll(((0, 4),))


def _condition() -> UOp:
    return UOp.if_(_loop() < 100, _memory(0).at(_loop()).store(_value()))


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
    return UOp.wmma(a, b, _value(count=4), metadata)


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
    Ops.ALLREDUCE: lambda: _stack().allreduce(ReduceOp.ADD, "CPU"),
    Ops.BUFFER: lambda: _buffer(1024),
    Ops.BUFFER_VIEW: lambda: _buffer(1024).buffer_view(256, 512),
    Ops.BUFFERIZE: lambda: _element(0, F32).bufferize(
        _loop(), opts=BufferizeOpts(addrspace=AddrSpace.LOCAL)
    ),
    Ops.INDEX: lambda: _memory().at(_loop(), gate=_loop() < 100),
    Ops.POINTER_INDEX: lambda: _memory().pointer_index(_loop() * 4),
    Ops.LOAD: lambda: _memory().at(_loop()).load(),
    Ops.STORE: lambda: _memory(0).at(_loop()).store(_memory(1).at(_loop()), _loop()),
    Ops.SINK: _kernel,
    Ops.CALL: lambda: _kernel().call(_buffer(128), _buffer(128), info=CallInfo(name="E_128")),
    Ops.FUNCTION: _function,
    Ops.TUPLE: lambda: UOp.new_tuple(_buffer(8), _buffer(4, 4)),
    Ops.GET_TUPLE: lambda: UOp.new_tuple(_buffer(8), _buffer(4, 4)).get_tuple(1),
    Ops.PROGRAM: _program,
    Ops.LINEAR: lambda: UOp.new_linear(
        _memory(), _value(), _memory().at(UOp.const(dtypes.int32, 0))
    ),
    Ops.SOURCE: lambda: UOp.new_source("void E_128(void **bufs) {\n}\n"),
    Ops.PROGRAM_BINARY: lambda: UOp.new_binary(b"\x7fELF"),
    Ops.AFTER: lambda: _memory().after(_memory().at(_loop()).store(_value(), _loop())),
    Ops.BARRIER: lambda: _memory().barrier(_memory().at(_loop()).store(_value(), _loop())),
    Ops.VECTORIZE: lambda: UOp.vectorize(*(UOp.const(F32, float(i)) for i in range(4))),
    Ops.GEP: lambda: _value(count=4).gep([0, 2]),
    Ops.VCONST: lambda: _value(count=4),
    Ops.CAT: lambda: UOp.cat(_value(count=4), _value(count=4)),
    Ops.PTRCAT: lambda: UOp.ptrcat(*(_memory().at(i) for i in range(2))),
    Ops.UNROLL: _lanes,
    Ops.CONTRACT: lambda: _lanes().contract(((0, 4),)),
    Ops.WMMA: _wmma,
    Ops.SPECIAL: lambda: UOp.special("blockIdx.x", 128),
    Ops.IF: _condition,
    Ops.ENDIF: lambda: _condition().endif(),
    Ops.PARAM: lambda: _memory(),
    Ops.DEFINE_LOCAL: lambda: UOp.define_local(F32, 256, 0),
    Ops.DEFINE_VAR: lambda: UOp.define_var("batch_size", 1, 128),
    Ops.DEFINE_REG: lambda: UOp.define_reg(F32, 1, 0),
    Ops.BIND: lambda: UOp.define_var("batch_size", 1, 128).bind(8),
    Ops.UNIQUE: lambda: UOp.new_unique(0),
    Ops.LUNIQUE: lambda: UOp.new_lunique(0),
    Ops.DEVICE: lambda: UOp.new_device("CPU"),
    Ops.CONST: lambda: UOp.const(F32, 1.5),
    Ops.RESHAPE: lambda: _buffer(2, 3, 4).reshape((6, 4)),
    Ops.PERMUTE: lambda: _buffer(2, 3, 4).permute((2, 0, 1)),
    Ops.EXPAND: lambda: _buffer(1, 4).expand((3, 4)),
    Ops.PAD: lambda: _buffer(3, 4).pad((1, 0), (1, 2)),
    Ops.SHRINK: lambda: _buffer(3, 4).shrink((0, 1), (2, 4)),
    Ops.FLIP: lambda: _buffer(3, 4).flip((True, False)),
    Ops.COPY: lambda: _buffer(8).copy_to("CPU:1"),
    Ops.MSTACK: lambda: _stack(),
    Ops.MSELECT: lambda: _stack().mselect(1),
    Ops.MULTI: lambda: _stack().multi(0),
    Ops.GROUP: lambda: UOp.group(_memory().at(_loop()).store(_value())),
    Ops.DETACH: lambda: _buffer(8).detach(),
    Ops.CONTIGUOUS: lambda: _buffer(4, 4).permute((1, 0)).contiguous(),
    Ops.CONTIGUOUS_BACKWARD: lambda: _buffer(8).contiguous_backward(),
    Ops.PRECAST: lambda: (_element(0, F32) * 2.0).precast(),
    Ops.NOOP: lambda: _buffer(8).noop(),
    Ops.CUSTOM: lambda: UOp.custom("{0}[0] = {1}", _memory(), _value()),
    Ops.CUSTOM_I: lambda: UOp.custom_i("fast_inverse({0})", F32, _value()),
    Ops.CUSTOM_FUNCTION: lambda: UOp.custom_function(CustomFunctionKind.GRAPH, None, _buffer(8)),
    Ops.CAST: lambda: _element(0, F32).cast(dtypes.float16),
    Ops.BITCAST: lambda: _element(0, F32).bitcast(dtypes.int32),
}


def example(op: Ops) -> UOp:
    """A graph whose root is `op`. The same node whenever it is built."""
    build = _SHAPED.get(op)
    if build is not None:
        return build()
    assert op in GroupOp.ALU, f"{op.name} has no example"
    return _arithmetic(op)
