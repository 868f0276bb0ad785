"""What becomes of acknowledgements whose outcome the publish side refuses, leaves open, or never says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from syncpoint.base.model.errors import FailedPrecondition, Unavailable
from syncpoint.broker.subscribe.confirm import Confirmation, CopyId, Unsure
from syncpoint.broker.subscribe.lease import LeaseManager
from syncpoint.testing.rigs.forwarder_harness import SUB, ForwarderHarness, Subscriber
from syncpoint.wire.protobuf.messages import pubsub

REFUSED, UNKNOWN = FailedPrecondition("refused"), Unavailable("no answer")


class Acknowledged:
    """A message that its subscriber has acknowledged; the publish side answers when a test says so."""

    def __init__(self, *, once: bool) -> None:
        harness = ForwarderHarness(exactly_once=once)
        subscriber = Subscriber(harness)
        harness.send("a")
        self.leases = leases = harness.leases
        self.sent: list[Callable[[Exception | None], None]] = []
        leases.publish.acknowledge = lambda *what, urgent: self.sent.append(what[-1])  # type: ignore[method-assign]
        self.answers: list[tuple[list[bytes], list[bytes]]] = []
        (ack_id,) = subscriber.held
        self.ack_id, self.source = ack_id.encode(), harness.publish.sources.of_topic(1)[0].number
        request = pubsub.AcknowledgeRequest(subscription=SUB, ack_ids=[ack_id]).SerializeToString()
        leases.acknowledge(request, 2, 0.0, lambda failed, unknown: self.answers.append((failed, unknown)))

    def heir(self, generation: int) -> LeaseManager:
        return LeaseManager(self.leases.state, generation, Unsure())


@pytest.mark.parametrize(("generation", "answered"), [(None, True), (0, False), (1, True)])
def test_what_a_seek_has_decided_needs_no_record_and_what_an_heir_sends_does(
    generation: int | None, answered: bool
) -> None:
    """Without exactly-once delivery. An heir of another generation cannot send what was lent before a seek."""
    one = Acknowledged(once=False)
    heir = None if generation is None else one.heir(generation)
    one.leases.close(heir)
    one.sent[0](REFUSED)
    assert one.answers == ([([], [])] if answered else [])
    assert heir is None or heir.is_out is not answered


def test_a_refusal_is_a_failure_only_of_what_was_sent_once() -> None:
    first = Acknowledged(once=True)
    first.sent[0](REFUSED)
    assert first.answers == [([first.ack_id], [])]
    again = Acknowledged(once=True)
    again.sent[0](UNKNOWN)
    again.leases.resend()
    again.sent[1](REFUSED)
    assert again.answers == [], "the first attempt may have counted"


def test_under_another_grant_nothing_is_sent_again_and_each_grant_is_examined_once() -> None:
    one = Acknowledged(once=True)
    one.sent[0](UNKNOWN)
    one.leases.void(one.source)
    assert len(one.sent) == 1
    read: list[int] = []
    for grants in (1, 1, 2):
        while one.leases.voids[one.source] < grants:
            one.leases.void(one.source)
        one.leases.examine(lambda source: True, lambda source, begin, end, done: (read.append(begin), done([])), 0.0)
    assert len(read) == 2
    assert one.answers == []


@pytest.mark.parametrize("once", [False, True])
def test_that_all_of_a_source_is_acknowledged_says_who_did_it_only_without_exactly_once(*, once: bool) -> None:
    one = Acknowledged(once=once)
    one.sent[0](UNKNOWN)
    one.leases.finish(one.source)
    assert one.answers == ([] if once else [([], [])])


def test_what_became_of_ids_is_said_to_who_asks_again() -> None:
    one = Acknowledged(once=True)
    request = pubsub.AcknowledgeRequest(ack_ids=[one.ack_id.decode()]).SerializeToString()
    judged = []
    for become in (lambda known: None, lambda known: known.uncertain(one.source), lambda known: known.lost(one.source)):
        confirmation, unsure = Confirmation(request, 2, None, (one.source,), [], [], 0.0), Unsure()
        unsure.remember([one.ack_id], confirmation)
        become(confirmation)
        judged.append(unsure.judge([one.ack_id]))
    assert judged == [([], [one.ack_id]), ([], [one.ack_id]), ([one.ack_id], [])]


def test_a_copy_is_named_by_all_that_makes_it_another() -> None:
    copies = [CopyId(source, place, generation) for source in (1, 2) for place in (3, 4) for generation in (5, 6)]
    assert len({one.named(subscription) for one in copies for subscription in (7, 8)}) == 16
