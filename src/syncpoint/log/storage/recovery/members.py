"""Members: whether the disks that were read are enough to know what was acknowledged.

Place: the first decision of an opening, by the members and the ack rule that the newest fragment's header names.
Promise: a store is not opened while disks are away that may have something that was promised, or that would not know
of the new log and suffice to read the old one; only the operator may go on without them (`accept_loss`). A disk whose
old state was restored counts as a new one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from syncpoint.log.storage.errors import DisksMissing
from syncpoint.log.storage.layout import DISK_FILE
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.recovery.opening_disks import OpeningDisks
from syncpoint.log.storage.recovery.scan import FoundCopy, newest_header
from syncpoint.log.storage.segment import NOBODY


class Members:
    """The members of the newest fragment found, and its rule.

    `absent`: without them nobody knows what was acknowledged, and the operator has accepted that.
    """

    def __init__(self, disks: OpeningDisks, accept_loss: bool) -> None:
        self.absent: list[str] = []
        self._disks = disks
        self._accept_loss = accept_loss
        self._cut_off = False  # old members that cannot learn of the new log are given up
        self._old: tuple[bytes, ...] = ()
        self._old_rule: AckRule | None = None

    def check(self, known_disks: Collection[str]) -> None:
        """Raises `DisksMissing`. `known_disks`: those on which the store is known to lie, where no segment names
        them."""
        copies = self._disks.copies()
        self._find_rolled_back(copies)
        present = {disk.identity.incarnation for disk in self._disks.good if disk.identity is not None}
        newest = newest_header(copies)
        if newest is None:
            known = [bytes.fromhex(text) for text in known_disks]
            if known and len(present.intersection(known)) < len(known) // 2 + 1:
                absent = sorted(one.hex() for one in known if one not in present)
                text = f"disks of this store are missing: {', '.join(absent)}"
                self._miss(absent, text + self._strangers(known), missing=absent)
            self._old = tuple(sorted(present))
            return
        self._old, self._old_rule = newest.members, newest.rule
        slots = slots_of(newest.members, present)
        absent = [one.hex() for one in newest.members if one not in present and one != NOBODY]
        text = f"segment {newest.seq} of log {newest.log} "
        facts = {"missing": absent, "log": newest.log, "segment": newest.seq}
        # What was away never had anything, so nothing is there that only it could know.
        never = [at for at in range(len(newest.members)) if at not in newest.writing]
        if not newest.rule.is_read_set([*slots, *never]):
            text += f"needs at least {newest.rule.smallest} of its {len(newest.members)} disks; missing: "
            self._miss(absent, text + ", ".join(absent) + self._strangers(newest.members), **facts)
        elif not newest.rule.can_acknowledge(slots):
            text += "can be read, but a later start could read it from disks without the new log"
            self._miss([], f"{text}; also needed: {', '.join(absent)}", **facts)

    def names(self) -> list[bytes]:
        """The disk of every slot, also of those that cannot be used now; NOBODY where it is not known.

        A member that is away is named: it never held what is written now, and it is one of those that can learn of the
        log after this one. So any acknowledging set of the slots is enough for the next opening.
        """
        disks = self._disks.all
        here = {disk.identity.incarnation for disk in disks if disk.identity is not None}
        old = self._old if len(self._old) == len(disks) and self._old_rule is not None else ()
        names = []
        for disk in disks:
            name = disk.identity.incarnation if disk.identity is not None else old[disk.slot] if old else NOBODY
            names.append(NOBODY if disk.identity is None and name in here else name)
        return names

    def known_to_old(self, holders: Collection[bytes]) -> bool:
        """Whether every set that is enough to read the newest fragment found has one of `holders` in it."""
        if self._cut_off:
            return True  # what cannot be had any more was given up by the operator
        return self._old_rule is None or self._old_rule.can_acknowledge(slots_of(self._old, holders))

    def away(self) -> list[str]:
        """Disks that are known and have not answered: what is not found may be there."""
        failed = [disk for disk in self._disks.all if disk.error is not None]
        here = {disk.identity.incarnation for disk in self._disks.good if disk.identity is not None}
        here |= {disk.identity.incarnation for disk in failed if disk.identity is not None}
        unknown = [one.hex() for one in self._old if one not in here and one != NOBODY]
        return [f"{disk.root} ({disk.error})" for disk in failed] + ([] if failed else unknown)

    def _find_rolled_back(self, copies: Sequence[FoundCopy]) -> None:
        """A member of a log had reserved its counter; a disk that does not know the counter was put back in time."""
        for disk in self._disks.good:
            assert disk.scan is not None
            if disk.identity is None or disk.scan.marks is None:
                continue
            mine = disk.identity.incarnation
            headers = [copy.header for copy in copies if mine in copy.header.members]
            newest = max((one.log for one in headers if one.members.index(mine) in one.writing), default=0)
            if disk.scan.marks.reserved < newest:
                self._disks.recovered.notes.append(
                    f"disk {disk.root} has no record of log {newest}, of which it was a member: an old copy was"
                    " restored. It joins as a new disk."
                )
                disk.identity = None

    def _strangers(self, members: Collection[bytes]) -> str:
        """The folders that were given and are of no use, in words; identities alone do not show which these are."""
        found = []
        for disk in self._disks.all:
            if disk.error is not None:
                found.append(f"{disk.root} (failed: {disk.error})")
            elif disk.identity is None:
                found.append(f"{disk.root} (empty or not mounted: no {DISK_FILE})")
            elif disk.identity.incarnation not in members:
                found.append(f"{disk.root} (another disk: {disk.identity.incarnation.hex()})")
        return f"; given folders without this data: {', '.join(found)}" if found else ""

    def _miss(self, absent: list[str], message: str, **facts: object) -> None:
        """Without `absent` nobody knows what was acknowledged. Only the operator may go on without them."""
        if not self._accept_loss:
            raise DisksMissing(message, **facts)
        self.absent, self._cut_off = absent, True
        self._disks.recovered.lost.append(message)


def slots_of(members: Sequence[bytes], holders: Collection[bytes]) -> list[int]:
    """The slots that `holders` had as members of a fragment."""
    return [slot for slot, member in enumerate(members) if member in holders]
