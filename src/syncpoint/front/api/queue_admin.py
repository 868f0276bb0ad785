"""Queues: a topic with exactly one regular subscription, of the same id.

Place: a part of syncpoint.admin.v1, mounted by `admin_handlers`, which makes both records as it makes others.
Promise: both parts are made by one commit, and deleted by one: no message is published to a queue that nobody could
receive. As long as the queue is there, neither part can be deleted alone, and no second subscription be made.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final, Protocol

from syncpoint.base.model.errors import FailedPrecondition, NotFound
from syncpoint.base.model.names import parse_project, parse_topic, queue_subscription
from syncpoint.catalog.access.tenant_book import TenantBook
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api import pages
from syncpoint.front.api.options_admin import Handlers, admin_table
from syncpoint.front.api.topic_following import lacking_records
from syncpoint.front.api.validate import refused
from syncpoint.wire.protobuf.messages import admin, pubsub
from syncpoint.wire.transport.calls import Methods

STEP: Final = 1_000
"""Topics of a project in one turn of the loop."""


def part_of_queue(topic: str, verb: str) -> FailedPrecondition:
    """For a part of a queue that is to go alone."""
    return FailedPrecondition(
        f"{topic} is a queue: its topic and its subscription cannot be {verb} separately. Delete the queue instead."
    )


def expiring(topic: str) -> FailedPrecondition:
    """For a queue's subscription that is to expire."""
    return FailedPrecondition(
        f"{topic} is a queue, and a queue's subscription never expires. Leave expiration_policy.ttl empty."
    )


class Makers(Protocol):
    """How topics and subscriptions are made: see `admin_handlers.CatalogService`."""

    async def check_transforms(self, request: pubsub.Topic | pubsub.Subscription) -> None: ...
    def new_topic(self, request: pubsub.Topic) -> Topic: ...
    def new_subscription(self, request: pubsub.Subscription, topic: Topic | None) -> Subscription: ...
    def topic_message(self, record: Topic) -> pubsub.Topic: ...
    def subscription_message(self, record: Subscription) -> pubsub.Subscription: ...


class QueueAdmin:
    """These methods on messages; `methods()` serves them on bytes."""

    def __init__(self, control: ControlPlane, makers: Makers, tenants: TenantBook) -> None:
        self._control, self._catalog, self._makers, self._tenants = control, control.catalog, makers, tenants

    def methods(self) -> Methods:
        """The method table."""
        table: Handlers = {
            "CreateQueue": self.create_queue,
            "GetQueue": self.get_queue,
            "ListQueues": self.list_queues,
            "DeleteQueue": self.delete_queue,
        }
        return admin_table(self._control, table)

    async def create_queue(self, request: admin.CreateQueueRequest) -> admin.Queue:
        """CreateQueue."""
        wanted = pubsub.Subscription.FromString(request.subscription.SerializeToString())
        name = parse_topic(request.topic.name)
        for field, implied in (("name", queue_subscription(name)), ("topic", name)):
            if getattr(wanted, field) not in ("", implied):
                raise refused(
                    f"subscription.{field}", f"The {field} of a queue's subscription must be empty or {implied}."
                )
            setattr(wanted, field, implied)
        wanted.expiration_policy.SetInParent()  # one without a time: never
        if wanted.expiration_policy.HasField("ttl"):
            raise expiring(name)
        if wanted.filter:
            raise refused(
                "subscription.filter",
                "A queue must not have a filter: no subscription would receive the messages that it excludes.",
            )
        await self._makers.check_transforms(request.topic)
        await self._makers.check_transforms(wanted)
        made = self._makers.new_topic(request.topic)
        topic = replace(made, options=made.options._replace(queue=True))
        # No log holds anything of the topic: there is nobody to confirm where the subscription begins.
        begins = self._catalog.revision + 1
        subscription = replace(self._makers.new_subscription(wanted, topic), created_revision=begins)
        records = lacking_records(self._control, self._tenants, [topic])
        await self._control.commit([CatalogChange.put(topic), CatalogChange.put(subscription), *records])
        return self._message(topic, subscription)

    async def get_queue(self, request: admin.GetQueueRequest) -> admin.Queue:
        """GetQueue."""
        return self._message(*self._parts(parse_topic(request.topic)))

    async def list_queues(self, request: admin.ListQueuesRequest) -> admin.ListQueuesResponse:
        """ListQueues."""
        listing = f"queues of {parse_project(request.project)}"
        page = pages.asked(request.page_size, request.page_token, listing)
        found: list[Topic] = []
        after = page.after
        while len(found) <= page.size:
            some = self._catalog.topics_in(request.project, after, STEP)
            found += [one for one in some if one.options.queue]
            if len(some) < STEP:
                break
            after = some[-1].name
            await asyncio.sleep(0)  # of a project with many other topics each page sees many
        records, token = pages.cut(
            found[: page.size + 1],
            page,
            listing,
            lambda one: one.name,
            lambda one: 2 * (len(one.name) + len(one.config)),
        )
        queues = [self._message(*self._parts(one.name)) for one in records]
        return admin.ListQueuesResponse(queues=queues, next_page_token=token)

    async def delete_queue(self, request: admin.DeleteQueueRequest) -> admin.DeleteQueueResponse:
        """DeleteQueue."""
        topic, subscription = self._parts(parse_topic(request.topic))
        await self._control.commit([CatalogChange.delete(subscription), CatalogChange.delete(topic)])
        return admin.DeleteQueueResponse()

    def _parts(self, name: str) -> tuple[Topic, Subscription]:
        """Raises `NotFound` for what is no queue."""
        topic, subscription = self._catalog.topic(name), self._catalog.subscription(queue_subscription(name))
        if topic is None or subscription is None or not topic.options.queue:
            raise NotFound(name, f"Queue not found: {name} does not exist or is not a queue.")
        return topic, subscription

    def _message(self, topic: Topic, subscription: Subscription) -> admin.Queue:
        return admin.Queue(
            topic=self._makers.topic_message(topic),
            subscription=self._makers.subscription_message(subscription),
            send_suspended=topic.options.send_suspended,
            receive_suspended=subscription.options.receive_suspended,
        )
