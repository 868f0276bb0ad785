"""Sealing in the proxy: what clients send is encrypted before it goes on, and opened when it comes back.

Place: between clients and everything that the proxy calls; the bytes are worked on in `kernel.seal`. Attributes and
ordering keys stay readable, because filters and forwarders need them.
Promise: with sealing on, no message leaves without being sealed: when there is no key, the publish fails. Data that was
tampered with, or whose key is gone, is not delivered; it stays outstanding, is tried again at its deadline, goes to the
dead letter topic where there is one, and is loud in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from syncpoint.base.kernel import seal as kernel
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model.errors import DataLoss, InvalidArgument, not_a
from syncpoint.broker.pipeline import columns
from syncpoint.front.proxy.data_keys import TopicKeys
from syncpoint.wire.protobuf.arrow import decode_batch, with_buffers
from syncpoint.wire.protobuf.messages import pubsub

_MAGIC = kernel.header_of(0)[:-4]

log = logging.getLogger(__name__)


class Sealer:
    """Counts messages `sealed` and `kept_back`. With `sealing` off it only opens what was sealed before."""

    def __init__(self, keys: TopicKeys, *, sealing: bool = True) -> None:
        self.keys, self.sealing = keys, sealing
        self.sealed = self.kept_back = 0

    async def seal(self, topic: int, request: bytes) -> bytes:
        """A PublishRequest with its data sealed. Raises `SyncpointError`."""
        if not self.sealing:
            return request
        key = self.keys.current_now(topic) or await self.keys.current(topic)
        # Nothing suspends from here on, so the nonces belong to this request.
        nonce = key.nonces(0)
        try:
            sealed, count = kernel.seal_request(request, key.header, nonce, key.encrypt)
        except Malformed:
            raise not_a("PublishRequest") from None
        key.nonces(count)
        self.sealed += count
        return sealed

    async def seal_batch(self, topic: int, batch: bytes, chosen: Sequence[int]) -> bytes:
        """An Arrow record batch of these columns (by number) with its data sealed. Raises `SyncpointError`."""
        located = _data_of(batch, chosen)
        if not self.sealing or located is None:
            return batch
        rows, number, column = located
        key = self.keys.current_now(topic) or await self.keys.current(topic)
        nonce = key.nonces(0)
        try:
            offsets, values, count = kernel.seal_values(batch, column, rows, key.header, nonce, key.encrypt)
        except Malformed as bad:
            raise InvalidArgument("frame.batch", str(bad)) from None
        key.nonces(count)
        self.sealed += count
        return with_buffers(batch, {number: offsets, number + 1: values}) if count else batch

    async def open_batch(self, batch: bytes, chosen: Sequence[int]) -> bytes:
        """An Arrow record batch of these columns with its data opened. Raises `SyncpointError`: `DataLoss` where a row
        cannot be, because it was tampered with or because its key is gone.
        """
        located = _data_of(batch, chosen)
        if located is None:
            return batch
        rows, number, column = located
        self.keys.retry_refused()
        offsets, values, closed, missing = kernel.open_values(batch, column, rows, self.keys.ciphers)
        while missing:
            await self.keys.load(missing)
            offsets, values, closed, missing = kernel.open_values(batch, column, rows, self.keys.ciphers)
        if closed:
            self.kept_back += len(closed)
            raise DataLoss(
                f"{len(closed)} messages cannot be decrypted: their data was changed or their key was removed. The"
                " first"
                f" is row {closed[0]} of the batch that follows what was sent."
            )
        return with_buffers(batch, {number: offsets, number + 1: values}) if offsets else batch

    async def lend(self, topic: int, request: bytes) -> None:
        """For a PublishRequest whose data was sealed for another topic, a dead letter: its keys must outlive that one.
        Raises `SyncpointError`.
        """
        try:
            messages = pubsub.PublishRequest.FromString(request).messages
        except DecodeError:
            raise not_a("PublishRequest") from None
        for number in sorted({_number_of(one.data) for one in messages if one.data.startswith(_MAGIC)}):
            await self.keys.lend(number, topic)

    async def open(self, response: bytes) -> bytes:
        """A PullResponse or StreamingPullResponse with its data opened. A message that cannot be, because it was
        tampered with or because its key is gone, is left out: one such message must not stop later ones. Raises
        `SyncpointError` while the keys cannot be looked up.
        """
        self.keys.retry_refused()
        opened, kept_back, missing = kernel.open_response(response, self.keys.ciphers)
        while missing:
            await self.keys.load(missing)
            opened, kept_back, missing = kernel.open_response(response, self.keys.ciphers)
        if kept_back:
            self.kept_back += len(kept_back)
            log.error(
                "%d messages cannot be opened and are not delivered; the first has ack id %s",
                len(kept_back),
                kept_back[0].decode("ascii", "replace"),
            )
        return opened


def _data_of(batch: bytes, chosen: Sequence[int]) -> tuple[int, int, tuple[int, int, int]] | None:
    """Rows of a batch, the number of the buffer with the offsets of its data, and where the data lies. None: it has no
    data, or none that the chain takes. Raises `InvalidArgument`.
    """
    place = columns.place_of(columns.DATA, columns.named(chosen))
    try:
        rows, nodes, buffers, body = decode_batch(batch)
    except ValueError as bad:
        raise InvalidArgument("frame.batch", str(bad)) from None
    if place is None or not rows or len(buffers) < place[1] + 3 or nodes[place[0]][0] != rows:
        return None
    (offsets, _), (values, size) = buffers[place[1] + 1 : place[1] + 3]
    return rows, place[1] + 1, (body + offsets, body + values, size)


def _number_of(sealed: bytes) -> int:
    return int.from_bytes(sealed[len(_MAGIC) : kernel.HEADER_BYTES], "little")
