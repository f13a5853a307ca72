"""Programs against the eager model; the ones that went wrong once are below."""

from __future__ import annotations

from hypothesis import settings

from bench.state_machine import Programs

TestPrograms = Programs.TestCase
TestPrograms.settings = settings(max_examples=25, stateful_step_count=25)
