"""What an operator does with messages of lost topics, over metadata in memory and forwarders that only report."""

from __future__ import annotations

import json
from typing import Any

import pytest

from syncpoint.base.model.cluster import PUBLISH, ChainOwner, ChainRecord, Member
from syncpoint.base.model.errors import AlreadyExists, InvalidArgument, NotFound, SyncpointError, Unavailable
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.router.assignment import TopicAssignment
from syncpoint.catalog.metadata.catalog_replica import SharedCatalog
from syncpoint.catalog.metadata.contract import Put
from syncpoint.catalog.metadata.layout import ASSIGNED_TOPICS, CHAINS, MEMBERS, OWNERS
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.catalog.metadata.restored_topics import LostTopics, lost_of
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.programs.clusters.orphans import Orphan, Orphans, Who
from syncpoint.testing.rigs.plain_tests import Work, plain_test
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal

TAKEN, NEW = "projects/p/topics/taken", "projects/p/topics/new"
READER = "projects/p/subscriptions/reader"
ME = Who("me", "here")
LOST = 77


class Reported(PeerChannels):
    """Two forwarders with a chain each, and a third chain that nobody has open."""

    def __init__(self, catalog: SharedCatalog) -> None:
        self.catalog = catalog
        self.mute: set[str] = set()
        self.confirmed: list[tuple[int, int]] = []

    async def call(self, address: str, path: str, request: Any, *, timeout_s: float) -> bytes:
        if address in self.mute:
            raise Unavailable("nobody is there")
        number = int(address[1])
        if path == methods.PROCESS.GetStatus:
            kept = lost_of(self.catalog.catalog).keeps(LOST, 5)
            unknown = self.catalog.catalog.topic_by_incarnation(LOST) is None
            held = [{"topic": LOST, "sources": number, "messages": 10 * number, "epoch": 3 * number}]
            chain = {"chain": number, "orphans": held if kept and unknown else []}
            answer = internal.StatusResponse(json=json.dumps({"roles": {PUBLISH: {"chains": [chain]}}}))
            return bytes(answer.SerializeToString())
        asked = internal.ConfirmRequest.FromString(request)
        self.confirmed.append((asked.chain, asked.topic))
        return bytes(internal.ConfirmResponse(revision=asked.revision).SerializeToString())


class Harness:
    def __init__(self, store: LocalShared, catalog: SharedCatalog, clock: ManualClock) -> None:
        self.store, self.catalog = store, catalog
        self.peers = Reported(catalog)
        self.orphans = Orphans(store, self.peers, clock)


def run(work: Work) -> None:
    clock = ManualClock()

    async def main() -> None:
        store = LocalShared(MemoryStore(clock=clock, random=SeededRandom(1)), clock)
        puts = [Put(f"open/{LOST}/1", b"{}"), Put(f"open/{LOST}/2", b"{}")]
        for number in (1, 2):
            member = Member(f"f{number}", (PUBLISH,), f"f{number}:1", number, "r1")
            puts.append(Put(f"{MEMBERS}f{number}", member.encode()))
            puts.append(Put(OWNERS.key(number), ChainOwner(f"f{number}", number, 1, f"f{number}:1").encode()))
        for number in (1, 2, 3):
            record = ChainRecord(number, f"c{number}", "default", "r1", "f1")
            puts.append(Put(CHAINS.key(number), record.encode()))
        await store.txn([], puts)
        catalog = SharedCatalog(store)
        await catalog.start()
        await catalog.commit([CatalogChange.put(LostTopics().with_gap(1, 1 << 40, ()).setting())])
        await catalog.commit([CatalogChange.put(Topic(catalog.next_incarnation(), TAKEN))])
        harness = Harness(store, catalog, clock)
        await harness.orphans.start()
        try:
            await work(harness)
        finally:
            await harness.orphans.close()
            await catalog.close()

    run_simulated(clock, main())


in_harness = plain_test(run)


@in_harness
async def test_what_all_forwarders_report_is_put_together(harness: Harness) -> None:
    found = await harness.orphans.found()
    assert found.orphans == [Orphan(LOST, (1, 2), 3, 30, 6)]
    assert (found.decisions, found.unheard) == ([], [3])
    harness.peers.mute = {"f1:1"}
    found = await harness.orphans.found()
    assert found.orphans == [Orphan(LOST, (2,), 2, 20, 6)]
    assert found.unheard == [1, 3]


@in_harness
async def test_an_adopted_topic_has_a_reader_from_its_first_message_on(harness: Harness) -> None:
    assert await harness.orphans.adopt(LOST, NEW, READER, ME, ordered=True)
    await harness.catalog.at(harness.catalog.catalog.revision)
    catalog = harness.orphans._shared.catalog
    topic, reader = catalog.topic(NEW), catalog.subscription(READER)
    assert topic is not None
    assert topic.incarnation == LOST
    assert isinstance(reader, Subscription)
    assert (reader.topic_incarnation, reader.created_revision, reader.state) == (LOST, 1, "active")
    assert (reader.ordered, reader.expiration_s, reader.retention_s) == (True, None, 31 * 86_400)
    assert sorted(harness.peers.confirmed) == [(1, LOST), (2, LOST)]
    item = await harness.store.get(ASSIGNED_TOPICS.key(LOST))
    assert item is not None
    assert TopicAssignment.decode(item.value) == TopicAssignment(6 + (1 << 16), (1,))
    found = await harness.orphans.found()
    assert found.orphans == []
    (decision,) = found.decisions
    assert decision[:6] == (LOST, "adopted", NEW, 30, "me", "here")
    with pytest.raises(NotFound):
        await harness.orphans.adopt(LOST, f"{NEW}2", f"{READER}2", ME)


@in_harness
async def test_what_is_deleted_is_written_down(harness: Harness) -> None:
    assert (await harness.orphans.delete(LOST, ME)).messages == 30
    found = await harness.orphans.found()
    assert found.orphans == []
    assert [one[:6] for one in found.decisions] == [(LOST, "deleted", "", 30, "me", "here")]
    with pytest.raises(NotFound, match="No open chain"):
        await harness.orphans.delete(LOST, ME)


@in_harness
async def test_names_must_be_free_and_legal_and_numbers_those_of_orphans(harness: Harness) -> None:
    kinds: list[tuple[int, str, str, type[SyncpointError]]] = [
        (LOST, TAKEN, READER, AlreadyExists),
        (LOST, "new", READER, InvalidArgument),
        (LOST, NEW, "reader", InvalidArgument),
        (LOST + 1, NEW, READER, NotFound),
    ]
    for number, topic, subscription, kind in kinds:
        with pytest.raises(kind):
            await harness.orphans.adopt(number, topic, subscription, ME)
    assert (await harness.orphans.found()).orphans
    assert harness.orphans._shared.catalog.topic(NEW) is None


@in_harness
async def test_a_chain_that_does_not_confirm_is_reported(harness: Harness) -> None:
    number, confirm = 0, harness.peers.call

    async def call(address: str, path: str, request: Any, *, timeout_s: float) -> bytes:
        nonlocal number
        if path != methods.PROCESS.GetStatus and address == "f2:1":
            number += 1
            raise Unavailable("busy")
        return await confirm(address, path, request, timeout_s=timeout_s)

    harness.peers.call = call  # type: ignore[method-assign]
    assert not await harness.orphans.adopt(LOST, NEW, READER, ME)
    assert number > 1
    assert harness.orphans._shared.catalog.topic(NEW) is not None
