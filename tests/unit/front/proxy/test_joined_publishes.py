"""Publishes that come together reach their chain as one, and are answered each for itself."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.kernel import split
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model.errors import Code, InvalidArgument, ResourceExhausted, SyncpointError
from tests.kit.proxy import TOPIC, ProxyHarness, in_harness
from tests.kit.proxy_processes import PublishProcess
from tests.kit.publishing_connection import PublishingConnection, publish_request


def publish(*data: str, **fields: str) -> bytes:
    return publish_request(*data, topic=TOPIC, **fields)


async def connected(harness: ProxyHarness) -> PublishingConnection:
    """A connection whose header block is known."""
    await harness.cluster([1])
    wire = PublishingConnection(harness.processes["proxy"].proxy.methods())
    for _ in range(2):
        wire.send(publish("warm"))
    await asyncio.sleep(1)
    harness.stored[1].clear()
    return wire


@in_harness()
async def test_plain_requests_without_a_key_are_one(harness: ProxyHarness) -> None:
    wire = await connected(harness)
    publisher = harness.processes["proxy"].proxy.publisher
    before = publisher.published
    sids = wire.send(publish("a"), publish("b", "c"), publish("d"))
    await asyncio.sleep(1)
    ((stored, ids),) = harness.stored[1].values()
    assert stored == publish("a") + publish("b", "c") + publish("d")
    assert wire.answers(sids) == [ids[:1], ids[1:3], ids[3:]]
    assert publisher.published == before + 3


@in_harness()
async def test_keys_other_topics_and_what_breaks_a_rule_go_alone(harness: ProxyHarness) -> None:
    wire = await connected(harness)
    other = harness.add_topic("projects/p/topics/other")
    sids = wire.send(
        publish("a"),
        publish("b"),
        publish("c", key="k"),
        publish("d", key="k"),
        publish("e", googx="no"),
        publish_request("f", topic=other.name),
        publish("g"),
        publish("h"),
    )
    await asyncio.sleep(1)
    assert len(harness.stored[1]) >= 5
    assert [ids is not None for ids in wire.answers(sids)].count(True) >= 7


@in_harness()
async def test_where_the_chain_refuses_them_together_each_goes_alone(harness: ProxyHarness) -> None:
    """A chain may know a rule that the proxy does not."""
    wire = await connected(harness)
    for process in harness.processes.values():
        if isinstance(process, PublishProcess):
            process.refusals = [InvalidArgument("messages[1]", "no"), InvalidArgument("messages[0]", "no")]
    sids = wire.send(publish("a"), publish("b"), publish("c"))
    await asyncio.sleep(1)
    assert [ids is not None for ids in wire.answers(sids)] == [False, True, True]
    assert harness.found(1) == [b"b", b"c"]


@in_harness()
async def test_any_other_failure_reaches_each(harness: ProxyHarness) -> None:
    wire = await connected(harness)
    for process in harness.processes.values():
        if isinstance(process, PublishProcess):
            process.refusals = [SyncpointError(Code.FAILED_PRECONDITION, "suspended")]
    sids = wire.send(publish("a"), publish("b"))
    await asyncio.sleep(1)
    assert wire.answers(sids) == [None, None]
    assert not wire.conn.streams
    assert not wire.conn.batched_calls


@in_harness()
async def test_without_room_each_is_refused(harness: ProxyHarness) -> None:
    wire = await connected(harness)
    publisher = harness.processes["proxy"].proxy.publisher

    def full(*_: object) -> None:
        raise ResourceExhausted("full")

    publisher.rate_limiter.enter = full
    sids = wire.send(publish("a"), publish("b"))
    await asyncio.sleep(1)
    assert wire.answers(sids) == [None, None]
    assert not wire.conn.streams
    assert not wire.conn.batched_calls


def test_responses_are_cut_by_the_messages_of_each_request() -> None:
    one, three = b"\n\x01a", b"\n\x01b\n\x02cc\n\x00"
    assert split.responses_of(one + three, [1, 3]) == [one, three]
    assert split.responses_of(b"", []) == []
    for response, counts in ((one, []), (one, [2]), (three, [1, 1]), (b"\x12\x01a", [1]), (one[:-1], [1])):
        with pytest.raises(Malformed):
            split.responses_of(response, counts)
