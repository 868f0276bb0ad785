"""The messages of `publish_many`, cut into pieces that are requests of their own.

Place: between what the user iterates over and `publish_driver`. Plain data of one kind, which is most of it, is encoded
by the piece; the rest message by message.
Promise: messages of one ordering key stay in their order; a piece has one key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from syncpoint.client.message_encoding import encode_message, encode_plain

T = TypeVar("T")

PIECE_MESSAGES: Final = 1_000
PIECE_BYTES: Final = 1_000_000
LARGE_BYTES: Final = 16_384
"""Data above this are encoded one by one."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message for `publish_many` that is more than its data."""

    data: bytes
    ordering_key: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


class BulkPiece(NamedTuple):
    """Encoded messages of one key; `places`: where they stand among all that were given."""

    ordering_key: str
    encoded: bytes
    places: range | list[int]


class _PieceOfKey:
    """Messages of a key that are not a piece yet."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.places: list[int] = []
        self.nbytes = 0


class BulkPieces:
    """Cuts what is added, in order; the last pieces come with `rest`. `count`: how much was added."""

    def __init__(self, ordering_key: str = "") -> None:
        self.count = 0
        self._key = ordering_key
        self._gathered: dict[str, _PieceOfKey] = {}

    def add(self, messages: list[bytes | OutgoingMessage]) -> Iterator[BulkPiece]:
        """Pieces that are full now. Raises `TypeError` and `MessageTooLargeError`."""
        plain = not self._key and not self._gathered and len(messages) > 1
        if plain and all(type(one) is bytes and len(one) <= LARGE_BYTES for one in messages):
            yield from self._plain(messages)  # type: ignore[arg-type]
            return
        for one in messages:
            if isinstance(one, OutgoingMessage):
                key = one.ordering_key or self._key
                encoded = encode_message(one.data, key, one.attributes)
            else:
                key = self._key
                encoded = encode_message(one, key, {})
            gathered = self._gathered.get(key)
            if gathered is None:
                gathered = self._gathered[key] = _PieceOfKey()
            elif gathered.nbytes + len(encoded) > PIECE_BYTES or len(gathered.parts) >= PIECE_MESSAGES:
                yield self._piece(key)
                gathered = self._gathered[key] = _PieceOfKey()
            gathered.parts.append(encoded)
            gathered.places.append(self.count)
            gathered.nbytes += len(encoded)
            self.count += 1
        if len(self._gathered) > PIECE_MESSAGES:
            yield from self.rest()

    def rest(self) -> Iterator[BulkPiece]:
        """What is not a full piece."""
        while self._gathered:
            yield self._piece(next(iter(self._gathered)))

    def _piece(self, key: str) -> BulkPiece:
        gathered = self._gathered.pop(key)
        return BulkPiece(key, b"".join(gathered.parts), gathered.places)

    def _plain(self, datas: list[bytes]) -> Iterator[BulkPiece]:
        average = sum(map(len, datas)) // len(datas) + 1
        step = max(1, min(PIECE_MESSAGES, PIECE_BYTES // average))
        for at in range(0, len(datas), step):
            piece = datas[at : at + step]
            yield BulkPiece("", encode_plain(piece), range(self.count, self.count + len(piece)))
            self.count += len(piece)


def chunks(messages: Iterable[T], size: int = PIECE_MESSAGES) -> Iterator[list[T]]:
    """Lists of this many, the last one shorter."""
    given = iter(messages)
    while chunk := list(islice(given, size)):
        yield chunk
