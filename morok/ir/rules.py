"""Rewrite rules and sets of them.

    fold = RuleSet("identity", dtype="iux")

    @fold.rule
    def div_cancel(x, c0: Const, c1: Const):
        \"\"\"(x*4)//8 -> x//2\"\"\"
        when(c0 > 0, c1 > 0, divides(c0, c1))
        return (x * c0) // c1, x // (c1 // c0)

    fold.table([
        ("add_zero", x + 0, x),
        ("mod_small", x % c, x, (x.vmin >= 0) & (x.vmax < c)),
    ])

    @structure.opaque(Pat(Ops.INDEX, (Pat(GroupOp.Movement, name="m"),), rest=True, name="idx"))
    def index_of_movement(idx, m): ...      # returns None or another node

A capture that a data rule has no use for is `_` or begins so; any other unused name is refused.
A data rule is checked, compiled, counted, printed and proved from one spelling; what it can say is
in `morok.ir.terms`. Where a right side needs Python, the rule is opaque: a pattern and a function.
Sets compose with `+`, keep their order, and are frozen by their first use.
"""

from __future__ import annotations

import hashlib
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from morok import _core
from morok.errors import RuleError
from morok.ir.ops import Ops
from morok.ir.pattern import Pat, TermPatterns, items, several_ops
from morok.ir.rule_checks import (
    capture_of,
    lifted,
    name_of,
    parameters_of,
    refuse_unused,
    symbols_of,
)
from morok.ir.rule_compiler import Code, RuleCompiler, listing
from morok.ir.terms import (
    Const,
    Term,
    check_kinds,
    collect_guards,
    lift,
    spell,
    walk,
)
from morok.ir.uop import UOp

Function = TypeVar("Function", bound=Callable[..., Any])
Row = tuple[str, Term, object] | tuple[str, Term, object, object]


@dataclass(frozen=True, eq=False)
class Rule:
    """One rule, checked and compiled.

    `name` is "set.rule". A data rule has `left`, `right` and `guards` (terms); an opaque one a
    `pattern` and a `function`; a native one the name of its C function. `kinds` is the dtype class
    of the subject: the root, or in rules about comparisons the first operand.
    """

    name: str
    doc: str
    kinds: str | None
    program: _core.Program
    code: tuple[str, ...] = field(repr=False)
    roots: frozenset[Ops] | None
    pattern: Pat | None = None
    left: Term | None = None
    right: Term | None = None
    guards: tuple[Term, ...] = ()
    registers: Mapping[str, int] = field(default_factory=dict, repr=False)
    guard_code: Code = field(default_factory=list, repr=False)
    right_code: Code = field(default_factory=list, repr=False)
    function: Callable[..., Any] | None = None
    parameters: tuple[str, ...] = ()
    native: str | None = None
    pure: bool = True

    @property
    def is_data(self) -> bool:
        """Whether the whole rule is data, so that it can be proved."""
        return self.left is not None

    @property
    def spelling(self) -> str:
        """The rule in one line: `x % c -> x when x.vmin >= 0 and x.vmax < c`."""
        if self.left is None:
            return self.native or f"{self.pattern!r} -> {getattr(self.function, '__name__', '?')}()"
        text = f"{spell(self.left)} -> {spell(self.right)}"
        guards = " and ".join(map(spell, self.guards))
        return f"{text} when {guards}" if guards else text

    def digest(self) -> str:
        """Hexadecimal digest of all that a data rule means: the key of cached verdicts."""
        constants = {part.name for part in walk(lift(self.left)) if isinstance(part, Const)}
        facts = (self.spelling, self.kinds, sorted(constants))
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def dump(self) -> str:
        """Spelling and compiled program, for people."""
        return "\n".join([f"{self.name}: {self.spelling}", *(f"    {row}" for row in self.code)])


@dataclass(frozen=True, slots=True)
class RuleStats:
    """Counts of one rule: tries that passed the filter, rewrites, calls into Python, and the time
    of all its tries (taken while a `Trace` is open)."""

    name: str
    tries: int
    hits: int
    python_entries: int
    seconds: float = 0.0

    @property
    def failures_in_python(self) -> int:
        """Tries that entered Python for nothing."""
        return max(self.python_entries - self.hits, 0)


