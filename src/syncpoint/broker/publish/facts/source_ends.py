"""Where sources end, also where what came last in them is deleted, and what of them is stored.

Place: written by the publish forwarder in every checkpoint, read by `recovery`; asked wherever an offset or a count
follows from what a source has.
Promise: what came last in a source is kept until a checkpoint states that the source went so far
(`Source.stated_end`). So one that is found again ends where it ended, whatever is left of it: what was read of it was
there, and what lies beyond its end was never published. Versions that do not know these facts pass over them, and take
the end of what is stored.
"""

import struct
from collections.abc import Iterable, Iterator

from syncpoint.broker.publish.facts.records import ExtensionNumber
from syncpoint.broker.publish.facts.source import Source
from syncpoint.log.storage.store import Store

NUMBER = ExtensionNumber.SOURCE_ENDS
PART = 500  # ends in one fact
_END = struct.Struct("<QQ")  # source, end


def encode_ends(ends: Iterable[tuple[int, int]]) -> bytes:
    """A fact without its head: sources and their ends."""
    return b"".join(_END.pack(*one) for one in ends)


def decode_ends(found: Iterable[bytes]) -> dict[int, int]:
    """The highest end that facts state of each source."""
    ends: dict[int, int] = {}
    for fact in found:
        for source, end in _END.iter_unpack(fact):
            ends[source] = max(end, ends.get(source, 0))
    return ends


def parts(ends: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """All ends for a checkpoint, as facts without their heads. A source of which nothing was published needs none."""
    part: list[tuple[int, int]] = []
    for one in ends:
        if one[1]:
            part.append(one)
        if len(part) == PART:
            yield encode_ends(part)
            part = []
    if part:
        yield encode_ends(part)


def stored_run(store: Store, source: Source) -> tuple[int, int]:
    """The first offset of a source that is stored, and the end of what is stored and persisted; twice the next offset
    where nothing is.
    """
    bounds = store.bounds(source.number)
    return (source.end, source.end) if bounds is None else (bounds[0], min(bounds[1], source.visible))


def offset_since(store: Store, source: Source, time_ns: int) -> int:
    """The first offset of a source that was not published before `time_ns`. Where nothing that is stored is so late,
    the end: of a source that takes nothing any more all of it, of another one what is persisted.
    """
    first = store.offset_at(source.number, time_ns)
    if source.sealed and source.visible == source.end:
        bounds = store.bounds(source.number)
        if bounds is None or first >= bounds[1]:
            return source.end
    return min(first, source.end)
