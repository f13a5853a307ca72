"""Movement: the same elements in another shape, order or place. Nothing is copied until somebody
needs the memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Self

from morok.dtype import Scalar, dtypes
from morok.errors import AxisError, DTypeError, ShapeError
from morok.ir import Ops, UOp, is_symbolic, shape_text
from morok.tensor import nodes
from morok.tensor.base import Base, broadcast_shapes, common_dtype, fail
from morok.tensor.nodes import Shape
from morok.tensor.provenance import stamp
from morok.tensor.variable import least, length_of

_CAT_AT_ONCE = 32
"""Parts of one `cat` that are chosen among element by element; more are joined in groups first."""

Pads = Sequence[int] | Sequence[tuple[int, int] | None]


def _ints(args: tuple[Any, ...]) -> Shape:
    """`f(2, 3)` and `f((2, 3))` mean the same; ints may be anything with `__index__`."""
    if len(args) == 1 and not hasattr(args[0], "__index__") and not isinstance(args[0], UOp):
        args = tuple(args[0])
    return tuple([each if type(each) is int else length_of(each) for each in args])


def _below_zero(amount: Any) -> bool:
    return not isinstance(amount, UOp) and amount < 0


class Movement(Base):
    """Methods that move elements."""

    __slots__ = ()

    # shape ---------------------------------------------------------------------------------------

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """The same elements, row by row, in another shape; one length may be -1 and is worked out.

        ShapeError when the number of elements differs.
        """
        wanted = _ints(shape)
        own = self.shape
        if wanted == own:
            return self._same()
        if is_symbolic(wanted) or is_symbolic(own):
            return self._reshaped_symbolic(wanted)
        if -1 in wanted or prod(wanted) != prod(own) or any(n < 0 for n in wanted):
            wanted = self._filled_in(wanted)
        stamp()
        return self._wrap(nodes.reshape(self.uop, wanted), self._rg)

    def _reshaped_symbolic(self, wanted: tuple[Any, ...]) -> Self:
        """`reshape` where a dim is a number of variables, which stays a dim of its own."""
        own = self.shape
        numbers = [prod(n for n in dims if not isinstance(n, UOp)) for dims in (own, wanted)]
        shape = wanted
        if wanted.count(-1) == 1 and numbers[1] and numbers[0] % numbers[1] == 0:
            length = numbers[0] // -numbers[1]  # the -1 is a factor of the product
            shape = tuple(length if n == -1 else n for n in wanted)
        stamp()
        try:
            return self._wrap(nodes.reshape(self.uop, shape), self._rg)
        except ShapeError:
            fail(
                ShapeError,
                f"reshape: {shape_text(own)} to {shape_text(wanted)}: a symbolic dim is neither "
                "split nor joined, and keeps its place among the elements: pad to an int first",
            )

    def _filled_in(self, wanted: Shape) -> Shape:
        """`wanted` with its -1 worked out."""
        size, known = self.numel(), prod(n for n in wanted if n != -1)
        fits = size == known
        if wanted.count(-1) == 1 and known > 0 and size % known == 0:
            wanted = tuple(size // known if n == -1 else n for n in wanted)
            fits = True
        if not fits or any(least(n) < 0 for n in wanted):
            fail(ShapeError, f"reshape: {size} elements of shape {self.shape} do not fill {wanted}")
        return wanted

    view = reshape

    def view_as(self, other: Base) -> Self:
        """This tensor in the shape of another."""
        return self.reshape(other.shape)

    reshape_as = view_as

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Dims from `start_dim` to `end_dim` (inclusive) as one."""
        shape = self.shape
        first, last = self._axis("flatten", start_dim), self._axis("flatten", end_dim)
        if first > last:
            fail(AxisError, f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
        return self.reshape(*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :])

    def ravel(self) -> Self:
        """All elements in one dim."""
        return self.reshape(self.numel())

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Self:
        """Dim `dim` split into `sizes`, one of which may be -1."""
        axis, shape, sizes = self._axis("unflatten", dim), self.shape, tuple(sizes)
        known = prod(n for n in sizes if n != -1)
        if sizes.count(-1) == 1 and known > 0 and shape[axis] % known == 0:
            sizes = tuple(shape[axis] // known if n == -1 else n for n in sizes)
        if prod(sizes) != shape[axis] or any(n < 0 for n in sizes):
            fail(ShapeError, f"unflatten: {shape[axis]} along axis {axis} is not split by {sizes}")
        return self.reshape(*shape[:axis], *sizes, *shape[axis + 1 :])

    def unsqueeze(self, dim: int) -> Self:
        """A new dim of size 1 at `dim`."""
        shape = self.shape
        axis = self._axis("unsqueeze", dim, len(shape) + 1)
        return self.reshape(*shape[:axis], 1, *shape[axis:])

    def squeeze(self, dim: int | Sequence[int] | None = None, *, axis: Any = None) -> Self:
        """Without the dims of size 1, or without those of `dim` that have size 1."""
        axes = self._axes("squeeze", dim if dim is not None else axis)
        return self.reshape(tuple(n for i, n in enumerate(self.shape) if n != 1 or i not in axes))

    # order ---------------------------------------------------------------------------------------

    def permute(self, *dims: int | Sequence[int]) -> Self:
        """Dims in another order: dim i of the result is dim `dims[i]` of this tensor."""
        wanted = _ints(dims)
        axes = tuple([self._axis("permute", axis) for axis in wanted])
        if len(axes) != self.ndim or len(set(axes)) != len(axes):
            fail(AxisError, f"permute: {wanted} does not name every axis of {self.shape} once")
        stamp()
        return self._wrap(nodes.permute(self.uop, axes), self._rg)

    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """Two dims exchanged."""
        first, second = self._axis("transpose", dim0), self._axis("transpose", dim1)
        order = list(range(self.ndim))
        if order:
            order[first], order[second] = second, first
        stamp()
        return self._wrap(nodes.permute(self.uop, order), self._rg)

    swapaxes = transpose

    @property
    def T(self) -> Self:  # noqa: N802 - NumPy's name
        """The dims in reverse order."""
        return self.permute(tuple(reversed(range(self.ndim))))

    @property
    def mT(self) -> Self:  # noqa: N802 - NumPy's name
        """The last two dims exchanged."""
        return self.transpose(-2, -1)

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Dims `source` moved to the places `destination`, the others in their order."""
        moved, places = self._axes("movedim", source), self._axes("movedim", destination)
        if len(moved) != len(places):
            fail(AxisError, f"movedim: {len(moved)} axes for {len(places)} places")
        at = dict(zip(places, moved, strict=True))
        rest = iter([axis for axis in range(self.ndim) if axis not in moved])
        return self.permute([at[i] if i in at else next(rest) for i in range(self.ndim)])

    moveaxis = movedim

    def flip(self, *dims: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Self:
        """Reversed along `dims`."""
        wanted = self._axes("flip", _ints(dims) if dims else axis)
        stamp()
        flags = [i in wanted for i in range(self.ndim)]
        return self._wrap(nodes.flip(self.uop, flags), self._rg)

    def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Self:
        """Moved by `shifts` along `dims`, what leaves at one end coming in at the other; without
        `dims` the tensor is rolled as if it were flat."""
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        axes = self._axes("roll", dims)
        amounts = (shifts,) if isinstance(shifts, int) else tuple(shifts)
        if len(axes) != len(amounts):
            fail(AxisError, f"roll: {len(amounts)} shifts for {len(axes)} axes")
        out = self._same()
        for axis, amount in zip(axes, amounts, strict=True):
            length = self.shape[axis]
            cut = length - amount % length if length else 0
            if 0 < cut < length:
                out = out._span(axis, cut, length).cat(out._span(axis, 0, cut), dim=axis)
        return out

    # extent --------------------------------------------------------------------------------------

    def expand(self, *shape: int | Sequence[int]) -> Self:
        """Dims of size 1 repeated to `shape` without copying; -1 keeps a length; dims may be new
        in front. ShapeError when `shape` is not reached so."""
        wanted, own = _ints(shape), self.shape
        new = len(wanted) - len(own)
        if new >= 0 and -1 in wanted[new:]:
            kept = zip(wanted[new:], own, strict=True)
            wanted = wanted[:new] + tuple(n if n != -1 else old for n, old in kept)
        fits = new >= 0 and all(old in (1, n) for n, old in zip(wanted[new:], own, strict=True))
        if not fits or any(least(n) < 0 for n in wanted):
            got, aim = shape_text(own), shape_text(wanted)
            fail(ShapeError, f"expand: shape {got} does not broadcast to {aim}")
        stamp()
        return self._wrap(nodes.broadcast_to(self.uop, wanted), self._rg)

    broadcast_to = expand

    def expand_as(self, other: Base) -> Self:
        """This tensor expanded to the shape of another."""
        return self.expand(other.shape)

    def repeat(self, *repeats: int | Sequence[int]) -> Self:
        """The tensor laid side by side `repeats[i]` times along dim i (NumPy calls it tile); there
        may be more repeats than dims."""
        counts = _ints(repeats)
        if len(counts) < self.ndim or any(n < 0 for n in counts):
            fail(ShapeError, f"repeat: {counts} for a tensor of shape {self.shape}")
        own = (1,) * (len(counts) - self.ndim) + self.shape
        apart = tuple(n for length in own for n in (1, length))
        beside = tuple(n for k, length in zip(counts, own, strict=True) for n in (k, length))
        whole = tuple(k * length for k, length in zip(counts, own, strict=True))
        return self.reshape(apart).expand(beside).reshape(whole)

    def tile(self, *repeats: int | Sequence[int]) -> Self:
        """As `repeat`; missing repeats in front are 1, as NumPy's."""
        counts = _ints(repeats)
        return self.repeat((1,) * (self.ndim - len(counts)) + counts)

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Every element `repeats` times in a row along `dim` (NumPy calls it repeat)."""
        if dim is None:
            return self.flatten().repeat_interleave(repeats, 0)
        axis, shape = self._axis("repeat_interleave", dim), self.shape
        front, back = shape[: axis + 1], shape[axis + 1 :]
        out = self.reshape(*front, 1, *back).expand(*front, repeats, *back)
        return out.reshape(*front[:-1], front[-1] * repeats, *back)

    def pad(self, pad: Pads, mode: str = "constant", value: Scalar = 0) -> Self:
        """`value` around the tensor.

        `pad` is flat, last dim first, as PyTorch's (left, right, top, bottom …), or one pair (or
        None) a dim, first dim first, as NumPy's. Negative amounts cut.
        """
        if mode != "constant":
            fail(ShapeError, f"pad: mode {mode!r} is not known: only 'constant' is")
        pairs = self._pairs("pad", pad)
        if any(_below_zero(before) or _below_zero(after) for before, after in pairs):
            cuts = [
                (max(-before, 0), length - max(-after, 0))
                for (before, after), length in zip(pairs, self.shape, strict=True)
            ]
            pairs = [(max(before, 0), max(after, 0)) for before, after in pairs]
            return self.shrink(cuts).pad(pairs, value=value)
        stamp()
        begins, ends = zip(*pairs, strict=True)
        out = nodes.pad(self.uop, begins, ends)
        if out is self.uop:
            return self._same()
        if value:
            inside = nodes.pad(nodes.full(self.shape, dtypes.bool_, True), begins, ends)
            out = nodes.where(inside, out, nodes.const(self.dtype, value))
        return self._wrap(out, self._rg)

    def _pairs(self, method: str, amounts: Pads) -> list[tuple[int, int]]:
        given: list[Any] = list(amounts)
        if given and all(isinstance(each, int) for each in given):
            if len(given) % 2 or len(given) > 2 * self.ndim:
                fail(ShapeError, f"{method}: {tuple(given)} are no pairs for shape {self.shape}")
            pairs = list(zip(given[::2], given[1::2], strict=True))[::-1]
            return [(0, 0)] * (self.ndim - len(pairs)) + pairs
        if len(given) != self.ndim:
            fail(ShapeError, f"{method}: {len(given)} pairs for a tensor of shape {self.shape}")
        return [
            (0, 0) if each is None else (length_of(each[0]), length_of(each[1])) for each in given
        ]

    def shrink(self, bounds: Sequence[tuple[int, int] | None]) -> Self:
        """The region begin <= i < end of each dim; None keeps a dim whole."""
        own, spans = self.shape, list(bounds)
        whole = [(0, n) if span is None else span for span, n in zip(spans, own, strict=False)]
        if len(spans) != len(own) or any(
            not 0 <= begin <= end <= n for (begin, end), n in zip(whole, own, strict=True)
        ):
            fail(ShapeError, f"shrink: {spans} does not lie within shape {own}")
        stamp()
        begins, ends = [b for b, _ in whole], [e for _, e in whole]
        return self._wrap(nodes.shrink(self.uop, begins, ends), self._rg)

    def _span(self, axis: int, begin: int, end: int) -> Self:
        """begin <= i < end along one axis."""
        spans: list[tuple[int, int] | None] = [None] * self.ndim
        spans[axis] = (begin, end)
        return self.shrink(spans)

    # joining and parting -------------------------------------------------------------------------

    def cat(self, *others: Self | Sequence[Self], dim: int = 0, axis: int | None = None) -> Self:
        """Joined along an existing dim: `Tensor.cat([a, b], dim=1)` or `a.cat(b, dim=1)`.

        The other dims must agree; dtypes promote.
        """
        parts: list[Self]
        parts, places = _joined(self, others)
        dim = places[0] if places else dim if axis is None else axis
        first = parts[0]
        along = first._axis("cat", dim)
        shapes = [part.shape for part in parts]
        common = {shape[:along] + shape[along + 1 :] for shape in shapes if len(shape) > along}
        if len(common) != 1 or any(len(shape) != first.ndim for shape in shapes) or not first.ndim:
            listing = " and ".join(map(str, shapes))
            fail(ShapeError, f"cat: shapes {listing} differ outside axis {along}")
        if len(parts) > _CAT_AT_ONCE:
            groups = [parts[i : i + _CAT_AT_ONCE] for i in range(0, len(parts), _CAT_AT_ONCE)]
            joined = [group[0].cat(*group[1:], dim=along).contiguous() for group in groups]
            return joined[0].cat(*joined[1:], dim=along)
        stamp()
        dtype = common_dtype("cat", *(part.dtype for part in parts))
        length = sum(shape[along] for shape in shapes)
        nothing = [0] * first.ndim
        out, begin = None, 0
        for part, shape in zip(parts, shapes, strict=True):
            end = begin + shape[along]
            if begin < end:
                before, after = nothing.copy(), nothing.copy()
                before[along], after[along] = begin, length - end
                piece = nodes.pad(nodes.cast(part.uop, dtype), before, after)
                if out is not None:
                    # A choice by place, not a sum: -0.0 and NaN must come through.
                    here = nodes.pad(nodes.full(shape, dtypes.bool_, True), before, after)
                    piece = nodes.where(here, piece, out)
                out = piece
            begin = end
        if out is None:
            out = nodes.cast(first.uop, dtype)
        return type(first)._wrap(out, any(part._rg for part in parts))

    concat = concatenate = cat

    def stack(self, *others: Self | Sequence[Self], dim: int = 0, axis: int | None = None) -> Self:
        """Joined along a new dim; all shapes must be equal."""
        parts: list[Self]
        parts, places = _joined(self, others)
        dim = places[0] if places else dim if axis is None else axis
        shapes = {part.shape for part in parts}
        if len(shapes) != 1:
            fail(ShapeError, f"stack: shapes {' and '.join(map(str, shapes))} differ")
        along = parts[0]._axis("stack", dim, parts[0].ndim + 1)
        apart = [part.unsqueeze(along) for part in parts]
        return apart[0].cat(*apart[1:], dim=along)

    def split(self, sizes: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Pieces of length `sizes` (the last may be shorter), or of the lengths in `sizes`."""
        axis = self._axis("split", dim)
        length = self.shape[axis] if self.ndim else 0
        if isinstance(sizes, int):
            if sizes < 1:
                fail(ShapeError, f"split: pieces of length {sizes}")
            lengths = [min(sizes, length - at) for at in range(0, length, sizes)] or [0]
        else:
            lengths = list(sizes)
            if sum(lengths) != length or min(lengths, default=0) < 0:
                fail(ShapeError, f"split: {lengths} do not add up to {length} along axis {axis}")
        ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
        return tuple(self._span(axis, e - n, e) for n, e in zip(lengths, ends, strict=True))

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """At most `chunks` pieces of equal length (the last may be shorter)."""
        axis = self._axis("chunk", dim)
        if chunks < 1:
            fail(ShapeError, f"chunk: {chunks} pieces")
        return self.split(max(1, -(-self.shape[axis] // chunks)), axis)

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """The slices along `dim`, without it."""
        axis = self._axis("unbind", dim)
        if not self.ndim:
            fail(AxisError, "unbind: a scalar has no dimension to part")
        return tuple(self._span(axis, i, i + 1).squeeze(axis) for i in range(self.shape[axis]))

    def broadcast_tensors(self, *others: Self) -> tuple[Self, ...]:
        """All of them in the shape in which they meet."""
        shape = broadcast_shapes("broadcast_tensors", self.shape, *(each.shape for each in others))
        return tuple(each.expand(shape) for each in (self, *others))

    # identity ------------------------------------------------------------------------------------

    def contiguous(self) -> Self:
        """The same value, materialised in its own memory when it is computed."""
        stamp()
        return self._wrap(nodes.alu(Ops.CONTIGUOUS, self.uop), self._rg)

    def detach(self) -> Self:
        """The same value as a constant to gradients."""
        if not self._rg:
            return self._wrap(self.uop)
        return self._wrap(nodes.alu(Ops.DETACH, self.uop))


def _joined(first: Any, others: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """The tensors of `cat([a, b])`, `cat([a, b], 1)`, `a.cat(b)` and `a.cat([b])`, and the dim if
    it was given by position."""
    given = [first, *others]
    places = [each for each in given if isinstance(each, int)]
    parts: list[Any] = []
    for each in given:
        if isinstance(each, Base):
            parts.append(each)
        elif not isinstance(each, int):
            parts.extend(each)
    if not parts or not all(isinstance(part, Base) for part in parts) or len(places) > 1:
        fail(DTypeError, "cat and stack join tensors: expected at least one, and nothing else")
    return parts, places
