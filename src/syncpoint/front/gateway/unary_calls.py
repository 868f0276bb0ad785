"""Calls with one answer, brought to the site that is to have them.

Place: between clients and sites; requests and answers pass as bytes, with the caller's own authorization.
Promise: what a site may have begun is never sent to another one: the caller reads UNAVAILABLE, and its client tries
again. What certainly was not begun goes to the next site at once. Ack ids go to the site that lent the message. A
change (create, update, delete, seek, a policy) is made at the home first and then at every other site that takes
calls; where one of them refuses, the caller reads at which sites it is made, and repeats the call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from syncpoint.base.kernel import split
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.kernel.leases import list_ids
from syncpoint.base.kernel.publish import topic_of
from syncpoint.base.model import varint
from syncpoint.base.model.errors import Code, InvalidArgument, SyncpointError, Unavailable, Unprocessed, not_a
from syncpoint.base.model.limits import ACK_REQUEST_BYTES_MAX
from syncpoint.front.api.receipted_publish import HEADER
from syncpoint.front.gateway.ack_tags import TAG_BYTES, merged_error, tagged_error
from syncpoint.front.gateway.caller_bounds import CallerBounds
from syncpoint.front.gateway.site_board import SiteBoard
from syncpoint.front.gateway.site_link import SiteLink
from syncpoint.front.proxy.cancellable_calls import MOVABLE
from syncpoint.front.proxy.retrying import stepped
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.status import ack_failure, ack_outcomes
from syncpoint.wire.transport.calls import Call, CallContext, Methods, Unary
from syncpoint.wire.transport.client import MetadataItems
from syncpoint.wire.transport.headers import SECRET
from syncpoint.wire.transport.tasks import unary_async

DEADLINE_S: Final = 60.0  # of callers who name none
ACK_BYTES_MAX: Final = 2 * ACK_REQUEST_BYTES_MAX
ACK_ID_FIELD_BYTES: Final = 50  # of an ack id as sites spell them, with its head
_READS: Final = ("Get", "List", "Validate", "Test")
_NOT_OURS: Final = frozenset((SECRET, b"syncpoint-stream", b"user-agent", b"host", HEADER))
_DONE: Final = {"Create": Code.ALREADY_EXISTS, "Commit": Code.ALREADY_EXISTS, "Delete": Code.NOT_FOUND}
"""What a site answers where a change was made there before, by how the method's name begins."""

log = logging.getLogger(__name__)


def passed_on(call: CallContext) -> MetadataItems:
    """The caller's metadata as a site receives it."""
    found = tuple(item for item in call.metadata.items() if item[0] not in _NOT_OURS)
    # who shows nothing must not pass for the gateway, whose certificate the site sees
    return found if b"authorization" in call.metadata else (*found, (b"authorization", b""))


def done_before(path: str) -> Code | None:
    """What a site answers where a change was made there before; None: nothing special."""
    return next((code for head, code in _DONE.items() if path.rpartition("/")[2].startswith(head)), None)


def named_in(request: bytes) -> str:
    """The resource that a request names in its first field; "" where it names none."""
    try:
        return topic_of(request).decode()
    except Malformed:
        return ""


def left_s(call: CallContext) -> float:
    """A timeout for what is asked of a site on behalf of a caller."""
    if call.deadline is None:
        return DEADLINE_S
    return stepped(max(0.0, call.deadline - asyncio.get_running_loop().time()))


