"""How faults begin and how each is mended, alike in all simulations."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import Any

from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.simulation.loop import ProcessLoop
from syncpoint.testing.simulation.sim_clocks import MachineClock
from syncpoint.testing.simulation.simulated_disks import SimDiskServer

Heal = Callable[[], None]
FULL_BYTES = 64 * 1024
_HOUR_NS = 3_600 * 10**9
_FAR_DAYS = 40


class Lasting:
    """Faults that last, and how each is mended."""

    def __init__(self, loop: ProcessLoop) -> None:
        self._loop = loop
        self._healing: list[Callable[[], None]] = []

    def began(self, heal: Callable[[], None], lasts: float) -> None:
        """One that is mended after so many seconds, or when all are."""
        self._healing.append(heal)
        self._loop.call_later(lasts, self._over, heal)

    def heal(self) -> None:
        """Mend all."""
        for heal in list(self._healing):
            self._over(heal)

    def _over(self, heal: Callable[[], None]) -> None:
        if heal in self._healing:
            self._healing.remove(heal)
            heal()


def altered(owner: Any, name: str, value: object, after: object) -> Heal:
    """Give an attribute a value; healed, it has the one `after`."""
    setattr(owner, name, value)
    return lambda: setattr(owner, name, after)


def forget(among: dict[str, Any], name: str) -> None:
    among.pop(name, None)


def disk_full(server: SimDiskServer, disk: str) -> Heal:
    """Leave a disk with almost no free space."""
    server.files.capacity[f"/{disk}"] = FULL_BYTES
    return lambda: forget(server.files.capacity, f"/{disk}")


def disk_slow(server: SimDiskServer, random: SeededRandom) -> Heal:
    """One of the server's disks takes its time."""
    disk = server.disks[random.randrange(0, len(server.disks))]
    server.slow[disk] = 0.05 + 0.3 * random.random()
    return lambda: forget(server.slow, disk)


def disk_fails(server: SimDiskServer, disk: str, random: SeededRandom) -> Heal:
    """Some of its operations err, once or always."""
    operations = ((), ("fdatasync",), ("pwritev",), ("pread",))[random.randrange(0, 4)]
    server.fail(disk, errno.EIO, operations, (None, 1)[random.randrange(0, 2)])
    fault = server.files.faults[-1]
    return lambda: server.files.faults.remove(fault) if fault in server.files.faults else None


def clock_jump(clock: MachineClock, clocks: Mapping[str, MachineClock], random: SeededRandom) -> Heal:
    """Somebody sets a clock wrong, by an hour or by weeks, and right again. One at a time is far off: of two that
    agree nobody could know which is right.
    """
    far = random.random() < 0.5 and not any(abs(one.off_ns) > _HOUR_NS for one in clocks.values())
    most_ns = _FAR_DAYS * 24 * _HOUR_NS if far else _HOUR_NS
    return altered(clock, "off_ns", round((random.random() - 0.5) * 2 * most_ns), 0)
