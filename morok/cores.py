"""How many processor cores this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

__all__ = ["available_cores", "cores_of_quota"]


@cache
def available_cores() -> int:
    """The cores that the scheduler and the control groups leave to this process, at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, min(cores, cores_of_quota() or cores))


def cores_of_quota(root: Path = Path("/"), groups: str | None = None) -> int | None:
    """Whole cores that the quotas of the control groups allow, versions 1 and 2; None without one.

    `groups` is the text of /proc/self/cgroup.
    """
    if groups is None:
        try:
            groups = (root / "proc/self/cgroup").read_text()
        except OSError:
            return None
    quotas = [quota for line in groups.splitlines() for quota in _quotas(root, line)]
    return max(1, int(min(quotas))) if quotas else None


def _quotas(root: Path, line: str) -> Iterator[float]:
    """The quotas, in cores, of a group and those around it; `line` is `number:controllers:path`."""
    _, _, rest = line.partition(":")
    controllers, _, path = rest.partition(":")
    if controllers and "cpu" not in controllers.split(","):
        return
    mounted = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
    group = PurePosixPath(path.lstrip("/"))
    for part in (group, *group.parents):
        try:
            if controllers:
                quota = (mounted / part / "cpu.cfs_quota_us").read_text()
                period = (mounted / part / "cpu.cfs_period_us").read_text()
            else:
                quota, period = (mounted / part / "cpu.max").read_text().split()
            if quota != "max" and int(quota) > 0:
                yield int(quota) / int(period)
        except (OSError, ValueError):  # no such group here: containers see parts of the tree
            continue
