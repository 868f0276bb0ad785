"""The notes in a data folder that say whose it is, where it is not a single server's. Apart from the rest, for whoever
only asks this.

    DATA/workers.json    several workers run it: how many ran last, and `adopting`: the chain that a single server's
                         files are being moved to
    DATA/cluster.json    a cluster has it: which one, the chain, and which disk's files go where
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.runtime.file_content import replace_file
from syncpoint.base.runtime.os_files import OsFiles

WORKERS_NOTE, CLUSTER_NOTE = "workers.json", "cluster.json"


class ClusterNote(NamedTuple):
    """`moves`: pairs of a disk's folder and the folder of a disk of the cluster."""

    cluster: str
    chain: int
    moves: list[list[str]]


def write_note(data: Path, name: str, values: dict[str, Any]) -> None:
    """From now on the folder is whose the note says. Durable."""
    replace_file(OsFiles(), str(data / name), json.dumps(values).encode())


def workers_note(data: Path) -> dict[str, Any]:
    """The note of workers; empty where there is none. Raises `FailedPrecondition` for one that cannot be read."""
    try:
        return {**json.loads((data / WORKERS_NOTE).read_text())}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError) as error:
        raise FailedPrecondition(
            f"{data / WORKERS_NOTE} cannot be read ({error}). Pass the number of workers with --workers."
        ) from error


def cluster_note(data: Path) -> ClusterNote | None:
    """The note of a cluster, if there is one. Raises `FailedPrecondition` for one that cannot be read."""
    try:
        return ClusterNote(**json.loads((data / CLUSTER_NOTE).read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise FailedPrecondition(f"{data / CLUSTER_NOTE} cannot be read: {error}") from error


def noted_workers(data: Path) -> int:
    """How many workers ran on a folder last; 0 when it is the folder of a single server, or new. Raises
    `FailedPrecondition` for a folder that a cluster has.
    """
    taken = cluster_note(data)
    if taken is not None:
        raise FailedPrecondition(
            f"{data} was imported into the cluster in {taken.cluster} with `syncpoint cluster import`. Start that"
            " cluster, or choose another folder for a new server."
        )
    try:
        return int(workers_note(data).get("workers", 0))
    except (ValueError, TypeError) as error:
        raise FailedPrecondition(
            f"{data / WORKERS_NOTE} has no valid number of workers ({error}). Pass it with --workers."
        ) from error
