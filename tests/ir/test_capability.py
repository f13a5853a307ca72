"""The capability record of a target."""

from __future__ import annotations

from morok.dtype import dtypes
from morok.ir import Capability, Compiler, Ops, Renderer


def test_widths_and_key():
    f32 = dtypes.float32
    target = Capability("c", frozenset({Ops.ADD, Ops.MUL}), ((f32, (4, 16, 8)),))
    assert target.widths(f32) == (1, 4, 8, 16)
    assert target.max_width(f32) == 16
    assert target.widths(dtypes.int8) == (1,)
    assert target.key[1] == ("ADD", "MUL")
    twin = Capability("c", frozenset({Ops.MUL, Ops.ADD}), ((f32, (4, 16, 8)),))
    assert (twin, twin.key, hash(twin)) == (target, target.key, hash(target))


def test_protocols():
    class Text:
        capability = Capability("text", frozenset())
        pre_matcher = None
        language = "text"

        def render(self, linear, name):
            return name

    class Nothing:
        identity = "nothing"

        def compile(self, sources):
            return b""

    assert isinstance(Text(), Renderer)
    assert isinstance(Nothing(), Compiler)
    assert not isinstance(Nothing(), Renderer)
