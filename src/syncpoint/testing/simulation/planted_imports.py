"""Bugs planted into the import of a node's folder into a cluster (`imported_runs`). See `planted_bugs`."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress

from syncpoint.base.runtime.files import Files
from syncpoint.catalog.metadata.contract import KeyValue
from syncpoint.catalog.metadata.layout import RECORDS
from syncpoint.catalog.metadata.store_client import SharedStore, read_all
from syncpoint.log.diskserver.fencing import ChainFolders
from syncpoint.node.cluster import adopt
from syncpoint.node.cluster.adopt import move_disk
from syncpoint.programs.clusters import import_folder
from syncpoint.testing.simulation.imported_runs import STRIKES, run_imported
from syncpoint.testing.simulation.planted import planted
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.sim_runs import RunResult


def imported(seed: int, *, shape: None, kinds: tuple[str, ...], beyond: bool = False) -> RunResult:
    """One seed of an import that is broken off by `kinds`, as `planted_bugs` runs it."""
    return run_imported(seed, strikes=kinds or STRIKES)


@planted(None, "a renaming", seed=13, run=imported)
def a_disk_that_was_begun_is_taken_for_moved() -> AbstractContextManager[None]:
    """An import that is given again leaves what is not yet moved where it was."""

    def move(files: Files, disk: str, target: str, chain: int) -> None:
        with suppress(FileNotFoundError):
            if files.listdir(ChainFolders(target, files, "").folder(chain)):
                return
        move_disk(files, disk, target, chain)

    return patched(import_folder, move_disk=move)


@planted(None, "a call", seed=13, run=imported)
def what_an_import_wrote_before_it_was_broken_off_stays() -> AbstractContextManager[None]:
    """What the node has deleted since is in the cluster's catalog."""

    async def read(shared: SharedStore, prefix: str) -> tuple[list[KeyValue], int]:
        found, revision = await read_all(shared, prefix)
        return ([] if prefix == RECORDS else found), revision

    return patched(adopt, read_all=read)
