"""Publishes whose caller has asked for a receipt: answered as any other, with the receipt in the trailers.

Place: beside the method Publish in the table of the port for clients, over its guarded form; the transport chooses it
once for each block of headers, so a publish that does not ask passes nothing of this.
Promise: a publish is answered as persisted whatever becomes of its receipt; where there is none, another trailer holds
the reason. What the receipt is about is what the caller has just published, so it takes no right but that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from syncpoint.base.model.errors import Code, ResourceExhausted, SyncpointError
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.front.api.receipt_admin import ReceiptAdmin
from syncpoint.wire.protobuf.messages import admin, pubsub
from syncpoint.wire.transport.calls import Call, Trailing, Unary
from syncpoint.wire.transport.stream_state import Message

HEADER: Final = b"x-syncpoint-receipt"
"""Of the request, whatever its value, and of the trailers of the answer."""
RECEIPT_MAX: Final = 6_000
"""Bytes; clients take 8 KiB of headers by default."""
PROBLEM: Final = b"x-syncpoint-receipt-problem"

log = logging.getLogger(__name__)


class TrailingCall(Call, Protocol):
    """A call whose answer may have trailers of its own."""

    def trail(self, name: bytes, value: bytes) -> None: ...


class ReceiptedPublish:
    """The variant of `publish`."""

    def __init__(self, publish: Unary, receipts: ReceiptAdmin) -> None:
        self._publish, self._receipts, self._tasks = publish, receipts, Tasks()

    def asked(self) -> Unary:
        """Publish, with this variant for who asks."""
        variant = Trailing(self._handle, counts=self._publish.counts)
        return self._publish.varied(HEADER, variant)

    def _handle(self, call: Any, request: bytes) -> None:
        def answered(message: bytes) -> None:
            self._tasks.start(self._finish(call, request, message))

        self._publish.handler(_Between(call, answered), request)

    async def _finish(self, call: TrailingCall, request: bytes, message: bytes) -> None:
        """Answer with the receipt."""
        try:
            receipt = (await self._receipt(request, message)).encode()
            if len(receipt) > RECEIPT_MAX:
                raise ResourceExhausted("The receipt does not fit the trailers of an answer.")
            call.trail(HEADER, receipt)
        except SyncpointError as error:
            call.trail(PROBLEM, error.code.name.encode())
        except Exception:  # the messages are stored, and their publisher waits
            log.exception("a publish is answered without its receipt")
            call.trail(PROBLEM, Code.INTERNAL.name.encode())
        call.reply(message)

    async def _receipt(self, request: bytes, message: bytes) -> str:
        topic = pubsub.PublishRequest.FromString(request).topic
        ids = list(pubsub.PublishResponse.FromString(message).message_ids)
        found: dict[tuple[int, int], admin.Receipt] = {}
        for one in dict.fromkeys((ids[0], ids[-1])):  # one request is one entry of the log, or two at most
            asked = admin.GetReceiptRequest(topic=topic, message_id=one)
            receipt = await self._receipts.get_receipt(asked)
            found.setdefault((receipt.log, receipt.position), receipt)
        return await self._receipts.signed(topic, list(found.values()), ids)


class _Between:
    """The call as Publish sees it; what it replies goes on elsewhere."""

    def __init__(self, call: Call, answered: Callable[[bytes], None]) -> None:
        self._call, self._answered = call, answered

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    @property
    def on_cancel(self) -> Callable[[], object] | None:
        return self._call.on_cancel

    @on_cancel.setter
    def on_cancel(self, function: Callable[[], object] | None) -> None:
        self._call.on_cancel = function

    def reply(self, message: Message) -> None:
        self._answered(message if isinstance(message, bytes) else b"".join(bytes(part) for part in message))

    def fail(self, error: SyncpointError) -> None:
        self._call.fail(error)
