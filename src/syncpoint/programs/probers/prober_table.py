"""The ten probers and their thirty metrics: what each does, what it measures, and what is expected of it.

Place: the one table that scripts, judgement, command line, metrics and docs/operations/probers.md go by.
Promise: ten probers, three metrics each. A limit is for a service that is well, on hardware of its own; `--patience`
multiplies all of them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class ProbedPlane(StrEnum):
    """What part of the service a prober uses."""

    DATA = "data"
    CONTROL = "control"


class Measure(StrEnum):
    """The three metrics of each prober.

    SUCCESS: every call was answered as it should, in time. DURATION: no timed step took longer than its limit.
    CORRECTNESS: the number of messages or answers that were wrong, of which none is expected.
    """

    SUCCESS = "success"
    DURATION = "duration"
    CORRECTNESS = "correctness"


class Wrong(StrEnum):
    """What may be wrong although every call succeeded."""

    LOST = "lost"  # published, and not received in time
    DUPLICATED = "duplicated"  # received more often than expected
    ALTERED = "altered"  # other data, key or attributes than were published
    RENAMED = "renamed"  # received under another message id than the publisher got
    FOREIGN = "foreign"  # of another run, or never published
    DISORDERED = "disordered"  # after a later message of the same key
    UNNAMED = "unnamed"  # a publish was answered without an id for the message
    ID_REPEATED = "id-repeated"  # an id that a message before had got
    REDELIVERED = "redelivered"  # received again after its acknowledgement was answered
    UNRETURNED = "unreturned"  # not delivered again after a nack, or after its deadline
    EARLY = "early"  # delivered again while its deadline had not ended
    UNLIKE = "unlike"  # a resource is not as it was made
    UNLISTED = "unlisted"  # a resource, or a forwarder, that lists do not have
    UNDELETED = "undeleted"  # a resource that is there after its deletion
    DISAGREEING = "disagreeing"  # two endpoints list different forwarders


class TimedStep(NamedTuple):
    """A step whose duration is judged; where it happens several times in a run, the slowest counts."""

    name: str
    limit_s: float
    meaning: str


class ProberSpec(NamedTuple):
    """One prober. `wrong`: what its third metric counts."""

    name: str
    title: str
    planes: tuple[ProbedPlane, ...]
    actions: str
    timed: tuple[TimedStep, ...]
    wrong: tuple[Wrong, ...]

    def metric(self, measure: Measure) -> str:
        """The name of one of its three metrics."""
        return f"{self.name}.{measure}"

    @property
    def topic(self) -> str:
        """The id of its standing topic; of P10, which has several, what they begin with."""
        return f"probe-{self.name.lower()}"


_DATA, _CONTROL = (ProbedPlane.DATA,), (ProbedPlane.CONTROL,)
_BOTH = (ProbedPlane.CONTROL, ProbedPlane.DATA)
_MESSAGES: Final = (Wrong.LOST, Wrong.DUPLICATED, Wrong.ALTERED, Wrong.RENAMED, Wrong.FOREIGN, Wrong.UNNAMED)

PROBERS: Final = (
    ProberSpec(
        "P1",
        "first message",
        _BOTH,
        "creates a subscription, publishes one message, receives it",
        (
            TimedStep("create", 5.0, "CreateSubscription"),
            TimedStep("receive", 2.0, "from Publish to arrival by StreamingPull"),
        ),
        _MESSAGES,
    ),
    ProberSpec(
        "P2",
        "publish",
        _DATA,
        "publishes ten messages one by one, then ten in one request",
        (TimedStep("publish", 1.0, "one Publish call"),),
        (Wrong.UNNAMED, Wrong.ID_REPEATED),
    ),
    ProberSpec(
        "P3",
        "steady stream",
        _DATA,
        "publishes a message every 50 ms for a second, receives and acknowledges them with one StreamingPull",
        (
            TimedStep("publish", 1.0, "one Publish call"),
            TimedStep("receive", 2.0, "from Publish to arrival"),
        ),
        _MESSAGES,
    ),
    ProberSpec(
        "P4",
        "acknowledgement",
        _DATA,
        "publishes five messages, pulls and acknowledges them, then pulls until well after their deadline of 1 s",
        (
            TimedStep("pull", 2.0, "from Publish to the response of the last Pull"),
            TimedStep("acknowledge", 1.0, "Acknowledge"),
        ),
        (*_MESSAGES, Wrong.REDELIVERED),
    ),
    ProberSpec(
        "P5",
        "redelivery",
        _DATA,
        "pulls two messages, nacks one, lets the 2 s deadline of the other expire, and pulls both again",
        (
            TimedStep("nacked", 2.0, "from the response to the nack to the redelivery"),
            TimedStep("expired", 3.0, "from the expired deadline to the redelivery"),
        ),
        (*_MESSAGES, Wrong.UNRETURNED, Wrong.EARLY),
    ),
    ProberSpec(
        "P6",
        "order",
        _DATA,
        "publishes five messages of each of three ordering keys, receives them by StreamingPull",
        (TimedStep("receive", 3.0, "from Publish to arrival"),),
        (*_MESSAGES, Wrong.DISORDERED),
    ),
    ProberSpec(
        "P7",
        "push",
        _DATA,
        "creates a push subscription to the prober itself, publishes three messages",
        (TimedStep("push", 3.0, "from Publish to the push"),),
        _MESSAGES,
    ),
    ProberSpec(
        "P8",
        "administration",
        _CONTROL,
        "creates, reads, updates, lists and deletes a topic and a subscription",
        (TimedStep("call", 5.0, "each of these calls"),),
        (Wrong.UNLIKE, Wrong.UNLISTED, Wrong.UNDELETED),
    ),
    ProberSpec(
        "P9",
        "failover",
        _BOTH,
        "lists the members; publishes and pulls, disconnects midway, and continues at the next endpoint",
        (
            TimedStep("list", 2.0, "ListMembers"),
            TimedStep("failover", 5.0, "from disconnecting to the first message from the next endpoint"),
        ),
        (
            *(one for one in _MESSAGES if one is not Wrong.DUPLICATED),  # a lease that was left may be given twice
            Wrong.UNRETURNED,
            Wrong.UNLISTED,
            Wrong.DISAGREEING,
        ),
    ),
    ProberSpec(
        "P10",
        "every path",
        _DATA,
        "publishes to four topics, receives at every endpoint; with --copy, also receives the federated copies there",
        (
            TimedStep("path", 5.0, "from Publish to arrival at the slowest endpoint"),
            TimedStep("copy", 60.0, "from Publish to arrival of the copy in the other cluster"),
        ),
        _MESSAGES,
    ),
)
BY_NAME: Final = {one.name: one for one in PROBERS}
METRICS: Final = tuple(one.metric(measure) for one in PROBERS for measure in Measure)
assert len(PROBERS) == 10
assert len(METRICS) == 30
