"""What a gateway remembers of messages by identity: which are at both sites, and which were acknowledged.

Place: asked by `site_fill` and `dual_delivery`. Bounded: the oldest are forgotten; then a message is copied again,
which the site recognises, or may be delivered again after a move.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from syncpoint.front.gateway.dual_publish import OWN
from syncpoint.front.gateway.home_proof import HomeProof

BOTH_MAX: Final = 200_000
ACKED_MAX: Final = 200_000
LENT_MAX: Final = 100_000
NEAR_S: Final = 10.0
"""How far the publish times of a message and its copy lie apart at most, where a publisher gave the identity: half the
shortest time after which a topic may take it again, as another message."""


def same_message(identity: str, published_s: float, other_s: float) -> bool:
    """Whether two messages of one identity, with these publish times, are copies of each other: always where a gateway
    gave it; one that a publisher gave may be of another message, published later.
    """
    return identity.startswith(OWN) or abs(published_s - other_s) < NEAR_S


def in_topic(identity: str, topic: str) -> str:
    """A message of one topic: what is forwarded, or a letter, may be called the same in another one."""
    return f"{identity} {topic}"


class KnownIdentities:
    """Identities with publish times; the oldest go."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._times)

    def clear(self) -> None:
        """Know nothing."""
        self._times.clear()

    def add(self, identity: str, published_s: float) -> None:
        """Know a message from now on."""
        self._times[identity] = published_s
        self._times.move_to_end(identity)
        if len(self._times) > self._most:
            self._times.popitem(last=False)

    def has(self, identity: str, published_s: float) -> bool:
        """Whether a message is known."""
        at = self._times.get(identity)
        return at is not None and same_message(identity, published_s, at)


class Acked(NamedTuple):
    """A message that was acknowledged. `at`: its publish time; `known`: the sites that know, by tag, with its publish
    time there.
    """

    at: float
    known: tuple[tuple[str, float], ...]


