"""`python -m morok COMMAND`: the tools that come with the package."""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS = {
    "bestiary": ("morok.tools.bestiary", "the page of all ops, generated from the op table"),
    "doctor": ("morok.tools.doctor", "what this machine has, what is missing, how to mend it"),
    "prove": ("morok.tools.prove", "proofs of rewrite rules, yours too (extra `prove`)"),
}
"""Command -> module with a `main(arguments) -> exit status`, and its one line of help."""


def main(arguments: list[str]) -> int:
    """Runs one command and returns its exit status; 2 if there is no such command."""
    name = arguments[0] if arguments else "help"
    if name in COMMANDS:
        status: int = import_module(COMMANDS[name][0]).main(arguments[1:])
        return status
    asked = name in ("help", "-h", "--help")
    print("usage: python -m morok COMMAND", file=sys.stdout if asked else sys.stderr)
    for command, (_, text) in COMMANDS.items():
        print(f"  {command:<10} {text}", file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
