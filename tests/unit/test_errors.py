"""The exception classes: what they are, carry and print."""

from __future__ import annotations

import copy
import pickle

import pytest

from morok import errors
from morok.errors import (
    ArgumentError,
    AxisError,
    BulkError,
    CompileError,
    ConfigError,
    DeviceError,
    DTypeError,
    FunctionError,
    InvalidGraphError,
    JitError,
    MorokError,
    OptError,
    OutOfMemoryError,
    RewriteLimitError,
    RuleError,
    ShapeError,
)

BUILTIN = {
    ConfigError: (ValueError,),
    DTypeError: (TypeError,),
    ArgumentError: (ValueError,),
    ShapeError: (ValueError, RuntimeError),
    AxisError: (ValueError, IndexError),
    BulkError: (RuntimeError,),
    InvalidGraphError: (ValueError,),
    RewriteLimitError: (RuntimeError,),
    RuleError: (ValueError,),
    OptError: (ValueError,),
    CompileError: (RuntimeError,),
    DeviceError: (RuntimeError,),
    FunctionError: (RuntimeError,),
    JitError: (RuntimeError,),
    OutOfMemoryError: (MemoryError,),
}


class Node:
    def __init__(self, lines: int) -> None:
        self.lines = lines

    def tree(self) -> str:
        return "\n".join(f"[{i}] NOOP : Void" for i in range(self.lines))


class Broken:
    def tree(self) -> str:
        raise KeyError("no")


def test_every_class_is_listed() -> None:
    public = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, MorokError)
    }
    assert public == {MorokError, *BUILTIN}


@pytest.mark.parametrize("cls", BUILTIN, ids=lambda cls: cls.__name__)
def test_builtins_and_message(cls: type[MorokError]) -> None:
    assert all(issubclass(cls, builtin) for builtin in (MorokError, *BUILTIN[cls]))
    assert str(cls("what is wrong")) == "what is wrong"


@pytest.mark.parametrize("cls", BUILTIN, ids=lambda cls: cls.__name__)
def test_survives_pickle_and_copy(cls: type[MorokError]) -> None:
    error = cls("m")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is cls
        assert vars(again) == vars(error)
        assert str(again) == "m"


def test_invalid_graph_prints_its_facts_and_the_node() -> None:
    error = InvalidGraphError(
        "ADD needs equal dtypes",
        node=Node(2),
        stage="rangeify",
        rule="same-dtype",
        expected="Float32",
        got="Int32",
    )
    assert str(error).splitlines() == [
        "ADD needs equal dtypes",
        "  stage: rangeify",
        "  rule: same-dtype",
        "  expected: Float32",
        "  got: Int32",
        "  node: [0] NOOP : Void",
        "    [1] NOOP : Void",
    ]


def test_falsy_facts_are_printed() -> None:
    assert str(InvalidGraphError("m", expected=1, got=0)).splitlines()[-1] == "  got: 0"


def test_a_long_tree_is_cut_and_a_broken_node_does_not_hide_the_error() -> None:
    text = str(InvalidGraphError("m", node=Node(1000)))
    assert len(text.splitlines()) < 50
    assert "960 more lines" in text
    text = str(InvalidGraphError("m", node=Broken()))
    assert "Broken that cannot be printed: KeyError" in text


def test_rewrite_limit_lists_the_busiest_rules_first() -> None:
    counts = {"a": 3, "b": 9} | {f"r{i}": 1 for i in range(20)}
    lines = str(RewriteLimitError("m", rewrite="sym", limit=100, counts=counts)).splitlines()
    assert lines[:4] == ["m", "  rewrite: sym", "  limit: 100", "  rule b: fired 9 times"]
    assert len(lines) == 13


def test_compile_error_says_where_and_what() -> None:
    error = CompileError(
        "the C compiler failed",
        source="int x",
        source_path="/tmp/k.c",
        command=["cc", "-c", "k.c"],
        output="k.c:1: error\n",
    )
    assert str(error).splitlines()[1:] == [
        "  source: /tmp/k.c",
        "  command: cc -c k.c",
        "  compiler: k.c:1: error",
    ]


def test_out_of_memory_gives_sizes() -> None:
    text = str(OutOfMemoryError("m", requested=4096, in_use=0, limit=None))
    assert text.splitlines() == ["m", "  requested: 4,096 bytes", "  in use: 0 bytes"]
