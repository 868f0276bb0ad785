"""Receipts: which disks hold a message.

Place: a part of syncpoint.admin.v1, mounted by `server_admin`; the chain that has the message reads each copy of it,
see `storage.receipts`.
Promise: a receipt is about the very message with this id, and of now. Who cannot be asked is never taken for a no: if
the chain that may have the message does not answer, neither do we.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncpoint.base.model.errors import NotFound, Unavailable
from syncpoint.base.model.identity import parse_message_id
from syncpoint.front.api.options_admin import Handlers, OptionsAdmin, admin_table
from syncpoint.front.api.peek_admin import AskingChains
from syncpoint.front.api.receipt_keys import ReceiptKeys, receipt_jwks
from syncpoint.wire.protobuf.messages import admin, internal, pubsub
from syncpoint.wire.transport.calls import Methods


class ReceiptAdmin:
    """This method on messages; `methods()` serves it on bytes."""

    def __init__(self, options: OptionsAdmin, asking: AskingChains, universe: int) -> None:
        self._options, self._asking, self._universe = options, asking, universe
        self._keys = ReceiptKeys(options.control)

    def methods(self) -> Methods:
        """The method table."""
        table: Handlers = {"GetReceipt": self.get_receipt, "ListReceiptKeys": self.list_keys}
        return admin_table(self._options.control, table)

    async def get_receipt(self, request: admin.GetReceiptRequest) -> admin.Receipt:
        """GetReceipt. Raises `NotFound` for a message that is not stored, `Unavailable` where nobody can say."""
        topic = self._options.topic(request.topic).incarnation
        _, source, offset = parse_message_id(request.message_id)
        if request.HasField("place"):
            source, offset = request.place.source, request.place.offset
        chains, unknown = await self._asking.chains(topic)
        chain = next((one.chain for one in chains if any(has.source == source for has in one.sources)), None)
        if chain is None and unknown:
            raise Unavailable(f"It is not known whether the message is stored: {'; '.join(unknown)}. Try again.")
        found = internal.ReceiptResponse()
        if chain is not None and await self._is_there(chain, topic, source, offset, request.message_id):
            asked = internal.ReceiptRequest(topic=topic, source=source, offset=offset)
            found = await self._asking.receipt(chain, asked)
        if not found.copies or chain is None:
            raise NotFound(
                request.message_id,
                "The topic holds no message with this id: it was never published here, or it was deleted after all its"
                f" subscriptions acknowledged it (resource={request.message_id}).",
            )
        answer = admin.Receipt(
            message_id=request.message_id,
            chain=chain,
            log=found.log,
            position=found.position,
            entry_bytes=found.bytes,
            suffices=found.suffices,
            needed=found.needed,
            copies=[
                admin.DiskCopy(disk=one.folder, state=admin.DiskCopy.State.Value(one.state.upper()), reason=one.reason)
                for one in found.copies
            ],
        )
        answer.publish_time.FromNanoseconds(found.time_ns)
        if request.sign:
            answer.signed = await self.signed(request.topic, [answer])
        return answer

    async def list_keys(self, request: admin.ListReceiptKeysRequest) -> admin.ReceiptKeys:
        """ListReceiptKeys."""
        return admin.ReceiptKeys(jwks=receipt_jwks(self._options.control.catalog))

    async def signed(self, topic: str, receipts: Sequence[admin.Receipt], message_ids: Sequence[str] = ()) -> str:
        """These receipts of one topic as a signed one. `message_ids`: of which messages, where of more than those."""
        entries = [
            {
                "message_id": one.message_id,
                "publish_time": one.publish_time.ToJsonString(),
                "chain": one.chain,
                "log": one.log,
                "position": one.position,
                "suffices": one.suffices,
                "needed": one.needed,
                "copies": [{"disk": copy.disk, "state": admin.DiskCopy.State.Name(copy.state)} for copy in one.copies],
            }
            for one in receipts
        ]
        claims = {"iss": f"{self._universe:x}", "iat": self._options.control.clock.time_ns() // 10**9, "topic": topic}
        ids = message_ids or [one.message_id for one in receipts]
        return await self._keys.sign({**claims, "messages": _runs(ids), "entries": entries})

    async def _is_there(self, chain: int, topic: int, source: int, offset: int, message_id: str) -> bool:
        """Whether the message in this place has this id; one that no disk has in good order passes for it."""
        asked = internal.PeekRequest(topic=topic, source=source, begin=offset, messages_max=1)
        peeked = await self._asking.peek(chain, asked)
        if not peeked.messages or peeked.messages[0].place != offset:
            return bool(peeked.unreadable)
        return str(pubsub.PubsubMessage.FromString(peeked.messages[0].message).message_id) == message_id


def _runs(message_ids: Sequence[str]) -> list[tuple[str, int]]:
    """First ids, and how many follow one another from there."""
    runs: list[tuple[str, int]] = []
    for one in message_ids:
        if runs and int(one) == int(runs[-1][0]) + runs[-1][1]:
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((one, 1))
    return runs
