"""How the publish forwarder's own facts look in the log: the opening of sources, acknowledgements, ledgers and
snapshots.

Storage keeps these payloads without looking inside. The first byte is the kind of the record; all integers are
little-endian. The same records make up a checkpoint, so recovery has one reader for both.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum, unique
from typing import NamedTuple

from syncpoint.base.kernel.acks import AckSet
from syncpoint.broker.publish.facts.ledger import LaneBounds, Ledger, SnapshotState
from syncpoint.broker.publish.facts.source import Source

_SOURCE = struct.Struct("<BQQ")
_SOURCE_AT = struct.Struct("<BQQQQB")  # number, topic, epoch, revision, flags
_LEDGER = struct.Struct("<BQQQQIII")  # subscription, generation, catalog revision, renewed; starts, lanes and sets
_LANE = struct.Struct("<QBII")  # number, whether it was stopped, numbers of starts and stops
_PLACE = struct.Struct("<QQ")  # source, offset
_REVISION = struct.Struct("<BQ")
_GRANT = struct.Struct("<BQQQQ")  # subscription, source, grant, holder
BEHIND = struct.Struct("<I")  # how many entries after a fact hold its messages
_SEALED, _KEYED = 1, 2
_SNAPSHOT = struct.Struct("<BQQII")  # snapshot, catalog revision, numbers of lanes and sets
_BELOW = struct.Struct("<BQI")  # bound, number of exceptions
_NUMBER = struct.Struct("<Q")
_SET = struct.Struct("<QI")
_ACKS = struct.Struct("<QIQI")  # subscription, generation, source, bytes of runs
_LENGTH = struct.Struct("<I")
BUNDLE_BYTES = 32 << 10


@unique
class ExtensionNumber(IntEnum):
    """Which room above reads a fact of the kind EXTENSION, and nobody else does."""

    CURSORS = 1
    EPOCHS = 2
    ATTEMPTS = 3
    USES = 4
    ENDED_SOURCES = 5
    EXPIRY = 7
    SOURCE_ENDS = 8
    ACK_BOOKS = 9
    MESSAGE_IDS = 40
    JUDGED_BATCHES = 41
    SCHEDULED = 60


_SAYS_BEHIND = (ExtensionNumber.MESSAGE_IDS, ExtensionNumber.JUDGED_BATCHES)


class FactKind(IntEnum):
    """First byte of a LEDGER entry or of a checkpoint part."""

    SOURCE = 1
    LEDGER = 2  # all of a ledger as it was: begun, reset, or in a checkpoint
    CATALOG = 3
    BUNDLE = 4  # many sources and ledgers in one checkpoint part, each with its length before it
    # Those of a chain, whose catalog is not in its log:
    SOURCE_AT = 5  # a source, where it stands in the order of keys and of the catalog; again when that changes
    SOURCES_BELOW = 6  # of a checkpoint: what it does not name below a number is gone
    SNAPSHOT = 7  # what a snapshot remembers of this chain
    REVISION = 8  # the catalog up to here has been acted by
    GRANT = 9  # who may acknowledge a source of an exactly-once subscription
    BATCHES = 10  # which batches of which senders became which messages
    SOURCES_GONE = 12  # nothing of these is stored any more; what is found of them was about to be deleted
    FIRED = 60  # which messages that waited became which messages, in front of those
    EXTENSION = 11  # of a room above: its number, then what only that room reads


class Acks(NamedTuple):
    """One subscription's acknowledgements on one source, in the kernel's run encoding."""

    subscription: int
    generation: int
    source: int
    runs: bytes


class LedgerFact(NamedTuple):
    """A state of a ledger, and the catalog's revision that was acted by when it was written."""

    ledger: Ledger
    revision: int


class SourcesBelow(NamedTuple):
    """Every source of a number below `bound` that a checkpoint does not name was known to hold nothing any more when it
    was written, but for these: they were found in storage, and nobody knew what they are.
    """

    bound: int
    unknown: tuple[int, ...]


class GrantFact(NamedTuple):
    """The permission to deliver one source of one subscription, and the incarnation of its holder."""

    subscription: int
    source: int
    grant: int
    holder: int


