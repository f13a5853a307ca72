"""Prints the requirements pyproject.toml states, one a line.

python ci/requirements.py test demo     # build, run time and the extras named
python ci/requirements.py --only torch  # the extras alone
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements(extras: list[str], *, only: bool) -> list[str]:
    """What the extras ask for, after what building and running do."""
    project = tomllib.loads(PYPROJECT.read_text())
    base = [] if only else project["build-system"]["requires"] + project["project"]["dependencies"]
    optional = project["project"]["optional-dependencies"]
    return [*base, *(line for extra in extras for line in optional[extra])]


if __name__ == "__main__":
    names = sys.argv[1:]
    print("\n".join(requirements([n for n in names if n != "--only"], only="--only" in names)))