class AckBook:
    """One subscription: what was lent under which ack id, what is acknowledged, and what the other site's copies are
    held under, to be acknowledged with it. `tags`: how ack ids of the two sites begin.

    A message that comes again from the site that confirmed its acknowledgement was reset by a seek, and is delivered.
    It is left out where the site did not confirm one: as its copy, as what a site that was gone lent, or stored anew
    after the disks were lost, which the publish time shows. Each time it is to be acknowledged there, and
    `answered` reports what became of that.
    """

    def __init__(self, tags: Iterable[str]) -> None:
        self._tags = frozenset(tags)
        self.acked: OrderedDict[str, Acked] = OrderedDict()
        self._held_at = ""
        self.lent: OrderedDict[str, tuple[str, float]] = OrderedDict()  # ack id, as clients have it -> message
        self.held: dict[str, tuple[str, float]] = {}  # by identity: ack id at the other site, and publish time
        self.leaving: dict[str, tuple[str, float]] = {}  # ack id that is on its way to a site, with its tag -> message
        self.dropped = 0
        self.proof = HomeProof()
        self.news: list[str] | None = None
        """Identities acknowledged since they were last reported to peers; None: there are no peers."""

    def deliver(self, tag: str, ack_id: str, identity: str, published_s: float, message_id: str = "") -> bool:
        """A message of a site is about to go to a subscriber; False where it was acknowledged before, and is to be
        acknowledged where it came from.
        """
        if self._left_out(tag, ack_id, identity, published_s):
            self.dropped += 1
            return False
        ack_id = tag + ack_id
        if identity:
            self.proof.delivered(tag, identity, message_id, published_s)
            self.lent[ack_id] = identity, published_s
            if len(self.lent) > LENT_MAX:
                self.lent.popitem(last=False)
        return True

    def _left_out(self, tag: str, ack_id: str, identity: str, published_s: float) -> bool:
        acked = self.acked.get(identity)
        if acked is None or (tag, published_s) in acked.known or not same_message(identity, published_s, acked.at):
            return False
        self.leaving[tag + ack_id] = identity, published_s
        return True

    def answered(self, tag: str, ack_ids: Iterable[str], *, confirmed: bool) -> None:
        """Ack ids of what was left out, or of copies, went to their site; unless it `confirmed` them they come again,
        and are left out again.
        """
        for ack_id in ack_ids:
            identity, published_s = self.leaving.pop(tag + ack_id, ("", 0.0))
            acked = self.acked.get(identity)
            if confirmed and acked is not None and same_message(identity, published_s, acked.at):
                self._note(identity, acked.at, {**dict(acked.known), tag: published_s})

    def _note(self, identity: str, at: float, known: Mapping[str, float]) -> None:
        self.acked[identity] = Acked(at, tuple(known.items()))
        self.acked.move_to_end(identity)
        if len(self.acked) > ACKED_MAX:
            self.acked.popitem(last=False)

    def acknowledged(self, ack_ids: list[str], *, gone: bool = False) -> list[str]:
        """A subscriber acknowledged these, which the site that lent them confirmed unless it is `gone`; returns the ack
        ids of their copies at the other site that are held.
        """
        found = []
        for ack_id in ack_ids:
            identity, published_s = self.lent.pop(ack_id, ("", 0.0))
            if identity:
                tags = () if gone else [one for one in self._tags if ack_id.startswith(one)]
                found += self._count(identity, published_s, tags, gone=gone)
        return found

    def completed(self, tag: str, messages: Iterable[tuple[str, float]]) -> list[str]:
        """The site of a tag has proven these, with publish times, to be done with; returns the ack ids of copies."""
        return [copy for one in messages for copy in self._count(*one, (tag,), gone=False)]

    def _count(self, identity: str, published_s: float, tags: Iterable[str], *, gone: bool) -> list[str]:
        """A message is acknowledged, which the sites of these tags know."""
        acked = self.acked.get(identity)
        same = acked is not None and same_message(identity, published_s, acked.at)
        known = dict(acked.known) if acked is not None and same else {}
        self._note(identity, published_s, known | dict.fromkeys(tags, published_s))
        if self.news is not None:
            self.news.append(identity)
        return self._copy_of(identity, published_s, gone=gone)

    def _copy_of(self, identity: str, published_s: float, *, gone: bool = False) -> list[str]:
        """The ack id of a copy that is held, and is to be acknowledged now."""
        self.proof.done_with(identity)
        copy = self.held.get(identity)
        if copy is None or not same_message(identity, copy[1], published_s):
            return []
        del self.held[identity]
        if not gone:  # else the copy is given back just now, and comes once more, to be left out
            self.leaving[self._held_at + copy[0]] = identity, copy[1]
        return [copy[0]]

    def reported(self, facts: Iterable[tuple[str, float, Iterable[tuple[str, float]]]]) -> list[str]:
        """Messages were acknowledged through another gateway; returns the ack ids of copies that are held here."""
        found = []
        for identity, at, sites in facts:
            acked, known = self.acked.get(identity), dict(sites)
            if acked is not None and same_message(identity, at, acked.at):
                known = {**dict(acked.known), **known}
            found += self._copy_of(identity, at)
            self._note(identity, at, known)
        return found

    def facts_of(self, identities: Iterable[str]) -> list[tuple[str, float, tuple[tuple[str, float], ...]]]:
        """What is known to be acknowledged of these, as `reported` takes it."""
        return [(one, *self.acked[one]) for one in identities if one in self.acked]

    def take_news(self) -> list[tuple[str, float, tuple[tuple[str, float], ...]]]:
        """What to report to peers."""
        if not self.news:
            return []
        found = self.facts_of(self.news)
        self.news.clear()
        return found

    def knows(self, ack_ids: list[str]) -> bool:
        """Whether all of these were lent here, so that their messages are known."""
        return all(one in self.lent for one in ack_ids)

    def hold(self, tag: str, identity: str, ack_id: str, published_s: float) -> bool:
        """A copy came from the other site; False where it is to be acknowledged there at once."""
        if self._left_out(tag, ack_id, identity, published_s):
            return False
        self._held_at = tag
        before = self.held.get(identity)
        if not identity or (before is not None and not same_message(identity, before[1], published_s)):
            identity = ack_id  # nothing acknowledges it: it is delivered when its site is the home
        self.held[identity] = ack_id, published_s
        return True

    def release(self) -> list[str]:
        """The ack ids of all copies that are held, which are held no more."""
        found, self.held = self.copies(), {}
        return found

    def copies(self) -> list[str]:
        """The ack ids of all copies that are held."""
        return [ack_id for ack_id, _ in self.held.values()]

    def forget(self) -> None:
        """A seek: what was acknowledged may be delivered again."""
        self.acked.clear()
        self.lent.clear()
        self.proof.clear()
        if self.news:
            self.news.clear()
