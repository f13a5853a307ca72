"""What every test shares: reproducible random numbers, and the skip of what needs PyTorch."""

from __future__ import annotations

import importlib.util
import os
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from morok import config
from morok.engine import finished

# PyTorch's worker threads wait actively: beside other work two of them are far slower than one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile(
    "morok",
    deadline=None,  # the first example of a test may compile
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("morok")

HAS_TORCH = importlib.util.find_spec("torch") is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-goldens`: files that hold what is expected are written anew."""
    parser.addoption("--update-goldens", action="store_true", help="write expected texts anew")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `torch` are skipped, with the command to run, where it is not installed; those
    marked `exhaustive` are left out unless asked for."""
    if "exhaustive" not in config.option.markexpr:
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
    if HAS_TORCH:
        return
    skip = pytest.mark.skip(reason="needs PyTorch: pip install torch==2.13.0")
    for item in items:
        if item.get_closest_marker("torch"):
            item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how many of the tests that ran compare with PyTorch."""
    seen: set[str] = set()
    for reports in terminalreporter.stats.values():
        seen |= {r.nodeid for r in reports if "torch" in getattr(r, "keywords", {})}
    if seen:
        state = "installed" if HAS_TORCH else "NOT installed, so they were skipped"
        terminalreporter.write_line(f"{len(seen)} tests need PyTorch ({state})")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that depend on the test's name only."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(autouse=True)
def _settings_stay() -> Iterator[None]:
    """No test leaves changed settings behind."""
    yield
    config.reload()


@pytest.fixture(autouse=True)
def _plans_are_made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is lowered is counted in many tests: no plan comes from the disk but in those that are
    about that."""
    if not request.module.__name__.endswith("finished_plans"):
        monkeypatch.setattr(finished, "_files", lambda: None)
