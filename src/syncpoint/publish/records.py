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


class Acks(NamedTuple):
    """One subscription's acknowledgements on one source, in the kernel's run encoding."""

    subscription: int
    generation: int
    source: int
    runs: bytes


def encode_source(source: Source) -> bytes:
    return _SOURCE.pack(Fact.SOURCE, source.number, source.topic)


def decode_source(payload: bytes) -> Source:
    _, number, topic = _SOURCE.unpack(payload)
    return Source(number, topic)


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
