"""One published message becomes a bounded number of copies, however subscriptions forward and give up."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

import pytest

from syncpoint.base.model.reserved import FORWARD_COPIES, FORWARD_HOPS, LETTERS, count_of
from syncpoint.broker.forward.forward_kind import TOO_MANY, ForwardKind
from syncpoint.broker.forward.forwarded_message import HOPS_MAX, publish_request
from syncpoint.broker.inner.lent import Lent
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.broker.subscribe.dead_letter import LETTERS_MAX, letter, stays
from syncpoint.broker.subscribe.expired_letters import EXPIRED
from syncpoint.broker.subscribe.own_copies import COPIES_MAX, OwnCopies, made_by, share, share_of
from syncpoint.broker.subscribe.shared_state import Reason
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.entity_options import MessageRule, RuleChange, SubscriptionOptions, changed_rules
from syncpoint.catalog.metadata.records import CatalogChange, DeadLetter, Subscription, Topic
from syncpoint.wire.protobuf.messages import pubsub

FREE = (HOPS_MAX + 1) * (LETTERS_MAX + 1)
"""Copies of chains without branches, which are counted by hops and letters alone."""


class Graph:
    """Topics by number, each with subscriptions that forward, or whose messages run out, to others."""

    def __init__(self, edges: dict[int, list[tuple[int, bool]]]) -> None:
        self.catalog, self.copies = Catalog(), OwnCopies()
        self.edges = edges
        self.change(*(CatalogChange.put(Topic(number, _topic(number))) for number in edges))
        self.subscriptions = {
            number: [_made(number, at, *one) for at, one in enumerate(edges[number])] for number in edges
        }
        self.change(*(CatalogChange.put(one) for found in self.subscriptions.values() for one in found))

    def change(self, *changes: CatalogChange) -> None:
        for change in self.catalog.assign(changes):
            self.catalog.apply(change)

    def copies_of(self, first: int, **attributes: str) -> int:
        """How many copies the service makes of a message that is published to a topic."""
        made, waiting = 0, deque([(first, pubsub.PubsubMessage(attributes=attributes))])
        while waiting:
            topic, message = waiting.popleft()
            among = self.copies.of(self.catalog, topic)
            for record in self.subscriptions[topic]:
                copy = _forwarded(record, message, among) or _letter(record, message, among)
                if copy is not None:
                    made += 1
                    assert made < 100_000
                    waiting.append((_number(record), copy))
        return made


def _topic(number: int) -> str:
    return f"projects/p/topics/t{number}"


def _made(topic: int, at: int, to: int, forwards: bool) -> Subscription:
    options = SubscriptionOptions(forward_to=_topic(to)) if forwards else SubscriptionOptions(dead_letter_expired=True)
    letters = None if forwards else DeadLetter(_topic(to), 5)
    name = f"projects/p/subscriptions/s{topic}-{at}"
    return Subscription(1_000_000 * topic + at, name, topic, _topic(topic), options=options, dead_letter=letters)


def _number(record: Subscription) -> int:
    to = record.options.forward_to or (record.dead_letter.topic if record.dead_letter else "")
    return int(to.rpartition("/t")[2])


def _forwarded(record: Subscription, message: pubsub.PubsubMessage, among: int) -> pubsub.PubsubMessage | None:
    if not record.options.forward_to or ForwardKind(lambda: among).reason(message) is not None:
        return None
    request = publish_request("t", record, [Lent("a", CopyId(1, 1, 0), message)], among)
    (copy,) = pubsub.PublishRequest.FromString(request).messages
    return copy


def _letter(record: Subscription, message: pubsub.PubsubMessage, among: int) -> pubsub.PubsubMessage | None:
    encoded = message.SerializeToString()
    left = share_of(encoded, among)
    if record.dead_letter is None or stays(record, encoded, EXPIRED, left):
        return None
    (copy,) = pubsub.PublishRequest.FromString(letter(encoded, record, CopyId(1, 1, 0), 0, EXPIRED, left=left)).messages
    return copy


@pytest.mark.parametrize("forwards", [True, False])
@pytest.mark.parametrize("fan", [1, 2, 10, 31, 32, 200])
def test_a_circle_of_fans_ends_within_the_bound(fan: int, forwards: bool) -> None:
    graph = Graph({1: [(2, forwards)] * fan, 2: [(1, forwards)] * fan})
    made = graph.copies_of(1)
    assert fan <= made <= COPIES_MAX + FREE
    assert fan == 1 or made <= COPIES_MAX


def test_more_than_may_be_made_are_not_begun() -> None:
    assert Graph({1: [(2, True)] * (COPIES_MAX + 1), 2: []}).copies_of(1) == 0


def test_any_graph_stays_within_the_bound_whatever_a_publisher_writes() -> None:
    random_ = random.Random(7)
    most = 0
    for _ in range(12):
        topics = random_.randint(1, 5)
        edges = {
            one: [(random_.randint(1, topics), random_.random() < 0.5) for _ in range(random_.choice([0, 1, 2, 9, 25]))]
            for one in range(1, topics + 1)
        }
        graph = Graph(edges)
        for attributes in (
            {}, {FORWARD_COPIES: "999999999"}, {FORWARD_COPIES: "-1"}, {FORWARD_COPIES: "1" * 40},
            {FORWARD_COPIES: "all", FORWARD_HOPS: "-9", LETTERS: "none"},
        ):  # fmt: skip
            made = graph.copies_of(1, **attributes)
            most = max(most, made)
            assert made <= COPIES_MAX + FREE
    assert most > COPIES_MAX // 4, "some of them come near it"


def test_a_publisher_only_shortens_what_becomes_of_its_own_message() -> None:
    graph = Graph({1: [(2, True)] * 10, 2: [(1, True)] * 10})
    assert graph.copies_of(1, **{FORWARD_COPIES: "10"}) == 10
    assert graph.copies_of(1, **{FORWARD_COPIES: "0"}) == 0
    assert graph.copies_of(1, **{FORWARD_HOPS: "3"}) == 10


def test_a_chain_carries_nothing_and_goes_as_far_as_its_hops() -> None:
    graph = Graph({1: [(2, True)], 2: [(1, True)]})
    assert graph.copies_of(1) == HOPS_MAX
    assert share({}, 1) is None


def test_every_lane_of_a_subscription_makes_a_copy_also_one_that_has_stopped() -> None:
    options = SubscriptionOptions(forward_to=_topic(2))
    record = Subscription(9, "projects/p/subscriptions/s", 1, _topic(1), options=options)
    assert made_by(record) == 1
    rules = tuple(MessageRule(f"r{number}", "1=1", (), "SET a = 1") for number in range(3))
    more = changed_rules(options, RuleChange(put=rules), 5)
    assert made_by(replace(record, options=more)) == 4
    fewer = changed_rules(more, RuleChange(delete=tuple(rule.name for rule in rules)), 6)
    assert made_by(replace(record, options=fewer)) == 4, "they have what was published before"
    assert made_by(replace(record, options=fewer, detached=True)) == 0
    assert made_by(replace(record, options=SubscriptionOptions())) == 0


def test_what_somebody_received_in_vain_is_a_letter_always() -> None:
    message = pubsub.PubsubMessage(attributes={FORWARD_COPIES: "0"}).SerializeToString()
    left = share_of(message, 3)
    assert left is not None
    assert left < 0
    record = _made(1, 0, 2, False)
    assert "at most 1,000 copies" in stays(record, message, EXPIRED, left)
    assert stays(record, message, None, left) == stays(record, message, Reason("Mine", ""), left) == ""
    forwards = replace(_made(1, 0, 2, True), dead_letter=record.dead_letter)
    assert "at most 1,000 copies" in stays(forwards, message, None, left), "it was lent to the server alone"
    request = letter(message, record, CopyId(1, 1, 0), 5, None, left=left)
    (copy,) = pubsub.PublishRequest.FromString(request).messages
    assert count_of(copy.attributes, FORWARD_COPIES) == 0
    assert ForwardKind(lambda: 1).reason(copy) is TOO_MANY
