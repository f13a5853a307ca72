"""Random expressions over index variables, and over ints, bools and floats."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from bench._evaluation import loaded
from morok.dtype import DType, dtypes, max_value, min_value
from morok.ir import AxisType, UOp

X = dtypes.index
ENDS = (1, 2, 3, 4, 5, 6, 8, 12, 20)
DIVISORS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, -1, -2, -3, -4, -6)
FACTORS = (0, 1, 2, 3, 4, 5, 6, 8, 12, -1, -2, -3, -4)
CONSTANTS = (0, 1, 2, 3, 4, 5, 7, 8, -1, -2, -5, 12, 20, 32)


def index_domain(rng: random.Random) -> dict[UOp, np.ndarray]:
    """One to three loops and now and then a variable, with all their joint values."""
    ends = [rng.choice(ENDS) for _ in range(rng.randrange(1, 4))]
    while np.prod(ends) > 1500:
        ends.pop()
    leaves = [UOp.range(end, i, AxisType.LOOP) for i, end in enumerate(ends)]
    values = [np.arange(end) for end in ends]
    if rng.random() < 0.3:
        low = rng.randrange(-6, 3)
        high = low + rng.randrange(9)
        leaves.append(UOp.define_var("v", low, high))
        values.append(np.arange(low, high + 1))
    grids = np.meshgrid(*values, indexing="ij")
    return {leaf: grid.ravel().astype(np.int64) for leaf, grid in zip(leaves, grids, strict=True)}


def index_expression(rng: random.Random, leaves: Sequence[UOp], depth: int) -> UOp:
    """An index expression of at most `depth` levels."""
    if depth <= 0 or rng.random() < 0.1:
        return rng.choice(leaves) if rng.random() < 0.8 else UOp.const(X, rng.choice(CONSTANTS))

    def part() -> UOp:
        return index_expression(rng, leaves, depth - 1)

    def by(numbers: Sequence[int]) -> UOp:
        return UOp.const(X, rng.choice(numbers))

    forms: list[tuple[float, Callable[[], UOp]]] = [
        (0.30, lambda: part() + part()),
        (0.08, lambda: part() - part()),
        (0.17, lambda: part() * by(FACTORS)),
        (0.14, lambda: part() // by(DIVISORS)),
        (0.14, lambda: part() % by(DIVISORS)),
        (0.02, lambda: part().maximum(part())),
        (0.02, lambda: part().minimum(part())),
        (0.02, lambda: -part()),
        (0.02, lambda: part() << by((0, 1, 2, 3))),
        (0.02, lambda: part() >> by((0, 1, 2, 3))),
        (0.01, lambda: part().idiv(by(DIVISORS))),
        (0.01, lambda: part().mod(by(DIVISORS))),
        (0.05, lambda: condition(rng, leaves, depth - 1).where(part(), part())),
    ]
    make: Callable[[], UOp] = rng.choices([f for _, f in forms], [w for w, _ in forms])[0]
    return make()


def condition(rng: random.Random, leaves: Sequence[UOp], depth: int) -> UOp:
    """A truth value made of comparisons of index expressions."""
    if depth <= 0 or rng.random() < 0.6:
        a = index_expression(rng, leaves, depth - 1)
        b = index_expression(rng, leaves, depth - 1)
        made: UOp = rng.choice((a.__lt__, a.__le__, a.__gt__, a.__ge__, a.eq, a.ne))(b)
        return made
    a = condition(rng, leaves, depth - 1)
    form = rng.random()
    if form < 0.15:
        return ~a
    b = condition(rng, leaves, depth - 1)
    return a & b if form < 0.5 else a | b if form < 0.85 else a ^ b


def constant(rng: random.Random, dtype: DType) -> UOp:
    if dtype.kind == "b":
        return UOp.const(dtype, rng.random() < 0.5)
    if dtype.kind == "f":
        return UOp.const(dtype, rng.choice((0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, float("inf"))))
    choices = [0, 1, 2, 3, 4, 5, 7, 8, int(max_value(dtype)), int(min_value(dtype))]
    return UOp.const(dtype, rng.choice(choices + ([-1, -2, -3] if dtype.kind == "i" else [])))


def expression(rng: random.Random, dtype: DType, others: Sequence[DType], depth: int) -> UOp:
    """An expression of a bool, int or float dtype, over loaded values of it and of `others`."""
    if depth <= 0 or rng.random() < 0.08:
        return loaded(dtype, rng.randrange(3)) if rng.random() < 0.7 else constant(rng, dtype)

    def part(of: DType = dtype) -> UOp:
        return expression(rng, of, others, depth - 1)

    choice = rng.random()
    if dtype.kind == "b":
        return _truth(rng, others, part, choice)
    if choice < 0.12:
        return part(dtypes.bool_).where(part(), part())
    if choice < 0.18:
        return part(rng.choice([*others, dtypes.bool_])).cast(dtype)
    a = part()
    if dtype.kind == "f":
        unary = (a.__neg__, a.__abs__, a.sqrt, a.trunc, a.floor, a.ceil, a.round, a.square)
        if choice < 0.5:
            return rng.choice((*unary, a.reciprocal))()
        b = part()
        return rng.choice((a.__add__, a.__sub__, a.__mul__, a.__truediv__, a.maximum, a.minimum))(b)
    if choice < 0.28:
        return rng.choice((a.__neg__, a.__invert__, a.__abs__, a.square, a.sign))()
    if choice < 0.34:
        count = UOp.const(dtype, rng.choice((0, 1, 2, 3, 7, 8, 31, 40)))
        return a << count if rng.random() < 0.5 else a >> count
    b = constant(rng, dtype) if rng.random() < 0.5 else part()
    if choice < 0.4:
        return (a // b) * b + a % b
    return rng.choice(
        (
            *(a.__add__, a.__sub__, a.__mul__, a.__floordiv__, a.__mod__, a.idiv, a.mod),
            *(a.maximum, a.minimum, a.__and__, a.__or__, a.__xor__, b.__sub__),
        )
    )(b)


def _truth(
    rng: random.Random, others: Sequence[DType], part: Callable[..., UOp], choice: float
) -> UOp:
    if choice < 0.45:
        of = rng.choice([*others, dtypes.bool_])
        a, b = part(of), part(of)
        return rng.choice((a.__lt__, a.__le__, a.__gt__, a.__ge__, a.eq, a.ne))(b)
    a = part()
    if choice < 0.55:
        return ~a
    b = part()
    if choice < 0.62:
        return part().where(a, b)
    return rng.choice((a.__and__, a.__or__, a.__xor__, a.__add__, a.__mul__, a.maximum, a.minimum))(
        b
    )
