"""UOp: the node of every graph, from tensors down to machine loops.

A UOp is immutable and interned: the same structure is the same object. Sugar stands in three
places: operators (`operators.py`), field access (`fields.py`), and the builders here. A builder
carries the name of its op, unless that is the name of a field: then it is `new_…`, `at` (INDEX) or
`close` (END).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from morok import _core
from morok.dtype import AddrSpace, DType, Scalar, dtypes
from morok.ir.checks import PROGRAM_STAGES, check_node
from morok.ir.fields import Fields, fields_of
from morok.ir.operators import Operators, constant
from morok.ir.ops import (
    AxisId,
    AxisType,
    BufferizeOpts,
    CallInfo,
    CustomFunctionKind,
    DeviceSpec,
    Invalid,
    InvalidType,
    KernelInfo,
    Ops,
    ReduceOp,
    WmmaMetadata,
)
from morok.ir.printing import line, pyrender, tree

__all__ = ["UOp", "register_simplifier"]

_unique = itertools.count()
_UNCHANGED: Any = object()
_simplifier: Callable[[Any], Any] | None = None


def register_simplifier(simplify: Callable[[Any], Any]) -> None:
    """Make `simplify` what `UOp.simplify` does; the symbolic layer calls this when imported."""
    global _simplifier
    _simplifier = simplify


class UOp(Fields, Operators, _core.Node):
    """One operation: `op`, `dtype`, `src` (its sources) and `arg` (its argument).

    Every node also knows its `shape`, bounds `vmin` and `vmax` (ints, None when unknown),
    `open_ranges`, `device` and content `key`.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        # The core makes nodes: the type's call goes straight to it.
        def __new__(
            cls, op: Ops, dtype: DType, src: tuple[UOp, ...] = (), arg: Any = None
        ) -> Self: ...

    # Structure -----------------------------------------------------------------------------------

    @property
    def axis_priority(self) -> int:
        """Default nesting of a RANGE: a lower value is an outer loop."""
        priority: int = self.axis_type.priority
        return priority

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the op's row by name, sources before arguments."""
        return fields_of(self)

    def replace(
        self,
        *,
        op: Ops = _UNCHANGED,
        dtype: DType = _UNCHANGED,
        src: tuple[UOp, ...] = _UNCHANGED,
        arg: Any = _UNCHANGED,
    ) -> UOp:
        """The node with some of its parts exchanged."""
        return UOp(
            self.op if op is _UNCHANGED else op,
            self.dtype if dtype is _UNCHANGED else dtype,
            self.src if src is _UNCHANGED else src,
            self.arg if arg is _UNCHANGED else arg,
        )

    def toposort(self, *, stop: Callable[[UOp], bool] | Container[UOp] | None = None) -> list[UOp]:
        """All nodes below and this one, sources first; nodes that `stop` names are not entered."""
        nodes: list[UOp] = _core.toposort(self, stop=stop)
        return nodes

    def substitute(self, replacements: Mapping[UOp, UOp]) -> UOp:
        """The graph with nodes replaced; what replaces them is not entered."""
        result: UOp = _core.substitute(self, dict(replacements))
        return result

    def backward_slice(self) -> set[UOp]:
        """All nodes below, and this one."""
        nodes: set[UOp] = _core.backward_slice(self)
        return nodes

    def simplify(self) -> UOp:
        """An equal graph after symbolic simplification (this one if that layer is not loaded)."""
        return self if _simplifier is None else _simplifier(self)

    # What a person sees --------------------------------------------------------------------------

    def tree(self, ids: bool = True) -> str:
        """The graph as text, one line a node; with `ids` it is complete and can be read back."""
        return tree(self, ids=ids)

    def pyrender(self) -> str:
        """Python source that rebuilds this node as `root`."""
        return pyrender(self)

    def __repr__(self) -> str:
        return f"<UOp {line(self)}>"

    # Constants and definitions -------------------------------------------------------------------

    @staticmethod
    def const(dtype: DType, value: Scalar | InvalidType) -> UOp:
        """A constant; see `morok.ir.operators.constant` for what converts to what."""
        node: UOp = constant(dtype, value)
        return node

    def const_like(self, value: Scalar | InvalidType) -> UOp:
        """A constant of this dtype."""
        node: UOp = constant(self.dtype, value)
        return node

    @staticmethod
    def invalid() -> UOp:
        """The index of a position that padding made unreachable."""
        return UOp(Ops.CONST, dtypes.index, (), Invalid)

    @staticmethod
    def vconst(dtype: DType, values: Sequence[Scalar]) -> UOp:
        """A vector of constants; `dtype` is that of a lane or of the vector."""
        scalar = dtype.scalar
        lanes = tuple(constant(scalar, value).arg for value in values)
        return check_node(UOp(Ops.VCONST, scalar.vec(len(lanes)), (), lanes))

    @staticmethod
    def shape_const(shape: Iterable[int]) -> UOp:
        """The shape operand of a movement op."""
        return check_node(UOp(Ops.CONST, dtypes.index, (), tuple(shape)))

    @staticmethod
    def range(
        end: UOp | int,
        axis_number: int,
        axis_type: AxisType = AxisType.LOOP,
        *,
        renumbered: bool = False,
        deps: tuple[UOp, ...] = (),
    ) -> UOp:
        """A loop from 0 up to `end`, exclusive."""
        bound = constant(dtypes.index, end) if isinstance(end, int) else end
        arg = (AxisId(axis_number, renumbered), axis_type)
        return check_node(UOp(Ops.RANGE, dtypes.index, (bound, *deps), arg))

    @staticmethod
    def new_unique(number: int | None = None) -> UOp:
        """A UNIQUE; the next of this process without a number."""
        identity = next(_unique) if number is None else number
        return check_node(UOp(Ops.UNIQUE, dtypes.void, (), identity))

    @staticmethod
    def new_lunique(number: int) -> UOp:
        """A LUNIQUE: an identity within a local scope, which numbers its own."""
        return check_node(UOp(Ops.LUNIQUE, dtypes.void, (), number))

    @staticmethod
    def new_device(spec: DeviceSpec | str = "CPU") -> UOp:
        """A DEVICE, from a spec or its text ("CPU:1")."""
        device = DeviceSpec.parse(spec) if isinstance(spec, str) else spec
        return check_node(UOp(Ops.DEVICE, dtypes.void, (), device))

    @staticmethod
    def new_buffer(
        dtype: DType, size: int, device: UOp | DeviceSpec | str = "CPU", unique: UOp | None = None
    ) -> UOp:
        """Storage of `size` elements, different from every other buffer of this process."""
        where = device if isinstance(device, UOp) else UOp.new_device(device)
        identity = UOp.new_unique() if unique is None else unique
        return check_node(UOp(Ops.BUFFER, dtype, (identity, where), size))

    @staticmethod
    def param(slot: int, dtype: DType, size: int, device: UOp | None = None) -> UOp:
        """The buffer argument at position `slot`; `dtype` is a pointer within kernels."""
        src = () if device is None else (device,)
        return check_node(UOp(Ops.PARAM, dtype, src, (slot, size)))

    @staticmethod
    def define_var(name: str, min_val: int, max_val: int, dtype: DType = dtypes.index) -> UOp:
        """A runtime variable with inclusive bounds."""
        return check_node(UOp(Ops.DEFINE_VAR, dtype, (), (name, min_val, max_val)))

    def bind(self, value: UOp | int) -> UOp:
        """This DEFINE_VAR bound to a value."""
        bound = constant(self.dtype, value) if isinstance(value, int) else value
        return check_node(UOp(Ops.BIND, self.dtype, (self, bound)))

    @staticmethod
    def define_reg(dtype: DType, size: int, number: int) -> UOp:
        """Registers for `size` elements of `dtype`."""
        return check_node(UOp(Ops.DEFINE_REG, dtype.ptr(AddrSpace.REG), (), (size, number)))

    @staticmethod
    def define_local(dtype: DType, size: int, number: int) -> UOp:
        """Local memory for `size` elements of `dtype`."""
        return check_node(UOp(Ops.DEFINE_LOCAL, dtype.ptr(AddrSpace.LOCAL), (), (number, size)))

    @staticmethod
    def special(name: str, end: UOp | int) -> UOp:
        """A hardware-provided index below `end`."""
        bound = constant(dtypes.index, end) if isinstance(end, int) else end
        return check_node(UOp(Ops.SPECIAL, dtypes.index, (bound,), name))

    # Memory --------------------------------------------------------------------------------------

    def at(self, *indices: UOp | int, gate: UOp | None = None) -> UOp:
        """INDEX: the element of this buffer at `indices`, where `gate` holds."""
        src = [self]
        lanes = 1
        for index in indices:
            position = constant(dtypes.index, index) if isinstance(index, int) else index
            lanes = max(lanes, position.dtype.count)
            src.append(position)
        if gate is not None:
            src.append(gate)
        element = self.dtype.base
        dtype = element if lanes == 1 or element.count != 1 else element.vec(lanes)
        return check_node(UOp(Ops.INDEX, dtype, tuple(src), gate is not None))

    def __getitem__(self, indices: UOp | int | tuple[UOp | int, ...]) -> UOp:
        """`buffer[i, j]` is `buffer.at(i, j)`."""
        return self.at(*(indices if isinstance(indices, tuple) else (indices,)))

    # Python would otherwise iterate with 0, 1, 2, … through __getitem__, for ever.
    __iter__: None = None

    def pointer_index(self, offset: UOp | int) -> UOp:
        """POINTER_INDEX: this pointer moved by a number of bytes."""
        moved = constant(dtypes.index, offset) if isinstance(offset, int) else offset
        return check_node(UOp(Ops.POINTER_INDEX, self.dtype, (self, moved)))

    @staticmethod
    def ptrcat(*addresses: UOp) -> UOp:
        """Addresses (INDEXes) of one vectorised access; its lanes are theirs, one after another."""
        lanes = sum(address.dtype.base.count for address in addresses)
        dtype = addresses[0].dtype.base.scalar if addresses else dtypes.void
        return check_node(UOp(Ops.PTRCAT, dtype.vec(lanes or 1), addresses))

    def load(self, alt: UOp | None = None) -> UOp:
        """LOAD at this address, with the value where its gate is false."""
        first = self.src[0] if self.op is Ops.PTRCAT else self
        buffer = first.src[0] if first.src else first
        src = (buffer, self) if alt is None else (buffer, self, alt)
        return check_node(UOp(Ops.LOAD, self.dtype.base, src))

    def store(self, value: UOp | Scalar, *ranges: UOp) -> UOp:
        """STORE of `value` at this INDEX (or view of a tensor), closing `ranges`."""
        stored = value if isinstance(value, UOp) else constant(self.dtype.base, value)
        return check_node(UOp(Ops.STORE, dtypes.void, (self, stored, *ranges)))

    def after(self, *deps: UOp) -> UOp:
        """This value once `deps` are complete; the node itself when there are none."""
        return check_node(UOp(Ops.AFTER, self.dtype, (self, *deps))) if deps else self

    def close(self, *ranges: UOp) -> UOp:
        """END: loops around this computation; the node itself when there are none."""
        return check_node(UOp(Ops.END, dtypes.void, (self, *ranges))) if ranges else self

    def barrier(self, *deps: UOp) -> UOp:
        """This value once every work-item of the group has come here."""
        return check_node(UOp(Ops.BARRIER, self.dtype, (self, *deps)))

    def bufferize(self, *ranges: UOp, opts: BufferizeOpts | None = None, **options: Any) -> UOp:
        """This computation materialised, one dimension a range; options as BufferizeOpts has."""
        arg = BufferizeOpts(**options) if opts is None else opts
        return check_node(UOp(Ops.BUFFERIZE, self.dtype, (self, *ranges), arg))

    def buffer_view(self, size: int, offset: int) -> UOp:
        """`size` elements of this buffer from element `offset` on."""
        return check_node(UOp(Ops.BUFFER_VIEW, self.dtype, (self,), (size, offset)))

    # Reduction -----------------------------------------------------------------------------------

    def reduce(self, reduce_op: ReduceOp, *ranges: UOp) -> UOp:
        """This value accumulated over `ranges`, which are closed."""
        return check_node(UOp(Ops.REDUCE, self.dtype, (self, *ranges), reduce_op))

    def reduce_axis(self, reduce_op: ReduceOp, axes: Iterable[int]) -> UOp:
        """Dimensions reduced and dropped."""
        return check_node(UOp(Ops.REDUCE_AXIS, self.dtype, (self,), (reduce_op, tuple(axes))))

    # Movement ------------------------------------------------------------------------------------

    def reshape(self, shape: Iterable[int]) -> UOp:
        """The same elements under another shape of the same size. ShapeError otherwise."""
        return check_node(UOp(Ops.RESHAPE, self.dtype, (self, UOp.shape_const(shape))))

    def expand(self, shape: Iterable[int]) -> UOp:
        """Dimensions of size 1 repeated. ShapeError for any other."""
        return check_node(UOp(Ops.EXPAND, self.dtype, (self, UOp.shape_const(shape))))

    def permute(self, axes: Iterable[int]) -> UOp:
        """Dimension i of the result is dimension axes[i]."""
        return check_node(UOp(Ops.PERMUTE, self.dtype, (self,), tuple(axes)))

    def pad(self, begin_pads: Iterable[int], end_pads: Iterable[int]) -> UOp:
        """Zeros in front of and behind each dimension."""
        pads = (UOp.shape_const(begin_pads), UOp.shape_const(end_pads))
        return check_node(UOp(Ops.PAD, self.dtype, (self, *pads)))

    def shrink(self, begins: Iterable[int], ends: Iterable[int]) -> UOp:
        """The region begins <= i < ends."""
        bounds = (UOp.shape_const(begins), UOp.shape_const(ends))
        return check_node(UOp(Ops.SHRINK, self.dtype, (self, *bounds)))

    def flip(self, axes: Iterable[bool]) -> UOp:
        """Dimensions reversed where the flag is set."""
        return check_node(UOp(Ops.FLIP, self.dtype, (self,), tuple(axes)))

    # Vectors -------------------------------------------------------------------------------------

    @staticmethod
    def vectorize(*elements: UOp) -> UOp:
        """A vector of scalars; the scalar itself when there is one."""
        if len(elements) == 1:
            return elements[0]
        dtype = elements[0].dtype.scalar.vec(len(elements)) if elements else dtypes.void
        return check_node(UOp(Ops.VECTORIZE, dtype, elements))

    def gep(self, indices: int | Iterable[int]) -> UOp:
        """Lanes of this vector: a scalar for one index."""
        lanes = (indices,) if isinstance(indices, int) else tuple(indices)
        return check_node(UOp(Ops.GEP, self.dtype.scalar.vec(len(lanes)), (self,), lanes))

    @staticmethod
    def cat(*sources: UOp) -> UOp:
        """Vectors joined."""
        lanes = sum(source.dtype.count for source in sources)
        dtype = sources[0].dtype.scalar.vec(lanes) if sources else dtypes.void
        return check_node(UOp(Ops.CAT, dtype, sources))

    def unroll(self, axes: tuple[tuple[int, int], ...]) -> UOp:
        """The lanes of this value as iterations of `axes`, (axis, factor) pairs."""
        lanes = self.dtype.count // _factors(axes)
        return check_node(UOp(Ops.UNROLL, self.dtype.scalar.vec(lanes), (self,), axes))

    def contract(self, axes: tuple[tuple[int, int], ...]) -> UOp:
        """Unrolled values of `axes`, (axis, factor) pairs, in a vector."""
        lanes = self.dtype.count * _factors(axes)
        return check_node(UOp(Ops.CONTRACT, self.dtype.scalar.vec(lanes), (self,), axes))

    @staticmethod
    def wmma(a: UOp, b: UOp, c: UOp, metadata: WmmaMetadata, *ranges: UOp) -> UOp:
        """a x b + c on a tensor core."""
        return check_node(UOp(Ops.WMMA, c.dtype, (a, b, c, *ranges), metadata))

    # Several devices -----------------------------------------------------------------------------

    @staticmethod
    def mstack(*buffers: UOp) -> UOp:
        """Values of one shape and dtype, one on each device."""
        dtype = buffers[0].dtype if buffers else dtypes.void
        return check_node(UOp(Ops.MSTACK, dtype, buffers))

    def mselect(self, device_index: int) -> UOp:
        """One device's part of this MSTACK or MULTI."""
        return check_node(UOp(Ops.MSELECT, self.dtype, (self,), device_index))

    def multi(self, axis: int | None = None) -> UOp:
        """The parts of this MSTACK as one value: put together along `axis`, or each all of it."""
        return check_node(UOp(Ops.MULTI, self.dtype, (self,), axis))

    def allreduce(self, reduce_op: ReduceOp, device: UOp | DeviceSpec | str) -> UOp:
        """The partial results in this MSTACK reduced to one, on `device`."""
        where = device if isinstance(device, UOp) else UOp.new_device(device)
        return check_node(UOp(Ops.ALLREDUCE, self.dtype, (self, where), reduce_op))

    # Identities ----------------------------------------------------------------------------------

    def copy_to(self, device: UOp | DeviceSpec | str) -> UOp:
        """COPY to a device."""
        where = device if isinstance(device, UOp) else UOp.new_device(device)
        return check_node(UOp(Ops.COPY, self.dtype, (self, where)))

    def detach(self, mark: int | None = None) -> UOp:
        """This value without its gradient; `mark` keeps gradient leaves apart."""
        return check_node(UOp(Ops.DETACH, self.dtype, (self,), mark))

    def contiguous(self, hints: Any = None) -> UOp:
        """This value laid out contiguously."""
        return check_node(UOp(Ops.CONTIGUOUS, self.dtype, (self,), hints))

    def contiguous_backward(self) -> UOp:
        """This value, whose gradient is to be contiguous."""
        return check_node(UOp(Ops.CONTIGUOUS_BACKWARD, self.dtype, (self,)))

    def precast(self) -> UOp:
        """This value rounded to its own dtype before it is cast."""
        return check_node(UOp(Ops.PRECAST, self.dtype, (self,)))

    def noop(self, note: str | None = None) -> UOp:
        """This value, with something for the rules above to know."""
        return check_node(UOp(Ops.NOOP, self.dtype, (self,), note))

    # Kernels and callables -----------------------------------------------------------------------

    @staticmethod
    def new_sink(*sources: UOp, info: KernelInfo | None = None) -> UOp:
        """Several roots as one; with `info`, the body of a kernel."""
        return check_node(UOp(Ops.SINK, dtypes.void, sources, info))

    @staticmethod
    def group(*sources: UOp) -> UOp:
        """Ops to be scheduled together."""
        return check_node(UOp(Ops.GROUP, dtypes.void, sources))

    @staticmethod
    def new_tuple(*values: UOp) -> UOp:
        """Several values as one."""
        return check_node(UOp(Ops.TUPLE, dtypes.void, values))

    def get_tuple(self, index: int) -> UOp:
        """Value `index` of a TUPLE, of a FUNCTION that returns one, or of a CALL of either."""
        body = self
        while body.op in (Ops.CALL, Ops.FUNCTION):
            body = body.src[0]
        inside = body.op is Ops.TUPLE and 0 <= index < len(body.src)
        dtype = body.src[index].dtype if inside else body.dtype
        return check_node(UOp(Ops.GET_TUPLE, dtype, (self,), index))

    def call(self, *args: UOp, info: CallInfo | None = None) -> UOp:
        """This body invoked with arguments."""
        return check_node(UOp(Ops.CALL, self.dtype, (self, *args), info or CallInfo()))

    def function(self, *args: UOp, info: CallInfo | None = None) -> UOp:
        """This body as a callable over formal PARAMs."""
        return check_node(UOp(Ops.FUNCTION, dtypes.void, (self, *args), info or CallInfo()))

    @staticmethod
    def new_linear(*ops: UOp) -> UOp:
        """Ops in order of execution."""
        return check_node(UOp(Ops.LINEAR, dtypes.void, ops))

    @staticmethod
    def new_source(code: str) -> UOp:
        """Rendered source text."""
        return check_node(UOp(Ops.SOURCE, dtypes.void, (), code))

    @staticmethod
    def program(sink: UOp, device: UOp, *stages: UOp) -> UOp:
        """A PROGRAM with LINEAR, SOURCE and PROGRAM_BINARY as far as they are there."""
        filled = PROGRAM_STAGES[: len(stages)]
        return check_node(UOp(Ops.PROGRAM, dtypes.void, (sink, device, *stages), filled))

    @staticmethod
    def new_binary(code: bytes) -> UOp:
        """A compiled artifact."""
        return check_node(UOp(Ops.PROGRAM_BINARY, dtypes.void, (), code))

    @staticmethod
    def custom(text: str, *deps: UOp, dtype: DType = dtypes.void) -> UOp:
        """A statement of the target language, a format string over the text of `deps`."""
        return check_node(UOp(Ops.CUSTOM, dtype, deps, text))

    @staticmethod
    def custom_i(text: str, dtype: DType, *deps: UOp) -> UOp:
        """An expression of the target language, a format string over the text of `deps`."""
        return check_node(UOp(Ops.CUSTOM_I, dtype, deps, text))

    @staticmethod
    def custom_function(kind: CustomFunctionKind, payload: Any = None, *deps: UOp) -> UOp:
        """A call of what the device has registered for `kind`."""
        return check_node(UOp(Ops.CUSTOM_FUNCTION, dtypes.void, deps, (kind, payload)))

    @staticmethod
    def if_(condition: UOp, *body: UOp) -> UOp:
        """The start of conditional execution."""
        return check_node(UOp(Ops.IF, dtypes.void, (condition, *body)))

    def endif(self) -> UOp:
        """The end of this IF."""
        return check_node(UOp(Ops.ENDIF, dtypes.void, (self,)))


def _factors(axes: Iterable[tuple[int, int]]) -> int:
    product = 1
    for _axis, factor in axes:
        product *= factor
    return product


_core.register_uop_class(UOp)
