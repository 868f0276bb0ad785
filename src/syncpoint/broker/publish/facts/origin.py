"""Publication: what is published, by whom, and what follows from that for the request.

Place: handed from the proxy or servicer that took it to the log; between processes it travels in the envelope.
Promise: what the service itself publishes again was accepted before. So a user's message id never decides about it: it
is known by where it came from (`sys.ForwardedFrom`, `sys.ScheduledMessageId`), and "a duplicate" means that this very
message is stored. An inner publish ends as stored, as a duplicate of itself, refused or unknown; only the first two
acknowledge what it was made from. What is due is published for the first time: its user's id decides, too.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from syncpoint.broker.publish.facts.source import MessagePlace
from syncpoint.catalog.metadata.records import Topic


class PublishOrigin(enum.Enum):
    """Who publishes."""

    CLIENT = "a client"
    FORWARD = "a subscription that forwards: checked as a client's publish, known by sys.ForwardedFrom"
    SERVICE = "the service: dead letters, redrives and delivery records, accepted and sealed before"
    FIRING = "the service: scheduled messages that are due, judged now by what their publishers named them"

    @property
    def own(self) -> bool:
        """Whether the service itself publishes, with attributes that only it may write."""
        return self is not PublishOrigin.CLIENT

    @property
    def accepted(self) -> bool:
        """Whether the messages were accepted and sealed before: suspension, schemas, transforms and schedules do not
        count for them.
        """
        return self in (PublishOrigin.SERVICE, PublishOrigin.FIRING)


class SentBatch(NamedTuple):
    """The number that a request was sent under. `known`: where its messages are known to be stored, of each; none where
    it was not sent before.
    """

    sender: int
    number: int
    resent: bool
    known: Sequence[MessagePlace | None] = ()


class Publication(NamedTuple):
    """One serialised PublishRequest on its way into a log. `batch`: of a request that is judged, and may be sent again;
    None: it is not.
    """

    topic: Topic
    request: bytes | memoryview
    origin: PublishOrigin = PublishOrigin.CLIENT
    batch: SentBatch | None = None


class Allowance(NamedTuple):
    """By what a request may exceed the limits of a client's, for what was added to it on its way: `room` bytes of all
    of it, `added` attributes of each message. `accepted`: its messages wait for no time any more.
    """

    room: int = 0
    added: int = 0
    accepted: bool = False