def encode_source(source: Source) -> bytes:
    """Short where there is nothing to say about epochs, as on one node."""
    if not source.epoch and not source.revision:
        return _SOURCE.pack(FactKind.SOURCE, source.number, source.topic)
    flags = (_SEALED if source.sealed else 0) | (_KEYED if source.keyed else 0)
    return _SOURCE_AT.pack(FactKind.SOURCE_AT, source.number, source.topic, source.epoch, source.revision, flags)


def decode_source(payload: bytes) -> Source:
    if payload[0] == FactKind.SOURCE:
        _, number, topic = _SOURCE.unpack(payload)
        return Source(number, topic)
    _, number, topic, epoch, revision, flags = _SOURCE_AT.unpack(payload)
    return Source(
        number, topic, sealed=bool(flags & _SEALED), epoch=epoch, revision=revision, keyed=bool(flags & _KEYED)
    )


def encode_sources_below(fact: SourcesBelow) -> bytes:
    head = _BELOW.pack(FactKind.SOURCES_BELOW, fact.bound, len(fact.unknown))
    return head + b"".join(_NUMBER.pack(one) for one in fact.unknown)


def decode_sources_below(payload: bytes) -> SourcesBelow:
    _, bound, count = _BELOW.unpack_from(payload)
    unknown = (_NUMBER.unpack_from(payload, _BELOW.size + at * _NUMBER.size)[0] for at in range(count))
    return SourcesBelow(bound, tuple(unknown))


def encode_sources_gone(numbers: Sequence[int]) -> bytes:
    return bytes((FactKind.SOURCES_GONE,)) + b"".join(_NUMBER.pack(one) for one in numbers)


def decode_sources_gone(payload: bytes) -> list[int]:
    return [number for (number,) in _NUMBER.iter_unpack(payload[1:])]


def encode_revision(revision: int) -> bytes:
    return _REVISION.pack(FactKind.REVISION, revision)


def decode_revision(payload: bytes) -> int:
    revision: int = _REVISION.unpack(payload)[1]
    return revision


def encode_grant(grant: GrantFact) -> bytes:
    return _GRANT.pack(FactKind.GRANT, *grant)


def decode_grant(payload: bytes) -> GrantFact:
    return GrantFact(*_GRANT.unpack(payload)[1:])


def entries_behind(payload: bytes) -> int:
    """How many entries after a fact hold the messages it is about; 0: they are persisted, or unknown."""
    if payload[0] in (FactKind.BATCHES, FactKind.FIRED):
        return int(BEHIND.unpack_from(payload, 1)[0])
    says = payload[0] == FactKind.EXTENSION and payload[1] in _SAYS_BEHIND
    return int(BEHIND.unpack_from(payload, 2)[0]) if says else 0


def encode_extension(number: ExtensionNumber, payload: bytes) -> bytes:
    """A fact of a room above."""
    return bytes((FactKind.EXTENSION, number)) + payload


def _encode_sets(acks: dict[int, AckSet]) -> list[bytes]:
    parts: list[bytes] = []
    for source, held in acks.items():
        encoded = held.encode()
        parts += (_SET.pack(source, len(encoded)), encoded)
    return parts


def _decode_sets(payload: bytes, at: int, count: int) -> dict[int, AckSet]:
    """The sets from `at` on, with which a record ends. Raises `ValueError` where it does not."""
    acks = {}
    for _ in range(count):
        source, length = _SET.unpack_from(payload, at)
        at += _SET.size
        acks[source] = AckSet.decode(payload[at : at + length])
        at += length
    if at != len(payload):
        raise ValueError(f"{count} sets end at byte {at} of {len(payload)}")
    return acks


def _places(places: Mapping[int, int]) -> Iterator[bytes]:
    return (_PLACE.pack(*place) for place in places.items())


def _read_places(payload: bytes, at: int, count: int) -> tuple[dict[int, int], int]:
    end = at + count * _PLACE.size
    return dict(_PLACE.iter_unpack(payload[at:end])), end


