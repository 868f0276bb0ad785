"""What can go wrong with a store, by what the operator does next.

Place: raised by `store`, `recovery` and `reader`. Each names the disks, logs and positions it is about; `facts`
holds the same as plain values for tools.
"""

from __future__ import annotations

from syncpoint.base.model.errors import Code, SyncpointError

GO_ON = (
    "Nothing was changed. Start the version of Syncpoint that wrote it, or choose an empty folder to start without "
    "data. See `syncpoint docs data-on-disk`."
)
"""Advice for data in a format that this version cannot read."""


class StorageError(SyncpointError):
    """Base of the errors of this room: the outcome is unknown, or trying again later is right."""

    code_default = Code.UNAVAILABLE

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(self.code_default, message)
        self.facts = facts


class DisksMissing(StorageError):
    """Too few of the disks that may hold acknowledged entries are here. Bring them back; nothing was changed."""


class DisksFailed(StorageError):
    """So many disks failed that no entry can be acknowledged any more. What was not persisted is unknown."""


class StorageDamaged(StorageError):
    """Entries that were acknowledged are on no disk in good order. `resume_offset`: where reading can go on."""

    code_default = Code.DATA_LOSS

    def __init__(self, message: str, resume_offset: int | None = None, **facts: object) -> None:
        super().__init__(message, **facts)
        self.resume_offset = resume_offset


class CopiesUnreachable(StorageError):
    """What was asked for is only on disks that cannot be reached now. It is not lost; ask again."""


class Fenced(StorageError):
    """Another writer opened the disks after this one, which never writes again. What waits has an unknown outcome."""


class CopiesChanged(DisksMissing):
    """What was found on a disk a moment ago is not there any more, before enough disks had it. Open again."""


class CounterTaken(StorageError):
    """The log counter that was handed in is not above those the disks know. Nothing was changed; draw another one."""

    code_default = Code.FAILED_PRECONDITION


class ForeignDisk(StorageError):
    """A disk belongs to another universe, is in use by another process, or has a format this version cannot read."""

    code_default = Code.FAILED_PRECONDITION
