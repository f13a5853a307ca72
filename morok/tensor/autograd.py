"""Gradients of tensors: leaves, `backward` and `gradient`."""

from __future__ import annotations

from typing import Self

from morok import engine
from morok.errors import DTypeError, ShapeError
from morok.ir import Ops, UOp
from morok.tensor import memory, nodes
from morok.tensor.attention import Attention
from morok.tensor.base import Base, fail, make_leaf, unique_leaf, watch, watched_by_graph
from morok.tensor.gradient import gradients
from morok.tensor.provenance import stamp
from morok.tensor.tracing import refuse_unknown


class Autograd(Attention):
    """Methods about gradients."""

    __slots__ = ()

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to or through this tensor."""
        return self._rg

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.requires_grad_(wanted)

    @property
    def is_leaf(self) -> bool:
        """Whether this tensor was not computed from others that require gradients."""
        return self._leaf or not self._rg

    def requires_grad_(self, wanted: bool = True) -> Self:
        """Make this tensor a leaf whose gradient `backward` finds, or a constant.

        Only what is computed from it afterwards depends on it. DTypeError unless it is a float.
        """
        if wanted == self._rg:
            return self
        if not wanted:
            if not self._leaf:
                fail(ShapeError, "requires_grad: a computed tensor cannot be cut off: use detach()")
            self._rg, self._leaf, self._marks = False, False, None
            self._isolate()
            return self
        if self.dtype.kind != "f":
            fail(DTypeError, f"requires_grad: only float tensors have gradients, not {self.dtype}")
        self._isolate()
        make_leaf(self)
        return self

    def _isolate(self) -> None:
        """Its graph becomes one that nothing built before contains; the value stays where it is."""
        view = memory.memory_of(self)
        self.uop = unique_leaf(self.uop)
        if view is not None:
            engine.hold(self.uop, view)

    def retain_grad(self) -> None:
        """Have `backward` leave the gradient of this computed tensor in `.grad` too."""
        if not self._rg:
            fail(ShapeError, "retain_grad: this tensor does not require gradients")
        if self._marks is None:
            watch(self)

    def backward(self, gradient: Self | None = None, create_graph: bool = False) -> None:
        """Add the gradient of this tensor, weighted by `gradient`, to `.grad` of every leaf.

        `gradient` may be left out for a tensor of one element. The gradients are constants to later
        gradients unless `create_graph`.
        """
        if not self._rg:
            fail(
                ShapeError,
                "backward: this tensor does not depend on any that requires gradients (created "
                "with requires_grad=True, and used outside of no_grad; what a jitted function "
                "returns is a constant: call backward inside it)",
            )
        refuse_unknown(
            [self],
            "calls backward",
            "call it on what the function returns, or take gradients as values with gradient()",
        )
        stamp()
        seed = self._seed("backward", gradient)
        watched = watched_by_graph()
        found = gradients(self.uop, seed, watched)
        sums: dict[Base, UOp] = {}
        for uop, grad in found.items():
            leaf = watched[uop]
            before = sums.get(leaf)
            sums[leaf] = grad if before is None else nodes.alu(Ops.ADD, before, grad)
        for leaf, grad in sums.items():
            if not create_graph:
                grad = nodes.alu(Ops.DETACH, grad)
            new = self._wrap(grad, create_graph)
            leaf.grad = new if leaf.grad is None else leaf.grad + new

    def _seed(self, method: str, gradient: Self | None) -> UOp:
        if gradient is None:
            if self.numel() != 1:
                fail(
                    ShapeError,
                    f"{method}: a tensor of shape {self.shape} is no scalar: reduce it (sum, "
                    "mean), or give the gradient that flows into it",
                )
            return nodes.const(self.dtype, 1)
        if gradient.shape != self.shape:
            fail(
                ShapeError,
                f"{method}: the gradient of shape {gradient.shape} flows into shape {self.shape}",
            )
        return nodes.cast(gradient.uop, self.dtype)

    def gradient(self, *xs: Self, gradient: Self | None = None) -> list[Self]:
        """`Tensor.gradient(loss, *xs)`: the gradient of this tensor with respect to each of `xs`.

        Zeros where it does not depend on one. Any tensor on the way may be asked for, leaf or not;
        values are told apart by how they are computed, so two tensors from the same expression are
        one. The results can be differentiated again.
        """
        stamp()
        for x in xs:
            if x.dtype.kind != "f":
                fail(DTypeError, f"gradient: only float tensors have gradients, not {x.dtype}")
        if self.dtype.kind != "f":
            fail(DTypeError, f"gradient: only float tensors have gradients, not {self.dtype}")
        seed = self._seed("gradient", gradient)
        stand_ins = self._stand_ins(xs)
        targets = [stand_ins.get(x.uop, x.uop) for x in xs]
        found = gradients(self.uop, seed, targets)
        return [
            self._wrap(found[target], self._rg)
            if target in found
            else self._wrap(nodes.full(x.shape, x.dtype, 0))
            for x, target in zip(xs, targets, strict=True)
        ]

    def _stand_ins(self, xs: tuple[Self, ...]) -> dict[UOp, UOp]:
        """For an x realised since this graph was built: the node that stands for it in there."""
        order = engine.own_nodes(self.uop)
        present = set(order)
        missing = {x.uop for x in xs if x.uop not in present}
        if not missing:
            return {}
        return {node.realized: node for node in order if node.realized in missing}
