"""Verdicts on rules, and the file that keeps them."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from morok.ir import Rule

FILE = Path(__file__).with_name("verdicts.json")
"""The verdicts on the rules of this package, by content."""

MEANING = 3
"""Raised when what the prover asks changes, so that no older verdict counts."""


class Status(enum.Enum):
    """What is known of a rule."""

    PROVED = "proved"
    CONSTANTS = "proved for all constants in ±1..64"
    REFUTED = "refuted"
    UNPROVED = "unproved"

    @property
    def stands(self) -> bool:
        """Whether the rule may be used."""
        return self in (Status.PROVED, Status.CONSTANTS)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`sorts`: where it is proved, or refuted; `reason`: a counterexample, or why not more."""

    rule: str
    status: Status
    sorts: str
    reason: str
    seconds: float = 0.0


def key(rule: Rule) -> str:
    """What a verdict is kept under: changes with the rule's meaning, not with its name."""
    return f"{MEANING}-{rule.digest()[:32]}"


def load(path: Path = FILE) -> dict[str, Verdict]:
    """The kept verdicts by key; none where there is no file."""
    if not path.exists():
        return {}
    rows: Mapping[str, list[str]] = json.loads(path.read_text())
    return {
        name: Verdict(rule, Status(status), sorts, reason)
        for name, (rule, status, sorts, reason) in rows.items()
    }


def save(verdicts: Mapping[str, Verdict], path: Path = FILE) -> None:
    """Writes the verdicts, one a line, in the order of the rules' names."""
    ordered = sorted(verdicts.items(), key=lambda item: (item[1].rule, item[0]))
    lines = [
        f"{json.dumps(name)}: {json.dumps([v.rule, v.status.value, v.sorts, v.reason])}"
        for name, v in ordered
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def missing(rules: Iterable[Rule], verdicts: Mapping[str, Verdict]) -> list[Rule]:
    """The data rules that no kept verdict allows."""
    return [
        rule
        for rule in rules
        if rule.is_data and not ((found := verdicts.get(key(rule))) and found.status.stands)
    ]