def _encode_lanes(lanes: Mapping[int, LaneBounds]) -> Iterator[bytes]:
    for number, bounds in lanes.items():
        stops = bounds.stop or {}
        yield _LANE.pack(number, bounds.stop is not None, len(bounds.start), len(stops))
        yield from _places(bounds.start)
        yield from _places(stops)


def _decode_lanes(payload: bytes, at: int, count: int) -> tuple[dict[int, LaneBounds], int]:
    lanes = {}
    for _ in range(count):
        number, stopped, starts, stops = _LANE.unpack_from(payload, at)
        start, at = _read_places(payload, at + _LANE.size, starts)
        stop, at = _read_places(payload, at, stops)
        lanes[number] = LaneBounds(start, stop if stopped else None)
    return lanes, at


def encode_ledger(ledger: Ledger, revision: int = 0) -> bytes:
    """The whole state of a ledger. `revision`: of a catalog that is not in the same log."""
    counts = len(ledger.start), len(ledger.lanes), len(ledger.acks)
    head = _LEDGER.pack(FactKind.LEDGER, ledger.subscription, ledger.generation, revision, ledger.renewed_ns, *counts)
    return b"".join((head, *_places(ledger.start), *_encode_lanes(ledger.lanes), *_encode_sets(ledger.acks)))


def decode_ledger(payload: bytes) -> LedgerFact:
    _, subscription, generation, revision, renewed_ns, starts, lanes, sets = _LEDGER.unpack_from(payload)
    start, at = _read_places(payload, _LEDGER.size, starts)
    found, at = _decode_lanes(payload, at, lanes)
    acks = _decode_sets(payload, at, sets)
    return LedgerFact(Ledger(subscription, generation, acks, start, renewed_ns, found), revision)


def encode_snapshot(state: SnapshotState, revision: int = 0) -> bytes:
    """A snapshot's sets: the opaque `state` of its record in the catalog, or a chain's part of it in its log."""
    head = _SNAPSHOT.pack(FactKind.SNAPSHOT, state.snapshot, revision, len(state.lanes), len(state.acks))
    return b"".join((head, *map(_NUMBER.pack, state.lanes), *_encode_sets(state.acks)))


def decode_snapshot(payload: bytes) -> tuple[SnapshotState, int]:
    """The state, and the catalog's revision that was acted by."""
    _, snapshot, revision, lanes, count = _SNAPSHOT.unpack_from(payload)
    at = _SNAPSHOT.size + lanes * _NUMBER.size
    numbers = tuple(number for (number,) in _NUMBER.iter_unpack(payload[_SNAPSHOT.size : at]))
    return SnapshotState(snapshot, _decode_sets(payload, at, count), numbers), revision


def encode_acks(acks: Iterable[Acks]) -> list[bytes]:
    """An ACKS entry as buffers, ready to be appended."""
    parts: list[bytes] = []
    for entry in acks:
        parts += (_ACKS.pack(entry.subscription, entry.generation, entry.source, len(entry.runs)), entry.runs)
    return parts


def decode_acks(payload: bytes) -> Iterator[Acks]:
    at = 0
    while at < len(payload):
        subscription, generation, source, length = _ACKS.unpack_from(payload, at)
        at += _ACKS.size
        yield Acks(subscription, generation, source, payload[at : at + length])
        at += length


def bundles(facts: Iterable[bytes]) -> Iterator[bytes]:
    """Sources and ledgers as checkpoint parts of about 32 KiB: ten thousand topics are some twenty entries of the log
    then, not twenty thousand, each of which every start would have to find and check. Facts are drawn as needed.
    """
    parts, size = [bytes((FactKind.BUNDLE,))], 0
    for fact in facts:
        parts += (_LENGTH.pack(len(fact)), fact)
        size += len(fact) + _LENGTH.size
        if size >= BUNDLE_BYTES:
            yield b"".join(parts)
            parts, size = parts[:1], 0
    if size:
        yield b"".join(parts)


def unbundled(payload: bytes) -> Iterator[bytes]:
    """The facts of one bundle."""
    at = 1
    while at < len(payload):
        (length,) = _LENGTH.unpack_from(payload, at)
        at += _LENGTH.size
        yield payload[at : at + length]
        at += length
