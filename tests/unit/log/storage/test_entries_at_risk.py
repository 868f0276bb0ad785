"""At risk: what is foretold of a failure is what the disks that are left say, entry by entry, against brute force."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from syncpoint.log.storage.entries_at_risk import (
    NOT_OPENED,
    NOT_SERVED,
    DiskFailure,
    EntryFate,
    FailureJudgement,
    SegmentHolding,
    SegmentRows,
)
from syncpoint.log.storage.errors import StorageError
from syncpoint.log.storage.index import IndexRecord
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.record import MESSAGE_KINDS, EntryKind
from tests.kit.disks import Harness

pytestmark = pytest.mark.shows("at-risk")

HELD, AWAY, LOST = EntryFate


def opened(disks: int = 3, rule: AckRule | None = None, **more: object) -> Harness:
    return Harness.opened(1, disks=disks, rule=rule, segment_entries_max=12, scrub_bytes_s=0, **more)


def rows_of(harness: Harness, segment: int) -> SegmentRows:
    answers: list[SegmentRows | Exception | None] = []
    harness.store.segment_rows(segment, EntryKind.LEDGER, answers.append)
    for _ in range(20):
        harness.run("syncpoint-read")
        harness.deliver()
    (answer,) = answers
    assert isinstance(answer, SegmentRows), answer
    return answer


def fates(harness: Harness, failure: DiskFailure) -> tuple[dict[tuple[int, int], EntryFate], str]:
    """Of every promised batch, by source and offset; and why the store would stop."""
    holdings = harness.store.holdings()
    judgement = FailureJudgement(holdings, failure)
    found: dict[tuple[int, int], EntryFate] = {}
    for segment in holdings.segments:
        for record in rows_of(harness, segment.id).records:
            if record.kind in MESSAGE_KINDS and segment.first_position + record.ordinal <= segment.last_position:
                fate = judgement.fate(segment, record)
                assert fate is HELD or judgement.touches(segment)
                found[record.source, record.first_offset] = fate
    return found, judgement.stops


def wiped(harness: Harness, slots: Collection[int]) -> None:
    """What these folders hold is gone."""
    for slot in slots:
        harness.files.wipe(harness.roots[slot])


def reopened(harness: Harness) -> set[tuple[int, int]] | None:
    """The batches that a new opening finds; None where it refuses."""
    try:
        store = harness.open()
    except StorageError:
        return None
    return {(source, first) for source in store.sources() for first, _, _ in harness.read_all(source)}


def gone(*slots: int, owner: bool = True) -> DiskFailure:
    return DiskFailure(frozenset(slots), owner=owner)


@pytest.mark.parametrize("victims", [(), (0,), (1,), (2,)])
def test_any_one_of_three_whole_disks_may_go(victims: tuple[int, ...]) -> None:
    harness = opened()
    harness.fill(40)
    harness.commit()
    for owner in (False, True):
        found, stops = fates(harness, gone(*victims, owner=owner))
        assert set(found.values()) == {HELD}
        assert len(found) == 40
        assert not stops
    harness.kill()
    wiped(harness, victims)
    assert reopened(harness) == found.keys()


def test_two_of_three_stop_the_store_and_lose_nothing() -> None:
    harness = opened()
    harness.fill(5)
    harness.commit()
    found, stops = fates(harness, gone(0, 1))
    assert set(found.values()) == {HELD}
    assert stops == NOT_OPENED
    assert fates(harness, gone(0, 1, owner=False))[1] == NOT_SERVED
    harness.kill()
    wiped(harness, (0, 1))
    assert reopened(harness) is None


def test_what_a_late_disk_lacks_is_lost_with_the_others_only_if_the_owner_dies() -> None:
    """The owner would still write to it what waits for it."""
    harness = opened()
    harness.persist()
    harness.lose_sight(2)
    late = harness.persist()
    found, _ = fates(harness, gone(0, 1))
    assert [key for key, fate in found.items() if fate is LOST] == [late]
    found, _ = fates(harness, gone(0, 1, owner=False))
    assert LOST not in found.values()


def test_a_silent_disk_is_waited_for_and_not_lost() -> None:
    harness = opened()
    harness.persist()
    found, stops = fates(harness, DiskFailure(silent=frozenset((0, 1, 2)), owner=True))
    assert set(found.values()) == {AWAY}
    assert stops == NOT_OPENED
    found, stops = fates(harness, DiskFailure(frozenset((0, 1)), frozenset((2,)), owner=True))
    assert set(found.values()) == {AWAY}


@pytest.mark.parametrize("durability", ["memory", "async", "sync"])
def test_on_one_node_memory_alone_is_lost_with_the_process(durability: str) -> None:
    harness = Harness.opened(1, disks=1, durability=durability, scrub_bytes_s=0)
    harness.persist()
    key = harness.publish()
    harness.store.flush()
    harness.deliver()  # no writer has run
    found, _ = fates(harness, DiskFailure(owner=True))
    assert [one for one, fate in found.items() if fate is LOST] == ([key] if durability == "memory" else [])
    assert set(fates(harness, DiskFailure())[0].values()) == {HELD}
    harness.kill()
    assert reopened(harness) == {one for one, fate in found.items() if fate is HELD}


def test_damaged_everywhere_is_lost_whatever_fails() -> None:
    holdings = opened().store.holdings()
    segment = SegmentHolding(1, 1, 1, 2, {0: 2, 1: 2}, frozenset(), {0: frozenset((4096,)), 1: frozenset((4096,))})
    judgement = FailureJudgement(holdings._replace(segments=[segment]), DiskFailure())
    first = IndexRecord(1, 0, 0, 1, 4096, 10, 0, EntryKind.MESSAGES)
    assert judgement.touches(segment)
    assert judgement.fate(segment, first) is LOST
    assert judgement.fate(segment, first._replace(offset=9000, ordinal=1)) is HELD


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_history_and_failure_goes_as_it_was_foretold(data: st.DataObject) -> None:
    """Disks go away, fail, come back and are filled while batches are persisted; then the process dies and disks are
    wiped. What a new opening finds, or would find if the loss was accepted, is what was foretold.
    """
    rule = data.draw(st.sampled_from([AckRule.single(3), AckRule.single(5), AckRule.grid(3, 3), AckRule.grid(3, 1)]))
    harness = opened(rule=rule)
    slots = list(range(len(rule)))
    for _ in range(data.draw(st.integers(1, 6))):
        act = data.draw(st.sampled_from(["publish", "publish", "away", "away", "back", "heal"]))
        if act == "publish":
            harness.fill(data.draw(st.integers(1, 15)))
            harness.commit()
        elif act == "away":
            slot = data.draw(st.sampled_from(slots))
            disks = harness.store.status().disks  # one that is back may not be live yet
            live = [one for one in slots if disks[one].state in ("ok", "healing") and one not in harness.away]
            if rule.can_acknowledge([one for one in live if one != slot]):
                harness.lose_sight(slot)
                harness.quiesce(12, data.draw(st.sampled_from([0.5, 2.0])))  # it is noticed, or given up
        elif act == "back":
            harness.regain(*list(harness.away))
        else:
            harness.heal(12)
    harness.commit()
    away_now = set(harness.away)
    few = [*harness.away, data.draw(st.sampled_from(slots))]  # whoever was away is late
    left = data.draw(st.sampled_from([{*few}, {*few[:1]}, {*slots} - {few[-1]}, {*slots} - {*few[:2]}]))
    victims = {*slots} - left
    found, stops = fates(harness, gone(*victims))
    promised = set(harness.acked)
    event(f"stops {stops[:30]}, lost {LOST in found.values()}, away {AWAY in found.values()}, {len(away_now)}")
    assert found.keys() == promised
    harness.kill()
    away = set(harness.away)
    wiped(harness, victims)
    here = [slot for slot in slots if slot not in victims and slot not in away]
    kept = reopened(harness)
    if stops:
        assert kept is None, (stops, victims, away)
    else:
        assert kept is not None
        assert kept >= {one for one, fate in found.items() if fate is HELD}
        assert not any(fate is not HELD for fate in found.values())
        return
    harness.kill()
    harness.regain(*list(away))  # whoever was away is back; what is gone is given up
    if not here and not away - victims:
        return
    harness.settings = replace(harness.settings, accept_loss=True)
    kept = reopened(harness)
    assert kept is not None
    assert promised - kept == {one for one, fate in found.items() if fate is LOST}
