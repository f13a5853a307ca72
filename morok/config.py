"""Every setting of morok, once: name, environment variable, type, default, meaning.

    MOROK_DEBUG=2 python train.py               # from the environment, read at the first use
    morok.config.set(debug=2)                   # for the process
    with morok.config.override(debug=2): ...    # for a block, in this thread or asyncio task

Read with `config.get().debug`. A new setting is one row of `Config`. A value outside what a row
allows raises `ConfigError`, wherever it came from.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from morok.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Row:
    """What the table knows of one setting.

    `env` are the variables that set it, the first one set wins. `parse` turns a variable's text
    into a value, and `check` a Python value given to `set` or `override`; both raise ValueError.
    """

    env: tuple[str, ...]
    parse: Callable[[str], Any]
    check: Callable[[Any], Any]
    allowed: str
    doc: str


def _row(row: Row, default: Any) -> Any:
    if callable(default):
        return field(default_factory=default, metadata={"row": row})
    return field(default=default, metadata={"row": row})


def _refuse(value: object) -> Any:
    raise ValueError(value)


def _flag(env: str, doc: str) -> Any:
    """A setting that is off unless switched on."""
    texts = {"1": True, "0": False}
    row = Row(
        (env,),
        parse=lambda text: texts[text] if text in texts else _refuse(text),
        check=lambda value: value if isinstance(value, bool) else bool(texts[str(value)]),
        allowed="0 or 1",
        doc=doc,
    )
    return _row(row, False)


def _int(env: str | tuple[str, ...], default: int, low: int, high: int, doc: str) -> Any:
    """A whole number within bounds; of a list, as OpenMP allows it, the first."""

    def check(value: Any) -> int:
        ok = isinstance(value, int) and low <= value <= high
        return int(value) if ok else _refuse(value)

    row = Row(
        (env,) if isinstance(env, str) else env,
        lambda text: check(int(text if isinstance(env, str) else text.split(",")[0])),
        check,
        f"an integer {low} to {high}",
        doc,
    )
    return _row(row, default)


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _bytes(env: str, default: int, doc: str) -> Any:
    def parse(text: str) -> int:
        digits = text.rstrip("KMGT")
        return check(int(digits) * _UNITS[text[len(digits) :]])

    def check(value: Any) -> int:
        return int(value) if isinstance(value, int) and value >= 0 else _refuse(value)

    return _row(Row((env,), parse, check, "a number of bytes, e.g. 500M or 2G", doc), default)


def _choice(env: str, default: str, choices: tuple[str, ...], doc: str) -> Any:
    def check(value: Any) -> str:
        name = getattr(value, "name", value)  # a DType serves as its name
        return str(name) if name in choices else _refuse(value)

    return _row(Row((env,), check, check, f"one of {', '.join(choices)}", doc), default)


def _path(env: str, default: Callable[[], Path] | None, doc: str) -> Any:
    row = Row((env,), lambda text: Path(text).expanduser(), Path, "a path", doc)
    return _row(row, default)


def _command(env: tuple[str, ...], doc: str) -> Any:
    def check(value: Any) -> tuple[str, ...]:
        words = shlex.split(value) if isinstance(value, str) else [str(word) for word in value]
        return tuple(words) if words else _refuse(value)

    return _row(Row(env, check, check, "a command, e.g. gcc or 'ccache gcc'", doc), None)


def _cache_home() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(base):
        return Path(base, "morok")
    return Path("/tmp", f"morok-{os.getuid()}")  # a user without a home, as some containers have


@dataclass(frozen=True, slots=True)
class Config:
    """The settings and their values. Take the one in force with `get()`."""

    debug: int = _int(
        "MOROK_DEBUG", 0, 0, 5,
        "what is printed: 1 kernels with times, 2 with schedules, 3 sources, 4 graphs, 5 rewrites",
    )  # fmt: skip
    verify: bool = _flag("MOROK_VERIFY", "check the graph between all stages")
    noopt: bool = _flag("MOROK_NOOPT", "apply no optimisation actions to kernels")
    beam: int = _int("MOROK_BEAM", 0, 0, 1024, "width of the search for actions; 0 uses heuristics")
    cache_dir: Path = _path("MOROK_CACHE_DIR", _cache_home, "where compiled kernels are kept")
    cache_size: int = _bytes(
        "MOROK_CACHE_SIZE", 1 << 30, "how large the cache on disk may grow; 0 turns it off"
    )
    cpu_compiler: str = _choice(
        "MOROK_CPU_COMPILER", "auto", ("c", "llvm", "auto"),
        "what makes machine code: a C compiler, the LLVM of llvmlite, or LLVM if it is installed",
    )  # fmt: skip
    cc: tuple[str, ...] | None = _command(("MOROK_CC", "CC"), "the C compiler; else one is found")
    threads: int = _int(
        ("MOROK_THREADS", "OMP_NUM_THREADS"), 0, 0, 1024,
        "threads that one kernel may run on; 0 is one a core",
    )  # fmt: skip
    jobs: int = _int(
        "MOROK_JOBS",
        0,
        0,
        1024,
        "compilers, and processes that lower kernels, side by side; 0 is one a core",
    )
    pool_size: int = _bytes(
        "MOROK_POOL_SIZE", 1 << 30, "how much free memory is kept for the next tensors"
    )
    jit_check: bool = _flag(
        "MOROK_JIT_CHECK", "run jitted functions plainly too, and raise where a replay differs"
    )
    check_nan: bool = _flag("MOROK_CHECK_NAN", "stop at the first kernel that makes a NaN or inf")
    profile: Path | None = _path("MOROK_PROFILE", None, "file to write a Chrome trace to")
    default_float: str = _choice(
        "MOROK_DEFAULT_FLOAT", "float32", ("float16", "bfloat16", "float32", "float64"),
        "dtype of Python floats and of the quotient of ints",
    )  # fmt: skip
    default_int: str = _choice(
        "MOROK_DEFAULT_INT", "int32", ("int32", "int64"), "dtype of Python ints"
    )


_FIELDS: dict[str, Field[Any]] = {setting.name: setting for setting in fields(Config)}
_process: Config | None = None
_block: ContextVar[Config | None] = ContextVar("morok_config", default=None)


def rows() -> dict[str, Row]:
    """The table: setting name -> what is known of it."""
    return {name: setting.metadata["row"] for name, setting in _FIELDS.items()}


def from_environment(environ: Mapping[str, str] | None = None) -> Config:
    """The settings `environ` (default: the process's environment) asks for.

    An empty variable counts as unset. ConfigError names the variable, its value and what it may be.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    for name, row in rows().items():
        variable = next((variable for variable in row.env if environ.get(variable)), None)
        if variable is not None:
            values[name] = _checked(row, variable, environ[variable], row.parse)
    return Config(**values)


def get() -> Config:
    """The settings in force here: the innermost `override`, else the process's."""
    block = _block.get()
    if block is not None:
        return block
    return _process if _process is not None else _load()


def set(**settings: Any) -> None:  # noqa: A001 - always called as config.set
    """Changes settings for the process: every thread outside an `override` block sees them."""
    global _process
    _process = _changed(_process if _process is not None else _load(), settings)


def reload() -> None:
    """Forgets what `set` changed and reads the environment again."""
    global _process
    _process = from_environment()


@contextmanager
def override(**settings: Any) -> Iterator[Config]:
    """Changes settings for the block, in this thread or asyncio task only."""
    token = _block.set(_changed(get(), settings))
    try:
        yield get()
    finally:
        _block.reset(token)


def describe() -> str:
    """The table with the values in force, for people."""
    current = get()
    lines = []
    for name, row in rows().items():
        variables = " or ".join(row.env)
        lines.append(f"{name} = {getattr(current, name)!s}   ({variables}: {row.allowed})")
        lines.append(f"    {row.doc}")
    return "\n".join(lines)


def _load() -> Config:
    global _process
    _process = from_environment()
    return _process


def _changed(base: Config, settings: dict[str, Any]) -> Config:
    table = rows()
    for name in settings:
        if name not in table:
            raise ConfigError(
                f"there is no setting {name!r}: it is one of {', '.join(table)}",
                variable=name,
                value=settings[name],
                allowed=", ".join(table),
            )
    checked: dict[str, Any] = {
        name: value if value is None and _FIELDS[name].default is None
        else _checked(table[name], name, value, table[name].check)
        for name, value in settings.items()
    }  # fmt: skip
    return replace(base, **checked)


def _checked(row: Row, variable: str, value: Any, convert: Callable[[Any], Any]) -> Any:
    try:
        return convert(value)
    except (ValueError, TypeError, KeyError):
        raise ConfigError(
            f"{variable}={value!s}: expected {row.allowed}",
            variable=variable,
            value=value,
            allowed=row.allowed,
        ) from None
