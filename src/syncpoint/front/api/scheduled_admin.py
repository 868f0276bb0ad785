"""Messages that wait for their time: listed by pages, shown, cancelled.

Place: a part of syncpoint.admin.v1, mounted by `server_admin`; what waits is known to the owner of a chain, see
`publish.scheduled_calls`.
Promise: a page is complete, of all chains that may have messages of the topic, or the call is UNAVAILABLE. What is
cancelled is never delivered; what was published before the cancellation came is NOT_FOUND.
"""

from __future__ import annotations

from heapq import merge
from typing import Protocol

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.model.identity import MessageId, format_message_id, parse_message_id
from syncpoint.broker.publish.intake.scheduled_calls import not_waiting
from syncpoint.front.api import pages
from syncpoint.front.api.options_admin import Handlers, OptionsAdmin, admin_table
from syncpoint.front.api.peek_admin import PeekAdmin
from syncpoint.front.api.validate import refused
from syncpoint.wire.protobuf.messages import admin, internal, pubsub
from syncpoint.wire.transport.calls import Methods


class AskingForScheduled(Protocol):
    """Ask every chain for scheduled messages. Both methods raise `Unavailable` if a chain does not answer."""

    async def scheduled(self, request: internal.ScheduledListRequest) -> list[internal.ScheduledOfChain]:
        """What waits in every chain that may have messages of a topic."""
        ...

    async def cancel_scheduled(self, request: internal.ScheduledCancelRequest) -> bool:
        """Whether it waited, and is cancelled."""
        ...


class ScheduledAdmin:
    """These methods on messages; `methods()` serves them on bytes. `peeks`: how the content of messages is opened."""

    def __init__(self, options: OptionsAdmin, asking: AskingForScheduled, peeks: PeekAdmin, universe: int) -> None:
        self._options, self._asking, self._peeks, self._universe = options, asking, peeks, universe

    def methods(self) -> Methods:
        """The method table."""
        table: Handlers = {
            "ListScheduledMessages": self.list_scheduled_messages,
            "GetScheduledMessage": self.get_scheduled_message,
            "CancelScheduledMessage": self.cancel_scheduled_message,
        }
        return admin_table(self._options.control, table)

    async def list_scheduled_messages(
        self, request: admin.ListScheduledMessagesRequest
    ) -> admin.ListScheduledMessagesResponse:
        """ListScheduledMessages: in the order of their times, from all chains."""
        record = self._options.topic(request.topic)
        listing = f"scheduled messages of {record.name}"
        page = pages.asked(request.page_size, request.page_token, listing)
        asked = internal.ScheduledListRequest(topic=record.incarnation, messages_max=page.size + 1)
        if page.after is not None:
            asked.after.CopyFrom(_parse_entry(page.after))
        chains = await self._asking.scheduled(asked)
        merged = merge(*([(_order(one), chain.chain, one) for one in chain.messages] for chain in chains), key=_first)
        found = [(chain, one) for _, chain, one in merged]
        answer = admin.ListScheduledMessagesResponse(
            messages=[self._message(chain, one) for chain, one in found[: page.size]]
        )
        if len(found) > page.size:
            due_ns, source, offset = _order(found[page.size - 1][1])
            answer.next_page_token = pages.token_of(f"{due_ns} {source} {offset}", listing)
        return answer

    async def get_scheduled_message(self, request: admin.GetScheduledMessageRequest) -> admin.ScheduledMessage:
        """GetScheduledMessage: with what will be published."""
        record, place = self._options.topic(request.topic), self._place(request.message_id)
        self._peeks.check_passing(record)
        asked = internal.ScheduledListRequest(topic=record.incarnation, source=place.source, offset=place.offset)
        for chain in await self._asking.scheduled(asked):
            for one in chain.messages:
                answer = self._message(chain.chain, one)
                sealed = pubsub.PullResponse(
                    received_messages=[
                        pubsub.ReceivedMessage(ack_id="0", message=pubsub.PubsubMessage.FromString(one.message))
                    ]
                )
                opened = pubsub.PullResponse.FromString(await self._peeks.open(sealed.SerializeToString()))
                if not opened.received_messages:
                    raise Unavailable("The message cannot be decrypted: its data was changed or its key was removed.")
                answer.message.CopyFrom(opened.received_messages[0].message)
                answer.message.ClearField("publish_time")  # it was not published
                return answer
        raise not_waiting()

    async def cancel_scheduled_message(
        self, request: admin.CancelScheduledMessageRequest
    ) -> admin.CancelScheduledMessageResponse:
        """CancelScheduledMessage."""
        record, place = self._options.topic(request.topic), self._place(request.message_id)
        asked = internal.ScheduledCancelRequest(topic=record.incarnation, source=place.source, offset=place.offset)
        if not await self._asking.cancel_scheduled(asked):
            raise not_waiting()
        return admin.CancelScheduledMessageResponse()

    def _place(self, message_id: str) -> MessageId:
        place = parse_message_id(message_id)
        if place.universe != self._universe:
            raise not_waiting()
        return place

    def _message(self, chain: int, one: internal.ScheduledEntry) -> admin.ScheduledMessage:
        answer = admin.ScheduledMessage(
            message_id=format_message_id(self._universe, one.source, one.offset), chain=chain
        )
        answer.enqueue_time.FromNanoseconds(one.due_ns)
        return answer


def _order(one: internal.ScheduledEntry) -> tuple[int, int, int]:
    return one.due_ns, one.source, one.offset


def _first(row: tuple[tuple[int, int, int], int, internal.ScheduledEntry]) -> tuple[int, int, int]:
    return row[0]


def _parse_entry(text: str) -> internal.ScheduledEntry:
    parts = text.split(" ")
    if len(parts) != 3 or not all(part.isdigit() and len(part) <= 20 for part in parts):
        raise refused(
            "page_token", "Invalid page_token: it must be the next_page_token of a previous response for this list."
        )
    due_ns, source, offset = map(int, parts)
    if due_ns >= 1 << 63 or source >= 1 << 64 or offset >= 1 << 64:
        raise refused(
            "page_token", "Invalid page_token: it must be the next_page_token of a previous response for this list."
        )
    return internal.ScheduledEntry(due_ns=due_ns, source=source, offset=offset)
