"""Random actions on the ranges of a kernel: most of them legal, some of them not.

`ARGUMENTS` says for each action how its arguments are made; an action without a row gets an axis
and a number.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from morok.errors import OptError
from morok.ir import AxisType, Ops, UOp
from morok.optimizer import Opt, OptOps, apply_opt, parse_opts, range_end, reads_of, replay

__all__ = ["ARGUMENTS", "Refused", "attempt", "random_opt", "random_opts"]

_AMOUNTS = (2, 3, 4, 5, 7, 8, 16, 32)
_ROWS = (0, 0, 8, 16, 24)
_WILD = (0, 1, 2, 6, 9, 13, 64, 1 << 20)
_CLOSING = ("THREAD", "NOLOCALS")  # seldom tried, as few actions apply after them
_LOOPS = (AxisType.LOOP, AxisType.REDUCE)


@dataclass(frozen=True)
class Site:
    """A kernel as an action finds it."""

    sink: UOp
    ranges: tuple[UOp, ...]  # by number
    rng: random.Random

    @property
    def loops(self) -> list[UOp]:
        """The ranges that are loops still."""
        return [rng for rng in self.ranges if rng.arg[1] in _LOOPS]

    def axis(self) -> UOp:
        """A loop if there is one."""
        return self.rng.choice(self.loops or list(self.ranges))

    def reads(self) -> list[UOp]:
        """The reads of buffers."""
        return [read for read in reads_of([self.sink]) if read.src[0].op is Ops.PARAM]


Arguments = Callable[[Site], "tuple[int, ...] | None"]
"""The numbers in an action's brackets, or None where there is nothing to name."""


def number(rng: UOp) -> int:
    """The axis number of a range."""
    return int(rng.arg[0].number)


def _divisor(site: Site) -> tuple[int, ...]:
    """An axis and, mostly, a number of iterations that divides it."""
    axis = site.axis()
    end = range_end(axis)
    fits = [n for n in (*_AMOUNTS, end) if end % n == 0 and n > 1]
    return number(axis), site.rng.choice(fits or _AMOUNTS)


def _no_divisor(site: Site) -> tuple[int, ...]:
    axis = site.axis()
    end = range_end(axis)
    fits = [n for n in _AMOUNTS if n < end and end % n]
    return number(axis), site.rng.choice(fits or _AMOUNTS)


def _any_amount(site: Site) -> tuple[int, ...]:
    return number(site.axis()), site.rng.choice(_AMOUNTS)


def _two_axes(site: Site) -> tuple[int, ...]:
    """Two axes, of one type if there are such."""
    first = site.axis()
    alike = [rng for rng in site.loops if rng.arg[1] is first.arg[1] and rng is not first]
    return number(first), number(site.rng.choice(alike or [first]))


def _several_axes(site: Site) -> tuple[int, ...] | None:
    """Two axes or more of one type, in any order."""
    first = site.axis()
    alike = [rng for rng in site.loops if rng.arg[1] is first.arg[1]]
    if len(alike) < 2:
        return None
    return tuple(map(number, site.rng.sample(alike, site.rng.randint(2, min(4, len(alike))))))


def _copied(site: Site) -> tuple[int, ...] | None:
    """Some axes of a read, in any order, and its slot."""
    reads = site.reads()
    if not reads:
        return None
    read = site.rng.choice(reads)
    axes = [number(rng) for rng in site.loops if rng in read.open_ranges]
    if not axes:
        return None
    first, *more = site.rng.sample(axes, site.rng.randint(1, min(4, len(axes))))
    return first, int(read.src[0].arg[0]), *more


def _seen(site: Site) -> tuple[int, ...] | None:
    """As for a copy, and the length of its rows."""
    numbers = _copied(site)
    return None if numbers is None else (*numbers[:2], site.rng.choice(_ROWS), *numbers[2:])


