"""`python -m morok doctor` and the command line around it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from morok import __main__, config
from morok.tools import doctor


def only(findings: object) -> doctor.Finding:
    (finding,) = findings  # type: ignore[misc]
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
    with config.override(cc="/no/such/compiler"):
        assert doctor.main([]) == 1
    report = capsys.readouterr().out
    assert "FAIL  compiler" in report
    assert "mend: apt-get install gcc" in report


def test_a_broken_compiler_is_found() -> None:
    with config.override(cc="false"):
        assert "false fails" in only(doctor.check_compiler()).text


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
        assert "made at the first use" in only(doctor.check_cache()).text
        folder.mkdir(mode=0o700)
        (folder / "x").write_bytes(b"1" * (1 << 20))
        assert "1 files, 1.0 MiB of 1,024.0 MiB" in only(doctor.check_cache()).text
        folder.chmod(0o755)
        finding = only(doctor.check_cache())
        assert (finding.ok, finding.remedy) == (False, f"chmod 700 {folder}")
    with config.override(cache_size=0):
        assert "turned off" in only(doctor.check_cache()).text


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main([]) == 0
    assert "doctor" in capsys.readouterr().out
    assert __main__.main(["nonsense"]) == 2
    assert "usage" in capsys.readouterr().err
    assert __main__.main(["doctor", "now"]) == 2
