"""What failures would do to a chain of many entries: judged right, and not entry by entry for each failure."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from syncpoint.broker.publish.chain.chain_risk import chain_risk
from syncpoint.log.storage.entries_at_risk import (
    FailureJudgement,
    FragmentHolding,
    SegmentHolding,
    SegmentRows,
    StoreHoldings,
)
from syncpoint.log.storage.index import IndexRecord
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.record import EntryKind
from syncpoint.testing.rigs.forwarder_harness import ForwarderHarness
from syncpoint.wire.protobuf.messages import internal

ENTRIES, HALF = 400, 200
NAMES = [f"/c{cluster}/d1" for cluster in range(3)]


def lacking(harness: ForwarderHarness) -> Any:
    """A store of three disks: the third one lacks all, the second one has the first half."""
    (source,) = harness.publish.sources.by_number.values()
    now_ns = harness.clock.time_ns()
    records = [IndexRecord(source.number, n, now_ns, 1, 0, 50, n, EntryKind.MESSAGES) for n in range(ENTRIES)]
    segment = SegmentHolding(1, 1, 1, ENTRIES, {0: ENTRIES, 1: HALF}, frozenset(), {})
    two = frozenset({0, 1})
    fragment = FragmentHolding(AckRule.grid(3, 1), two, two, frozenset())
    holdings = StoreHoldings(two, frozenset(), frozenset(), two, [segment], [fragment], [], (1, 1), "")
    return SimpleNamespace(
        holdings=lambda: holdings,
        segment_rows=lambda segment, kind, reply: reply(SegmentRows(records, {})),
        segments_of=lambda source: None,
        sources=lambda: [source.number],
    )


def test_entries_on_the_same_disks_are_judged_once_for_each_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ForwarderHarness()
    harness.send("a")
    harness.publish.store = lacking(harness)
    asked = internal.AtRiskRequest()
    for gone in (NAMES[:1], NAMES[1:2], NAMES[2:], NAMES[:2]):
        asked.failures.add(gone=gone)
    judged, right = 0, FailureJudgement.fate

    def fate(self: FailureJudgement, *arguments: Any) -> Any:
        nonlocal judged
        judged += 1
        return right(self, *arguments)

    monkeypatch.setattr(FailureJudgement, "fate", fate)
    found = asyncio.run(chain_risk(1, harness.publish, NAMES, asked))
    assert not found.unknown
    lost = [sum(one.messages for one in outcome.lost) for outcome in found.outcomes]
    away = [sum(one.messages for one in outcome.unavailable) for outcome in found.outcomes]
    assert lost == [HALF, 0, 0, ENTRIES]
    assert away == [HALF, ENTRIES, 0, 0]
    assert judged <= 4 * len(asked.failures)
