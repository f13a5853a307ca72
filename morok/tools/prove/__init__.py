"""`python -m morok prove [MODULE:SET …]`: proofs of rewrite rules by z3 (extra `prove`).

Every data rule is proved at every choice of dtypes: index arithmetic over unbounded integers with
the bounds that its guards name, wrapping ints of 8 and 16 bits for all widths (of 32 and 64, too,
where a rule's own numbers or a cast ask for them), floats in a small IEEE format, truth values.
What is true lane by lane is true of vectors. A rule is right when, wherever its left side is
defined and its guards hold, its right side is defined and equal.

Without names: the rules of this package. Their verdicts are kept by content in `verdicts.json`; a
rule that has none is proved. `--again` proves all, `--write` keeps what was found. Rules known to
be wrong must be refuted, and the lemmas behind rules in C must hold.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module

from morok.errors import MorokError
from morok.ir import Rule, RuleSet
from morok.symbolic import late, sym
from morok.tools.prove.verdicts import Status, Verdict, key, load, save

PACKAGE_SETS = (sym, late)
"""The sets whose rules are proved when none is named."""


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0 when everything is proved, 1 when something is not, 2 for a bad command."""
    parser = argparse.ArgumentParser(prog="python -m morok prove", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("sets", nargs="*", metavar="MODULE:SET", help="sets of your own")
    parser.add_argument("--again", action="store_true", help="prove what has a verdict, too")
    parser.add_argument("--write", action="store_true", help="keep the verdicts of this package")
    parser.add_argument("--list", action="store_true", help="one line for every rule")
    options = parser.parse_args(list(arguments))
    try:
        import z3  # noqa: F401
    except ImportError:
        print("prove needs z3: pip install 'morok[prove]'", file=sys.stderr)
        return 2
    own = [_named(name) for name in options.sets]
    if any(found is None for found in own):
        return 2
    start = time.monotonic()
    sets = [found for found in own if found is not None] or list(PACKAGE_SETS)
    rules = list(dict.fromkeys(rule for rules in sets for rule in rules))
    names = Counter(rule.name for rule in rules)
    if twice := [name for name, count in names.items() if count > 1]:
        print(f"different rules of one name: {', '.join(twice)}", file=sys.stderr)
        return 2
    kept = {} if options.again or own else load()
    verdicts = _verdicts(rules, kept)
    wrong = _report(rules, verdicts, options.list)
    if not own:
        wrong += _check_lemmas() + _check_wrong_rules()
        if options.write:
            save({key(rule): verdicts[rule.name] for rule in rules if rule.is_data})
    print(f"{time.monotonic() - start:.0f} s")
    return 1 if wrong else 0


def _named(name: str) -> RuleSet | None:
    """The set that MODULE:SET names; None, and a message, when there is none."""
    module, colon, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules beside the user, as `python -m` finds them
    try:
        found = getattr(import_module(module), attribute) if colon else None
    except (ImportError, AttributeError, ValueError, MorokError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None
    if not isinstance(found, RuleSet):
        print(f"{name}: expected MODULE:SET, where SET is a RuleSet", file=sys.stderr)
        return None
    return found


def _verdicts(rules: Iterable[Rule], kept: dict[str, Verdict]) -> dict[str, Verdict]:
    """The verdict on every data rule by name, kept or found now."""
    from morok.tools.prove.search import prove

    verdicts = {}
    for rule in rules:
        if rule.is_data:
            verdicts[rule.name] = kept.get(key(rule)) or prove(rule)
    return verdicts


def _report(rules: Sequence[Rule], verdicts: dict[str, Verdict], every: bool) -> int:
    """Prints the table of families and what is not proved; how many rules that is."""
    families: dict[str, Counter[str]] = {}
    for rule in rules:
        kind = "native" if rule.native else "opaque"
        status = verdicts[rule.name].status.name.lower() if rule.is_data else kind
        families.setdefault(rule.name.partition(".")[0], Counter())[status] += 1
    columns = [*(status.name.lower() for status in Status), "native", "opaque"]
    print(f"{'family':<12}" + "".join(f"{column:>11}" for column in columns))
    total = sum(families.values(), Counter[str]())
    for family, counts in [*families.items(), ("all", total)]:
        print(f"{family:<12}" + "".join(f"{counts[column]:>11}" for column in columns))
    for verdict in verdicts.values():
        wrong = not verdict.status.stands
        if every or wrong or verdict.status is Status.CONSTANTS:
            said = verdict.reason or verdict.sorts
            print(f"{verdict.rule}: {verdict.status.value} ({said})")
    opaque = [rule.name for rule in rules if not rule.is_data and not rule.native]
    if opaque:
        print(f"opaque: {', '.join(opaque)}")
    return sum(not verdict.status.stands for verdict in verdicts.values())


def _check_lemmas() -> int:
    """Proves the lemmas; how many do not hold."""
    from morok.tools.prove.lemmas import all_lemmas
    from morok.tools.prove.search import holds

    lemmas = list(all_lemmas())
    failed = [lemma.name for lemma in lemmas if not holds(lemma.given, lemma.claim)]
    print(f"lemmas: {len(lemmas) - len(failed)} of {len(lemmas)} proved")
    for name in failed:
        print(f"lemma {name}: not proved")
    return len(failed)


def _check_wrong_rules() -> int:
    """Refutes the rules known to be wrong; how many were not."""
    from morok.tools.prove.refuted import WRONG
    from morok.tools.prove.search import prove

    verdicts = [prove(rule) for rule in WRONG]
    missed = [verdict.rule for verdict in verdicts if verdict.status is not Status.REFUTED]
    print(f"wrong rules: {len(verdicts) - len(missed)} of {len(verdicts)} refuted")
    for name in missed:
        print(f"{name}: not refuted")
    return len(missed)
