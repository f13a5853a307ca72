"""Every exception morok raises on purpose.

All stand under `MorokError`. Each is also the built-in a NumPy or PyTorch user would catch
(`ValueError`, `TypeError`, `RuntimeError`, `MemoryError`, `IndexError`), so existing handlers work.
The facts are attributes; the text is made of them when it is printed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class MorokError(Exception):
    """The root of all errors of this package.

    `message` says what is wrong and what to do about it; subclasses append their facts to it.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def details(self) -> list[tuple[str, str]]:
        """(label, text) pairs printed below the message, one a line."""
        return []

    def __str__(self) -> str:
        lines = [self.message]
        lines += [f"  {label}: {text}" for label, text in self.details()]
        return "\n".join(lines)


class ConfigError(MorokError, ValueError):
    """A setting has a value it cannot have."""

    def __init__(
        self, message: str = "", *, variable: str = "", value: object = None, allowed: str = ""
    ) -> None:
        super().__init__(message)
        self.variable = variable
        self.value = value
        self.allowed = allowed


class DTypeError(MorokError, TypeError):
    """An operation does not exist for these dtypes."""


class ArgumentError(MorokError, ValueError):
    """A value that an argument cannot have: an option there is none of, a number out of range, an
    entry that is missing."""


class ShapeError(MorokError, ValueError, RuntimeError):
    """Shapes that do not fit each other or the operation (ValueError in NumPy, RuntimeError in
    PyTorch, so it is both)."""


class AxisError(ShapeError, IndexError):
    """An axis the operand does not have, or one named twice."""


class InvalidGraphError(MorokError, ValueError):
    """A graph breaks a rule of the IR.

    Carries the offending `node`, the `stage` after which it was found, the `rule` it breaks, and
    what was `expected` and `got`. The text ends with the node's printed sub-tree.
    """

    def __init__(
        self,
        message: str = "",
        *,
        node: Any = None,
        stage: str | None = None,
        rule: str | None = None,
        expected: object = None,
        got: object = None,
    ) -> None:
        super().__init__(message)
        self.node = node
        self.stage = stage
        self.rule = rule
        self.expected = expected
        self.got = got

    def details(self) -> list[tuple[str, str]]:
        facts = [
            ("stage", self.stage),
            ("rule", self.rule),
            ("expected", self.expected),
            ("got", self.got),
        ]
        lines = [(label, str(fact)) for label, fact in facts if fact is not None]
        if self.node is not None:
            lines.append(("node", _printed(self.node)))
        return lines


class RewriteLimitError(MorokError, RuntimeError):
    """A rewrite did not come to rest within its limit: two of its rules undo each other.

    `rewrite` is the name of the rewrite, `limit` its bound, `counts` how often each rule fired.
    """

    def __init__(
        self,
        message: str = "",
        *,
        rewrite: str = "",
        limit: int = 0,
        node: Any = None,
        counts: dict[str, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.rewrite = rewrite
        self.limit = limit
        self.node = node
        self.counts = dict(counts or {})

    def details(self) -> list[tuple[str, str]]:
        busiest = sorted(self.counts.items(), key=lambda entry: (-entry[1], entry[0]))[:10]
        lines = [("rewrite", self.rewrite)] if self.rewrite else []
        lines += [("limit", str(self.limit))] if self.limit else []
        lines += [(f"rule {name}", f"fired {count} times") for name, count in busiest]
        if self.node is not None:
            lines.append(("node", _printed(self.node)))
        return lines


class RuleError(MorokError, ValueError):
    """A rewrite rule is malformed; raised where it is defined. `rule` is its name."""

    def __init__(self, message: str = "", *, rule: str | None = None) -> None:
        super().__init__(message)
        self.rule = rule

    def details(self) -> list[tuple[str, str]]:
        return [] if self.rule is None else [("rule", self.rule)]


class OptError(MorokError, ValueError):
    """An optimisation action cannot be applied to this kernel. `opt` is the action."""

    def __init__(self, message: str = "", *, opt: object = None) -> None:
        super().__init__(message)
        self.opt = opt

    def details(self) -> list[tuple[str, str]]:
        return [] if self.opt is None else [("action", str(self.opt))]


class CompileError(MorokError, RuntimeError):
    """The compiler refused a kernel.

    `source_path` is the file holding the source, `command` the command line that failed and
    `output` what the compiler said.
    """

    def __init__(
        self,
        message: str = "",
        *,
        source: str = "",
        source_path: str | None = None,
        command: Sequence[str] = (),
        output: str = "",
    ) -> None:
        super().__init__(message)
        self.source = source
        self.source_path = source_path
        self.command = tuple(command)
        self.output = output

    def details(self) -> list[tuple[str, str]]:
        lines = [("source", self.source_path)] if self.source_path else []
        lines += [("command", " ".join(self.command))] if self.command else []
        lines += [("compiler", self.output.strip())] if self.output else []
        return lines


class DeviceError(MorokError, RuntimeError):
    """A device is missing, broken or asked for something it cannot do."""


class JitError(MorokError, RuntimeError):
    """A jitted function does what a replay cannot repeat."""


class FunctionError(MorokError, RuntimeError):
    """A function of tensors does what a call of its body cannot repeat."""


class OutOfMemoryError(MorokError, MemoryError):
    """An allocation failed. `requested`, `in_use` and `limit` are bytes (None when unknown)."""

    def __init__(
        self,
        message: str = "",
        *,
        requested: int | None = None,
        in_use: int | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(message)
        self.requested = requested
        self.in_use = in_use
        self.limit = limit

    def details(self) -> list[tuple[str, str]]:
        facts = [("requested", self.requested), ("in use", self.in_use), ("limit", self.limit)]
        return [(label, f"{fact:,} bytes") for label, fact in facts if fact is not None]


class BulkError(MorokError, RuntimeError):
    """Some of many computations could not be compiled; all others are.

    `failures` are the exceptions by what they are about; `results` has, for each computation in
    order, what was compiled, or the exception.
    """

    def __init__(
        self,
        message: str = "",
        *,
        results: Sequence[Any] = (),
        failures: Mapping[str, Exception] | None = None,
    ) -> None:
        super().__init__(message)
        self.results = list(results)
        self.failures = dict(failures or {})

    def details(self) -> list[tuple[str, str]]:
        return [
            (name, f"{type(error).__name__}: {error}".splitlines()[0])
            for name, error in self.failures.items()
        ]


def _printed(node: Any, max_lines: int = 40) -> str:
    """The node's sub-tree, cut to `max_lines`; an error must print even when the node cannot."""
    try:
        text = str(node.tree()) if hasattr(node, "tree") else repr(node)
    except Exception as failure:
        return f"<{type(node).__name__} that cannot be printed: {type(failure).__name__}>"
    lines = text.splitlines()
    if len(lines) > max_lines:
        lines = [*lines[:max_lines], f"… {len(lines) - max_lines} more lines"]
    return "\n    ".join(lines)
