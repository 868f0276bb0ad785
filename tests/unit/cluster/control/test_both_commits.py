"""The same requests to one node and to a cluster: they answer alike, and fail alike, to the letter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.catalog.metadata.records import CatalogChange, Setting, Topic
from syncpoint.testing.rigs.plain_tests import plain_test
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.catalog import PlaneHarness, planned

T, T2 = "projects/p/topics/one", "projects/p/topics/two"
S, N = "projects/p/subscriptions/sub", "projects/p/snapshots/snap"
ATTACHED = [("CreateTopic", {"name": T}), ("CreateSubscription", {"name": S, "topic": T})]
Step = tuple[str, dict[str, Any]]


class OnNode:
    """One node. `read_as`: what reading the disks does from now on."""

    def __init__(self, harness: ServicerHarness) -> None:
        self.harness, self.call, self.control = harness, harness.call, harness.control

    async def fill(self) -> None:
        await self.harness.put("a", topic=T)

    def read_as(self, reading: Callable[[], Coroutine[Any, Any, None]]) -> None:
        read = self.harness.store.read

        def late(source, begin, size, reply, *, early=False):  # type: ignore[no-untyped-def]
            async def run() -> None:
                try:
                    await reading()
                except Exception as error:
                    reply(error)
                else:
                    read(source, begin, size, reply, early=early)

            self.task = asyncio.create_task(run())

        self.harness.store.read = late  # type: ignore[method-assign]


class OnCluster:
    """The same of a cluster of two chains, asked at one proxy."""

    def __init__(self, harness: PlaneHarness) -> None:
        self.harness, self.call, self.control = harness, harness.proxies[0].call, harness.proxies[0].control

    async def fill(self) -> None:
        topic = self.control.catalog.topic(T)
        for owner in self.harness.owners.values():
            await owner.shared.at(self.control.catalog.revision)
            await owner.publish(topic.incarnation)
            owner.described.backlog_messages = 1

    def read_as(self, reading: Callable[[], Coroutine[Any, Any, None]]) -> None:
        for owner in self.harness.owners.values():
            owner.reading = reading


Site = OnNode | OnCluster


def on_both(work: Callable[[Site], Coroutine[Any, Any, Any]]) -> list[Any]:
    """What it returns on one node, and in a cluster."""
    found: list[Any] = []

    @simulated()
    async def on_node(harness: ServicerHarness) -> None:
        found.append(await work(OnNode(harness)))

    @planned()
    async def in_cluster(harness: PlaneHarness) -> None:
        found.append(await work(OnCluster(harness)))

    on_node()
    in_cluster()
    return found


async def outcome(call: Coroutine[Any, Any, Any]) -> str:
    try:
        answer = await call
    except SyncpointError as error:
        return f"{error.code.name}: {error.message}"
    if isinstance(answer, pubsub.Snapshot):
        answer.ClearField("expire_time")  # in a cluster time passes in the meantime
    return str(answer)


TRANSCRIPTS: dict[str, list[Step]] = {
    "names": [
        ("GetTopic", {"topic": T}),
        *ATTACHED,
        *ATTACHED,
        ("CreateSubscription", {"name": "projects/p/subscriptions/lost", "topic": T2}),
        ("CreateTopic", {"name": "one"}),
        ("CreateSnapshot", {"name": N, "subscription": S}),
        ("CreateSnapshot", {"name": N, "subscription": S}),
        ("GetSnapshot", {"snapshot": N}),
        ("DeleteTopic", {"topic": T}),
        ("DeleteTopic", {"topic": T}),
        ("GetSubscription", {"subscription": S}),
        ("GetSnapshot", {"snapshot": N}),
        ("DeleteSnapshot", {"snapshot": N}),
        ("DeleteSubscription", {"subscription": S}),
        ("DeleteSubscription", {"subscription": S}),
    ],
    "updates": [
        *ATTACHED,
        ("UpdateTopic", {"topic": {"name": T, "message_retention_duration": {"seconds": 700}},
                         "update_mask": {"paths": ["message_retention_duration"]}}),
        ("UpdateSubscription", {"subscription": {"name": S, "ack_deadline_seconds": 99},
                                "update_mask": {"paths": ["ack_deadline_seconds"]}}),
        ("UpdateSubscription", {"subscription": {"name": S}, "update_mask": {"paths": ["filter"]}}),
        ("GetSubscription", {"subscription": S}),
        ("DetachSubscription", {"subscription": S}),
        ("DetachSubscription", {"subscription": S}),
        ("CreateSnapshot", {"name": N, "subscription": S}),
        ("Seek", {"subscription": S, "time": {"seconds": 5}}),
        ("GetSubscription", {"subscription": S}),
    ],
    "dead letters": [
        *ATTACHED,
        ("CreateSubscription", {"name": S + "2", "topic": T, "dead_letter_policy": {"dead_letter_topic": T}}),
        ("CreateSubscription", {"name": S + "2", "topic": T, "dead_letter_policy": {"dead_letter_topic": T2}}),
    ],
    "seeks": [
        *ATTACHED,
        ("Seek", {"subscription": S}),
        ("Seek", {"subscription": S, "snapshot": N}),
        ("Seek", {"subscription": S, "time": {"seconds": -62_135_596_800}}),
        ("Seek", {"subscription": S, "time": {"seconds": 253_402_300_799}}),
        ("Seek", {"subscription": S, "time": {"seconds": 1 << 60}}),
        ("CreateTopic", {"name": T2}),
        ("CreateSubscription", {"name": S + "2", "topic": T2}),
        ("CreateSnapshot", {"name": N, "subscription": S + "2"}),
        ("Seek", {"subscription": S, "snapshot": N}),
        ("Seek", {"subscription": S + "2", "snapshot": N}),
    ],
    "options": [
        *ATTACHED,
        *(
            ("UpdateTopicOptions", {"options": {"topic": T, "durability_class": name},
                                    "update_mask": {"paths": ["durability_class"]}, "validate_only": validate})
            for name in ("default", "golden", "")
            for validate in (True, False)
        ),
        ("GetTopicOptions", {"topic": T}),
        ("GetTopicOptions", {"topic": T2}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("steps", TRANSCRIPTS.values(), ids=TRANSCRIPTS)
def test_both_answer_alike(steps: list[Step]) -> None:
    async def run(site: Site) -> list[str]:
        return [await outcome(site.call(method, **fields)) for method, fields in steps]

    node, cluster = on_both(run)
    assert node == cluster


@plain_test(on_both)
async def test_a_seek_as_far_as_a_timestamp_goes_is_taken(site: Site) -> None:
    for step in ATTACHED:
        await site.call(step[0], **step[1])
    await site.fill()
    for far in (-62_135_596_800, 253_402_300_799):
        await site.call("Seek", subscription=S, time={"seconds": far})


@pytest.mark.parametrize("first", ["DetachSubscription", "DeleteSubscription"])
def test_a_subscription_that_ends_while_its_snapshot_is_prepared(first: str) -> None:
    async def run(site: Site) -> str:
        for step in ATTACHED:
            await site.call(step[0], **step[1])
        await site.fill()
        site.read_as(lambda: asyncio.sleep(2))
        snapping = asyncio.create_task(outcome(site.call("CreateSnapshot", name=N, subscription=S)))
        await asyncio.sleep(1)
        await site.call(first, subscription=S)
        return await snapping

    node, cluster = on_both(run)
    assert node == cluster
    assert S in node


async def fails() -> None:
    raise OSError("rotten")


async def hangs() -> None:
    await asyncio.sleep(3600)


@pytest.mark.parametrize("reading", [fails, hangs])
def test_a_snapshot_of_what_cannot_be_read_is_unavailable_within_seconds(reading: Any) -> None:
    async def run(site: Site) -> Code:
        for step in ATTACHED:
            await site.call(step[0], **step[1])
        await site.fill()
        site.read_as(reading)
        async with asyncio.timeout(10):
            with pytest.raises(SyncpointError) as caught:
                await site.call("CreateSnapshot", name=N, subscription=S)
        assert site.control.catalog.snapshot(N) is None
        return caught.value.code

    assert on_both(run) == [Code.UNAVAILABLE] * 2


def test_what_readers_could_not_take_is_refused_alike_and_changes_nothing() -> None:
    """By whatever method it comes: the commit itself refuses it."""

    async def work(site: Site) -> Any:
        await site.call("CreateTopic", name=T)
        before, found = site.control.catalog.revision, []
        for record in (Setting("iam-policy:topics/1", bytes(600_000)), Topic(10**6, T2, bytes(600_000))):
            try:
                await site.control.commit([CatalogChange.put(record)])
            except SyncpointError as error:
                found.append((error.code, error.message))
        assert site.control.catalog.revision == before
        await site.call("CreateTopic", name=T2)
        return found

    on_node, in_cluster = on_both(work)
    assert on_node == in_cluster
    assert [code for code, _ in on_node] == [Code.INVALID_ARGUMENT] * 2
