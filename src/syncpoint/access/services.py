"""What a server does by itself: under an identity of its own, which needs grants like any other.

Place: asked by subscribe forwarders before a message is given up into a dead letter topic, and by pushes, exports and
forwards before they read.
Promise: without a grant nothing is done in somebody's name; the message is offered again instead, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable

from syncpoint.access.policy import ALL_AUTHENTICATED, ALL_USERS, Policies
from syncpoint.metadata.records import Subscription, Topic
from syncpoint.runtime.clock import Clock


class ServiceIdentity:
    """`principal` says what bindings call it, by the file of `--auth` in force."""

    def __init__(self, principal: Callable[[], str], policies: Policies, clock: Clock) -> None:
        self._principal, self._policies, self._clock = principal, policies, clock

    def may_give_up(self, record: Subscription) -> bool:
        """Whether messages of a subscription may go to its dead letter topic: it has to be allowed to publish there and
        to acknowledge here."""
        if record.dead_letter is None:
            return False
        return self._may("pubsub.topics.publish", record.dead_letter.topic) and self._may(
            "pubsub.subscriptions.consume", record.name
        )

    def may_consume(self, record: Subscription) -> bool:
        """Whether messages of a subscription may be pushed, exported or forwarded: that reads and acknowledges them."""
        return self._may("pubsub.subscriptions.consume", record.name)

    def may_publish(self, record: Topic) -> bool:
        """Whether messages may be forwarded to a topic."""
        return self._may("pubsub.topics.publish", record.name)

    def _may(self, permission: str, resource: str) -> bool:
        principal = self._principal()
        members = frozenset((principal, f"domain:{principal.rpartition('@')[2]}", ALL_AUTHENTICATED, ALL_USERS))
        return self._policies.verdict(members, permission, resource, self._clock.time_ns() / 1e9).allowed
