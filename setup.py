"""Builds every `morok/_core/*.pyx` into an extension module.

    python setup.py build_ext --inplace        # next to the sources, two compilers at a time
    MOROK_BUILD=debug python setup.py build_ext --inplace

MOROK_BUILD picks one set of Cython directives and C flags; no source file sets directives itself:

    release   no run-time checks, -O2 (the default)
    debug     index, None and initialisation checks, C assertions, -O0 -g
    trace     debug, and line tracing for coverage and profilers
    sanitize  debug, with the address and undefined-behaviour sanitizers
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
CORE = Path("morok/_core")
JOBS = 2

MODES: dict[str, tuple[bool, dict[str, bool], list[str], list[str], list[tuple[str, str]]]] = {
    # mode: (run-time checks, further directives, C flags, link flags, macros)
    "release": (False, {}, ["-O2", "-g0"], [], [("NDEBUG", "1")]),
    "debug": (True, {}, ["-O0", "-g", "-UNDEBUG"], [], [("MOROK_CHECKED", "1")]),
    "trace": (
        True,
        {"linetrace": True, "profile": True},
        ["-O0", "-g", "-UNDEBUG"],
        [],
        [("MOROK_CHECKED", "1"), ("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")],
    ),
    "sanitize": (
        True,
        {},
        ["-O1", "-g", "-UNDEBUG", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"],
        ["-fsanitize=address,undefined"],
        [("MOROK_CHECKED", "1")],
    ),
}


def build_mode() -> str:
    mode = os.environ.get("MOROK_BUILD", "release")
    if mode not in MODES:
        raise SystemExit(f"MOROK_BUILD={mode!r}: expected one of {', '.join(MODES)}")
    return mode


def mode_stamp(mode: str) -> Path:
    """A file whose time changes when the mode or this script does: everything depends on it."""
    stamp = ROOT / "build" / "mode"
    content = f"{mode} {platform.python_version()}\n{Path(__file__).read_text()}"
    if not stamp.exists() or stamp.read_text() != content:
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(content)
    return stamp


def extensions(mode: str) -> list[Extension]:
    """One extension a .pyx, translated to C under build/ so that the source tree stays clean."""
    checks, further, cflags, ldflags, macros = MODES[mode]
    sources = sorted(CORE.glob("*.pyx"))
    if not sources:
        return []
    stamp = mode_stamp(mode)
    c_dir = ROOT / "build" / "cython"
    for c_file in c_dir.rglob("*.c"):
        if c_file.stat().st_mtime < stamp.stat().st_mtime:
            c_file.unlink()  # made with other directives
    headers = sorted(str(path) for pattern in ("*.pxd", "*.h") for path in CORE.glob(pattern))
    modules = [
        Extension(
            f"morok._core.{source.stem}",
            [str(source)],
            depends=[*headers, str(stamp)],
            include_dirs=[str(ROOT / CORE)],
            extra_compile_args=["-std=gnu11", "-fvisibility=hidden", *cflags],
            extra_link_args=ldflags,
            define_macros=macros,
        )
        for source in sources
    ]
    translated: list[Extension] = cythonize(
        modules,
        nthreads=JOBS,
        build_dir=os.path.relpath(c_dir),
        compiler_directives={
            "language_level": 3,
            "boundscheck": checks,
            "wraparound": checks,
            "initializedcheck": checks,
            "nonecheck": checks,
            "cdivision": True,
            "embedsignature": True,
            **further,
        },
    )
    return translated


class BuildExt(build_ext):
    """`build_ext` with parallel compilers by default; drops modules whose .pyx is gone."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.parallel is None:
            self.parallel = JOBS

    def run(self) -> None:
        super().run()
        if self.inplace:
            wanted = {source.stem for source in CORE.glob("*.pyx")}
            for built in CORE.glob("*.so"):
                if built.name.split(".")[0] not in wanted:
                    built.unlink()


if __name__ == "__main__":
    os.chdir(ROOT)
    setup(ext_modules=extensions(build_mode()), cmdclass={"build_ext": BuildExt})
