"""`Tensor`: construction, reading, writing. The other rooms it is built of stand beside this."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from morok import engine
from morok.dtype import (
    DType,
    default_float,
    default_int,
    dtypes,
    from_numpy,
    max_value,
    min_value,
    to_numpy,
)
from morok.errors import DeviceError, DTypeError, ShapeError
from morok.ir import UOp
from morok.tensor import memory, nodes
from morok.tensor.autograd import Autograd
from morok.tensor.base import (
    Base,
    Number,
    fail,
    is_grad_enabled,
    make_leaf,
    remark,
    unique_leaf,
    watch,
)
from morok.tensor.prepared import Prepared
from morok.tensor.provenance import stamp
from morok.tensor.tracing import note_write
from morok.tensor.variable import Variable, as_value

_KINDS = {"b": 0, "u": 1, "i": 1, "f": 2}
"""Which dtypes a write may put into which: none into one of a lower kind."""


class Tensor(Autograd):
    """An n-dimensional array whose value is computed when it is needed.

    `data` is a Python number, nested sequences of them, a NumPy array or anything that lends its
    memory or converts to an array; it is copied. Python numbers get the default dtypes, arrays keep
    theirs; `dtype` converts. With `requires_grad`, `backward` finds this tensor.
    """

    __slots__ = ()
    __array_priority__ = 1000.0  # NumPy's operators leave the work to ours

    def __init__(
        self,
        data: Any,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> None:
        stamp()
        _on_cpu(device)
        copied = not isinstance(data, (Base, UOp, Variable))
        if isinstance(data, (UOp, Variable)):
            uop = as_value("Tensor", data, dtype)
        else:
            uop = _copied(data, dtype) if copied else nodes.cast(data.uop, dtype or data.dtype)
        if requires_grad and uop.dtype.kind != "f":
            fail(DTypeError, f"Tensor: only float tensors have gradients, not {uop.dtype}")
        if not requires_grad or not copied or engine.is_buffer_view(uop):
            self._adopt(uop, False)
        else:
            self._adopt(unique_leaf(uop), False)
        if requires_grad and not copied:
            self.requires_grad_()
        elif requires_grad:
            make_leaf(self)

    @classmethod
    def from_numpy(cls, array: npt.NDArray[Any]) -> Self:
        """A tensor on the memory of `array` itself: writes to the tensor, once realised, change the
        array. ShapeError unless it is C-contiguous; a read-only array is never written: a write
        moves the tensor to memory of its own.

        Tensors made from arrays that overlap in memory see each other's writes in program order, as
        the arrays do: such writes are realised at once.
        """
        dtype_known = from_numpy(array.dtype)
        if not array.flags.c_contiguous:
            fail(
                ShapeError,
                f"from_numpy: an array of shape {array.shape} with strides {array.strides} cannot "
                f"be used in place as {dtype_known}: copy it with Tensor(array)",
            )
        stamp()
        tensor = cls._wrap(memory.aliased(array))
        tensor._alias = array.size > 0
        return tensor

    # reading -------------------------------------------------------------------------------------

    def realize(self, *others: Tensor) -> Self:
        """Compute this tensor (`Tensor.realize(a, b, …)`: all of them in one schedule)."""
        memory.realize((self, *others))
        return self

    def prepare(self, *others: Tensor) -> Prepared[Tensor]:
        """This tensor's computation (and that of others, in one schedule), compiled once, to be run
        many times: see `Prepared`. Nothing is run."""
        return Prepared([self, *others])

    def numpy(self) -> npt.NDArray[Any]:
        """The contents as a read-only array on the memory itself; it never changes afterwards.

        DTypeError for a dtype NumPy does not have (bfloat16, 8-bit floats).
        """
        return memory.array_of(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        array = self.numpy()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"{array.dtype} does not become {dtype} without a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        array = self.numpy()
        # The array itself lends the memory, so that whoever reads this keeps it alive.
        return {**array.__array_interface__, "data": array.reshape(-1).data}

    def __buffer__(self, flags: int) -> memoryview:
        return self.numpy().data

    def _plain(self) -> npt.NDArray[Any]:
        """The contents as an array of some NumPy dtype that holds them."""
        known = self.dtype.name in _IN_NUMPY
        return (self if known else self.cast(dtypes.float32)).numpy()

    def item(self) -> Any:
        """The value of a tensor of one element as a Python number. ShapeError for any other."""
        if self.numel() != 1:
            fail(ShapeError, f"item: a tensor of shape {self.shape} has {self.numel()} elements")
        return self._plain().item()

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers (a number for a 0-d tensor)."""
        return self._plain().tolist()

    def __bool__(self) -> bool:
        if self.numel() != 1:
            fail(
                ShapeError,
                f"bool: a tensor of shape {self.shape} is neither true nor false: use .any() or "
                ".all()",
            )
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.numel() != 1:
            raise TypeError(f"a tensor of {self.dtype} and shape {self.shape} is no index")
        return int(self.item())

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a 0-d tensor has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        if not self.ndim:
            raise TypeError("a 0-d tensor cannot be iterated over")
        return iter([self[i] for i in range(self.shape[0])])

    def __repr__(self) -> str:
        text = np.array2string(self._plain(), separator=", ", prefix="tensor(")
        grad = ", requires_grad=True" if self.requires_grad else ""
        return f"tensor({text}, dtype={self.dtype.name}{grad})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    # where and what ------------------------------------------------------------------------------

    @property
    def device(self) -> str:
        """The device the value lives on."""
        return "CPU"

    def to(self, *target: str | DType | Tensor) -> Self:
        """On another device or in another dtype, or as another tensor is."""
        out = self
        for each in target:
            if isinstance(each, DType):
                out = out.cast(each)
            elif isinstance(each, Tensor):
                out = out.cast(each.dtype)
            else:
                _on_cpu(each)
        return out

    def cpu(self) -> Self:
        """This tensor: it is on the CPU."""
        return self

    def clone(self) -> Self:
        """The same value as a tensor of its own; gradients flow through."""
        return self._wrap(self.uop, self._rg)

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self.dtype.itemsize

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = self._wrap(self.uop)
        memo[id(self)] = made
        if self._rg:
            made.requires_grad_()
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        stored = memory.in_numpy(self.dtype)
        bits = self if stored is self.dtype else self.bitcast(stored)
        return _unpickled, (type(self), bits.numpy().copy(), self.dtype, self._rg)

    # writing -------------------------------------------------------------------------------------

    def assign(self, value: Any) -> Self:
        """Give this tensor a new value, cast to its dtype and broadcast to its shape.

        Program order holds: what was computed from it before, even lazily, keeps the old value. The
        memory is re-used when the write is realised and nobody else holds the old contents. A leaf
        may only be written within `no_grad`.
        """
        stamp()
        new = self._operand("assign", value)
        if not isinstance(new, Base):
            new = self._wrap(self._constant("assign", new))
        if new is self:
            return self
        own, shape = self.shape, new.shape
        if len(shape) > len(own) or any(
            n not in (1, m) for n, m in zip(shape[::-1], own[::-1], strict=False)
        ):
            fail(ShapeError, f"assign: shape {shape} does not broadcast to {own}")
        if self._leaf and is_grad_enabled():
            fail(
                ShapeError,
                "assign: a leaf that requires gradients is written: do it within no_grad()",
            )
        uop = nodes.broadcast_to(nodes.cast(new.uop, self.dtype), own)
        before = self.uop, self._rg, self._home, self._parts, self._alias
        note_write(self, before)
        self._home, self._parts = memory.pending(self, uop)
        if self._leaf:
            self.uop = unique_leaf(uop)
            remark(self)
        else:
            self.uop, self._rg = uop, new._rg and self.dtype.kind == "f"
            if self._marks is not None:  # retain_grad: of the new value
                watch(self)
        try:
            memory.assigned(self)
        except BaseException:
            self.uop, self._rg, self._home, self._parts, self._alias = before
            raise
        return self

    copy_ = assign

    def _constant(self, method: str, value: Number) -> UOp:
        """A Python number in this dtype: cast, but an int must fit."""
        dtype = self.dtype
        if (
            dtype.kind in "iu"
            and not isinstance(value, float)
            and not min_value(dtype) <= value <= max_value(dtype)
        ):
            fail(DTypeError, f"{method}: {value} does not fit in {dtype}")
        return nodes.const(dtype, value)

    def _become(self, method: str, result: Self) -> Self:
        """The in-place form of an operation."""
        if result.shape != self.shape:
            fail(ShapeError, f"{method}: a result of shape {result.shape} in place of {self.shape}")
        if _KINDS[result.dtype.kind] > _KINDS[self.dtype.kind]:
            fail(DTypeError, f"{method}: a result of {result.dtype} in place of {self.dtype}")
        return self.assign(result)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write where `index` (basic indexing) points; `value` is cast and broadcast."""
        if memory.waits_for_variables(self):
            self.realize()  # with the values they have; the next write may give others
        new = self._operand("setitem", value)
        if not isinstance(new, Tensor):
            new = self._wrap(memory.changing(self._constant("setitem", new)))
        self.assign(self._written(index, new))

    def __iadd__(self, other: Any) -> Self:
        return self._become("add_", self + other)

    def __isub__(self, other: Any) -> Self:
        return self._become("sub_", self - other)

    def __imul__(self, other: Any) -> Self:
        return self._become("mul_", self * other)

    def __itruediv__(self, other: Any) -> Self:
        return self._become("div_", self / other)

    def __ifloordiv__(self, other: Any) -> Self:
        return self._become("floor_divide_", self // other)

    def __imod__(self, other: Any) -> Self:
        return self._become("remainder_", self % other)

    def __ipow__(self, other: Any) -> Self:
        return self._become("pow_", self**other)

    def __iand__(self, other: Any) -> Self:
        return self._become("bitwise_and_", self & other)

    def __ior__(self, other: Any) -> Self:
        return self._become("bitwise_or_", self | other)

    def __ixor__(self, other: Any) -> Self:
        return self._become("bitwise_xor_", self ^ other)

    def __ilshift__(self, other: Any) -> Self:
        return self._become("bitwise_left_shift_", self << other)

    def __irshift__(self, other: Any) -> Self:
        return self._become("bitwise_right_shift_", self >> other)

    def __imatmul__(self, other: Any) -> Self:
        return self._become("matmul_", self @ other)

    add_, sub_, mul_, div_ = __iadd__, __isub__, __imul__, __itruediv__

    def fill_(self, value: Any) -> Self:
        """Every element `value`."""
        return self.assign(value)

    def zero_(self) -> Self:
        """Every element 0."""
        return self.assign(0)


_IN_NUMPY = frozenset(d.name for d in dtypes.all) - memory.WITHOUT_NUMPY


def _on_cpu(device: str | None) -> None:
    if device is not None and str(device).upper().partition(":")[0] != "CPU":
        fail(DeviceError, f"there is no device {device!r}: this build has CPU")


def _copied(data: Any, dtype: DType | None) -> UOp:
    """Python or NumPy data in memory of its own."""
    try:
        array = np.asarray(_listed(data))
        own = from_numpy(array.dtype.newbyteorder("="))
    except (ValueError, TypeError) as error:
        fail(DTypeError, f"Tensor: no tensor can be made of {type(data).__name__}: {error}")
    if not _typed(data):
        own, dtype = _default(array, own, dtype)
    array = np.asarray(array, to_numpy(own))
    if dtype is None or dtype is own:
        return memory.copied(array)
    if dtype.name not in _IN_NUMPY or (dtype.kind in "iu" and own.kind == "f"):
        return nodes.cast(memory.copied(array), dtype)  # NumPy has no such cast, or another
    with np.errstate(over="ignore", invalid="ignore"):
        return memory.copied(array.astype(to_numpy(dtype)))


def _listed(data: Any) -> Any:
    """What NumPy takes: the memory of what lends it, the list of what is iterated."""
    if isinstance(data, (np.ndarray, np.generic, list, tuple, int, float)):
        return data
    try:
        return memoryview(data)
    except TypeError:
        return data if hasattr(data, "__array__") or not hasattr(data, "__iter__") else list(data)


def _typed(data: Any) -> bool:
    """Whether the elements have a dtype of their own: not Python numbers."""
    if isinstance(data, (list, tuple)):
        return bool(data) and _typed(data[0])
    return not isinstance(data, (bool, int, float, range)) or isinstance(data, np.generic)


def _default(
    array: npt.NDArray[Any], own: DType, dtype: DType | None
) -> tuple[DType, DType | None]:
    """The dtype in which to copy Python numbers NumPy read as `own`, and the one to give them."""
    if array.size == 0 and dtype is None:
        return own, default_float()
    if dtype is not None or own.kind == "b":
        return own, dtype
    if own.kind == "f":
        return own, default_float()
    narrow = np.iinfo(to_numpy(default_int()))
    fits = array.size == 0 or (array.min() >= narrow.min and array.max() <= narrow.max)
    return own, default_int() if fits else own


def _unpickled(
    cls: type[Tensor], array: npt.NDArray[Any], dtype: DType, requires_grad: bool
) -> Tensor:
    made = cls(array)
    made = made if made.dtype is dtype else made.bitcast(dtype)
    return made.requires_grad_() if requires_grad else made