class RuleSet:
    """An ordered set of rules.

    name   stands in front of the names of its rules
    dtype  class string such as "iux": the rules fire only where their subject has such a dtype
    """

    def __init__(self, name: str, *, dtype: str | None = None) -> None:
        if not isinstance(name, str) or not name:
            raise RuleError(f"a rule set needs a name, got {name!r}")
        self.name = name
        self.kinds = check_kinds(dtype, name)
        self._rules: dict[str, Rule] = {}
        self._matcher: _core.Matcher | None = None

    # ---- definition ------------------------------------------------------------------------------

    def rule(
        self,
        function: Function | None = None,
        *,
        name: str | None = None,
        dtype: str | None = None,
    ) -> Any:
        """Decorator: a data rule. The function runs now, on symbols, and returns (left, right)."""

        def define(body: Function) -> Function:
            full = self._full_name(name_of(body, name, self.name))
            with collect_guards() as guards:
                try:
                    answer = body(*symbols_of(body, full))
                except RuleError as error:
                    error.rule = error.rule or full
                    raise
            if not isinstance(answer, tuple) or len(answer) != 2:
                raise RuleError("the function of a rule returns (left, right)", rule=full)
            names = list(inspect.signature(body).parameters)
            doc = inspect.getdoc(body) or ""
            self._add(self._data(full, doc, answer[0], answer[1], guards, dtype, names))
            return body

        return define if function is None else define(function)

    def table(self, rows: Iterable[Row], *, dtype: str | None = None) -> None:
        """Data rules, one a row: (name, left, right) or (name, left, right, guard or guards)."""
        for row in items(rows, self.name, "rows", "rows (name, left, right[, guard])"):
            if not isinstance(row, tuple) or not 3 <= len(row) <= 4:
                raise RuleError(
                    f"a row is (name, left, right[, guard]), not {row!r}", rule=self.name
                )
            name, left, right = row[:3]
            guard: object = row[3] if len(row) == 4 else ()
            full = self._full_name(name)
            guards = lifted(guard if isinstance(guard, tuple) else (guard,), full)
            self._add(self._data(full, "", left, right, guards, dtype, None))

    def opaque(
        self,
        pattern: Pat | Term,
        *,
        when: Callable[..., Any] | None = None,
        need: Iterable[Ops] = (),
        pure: bool = False,
        any_root: bool = False,
        name: str | None = None,
        dtype: str | None = None,
    ) -> Callable[[Function], Function]:
        """Decorator: a rule whose right side is the decorated function.

        It gets captures by the names of its parameters, and the context of the pass if it has a
        parameter `ctx`; it returns None (does not apply) or a different node. `when` is a function
        of captures that gives a guard, checked before Python is entered; `need` are ops that must
        occur among the sources. `pure` promises that the answer depends on the node alone. A
        pattern that starts at every op needs `any_root`.
        """

        def define(function: Function) -> Function:
            full = self._full_name(name_of(function, name, self.name))
            ops = several_ops(need, full, "need")
            made = self._opaque(full, pattern, function, when, ops, pure, any_root, dtype)
            self._add(made)
            return function

        return define

    def native(
        self,
        native: str,
        *,
        ops: Iterable[Ops],
        name: str | None = None,
        need: Iterable[Ops] = (),
        dtype: str | None = None,
    ) -> None:
        """A rule written in C and registered in the core as `native`, tried at `ops`. `need`: ops
        that must occur among the sources."""
        full = self._full_name(name or native)
        pattern = Pat(several_ops(ops, full, "ops"))
        compiler = RuleCompiler(full, pattern, TermPatterns(), self._kinds(full, dtype))
        program = _core.Program(
            full,
            roots=pattern.ops or (),
            need=several_ops(need, full, "need"),
            kinds=compiler.kinds,
            subject_first=compiler.subject_first(),
            native=native,
        )
        code = (f"native {native}",)
        self._add(Rule(full, "", compiler.kinds, program, code, pattern.ops, native=native))

    def __add__(self, other: RuleSet) -> RuleSet:
        """The rules of both, these first; a rule that is in both keeps its first place."""
        if not isinstance(other, RuleSet):
            return NotImplemented
        self.freeze()
        other.freeze()
        both = RuleSet(f"{self.name}+{other.name}")
        for rule in (*self, *other):
            if both._rules.get(rule.name) is not rule:
                both._add(rule)
        return both

    def only(self, keep: Callable[[Rule], bool]) -> RuleSet:
        """The rules for which `keep` holds, in order."""
        self.freeze()
        some = RuleSet(self.name)
        for rule in self:
            if keep(rule):
                some._add(rule)
        return some

    def _add(self, rule: Rule) -> None:
        if self._matcher is not None:
            raise RuleError(f"the set {self.name} is in use: it takes no new rules", rule=rule.name)
        if rule.name in self._rules:
            raise RuleError(f"the set {self.name} has a rule of this name already", rule=rule.name)
        self._rules[rule.name] = rule

    def _full_name(self, name: object) -> str:
        if not isinstance(name, str) or not name:
            raise RuleError(f"a rule needs a name, got {name!r}", rule=self.name)
        return f"{self.name}.{name}"

    def _kinds(self, rule: str, dtype: str | None) -> str | None:
        return check_kinds(dtype, rule) if dtype is not None else self.kinds

    def _data(
        self,
        name: str,
        doc: str,
        left: object,
        right: object,
        guards: Sequence[Term],
        dtype: str | None,
        parameters: list[str] | None,
    ) -> Rule:
        names = TermPatterns()
        try:
            left, right = lift(left), lift(right)
            pattern = names.pattern(left)
        except RuleError as error:
            error.rule = error.rule or name
            raise
        if left is right or spell(left) == spell(right):
            raise RuleError("the right side is the left side", rule=name)
        if pattern.ops is None or pattern.literal is not None or pattern.constant:
            raise RuleError("the left side must be an op applied to something", rule=name)
        for term in (*guards, right):
            names.name_shared(term)
        compiler = RuleCompiler(name, pattern, names, self._kinds(name, dtype))
        for parameter in parameters or ():
            if parameter not in compiler.registers:
                raise RuleError(f"the capture {parameter} is not used on the left", rule=name)
        guard, code = compiler.guards(guards), compiler.right(right)
        program = _program(compiler, guard=guard, right=code)
        refuse_unused(name, pattern, (*guards, right))
        return Rule(
            name, doc, compiler.kinds, program, _listed(compiler, guard, code), pattern.ops,
            pattern, left, right, tuple(guards), compiler.registers, guard or [], code,
        )  # fmt: skip

    def _opaque(
        self,
        name: str,
        left: Pat | Term,
        function: Callable[..., Any],
        when: Callable[..., Any] | None,
        need: frozenset[Ops],
        pure: bool,
        any_root: bool,
        dtype: str | None,
    ) -> Rule:
        names = TermPatterns()
        pattern = left if isinstance(left, Pat) else names.pattern(left)
        if pattern.ops is None and not any_root:
            raise RuleError("the pattern starts at every op: say any_root=True if so", rule=name)
        compiler = RuleCompiler(name, pattern, names, self._kinds(name, dtype))
        parameters = parameters_of(function, name)
        if "ctx" in compiler.registers:
            raise RuleError("ctx is the context of the pass: name the capture otherwise", rule=name)
        if pure and "ctx" in parameters:
            raise RuleError("a rule that gets the context is not pure", rule=name)
        guards: list[Term] = []
        if when is not None:
            asked = parameters_of(when, name)
            answer = when(*(capture_of(pattern, part, name) for part in asked))
            guards = lifted(answer if isinstance(answer, tuple) else (answer,), name)
            unused = set(compiler.registers) - set(parameters) - set(asked)
        else:
            unused = set(compiler.registers) - set(parameters)
        if unused:
            raise RuleError(f"captured, but never used: {', '.join(sorted(unused))}", rule=name)
        for parameter in parameters:
            if parameter != "ctx" and parameter not in compiler.registers:
                raise RuleError(f"the pattern does not capture {parameter}", rule=name)
        guard = compiler.guards(guards)
        arguments = [-1 if p == "ctx" else compiler.registers[p] for p in parameters]
        program = _program(
            compiler, need, guard=guard, function=function, arguments=arguments, pure=pure
        )
        return Rule(
            name, inspect.getdoc(function) or "", compiler.kinds, program,
            _listed(compiler, guard, None), pattern.ops, pattern, guards=tuple(guards),
            function=function, parameters=parameters, pure=pure,
        )  # fmt: skip

    # ---- use -------------------------------------------------------------------------------------

    def freeze(self) -> RuleSet:
        """Ends definition; every use does this."""
        if self._matcher is None:
            with _freezing:
                if self._matcher is None:
                    self._matcher = _matcher_of(tuple(self._rules.values()), self.name)
        return self

    @property
    def matcher(self) -> _core.Matcher:
        """The compiled set."""
        return self._matcher or self.freeze().matcher

    @property
    def frozen(self) -> bool:
        return self._matcher is not None

    def rewrite(self, node: UOp, ctx: object = None) -> UOp | None:
        """The replacement of this one node by the first rule that applies, or None."""
        return self.matcher.rewrite(node, ctx)

    def stats(self) -> list[RuleStats]:
        """Counts of every rule since the set was frozen or `reset_stats`."""
        return [RuleStats(*row) for row in self.matcher.stats()]

    def reset_stats(self) -> None:
        """Starts counting again."""
        self.matcher.reset_stats()

    def dump(self) -> str:
        """All rules with their compiled programs, for people."""
        return "\n".join(rule.dump() for rule in self)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules.values())

    def __len__(self) -> int:
        return len(self._rules)

    def __getitem__(self, name: str) -> Rule:
        """The rule of this name, with or without the set's name in front."""
        found = self._rules.get(name) or self._rules.get(f"{self.name}.{name}")
        if found is None:
            raise KeyError(name)
        return found

    def __repr__(self) -> str:
        return f"<RuleSet {self.name}: {len(self)} rules{', frozen' if self.frozen else ''}>"