class UnaryCalls:
    """All of a gateway. `on_lost(site)`: a site refused a connection; it is probed at once."""

    def __init__(
        self, board: SiteBoard, links: Mapping[str, SiteLink], bounds: CallerBounds, on_lost: Callable[[str], None]
    ) -> None:
        self.board, self.links, self.bounds, self.on_lost = board, links, bounds, on_lost
        self._by_tag = {link.tag: link for link in links.values()}
        self.on_acknowledged: Callable[[str, list[str]], None] = lambda subscription, ack_ids: None
        """Called with ack ids, as clients have them, that a site has acknowledged."""
        self.stands_in: Callable[[str, list[str]], bool] = lambda subscription, ack_ids: False
        """Whether ack ids of a site that is gone were acknowledged by copies."""
        self.on_change: Callable[[str, bytes], None] = lambda method, request: None
        """Called with a change that the home has made."""

    def methods(self) -> Methods:
        """Every method with one request and one answer of Publisher, Subscriber, SchemaService and IAMPolicy."""
        table: dict[bytes, Unary] = {}
        for service in (methods.PUBLISHER, methods.SUBSCRIBER, methods.SCHEMAS, methods.IAM):
            for method in service:
                if not method.is_streaming:
                    reads = method.descriptor.name.startswith(_READS)
                    table[method.encode()] = unary_async(self._read if reads else self._change)
        table[methods.PUBLISHER.Publish.encode()] = unary_async(self.publish)
        table[methods.SUBSCRIBER.Pull.encode()] = unary_async(self.pull)
        table[methods.SUBSCRIBER.Acknowledge.encode()] = unary_async(self._acknowledge)
        table[methods.SUBSCRIBER.ModifyAckDeadline.encode()] = unary_async(self._modify)
        return table

    # -- one site -----------------------------------------------------------------------------------------------------

    async def at_home(self, call: CallContext, path: str, request: bytes) -> tuple[bytes, SiteLink]:
        """The answer of the first site that certainly began the call, and which one that was."""
        metadata = passed_on(call)
        error: SyncpointError = Unavailable("No site takes calls.")
        for name in self.board.open_sites():
            link = self.links[name]
            try:
                return await link.unary(path, request, metadata, left_s(call)), link
            except Unprocessed as refused:
                link.failed += 1
                self.on_lost(name)
                error = refused
            except SyncpointError as failed:
                if failed.code in MOVABLE:
                    link.failed += 1
                    self.on_lost(name)
                raise
        raise error

    async def publish(self, call: Call, request: bytes) -> bytes:
        """Store messages at the home."""
        with self.bounds.sending(call, len(request)):
            return (await self.at_home(call, methods.PUBLISHER.Publish, request))[0]

    async def _read(self, call: Call, request: bytes) -> bytes:
        return (await self.at_home(call, call.path.decode(), request))[0]

    async def pull(self, call: Call, request: bytes) -> bytes:
        """Messages of the home, with tagged ack ids."""
        response, link = await self.at_home(call, methods.SUBSCRIBER.Pull, request)
        return split.tag_ack_ids(response, link.tag)[0]

    # -- all sites ----------------------------------------------------------------------------------------------------

    async def _change(self, call: Call, request: bytes) -> bytes:
        path = call.path.decode()
        with self.bounds.sending(call, len(request)):
            try:
                response, home = await self.at_home(call, path, request)
            except SyncpointError as error:
                if error.code is not done_before(path):
                    raise
                repeated = await self.change_elsewhere(call, path, request, [self.board.home])
                if repeated is None:  # no other site lacked it, either
                    raise
                self.on_change(path, request)
                return repeated
            self.on_change(path, request)
            await self.change_elsewhere(call, path, request, [home.name])
            return response

    async def change_elsewhere(self, call: CallContext, path: str, request: bytes, done: list[str]) -> bytes | None:
        """Make a change at all sites that take calls but those of `done`; an answer of one where it was not made
        before.
        """
        known, metadata = done_before(path), passed_on(call)
        answer: bytes | None = None
        for name in self.board.open_sites():
            if name in done:
                continue
            try:
                answer = await self.links[name].unary(path, request, metadata, left_s(call))
            except SyncpointError as error:
                if error.code is not known:
                    raise SyncpointError(
                        error.code if error.code in MOVABLE else Code.FAILED_PRECONDITION,
                        f"Done at {', '.join(done)}, but not at {name} ({error}). Repeat the call, or mask {name}:"
                        f" `syncpoint gateway mask {name}`.",
                    ) from error
            done.append(name)
        return answer

    # -- acknowledgements ---------------------------------------------------------------------------------------------

    async def _acknowledge(self, call: Call, request: bytes) -> bytes:
        return await self.to_holders(call, methods.SUBSCRIBER.Acknowledge, request, 2)

    async def _modify(self, call: Call, request: bytes) -> bytes:
        return await self.to_holders(call, methods.SUBSCRIBER.ModifyAckDeadline, request, 4)

    async def to_holders(self, call: CallContext, path: str, request: bytes, field: int) -> bytes:
        """Bring ack ids, in this field of a request, to the sites that lent the messages."""
        check_ack_bytes(request)
        try:
            others, groups = split.by_tag(request, field, TAG_BYTES)
        except Malformed:
            raise not_a("request with ack ids") from None
        if not groups:
            return (await self.at_home(call, path, request))[0]  # the site reports what is missing
        if not groups.keys() <= self._by_tag.keys():
            groups = self._with_strangers(groups, field)
        if len(groups) == 1:
            ((tag, ids),) = groups.items()
            link = self._by_tag[tag]
            try:
                return await self._to_holder(call, link, path, others, ids, field)
            except SyncpointError as error:
                raise tagged_error(error, tag) from None
        results = await asyncio.gather(
            *(self._to_holder(call, self._by_tag[tag], path, others, ids, field) for tag, ids in groups.items()),
            return_exceptions=True,
        )
        errors: dict[bytes, SyncpointError] = {}
        for tag, result in zip(groups, results, strict=True):
            if isinstance(result, SyncpointError):
                errors[tag] = result
            elif isinstance(result, BaseException):
                raise result
        if errors:
            raise merged_error(errors)
        return b""

    def _with_strangers(self, groups: Mapping[bytes, bytes], field: int) -> dict[bytes, bytes]:
        """Ack ids by site, where some are of none: the home judges these, together with its own."""
        home = self.links[self.board.home].tag
        found: dict[bytes, list[bytes]] = {}
        for tag, ids in groups.items():
            if tag not in self._by_tag:
                whole = (tag + one for one in list_ids(ids, field))
                ids = b"".join(bytes((field << 3 | 2,)) + varint.encode(len(one)) + one for one in whole)
            found.setdefault(tag if tag in self._by_tag else home, []).append(ids)
        return {tag: b"".join(pieces) for tag, pieces in found.items()}

    async def _to_holder(
        self, call: CallContext, link: SiteLink, path: str, others: bytes, ids: bytes, field: int
    ) -> bytes:
        if not self.board.is_open(link.name) and not self.board.sites[link.name].answers:
            return await self._of_gone(call, link, others, ids, field)
        with self.bounds.sending(call, len(ids)):
            try:
                response = await link.unary(path, others + ids, passed_on(call), left_s(call))
            except SyncpointError as error:
                if error.code in MOVABLE:
                    self.on_lost(link.name)
                    if not self.board.is_open(link.name):
                        return await self._of_gone(call, link, others, ids, field)
                elif field == 2 and (outcomes := ack_outcomes(error)):  # all others are acknowledged
                    good = [one for one in split_ids(ids, field) if one not in outcomes]
                    self.on_acknowledged(named_in(others), [link.tag.decode() + one for one in good])
                raise
        subscription = named_in(others)
        if subscription in link.outstanding and (field == 2 or split.varint_of(others, 3) <= 0):
            link.lent(subscription, -(len(ids) // ACK_ID_FIELD_BYTES))
        if field == 2:
            self.on_acknowledged(subscription, self._as_lent(link, ids, field))
        return response

    async def _of_gone(self, call: CallContext, link: SiteLink, others: bytes, ids: bytes, field: int) -> bytes:
        """Ack ids of a site that is gone: acknowledged by copies, or unknown; there is nothing to wait for, so that a
        client goes on with others.
        """
        subscription = named_in(others)
        try:
            may = field == 2 and await self.may_consume(call, subscription)
        except SyncpointError:
            may = False
        if may and self.stands_in(subscription, self._as_lent(link, ids, field)):
            return b""
        raise ack_failure([], unknown=split_ids(ids, field))

    async def may_consume(self, call: CallContext, subscription: str) -> bool:
        """Whether a caller may receive from a subscription: the home is asked, which knows who may do what. Raises
        the error of a home that does not answer.
        """
        method = methods.IAM.TestIamPermissions
        request = method.request(resource=subscription, permissions=["pubsub.subscriptions.consume"])
        try:
            answer, _ = await self.at_home(call, method, request.SerializeToString())
        except SyncpointError as error:
            if error.code in MOVABLE:
                raise
            log.info("who may consume %.300r is not known: %.300s", subscription, error)
            return False
        return bool(method.response.FromString(answer).permissions)

    def _as_lent(self, link: SiteLink, ids: bytes, field: int) -> list[str]:
        tag = link.tag.decode()
        return [tag + one for one in split_ids(ids, field)]


def check_ack_bytes(request: bytes) -> None:
    """Raise `InvalidArgument` for a request with more ack ids than are taken apart while everybody waits."""
    if len(request) > ACK_BYTES_MAX:
        raise InvalidArgument(
            "ack_ids",
            f"{len(request):,} bytes are more than the {ACK_BYTES_MAX:,} of one request; send the ack ids in several",
        )


def split_ids(request: bytes, field: int) -> list[str]:
    """The ack ids of a request."""
    return [one.decode() for one in list_ids(request, field)]
