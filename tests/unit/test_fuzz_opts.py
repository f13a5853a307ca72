"""Random actions: wrong ones are found, the bounds hold, every action has its arguments."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from bench import _opts, fuzz
from bench._opts_actions import ARGUMENTS, Refused, attempt, random_opt
from bench._opts_bounds import error_bounds
from bench._opts_kernels import cases
from morok.dtype import dtypes
from morok.ir import Ops, ReduceOp, UOp
from morok.optimizer import OptOps, prepare, ranges
from tests.codegen import kernels
from tests.codegen.kernels import CASES, run


def test_every_action_has_its_arguments() -> None:
    assert set(ARGUMENTS) == set(OptOps.__members__)


def test_every_action_is_tried_and_some_are_refused() -> None:
    """Of a thousand random ones each kind applies somewhere and is refused somewhere"""
    rng = random.Random(0)
    applied, refused = set(), set()
    for make in CASES.values():
        sink = prepare(make().sink)
        for _ in range(60):
            opt = random_opt(sink, rng)
            if opt is None:
                continue
            changed = attempt(sink, opt)
            (refused if isinstance(changed, Refused) else applied).add(opt.op)
    assert applied == set(OptOps)
    assert refused == set(OptOps) - {OptOps.NOLOCALS}  # refused the second time


def test_a_wrong_action_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An axis in two parts of which the inner one is forgotten"""
    monkeypatch.setattr(ranges, "_counter", lambda pieces: pieces[0])
    assert fuzz.main(["--kind", "opts", "--cases", "20", "--batch", "20"]) == 1
    said = capsys.readouterr().err
    line = next(line for line in said.splitlines() if line.startswith("python -m bench fuzz"))
    again = line.partition("fuzz ")[2].partition(": ")[0].split()
    assert fuzz.main(again) == 1
    monkeypatch.undo()
    assert fuzz.main(again) == 0


def test_the_actions_of_a_failure_are_made_few(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = next(t for seed in range(50) for t in _opts.trials(seed) if len(t.opts) >= 3)
    culprit = trial.opts[0]
    short = _opts._shortest(trial, lambda t: "wrong" if culprit in t.opts else None)
    assert list(short.opts) == [culprit]


@pytest.mark.parametrize("name", [name for name in CASES if "sum" in name or "matmul" in name])
def test_bounds_hold_against_exact_sums(name: str) -> None:
    kernel = CASES[name]()
    sink = prepare(kernel.sink)
    got = run(sink, kernel.buffers)
    wide = [np.asarray(b, np.float64) if b.dtype.kind == "f" else b for b in kernel.buffers]
    exact = run(_in_float64(sink), wide)
    for have, want, bound in zip(got, exact, error_bounds(sink, kernel.buffers), strict=True):
        away = np.abs(have.astype(np.float64) - want)
        assert bound is not None or (away == 0).all()
        if bound is not None:
            assert (away <= bound).all()
            assert np.isfinite(bound).all()


def _in_float64(sink: UOp) -> UOp:
    new: dict[UOp, UOp] = {}
    for node in sink.toposort():
        dtype = node.dtype
        if dtype.base.kind == "f":
            dtype = dtypes.float64.ptr() if dtype.is_ptr else dtypes.float64
        new[node] = UOp(node.op, dtype, tuple(new[s] for s in node.src), node.arg)
    return new[sink]


def test_sums_of_whole_numbers_are_exact() -> None:
    kernel = kernels.matmul(4, 8, 12)
    for buffer in kernel.buffers:
        buffer[:] = np.rint(buffer * 4)
    bounds = error_bounds(prepare(kernel.sink), kernel.buffers)
    assert all(bound is None or (bound == 0).all() for bound in bounds)


def test_a_sum_beyond_the_exact_numbers_is_not_exact() -> None:
    kernel = kernels.full_sum(64)
    kernel.buffers[1][:] = 2.0**20 + 1
    (bound, _) = error_bounds(prepare(kernel.sink), kernel.buffers)
    total = sum(Fraction(float(x)) for x in kernel.buffers[1])
    assert bound is not None
    assert bound[0] >= float(total) * 2.0**-24


def test_a_comparison_near_its_border_is_not_checked() -> None:
    """sum(x) < y, where the sum may come out on either side"""
    k = kernels.Builder()
    r = k.red(3)
    out = k.param(1)
    x = k.param(3, data=np.array([0.1, 0.2, 0.3], np.float32))
    y = k.param(1, data=np.array([0.6], np.float32))
    less = x.at(r).reduce(ReduceOp.ADD, r) < y.at(0)
    kernel = k.kernel(
        out.at(0).store(
            less.where(x.at(0), y.at(0)),
        )
    )
    bound = error_bounds(kernel.sink, kernel.buffers)[0]
    assert bound is not None
    assert bound[0] >= 0.5


def test_kernels_come_from_every_family() -> None:
    found = [case.sink for seed in range(60) for case in cases(seed)]
    ops = {node.op for sink in found for node in sink.toposort()}
    assert {Ops.REDUCE, Ops.WHERE, Ops.EXP, Ops.CAST, Ops.MAX, Ops.AFTER} <= ops
    dtypes_seen = {p.dtype.base.name for sink in found for p in sink.toposort() if p.dtype.is_ptr}
    assert len(dtypes_seen) > 8
    assert any(len(sink.src) > 1 for sink in found)
