"""Proofs of rules: what is proved, what must be refuted, and what the prover means by its ops."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import z3

from morok.dtype import DType, dtypes
from morok.ir import Const, Ops, Rule, RuleSet, Var, divides, is_pow2, node, numeric, when
from morok.tools.prove import PACKAGE_SETS, main
from morok.tools.prove.lemmas import NATIVE, Lemma, all_lemmas
from morok.tools.prove.meaning import cast, literal
from morok.tools.prove.refuted import WRONG
from morok.tools.prove.search import holds, prove
from morok.tools.prove.sorts import FLOAT8, FLOAT16, FLOAT32, Sort
from morok.tools.prove.verdicts import Status, key, load

x, y, z, p = Var("x"), Var("y"), Var("z"), Var("p")
_ = Var("_")
c, c0, c1 = Const("c"), Const("c0"), Const("c1")
DATA = [rule for rules in PACKAGE_SETS for rule in rules if rule.is_data]
SAMPLE = DATA[::9] + [rule for rule in DATA if rule.name.startswith("cast.")]
"""One rule in nine, and those whose proofs are dear; `python -m morok prove --again` does all."""


def one(left: object, right: object, guard: object = (), dtype: str | None = "x") -> Rule:
    rules = RuleSet("test", dtype=dtype)
    rules.table([("rule", left, right, guard)])
    return rules["rule"]


@pytest.mark.parametrize("rule", list(WRONG), ids=lambda rule: rule.name)
def test_wrong_rules_are_refuted(rule: Rule) -> None:
    verdict = prove(rule)
    assert verdict.status is Status.REFUTED, verdict
    assert "becomes" in verdict.reason


def test_there_are_many_wrong_rules() -> None:
    assert len(WRONG) >= 30


@pytest.mark.parametrize("rule", SAMPLE, ids=lambda rule: rule.name)
def test_kept_verdicts_are_found_again(rule: Rule) -> None:
    found, kept = prove(rule), load()[key(rule)]
    assert (found.status, found.sorts) == (kept.status, kept.sorts)


@pytest.mark.parametrize("lemma", list(all_lemmas()), ids=lambda lemma: lemma.name)
def test_lemmas(lemma: Lemma) -> None:
    assert holds(lemma.given, lemma.claim)


def test_lemmas_are_not_vacuous() -> None:
    for lemma in all_lemmas():
        assert not holds(lemma.given, z3.BoolVal(False)), lemma.name


def test_every_rule_in_c_rests_on_something() -> None:
    named = {rule.native for rules in PACKAGE_SETS for rule in rules if rule.native}
    assert named <= set(NATIVE)


def test_constants_are_all_pairs_or_nothing() -> None:
    masked = one((_ & c) < 0, False, c >= 0)
    assert prove(masked).status is Status.CONSTANTS
    three = one(((_ & c) & c0) & c1 < 0, False, (c >= 0, c0 >= 0, c1 >= 0))
    assert prove(three).status is Status.UNPROVED


def test_constants_that_the_guards_allow_one_by_one_are_all() -> None:
    shifts = prove(one(x >> c, x // (1 << c), (c >= 0, c < 62)))
    assert (shifts.status, shifts.reason) == (Status.PROVED, "")
    masks = one(x & c, x % (c + 1), is_pow2(c + 1))
    assert prove(masks).status is Status.PROVED
    assert prove(one(x & c, x % (c + 2), is_pow2(c + 1))).status is Status.REFUTED
    assert prove(one(x >> c, x // (2 << c), (c >= 0, c < 62))).status is Status.REFUTED


FLOATS = (0.0, -0.0, 0.5, -0.75, 1.5, -1.5, 7.0, -7.5, 120.0, 128.0, -128.0, -144.0, 208.0, 240.0)
FLOATS_OF = {
    FLOAT8: FLOATS,
    FLOAT16: (*FLOATS, 127.5, 255.5, 256.0, 32752.0, 32768.0, -32768.0, 65504.0, -40000.0),
    FLOAT32: (*FLOATS, 65535.5, 2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 2.0**64, 2.0**99),
}


@pytest.mark.parametrize("of", list(FLOATS_OF), ids=str)
@pytest.mark.parametrize("target", dtypes.ints, ids=lambda d: d.name)
def test_casts_of_floats_mean_what_running_them_does(of: Sort, target: DType) -> None:
    to = Sort(target.kind, target.bits)
    for value in (*FLOATS_OF[of], float("inf"), -float("inf"), float("nan")):
        number = literal(value, of)
        assert number is not None
        wanted = int(numeric.cast(np.array([value], np.float32), target)[0])
        assert holds(z3.BoolVal(True), cast(number.term, of, to) == wanted), value


def test_unbounded_for_index_and_wrapping_for_ints() -> None:
    def cancel(dtype: str) -> Status:
        return prove(one((x * c) // c, x, c > 0, dtype)).status

    assert cancel("x") is Status.PROVED
    assert cancel("i") is Status.REFUTED
    assert cancel("u") is Status.REFUTED


def test_division_by_zero() -> None:
    assert prove(one(x // x, 1, dtype="x")).status is Status.PROVED, "undefined on the left"
    assert prove(one(x // x, 1, dtype="i")).status is Status.REFUTED, "0 // 0 is 0"
    early = one(p.where(x // y, z), p.where(x, z) // y)
    assert "undefined" in prove(early).reason, "a division where y may be 0"


def test_the_two_divisions_differ() -> None:
    def as_mask(op: Ops, dtype: str, guard: object = ()) -> Status:
        return prove(one(node(op, x, 8), x & 7, guard, dtype)).status

    assert as_mask(Ops.FLOORMOD, "i") is Status.PROVED
    assert as_mask(Ops.MOD, "i") is Status.REFUTED
    assert as_mask(Ops.MOD, "i", x.vmin >= 0) is Status.PROVED


def test_floats_are_ieee() -> None:
    assert prove(one(x + 0.0, x, dtype="f")).status is Status.REFUTED
    assert prove(one(x + -0.0, x, dtype="f")).status is Status.PROVED
    assert prove(one(x * 2.0, x + x, dtype="f")).status is Status.PROVED
    assert prove(one((x + y) - y, x, dtype="f")).status is Status.REFUTED


def test_a_right_side_must_be_well_typed() -> None:
    verdict = prove(one(x < y, (x + y).where(x, y).ne(x), dtype="i"))
    assert verdict.status is Status.REFUTED
    assert "WHERE of" in verdict.reason


def test_a_rule_that_never_fires_is_not_proved() -> None:
    verdict = prove(one(x * c, x, (c > 0, c < 0)))
    assert verdict.status is Status.UNPROVED
    assert "never fires" in verdict.reason
    assert prove(one(node(Ops.FLOORDIV, _, 0), 7)).status is Status.UNPROVED, "never defined"


def test_numbers_that_16_bits_do_not_hold_are_looked_at_in_wide_ints() -> None:
    assert prove(one(x * c, x, c.eq(70000), "i")).status is Status.REFUTED
    mask = one((x & 0xFFFF0) & 0xFFF00, x & 0xFFF00, dtype="u")
    assert prove(mask).status is Status.PROVED
    assert "uint64" in prove(mask).sorts


def test_guards_over_known_bounds() -> None:
    assert prove(one(x // c, x.vmin // c, (c > 0, (x.vmin // c).eq(x.vmax // c)))).status.stands
    assert prove(one(x // c, x.vmin // c, c > 0)).status is Status.REFUTED


def test_casts_at_their_widths() -> None:
    once = x.cast()
    twice = once.cast()
    there_and_back = one(twice, x.cast(twice.dtype), dtype=None)
    assert prove(there_and_back).status is Status.REFUTED
    to_bool = one(x.cast(dtypes.bool_), x.ne(0), dtype="b")
    assert prove(to_bool).status.stands


# ---- the command ---------------------------------------------------------------------------------

README = Path(__file__).parents[2] / "README.md"


def readme_example() -> str:
    """The sets of rules that the README shows, with what it does with them."""
    blocks = README.read_text().split("```python\n")[1:]
    return "\n".join(block.split("```")[0] for block in blocks if "RuleSet(" in block)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    import morok

    root = str(Path(morok.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, "-m", "morok", "prove", *arguments],
        cwd=folder,
        env={"PYTHONPATH": root, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_set_of_ones_own(tmp_path: Path) -> None:
    example = readme_example()
    (tmp_path / "own_rules.py").write_text(example)
    done = run(tmp_path, "own_rules:both", "--list")
    assert done.returncode == 0, done.stderr
    assert "ints.mul_zero: proved (int8 int16 uint8 uint16)" in done.stdout
    assert "mine.div_cancel: proved (index)" in done.stdout
    assert "FLOORDIV" in done.stdout, "what the example prints"
    (tmp_path / "own_rules.py").write_text(example.replace(", divides(c0, c1))", ")"))
    done = run(tmp_path, "own_rules:rules")
    assert done.returncode == 1
    assert "mine.div_cancel: refuted (at c0 = " in done.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module:rules", "No module named"),
        ("morok.symbolic:nothing", "no attribute"),
        ("morok.symbolic", "expected MODULE:SET"),
        ("morok.symbolic:simplify", "expected MODULE:SET"),
        (":rules", "Empty module name"),
    ],
)
def test_names_of_no_set(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 2
    assert said in capsys.readouterr().err


def test_modules_whose_rules_are_no_rules(tmp_path: Path) -> None:
    made = "from morok.ir import RuleSet, Var\nx = Var('x')\nrules = RuleSet('mine')\n"
    (tmp_path / "a.py").write_text(made + "rules.table([('r', x + 0, x)])\n")
    done = run(tmp_path, "a:rules")
    assert done.returncode == 2
    assert "a:rules: the literal 0 never matches a float" in done.stderr


def test_two_rules_of_one_name_are_both_looked_at_or_none(tmp_path: Path) -> None:
    made = "from morok.ir import RuleSet, Var\nx = Var('x')\nrules = RuleSet('mine', dtype='i')\n"
    (tmp_path / "right.py").write_text(made + "rules.table([('r', x + 0, x)])\n")
    (tmp_path / "wrong.py").write_text(made + "rules.table([('r', x + 1, x)])\n")
    done = run(tmp_path, "wrong:rules", "right:rules")
    assert done.returncode == 2
    assert "different rules of one name: mine.r" in done.stderr


def test_the_function_of_a_rule_is_proved_as_a_table_is() -> None:
    rules = RuleSet("test", dtype="x")

    @rules.rule
    def cancel(x, c0: Const, c1: Const):
        when(c0 > 0, c1 > 0, divides(c0, c1))
        return (x * c0) // c1, x // (c1 // c0)

    assert prove(rules["cancel"]).status is Status.PROVED
