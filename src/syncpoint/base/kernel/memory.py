"""Memory of large payloads: how the C library keeps what was freed, and buffers that are not cleared first.

Place: `keep_freed_memory` is called by the node before it serves, as a setting of the whole process. Payloads and
responses of some 100 KB to 10 MB come and go with every batch; as glibc is set by default it gives such memory back to
the system when it is freed, and every page has to be faulted in again for the next batch: measured, that is half of the
time of a 1 KB message in the kernel, and six sevenths at 10 KB.
Promise: harmless anywhere; where the C library has no mallopt, nothing happens, and where Python has no way to leave a
buffer as it is, it is cleared.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

_M_TRIM_THRESHOLD = -1  # mallopt(3)
_M_MMAP_THRESHOLD = -3
KEEP_BYTES = 64 << 20  # free memory at the top of the heap that is kept
BLOCK_BYTES = 32 << 20  # allocations below this come from the heap; the most glibc accepts on 64-bit machines


def keep_freed_memory() -> bool:
    """Let the C library keep up to 64 MiB of freed memory for the next batch. False if it cannot be set so."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # no dynamic C library, or not glibc
        return False
    kept = mallopt(_M_TRIM_THRESHOLD, KEEP_BYTES)
    return bool(kept and mallopt(_M_MMAP_THRESHOLD, BLOCK_BYTES))


def uncleared_buffer(size: int) -> bytearray:
    """A buffer with whatever was in its memory before. The caller overwrites all of it before anybody reads it."""
    return bytearray(size) if _make is None else _make(None, size)


def _maker() -> Callable[[None, int], bytearray] | None:
    try:
        make = ctypes.pythonapi.PyByteArray_FromStringAndSize
    except AttributeError:  # not CPython
        return None
    make.argtypes, make.restype = (ctypes.c_char_p, ctypes.c_ssize_t), ctypes.py_object
    return make


_make = _maker()
