"""Families of what single failures would do: the worst one of each kind, for each chain that is open in a process.

Place: the numbers that alerts page by; `GetAtRisk` names these messages.
Promise: entries are counted from what is in memory, at most once in JUDGE_EVERY_S. Messages are counted from indexes,
at most once in COUNT_EVERY_S; where more than ENTRIES_MAX entries would have to be seen for that, they are reported as
uncounted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from syncpoint.base.runtime.clock import Clock
from syncpoint.broker.publish.chain.chain_risk import chain_risk
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.cluster.control.failure_domains import DomainFailure, DomainKind, FailureDomains
from syncpoint.log.storage.entries_at_risk import DiskFailure, FailureJudgement, StoreHoldings
from syncpoint.watch.metrics.family import Family, MetricKind, Samples
from syncpoint.wire.protobuf.messages import internal

JUDGE_EVERY_S: Final = 5.0
COUNT_EVERY_S: Final = 60.0
ENTRIES_MAX: Final = 100_000
OUTCOMES: Final = ("lost", "unavailable", "twice")
_G = MetricKind.GAUGE
FAMILIES: Final = (
    Family(
        "syncpoint_at_risk_messages",
        _G,
        "",
        ("chain", "domain", "outcome"),
        "Messages that the worst single failure of this kind would lose, delay, or deliver twice.",
    ),
    Family(
        "syncpoint_at_risk_entries",
        _G,
        "",
        ("chain", "domain", "outcome"),
        "Log entries that the worst single failure of this kind would lose or delay.",
    ),
    Family(
        "syncpoint_at_risk_stopping_failures",
        _G,
        "",
        ("chain", "domain"),
        "Single failures of this kind that would stop the chain.",
    ),
    Family(
        "syncpoint_at_risk_unborne_disks",
        _G,
        "",
        ("chain",),
        "Disks whose loss would lose entries or stop the chain, although its write set tolerates the loss of a disk.",
    ),
    Family(
        "syncpoint_at_risk_uncounted",
        _G,
        "",
        ("chain",),
        "1 where messages at risk cannot be counted: there are too many, or they cannot be read.",
    ),
)


class WatchedChain(NamedTuple):
    """A chain, the names of its disks by slot, what may fail, and which process writes it."""

    forwarder: PublishForwarder
    disks: Sequence[str]
    domains: FailureDomains
    owner: str


class _Foreseen(NamedTuple):
    """Entries at risk in one chain, by kind of failure and outcome. `messages`: None if they were not counted."""

    entries: Mapping[tuple[str, str], int]
    stopping: Mapping[str, int]
    unborne: int
    messages: Mapping[tuple[str, str], int] | None


class RiskRoom:
    """`chains`: those that are open."""

    name = "at risk"

    def __init__(
        self, chains: Callable[[], Mapping[int, WatchedChain]], clock: Clock, entries_max: int = ENTRIES_MAX
    ) -> None:
        self._chains, self._clock, self._entries_max = chains, clock, entries_max
        self._found: dict[int, _Foreseen] = {}
        self._due = self._count_due = 0.0

    async def prepare(self) -> None:
        """Judge the failures, and count messages when that is due."""
        now = self._clock.monotonic()
        if now < self._due:
            return
        counts = now >= self._count_due
        found = {}
        for number, chain in self._chains().items():
            known = self._found.get(number)
            again = counts or known is None
            messages = await self._count(number, chain) if again or known is None else known.messages
            found[number] = await self._judged(chain, messages)
        self._found, self._due = found, now + JUDGE_EVERY_S
        if counts:
            self._count_due = now + COUNT_EVERY_S

    def collect(self, samples: Samples) -> None:
        for number, found in self._found.items():
            label = str(number)
            for (kind, outcome), count in found.entries.items():
                samples.put("syncpoint_at_risk_entries", count, label, kind, outcome)
            for kind, count in found.stopping.items():
                samples.put("syncpoint_at_risk_stopping_failures", count, label, kind)
            samples.put("syncpoint_at_risk_unborne_disks", found.unborne, label)
            for (kind, outcome), count in (found.messages or {}).items():
                samples.put("syncpoint_at_risk_messages", count, label, kind, outcome)
            samples.put("syncpoint_at_risk_uncounted", int(found.messages is None), label)

    @staticmethod
    async def _judged(chain: WatchedChain, messages: Mapping[tuple[str, str], int] | None) -> _Foreseen:
        holdings = chain.forwarder.store.holdings()
        entries: dict[tuple[str, str], int] = {}
        stopping: dict[str, int] = {}
        unborne = 0
        for failure in chain.domains.single():
            judgement = FailureJudgement(holdings, _on_disks(chain, failure))
            kind = failure.kind.value
            stopping[kind] = stopping.get(kind, 0) + bool(judgement.stops)
            lost, unavailable = judgement.entries()
            for outcome, count in ((OUTCOMES[0], lost), (OUTCOMES[1], unavailable)):
                entries[kind, outcome] = max(entries.get((kind, outcome), 0), count)
            if failure.kind is DomainKind.DISK and (lost or judgement.stops) and _bears_one(holdings):
                unborne += 1
            await asyncio.sleep(0)
        return _Foreseen(entries, stopping, unborne, messages)

    async def _count(self, number: int, chain: WatchedChain) -> Mapping[tuple[str, str], int] | None:
        failures = chain.domains.single()
        if self._to_see(chain.forwarder.store.holdings(), chain, failures) > self._entries_max:
            return None
        asked = internal.AtRiskRequest()
        for one in failures:
            asked.failures.add(gone=one.gone, silent=one.silent, owner=chain.owner in one.processes)
        risk = await chain_risk(number, chain.forwarder, chain.disks, asked)
        if risk.unknown:
            return None
        worst: dict[tuple[str, str], int] = {}
        for failure, outcome in zip(failures, risk.outcomes, strict=True):
            for word, sums in zip(OUTCOMES, (outcome.lost, outcome.unavailable, outcome.twice), strict=True):
                key = failure.kind.value, word
                worst[key] = max(worst.get(key, 0), sum(one.messages for one in sums))
        return worst

    @staticmethod
    def _to_see(holdings: StoreHoldings, chain: WatchedChain, failures: Sequence[DomainFailure]) -> int:
        judgements = [FailureJudgement(holdings, _on_disks(chain, one)) for one in failures]
        return sum(
            max(0, segment.last_position - segment.first_position + 1)
            for segment in holdings.segments
            if any(one.stops or one.touches(segment) for one in judgements)
        )


def _bears_one(holdings: StoreHoldings) -> bool:
    """Whether the chain could do without any one of its disks, if it had all of them."""
    rule = holdings.fragments[-1].rule
    slots = range(len(rule))
    return all(rule.can_acknowledge([slot for slot in slots if slot != away]) for away in slots)


def _on_disks(chain: WatchedChain, failure: DomainFailure) -> DiskFailure:
    slots = {folder: slot for slot, folder in enumerate(chain.disks)}
    return DiskFailure(
        frozenset(slots[one] for one in failure.gone if one in slots),
        frozenset(slots[one] for one in failure.silent if one in slots),
        chain.owner in failure.processes,
    )
