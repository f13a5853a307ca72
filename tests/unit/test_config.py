"""Settings: where they come from, how long they hold, what they refuse."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from morok import config, dtypes
from morok.config import from_environment
from morok.errors import ConfigError


def test_defaults() -> None:
    plain = from_environment({})
    assert (plain.debug, plain.verify, plain.cc, plain.default_float) == (0, False, None, "float32")
    assert plain.cache_size == 1 << 30


@pytest.mark.parametrize(
    ("name", "variable", "text", "value"),
    [
        ("debug", "MOROK_DEBUG", "3", 3),
        ("verify", "MOROK_VERIFY", "1", True),
        ("noopt", "MOROK_NOOPT", "0", False),
        ("beam", "MOROK_BEAM", "4", 4),
        ("cache_dir", "MOROK_CACHE_DIR", "/x/y", Path("/x/y")),
        ("cache_dir", "MOROK_CACHE_DIR", "~/y", Path("~/y").expanduser()),
        ("cache_size", "MOROK_CACHE_SIZE", "2G", 2 << 30),
        ("cache_size", "MOROK_CACHE_SIZE", "0", 0),
        ("cc", "CC", "ccache gcc", ("ccache", "gcc")),
        ("profile", "MOROK_PROFILE", "t.json", Path("t.json")),
        ("default_int", "MOROK_DEFAULT_INT", "int64", "int64"),
        ("debug", "MOROK_DEBUG", "", 0),
    ],
)
def test_variables(name: str, variable: str, text: str, value: object) -> None:
    assert getattr(from_environment({variable: text}), name) == value


def test_own_compiler_variable_wins() -> None:
    assert from_environment({"CC": "gcc", "MOROK_CC": "clang"}).cc == ("clang",)


def test_cache_dir_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert from_environment({}).cache_dir == Path("/xdg/morok")


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("MOROK_DEBUG", "6"),
        ("MOROK_DEBUG", "-1"),
        ("MOROK_DEBUG", "on"),
        ("MOROK_VERIFY", "yes"),
        ("MOROK_BEAM", "1.5"),
        ("MOROK_CACHE_SIZE", "2X"),
        ("MOROK_CACHE_SIZE", "1GG"),
        ("MOROK_CACHE_SIZE", "-1"),
        ("MOROK_CC", "'unbalanced"),
        ("MOROK_DEFAULT_FLOAT", "fp8e4m3"),
    ],
)
def test_a_bad_value_names_variable_value_and_what_is_allowed(variable: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_environment({variable: text})
    error = caught.value
    assert (error.variable, error.value) == (variable, text)
    assert str(error) == f"{variable}={text}: expected {error.allowed}"
    assert error.allowed


def test_override_nests_and_ends() -> None:
    before = config.get()
    with config.override(debug=2, verify=True) as outer:
        assert (outer.debug, outer.verify) == (2, True)
        with config.override(debug=1):
            assert (config.get().debug, config.get().verify) == (1, True)
        assert config.get() is outer
    assert config.get() == before


def test_override_ends_on_an_error() -> None:
    before = config.get()
    with pytest.raises(ZeroDivisionError), config.override(debug=5):
        raise ZeroDivisionError
    assert config.get() == before


def test_override_is_this_thread_only_and_set_is_for_all() -> None:
    seen: list[int] = []

    def look() -> None:
        seen.append(config.get().beam)

    with config.override(beam=7):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    config.set(beam=3)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [0, 3]


def test_set_survives_an_override() -> None:
    with config.override(debug=1):
        config.set(beam=2)
        assert config.get().beam == 0
    assert config.get().beam == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"debug": 6},
        {"debug": "2"},
        {"verify": 2},
        {"cc": ""},
        {"cache_size": None},
        {"default_float": "int32"},
        {"debgu": 1},
    ],
)
def test_set_and_override_refuse_bad_values(settings: dict[str, Any]) -> None:
    before = config.get()
    for change in (config.set, config.override(**settings).__enter__):
        with pytest.raises(ConfigError):
            change(**(settings if change is config.set else {}))
    assert config.get() == before


def test_values_in_python_forms() -> None:
    with config.override(default_float=dtypes.float64, verify=1, cc=None, profile="x.json") as now:
        assert (now.default_float, now.verify, now.cc) == ("float64", True, None)
        assert now.profile == Path("x.json")


def test_reload_reads_the_environment_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOROK_DEBUG", "4")
    config.reload()
    assert config.get().debug == 4


def test_the_table_is_complete() -> None:
    text = config.describe()
    for name, row in config.rows().items():
        assert name in text
        assert all(variable in text for variable in row.env)
        assert row.doc
        assert row.allowed
