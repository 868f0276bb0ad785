"""Which formats the cluster's processes may write: agreed in the metadata, raised by an operator after an upgrade.

A *format* is one number for everything that processes share: records in the metadata, what chains write to disks, the
messages between processes. Every build reads the formats `oldest` to `newest` and can write all of them. The cluster
writes the *finalized* one, so that builds of before and after an upgrade work side by side, and the upgrade can be
undone until `syncpoint cluster finalize`.
Place: asked when a process joins, and by code that is about to write something that older builds cannot read.
Promise: a process never joins a cluster whose finalized format it cannot read, and a format is never finalized while a
member cannot read it. To join, a process writes its membership and then reads the format again; to finalize, the
format is proposed and then the members are read: the second of the two sees the other.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import syncpoint
from syncpoint.base.model.cluster import Member
from syncpoint.base.model.errors import Aborted, FailedPrecondition
from syncpoint.catalog.metadata.contract import Put, absent, unchanged
from syncpoint.catalog.metadata.layout import FORMAT, MEMBERS
from syncpoint.catalog.metadata.store_client import SharedStore, read_all
from syncpoint.catalog.metadata.view import View

FIRST = 1


class Build(NamedTuple):
    """A version of the program, and the formats it reads and writes."""

    version: str
    oldest: int = FIRST
    newest: int = FIRST

    def reads(self, number: int) -> bool:
        return self.oldest <= number <= self.newest


THIS = Build(syncpoint.__version__)
"""Raise `newest` with a change that older builds cannot read, and write it only if `Formats.may_write` allows it."""


class Agreed(NamedTuple):
    """What `cluster/format` holds. `proposed`: somebody is finalizing it now, or was when they were stopped."""

    finalized: int = FIRST
    version: str = ""  # of the build that finalized it
    proposed: int = 0

    def encode(self) -> bytes:
        """The stored form."""
        return json.dumps(self._asdict(), separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> Agreed:
        """Raises `ValueError` for anything else."""
        found = json.loads(data)
        if not isinstance(found, dict) or "finalized" not in found:
            raise ValueError("not a record of the cluster's format")
        return Agreed(int(found["finalized"]), str(found.get("version", "")), int(found.get("proposed", 0)))


class Formats:
    """The agreed format as this process knows it, kept by a watch."""

    def __init__(self, store: SharedStore, build: Build) -> None:
        self._store, self.build = store, build
        self._view: View[Agreed] = View(store, FORMAT, Agreed.decode)

    async def start(self, *, founding: bool) -> None:
        """Read it, and write it for a cluster that is founded now. Raises `FailedPrecondition` when this build cannot
        take part, and the store's errors.
        """
        first = Agreed(self.build.newest if founding else FIRST, self.build.version)
        await self._store.txn([absent(FORMAT)], [Put(FORMAT, first.encode())])
        await self.check()
        await self._view.start()

    async def check(self) -> None:
        """Read it anew. Raises as `start`."""
        found = await self._store.get(FORMAT)
        agreed = Agreed() if found is None else Agreed.decode(found.value)
        for number in (agreed.finalized, agreed.proposed or agreed.finalized):
            if not self.build.reads(number):
                raise FailedPrecondition(_cannot_join(self.build, number, agreed.version))

    @property
    def finalized(self) -> int:
        """The format that is written."""
        agreed = self._view.get("")
        return agreed.finalized if agreed is not None else FIRST

    def may_write(self, number: int) -> bool:
        """Whether every process, now and later, reads what is written in a format."""
        return number <= self.finalized

    async def close(self) -> None:
        """Stop watching the format."""
        await self._view.close()


def _cannot_join(build: Build, number: int, by: str) -> str:
    reads = f"{build.oldest}" if build.oldest == build.newest else f"{build.oldest} to {build.newest}"
    head = f"version {build.version} reads format {reads}, but the cluster writes format {number}"
    if number > build.newest:
        return f"{head}, finalized by version {by or 'unknown'}. Install that version or a later one here."
    return (
        f"{head}. Run a version that reads {number} and a later format on all processes, then"
        " `syncpoint cluster finalize`, then this version."
    )


async def finalize(store: SharedStore, build: Build) -> tuple[int, int]:
    """Let the cluster write the newest format of this build; returns the format of before and of now.

    Raises `FailedPrecondition` naming the members that are too old, `Aborted` when somebody else finalizes, and the
    store's errors; broken off, it is done again.
    """
    known = await store.get(FORMAT)
    before = Agreed() if known is None else Agreed.decode(known.value)
    target = build.newest
    if target < before.finalized:
        raise FailedPrecondition(
            f"the cluster writes format {before.finalized}, finalized by version {before.version}; version "
            f"{build.version} supports formats up to {target}. Run `syncpoint cluster finalize` of that version or a "
            "later one."
        )
    if target == before.finalized and not before.proposed:
        return before.finalized, target
    revision = await _write(store, 0 if known is None else known.revision, before._replace(proposed=target))
    behind = await _behind(store, target)
    if behind:
        await _write(store, revision, before._replace(proposed=0))
        raise FailedPrecondition(
            f"{len(behind)} members cannot read format {target}: {', '.join(behind)}. Upgrade and restart them first."
        )
    await _write(store, revision, Agreed(target, build.version))
    return before.finalized, target


async def _behind(store: SharedStore, target: int) -> list[str]:
    members = [Member.decode(item.value) for item in (await read_all(store, MEMBERS))[0]]
    return [
        f"{one.name} (version {one.version or 'unknown'})"
        for one in members
        if not one.oldest_format <= target <= one.newest_format
    ]


async def _write(store: SharedStore, revision: int, agreed: Agreed) -> int:
    result = await store.txn([unchanged(FORMAT, revision)], [Put(FORMAT, agreed.encode())])
    if not result.ok:
        raise Aborted("another command is finalizing the cluster's format. Try again.")
    return result.revision
