"""Offsets as runs: rising numbers, written as `varint(gap since the last run's end) varint(length)`, both at least 0
and 1. `kernel.rows` writes them, one piece of a stage at a time; everything that reads them is here.
"""

from collections.abc import Iterator

from syncpoint.base.model import varint


def encode(pairs: Iterator[tuple[int, int]]) -> bytes:
    """Runs (begin, length), rising and apart from each other, as bytes."""
    out, last = bytearray(), 0
    for begin, length in pairs:
        out += varint.encode(begin - last) + varint.encode(length)
        last = begin + length
    return bytes(out)


def decode(data: bytes) -> Iterator[tuple[int, int]]:
    """(begin, length) of each run. They come from the log, where the kernel's own writing stands."""
    at, last = 0, 0
    while at < len(data):
        gap, at = varint.decode(data, at)
        length, at = varint.decode(data, at)
        yield last + gap, length
        last += gap + length


def below(data: bytes, offset: int) -> int:
    """How many of the numbers are below `offset`; they come first."""
    total = 0
    for begin, length in decode(data):
        if begin >= offset:
            break
        total += min(length, offset - begin)
    return total


def bounds(data: bytes) -> tuple[int, int]:
    """The first number, and the one after the last; (0, 0) for none."""
    first, end = -1, 0
    for begin, length in decode(data):
        first = begin if first < 0 else first
        end = begin + length
    return max(first, 0), end


def behind(data: bytes, skip: int) -> bytes:
    """Without the first `skip` numbers."""
    if not skip:
        return data

    def rest() -> Iterator[tuple[int, int]]:
        left = skip
        for begin, length in decode(data):
            gone = min(left, length)
            left -= gone
            if gone < length:
                yield begin + gone, length - gone

    return encode(rest())


def first(data: bytes, count: int) -> bytes:
    """The first `count` numbers."""

    def some() -> Iterator[tuple[int, int]]:
        left = count
        for begin, length in decode(data):
            if not left:
                return
            yield begin, min(length, left)
            left -= min(length, left)

    return encode(some())
