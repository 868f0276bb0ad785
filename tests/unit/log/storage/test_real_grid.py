"""Three clusters of three disks on real files with real threads: calls that hang, come back, or are given up."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from pathlib import Path

from syncpoint.base.runtime.files import Buffer, DiskUnreachable, waits_for_disk
from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.record import EntryKind
from tests.unit.log.storage.test_real_files import Loop, payload


class Cut(OsFiles):
    """Files of which some roots may be cut off: a disk's writer waits, everybody else is notified."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.cut: set[str] = set()
        self.given_up: list[str] = []
        self.paths: dict[int, str] = {}

    def gate(self, path: str) -> None:
        with self.changed:
            asked = len(self.given_up)
            while root := next((one for one in self.cut if path.startswith(one + "/") or path == one), None):
                if not waits_for_disk.get() or root in self.given_up[asked:]:
                    raise DiskUnreachable(errno.ETIMEDOUT, "cut off", path)
                self.changed.wait(5)

    def part(self, *roots: str) -> None:
        with self.changed:
            self.cut |= set(roots)

    def join(self, *roots: str) -> None:
        with self.changed:
            self.cut -= set(roots)
            self.changed.notify_all()

    def abandon(self, root: str) -> None:
        with self.changed:
            self.given_up.append(root)
            self.changed.notify_all()

    def open(self, path: str, *, create: bool = False, write: bool = True) -> int:
        self.gate(path)
        handle = super().open(path, create=create, write=write)
        self.paths[handle] = path
        return handle

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        self.gate(self.paths[handle])
        return super().pread(handle, size, offset)

    def pwritev(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
        self.gate(self.paths[handle])
        return super().pwritev(handle, buffers, offset)

    def fdatasync(self, handle: int) -> None:
        self.gate(self.paths[handle])
        super().fdatasync(handle)

    def stat(self, path: str):  # type: ignore[no-untyped-def]
        self.gate(path)
        return super().stat(path)


def publish(loop: Loop, first: int, end: int) -> None:
    source = loop.store.log_counter << 24
    for number in range(first, end):
        loop.store.append(
            EntryKind.MESSAGES, payload(number), source=source, first_offset=number, count=1, time_ns=number
        )
    loop.store.flush()


def test_stalled_clusters_are_waited_for_and_given_up_where_that_is_enough(tmp_path: Path) -> None:
    roots = [tmp_path / f"c{cluster}-{disk}" for cluster in range(3) for disk in range(3)]
    names = [str(root) for root in roots]
    files = Cut()
    loop = Loop(roots, files=files, rule=AckRule.grid(3, 3), hung_s=0.5, pool_segments=0)
    source = loop.store.log_counter << 24
    publish(loop, 0, 50)
    loop.commit()

    files.part(*names[:6])
    publish(loop, 50, 60)
    stalled = loop.persisted
    for _ in range(30):
        loop.let_pass(0.05)
    assert loop.persisted == stalled, "one cluster does not acknowledge"
    assert loop.store.failure is None
    assert not files.given_up
    files.join(*names[:6])
    loop.commit()

    files.part(*names[:3])
    publish(loop, 60, 70)
    loop.commit()
    loop.until(lambda: set(names[:3]) <= set(files.given_up))
    files.join(*names[:3])
    loop.until(lambda: all(disk.state in ("ok", "healing") for disk in loop.store.status().disks))
    publish(loop, 70, 80)
    loop.commit()
    loop.store._disks.log.roll()
    loop.store.flush()
    loop.until(lambda: not loop.store.status().under_replicated)
    loop.store.close()

    again = Loop([roots[slot] for slot in range(9)], rule=AckRule.grid(3, 3))
    assert again.read_all(source) == [payload(number) for number in range(80)]
    again.store.close()
