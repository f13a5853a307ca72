"""A compiler for all tests of the runtime, with a cache of their own."""

from __future__ import annotations

import pytest
from handmade import Toolbox

from morok.runtime import CCompiler, DiskCache


@pytest.fixture(autouse=True)
def _sources_of_errors_go(tmp_path_factory, monkeypatch):
    """Sources that a CompileError saves do not stay in the system's temporary directory."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.getbasetemp()))


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> DiskCache:
    return DiskCache(tmp_path_factory.mktemp("cache"), 1 << 24)


@pytest.fixture(scope="session")
def compiler(session_cache: DiskCache) -> CCompiler:
    return CCompiler(cache=session_cache)


@pytest.fixture(scope="session")
def toolbox(compiler: CCompiler, session_cache: DiskCache) -> Toolbox:
    return Toolbox(compiler, session_cache)
