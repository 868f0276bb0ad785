"""What a subscription has acknowledged, and what it is owed, at each of its seeks and snapshots: for `run_checkers`.

What is delivered and acknowledged under a generation is entered in the history under a name of its own (`named`), so
that an acknowledgement of what came before a seek is not taken for one that counts after it. Seeks of one subscription
come one after the other; a snapshot may be of another subscription of the topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from syncpoint.testing.rigs.history import History, Outcome, Publish

_NEAR_NS = 1_000_000


def named(subscription: str, generation: int) -> str:
    """How a history calls a subscription between two seeks."""
    return f"{subscription}@{generation}" if generation else subscription


@dataclass(eq=False)
class Taken:
    """A snapshot of a subscription in a generation, and the stamps between which it was created."""

    subscription: str
    generation: int
    snapshot: int
    begun: int
    ended: int = 0


@dataclass(eq=False)
class Seek:
    """A seek of a subscription into a new generation: to a snapshot, or (None) to a time, 0 for the beginning; and its
    stamps. `kept`: the topic keeps what is acknowledged. `quiet`: nothing was broken then, and all was delivered.
    """

    subscription: str
    generation: int
    taken: Taken | None
    time_ns: int
    begun: int
    ended: int = 0
    kept: bool = True
    quiet: bool = False


Range = Callable[[Publish], bool]


class Sets:
    """Sets of messages of all subscriptions of one topic. `times`: publish times of the messages that were seen."""

    def __init__(self, history: History, topic: str, seeks: Sequence[Seek], times: Mapping[str, int]) -> None:
        self._ordered = {one.subscription for one in history.creations if one.ordered}
        self._created = {one.subscription: one.ended for one in history.creations}
        self._published = [one for one in history.publishes if one.outcome is Outcome.OK and one.topic == topic]
        self._history, self._times = history, times
        self._seeks = {(one.subscription, one.generation): one for one in seeks}

    def owed(self, seek: Seek) -> set[str]:
        """Ids of messages that were published before a seek, and certainly are unacknowledged after it."""
        within = self._range(seek.subscription, seek.generation)
        perhaps = self._perhaps_at_first(seek)
        before = {one.message_id for one in self._published if one.ended < seek.begun and within(one)}
        return before - perhaps

    def certain(self, taken: Taken) -> set[str]:
        """Ids that certainly were acknowledged before a snapshot was taken."""
        name = named(taken.subscription, taken.generation)
        found = {
            one.message_id
            for one in self._history.acks
            if one.subscription == name and one.outcome is Outcome.OK and one.ended < taken.begun
        }
        if name in self._ordered:
            found = self._never_taken_back(name, found)
        last = self._seeks.get((taken.subscription, taken.generation))
        return found | (self.certain(last.taken) if last is not None and last.taken is not None else set())

    def _never_taken_back(self, name: str, acknowledged: set[str]) -> set[str]:
        """Return the acknowledged messages whose leases were certainly not revoked, so that the acknowledgements count:
        no message of the key was delivered twice, and all earlier ones of the key are acknowledged.
        """
        received = [one for one in self._history.deliveries if one.subscription == name]
        times = Counter((one.key, one.message_id) for one in received)
        doubtful = {key for (key, _), count in times.items() if count > 1}
        found = set[str]()
        for one in received:
            if not one.key or one.key not in doubtful:
                if one.message_id in acknowledged:
                    found.add(one.message_id)
                else:
                    doubtful.add(one.key)
        return found

    def _perhaps(self, subscription: str, generation: int, until: int) -> set[str]:
        """Ids that may have been acknowledged in a generation before a stamp."""
        name = named(subscription, generation)
        found = {one.message_id for one in self._history.acks if one.subscription == name and one.begun < until}
        last = self._seeks.get((subscription, generation))
        return found | (self._perhaps_at_first(last) if last is not None else set())

    def _perhaps_at_first(self, seek: Seek) -> set[str]:
        """Return the messages that may be acknowledged when a generation begins."""
        if seek.taken is not None:
            return self._perhaps(seek.taken.subscription, seek.taken.generation, seek.taken.ended)
        late = seek.time_ns + _NEAR_NS if seek.time_ns else 0
        found = {one.message_id for one in self._published if late and self._times.get(one.message_id, 0) < late}
        if not seek.kept:  # what was acknowledged may be gone
            found |= self._perhaps(seek.subscription, seek.generation - 1, seek.ended)
        return found

    def _range(self, subscription: str, generation: int) -> Range:
        """Return which messages the subscription must deliver unless they are acknowledged."""
        seek = self._seeks.get((subscription, generation))
        if seek is None:
            created = self._created[subscription]
            return lambda one: one.begun > created
        if seek.taken is not None:
            return self._range(seek.taken.subscription, seek.taken.generation)
        if seek.kept:
            return lambda one: True
        return self._range(subscription, generation - 1)
