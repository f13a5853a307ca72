"""`python -m morok doctor` and the command line around it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from morok import __main__, config
from morok.runtime import DiskCache
from morok.tools import doctor


def only(findings: Iterable[doctor.Finding]) -> doctor.Finding:
    (finding,) = findings
    return finding


def test_report_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main([]) == 0
    report = capsys.readouterr().out
    for topic in ("python", "numpy", "core", "compiler", "cpu", "cache", "settings"):
        assert f"ok    {topic} " in report
    assert report.endswith("morok can run here\n")


def test_a_missing_compiler_is_fatal_and_says_how_to_get_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with config.override(cc="/no/such/compiler", cpu_compiler="c"):
        assert doctor.main([]) == 1
    report = capsys.readouterr().out
    assert "FAIL  compiler" in report
    assert "mend: apt-get install gcc" in report


def test_one_of_two_compilers_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        return None

    if importlib.util.find_spec("llvmlite") is not None:
        with config.override(cc="/no/such/compiler", cpu_compiler="auto"):
            assert only(doctor.check_llvm()).ok
            assert not only(doctor.check_compiler()).needed
    monkeypatch.setattr("importlib.util.find_spec", missing)
    with config.override(cpu_compiler="auto"):
        note = only(doctor.check_llvm())
    assert (note.ok, note.needed) == (False, False)
    assert "llvmlite is not installed" in note.text
    assert "pip install llvmlite" in note.remedy
    with config.override(cpu_compiler="llvm"):
        assert only(doctor.check_llvm()).needed
    with config.override(cc="/no/such/compiler", cpu_compiler="auto"):
        assert only(doctor.check_compiler()).needed


def test_a_broken_compiler_is_found() -> None:
    with config.override(cc="false"):
        assert "false is no working C compiler" in only(doctor.check_compiler()).text


def test_settings() -> None:
    assert only(doctor.check_settings({})).text == "all default"
    assert only(doctor.check_settings({"MOROK_DEBUG": "2"})).text == "debug=2"
    misspelt, rest = doctor.check_settings({"MOROK_DEBGU": "2", "MOROK_BUILD": "debug"})
    assert (misspelt.ok, misspelt.remedy) == (False, "did you mean MOROK_DEBUG?")
    assert rest.ok
    wrong = only(doctor.check_settings({"MOROK_BEAM": "wide"}))
    assert (wrong.ok, wrong.needed, wrong.remedy) == (False, True, "unset MOROK_BEAM")


def test_a_bad_setting_does_not_stop_the_report() -> None:
    environ = {**os.environ, "MOROK_BEAM": "wide"}
    command = [sys.executable, "-m", "morok", "doctor"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "MOROK_BEAM=wide: expected" in done.stdout
    assert "cpu " in done.stdout


def test_cache_states(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    with config.override(cache_dir=folder):
        assert f"{folder}: 0 entries" in only(doctor.check_cache()).text
        cache = DiskCache(folder, 1 << 30)
        assert cache.put(b"k" * 16, b"1" * (1 << 20))
        assert "1 entries, 1.0 MiB of 1,024.0 MiB" in only(doctor.check_cache()).text
    (tmp_path / "file").write_text("in the way")
    with config.override(cache_dir=tmp_path / "file"):
        finding = only(doctor.check_cache())
        assert (finding.ok, finding.needed) == (False, False)
        assert "is not used" in finding.text
        assert "MOROK_CACHE_DIR" in finding.remedy
    with config.override(cache_size=0):
        assert "turned off" in only(doctor.check_cache()).text


def test_a_broken_core_is_reported_and_does_not_stop_the_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "morok._core", None)
    monkeypatch.setitem(sys.modules, "morok.runtime", None)
    assert doctor.main([]) == 1
    report = capsys.readouterr().out
    assert "FAIL  core" in report
    assert "setup.py build_ext --inplace" in report
    assert "ok    cpu" in report


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main([]) == 0
    assert "doctor" in capsys.readouterr().out
    assert __main__.main(["nonsense"]) == 2
    assert "usage" in capsys.readouterr().err
    assert __main__.main(["doctor", "now"]) == 2
