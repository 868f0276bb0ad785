"""The server's own administration: what it shows against a model, and limits and options that hold."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

import syncpoint
from syncpoint.base.model.errors import Code, InvalidArgument, SyncpointError
from syncpoint.base.model.flow import FlowLimit, FlowLimits
from syncpoint.catalog.metadata.records import Subscription, Topic
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf.messages import admin

OTHER = "projects/p/topics/other"
GONE_TOPIC, GONE = "projects/p/topics/gone", "projects/p/subscriptions/gone"


async def ack(harness: ServicerHarness, received) -> None:
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[one.ack_id for one in received])


async def limit(harness: ServicerHarness, *paths: str, **fields) -> admin.Limits:
    return await harness.call("UpdateLimits", limits=fields, update_mask={"paths": paths})


# -- the server and its disks ------------------------------------------------------------------------------------------


@simulated()
async def test_the_server_describes_itself(harness: ServicerHarness) -> None:
    await harness.call("CreateSnapshot", name="projects/p/snapshots/snap", subscription=SUB)
    await asyncio.sleep(60)
    server = await harness.call("GetServer")
    assert server.version == syncpoint.__version__
    assert server.universe == harness.store.universe
    assert (server.log_counter, server.durability) == (1, admin.Durability.Value("SYNC"))
    assert (server.topics, server.subscriptions, server.snapshots) == (1, 1, 1)
    assert server.uptime.ToNanoseconds() == pytest.approx(60e9, abs=1e9)
    assert server.start_time.ToNanoseconds() + server.uptime.ToNanoseconds() == harness.clock.time_ns()
    assert server.appended_position == server.persisted_position == len(harness.store.entries)
    assert not server.draining
    await harness.crash()
    harness.admin.draining = True
    server = await harness.call("GetServer")
    assert (server.log_counter, server.draining, server.topics) == (2, True, 1)


@simulated()
async def test_what_is_not_persisted_yet_shows(harness: ServicerHarness) -> None:
    harness.disks_rest = True
    publishing = asyncio.create_task(harness.put("x"))
    await asyncio.sleep(0.01)
    server = await harness.call("GetServer")
    assert server.appended_position > server.persisted_position
    assert server.under_replicated == server.appended_position - server.persisted_position
    harness.persist()
    await publishing


@simulated()
async def test_disks_are_listed_with_what_is_wrong(harness: ServicerHarness) -> None:
    (disk,) = (await harness.call("ListDisks")).disks
    assert (disk.path, disk.state, disk.reason) == ("memory", admin.Disk.OK, "")
    states = (("failed", admin.Disk.FAILED), ("healing", admin.Disk.HEALING), ("damaged", admin.Disk.DAMAGED))
    for state, number in states:
        more = {"reason": "broken", "position": 1, "free_bytes": 7, "unreadable": 5}
        harness.store.state = replace(harness.store.state, state=state, **more)
        (disk,) = (await harness.call("ListDisks")).disks
        assert disk.damaged == 5
        assert (disk.state, disk.reason, disk.position, disk.free_bytes) == (number, "broken", 1, 7)
        assert disk.under_replicated == len(harness.store.entries) - 1


@pytest.mark.parametrize("method", ["GetServer", "GetSubscriptionState", "GetTopicState", "UpdateLimits"])
@simulated()
async def test_garbage_is_no_request(harness: ServicerHarness, *, method: str) -> None:
    with pytest.raises(SyncpointError, match=f"not a valid {method}Request"):
        await harness.channel.unary(f"/syncpoint.admin.v1.Admin/{method}", b"\xff")


# -- limits ------------------------------------------------------------------------------------------------------------


@simulated()
async def test_the_limits_without_any_change(harness: ServicerHarness) -> None:
    shown, usual = await harness.call("GetLimits"), FlowLimits()
    for scope in ("system", "topic", "subscriber"):
        found = getattr(shown, scope)
        assert FlowLimit(found.messages, found.bytes) == getattr(usual, scope)
    assert not shown.topics
    assert not shown.subscriptions


@simulated()
async def test_a_mask_changes_what_it_names_and_nothing_else(harness: ServicerHarness) -> None:
    before = await harness.call("GetLimits")
    answer = await limit(harness, "topic", topic={"messages": 5}, system={"messages": 1})
    assert (answer.topic.messages, answer.topic.bytes) == (5, 0)
    assert answer.system == before.system
    answer = await limit(harness, "topics", "subscriptions", topics={TOPIC: {"messages": 7}}, subscriptions={SUB: {}})
    assert answer.topics[TOPIC].messages == 7
    assert list(answer.subscriptions) == [SUB]
    assert answer.topic.messages == 5
    answer = await limit(harness, "topics", topics={OTHER: {"bytes": 9}})
    assert list(answer.topics) == [OTHER]  # a map is replaced as a whole
    answer = await limit(harness, "topics")
    assert not answer.topics
    assert answer == await harness.call("GetLimits")


@simulated()
async def test_bad_changes_of_limits_change_nothing(harness: ServicerHarness) -> None:
    before = await harness.call("GetLimits")
    for paths, fields, words in (
        ((), {"topic": {"messages": 5}}, "update_mask must name at least one field"),
        (("nothing",), {}, "update_mask: 'nothing' is not a field that can be changed"),
        (("topic.messages",), {}, "update_mask: 'topic.messages' is not a field that can be changed"),
        (("system",), {"system": {"messages": -1}}, "limits must not be negative (0 means no bound)"),
        (("topic",), {"topic": {"bytes": -1}}, "limits must not be negative (0 means no bound)"),
        (("subscriber",), {"subscriber": {"bytes": -1}}, "limits must not be negative (0 means no bound)"),
        (("topics",), {"topics": {TOPIC: {"bytes": -1}}}, "limits must not be negative (0 means no bound)"),
        (("subscriptions",), {"subscriptions": {SUB: {"bytes": -1}}}, "limits must not be negative"),
        (("topics",), {"topics": {"orders": {}}}, "Invalid [topics] name: (name=orders)"),
        (("subscriptions",), {"subscriptions": {"x": {}}}, "Invalid [subscriptions] name: (name=x)"),
    ):
        with pytest.raises(SyncpointError) as caught:
            await limit(harness, *paths, **fields)
        assert caught.value.code is Code.INVALID_ARGUMENT
        assert words in caught.value.message
    assert await harness.call("GetLimits") == before


@simulated()
async def test_racing_changes_do_not_undo_one_another(harness: ServicerHarness) -> None:
    harness.disks_rest = True
    scopes = ("system", "topic", "subscriber")
    changing = [asyncio.create_task(limit(harness, scope, **{scope: {"messages": 77}})) for scope in scopes]
    await asyncio.sleep(0.01)
    assert (await harness.call("GetLimits")).system.messages != 77  # in force when it is persisted
    harness.persist()
    await asyncio.gather(*changing)
    for _ in range(2):
        shown = await harness.call("GetLimits")
        assert [getattr(shown, scope).messages for scope in scopes] == [77] * 3
        harness.disks_rest = False
        await harness.crash()


BINDING = [
    (scope, one)
    for scope in ("system", "topic", "topics", "subscriber", "subscriptions")
    for one in ({"messages": 2}, {"bytes": 2100})
]


@pytest.mark.parametrize(("scope", "one"), BINDING)
@pytest.mark.parametrize("restart", [False, True])
@simulated()
async def test_every_limit_binds_alone_and_after_a_restart(
    harness: ServicerHarness, *, scope: str, one: dict[str, int], restart: bool
) -> None:
    fields = {"system": {}, "topic": {}, "subscriber": {}}
    fields[scope] = {{"topics": TOPIC, "subscriptions": SUB}[scope]: one} if scope.endswith("s") else one
    await limit(harness, *fields, **fields)
    if restart:
        await harness.crash()
    stream = await harness.stream()
    if scope.startswith("subs"):
        for _ in range(4):
            await harness.put("x" * 950)
        await stream.messages(2)
        assert await stream.silent(3)
        return
    harness.disks_rest = True
    waiting = [asyncio.create_task(harness.put("x" * 950)) for _ in range(2)]
    await asyncio.sleep(0.01)
    with pytest.raises(SyncpointError) as caught:
        await harness.put("x" * 950)
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    harness.persist()
    await asyncio.gather(*waiting)
    assert len(await stream.messages(2)) == 2


# -- where a subscription stands ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@simulated(ack_deadline_s=600)
async def test_the_backlog_is_exact(harness: ServicerHarness, *, seed: int) -> None:
    """Against a set of ids: publishes, pulls, acks of a random part, crashes, deletion of what nobody needs."""
    chance, backlog, held, published = random.Random(seed), dict[str, int](), [], 0
    for _ in range(60):
        match chance.randrange(6):
            case 0 | 1:
                count = chance.randrange(1, 40)
                at = harness.clock.time_ns()
                backlog |= dict.fromkeys(await harness.put(*["x" * 100] * count), at)
                published += count
            case 2:
                held += await harness.pull(chance.randrange(1, 60), timeout=2.0)
            case 3 | 4 if held:
                chance.shuffle(held)
                cut = chance.randrange(1, len(held) + 1)
                await ack(harness, held[:cut])
                for one in held[:cut]:
                    del backlog[one.message.message_id]
                del held[:cut]
            case 5:
                held.clear()
                await harness.crash()
            case _:
                await asyncio.sleep(chance.random() * 5)
        state = await harness.call("GetSubscriptionState", subscription=SUB)
        assert state.backlog_messages == len(backlog)
        assert state.outstanding_messages == len(held)
        assert sum(source.next_offset for source in state.sources) <= published
        assert state.HasField("oldest_unacked_age") is bool(backlog)
        if backlog:
            age = harness.clock.time_ns() - min(backlog.values())
            assert state.oldest_unacked_age.ToNanoseconds() == pytest.approx(age, abs=1e8)
            assert state.backlog_bytes == pytest.approx(150 * len(backlog), rel=0.3)
        else:
            assert state.backlog_bytes == 0


class AuthorsOfTest:
    """Refuses everything for a reason."""

    refused = "grant it roles/pubsub.subscriber on the subscription"

    def ask(self, record: Topic | Subscription) -> str:
        return self.refused

    ask_delivery = ask_letters = ask_records = ask_acting = ask


@simulated()
async def test_what_keeps_messages_from_the_dead_letter_topic_is_said(harness: ServicerHarness) -> None:
    service = AuthorsOfTest()
    harness.admin.service = service
    assert not (await harness.call("GetSubscriptionState", subscription=SUB)).dead_letter_advice
    await harness.call("CreateTopic", name="projects/p/topics/dead")
    await harness.call(
        "CreateSubscription",
        name="projects/p/subscriptions/careful",
        topic=TOPIC,
        dead_letter_policy={"dead_letter_topic": "projects/p/topics/dead"},
    )
    state = await harness.call("GetSubscriptionState", subscription="projects/p/subscriptions/careful")
    assert "grant it roles/pubsub.subscriber on the subscription" in state.dead_letter_advice
    service.refused = ""
    state = await harness.call("GetSubscriptionState", subscription="projects/p/subscriptions/careful")
    assert not state.dead_letter_advice


@simulated()
async def test_what_keeps_records_and_models_from_being_asked_is_said(harness: ServicerHarness) -> None:
    service = AuthorsOfTest()
    harness.admin.service = service
    topic = await harness.call("GetTopicState", topic=TOPIC)
    assert topic.records_advice == topic.transform_advice == service.refused
    assert (await harness.call("GetSubscriptionState", subscription=SUB)).transform_advice == service.refused
    service.refused = ""
    topic = await harness.call("GetTopicState", topic=TOPIC)
    assert not topic.HasField("records_advice")
    assert not topic.HasField("transform_advice")
    assert not (await harness.call("GetSubscriptionState", subscription=SUB)).HasField("transform_advice")


@simulated(ack_deadline_s=600)
async def test_ranges_are_shown_up_to_a_number(harness: ServicerHarness) -> None:
    await harness.put(*map(str, range(250)))
    got = sorted(await harness.pull(), key=lambda one: int(one.message.data))
    await ack(harness, got[1::2])
    state = await harness.call("GetSubscriptionState", subscription=SUB, ranges_max=3)
    (source,) = state.sources
    assert [(one.begin, one.end) for one in source.acked] == [(1, 2), (3, 4), (5, 6)]
    assert (source.ranges_total, source.acked_messages) == (125, 125)
    assert (source.first_unacked_offset, source.next_offset, source.start_offset) == (0, 250, 0)
    assert (state.backlog_messages, state.outstanding_messages) == (125, 125)
    await ack(harness, got[:100:2])
    (source,) = (await harness.call("GetSubscriptionState", subscription=SUB)).sources
    assert len(source.acked) == 76  # 0 to 99, then every other one: all are fewer than a hundred
    assert source.first_unacked_offset == 100
    with pytest.raises(SyncpointError, match="ranges_max must not be negative"):
        await harness.call("GetSubscriptionState", subscription=SUB, ranges_max=-1)


@simulated()
async def test_the_sync_point_and_the_generation_show(harness: ServicerHarness) -> None:
    await harness.put("a", "b")
    await harness.call("CreateSubscription", name="projects/p/subscriptions/later", topic=TOPIC)
    await harness.put("c")
    state = await harness.call("GetSubscriptionState", subscription="projects/p/subscriptions/later")
    assert [(one.start_offset, one.next_offset) for one in state.sources] == [(2, 3)]
    assert (state.backlog_messages, state.generation, state.subscribers) == (1, 0, 0)
    await harness.call("Seek", subscription="projects/p/subscriptions/later", time={"seconds": 4_000_000_000})
    state = await harness.call("GetSubscriptionState", subscription="projects/p/subscriptions/later")
    assert (state.backlog_messages, state.generation) == (0, 1)


@simulated()
async def test_subscribers_are_counted(harness: ServicerHarness) -> None:
    streams = [await harness.stream() for _ in range(2)]
    pulling = asyncio.create_task(harness.pull())
    await asyncio.sleep(0.01)
    assert (await harness.call("GetSubscriptionState", subscription=SUB)).subscribers == 3
    await pulling
    streams[0].raw.cancel()
    await asyncio.sleep(0.01)
    assert (await harness.call("GetSubscriptionState", subscription=SUB)).subscribers == 1


@simulated()
async def test_a_detached_subscription_has_no_backlog(harness: ServicerHarness) -> None:
    await harness.put("a")
    await harness.call("DetachSubscription", subscription=SUB)
    state = await harness.call("GetSubscriptionState", subscription=SUB)
    assert (state.backlog_messages, len(state.sources)) == (0, 0)


@simulated()
async def test_states_of_what_is_not_there(harness: ServicerHarness) -> None:
    for method, fields, code, name in (
        ("GetSubscriptionState", {"subscription": GONE}, Code.NOT_FOUND, GONE),
        ("GetSubscriptionState", {"subscription": "x"}, Code.INVALID_ARGUMENT, "Invalid [subscriptions] name"),
        ("GetTopicState", {"topic": GONE_TOPIC}, Code.NOT_FOUND, GONE_TOPIC),
        ("GetTopicState", {"topic": "x"}, Code.INVALID_ARGUMENT, "Invalid [topics] name"),
        ("UpdateSubscriptionOptions", {"options": {"subscription": GONE}}, Code.NOT_FOUND, GONE),
        ("UpdateSubscriptionOptions", {"options": {"subscription": SUB}}, Code.INVALID_ARGUMENT, "update_mask"),
    ):
        with pytest.raises(SyncpointError) as caught:
            await harness.call(method, **fields)
        assert caught.value.code is code
        assert name in caught.value.message


@simulated()
async def test_a_topics_sources_come_with_logs_and_go_with_their_messages(harness: ServicerHarness) -> None:
    await harness.call("CreateSnapshot", name="projects/p/snapshots/snap", subscription=SUB)
    for counter in (1, 2, 3):
        await harness.put("a", "b")
        state = await harness.call("GetTopicState", topic=TOPIC)
        assert [one.log_counter for one in state.sources] == list(range(1, counter + 1))
        assert [(one.first_offset, one.next_offset) for one in state.sources] == [(0, 2)] * counter
        assert (state.subscriptions, state.snapshots) == (1, 1)
        if counter < 3:
            await harness.crash()
    await harness.call("DeleteSnapshot", snapshot="projects/p/snapshots/snap")
    got = [one for _ in range(3) for one in await harness.pull()]
    await ack(harness, got)
    await asyncio.sleep(2)
    state = await harness.call("GetTopicState", topic=TOPIC)
    assert [(one.log_counter, one.first_offset, one.next_offset) for one in state.sources] == [(3, 2, 2)]


# -- options -----------------------------------------------------------------------------------------------------------


@simulated()
async def test_early_delivery_reaches_a_stream_that_is_open(harness: ServicerHarness) -> None:
    stream = await harness.stream()
    await harness.put("a")
    await stream.messages(1)

    async def switch(early: bool) -> None:
        options = {"subscription": SUB, "early_delivery": early}
        answer = await harness.call(
            "UpdateSubscriptionOptions", options=options, update_mask={"paths": ["early_delivery"]}
        )
        assert answer.early_delivery is early
        shown = await harness.call("GetSubscriptionState", subscription=SUB)
        assert shown.options.early_delivery is early

    async def seen_before_persisted() -> bool:
        harness.disks_rest = True
        publishing = asyncio.create_task(harness.put("b"))
        early = not await stream.silent(1)
        harness.persist()
        harness.disks_rest = False
        await publishing
        if not early:
            await stream.messages(1)
        return early

    assert not await seen_before_persisted()
    await switch(True)
    assert await seen_before_persisted()
    await switch(False)
    assert not await seen_before_persisted()
    await switch(True)
    await harness.crash()
    stream = await harness.stream()
    await stream.messages(4)
    assert await seen_before_persisted()


@simulated()
async def test_times_to_live_are_kept_shown_and_in_force(harness: ServicerHarness) -> None:
    async def change(method: str, **options: object) -> Any:
        return await harness.call(method, options=options, update_mask={"paths": [*options][1:]})

    for method, name in (("UpdateTopicOptions", "default_ttl"), ("UpdateSubscriptionOptions", "ttl")):
        of = {"topic": TOPIC} if name == "default_ttl" else {"subscription": SUB}
        for bad in ({"nanos": 1}, {"seconds": -1}, {"seconds": 400_000_000}):
            with pytest.raises(InvalidArgument, match=name):
                await change(method, **of, **{name: bad})
        changed = await change(method, **of, **{name: {"seconds": 1, "nanos": 5}})
        assert getattr(changed, name).seconds == 2
        assert getattr(await harness.call(method.replace("Update", "Get"), **of), name).seconds == 2
        await harness.put("old")
        await asyncio.sleep(2.5)
        await harness.put("new")
        assert [one.message.data for one in await harness.pull()] == [b"new"]
        await asyncio.sleep(12)
        await change(method, **of, **{name: None})
    assert not (await harness.call("GetSubscriptionOptions", subscription=SUB)).HasField("ttl")
    with pytest.raises(SyncpointError, match="no dead-letter policy"):
        await change("UpdateSubscriptionOptions", subscription=SUB, dead_letter_expired=True)


@simulated()
async def test_only_options_can_be_changed(harness: ServicerHarness) -> None:
    with pytest.raises(SyncpointError, match="update_mask: 'subscription' is not a field that can be changed"):
        await harness.call(
            "UpdateSubscriptionOptions", options={"subscription": SUB}, update_mask={"paths": ["subscription"]}
        )


@simulated()
async def test_what_the_disks_cannot_show_is_said_and_the_rest_is_reported(harness: ServicerHarness) -> None:
    await harness.put("a")
    harness.store.read = lambda source, begin, size, reply, early=False: reply(OSError("rotten"))  # type: ignore
    state = await harness.call("GetSubscriptionState", subscription=SUB)
    assert (state.backlog_messages, len(state.sources)) == (1, 1)
    assert list(state.unknown) == ["rotten"]
    assert not state.HasField("oldest_unacked_age")


@simulated()
async def test_a_node_has_one_durability_class(harness: ServicerHarness) -> None:
    (only,) = (await harness.call("ListDurabilityClasses")).durability_classes
    assert (only.name, only.clusters, only.disks, only.durability) == ("default", 1, 1, admin.Durability.Value("SYNC"))
    with pytest.raises(SyncpointError, match=r"single server .* Only clusters") as caught:
        await harness.call("CreateDurabilityClass", durability_class={"name": "fast"})
    assert caught.value.code is Code.FAILED_PRECONDITION
