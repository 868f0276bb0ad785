"""How the publish forwarder's own facts look in the log: the opening of sources, acknowledgements, ledgers and
snapshots.

Storage keeps these payloads without looking inside. One byte says what the record is; all integers are little-endian.
The same records make up a checkpoint, so recovery has one reader for both.
"""

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from syncpoint.kernel.acks import AckSet
from syncpoint.publish.ledger import Ledger, SnapshotState
from syncpoint.publish.source import Source

_SOURCE = struct.Struct("<BQQ")
_SOURCE_AT = struct.Struct("<BQQQQB")  # number, topic, epoch, revision, flags
_START = struct.Struct("<BQQQI")  # subscription, generation, catalog revision, number of sources
_PLACE = struct.Struct("<QQ")  # source, offset
_REVISION = struct.Struct("<BQ")
_GRANT = struct.Struct("<BQQQQ")  # subscription, source, grant, holder
_BATCH = struct.Struct("<QQQQI")  # sender, batch, source, first offset, count
_SEALED, _KEYED = 1, 2
_HEAD = struct.Struct("<BQQI")  # kind, identity, generation or topic, number of sets
_SET = struct.Struct("<QI")
_ACKS = struct.Struct("<QIQI")  # subscription, generation, source, bytes of runs
_LENGTH = struct.Struct("<I")
BUNDLE_BYTES = 32 << 10


class Fact(IntEnum):
    """First byte of a LEDGER entry or of a checkpoint part."""

    SOURCE = 1
    LEDGER = 2
    CATALOG = 3
    BUNDLE = 4  # many sources and ledgers in one checkpoint part, each with its length before it
    # Those of a chain, whose catalog is not in its log:
    SOURCE_AT = 5  # a source, where it stands in the order of keys and of the catalog; again when that changes
    START = 6  # where a subscription begins
    SNAPSHOT = 7  # what a snapshot remembers of this chain
    REVISION = 8  # the catalog up to here has been acted by
    GRANT = 9  # who may acknowledge a source of an exactly-once subscription
    BATCHES = 10  # which batches of which senders became which messages
    EXTENSION = 11  # of a room above: its number, then what only that room reads


class Acks(NamedTuple):
    """One subscription's acknowledgements on one source, in the kernel's run encoding."""

    subscription: int
    generation: int
    source: int
    runs: bytes


class Start(NamedTuple):
    """The sync point of one subscription in one chain, with the generation it began in."""

    subscription: int
    generation: int
    revision: int
    places: tuple[tuple[int, int], ...]


class GrantFact(NamedTuple):
    """The permission to deliver one source of one subscription, and the incarnation of whoever has it."""

    subscription: int
    source: int
    grant: int
    holder: int


class BatchFact(NamedTuple):
    """What became of a batch of a sender: so many messages from `first_offset` on."""

    sender: int
    batch: int
    source: int
    first_offset: int
    messages: int


def encode_source(source: Source) -> bytes:
    """Short where there is nothing to say about epochs, as on one node."""
    if not source.epoch and not source.revision:
        return _SOURCE.pack(Fact.SOURCE, source.number, source.topic)
    flags = (_SEALED if source.sealed else 0) | (_KEYED if source.keyed else 0)
    return _SOURCE_AT.pack(Fact.SOURCE_AT, source.number, source.topic, source.epoch, source.revision, flags)


def decode_source(payload: bytes) -> Source:
    if payload[0] == Fact.SOURCE:
        _, number, topic = _SOURCE.unpack(payload)
        return Source(number, topic)
    _, number, topic, epoch, revision, flags = _SOURCE_AT.unpack(payload)
    return Source(
        number, topic, sealed=bool(flags & _SEALED), epoch=epoch, revision=revision, keyed=bool(flags & _KEYED)
    )


def encode_start(start: Start) -> bytes:
    head = _START.pack(Fact.START, start.subscription, start.generation, start.revision, len(start.places))
    return head + b"".join(_PLACE.pack(*place) for place in start.places)


def decode_start(payload: bytes) -> Start:
    _, subscription, generation, revision, count = _START.unpack_from(payload)
    places = tuple(_PLACE.unpack_from(payload, _START.size + at * _PLACE.size) for at in range(count))
    return Start(subscription, generation, revision, places)


def encode_revision(revision: int) -> bytes:
    return _REVISION.pack(Fact.REVISION, revision)


def decode_revision(payload: bytes) -> int:
    revision: int = _REVISION.unpack(payload)[1]
    return revision


def encode_grant(grant: GrantFact) -> bytes:
    return _GRANT.pack(Fact.GRANT, *grant)


def decode_grant(payload: bytes) -> GrantFact:
    return GrantFact(*_GRANT.unpack(payload)[1:])


def encode_batches(batches: Iterable[BatchFact]) -> bytes:
    return bytes((Fact.BATCHES,)) + b"".join(_BATCH.pack(*batch) for batch in batches)


def decode_batches(payload: bytes) -> Iterator[BatchFact]:
    for at in range(1, len(payload), _BATCH.size):
        yield BatchFact(*_BATCH.unpack_from(payload, at))


def encode_extension(number: int, payload: bytes) -> bytes:
    """A fact of a room above; `number` (below 256) says which one reads it."""
    return bytes((Fact.EXTENSION, number)) + payload


def _encode_sets(kind: Fact, identity: int, second: int, acks: dict[int, AckSet]) -> bytes:
    parts = [_HEAD.pack(kind, identity, second, len(acks))]
    for source, held in acks.items():
        encoded = held.encode()
        parts += (_SET.pack(source, len(encoded)), encoded)
    return b"".join(parts)


def _decode_sets(payload: bytes) -> tuple[int, int, dict[int, AckSet]]:
    _, identity, second, count = _HEAD.unpack_from(payload)
    at, acks = _HEAD.size, {}
    for _ in range(count):
        source, length = _SET.unpack_from(payload, at)
        at += _SET.size
        acks[source] = AckSet.decode(payload[at : at + length])
        at += length
    return identity, second, acks


def encode_ledger(ledger: Ledger) -> bytes:
    """The whole state of a ledger: written by a seek (with its new generation) and by checkpoints."""
    return _encode_sets(Fact.LEDGER, ledger.subscription, ledger.generation, ledger.acks)


def decode_ledger(payload: bytes) -> Ledger:
    subscription, generation, acks = _decode_sets(payload)
    return Ledger(subscription, generation, acks)


def encode_snapshot(state: SnapshotState) -> bytes:
    """The opaque `state` of a snapshot's record in the catalog."""
    return _encode_sets(Fact.LEDGER, 0, 0, state.acks)


def decode_snapshot(snapshot: int, payload: bytes) -> SnapshotState:
    return SnapshotState(snapshot, _decode_sets(payload)[2])


def encode_snapshot_fact(state: SnapshotState) -> bytes:
    """A chain's part of a snapshot, in its own log."""
    return _encode_sets(Fact.SNAPSHOT, state.snapshot, 0, state.acks)


def decode_snapshot_fact(payload: bytes) -> SnapshotState:
    snapshot, _, acks = _decode_sets(payload)
    return SnapshotState(snapshot, acks)


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
    parts, size = [bytes((Fact.BUNDLE,))], 0
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
