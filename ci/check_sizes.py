"""Warns of source files past 500 lines, fails at more than 800: split them by what they do."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("morok", "tests", "bench", "demo", "ci")
SUFFIXES = (".py", ".pyi", ".pyx", ".pxd", ".h", ".c")
WARN, FAIL = 500, 800


def main() -> int:
    sizes = [
        (len(path.read_text().splitlines()), path.relative_to(ROOT))
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in SUFFIXES
    ]
    for lines, path in sizes:
        if lines > WARN:
            print(f"{path}: {lines} lines, {'over the limit of' if lines > FAIL else 'past'} "
                  f"{FAIL if lines > FAIL else WARN}")  # fmt: skip
    return int(any(lines > FAIL for lines, _ in sizes))


if __name__ == "__main__":
    sys.exit(main())
