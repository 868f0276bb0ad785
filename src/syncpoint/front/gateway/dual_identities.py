"""What a gateway remembers of messages by identity: which are at both sites, and which were acknowledged.

Place: asked by `site_fill` and `dual_delivery`. Bounded: the oldest are forgotten; then a message is copied again,
which the site recognises, or may be delivered again after a move.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from syncpoint.front.gateway.dual_publish import OWN

BOTH_MAX: Final = 200_000
ACKED_MAX: Final = 200_000
LENT_MAX: Final = 100_000
GIVEN_S: Final = 20.0
"""How long an identity that a publisher gave is believed: the shortest time after which a topic may take it again."""


class KnownIdentities:
    """Identities, each with a time; the oldest go. Those that publishers gave count for `GIVEN_S` only: the same one
    may be published again, as another message.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._times)

    def clear(self) -> None:
        """Know nothing."""
        self._times.clear()

    def add(self, identity: str, now: float) -> None:
        """Know one from now on."""
        self._times[identity] = now
        self._times.move_to_end(identity)
        if len(self._times) > self._most:
            self._times.popitem(last=False)

    def has(self, identity: str, now: float) -> bool:
        """Whether it is known."""
        at = self._times.get(identity)
        return at is not None and (identity.startswith(OWN) or now < at + GIVEN_S)


class AckBook:
    """One subscription: what was lent under which ack id, what is acknowledged, and what the other site's copies are
    held under, to be acknowledged with it.
    """

    def __init__(self) -> None:
        self.acked = KnownIdentities(ACKED_MAX)
        self.lent: OrderedDict[str, str] = OrderedDict()  # ack id, as the client has it -> identity
        self.held: dict[str, str] = {}  # identity -> ack id at the other site
        self.dropped = 0

    def deliver(self, ack_id: str, identity: str, now: float) -> bool:
        """A message is about to go to a subscriber; False where it was acknowledged before, and is to be acknowledged
        where it came from.
        """
        if identity and self.acked.has(identity, now):
            self.dropped += 1
            return False
        if identity:
            self.lent[ack_id] = identity
            if len(self.lent) > LENT_MAX:
                self.lent.popitem(last=False)
        return True

    def acknowledged(self, ack_ids: list[str], now: float) -> list[str]:
        """A subscriber acknowledged these; returns the ack ids of their copies at the other site that are held."""
        found = []
        for ack_id in ack_ids:
            identity = self.lent.pop(ack_id, "")
            if identity:
                self.acked.add(identity, now)
                copy = self.held.pop(identity, "")
                if copy:
                    found.append(copy)
        return found

    def knows(self, ack_ids: list[str]) -> bool:
        """Whether all of these were lent here, so that their messages are known."""
        return all(one in self.lent for one in ack_ids)

    def hold(self, identity: str, ack_id: str, now: float) -> bool:
        """A copy came from the other site; False where it is to be acknowledged there at once."""
        if identity and self.acked.has(identity, now):
            return False
        self.held[identity or ack_id] = ack_id
        return True

    def release(self) -> list[str]:
        """The ack ids of all copies that are held, which are held no more."""
        found, self.held = list(self.held.values()), {}
        return found

    def forget(self) -> None:
        """A seek: what was acknowledged may be delivered again."""
        self.acked = KnownIdentities(ACKED_MAX)
        self.lent.clear()
