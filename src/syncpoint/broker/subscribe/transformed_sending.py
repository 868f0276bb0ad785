"""Message transforms between a delivery and one of its consumers.

Place: on one node; in a cluster proxies apply them, after sealed data is opened.
Promise: responses reach a consumer in the order in which they were made. What a consumer that has left did not get is
free again, and so is what could not be sent whatever the reason. Nothing more is lent to a consumer while a response to
it is transformed: what waited for a slow transform would outlive its leases, be lent again, and wait again; and what
follows a message of its key that fails would overtake it. Subscriptions without transforms pay one lookup for a
response.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from syncpoint.base.runtime.tasks import Tasks
from syncpoint.broker.subscribe.consumer import Consumer
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.catalog.transforms.message_transforms import Transformer
from syncpoint.catalog.transforms.responses import PAUSE_S, transformed_response
from syncpoint.wire.protobuf.messages import pubsub

Send = Callable[[Sequence[bytes], Sequence[int]], None]

log = logging.getLogger(__name__)


class DeliveryTransforms:
    """The transforms of all subscriptions of a forwarder."""

    def __init__(self, transformer: Transformer) -> None:
        self.transformer, self.tasks = transformer, Tasks()

    async def stop(self) -> None:
        """Leave nothing behind."""
        await self.tasks.stop()


class LeasingForwarder(Protocol):
    """What is asked of the subscribe forwarder, whose methods these are."""

    catalog: Catalog

    def take_outcome(self, record: Subscription, request: bytes) -> None:
        """Some messages are not passed on."""

    def leave(self, record: Subscription, consumer: Consumer | None, unsent: Sequence[int]) -> None:
        """Messages were not sent."""

    def wake(self, incarnation: int) -> None:
        """A consumer can take more."""


class TransformedSending:
    """In place of a consumer's `send`. `consumer` is set before anything is sent."""

    consumer: Consumer

    def __init__(
        self, forwarder: LeasingForwarder, transforms: DeliveryTransforms, record: Subscription, send: Send
    ) -> None:
        self._forwarder, self._transforms, self._record, self._send = forwarder, transforms, record, send

    def __call__(self, parts: Sequence[bytes], serials: Sequence[int]) -> None:
        """Hand over a response, now or when it is transformed."""
        if not self._current().transforms:
            self._send(parts, serials)
            return
        self.consumer.transforming = True
        self._transforms.tasks.start(self._run(parts, serials))

    def _current(self) -> Subscription:
        return self._forwarder.catalog.subscription_by_incarnation(self._record.incarnation) or self._record

    async def _run(self, parts: Sequence[bytes], serials: Sequence[int]) -> None:
        try:
            responses = () if self._is_gone() else await self._transformed(b"".join(parts))
            if not responses or self._is_gone():
                self._forwarder.leave(self._record, None, serials)
            else:
                for response in responses:
                    self._send([response], serials)
        except Exception:  # whatever is wrong with one response, later ones are sent
            log.exception("messages of %s cannot be transformed", self._record.name)
            await asyncio.sleep(PAUSE_S)  # they come again at once
            self._forwarder.leave(self._record, None, serials)
        self.consumer.transforming = False
        self._forwarder.wake(self._record.incarnation)

    async def _transformed(self, response: bytes) -> tuple[bytes, ...]:
        kind = pubsub.PullResponse if self.consumer.single else pubsub.StreamingPullResponse
        found = await transformed_response(self._transforms.transformer, self._current(), kind, response)
        self._forwarder.take_outcome(self._record, found.turn())
        return found.responses

    def _is_gone(self) -> bool:
        """A unary pull leaves before it is answered."""
        return self.consumer.closed and not self.consumer.single
