"""Receipts: which disks of a chain hold a message, for people.

Place: serves `internal.v1.Chains/Receipt`, and called directly on one node; see `storage.receipts`.
"""

from __future__ import annotations

import asyncio
from functools import partial

from syncpoint.base.runtime.tasks import complete
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.log.storage.receipts import EntryReceipt
from syncpoint.wire.protobuf.messages import internal


async def receipt(forwarder: PublishForwarder, asked: internal.ReceiptRequest) -> internal.ReceiptResponse:
    """Without copies: the message is not stored. Raises storage errors."""
    source = forwarder.sources.by_number.get(asked.source)
    if source is None or source.topic != asked.topic:
        return internal.ReceiptResponse()
    waiting: asyncio.Future[EntryReceipt | None] = asyncio.get_running_loop().create_future()
    forwarder.store.receipt(asked.source, asked.offset, partial(complete, waiting))
    found = await waiting
    if found is None:
        return internal.ReceiptResponse()
    return internal.ReceiptResponse(
        log=found.log,
        position=found.position,
        bytes=found.bytes,
        time_ns=found.time_ns,
        suffices=found.suffices,
        needed=found.needed,
        copies=[internal.CopyState(folder=copy.disk, state=copy.state, reason=copy.reason) for copy in found.copies],
    )
