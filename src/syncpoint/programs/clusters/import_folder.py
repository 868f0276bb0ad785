"""`syncpoint cluster import`: a new cluster on this machine takes over the folder of a stopped node.

Place: over `adopt`; of the cluster nothing but etcd runs in the meantime. The chain lies where the plan of its
durability class says: the node's disks become some of these places, and are copied to the others once the cluster is
up.
Promise: broken off, the command can be given again. Until then the cluster is not started (a file beside cluster.yaml
says so), and the folder is either still the node's or, by its note, the cluster's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from syncpoint.base.model.cluster import PUBLISH, STORAGE, ChainRecord, DiskPlace
from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.runtime.file_content import replace_file
from syncpoint.base.runtime.files import Files
from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.broker.router.location import DEFAULT_CLASS
from syncpoint.catalog.metadata.layout import CHAIN_COUNTER
from syncpoint.log.storage.placement import Candidate, place
from syncpoint.node.cluster.adopt import NodeFolder, begin_anew, can_move, move_disk, read_folder, register
from syncpoint.node.cluster.cluster_environment import ClusterEnvironment
from syncpoint.node.cluster.settings import ClusterSettings, ProcessSettings
from syncpoint.node.cluster.tls import operator_tls
from syncpoint.node.locks import FolderLocks
from syncpoint.node.note import CLUSTER_NOTE, ClusterNote, cluster_note, write_note
from syncpoint.programs.clusters.local import LocalCluster


class Adopted(NamedTuple):
    """What has become of a folder. `topics`, `subscriptions` and `snapshots`: how many."""

    chain: int
    topics: int
    subscriptions: int
    snapshots: int


class NewCluster(Protocol):
    """What an import has to know of the cluster: `programs.clusters.local` for one."""

    folder: Path

    @property
    def importing(self) -> Path:
        """A file that keeps the cluster from being started."""
        ...

    def settings(self) -> ClusterSettings: ...


def import_folder(cluster: LocalCluster, data: Path, disks: Sequence[Path]) -> Adopted | None:
    """Take over a folder; None: what was begun before is ended, or was already. Raises `SyncpointError`, what the store
    raises, and `OSError`; etcd runs, and goes on to.
    """
    running = [state.name for state in cluster.states() if state.state != "down" and "etcd" not in state.roles]
    if running:
        raise FailedPrecondition(f"{', '.join(running)} run: a folder is taken over before the cluster's first start")
    locks = FolderLocks()
    locks.take(data)
    try:
        return asyncio.run(take_over(cluster, data.absolute(), [disk.absolute() for disk in disks], OsFiles(), _real))
    finally:
        locks.release()


def _real(settings: ClusterSettings) -> ClusterEnvironment:
    return ClusterEnvironment.of(operator_tls(settings))


async def take_over(
    cluster: NewCluster,
    data: Path,
    disks: Sequence[Path],
    files: Files,
    environment_of: Callable[[ClusterSettings], ClusterEnvironment],
) -> Adopted | None:
    """Do what `import_folder` promises, for a caller that holds the folder. `files`: those that are moved."""
    done, note = None, cluster_note(data)
    if note is None:
        done, note = await _register(cluster, data, disks, files, environment_of)
        write_note(data, CLUSTER_NOTE, note._asdict())
    elif note.cluster != str(cluster.folder):
        raise FailedPrecondition(f"{data} is of the cluster in {note.cluster} already")
    for disk, target in note.moves:
        move_disk(files, disk, target, note.chain)
    cluster.importing.unlink(missing_ok=True)
    return done


async def _register(
    cluster: NewCluster,
    data: Path,
    disks: Sequence[Path],
    files: Files,
    environment_of: Callable[[ClusterSettings], ClusterEnvironment],
) -> tuple[Adopted, ClusterNote]:
    settings = cluster.settings()
    environment = environment_of(settings)
    shared = await environment.metadata(settings)
    try:
        folder: NodeFolder = await environment.blocking(partial(read_folder, data, disks, environment))
        await begin_anew(shared, folder.universe)
        record, moves = planned(settings, disks, await shared.counter(CHAIN_COUNTER), folder, files)
        replace_file(OsFiles(), str(cluster.importing), f"{data}\n".encode())
        await register(folder, shared, record, [slot for slot, _ in moves])
    finally:
        await shared.close()
    pairs = [[str(disk), target] for disk, (_, target) in zip(disks, moves, strict=True)]
    return Adopted(record.number, *folder.catalog.counts()), ClusterNote(str(cluster.folder), record.number, pairs)


def planned(
    settings: ClusterSettings, disks: Sequence[Path], number: int, folder: NodeFolder, files: Files
) -> tuple[ChainRecord, list[tuple[int, str]]]:
    """The first chain of the first publish forwarder, which is its home, and for each of the node's disks the place it
    takes there, by slot and folder. Raises `FailedPrecondition` where there is none.
    """
    home = _home(settings)
    kind = settings.classes[DEFAULT_CLASS]
    candidates = [
        Candidate(DiskPlace(one.cluster, disk, one.name, one.rack, one.zone), one.region)
        for one in settings.processes.values()
        if STORAGE in one.roles
        for disk in one.disks
    ]
    regions = () if kind.spans_regions else (home.region,)
    plan = place(candidates, kind.wanted, regions=regions, seed=f"{home.name}/{DEFAULT_CLASS}")
    places = plan.places
    if len(disks) > len(places):
        raise FailedPrecondition(
            f"the folder has {len(disks)} disks, and a chain of the cluster lies on {len(places)}: give the cluster as"
            " many (--clusters, --disks)"
        )
    first_of_each = sorted(
        range(len(places)), key=lambda slot: [one.cluster for one in places[:slot]].count(places[slot].cluster)
    )
    moves: list[tuple[int, str]] = []
    for disk in disks:
        taken = {slot for slot, _ in moves}
        for slot in first_of_each:
            target = str(settings.processes[places[slot].process].disks[places[slot].disk])
            if slot not in taken and can_move(files, str(disk), target):
                moves.append((slot, target))
                break
        else:
            raise FailedPrecondition(
                f"no disk of the cluster is on the file system of {disk}, and files are moved, not copied: let one of"
                f" cluster.yaml lie there, or copy {disk} to the file system of the cluster's disks and name the"
                " copy with --disk"
            )
    name = f"{home.name}/{DEFAULT_CLASS}"
    return ChainRecord(
        number, name, DEFAULT_CLASS, home.region, home.name, places, plan.rule.to_values(), kind.durability,
        plan.below_policy, folder.universe, home.weight,
    ), moves  # fmt: skip


def _home(settings: ClusterSettings) -> ProcessSettings:
    for process in settings.processes.values():
        if PUBLISH in process.roles:
            return process
    raise FailedPrecondition("the cluster's file names no publish forwarder")
