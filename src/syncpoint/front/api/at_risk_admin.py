"""At risk: which acknowledged messages a failure would lose, hold back or have delivered twice, in advance.

Place: a part of syncpoint.admin.v1, mounted by `server_admin`; every chain judges its own entries
(`publish.chain_risk`), subscribe forwarders say what they have lent, and this adds it up by topic.
Promise: who does not answer is in `unknown`, and never counts as "nothing".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from syncpoint.base.kernel.acks import AckSet
from syncpoint.base.model.lanes import place_in
from syncpoint.broker.publish.facts.source import STAGING_TOPIC, WAITING_TOPIC
from syncpoint.cluster.control.failure_domains import DomainFailure, DomainKind, FailureDomains, ForeseenRisks
from syncpoint.front.api.options_admin import Handlers, OptionsAdmin, admin_table
from syncpoint.front.api.validate import refused
from syncpoint.wire.protobuf.messages import admin, internal
from syncpoint.wire.transport.calls import Methods

RANGES_MAX = 100
_INNER = {WAITING_TOPIC: "(scheduled messages)", STAGING_TOPIC: "(staged by pipelines)"}


class AskingAboutRisks(Protocol):
    """Ask every process which entries a failure would put at risk."""

    def domains(self) -> FailureDomains:
        """What may vanish."""
        ...

    async def at_risk(self, failures: Sequence[DomainFailure]) -> ForeseenRisks:
        """What these failures would do."""
        ...


class _Count:
    """One cell: messages of one kind of harm to one topic."""

    def __init__(self) -> None:
        self.bytes = self.oldest_ns = 0
        self.held: dict[tuple[int, int, int], AckSet] = {}  # by chain, source, subscription

    def add(self, chain: int, one: internal.RiskSum) -> None:
        self.bytes += one.bytes
        if one.oldest_ns:
            self.oldest_ns = min(self.oldest_ns or one.oldest_ns, one.oldest_ns)
        ranges = list(one.ranges)
        for source, begin, end in zip(ranges[::3], ranges[1::3], ranges[2::3], strict=True):
            self.held.setdefault((chain, source, one.subscription), AckSet()).add(begin, end)

    def take(self, other: _Count) -> None:
        """Add what another topic has."""
        self.bytes += other.bytes
        self.oldest_ns = min(self.oldest_ns or other.oldest_ns, other.oldest_ns or self.oldest_ns)
        self.held.update(other.held)

    @property
    def messages(self) -> int:
        return sum(map(len, self.held.values()))


class AtRiskAdmin:
    """This method on messages; `methods()` serves it on bytes."""

    def __init__(self, options: OptionsAdmin, asking: AskingAboutRisks) -> None:
        self._options, self._asking = options, asking

    def methods(self) -> Methods:
        """The method table."""
        table: Handlers = {"GetAtRisk": self.get_at_risk}
        return admin_table(self._options.control, table)

    async def get_at_risk(self, request: admin.GetAtRiskRequest) -> admin.AtRisk:
        """GetAtRisk. Raises `InvalidArgument` for a name that there is not."""
        if request.ranges_max < 0:
            raise refused("ranges_max", f"ranges_max must not be negative (0 means {RANGES_MAX})")
        domains = self._asking.domains()
        named = {
            DomainKind.DISK: request.disks,
            DomainKind.PROCESS: request.processes,
            DomainKind.CLUSTER: request.clusters,
            DomainKind.ZONE: request.zones,
            DomainKind.REGION: request.regions,
        }
        failures = [domains.together(named)] if any(named.values()) else domains.single()
        found = await self._asking.at_risk(failures)
        unknown = [*found.unknown, *(f"chain {one.chain}: {one.unknown}" for one in found.chains if one.unknown)]
        for one in found.chains:
            unknown += [f"chain {one.chain}: {disk} was unreachable when the chain was opened" for disk in one.unseen]
        shown = [
            self._failure(number, failure, found, request.ranges_max or RANGES_MAX)
            for number, failure in enumerate(failures)
        ]
        order = sorted(shown, key=lambda one: (-one.lost.messages, -one.unavailable.messages, -one.twice.messages))
        return admin.AtRisk(failures=order, unknown=unknown)

    def _failure(self, number: int, failure: DomainFailure, found: ForeseenRisks, ranges_max: int) -> admin.Failure:
        topics: dict[int, tuple[_Count, _Count, _Count]] = {}
        answer = admin.Failure(kind=admin.Failure.Kind.Value(failure.kind.upper()), name=failure.name)

        def cell(topic: int, which: int) -> _Count:
            return topics.setdefault(topic, (_Count(), _Count(), _Count()))[which]

        chain_of: dict[int, int] = {}
        for risk in found.chains:
            if number >= len(risk.outcomes):
                continue  # it is unknown
            outcome = risk.outcomes[number]
            answer.facts += outcome.facts
            if outcome.stops:
                answer.stopped.append(f"chain {risk.chain}: {outcome.stops}" if risk.chain else outcome.stops)
            for which, sums in enumerate((outcome.lost, outcome.unavailable, outcome.twice)):
                for one in sums:
                    cell(one.topic, which).add(risk.chain, one)
        for process in sorted(failure.processes):
            for one in found.lent.get(process, ()):
                self._lend(cell(one.topic, 2), cell(one.topic, 0), one, chain_of)
        total = (_Count(), _Count(), _Count())
        for topic, counts in sorted(topics.items(), key=lambda one: self._name(one[0])):
            if not any(one.messages for one in counts):
                continue
            shown = answer.topics.add(topic=self._name(topic))
            for count, message in zip(counts, (shown.lost, shown.unavailable, shown.twice), strict=True):
                self._show(count, message, ranges_max)
            for count, summed in zip(counts, total, strict=True):
                summed.take(count)
        for count, message in zip(total, (answer.lost, answer.unavailable, answer.twice), strict=True):
            self._show(count, message, 0)
        return answer

    @staticmethod
    def _lend(twice: _Count, lost: _Count, one: internal.RiskSum, chain_of: dict[int, int]) -> None:
        """What is lent comes again, unless it is lost; once, whatever is forgotten besides."""
        ranges = list(one.ranges)
        for source, begin, end in zip(ranges[::3], ranges[1::3], ranges[2::3], strict=True):
            known = [chain for chain, other, _ in (*twice.held, *lost.held) if other == source]
            chain = chain_of.setdefault(source, known[0] if known else 0)
            held = twice.held.setdefault((chain, source, one.subscription), AckSet())
            held.add(place_in(begin)[1], place_in(end - 1)[1] + 1)
            for (_, other, _), gone in lost.held.items():
                for at, length in gone.runs() if other == source else ():
                    held.remove(at, at + length)

    def _show(self, count: _Count, message: admin.RiskCount, ranges_max: int) -> None:
        message.messages, message.bytes = count.messages, count.bytes
        if count.oldest_ns:
            message.oldest_publish_time.FromNanoseconds(count.oldest_ns)
        for (chain, source, subscription), held in sorted(count.held.items()):
            for begin, length in held.runs():
                message.ranges_total += 1
                if len(message.ranges) < ranges_max:
                    message.ranges.add(
                        chain=chain,
                        source=source,
                        first_offset=begin,
                        last_offset=begin + length - 1,
                        subscription=self._subscription(subscription) if subscription else "",
                    )

    def _name(self, topic: int) -> str:
        found = self._options.control.catalog.topic_by_incarnation(topic)
        return found.name if found is not None else _INNER.get(topic, str(topic))

    def _subscription(self, number: int) -> str:
        found = self._options.control.catalog.subscription_by_incarnation(number)
        return found.name if found is not None else str(number)


def lent_sums(lent: Iterable[tuple[int, int, Iterable[tuple[int, int, int]]]]) -> list[internal.RiskSum]:
    """RiskSums of what is lent: (topic, subscription, its (source, first place, end))."""
    return [
        internal.RiskSum(
            topic=topic, subscription=subscription, messages=sum(end - begin for _, begin, end in ranges),
            ranges=[number for one in ranges for number in one],
        )
        for topic, subscription, found in lent
        if (ranges := list(found))
    ]  # fmt: skip
