"""How much an acknowledging set of the disks can still take.

Place: asked by `store` for every batch that is let in; counted anew when a maintainer checked its disk.
Promise: never more than there is, as of the last count: what was appended since is taken off.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncpoint.log.storage.disk.maintained_disk import MaintainedDisk
from syncpoint.log.storage.log import Log
from syncpoint.log.storage.settings import StorageSettings


class DiskRoom:
    """Bytes left on the disks of one log."""

    def __init__(self, log: Log, maintainers: Sequence[MaintainedDisk], settings: StorageSettings) -> None:
        self._log = log
        self._maintainers = maintainers
        self._settings = settings
        self.count()

    def count(self) -> None:
        """Count again."""
        rule = self._log.fragment.rule
        self._counted = rule.persisted([self._on(one) if one.ok else 0 for one in self._maintainers])
        self._counted_at = self._log.appended_bytes
        self.messages_end = self._counted + self._counted_at - self._settings.reserve
        """How many bytes the log may have been given in all before messages are refused: the rest is the reserve."""

    @property
    def bytes(self) -> int:
        """Bytes that an acknowledging set can still take, as counted last, less what was appended since."""
        return self._counted - (self._log.appended_bytes - self._counted_at)

    @property
    def full(self) -> bool:
        """Whether, where there is no room, disks that work lack it: a failed one has none, however empty it is."""
        reserve = self._settings.reserve
        return self.bytes < reserve and any(one.ok and self._on(one) < reserve for one in self._maintainers)

    def _on(self, maintainer: MaintainedDisk) -> int:
        return maintainer.free + len(maintainer.pool) * self._settings.segment_bytes + self._log.room_in_segment