def _summed(site: Site) -> tuple[int, ...] | None:
    """An axis of a reduction, and some of the axes that it depends on, in any order."""
    sums = [u for u in site.sink.toposort() if u.op is Ops.REDUCE and u.open_ranges]
    if not sums:
        return None
    total = site.rng.choice(sums)
    axes = [number(rng) for rng in total.open_ranges]
    layout = site.rng.sample(axes, site.rng.randint(1, min(4, len(axes))))
    return number(site.rng.choice(total.ended_ranges)), *layout


def _dot(site: Site) -> tuple[int, ...]:
    """An axis of a sum, and how many terms one instruction may add."""
    sums = [rng for rng in site.loops if rng.arg[1] is AxisType.REDUCE]
    return number(site.rng.choice(sums or list(site.ranges))), site.rng.choice((2, 2, 4, 3, 8))


def _outer_axis(site: Site) -> tuple[int, ...]:
    """Mostly the outermost loop."""
    first = site.loops[0] if site.loops else site.ranges[0]
    return (number(site.axis() if site.rng.random() < 0.3 else first),)


ARGUMENTS: dict[str, Arguments] = {
    "UPCAST": _divisor,
    "UNROLL": _divisor,
    "SPLIT": _divisor,
    "SWAP": _two_axes,
    "ORDER": _several_axes,
    "MERGE": _two_axes,
    "NEST": _divisor,
    "INPLACE": lambda site: (number(site.axis()),),
    "TC": _dot,
    "TAIL": _no_divisor,
    "PADTO": _no_divisor,
    "LOCAL": _copied,
    "WINDOW": _seen,
    "ACCUMULATE": _summed,
    "STREAM": lambda site: (number(site.axis()),),
    "THREAD": _outer_axis,
    "GROUP": _divisor,
    "GROUPTOP": _divisor,
    "NOLOCALS": lambda site: (),
}
"""How the arguments of each action are made, by its name."""


def random_opt(sink: UOp, rng: random.Random) -> Opt | None:
    """An action that may or may not apply; None if the kernel has no loop."""
    found = sorted((u for u in sink.toposort() if u.op is Ops.RANGE), key=lambda r: r.arg[0])
    if not found:
        return None
    site = Site(sink, tuple(found), rng)
    op = rng.choice(list(OptOps))
    if op.name in _CLOSING and rng.random() < 0.75:
        op = rng.choice(list(OptOps))
    numbers = ARGUMENTS.get(op.name, _any_amount)(site)
    if numbers is None:
        return None
    if numbers and rng.random() < 0.1:  # something that hardly ever fits
        spoilt = list(numbers)
        spoilt[rng.randrange(len(spoilt))] = rng.choice((*_WILD, len(found)))
        numbers = tuple(spoilt)
    return parse_opts(f"{op}({', '.join(map(str, numbers))})")[0]


@dataclass(frozen=True, slots=True)
class Refused:
    """An action that did not apply."""

    reason: str


def attempt(sink: UOp, opt: Opt) -> UOp | Refused:
    """The kernel after an action, or why not. AssertionError where an action breaks its contract:
    a refused one must leave the kernel alone, one that applies must print, parse and repeat."""
    before = sink.key
    refused: OptError | None = None
    changed = sink
    try:
        changed = apply_opt(sink, opt)
    except OptError as error:
        refused = error
    if refused is not None:
        assert refused.opt == opt, f"the error does not name {opt}"
        assert refused.message, f"{opt} is refused without a reason"
        assert sink.key == before, f"{opt} was refused and changed the kernel"
        return Refused(refused.message)
    assert parse_opts(str(opt)) == (opt,), f"{opt} is not parsed as it prints"
    assert replay(sink, (opt,)) is changed, f"{opt} gives another kernel the second time"
    return changed


def random_opts(sink: UOp, rng: random.Random, count: int) -> UOp:
    """The kernel after up to `count` random actions, which its KernelInfo lists."""
    for _ in range(count):
        opt = random_opt(sink, rng)
        if opt is not None:
            changed = attempt(sink, opt)
            sink = sink if isinstance(changed, Refused) else changed
    return sink


def recorded(sink: UOp) -> Sequence[Opt]:
    """The actions that a kernel has behind it."""
    opts: Sequence[Opt] = sink.arg.applied_opts
    return opts
