"""Blocks of leases: what is outstanding among 1,024 offsets of one source, in plain arrays; and who holds how much.

Place: the memory of `leases`, which alone reads and writes it. A block takes 20 KiB and is dropped once nothing in it
is outstanding. A slot is outstanding while its serial is not 0; its other values mean nothing otherwise.
Promises: `earliest` is never later than a deadline in the block, and equal to the earliest one while `exact`;
every serial in the block lies in [serial_low, serial_high].
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from ._bytes import i64, u64

NEVER = 1 << 62  # later than every deadline
_NEVER = cython.declare(cython.longlong, NEVER)


@cython.final
@cython.cclass
class LeaseBlock:
    """Leases of offsets [1024 * number, 1024 * (number + 1)) of a source."""

    def __init__(self) -> None:
        if not cython.compiled:
            self.deadline = [0] * 1024  # ticks of 10 ms
            self.serial = [0] * 1024
            self.consumer = [0] * 1024
            self.size = [0] * 1024  # bytes; the top bit says that the deadline was modified

    def begin(self, source: u64, number: i64):
        """Use the block, in which nothing is outstanding, for other offsets."""
        self.source = source
        self.number = number
        self.outstanding = 0
        self.earliest = _NEVER
        self.exact = True
        self.serial_low = 0xFFFFFFFF
        self.serial_high = 0

    def refresh(self):
        """Make `earliest` exact."""
        i: cython.int
        earliest: i64 = _NEVER
        for i in range(1024):
            if self.serial[i] != 0 and self.deadline[i] < earliest:
                earliest = self.deadline[i]
        self.earliest = earliest
        self.exact = True


@cython.final
@cython.cclass
class Holder:
    """What one consumer holds."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
