"""Streams of subscriptions with transforms: the forwarder lends in turns, and learns what became of each response."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from syncpoint.catalog.metadata.records import Subscription
from syncpoint.catalog.transforms.errors import TransformError
from syncpoint.catalog.transforms.message_transforms import Outcome
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.proxy import ProxyHarness, in_harness
from tests.kit.proxy_processes import Session
from tests.kit.transforming import PlayedTransformer
from tests.unit.front.proxy.test_pull_relays import cluster, forwarder

ANY = pubsub.Subscription(message_transforms=[pubsub.MessageTransform()]).SerializeToString()


class Played(PlayedTransformer):
    """Drops and fails as the data of a message says."""

    async def play(self, transforms: Any, messages: Any) -> list[Outcome]:
        outcomes: dict[bytes, Outcome] = {b"drop": None, b"fail": TransformError("no")} if transforms else {}
        return [outcomes.get(one.data, one) for one in messages]


def with_config(harness: ProxyHarness, config: bytes) -> None:
    known = harness.catalog.subscription_by_incarnation(harness.subscription.incarnation)
    assert isinstance(known, Subscription)
    harness.put(replace(known, ordered=True, config=config))


def turns(session: Session) -> list[tuple[int, int]]:
    """How many were dropped and how many failed, turn by turn."""
    return [(len(one.dropped), len(one.failed)) for one in session.turns]


@in_harness()
async def test_a_forwarder_learns_what_became_of_each_response_before_it_lends_more(harness: ProxyHarness) -> None:
    with_config(harness, ANY)
    proxy = await cluster(harness)
    proxy.relay.transformer = Played.of({})
    stream = await harness.stream(client_id="me")
    assert await stream.data() == [b"s1"]
    one = forwarder(harness, "s1")
    (session,) = one.sessions
    assert session.first.client_id == "me"
    one.send(b"fail", b"drop", b"a")
    assert await stream.data() == [b"a"]
    one.send()  # no messages: nothing to be said
    one.send(b"b")
    assert [await stream.data(), await stream.data()] == [[], [b"b"]]
    await stream.send(stream_ack_deadline_seconds=90)
    await asyncio.sleep(0.1)
    assert turns(session) == [(0, 0), (1, 1), (0, 0)]
    assert [later.stream_ack_deadline_seconds for later in session.later] == [90]
    assert one.calls == [], "what is said between responses would come too late"


@in_harness()
async def test_where_transforms_are_new_the_stream_behind_is_opened_anew(harness: ProxyHarness) -> None:
    proxy = await cluster(harness)
    proxy.relay.transformer = Played.of({})
    stream = await harness.stream()
    assert await stream.data() == [b"s1"]
    one = forwarder(harness, "s1")
    with_config(harness, ANY)
    one.send(b"fail")
    one.send(b"later")
    while await stream.data() == []:
        pass
    await asyncio.sleep(0.1)
    assert len([call for call in one.calls if call.ack_ids]) == 2, "both are free again"
    in_turns = next(each for name in ("s1", "s2") for each in forwarder(harness, name).open_sessions)
    assert turns(in_turns) == [(0, 0)]


@in_harness()
async def test_without_transforms_the_stream_may_go_on_in_turns(harness: ProxyHarness) -> None:
    with_config(harness, ANY)
    proxy = await cluster(harness)
    proxy.relay.transformer = Played.of({})
    stream = await harness.stream()
    await stream.data()
    with_config(harness, b"")
    one = forwarder(harness, "s1")
    one.send(b"fail")
    assert await stream.data() == [b"fail"]
    await asyncio.sleep(0.1)
    assert turns(one.sessions[0]) == [(0, 0), (0, 0)]
