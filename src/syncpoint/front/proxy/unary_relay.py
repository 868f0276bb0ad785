"""Pull, Acknowledge and ModifyAckDeadline, relayed to the subscribe forwarder that serves the subscription.

Place: between clients and `api/subscriber` of a subscribe forwarder; requests and responses pass as bytes.
Promise: a forwarder that died is not shown to the client while another one can answer in time. Ack ids go to who lent
the message, as long as that one lives: it waits for them, also after the clients have moved on; otherwise to who serves
the subscription now. Nothing that a forwarder returned about single ack ids is lost when an answer is put together
from several.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from syncpoint.base.kernel import split
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.kernel.leases import list_ids
from syncpoint.base.kernel.publish import topic_of
from syncpoint.base.model.cluster import Member
from syncpoint.base.model.errors import Code, SyncpointError, Unavailable, not_a
from syncpoint.base.model.times import ACK_S, PULL_S
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.catalog.transforms.message_transforms import Transformer
from syncpoint.catalog.transforms.responses import Response, TransformedResponse, transformed_response
from syncpoint.front.proxy.cancellable_calls import MOVABLE, CancellableCall, CancellableCalls
from syncpoint.front.proxy.retrying import LAG_S, PAUSES_S, stepped
from syncpoint.front.proxy.sealing import Sealer
from syncpoint.front.proxy.subscription_routing import SubscriptionRouting
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.status import EXACTLY_ONCE_REASON, ack_failure, ack_outcomes, error_info
from syncpoint.wire.transport.calls import Call, Methods, Unary
from syncpoint.wire.transport.tasks import unary_async

PULL = methods.SUBSCRIBER.Pull
ACKNOWLEDGE = methods.SUBSCRIBER.Acknowledge
MODIFY = methods.SUBSCRIBER.ModifyAckDeadline
ACK_IDS_FIELD = 2
MODIFY_IDS_FIELD = 4

_KINDS = {0: "PullRequest", ACK_IDS_FIELD: "AcknowledgeRequest", MODIFY_IDS_FIELD: "ModifyAckDeadlineRequest"}

log = logging.getLogger(__name__)


class UnaryRelay:
    """Unary calls of subscribers. `spread`: which of the forwarders that share a subscription serves the pulls here."""

    def __init__(
        self,
        serving: SubscriptionRouting,
        calls: CancellableCalls,
        *,
        transformer: Transformer,
        sealer: Sealer | None = None,
        spread: int = 0,
    ) -> None:
        self.serving, self.calls, self.sealer, self.spread = serving, calls, sealer, spread
        self.transformer = transformer
        self.relayed = self.retried = 0
        self._waiting: dict[Callable[[], None], None] = {}  # in the order of their coming
        self._giving_back = Tasks()

    def methods(self) -> Methods:
        """The unary data-plane methods of google.pubsub.v1.Subscriber."""
        return {
            PULL.encode(): unary_async(self._pull),
            ACKNOWLEDGE.encode(): self._acks(ACKNOWLEDGE, ACK_IDS_FIELD),
            MODIFY.encode(): self._acks(MODIFY, MODIFY_IDS_FIELD),
        }

    def drain(self) -> None:
        """Pulls that wait are answered now, with nothing: the proxy is about to stop."""
        for answer in list(self._waiting):
            answer()

    # -- pulling -----------------------------------------------------------------------------------------------------

    async def _pull(self, call: Call, request: bytes) -> bytes:
        """The answer to Pull, with the data of messages opened. Cancelled, what comes too late is given back."""
        record = await self.serving.find(_name(request))
        deadline = call.deadline
        if deadline is None:
            deadline = asyncio.get_running_loop().time() + PULL_S
        work = asyncio.ensure_future(self._send(record, PULL, request, deadline, whole=True))

        def stop() -> None:
            if not work.done():
                work.cancel()
                call.reply(b"")  # the proxy is about to stop

        self._waiting[stop] = None
        try:
            response, member = await work
        except asyncio.CancelledError:
            if not work.cancel() and not work.cancelled() and work.exception() is None:
                response, member = work.result()
                self.give_back(record, member, [response])  # it came at the very moment when the caller left
            raise
        finally:
            del self._waiting[stop]
        try:
            if self.sealer is not None:
                response = await self.sealer.open(response)
            if not response or not self.serving.current(record).transforms:
                return response
            found = await self.transformed(record, pubsub.PullResponse, response)
            self.say(record, found)
            return found.responses[0]
        except asyncio.CancelledError:
            self.give_back(record, member, [response])
            raise

    async def transformed(self, record: Subscription, kind: type[Response], response: bytes) -> TransformedResponse:
        """A response after the transforms of its subscription."""
        return await transformed_response(self.transformer, self.serving.current(record), kind, response)

    def say(self, record: Subscription, found: TransformedResponse) -> None:
        """What transforms dropped is acknowledged, what they failed at is refused."""
        for path, field, request in found.requests(record.name):
            self._giving_back.start(self._say(record, path, request, field))

    async def _say(self, record: Subscription, path: str, request: bytes, field: int) -> None:
        try:
            await self.to_holders(record, path, request, field)
        except SyncpointError as error:
            log.info("messages of %s come back when their deadline ends: %s", record.name, error)

    # -- acknowledging -----------------------------------------------------------------------------------------------

    def _acks(self, path: str, field: int) -> Unary:
        async def run(call: Call, request: bytes) -> bytes:
            record = await self.serving.find(_name(request, field))
            return await self.to_holders(record, path, request, field, call.deadline)

        return unary_async(run)

    async def to_holders(
        self, record: Subscription, path: str, request: bytes, field: int, deadline: float | None = None
    ) -> bytes:
        """Bring ack ids, in this field of a request, to the forwarder that lent the messages. Raises what the client
        receives."""
        longest = asyncio.get_running_loop().time() + ACK_S
        deadline = longest if deadline is None else min(deadline, longest)
        parts = self._by_member(record, request, field)
        if len(parts) == 1:
            ((member, part),) = parts
            response, _ = await self._send(record, path, part, deadline, first=member)
            return response
        results = await asyncio.gather(
            *(self._send(record, path, part, deadline, first=member) for member, part in parts),
            return_exceptions=True,
        )
        once = self.serving.current(record).exactly_once
        errors = [
            _unknown(one, part, field) if once else one
            for one, (_, part) in zip(results, parts, strict=True)
            if isinstance(one, BaseException)
        ]
        error = merged(errors)
        if error is not None:
            raise error
        return b""

    async def asked_of_holders(
        self, record: Subscription, path: str, request: bytes, field: int
    ) -> list[tuple[bytes, bytes | SyncpointError]]:
        """Send an answered request to the holders of its ack ids; returns each part of the request with its result."""
        deadline = asyncio.get_running_loop().time() + ACK_S
        parts = self._by_member(record, request, field)
        answers = await asyncio.gather(
            *(self._send(record, path, part, deadline, first=member) for member, part in parts), return_exceptions=True
        )
        found: list[tuple[bytes, bytes | SyncpointError]] = []
        for (_, part), answer in zip(parts, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, SyncpointError):
                raise answer
            found.append((part, answer if isinstance(answer, SyncpointError) else answer[0]))
        return found

    def _by_member(self, record: Subscription, request: bytes, field: int) -> list[tuple[Member | None, bytes]]:
        """Parts of a request, each with the forwarder that must receive it; None: the one that serves the
        subscription."""
        try:
            others, groups = split.by_lender(request, field)
        except Malformed:
            raise not_a(_KINDS[field]) from None
        parts: list[tuple[Member | None, bytes]] = []
        unknown = b""
        for lender, fields in groups.items():
            members = self.serving.lease_holders(lender)
            parts += [(member, others + fields) for member in members]
            if not members:
                unknown += fields  # it is gone: the forwarder that serves the subscription now decides
        if unknown or not parts:
            parts.append((None, others + unknown))
        return parts

    def give_back(self, record: Subscription, member: Member, responses: list[bytes]) -> None:
        """Messages that never reached a client are free again at once."""
        self._giving_back.start(self._give_back(record, member, responses))

    async def _give_back(self, record: Subscription, member: Member, responses: list[bytes]) -> None:
        name = record.name.encode()
        head = b"\x0a" + bytes((len(name) & 127 | 128, len(name) >> 7)) + name
        deadline = asyncio.get_running_loop().time() + ACK_S
        try:
            for response in responses:
                for fields in split.modify_fields(response):
                    await self._send(record, methods.DELIVERIES.TakeBack, head + fields, deadline, first=member)
        except SyncpointError as error:
            log.info("messages of %s come back when their deadline ends: %s", record.name, error)

    # -- one call ----------------------------------------------------------------------------------------------------

    async def _send(
        self,
        record: Subscription,
        path: str,
        request: bytes,
        deadline: float,
        *,
        first: Member | None = None,
        whole: bool = False,
    ) -> tuple[bytes, Member]:
        """The answer of the first forwarder that has one, and who that was. Raises what the client receives.

        `whole`: the forwarder receives the deadline as it is, because it answers just before.
        """
        loop = asyncio.get_running_loop()
        attempt, begun, turns = CancellableCall(), loop.time(), 0
        tried: set[str] = set()
        while True:
            member = first or next((m for m in self._members(record) if m.name not in tried), None)
            first = None
            if member is None:
                tried.clear()
                await self._pause(deadline, turns)
                turns += 1
                continue
            tried.add(member.name)
            left_s = deadline - loop.time()
            if left_s <= 0:
                raise SyncpointError(Code.DEADLINE_EXCEEDED, "Deadline exceeded.")
            timeout_s = max(0.05, math.floor(left_s * 10) / 10) if whole else stepped(left_s)
            try:
                answer = await self.calls.call(attempt, member.address, path, request, timeout_s)
                self.relayed += 1
                return answer, member
            except SyncpointError as error:
                self.retried += 1
                if error.code is Code.NOT_FOUND and loop.time() < begun + LAG_S and self.serving.known(record):
                    tried.discard(member.name)  # its copy of the catalog may be a moment older than ours
                    await self._pause(deadline, turns)
                    turns += 1
                elif error.code not in MOVABLE or loop.time() >= deadline:
                    raise

    def _members(self, record: Subscription) -> list[Member]:
        return self.serving.members(record, self.spread)

    async def _pause(self, deadline: float, turns: int) -> None:
        left_s = deadline - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise Unavailable("No subscribe forwarder answered in time. Try again.")
        await asyncio.sleep(min(left_s, PAUSES_S[min(turns, len(PAUSES_S) - 1)]))

    def suspected(self, address: str) -> None:
        """An address is silent: what waits there goes to the next one."""
        for attempt in self.calls.at(address):
            if type(attempt) is CancellableCall:
                attempt.move()

    async def close(self) -> None:
        """Leave nothing running."""
        await self._giving_back.stop()


def _unknown(error: BaseException, request: bytes, field: int) -> BaseException:
    """The failure of one part of a request, for its ids alone: those of other parts may have been acknowledged, and
    would fail if they were tried again.
    """
    if isinstance(error, SyncpointError) and error.code in MOVABLE:
        return ack_failure([], unknown=list_ids(request, field))
    return error


def merged(errors: list[BaseException]) -> BaseException | None:
    """One failure of several: what was reported about single ack ids is joined, anything else comes first."""
    outcomes: dict[str, str] = {}
    texts: list[SyncpointError] = []
    for error in errors:
        found = ack_outcomes(error) if isinstance(error, SyncpointError) else {}
        if not found or not isinstance(error, SyncpointError):
            return error
        outcomes |= found
        texts.append(error)
    if not texts:
        return None
    return SyncpointError(texts[0].code, texts[0].message, [error_info(EXACTLY_ONCE_REASON, outcomes)])


def _name(request: bytes, field: int = 0) -> str:
    """The subscription a request names; `field`: of its ack ids. Raises `InvalidArgument`."""
    try:
        return topic_of(request).decode()
    except Malformed:
        raise not_a(_KINDS[field]) from None
