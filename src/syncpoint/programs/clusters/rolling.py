"""`syncpoint cluster restart`: the processes of a cluster end and begin again, one after another.

Place: over `local`, which stops and starts them, and `looking`, which knows when all is as it was.
Promise: the next process is stopped only when the one before listens again, is a member, and has what it is to have, as
far as all was well before; so no more than one process is ever away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from syncpoint.base.model.errors import InvalidArgument, Unavailable
from syncpoint.node.cluster.settings import ROLES, ClusterSettings
from syncpoint.programs.clusters.inspect import Found
from syncpoint.programs.clusters.local import LocalCluster
from syncpoint.programs.clusters.looking import Cluster

WELL_S = 60.0
_PAUSE_S = 0.2


def chosen(settings: ClusterSettings, names: Iterable[str]) -> list[str]:
    """The processes that names of processes and roles stand for; none: all of them. Raises `InvalidArgument`."""
    processes = settings.processes
    wanted = list(names) or list(processes)
    found: dict[str, None] = {}
    for name in wanted:
        of_role = [one.name for one in processes.values() if name in one.roles] if name in ROLES else []
        if name not in processes and not of_role:
            raise InvalidArgument("process", f"{name} is no process and no role; there are {', '.join(processes)}")
        found.update(dict.fromkeys([name] if name in processes else of_role))
    return list(found)


def describe(cluster: LocalCluster) -> Found:
    """How the cluster of a folder is now."""
    return Cluster.of_file(cluster.settings_path).describe()


def restart(
    cluster: LocalCluster,
    names: Iterable[str],
    report: Callable[[str], None],
    *,
    look: Callable[[LocalCluster], Found] = describe,
    within_s: float = WELL_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Restart processes one after another; `report` is called for each. Raises `Unavailable` when one does not come
    back as it was within `within_s` seconds: the ones after it are left alone.
    """
    before = set(look(cluster)["problems"])
    for name in names:
        begun = clock()
        cluster.stop(name)
        cluster.start(name)
        back = clock()
        while worse := sorted(set(look(cluster)["problems"]) - before):
            if clock() - back > within_s:
                raise Unavailable(f"{name} runs again, and not all is as it was: {'; '.join(worse)}")
            sleep(_PAUSE_S)
        report(f"{name}: listens again after {back - begun:.1f} s, all is as it was after {clock() - begun:.1f} s")
