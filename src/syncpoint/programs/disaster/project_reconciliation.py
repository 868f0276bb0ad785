"""Reconciliation of a project: what was published, copied, delivered and acknowledged in a window, compared by offsets.

Place: `syncpoint projects reconcile`, and each day `class_duties`; asks servers as any client does, and needs no JVM.
Promise: each message that does not add up is named with its hop; what cannot be known is reported in words, and
never passes for well. Nothing is consumed or changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.model.identity import format_message_id
from syncpoint.base.model.names import short_id
from syncpoint.base.model.spans import OffsetRange
from syncpoint.base.model.wording import counted
from syncpoint.front.client.message_path import MARGIN_S, PAGE, Call, record_messages, stored_at
from syncpoint.programs.disaster.reconciled_topic import HOPS, Amiss, ReconciledTopic, Window
from syncpoint.programs.federation.flow_plan import FederationLink, Flow
from syncpoint.programs.federation.servers import Servers
from syncpoint.wire.protobuf.messages import admin, pipeline, pubsub

NAMED: Final = 100
"""Messages that are named, of all that are counted."""


class MessageAmiss(NamedTuple):
    """A message that does not add up."""

    hop: str
    kind: str
    message_id: str
    topic: str
    subscription: str = ""


@dataclass(slots=True)
class ReconciliationOutcome:
    """What a reconciliation came to. `total`: all findings, of which the first are named."""

    topics: int
    messages: int
    total: int
    findings: list[MessageAmiss]
    unknown: list[str]

    @property
    def message(self) -> Any:
        """As it is reported to the server."""
        made = admin.Reconciliation(
            topics=self.topics, messages=self.messages, findings_total=self.total, unknown=self.unknown
        )
        for one in self.findings:
            made.findings.add(**one._asdict())
        return made


class ProjectReconciliation:
    """One run over the topics of projects/P. `exchanged`: acknowledgements come from other sites, too."""

    def __init__(self, call: Call, project: str, window: Window, *, exchanged: bool = False) -> None:
        self._call, self._project, self._window, self._exchanged = call, project, window, exchanged
        self.outcome = ReconciliationOutcome(0, 0, 0, [], [])

    def run(self) -> ReconciliationOutcome:
        """Reconcile every topic. Raises `SyncpointError`."""
        request = pubsub.ListTopicsRequest(project=self._project, page_size=1000)
        kept_s = {
            one.name: one.message_retention_duration.seconds
            for one in self._listed("Publisher.ListTopics", request, "topics")
        }
        options = {
            name: self._call("Admin.GetTopicOptions", admin.GetTopicOptionsRequest(topic=name)).records_topic
            for name in kept_s
        }
        targets = set(options.values())
        for name, target in options.items():
            if target:
                self._topic(name, target, kept_s[name])
            elif name not in targets:
                self.outcome.unknown.append(f"{short_id(name)} has no delivery records.")
        return self.outcome

    def _listed(self, method: str, request: Any, field: str) -> Iterator[Any]:
        """Everything that a method lists, page by page."""
        more = True
        while more:
            answer = self._call(method, request)
            yield from getattr(answer, field)
            request.page_token, more = answer.next_page_token, bool(answer.next_page_token)

    def _topic(self, name: str, target: str, kept_s: int) -> None:
        asked = admin.PeekTopicRequest(topic=target, filter=f"attributes.topic = {json.dumps(name)}", page_size=PAGE)
        asked.start_time.seconds = max(0, self._window.since_us // 1_000_000 - MARGIN_S)
        # A minute for what is deleted while this runs.
        kept_since_us = self._window.until_us - (kept_s - 60) * 1_000_000 if kept_s > 60 else None
        machine = ReconciledTopic(self._window, exchanged=self._exchanged, kept_since_us=kept_since_us)
        where = pipeline.GetPositionsRequest(topic=name)
        universe = int(self._call("LogReader.GetPositions", where).universe, 16)
        for content in record_messages(self._call, asked, self.outcome.unknown, universe):
            machine.add(content)
        # Positions after the records: a message that was recorded is stored by then.
        positions = self._call("LogReader.GetPositions", where)
        log = {one.source: (one.begin, one.end) for one in positions.sources}
        listed = pubsub.ListTopicSubscriptionsRequest(topic=name, page_size=1000)
        subscriptions = list(self._listed("Publisher.ListTopicSubscriptions", listed, "subscriptions"))
        ordered = [one for one in subscriptions if self._ordered(one)]
        found, unknown = machine.judge(log, subscriptions, ordered)
        if unknown:
            why = "; ".join(gap.sentence for gap in machine.gaps()[:3])
            self.outcome.unknown.append(f"{short_id(name)}: {unknown} messages are not known to be well: {why}.")
        self.outcome.topics += 1
        self.outcome.messages += machine.messages
        for one in found:
            self._found(name, universe, one)

    def _ordered(self, name: str) -> bool:
        request = pubsub.GetSubscriptionRequest(subscription=name)
        return bool(self._call("Subscriber.GetSubscription", request).enable_message_ordering)

    def _found(self, topic: str, universe: int, one: Amiss) -> None:
        self.outcome.total += one.end - one.begin
        for offset in range(one.begin, min(one.end, one.begin + NAMED)):
            if len(self.outcome.findings) >= NAMED:
                return
            stored = stored_at(self._call, topic, one.source, offset)
            named = format_message_id(universe, one.source, offset) if stored is None else stored.message_id
            self.outcome.findings.append(MessageAmiss(HOPS[one.kind], one.kind, named, topic, one.subscription))

    def copies(self, servers: Servers, flows: Sequence[Flow], old_us: int) -> None:
        """Judge the hop between sites: flows should have copied what was published before `old_us`."""
        for flow in flows:
            try:
                self._flow(servers, flow, old_us)
            except SyncpointError as error:
                if error.code not in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
                    raise
                self.outcome.unknown.append(f"{flow.name}: {error.message}")

    def _flow(self, servers: Servers, flow: Flow, old_us: int) -> None:
        source, link = flow.link.source, servers.link_of(flow)

        def call(method: str, request: Any) -> Any:
            return servers.call(source, method, request)

        for gap in () if link is None else link.skipped:
            self._copy_found(call, "skipped", flow, OffsetRange(gap.source, gap.begin, gap.end))
        cursor = servers.cursor(flow)
        waiting = servers.positions_of(flow).sources if cursor is None else cursor.ranges
        for one in waiting:
            first = stored_at(call, flow.source_topic, one.source, one.begin) if one.begin < one.end else None
            if first is not None and first.publish_time.ToMicroseconds() < old_us:
                self._copy_found(call, "not copied", flow, OffsetRange(one.source, one.begin, one.end))

    def _copy_found(self, call: Call, kind: str, flow: Flow, missing: OffsetRange) -> None:
        self.outcome.total += missing.end - missing.begin
        if len(self.outcome.findings) < NAMED:
            first = stored_at(call, flow.source_topic, missing.source, missing.begin)
            named = f"source {missing.source}, offset {missing.begin}" if first is None else str(first.message_id)
            self.outcome.findings.append(MessageAmiss("copy", kind, named, flow.source_topic, flow.name))


def reconcile(
    call: Call, servers: Servers, links: Sequence[FederationLink], project: str, window: Window
) -> ReconciliationOutcome:
    """Reconcile projects/P at one site, with what the flows of links should have copied from there, and report it to
    that site. Raises `SyncpointError`.
    """
    leaving = [one for one in links if f"projects/{one.source_project}" == project]
    work = ProjectReconciliation(call, project, window, exchanged=any(one.acks for one in leaving))
    found = work.run()
    flows, silent = servers.reported_flows(leaving)
    found.unknown += [f"{site}: {why}" for site, why in silent.items()]
    work.copies(servers, flows, window.until_us)
    request = admin.ReportReconciliationRequest(project=project, reconciliation=found.message)
    call("Admin.ReportReconciliation", request)
    return found


def sentence(project: str, found: ReconciliationOutcome) -> str:
    """All of that in one line."""
    what = f"{counted(found.messages, 'message')} of {counted(found.topics, 'topic')}"
    if found.total:
        return f"{project}: {found.total:,} of {what} amiss."
    if found.unknown:
        return f"{project}: nothing amiss in {what}, but not everything is known."
    return f"{project}: all adds up: {what}."
