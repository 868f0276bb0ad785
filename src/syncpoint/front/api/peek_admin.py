"""Peek: looking at messages without consuming them, by pages.

Place: a part of syncpoint.admin.v1, mounted by `server_admin`; each chain looks into its own sources, see
`publish.source_peek`.
Promise: nothing is lent, delivered or counted by it. A page is bounded in messages, bytes and reading; one may hold
nothing although there is a next one. What cannot be reached or opened is reported, and the rest is shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from syncpoint.base.kernel.filters import matches
from syncpoint.base.model.errors import FailedPrecondition, SyncpointError, detached
from syncpoint.base.model.identity import OFFSET_END, parse_message_id
from syncpoint.base.model.lanes import in_lane, lane_of, place_in
from syncpoint.base.model.names import project_of
from syncpoint.base.rules import pubsub_filter
from syncpoint.base.runtime.child_processes import Apart, at_once
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.broker.subscribe.lane_rules import LaneRules, RuleFailure, compiled
from syncpoint.broker.subscribe.rule_work import judged_messages
from syncpoint.catalog.metadata.records import Subscription, Topic
from syncpoint.front.api import pages
from syncpoint.front.api.options_admin import Handlers, OptionsAdmin, admin_table
from syncpoint.front.api.validate import in_bounds, refused
from syncpoint.wire.protobuf.messages import admin, internal, pubsub
from syncpoint.wire.transport.calls import Methods

ASKED_MAX = 16
"""Times that chains are asked for one page."""
PAGE_BYTES_MAX = 2 << 20
EVERY_MESSAGE = LaneRules(b"")
_TIME_NS_MAX = (1 << 63) - 1
_NUMBER_MAX = (1 << 64) - 1

Opener = Callable[[bytes], Awaitable[bytes]]
"""A PullResponse with the data of its messages opened, without those that cannot be."""


async def as_it_is(response: bytes) -> bytes:
    """Where nothing is sealed."""
    return response


Passing = Callable[[Topic], bool]
"""Whether messages of a topic may come here, where it keeps them from some regions."""


class AskingChains(Protocol):
    """Ask every chain of a topic."""

    async def chains(
        self, topic: int, subscription: int = 0, ranges_max: int = 0
    ) -> tuple[list[internal.DescribedChain], list[str]]: ...

    async def peek(self, chain: int, request: internal.PeekRequest) -> internal.PeekResponse:
        """What a chain has of a source. Raises `SyncpointError`."""
        ...

    async def receipt(self, chain: int, request: internal.ReceiptRequest) -> internal.ReceiptResponse:
        """Which disks of a chain hold a message. Raises `SyncpointError`."""
        ...

    async def acknowledge_seen(self, chain: int, request: internal.AcknowledgeSeenRequest) -> None:
        """Have a chain acknowledge what was seen of a source. Raises `SyncpointError`."""
        ...


class PeekedCopy(NamedTuple):
    """A copy that a subscription has not acknowledged, and where it lies. Its data may be sealed."""

    chain: int
    copy: CopyId
    message: bytes


class _PeekedRange(NamedTuple):
    """What pages are made of, in a project."""

    project: str
    listing: str
    topic: int
    subscription: int
    lanes: Mapping[int, LaneRules]
    programs: Sequence[bytes]  # of the request
    ordering_key: str
    since_ns: int
    source: int | None = None  # in this one alone
    offset: int = 0  # in each source


class PeekAdmin:
    """These methods on messages; `methods()` serves them on bytes."""

    def __init__(self, options: OptionsAdmin, asking: AskingChains) -> None:
        self._options, self._asking = options, asking
        self.open: Opener = as_it_is
        self.apart: Apart = at_once
        self.may_pass: Passing = lambda topic: True

    def methods(self) -> Methods:
        """The method table."""
        table: Handlers = {"PeekTopic": self.peek_topic, "PeekSubscription": self.peek_subscription}
        return admin_table(self._options.control, table)

    async def peek_topic(self, request: admin.PeekTopicRequest) -> admin.PeekResponse:
        """PeekTopic: what is stored."""
        record = self._options.topic(request.topic)
        self.check_passing(record)
        source, offset = None, request.start_offset
        if request.message_id:
            _, source, offset = parse_message_id(request.message_id)
            if request.start_offset:
                raise refused("start_offset", "At most one of start_offset and message_id may be set.")
        in_bounds("start_offset", request.start_offset, 0, OFFSET_END)
        wanted = _PeekedRange(
            project_of(record.name), f"messages of {record.name}", record.incarnation, 0, {0: EVERY_MESSAGE},
            _programs(request.filter), request.ordering_key, _since(request), source, offset,
        )  # fmt: skip
        return await self._page(wanted, request.page_size, request.page_token)

    async def peek_subscription(self, request: admin.PeekSubscriptionRequest) -> admin.PeekResponse:
        """PeekSubscription: what is stored and not acknowledged, what is out with subscribers included; copies as the
        rules make them.
        """
        record = self._options.subscription(request.subscription)
        wanted = self._range(record, request.filter, request.ordering_key, _since(request))
        return await self._page(wanted, request.page_size, request.page_token)

    def _range(self, record: Subscription, text: str, key: str, since_ns: int) -> _PeekedRange:
        if record.detached:
            raise detached(record.name)
        topic = self._options.control.catalog.topic_of(record)
        if topic is not None:
            self.check_passing(topic)
        own = pubsub_filter.compile(record.filter_text) if record.filter_text else b""
        lanes = compiled(record, own, lazy=True) or {0: LaneRules(own)}
        return _PeekedRange(
            project_of(record.name), f"messages of {record.name}", record.topic_incarnation, record.incarnation, lanes,
            _programs(text), key, since_ns,
        )  # fmt: skip

    async def copies(
        self, record: Subscription, since_ns: int, page_size: int, page_token: str
    ) -> tuple[list[PeekedCopy], str, list[str]]:
        """A page of what a subscription has not acknowledged, as it is stored; the token of the next page, and what
        cannot be shown. Raises `FailedPrecondition`.
        """
        return await self._looked(self._range(record, "", "", since_ns), page_size, page_token)

    def check_passing(self, topic: Topic) -> None:
        if not self.may_pass(topic):
            raise FailedPrecondition(
                f"Messages of {topic.name} may not pass through the region of this process: its message_storage_policy"
                f" enforces transit. Use an endpoint in {', '.join(topic.regions)[:200]}."
            )

    async def _page(self, wanted: _PeekedRange, page_size: int, page_token: str) -> admin.PeekResponse:
        found, token, unknown = await self._looked(wanted, page_size, page_token)
        return admin.PeekResponse(messages=await self.opened(found, unknown), next_page_token=token, unknown=unknown)

    async def _looked(
        self, wanted: _PeekedRange, page_size: int, page_token: str
    ) -> tuple[list[PeekedCopy], str, list[str]]:
        page = pages.asked(page_size, page_token, wanted.listing)
        begin = _parse_place(page.after) if page.after is not None else (0, 0)
        chains, unknown = await self._asking.chains(wanted.topic)
        places = sorted(
            (source.source, in_lane(lane, max(source.first_offset, wanted.offset)), chain.chain)
            for chain in chains
            for source in chain.sources
            for lane in wanted.lanes
            if wanted.source in (None, source.source)
        )
        found: list[PeekedCopy] = []
        left = ASKED_MAX
        token = ""
        for source, first, chain in places:
            if (source, lane_of(first)) < (begin[0], lane_of(begin[1])):
                continue
            at = max(first, begin[1]) if (source, lane_of(first)) == (begin[0], lane_of(begin[1])) else first
            end = False
            while not (end or token):
                if not left or len(found) == page.size or sum(len(one.message) for one in found) >= PAGE_BYTES_MAX:
                    token = pages.token_of(f"{source} {at}", wanted.listing)
                    break
                left -= 1
                rules = wanted.lanes[lane_of(first)]
                programs = [] if rules.judge else [one for one in (rules.program, *wanted.programs) if one]
                asked = internal.PeekRequest(
                    topic=wanted.topic,
                    subscription=wanted.subscription,
                    source=source,
                    begin=at,
                    since_ns=wanted.since_ns,
                    programs=programs,
                    ordering_key=wanted.ordering_key,
                    messages_max=page.size - len(found),
                )
                try:
                    answer = await self._asking.peek(chain, asked)
                except SyncpointError as error:
                    unknown.append(f"chain {chain}, source {source}: {error.message}")
                    break
                if answer.unreadable:
                    unknown.append(f"chain {chain}, source {source}: {answer.unreadable} messages cannot be read")
                copies = await copies_of(self.apart, wanted.project, rules, source, answer.messages)
                for one, copy in zip(answer.messages, copies, strict=True):
                    if isinstance(copy, RuleFailure):
                        continue  # it waits for the dead-letter topic alone, or is not selected
                    if copy is not None and (not rules.judge or all(matches(p, copy) for p in wanted.programs)):
                        found.append(PeekedCopy(chain, CopyId(source, one.place, answer.generation), copy))
                at, end = answer.next, answer.end
            if token:
                break
        return found, token, unknown

    async def opened(self, found: Sequence[PeekedCopy], unknown: list[str]) -> list[admin.PeekedMessage]:
        """With their data as it was published; what cannot be opened is added to `unknown`."""
        sealed = pubsub.PullResponse(
            received_messages=[
                pubsub.ReceivedMessage(ack_id=str(number), message=pubsub.PubsubMessage.FromString(one.message))
                for number, one in enumerate(found)
            ]
        )
        opened = pubsub.PullResponse.FromString(await self.open(sealed.SerializeToString()))
        if len(opened.received_messages) < len(found):
            lost = len(found) - len(opened.received_messages)
            unknown.append(f"{lost} messages cannot be decrypted: their data was changed or their key was removed")
        shown = []
        for one in opened.received_messages:
            peeked = found[int(one.ack_id)]
            offset = place_in(peeked.copy.place)[1]
            shown.append(
                admin.PeekedMessage(message=one.message, source=peeked.copy.source, offset=offset, chain=peeked.chain)
            )
        return shown


async def copies_of(
    apart: Apart, project: str, rules: LaneRules, source: int, messages: Sequence[internal.PeekedPlace]
) -> list[bytes | RuleFailure | None]:
    """What a lane makes of each message; None: nothing. Raises `SyncpointError` where nobody can judge them now."""
    if rules.judge is None:
        return [one.message for one in messages]
    asked = [(source, one.place, one.message) for one in messages]
    found = await judged_messages(apart, project, rules, asked)
    return [
        message if outcome is True else None if outcome is False else outcome
        for (_, _, message), outcome in zip(asked, found, strict=True)
    ]


def _programs(text: str) -> list[bytes]:
    return [pubsub_filter.compile(text)] if text else []


def _since(request: admin.PeekTopicRequest | admin.PeekSubscriptionRequest) -> int:
    moment = request.start_time
    return max(0, min(moment.seconds * 1_000_000_000 + moment.nanos, _TIME_NS_MAX))


def _parse_place(text: str) -> tuple[int, int]:
    parts = text.split(" ")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and int(part) <= _NUMBER_MAX for part in parts):
        raise refused(
            "page_token", "Invalid page_token: it must be the next_page_token of a previous response for this list."
        )
    return int(parts[0]), int(parts[1])
