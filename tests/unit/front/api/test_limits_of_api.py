"""The limits of the real service: each at the limit, which is taken, and one beyond, which is refused by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from syncpoint.base.model import limits
from syncpoint.base.model.errors import Code, InvalidArgument, ResourceExhausted, SyncpointError
from syncpoint.catalog.schemas.limits import DEFINITION_BYTES_MAX
from syncpoint.front.api import admin_handlers, schema_handlers
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("limits")

T, S, N = "projects/p/topics/given", "projects/p/subscriptions/given-given", "projects/p/snapshots/given"
DAY = 86_400
ZLIB = {"compression": {"compression_algorithm": "ZLIB", "compression_mode": "COMPRESS"}}
Ask = Callable[[Any], tuple[str, dict[str, Any]]]


class Limit(NamedTuple):
    """`ask`: a method and a request for a value; `good` is taken, `bad` refused with `code`, and `names` in the error's
    text or as its field. `row`: what the page of limits says of it."""

    row: str
    ask: Ask
    good: Any
    bad: Any
    names: str
    code: Code = Code.INVALID_ARGUMENT


def topic(**fields: Any) -> tuple[str, dict[str, Any]]:
    return "CreateTopic", {"name": "projects/p/topics/made", **fields}


def subscription(**fields: Any) -> tuple[str, dict[str, Any]]:
    return "CreateSubscription", {"name": "projects/p/subscriptions/made", "topic": T, **fields}


def publish(*messages: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "Publish", {"topic": T, "messages": messages}


def message(**fields: Any) -> tuple[str, dict[str, Any]]:
    return publish({"data": b"x", **fields})


def sized(size: int) -> tuple[str, dict[str, Any]]:
    request = pubsub.PublishRequest(topic=T, messages=[pubsub.PubsubMessage(data=bytes(size - 100))])
    return publish({"data": bytes(size - 100 + size - request.ByteSize())})


def modify(seconds: int) -> tuple[str, dict[str, Any]]:
    return "ModifyAckDeadline", {"subscription": S, "ack_ids": [""], "ack_deadline_seconds": seconds}


def acknowledge(size: int, method: str = "Acknowledge") -> tuple[str, dict[str, Any]]:
    ids, rest = divmod(size - len(S) - 2, 50)  # of 48 characters each
    assert not rest
    return method, {"subscription": S, "ack_ids": [""] * ids}


def retry(low: int, high: int) -> tuple[str, dict[str, Any]]:
    return subscription(retry_policy={"minimum_backoff": {"seconds": low}, "maximum_backoff": {"seconds": high}})


def attempts(number: int) -> tuple[str, dict[str, Any]]:
    policy = {"dead_letter_topic": T + "-dead", "max_delivery_attempts": number}
    return subscription(dead_letter_policy=policy)


def filtered(size: int) -> tuple[str, dict[str, Any]]:
    return subscription(filter="attributes:" + "k" * (size - len("attributes:")))


def labelled(labels: dict[str, str]) -> tuple[str, dict[str, Any]]:
    return topic(labels=labels)


def avro(size: int) -> tuple[str, dict[str, Any]]:
    text = '{"type": "record", "name": "R", "fields": [], "doc": "%s"}'
    definition = text % ("x" * (size - len(text % "")))
    schema = {"type": "AVRO", "definition": definition}
    return "CreateSchema", {"parent": "projects/p", "schema_id": "made", "schema": schema}


def named(size: int) -> tuple[str, dict[str, Any]]:
    return "CreateTopic", {"name": f"projects/p/topics/{'t' * size}"}


def pull(number: int) -> tuple[str, dict[str, Any]]:
    return "Pull", {"subscription": S, "max_messages": number, "return_immediately": True}


def masked(size: int) -> tuple[str, dict[str, Any]]:
    request = pubsub.UpdateTopicRequest(topic={"name": T}, update_mask={"paths": ["labels"] * ((size - 60) // 8)})
    while request.ByteSize() + 8 <= size:
        request.update_mask.paths.append("labels")
    return "UpdateTopic", {"topic": request.topic, "update_mask": request.update_mask}


def listed(number: int) -> tuple[str, dict[str, Any]]:
    return "ListTopics", {"project": "projects/p", "page_size": number}


def lasting(seconds: int) -> dict[str, Any]:
    return {"seconds": seconds}


def many(count: int) -> dict[str, str]:
    return {f"k{number}": "v" for number in range(count)}


LIMITS = [
    Limit("bytes of a publish request", sized, 10_000_000, 10_000_001, "request"),
    Limit("messages of a publish request", lambda n: publish(*[{"data": b"x"}] * n), 1_000, 1_001, "messages"),
    Limit("messages of a publish request, at least", lambda n: publish(*[{"data": b"x"}] * n), 1, 0, "messages"),
    Limit("attributes of a message", lambda n: message(attributes=many(n)), 100, 101, "attributes"),
    Limit("bytes of an attribute's key", lambda n: message(attributes={"é" * (n // 2): "v"}), 256, 258, "attributes"),
    Limit("bytes of an attribute's key, at least", lambda n: message(attributes={"k" * n: "v"}), 1, 0, "attributes"),
    Limit("bytes of an attribute's value", lambda n: message(attributes={"k": "v" * n}), 1_024, 1_025, "attributes"),
    Limit("bytes of an ordering key", lambda n: message(ordering_key="k" * n), 1_024, 1_025, "ordering_key"),
    Limit("ack_deadline_seconds, at least", lambda n: subscription(ack_deadline_seconds=n), 10, 9, "ack_deadline"),
    Limit("ack_deadline_seconds", lambda n: subscription(ack_deadline_seconds=n), 600, 601, "ack_deadline"),
    Limit("seconds of ModifyAckDeadline", modify, 600, 601, "deadline"),
    Limit("seconds of ModifyAckDeadline, at least", modify, 0, -1, "deadline"),
    Limit(
        "retention of a subscription, at least",
        lambda n: subscription(message_retention_duration=lasting(n)), 600, 599, "message_retention_duration",
    ),
    Limit(
        "retention of a subscription",
        lambda n: subscription(message_retention_duration=lasting(n)), 31 * DAY, 31 * DAY + 1,
        "message_retention_duration",
    ),
    Limit(
        "retention of a topic, at least",
        lambda n: topic(message_retention_duration=lasting(n)), 600, 599, "message_retention_duration",
    ),
    Limit(
        "retention of a topic",
        lambda n: topic(message_retention_duration=lasting(n)), 31 * DAY, 31 * DAY + 1, "message_retention_duration",
    ),
    Limit(
        "time to live of a subscription, at least",
        lambda n: subscription(expiration_policy={"ttl": lasting(n)}, message_retention_duration=lasting(600)),
        DAY, DAY - 1, "ttl",
    ),
    Limit(
        "time to live of a subscription, at least",
        lambda n: subscription(expiration_policy={"ttl": lasting(n)}), 7 * DAY, 7 * DAY - 1, "ttl",
    ),
    Limit("bytes of an acknowledge request", acknowledge, 524_288, 524_338, "ack_ids"),
    Limit("back-off of retries", lambda n: retry(0, n), 600, 601, "maximum_backoff"),
    Limit("first back-off of retries", lambda n: retry(n, 600), 600, 601, "minimum_backoff"),
    Limit("first back-off of retries, at least", lambda n: retry(n, 600), 0, -1, "minimum_backoff"),
    Limit("delivery attempts before a dead letter, at least", attempts, 5, 4, "max_delivery_attempts"),
    Limit("delivery attempts before a dead letter", attempts, 100, 101, "max_delivery_attempts"),
    Limit("bytes of a filter", filtered, 256, 257, "filter"),
    Limit("transforms of a topic", lambda n: topic(message_transforms=[ZLIB] * n), 5, 6, "message_transforms"),
    Limit(
        "transforms of a subscription", lambda n: subscription(message_transforms=[ZLIB] * n), 5, 6,
        "message_transforms",
    ),
    Limit("labels of a resource", lambda n: labelled(many(n)), 64, 65, "labels"),
    Limit("characters of a label's key", lambda n: labelled({"k" * n: ""}), 63, 64, "label"),
    Limit("characters of a label's key, at least", lambda n: labelled({"k" * n: ""}), 1, 0, "label"),
    Limit("characters of a label's value", lambda n: labelled({"k": "v" * n}), 63, 64, "label"),
    Limit("characters of an id", named, 255, 256, "topics"),
    Limit("characters of an id, at least", named, 3, 2, "topics"),
    Limit("bytes of a schema's definition", avro, 300 * 1024, 300 * 1024 + 1, "definition"),
    Limit("max_messages of Pull, at least", pull, 1, 0, "max_messages"),
    Limit("page_size, at least", listed, 0, -1, "page_size"),
]  # fmt: skip


@pytest.mark.parametrize("limit", LIMITS, ids=[limit.row for limit in LIMITS])
@simulated()
async def test_at_the_limit_and_one_beyond(harness: ServicerHarness, *, limit: Limit) -> None:
    for name in (T, T + "-dead"):
        await harness.call("CreateTopic", name=name)
    await harness.call("CreateSubscription", name=S, topic=T)
    before = len(harness.memory.catalog.records())
    await harness.call("Publish", topic=T, messages=[{"data": b"held"}])
    (held,) = await harness.pull(subscription=S)

    def asked(value: Any) -> tuple[str, dict[str, Any]]:
        method, fields = limit.ask(value)
        if "ack_ids" in fields:
            fields["ack_ids"] = [held.ack_id] * len(fields["ack_ids"])
        return method, fields

    method, fields = asked(limit.bad)
    with pytest.raises(SyncpointError) as refused:
        await harness.call(method, **fields)
    error = refused.value
    assert error.code is limit.code
    text = f"{error.field} {error.message}" if isinstance(error, InvalidArgument) else error.message
    assert limit.names in text, text
    assert len(harness.memory.catalog.records()) == before, "nothing of it was done"
    method, fields = asked(limit.good)
    await harness.call(method, **fields)


@simulated()
async def test_a_request_about_a_resource_has_bounded_bytes(harness: ServicerHarness) -> None:
    """No legal one comes near, so at the limit another bound is named."""
    await harness.call("CreateTopic", name=T)
    row = "| bytes of a request about topics, subscriptions, schemas or policies | | 1,048,576 |"
    assert row in (Path(__file__).parents[4] / "docs" / "limits.md").read_text()
    for size, refusal in ((1_048_576, "the maximum is 1000"), (1_048_584, "not be larger than 1048576 bytes")):
        method, fields = masked(size)
        with pytest.raises(InvalidArgument, match=refusal):
            await harness.call(method, **fields)


def test_the_page_of_limits_has_a_line_for_each() -> None:
    page = (Path(__file__).parents[4] / "docs" / "limits.md").read_text()
    for limit in LIMITS:
        row = limit.row.removesuffix(", at least")
        number = f"{limit.good:,}"
        lines = [line for line in page.splitlines() if line.startswith(f"| {row} |")]
        assert lines, row
        if limit.good > 0:
            assert any(number in line for line in lines), (row, number)


@simulated()
async def test_there_are_so_many_subscriptions_snapshots_and_schemas(
    harness: ServicerHarness, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_handlers, "SUBSCRIPTIONS_PER_TOPIC_MAX", 2)
    monkeypatch.setattr(admin_handlers, "SNAPSHOTS_PER_TOPIC_MAX", 2)
    await harness.call("CreateTopic", name=T)
    for number in range(2):
        await harness.call("CreateSubscription", name=f"{S}{number}", topic=T)
    for number in range(2):
        await harness.call("CreateSnapshot", name=f"{N}{number}", subscription=f"{S}0")
    with pytest.raises(ResourceExhausted, match="already has 2 subscriptions"):
        await harness.call("CreateSubscription", name=S, topic=T)
    with pytest.raises(ResourceExhausted, match="already has 2 snapshots"):
        await harness.call("CreateSnapshot", name=N, subscription=f"{S}0")
    monkeypatch.setattr(schema_handlers, "SCHEMAS_PER_PROJECT_MAX", 1)
    schema = {"type": "AVRO", "definition": '"int"'}
    await harness.call("CreateSchema", parent="projects/p", schema_id="one", schema=schema)
    with pytest.raises(ResourceExhausted, match="already has 1 schemas"):
        await harness.call("CreateSchema", parent="projects/p", schema_id="two", schema=schema)


def test_the_limits_are_those_that_are_documented_by_the_real_service() -> None:
    assert (limits.SUBSCRIPTIONS_PER_TOPIC_MAX, limits.SNAPSHOTS_PER_TOPIC_MAX) == (10_000, 5_000)
    assert (limits.ACK_REQUEST_BYTES_MAX, limits.PULL_MESSAGES_MAX, limits.PAGE_SIZE_MAX) == (512 * 1024, 1_000, 1_000)
    assert DEFINITION_BYTES_MAX == 300 * 1024
