"""Places in the arena and groups of independent kernels, against their definitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from morok._core import COPY_KERNEL
from morok.engine import Row
from morok.engine.plans import ALIGN, dependency_groups, place, rounded

GIVEN = 3


@st.composite
def programs(draw):
    """Rows over three given slots and some values of the arena: (rows, sizes, parts)."""
    sizes = draw(st.lists(st.integers(1, 500), min_size=1, max_size=8))
    parts = {2: GIVEN} if draw(st.booleans()) else {}
    slots = st.integers(0, GIVEN + len(sizes) - 1)
    rows = []
    for _ in range(draw(st.integers(1, 14))):
        places = tuple(draw(st.lists(slots, min_size=1, max_size=4)))
        stores = draw(st.sets(st.integers(0, len(places) - 1)))
        rows.append(Row(COPY_KERNEL, places, 0, 0, 0, "row", frozenset(stores)))
    return rows, sizes, parts


def lifetime(rows, slot, parts) -> range:
    times = [t for t, r in enumerate(rows) if slot in {parts.get(p, p) for p in r.places}]
    return range(times[0], times[-1] + 1) if times else range(0)


@given(programs())
def test_values_that_live_together_do_not_overlap(program) -> None:
    rows, sizes, parts = program
    offsets, nbytes = place(sizes, rows, GIVEN, parts)
    spans = [(o, o + rounded(n)) for o, n in zip(offsets, sizes, strict=True)]
    lives = [lifetime(rows, GIVEN + i, parts) for i in range(len(sizes))]
    assert all(o % ALIGN == 0 for o in offsets)
    assert nbytes <= sum(map(rounded, sizes))
    for i, (begin, end) in enumerate(spans):
        assert end <= nbytes or not lives[i]
        for k in range(i):
            together = set(lives[i]) & set(lives[k])
            assert not together or end <= spans[k][0] or spans[k][1] <= begin


def test_room_is_used_again() -> None:
    chain = [
        Row(COPY_KERNEL, (GIVEN + i + 1, GIVEN + i), 0, 0, 0, "step", frozenset({0}))
        for i in range(9)
    ]
    assert place([256] * 10, chain, GIVEN, {}).nbytes == 2 * 256


@given(programs())
def test_kernels_of_a_group_depend_on_none_of_it(program) -> None:
    rows, sizes, parts = program
    layout = place(sizes, rows, GIVEN, parts)
    groups = dependency_groups(rows, GIVEN, layout, sizes, parts)
    assert sorted(n for group in groups for n in group) == list(range(len(rows)))
    level = {n: g for g, group in enumerate(groups) for n in group}

    def touched(row, position) -> tuple[object, int, int]:
        slot = parts.get(row.places[position], row.places[position])
        if slot < GIVEN:
            return slot, 0, 1
        begin = layout.offsets[slot - GIVEN]
        return "arena", begin, begin + rounded(sizes[slot - GIVEN])

    for late in range(len(rows)):
        for early in range(late):
            for i in range(len(rows[late].places)):
                for k in range(len(rows[early].places)):
                    where, begin, end = touched(rows[late], i)
                    there, first, last = touched(rows[early], k)
                    meets = where == there and begin < last and first < end
                    if meets and (i in rows[late].stores or k in rows[early].stores):
                        assert level[early] < level[late]


def test_independent_kernels_share_a_group() -> None:
    rows = [
        Row(COPY_KERNEL, (3, 0), 0, 0, 0, "a", frozenset({0})),
        Row(COPY_KERNEL, (4, 0), 0, 0, 0, "b", frozenset({0})),
        Row(COPY_KERNEL, (1, 3, 4), 0, 0, 0, "c", frozenset({0})),
    ]
    layout = place([64, 64], rows, GIVEN, {})
    assert dependency_groups(rows, GIVEN, layout, [64, 64], {}) == ((0, 1), (2,))
