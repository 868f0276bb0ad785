"""How a cursor looks in the log: one fact holds all of it, so the last one counts. Integers are little-endian."""

import struct
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

_HEAD = struct.Struct("<BQqqqqHIII")  # kind, topic, three limits, used, name, counts
_POSITION = struct.Struct("<Qq")
_NUMBER = struct.Struct("<Q")
_RANGE = struct.Struct("<Qqq")
_CURSOR, _DELETED = 1, 2


class CursorFact(NamedTuple):
    """The content of a fact. Of a deleted cursor only its topic and name mean anything."""

    topic: int
    name: str
    deleted: bool
    limits: tuple[int, int, int]
    used_ns: int
    positions: tuple[tuple[int, int], ...]
    done: tuple[int, ...]
    lost: tuple[tuple[int, int, int], ...]


def encode(
    topic: int,
    name: str,
    limits: tuple[int, int, int],
    used_ns: int,
    positions: Mapping[int, int],
    done: Collection[int],
    lost: Collection[Iterable[int]],
) -> bytes:
    """A cursor as it is now."""
    text = name.encode()
    counts = len(positions), len(done), len(lost)
    return b"".join(
        (
            _HEAD.pack(_CURSOR, topic, *limits, used_ns, len(text), *counts),
            text,
            *(_POSITION.pack(*one) for one in positions.items()),
            *(_NUMBER.pack(one) for one in sorted(done)),
            *(_RANGE.pack(*one) for one in lost),
        )
    )


def encode_deleted(topic: int, name: str) -> bytes:
    """A cursor is gone."""
    text = name.encode()
    return _HEAD.pack(_DELETED, topic, 0, 0, 0, 0, len(text), 0, 0, 0) + text


def decode(payload: bytes) -> CursorFact:
    """Raises `ValueError` for a fact that a newer version wrote."""
    kind, topic, retention_s, retention_bytes, expiration_s, used_ns, size, *counts = _HEAD.unpack_from(payload)
    if kind not in (_CURSOR, _DELETED):
        raise ValueError(f"a fact about cursors of kind {kind}: written by a newer version?")
    at = _HEAD.size + size
    name = payload[_HEAD.size : at].decode()
    lists = []
    for shape, count in zip((_POSITION, _NUMBER, _RANGE), counts, strict=True):
        lists.append(tuple(shape.iter_unpack(payload[at : at + shape.size * count])))
        at += shape.size * count
    positions, done, lost = lists
    limits = (retention_s, retention_bytes, expiration_s)
    return CursorFact(
        topic, name, kind == _DELETED, limits, used_ns, positions, tuple(one for (one,) in done), lost
    )  # fmt: skip
