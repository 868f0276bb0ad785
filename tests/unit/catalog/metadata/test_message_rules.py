"""Transforms and stamps of records: found once, and not at all where there are none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncpoint.catalog.metadata import records
from syncpoint.catalog.metadata.records import Subscription, Topic, TopicSchema
from syncpoint.wire.protobuf.messages import pubsub

NAME = "projects/p/topics/t"


def config(*disabled: bool) -> bytes:
    transforms = [pubsub.MessageTransform(disabled=one) for one in disabled]
    encoded: bytes = pubsub.Topic(message_transforms=transforms, labels={"a": "b"}).SerializeToString()
    return encoded


def test_transforms_count_unless_all_are_disabled() -> None:
    assert not Topic(1, NAME).transforms
    assert not Topic(1, NAME, config(True, True)).transforms
    assert len(Topic(1, NAME, config(False, True)).transforms) == 2
    assert not Subscription(1, "s", 1, NAME).transforms


def test_stamps_differ_where_settings_do_and_nowhere_else() -> None:
    schema = TopicSchema("projects/p/schemas/s", 7, 1)
    plain, changed = Topic(1, NAME, config(True)), Topic(1, NAME, config(False))
    stamps = [changed.stamp, replace(plain, schema=schema).stamp, replace(changed, schema=schema).stamp]
    assert plain.stamp == 0
    assert len({0, *stamps}) == 4
    assert replace(changed, name="other", retention_s=7).stamp == changed.stamp


def test_a_record_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(1, NAME, config(False))
    stamp, transforms = topic.stamp, topic.transforms
    monkeypatch.delattr(records, "topic_transforms")
    monkeypatch.delattr(records, "stamp_of")
    assert (topic.stamp, topic.transforms) == (stamp, transforms)
    assert topic == Topic(1, NAME, config(False)), "what was found is no part of what a record says"