_freezing = threading.RLock()


@lru_cache(maxsize=1024)
def _matcher_of(rules: tuple[Rule, ...], name: str) -> _core.Matcher:
    """One matcher for equal lists of rules, so that composing again costs nothing and shares the
    normal-form bit."""
    return _core.Matcher(name, [rule.program for rule in rules])


def _program(
    compiler: RuleCompiler, need: frozenset[Ops] = frozenset(), **fields: Any
) -> _core.Program:
    pattern = compiler.pattern
    return _core.Program(
        compiler.rule,
        roots=pattern.ops if pattern.ops is not None else tuple(Ops),
        need=compiler.need() | need,
        root=compiler.root_test(),
        kinds=compiler.kinds,
        subject_first=compiler.subject_first(),
        steps=compiler.steps,
        **fields,
    )


def _listed(compiler: RuleCompiler, guard: Code | None, right: Code | None) -> tuple[str, ...]:
    rows = [f"root {' '.join(listing([('', compiler.root_test())]))}".rstrip()]
    rows += listing(compiler.steps)
    rows += [f"guard {row}" for row in listing(guard)]
    rows += [f"right {row}" for row in listing(right)]
    return tuple(rows)


def graph_rewrite(
    root: UOp,
    rules: RuleSet | None,
    *,
    before: RuleSet | None = None,
    ctx: object = None,
    name: str = "",
) -> UOp:
    """`root` with rules applied everywhere below it until none applies.

    `rules` see a node when its sources are done; `before` rules see the original node before its
    sources are walked, and what they return is walked again. `ctx` is handed to opaque rules that
    ask for it. Raises RewriteLimitError when the rules do not come to rest.
    """
    for given in (rules, before):
        if given is not None and not isinstance(given, RuleSet):
            raise RuleError(f"graph_rewrite: expected a RuleSet, got {given!r}")
    return _core.graph_rewrite(
        root,
        None if rules is None else rules.matcher,
        None if before is None else before.matcher,
        ctx,
        name,
    )
