"""Confirm: what becomes of the ack ids of one request.

Beside `lease`. A request is answered when all it changed is persisted. Where the outcome stays unknown its sender is
notified so after a while and tries again; for an exactly-once subscription the ids are remembered, because a second
attempt finds no lease any more and must still receive how the first one ended.
"""

import base64
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from syncpoint.base.kernel.leases import list_ids
from syncpoint.base.model.times import UNKNOWN_S

_COPY = struct.Struct("<QQ8xI")  # source, place and generation in an ack id; see `kernel.ackids`
REMEMBER_S = 600.0  # how long clients retry ids of an exactly-once subscription
Confirmed = Callable[[list[bytes], list[bytes]], None]


class Confirmation:
    """One request: `confirmed(failed ids, ids whose outcome is unknown)` is called once."""

    __slots__ = ("_apart", "_confirmed", "_failed", "_field", "_left", "_lost", "_never", "_request", "_unsure", "at")

    def __init__(
        self,
        request: bytes,
        field: int,
        confirmed: Confirmed | None,
        sources: Iterable[int],
        failed: list[bytes],
        unsure: list[bytes],
        now: float,
        apart: Iterable[bytes] = (),
    ) -> None:
        """`failed`, `unsure`: known from the beginning; `apart`: ids that are another confirmation's to answer."""
        self.at = now
        self._apart = frozenset(apart)
        self._request, self._field, self._confirmed = request, field, confirmed
        self._failed, self._unsure = failed, unsure
        self._left = set(sources)
        self._lost: set[int] = set()
        self._never: set[int] = set()  # nobody will say any more
        self._answer_if_known()

    def persisted(self, source: int) -> None:
        """What was acknowledged of this source is."""
        self._left.discard(source)
        self._answer_if_known()

    def lost(self, source: int) -> None:
        """Note that acknowledgements of a source will not be persisted: the publish side refused them, or they were
        never sent.
        """
        self._lost.add(source)
        self.persisted(source)

    def uncertain(self, source: int) -> list[bytes]:
        """Whether it is persisted will not be known; returns the ids that are answered as unknown now, and stay so."""
        if source not in self._left:
            return []
        self._left.discard(source)
        self._never.add(source)
        if self._confirmed is None:
            return []
        ids = self._ids_of({source})
        self._unsure = [*self._unsure, *ids]
        self._answer_if_known()
        return ids

    def _answer_if_known(self) -> None:
        if not self._left and self._confirmed is not None:
            confirmed, self._confirmed = self._confirmed, None
            confirmed(self._failed + (self._ids_of(self._lost) if self._lost else []), self._unsure)

    def give_up(self, now: float) -> list[bytes]:
        """Notify the caller what is unknown, if it has waited long enough; returns these ids."""
        if self._confirmed is None or now < self.at + UNKNOWN_S:
            return []
        confirmed, self._confirmed = self._confirmed, None
        unknown = self._ids_of(self._left)
        confirmed(self._failed + (self._ids_of(self._lost) if self._lost else []), self._unsure + unknown)
        return unknown

    def _ids_of(self, sources: set[int]) -> list[bytes]:
        refused = {*self._failed, *self._unsure, *self._apart}
        return [one for one in list_ids(self._request, self._field) if one not in refused and _source(one) in sources]

    def is_lost(self, ack_id: bytes) -> bool:
        return _source(ack_id) in self._lost

    def is_pending(self, ack_id: bytes) -> bool:
        return _source(ack_id) in self._left or _source(ack_id) in self._never


class Joined:
    """One answer put together from those of several confirmations."""

    def __init__(self, confirmed: Confirmed, parts: int) -> None:
        self._confirmed, self._left = confirmed, parts
        self._failed: list[bytes] = []
        self._unknown: list[bytes] = []

    def __call__(self, failed: list[bytes], unknown: list[bytes]) -> None:
        self._failed += failed
        self._unknown += unknown
        self._left -= 1
        if not self._left:
            self._confirmed(self._failed, self._unknown)


class Unsure:
    """Ids whose senders were notified that the outcome is unknown, and what became of them."""

    def __init__(self) -> None:
        self._of: dict[bytes, Confirmation] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def remember(self, ack_ids: Iterable[bytes], confirmation: Confirmation) -> None:
        for one in ack_ids:
            self._of[one] = confirmation

    def judge(self, failed: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Ids without a lease: those that really failed, and those that are still unknown. The others succeeded."""
        really, unsure = [], []
        for one in failed:
            confirmation = self._of.get(one)
            if confirmation is None or confirmation.is_lost(one):
                really.append(one)
            elif confirmation.is_pending(one):
                unsure.append(one)
        return really, unsure

    def forget_old(self, now: float) -> None:
        """Nobody asks for these any more."""
        for one in [one for one, confirmation in self._of.items() if confirmation.at + REMEMBER_S < now]:
            del self._of[one]


def _source(ack_id: bytes) -> int:
    """The source an ack id of ours names: see `kernel.ackids`."""
    return int.from_bytes(base64.urlsafe_b64decode(ack_id[:12])[:8], "little")


def place_of(ack_id: bytes) -> tuple[int, int, int]:
    """(source, offset, epoch of its lease table) of an ack id of ours."""
    raw = base64.urlsafe_b64decode(ack_id)
    return int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:16], "little"), int.from_bytes(raw[20:24], "little")


class CopyId(NamedTuple):
    """Which copy of which message was lent, for ever: rules may make several of one message, each in a place of its
    own, and a seek (a new generation) makes others of what it brings back."""

    source: int
    place: int
    generation: int

    def named(self, subscription: int) -> str:
        """The name under which what is published of it is known, with the incarnation of its subscription."""
        return f"{subscription}.{self.generation}/{self.source}/{self.place}"


def copy_of(ack_id: str) -> CopyId:
    """The copy that an ack id of ours was lent for, by what was lent; the catalog may be ahead or late."""
    return CopyId._make(_COPY.unpack_from(base64.urlsafe_b64decode(ack_id)))
