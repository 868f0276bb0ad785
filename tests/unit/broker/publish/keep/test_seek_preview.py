"""What a preview of a seek counts is what the seek changes, message by message, over any history of chains."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import NamedTuple

from syncpoint.base.kernel.acks import AckSet
from syncpoint.base.model.lanes import in_lane
from syncpoint.broker.publish.facts.source_ends import stored_run
from syncpoint.broker.publish.intake.follow import Follower
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.publish.keep import seek_preview
from syncpoint.broker.publish.keep.seek_preview import seek_change
from syncpoint.catalog.metadata.records import CREATING, CatalogChange, SeekTarget, Snapshot, Subscription
from syncpoint.testing.simulation.scaled import patched
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from tests.kit.chain import SUB_NUMBER, TOPIC, TOPIC_NUMBER, ChainHarness, simulated
from tests.kit.chain_subscriber import Subscriber
from tests.unit.broker.publish.ledger_model import Run


class Counts(NamedTuple):
    unacknowledged: int
    returning: int
    acknowledged: int


def counts(change: internal.SeekChange) -> Counts:
    assert not change.unknown, change.unknown
    return Counts(change.unacknowledged, change.returning, change.acknowledged)


def waiting(forwarder: PublishForwarder, record: Subscription) -> set[tuple[int, int]]:
    """The places that are stored and not acknowledged, one by one."""
    ledger = forwarder.ledgers[record.incarnation]
    found = set()
    for source in forwarder.sources.of_topic(record.topic_incarnation):
        acks = ledger.known(source.number) or AckSet()
        for offset in range(*stored_run(forwarder.store, source)):
            places = [in_lane(lane, offset) for lane in ledger.lane_numbers]
            found |= {(source.number, place) for place in places if not acks.contains(place)}
    return found


def asked_for(record: Subscription) -> internal.ForeseenSeek | None:
    target = record.target
    if target is None or (target.time_ns is None and target.snapshot is None):
        return None
    return internal.ForeseenSeek(subscription=record.incarnation, time_ns=target.time_ns, snapshot=target.snapshot)


class Followed(NamedTuple):
    """One seek in one chain: what was said of it before, and what it did."""

    said: internal.SeekChange
    changed: Counts
    has_snapshot: bool
    moved_by_asking: bool


def every_seek_is_seen(seen: list[Followed]) -> AbstractContextManager[None]:
    """Before a chain follows a seek it is asked what that would change. Nothing is compared here: a chain that is
    disturbed while it follows would only stop.
    """
    right = Follower._follow_seek

    def follow_seek(self: Follower, record: Subscription) -> None:
        ledger = self.forwarder.ledgers.get(record.incarnation)
        foreseen = asked_for(record)
        if ledger is None or not self._is_seek(record) or foreseen is None:
            right(self, record)
            return
        gone = (
            foreseen.snapshot
            and foreseen.snapshot not in self.forwarder.snapshots
            and self.catalog.snapshot_by_incarnation(foreseen.snapshot) is None
        )
        before, said = waiting(self.forwarder, record), seek_change(self.forwarder, foreseen)
        moved = waiting(self.forwarder, record) != before
        right(self, record)
        after = waiting(self.forwarder, record)
        changed = Counts(len(before), len(after - before), len(before - after))
        seen.append(Followed(said, changed, not gone, moved))

    return patched(Follower, _follow_seek=follow_seek)


def run(seed: int, *, ruled: bool) -> list[Counts]:
    seen: list[Followed] = []

    @simulated
    async def compared(harness: ChainHarness) -> None:
        await Run(harness, seed, ruled=ruled).run(40)

    with every_seek_is_seen(seen):
        compared()
    for one in seen:
        assert not one.moved_by_asking
        if one.has_snapshot:
            assert counts(one.said) == one.changed
        else:
            assert one.said.unknown  # who asks for it by name is refused before
    return [one.changed for one in seen]


def test_a_preview_is_what_the_seek_changes() -> None:
    """Times and snapshots, rules, retention, deletion and lost chains: see `ledger_model`."""
    seen = [one for seed in range(12) for one in run(seed, ruled=seed % 4 == 3)]
    assert sum(one.returning > 0 for one in seen) >= 5
    assert sum(one.acknowledged > 0 for one in seen) >= 5
    assert sum(one.returning > 0 and one.unacknowledged > 0 for one in seen) >= 2


def test_a_preview_that_forgets_what_is_kept_is_noticed() -> None:
    def nothing(*arguments: object) -> dict[int, AckSet]:
        return {}

    def is_noticed(seed: int) -> bool:
        try:
            run(seed, ruled=False)
        except AssertionError:
            return True
        return False

    with patched(seek_preview, acks_at_time=nothing):
        assert any(map(is_noticed, range(12)))


@simulated
async def test_a_chain_says_it_by_its_method(harness: ChainHarness) -> None:
    process = await harness.subscribed(retain_acked=True)
    await process.publish("a", "b", "c")
    subscriber = await Subscriber(process, 11).attached()
    (source,) = subscriber.granted
    await subscriber.ack(source, (0, 1))
    snapshot = Snapshot(
        50, "projects/p/snapshots/s", TOPIC_NUMBER, TOPIC, expire_ns=1 << 62, status=CREATING, subscription=SUB_NUMBER
    )
    await harness.confirm(harness.commit(CatalogChange.put(snapshot)))
    await subscriber.ack(source, (1, 1))

    async def said(**target: int) -> internal.SeekChange:
        seek = internal.ForeseenSeek(subscription=SUB_NUMBER, **target)
        asked = internal.DescribeRequest(topic=TOPIC_NUMBER, seek=seek).SerializeToString()
        (chain,) = internal.DescribeResponse.FromString(
            await process.channel.unary(methods.CHAINS.Describe, asked)
        ).chains
        change: internal.SeekChange = chain.seek
        return change

    assert counts(await said(snapshot=50)) == (1, 1, 0)
    assert counts(await said(time_ns=0)) == (1, 2, 0)
    assert counts(await said(time_ns=harness.clock.time_ns() + 10**12)) == (1, 0, 1)
    assert "does not know the snapshot yet" in (await said(snapshot=51)).unknown
    await harness.confirm(harness.update(generation=1, target=SeekTarget(snapshot=50)))
    assert counts(await said(snapshot=50)) == (2, 0, 0)
    (plain,) = await process.host.describe(TOPIC_NUMBER, SUB_NUMBER, 0)
    assert not plain.HasField("seek")


@simulated
async def test_what_cannot_be_found_out_is_said(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("a")
    forwarder = process.host.chains[1].forwarder
    stranger = seek_change(forwarder, internal.ForeseenSeek(subscription=99, time_ns=1))
    assert stranger.unknown == "This process does not know the subscription yet. Try again."

    def damaged(*arguments: object) -> dict[int, AckSet]:
        raise OSError("no disk answers")

    with patched(seek_preview, acks_at_time=damaged):
        silent = seek_change(forwarder, internal.ForeseenSeek(subscription=SUB_NUMBER, time_ns=1))
    assert (silent.unknown, silent.returning) == ("no disk answers", 0)
