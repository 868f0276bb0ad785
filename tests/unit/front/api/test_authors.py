"""Whose rights are asked when messages go where they go: of whoever said so last, and of nobody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.flow import FlowLimits
from syncpoint.broker.push.addresses import Vetting
from syncpoint.catalog.access.authors import called_by
from syncpoint.catalog.access.tokens import Identity
from syncpoint.catalog.metadata.records import Author, Subscription, Topic, decode_record, encode_record
from syncpoint.catalog.transforms.message_transforms import Transformer
from syncpoint.front.api.admin_handlers import CatalogService
from syncpoint.front.api.options_admin import OptionsAdmin
from syncpoint.wire.protobuf.messages import admin, pubsub
from tests.unit.front.api.conftest import FakeControlPlane

TOPIC, DEAD, OTHER = (f"projects/p/topics/{name}" for name in ("orders", "dead", "other"))
NAME = "projects/p/subscriptions/billing"
PUSH = {"push_endpoint": "https://example.com/x"}
LETTERS = {"dead_letter_topic": DEAD}
MODEL = "projects/p/locations/l/endpoints/sentiment"
STORAGE = {"bucket": "archive"}
ANN, BOB = Author("user:ann@example.com"), Author("user:bob@example.com")


class Callers:
    """Methods as they run for somebody that the gate knows; "" for nobody."""

    def __init__(self, plane: FakeControlPlane) -> None:
        self.plane = plane
        transformer = Transformer.of({MODEL: "http://127.0.0.1:9/predict"})
        self.catalog = CatalogService(plane, Vetting(), transformer=transformer)
        self.options = OptionsAdmin(plane, FlowLimits())
        for name in (TOPIC, DEAD, OTHER):
            self.call("", "create_topic", pubsub.Topic(name=name))

    def call(self, who: str, method: str, request: Any) -> None:
        handler = getattr(self.options if "options" in method else self.catalog, method)
        if not who:
            asyncio.run(handler(request))
            return
        with called_by(Identity(f"user:{who}@example.com", frozenset())):
            asyncio.run(handler(request))

    def create(self, who: str, **fields: Any) -> None:
        self.call(who, "create_subscription", pubsub.Subscription(name=NAME, topic=TOPIC, **fields))

    def update(self, who: str, *paths: str, **fields: Any) -> None:
        request = pubsub.UpdateSubscriptionRequest(subscription={"name": NAME, **fields}, update_mask={"paths": paths})
        self.call(who, "update_subscription", request)

    def forward(self, who: str, topic: str) -> None:
        options = admin.SubscriptionOptions(subscription=NAME, forward_to=topic)
        mask = {"paths": ["forward_to"]}
        request = admin.UpdateSubscriptionOptionsRequest(options=options, update_mask=mask)
        self.call(who, "update_subscription_options", request)

    def topic(self, name: str) -> Topic:
        found = self.plane.catalog.topic(name)
        assert found is not None
        return found

    @property
    def subscription(self) -> Subscription:
        found = self.plane.catalog.subscription(NAME)
        assert found is not None
        return found

    @property
    def authors(self) -> tuple[Author | None, Author | None]:
        record = self.plane.catalog.subscription(NAME)
        assert record is not None
        return record.delivery_author, record.letter_author


@pytest.fixture
def callers(plane: FakeControlPlane) -> Callers:
    return Callers(plane)


def test_who_creates_a_subscription_said_where_its_messages_go(callers: Callers) -> None:
    callers.create("ann", push_config=PUSH, dead_letter_policy=LETTERS)
    assert callers.authors == (ANN, ANN)


@pytest.mark.parametrize("config", [{"push_config": PUSH}, {"cloud_storage_config": STORAGE}])
def test_each_destination_has_who_set_it_last(callers: Callers, config: dict[str, Any]) -> None:
    (field,) = config
    callers.create("ann")
    assert callers.authors == (None, None), "it is pulled"
    callers.update("ann", field, **config)
    assert callers.authors == (ANN, None)
    callers.update("bob", "dead_letter_policy", dead_letter_policy=LETTERS)
    assert callers.authors == (ANN, BOB)
    callers.update("bob", field, **config)
    assert callers.authors == (BOB, BOB), "who says the same again stands for it"
    callers.update("ann", "labels", labels={"a": "b"})
    assert callers.authors == (BOB, BOB)
    callers.update("ann", field, "dead_letter_policy")
    assert callers.authors == (None, None)


def test_how_often_before_a_letter_says_nothing_of_where_it_goes(callers: Callers) -> None:
    callers.create("ann", dead_letter_policy=LETTERS)
    more = {"max_delivery_attempts": 9}
    callers.update("bob", "dead_letter_policy.max_delivery_attempts", dead_letter_policy=more)
    assert callers.authors == (None, ANN)
    callers.update("bob", "dead_letter_policy.dead_letter_topic", dead_letter_policy={"dead_letter_topic": OTHER})
    assert callers.authors == (None, BOB)


def test_forwards(callers: Callers) -> None:
    callers.create("ann")
    callers.forward("ann", OTHER)
    assert callers.authors == (ANN, None)
    callers.update("bob", "push_config")
    assert callers.authors == (ANN, None), "there was none to take away"
    callers.forward("bob", OTHER)
    assert callers.authors == (BOB, None)
    callers.forward("bob", "")
    assert callers.authors == (None, None)
    callers.update("ann", "push_config", push_config=PUSH)
    callers.forward("bob", "")
    assert callers.authors == (ANN, None), "it forwarded nothing"


def test_pushes_elsewhere(callers: Callers) -> None:
    callers.create("ann", push_config=PUSH)
    callers.call("bob", "modify_push_config", pubsub.ModifyPushConfigRequest(subscription=NAME, push_config=PUSH))
    assert callers.authors == (BOB, None)
    callers.update("ann", "push_config.push_endpoint", push_config={"push_endpoint": "https://example.com/y"})
    assert callers.authors == (ANN, None)
    callers.call("bob", "modify_push_config", pubsub.ModifyPushConfigRequest(subscription=NAME))
    assert callers.authors == (None, None)


ASKS_AS = {"ai_inference": {"endpoint": MODEL, "unstructured_inference": {}, "service_account_email": "a@b.example"}}
ASKS = {"ai_inference": {"endpoint": MODEL, "unstructured_inference": {}}}


def test_who_sets_transforms_that_ask_as_an_account_is_asked_for_that(callers: Callers) -> None:
    callers.create("ann", message_transforms=[ASKS])
    assert callers.subscription.transform_author is None, "nobody is asked as"
    callers.update("ann", "message_transforms", message_transforms=[ASKS, ASKS_AS])
    assert callers.subscription.transform_author == ANN
    callers.update("bob", "labels", labels={"a": "b"})
    assert callers.subscription.transform_author == ANN
    callers.update("bob", "message_transforms", message_transforms=[ASKS_AS])
    assert callers.subscription.transform_author == BOB
    callers.update("bob", "message_transforms", message_transforms=[])
    assert callers.subscription.transform_author is None
    assert callers.authors == (None, None)


def test_who_sets_transforms_of_a_topic_is_asked_for_them(callers: Callers) -> None:
    name = "projects/p/topics/asking"
    callers.call("ann", "create_topic", pubsub.Topic(name=name, message_transforms=[ASKS_AS]))
    assert callers.topic(name).transform_author == ANN
    for who, paths, fields, expected in (
        ("bob", ["labels"], {"labels": {"a": "b"}}, ANN),
        ("bob", ["message_transforms"], {"message_transforms": [ASKS_AS]}, BOB),
        ("ann", ["message_transforms"], {"message_transforms": [ASKS]}, None),
    ):
        request = pubsub.UpdateTopicRequest(topic={"name": name, **fields}, update_mask={"paths": paths})
        callers.call(who, "update_topic", request)
        assert callers.topic(name).transform_author == expected


def test_who_says_where_records_go_is_asked_for_that(callers: Callers) -> None:
    kept = "projects/p/topics/kept"
    callers.call("ann", "create_topic", pubsub.Topic(name=kept, message_retention_duration={"seconds": 86_400}))
    for who, paths, expected in (
        ("ann", ["records_topic"], ANN),
        ("bob", ["send_suspended"], ANN),
        ("bob", ["records_topic"], BOB),
        ("", ["records_topic"], None),
    ):
        options = admin.TopicOptions(topic=TOPIC, records_topic=kept)
        request = admin.UpdateTopicOptionsRequest(options=options, update_mask={"paths": paths})
        callers.call(who, "update_topic_options", request)
        assert callers.topic(TOPIC).records_author == expected
    assert callers.topic(TOPIC).transform_author is None


def test_where_callers_are_not_identified_nobody_is_stored(callers: Callers) -> None:
    callers.create("", push_config=PUSH, dead_letter_policy=LETTERS)
    assert callers.authors == (None, None)


def test_authors_are_stored_and_records_from_before_them_have_none() -> None:
    record = Subscription(2, NAME, 1, TOPIC)
    assert decode_record(encode_record(record)) == record
    several = Author("user:a@b.c", ("group:d@b.c",))
    written = Subscription(2, NAME, 1, TOPIC, delivery_author=several, letter_author=BOB, transform_author=ANN)
    assert decode_record(encode_record(written)) == written
    assert decode_record(encode_record(Topic(1, TOPIC))) == Topic(1, TOPIC)
    topic = Topic(1, TOPIC, records_author=several, transform_author=BOB)
    assert decode_record(encode_record(topic)) == topic
