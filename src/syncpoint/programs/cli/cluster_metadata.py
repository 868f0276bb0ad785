"""`syncpoint cluster backup`, `restore`, `finalize` and `import`: what an operator does to a cluster's metadata.

Place: over `metadata.backup`, `node.cluster.formats` and `programs.clusters.import_folder`; the store is the cluster's
own, started for the time of the command where it does not run.
Promise: a command that cannot finish changes nothing, or prints how to continue.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.cluster import folder_option, shape_options
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.output import inform

if TYPE_CHECKING:
    from syncpoint.catalog.metadata.backup import Restored
    from syncpoint.catalog.metadata.store_client import SharedStore
    from syncpoint.programs.clusters.local import LocalCluster

_T = TypeVar("_T")


@contextmanager
def _with_metadata(folder: Path) -> Iterator[LocalCluster]:
    """The cluster with its store running; what was started for it ends with the command."""
    from syncpoint.programs.clusters.local import LocalCluster

    made = LocalCluster(folder)
    started = made.up_metadata()
    try:
        yield made
    finally:
        for name in started:
            made.stop(name)


def _in_store(made: LocalCluster, act: Callable[[SharedStore], Awaitable[_T]]) -> _T:
    """Do something in the cluster's metadata."""
    from syncpoint.catalog.metadata.contract import StoreError
    from syncpoint.node.cluster.cluster_environment import ClusterEnvironment

    async def run() -> _T:
        store = await ClusterEnvironment().metadata(made.settings())
        try:
            return await act(store)
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except StoreError as error:
        raise Problem(
            f"the metadata store does not answer: {error}", "`syncpoint cluster status` shows running processes."
        ) from error


@click.command()
@folder_option
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def backup(folder: Path, file: Path) -> None:
    """Back up the cluster's metadata to FILE while the cluster runs. Messages are not included; they are on the disks.

    \b
    Example:
      syncpoint cluster backup --dir /tmp/demo demo.backup
    """
    from syncpoint.base.runtime.clock import SystemClock
    from syncpoint.catalog.metadata.backup import read_backup, take_backup, write_file

    with _with_metadata(folder) as made:
        data = _in_store(made, lambda store: take_backup(store, SystemClock()))
    found = read_backup(data)
    write_file(file, data)
    inform(f"{counted(len(found.items), 'key')} at revision {found.revision} written to {file}.")


@click.command()
@folder_option
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Restore even if FILE is a backup of another cluster.")
def restore(folder: Path, file: Path, force: bool) -> None:
    """Restore the cluster's metadata from FILE. Stop all its processes first.

    Refused if FILE is a backup of another cluster. The previous metadata are saved in a file next to cluster.yaml.

    The disks may be newer than the backup: no id is assigned twice. Topics and subscriptions created after the backup
    are lost; messages of such topics are kept, see `syncpoint cluster orphans`.

    \b
    Example:
      syncpoint cluster down --dir /tmp/demo
      syncpoint cluster restore --dir /tmp/demo demo.backup
      syncpoint cluster up --dir /tmp/demo
    """
    from syncpoint.base.model.errors import FailedPrecondition
    from syncpoint.base.runtime.clock import SystemClock
    from syncpoint.base.runtime.random import SystemRandom
    from syncpoint.catalog.metadata import backup as backups
    from syncpoint.catalog.metadata.backup_origin import differences

    try:
        found = backups.read_backup(file.read_bytes())
    except backups.Damaged as error:
        raise Problem(f"{file}: {error}", "Nothing was changed; take another backup file.") from error
    with _with_metadata(folder) as made:
        name, kept = made.settings().name, folder / time.strftime("replaced-%Y%m%dT%H%M%SZ.backup", time.gmtime())

        async def work(store: SharedStore) -> Restored:
            await backups.refuse_members(store)
            other = await differences(store, found, name)
            if other and not force:
                raise Problem(
                    f"nothing was restored: {file} is not a backup of this cluster: {'; '.join(other)}",
                    "Choose another file, or restore this one with --force.",
                )
            before = await backups.take_backup(store, SystemClock())
            if backups.read_backup(before).items:
                backups.write_file(kept, before)
                inform(f"The previous metadata are saved in {kept}.")
            return await backups.restore(store, found, SystemRandom(), SystemClock())

        try:
            done = _in_store(made, work)
        except FailedPrecondition as error:
            raise Problem(
                f"nothing was restored: {error.message}",
                f"`syncpoint cluster down --dir {folder}` stops them; a killed process counts as running"
                " for a "
                f"few more seconds.",
            ) from error
    inform(f"{counted(done.keys, 'key')} restored, {counted(done.removed, 'other key')} removed.")
    inform(f"`syncpoint cluster up --dir {folder}` starts the cluster.")
    inform(f"`syncpoint cluster orphans list --dir {folder}` shows messages of topics that are newer than the backup.")


@click.command()
@folder_option
def finalize(folder: Path) -> None:
    """Let the cluster write this version's newest format, after every process has been upgraded.

    Until then you can roll back to the previous version; afterwards its processes are refused. Fails while a process is
    too old.

    \b
    Example:
      syncpoint cluster finalize --dir /tmp/demo
    """
    from syncpoint.base.model.errors import FailedPrecondition
    from syncpoint.node.cluster import formats

    with _with_metadata(folder) as made:
        try:
            before, now = _in_store(made, lambda store: formats.finalize(store, formats.THIS))
        except FailedPrecondition as error:
            raise Problem(f"nothing was finalized: {error.message}") from error
    inform(f"The cluster writes format {now}." if now > before else f"The cluster already writes format {now}.")


@click.command("import")
@folder_option
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--disk",
    "node_disks",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A disk folder of the node, as given to `serve` [default: disk-1 in DATA].",
)
@shape_options
def import_folder(folder: Path, data: Path, node_disks: tuple[Path, ...], **numbers: Any) -> None:
    """Import DATA, the folder of a stopped `syncpoint serve`, into a new cluster.

    The folder becomes a chain of the cluster: topics, subscriptions, snapshots, messages with their ids, cursors and
    epochs are preserved. Its files are moved, so a disk of the cluster must be on the same file system. The cluster
    must never have been started. The numbers apply to a folder without a cluster. After an interruption, run the
    command again.

    \b
    Example:
      syncpoint cluster import --dir /tmp/demo ~/syncpoint-data
      syncpoint cluster up --dir /tmp/demo
    """
    from syncpoint.base.model.errors import SyncpointError
    from syncpoint.catalog.metadata.contract import StoreError
    from syncpoint.node.note import cluster_note
    from syncpoint.programs.clusters import import_folder as imports
    from syncpoint.programs.clusters.local import LocalCluster, Shape

    LocalCluster(folder).create(Shape(**numbers))
    with _with_metadata(folder) as made:
        try:
            done = imports.import_folder(made, data, list(node_disks) or [data / "disk-1"])
        except (SyncpointError, StoreError) as error:
            where = f"{data} was not changed" if cluster_note(data) is None else "No message is lost"
            raise Problem(f"nothing was imported: {error}", f"{where}; correct this and try again.") from error
    if done is None:
        inform(f"All of {data} is imported.")
    else:
        found = (done.topics, "topic"), (done.subscriptions, "subscription"), (done.snapshots, "snapshot")
        named = ", ".join(counted(*one) for one in found)
        inform(f"{named} and all messages are imported from {data} as chain {done.chain}.")
    inform(f"`syncpoint cluster up --dir {folder}` starts the cluster.")
