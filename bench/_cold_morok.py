"""Where the first step of a morok process goes."""

from __future__ import annotations

from morok.engine import stats


def parts(seconds: float) -> dict[str, float]:
    """Milliseconds by part of a step of `seconds`; `graph` is what is in none of the others: the
    tensors' own Python, gradients, keys of graphs."""
    found = {
        "import": stats.import_seconds,
        "disk": stats.disk_seconds,
        "schedule": stats.schedule_seconds,
        "lower": stats.lower_seconds,
        "render": stats.render_seconds,
        "machine": stats.compile_seconds,
        "plan": stats.plan_seconds,
        "run": stats.run_seconds,
    }
    rest = seconds - sum(found.values())
    return {name: 1e3 * value for name, value in {"graph": rest, **found}.items()}
