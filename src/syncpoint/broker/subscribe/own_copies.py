"""Own copies: how many the service may make of one message by itself, as forwards and as dead letters.

Place: asked before a message is forwarded, and before a letter of it is made.
Promise: of one message that somebody publishes the service makes at most `COPIES_MAX` copies by itself, and those that
chains without branches make: while subscriptions stay as they are, whoever makes the copies. Each message carries how
many may still be made of it (`sys.ForwardCopies`); the copies of it, of which there are as many as the subscriptions of
its topic may make, get equal shares of what is left without them. So no branch needs to know of another one, and a
subscription that is added later takes from what is left, never from nothing. Without the attribute all of them are
left: a publisher may write a smaller number, never a larger one. A change or a seek of a subscription can let what it
has not passed on be copied anew; each is a call of somebody.
"""

from __future__ import annotations

from collections.abc import Mapping

from syncpoint.base.model.reserved import FORWARD_COPIES, count_of
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.entity_options import lanes_of
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.wire.protobuf.messages import pubsub

COPIES_MAX = 1_000
KNOWN_TOPICS = 10_000
TOO_MANY = (
    f"the server makes at most {COPIES_MAX:,} copies of a published message by forwarding and dead-lettering, and this"
    " would exceed that: too many subscriptions on the message's way make copies, or they form a circle. Remove some"
    " of them."
)


class OwnCopies:
    """How many copies of a message of a topic its subscriptions may make."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}  # by topic: as of which revision, and how many

    def of(self, catalog: Catalog, topic: int) -> int:
        """Count the service's copies of each message of a topic; recounted after each change of the catalog."""
        revision, found = self._known.get(topic, (-1, 0))
        if revision != catalog.revision:
            found = sum(map(made_by, catalog.subscriptions_of(topic)))
            if len(self._known) >= KNOWN_TOPICS:
                self._known.clear()
            self._known[topic] = catalog.revision, found
        return found


def made_by(record: Subscription) -> int:
    """How many copies a subscription may make of a message without anybody asking: one for each lane that may have
    it."""
    options = record.options
    letters = record.dead_letter is not None and (options.dead_letter_expired or options.dead_letter_rule_errors)
    if record.detached or not (options.forward_to or letters):
        return 0
    return sum(not lane.dropped for lane in lanes_of(options))


def share(attributes: Mapping[str, str], among: int) -> int | None:
    """How many copies may be made of each of these copies of a message; None: as many as of any message. Below 0: not
    even these may be made."""
    if FORWARD_COPIES not in attributes and among <= 1:
        return None
    left = COPIES_MAX
    text = attributes.get(FORWARD_COPIES, "")
    if text.isascii() and text.isdigit():
        left = min(left, count_of(attributes, FORWARD_COPIES))
    among = max(1, among)
    return (left - among) // among


def share_of(message: bytes, among: int) -> int | None:
    """Compute `share` for a serialized PubsubMessage: how many further copies may be made of each of `among` copies;
    None: no limit of its own; below 0: not even these.
    """
    carried = FORWARD_COPIES.encode() in message
    return share(pubsub.PubsubMessage.FromString(message).attributes if carried else {}, among)
