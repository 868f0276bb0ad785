"""Create, get, list, update and delete: the administrative methods of Publisher and Subscriber.

Place: off the message's path. A request is checked, turned into a change of the catalog, and answered when that change
is persisted.
Promise: between the check and the change nothing is awaited, so of two racing creates one wins and the other gets
ALREADY_EXISTS. Where several processes may change the catalog, a change that loses against another is checked anew,
against what the other left. A failed commit is UNAVAILABLE: the change may have happened.
Leaves to the control plane: persisting, and notifying the forwarders.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeVar

from syncpoint.base.model.errors import AlreadyExists, FailedPrecondition, NotFound, ResourceExhausted, detached
from syncpoint.base.model.limits import SNAPSHOTS_PER_TOPIC_MAX, SUBSCRIPTIONS_PER_TOPIC_MAX
from syncpoint.base.model.names import (
    parse_project,
    parse_snapshot,
    parse_subscription,
    parse_topic,
    project_of,
    resource_name,
)
from syncpoint.broker.push.addresses import Vetting
from syncpoint.catalog.access.authors import caller
from syncpoint.catalog.access.tenant_book import TenantBook
from syncpoint.catalog.metadata.records import COPYING, CatalogChange, Snapshot, Subscription, Topic
from syncpoint.catalog.transforms.definitions import check_transforms
from syncpoint.catalog.transforms.message_transforms import Transformer
from syncpoint.cluster.control.plane import ControlPlane, is_creating
from syncpoint.front.api import pages, queue_admin, snapshots, subscriptions, topic_schemas, topics
from syncpoint.front.api.catalog_retries import checked_where_shared
from syncpoint.front.api.exports import ExportStateOf
from syncpoint.front.api.topic_following import lacking_records
from syncpoint.front.api.validate import refused
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub, well_known
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods

_Named = TypeVar("_Named", Topic, Subscription, Snapshot)
_ListRequest = pubsub.ListTopicsRequest | pubsub.ListSubscriptionsRequest | pubsub.ListSnapshotsRequest
_NamesRequest = pubsub.ListTopicSubscriptionsRequest | pubsub.ListTopicSnapshotsRequest


class CatalogService:
    """The methods on messages; `methods()` serves them on bytes."""

    def __init__(
        self,
        control: ControlPlane,
        vetting: Vetting | None = None,
        regions: Callable[[], Collection[str]] | None = None,
        transformer: Transformer | None = None,
        export_state: ExportStateOf | None = None,
    ) -> None:
        """`regions`: of which something may store messages now; None: not asked for."""
        self._control, self._vetting, self._regions = control, vetting, regions
        self._transformer = transformer or Transformer.of({})
        self._catalog, self._export_state = control.catalog, export_state
        self._tenants = TenantBook(control.catalog)

    # -- topics ------------------------------------------------------------------------------------------------------

    async def create_topic(self, request: pubsub.Topic) -> pubsub.Topic:
        """CreateTopic."""
        await self.check_transforms(request)
        record = self.new_topic(request)
        await self._control.commit(
            [CatalogChange.put(record), *lacking_records(self._control, self._tenants, [record])]
        )
        return self.topic_message(record)

    async def check_transforms(self, request: pubsub.Topic | pubsub.Subscription) -> None:
        """Raises `InvalidArgument` for transforms that cannot work."""
        if request.message_transforms:
            about = request.name or (request.topic if isinstance(request, pubsub.Subscription) else "")
            await check_transforms(about, request.message_transforms, self._transformer)

    def new_topic(self, request: pubsub.Topic) -> Topic:
        """The record of a topic that can be made now. Raises `SyncpointError`."""
        record = topics.new_topic(request, self._control.clock.time_ns(), caller())
        if self._catalog.topic(record.name) is not None:
            raise AlreadyExists(record.name)
        record = self._tenants.within(record)
        if self._regions is not None:
            topics.check_regions(record, self._regions())
        record = topic_schemas.bound(self._catalog, record)
        return replace(record, incarnation=self._control.next_incarnation())

    async def get_topic(self, request: pubsub.GetTopicRequest) -> pubsub.Topic:
        """GetTopic."""
        return self.topic_message(self._topic(request.topic))

    async def update_topic(self, request: pubsub.UpdateTopicRequest) -> pubsub.Topic:
        """UpdateTopic."""
        await check_transforms(request.topic.name, request.topic.message_transforms, self._transformer)
        known = self._topic(request.topic.name)
        record = self._tenants.within(topics.changed_topic(known, request, caller()))
        if known.retention_s and not record.retention_s:
            self._tenants.check_records_kept(record.name, "left without a message retention")
        if self._regions is not None and record.regions != known.regions:
            topics.check_regions(record, self._regions())
        record = topic_schemas.bound(self._catalog, record, known, request.update_mask.paths)
        await self._control.commit([CatalogChange.put(record)])
        return self.topic_message(record)

    async def delete_topic(self, request: pubsub.DeleteTopicRequest) -> well_known.Empty:
        """DeleteTopic. Subscriptions and snapshots stay, with what they have not acknowledged."""
        record = self._topic(request.topic)
        if record.options.queue:
            raise queue_admin.part_of_queue(record.name, "deleted")
        self._tenants.check_records_kept(record.name, "deleted")
        await self._control.commit([CatalogChange.delete(record)])
        return well_known.Empty()

    async def list_topics(self, request: pubsub.ListTopicsRequest) -> pubsub.ListTopicsResponse:
        """ListTopics."""
        found, token = self._listed(request, "topics", self._catalog.topics_in)
        return pubsub.ListTopicsResponse(topics=map(self.topic_message, found), next_page_token=token)

    async def list_topic_subscriptions(
        self, request: pubsub.ListTopicSubscriptionsRequest
    ) -> pubsub.ListTopicSubscriptionsResponse:
        """ListTopicSubscriptions: names of those that are attached."""
        records = self._catalog.subscriptions_of(self._topic(request.topic).incarnation)
        names, token = _named_page(request, "subscriptions", [record for record in records if not record.detached])
        return pubsub.ListTopicSubscriptionsResponse(subscriptions=names, next_page_token=token)

    async def list_topic_snapshots(
        self, request: pubsub.ListTopicSnapshotsRequest
    ) -> pubsub.ListTopicSnapshotsResponse:
        """ListTopicSnapshots: names."""
        found = self._catalog.snapshots_of(self._topic(request.topic).incarnation)
        records = [one for one in found if one.status != COPYING]
        names, token = _named_page(request, "snapshots", records)
        return pubsub.ListTopicSnapshotsResponse(snapshots=names, next_page_token=token)

    # -- subscriptions -----------------------------------------------------------------------------------------------

    async def create_subscription(self, request: pubsub.Subscription) -> pubsub.Subscription:
        """CreateSubscription. When it returns, every message published from then on will reach the subscription."""
        await self.check_transforms(request)
        if not request.name:
            request.name = self._assigned_name(parse_topic(request.topic), "subscriptions", "sub")
        topic = self._catalog.topic(request.topic)
        record = self.new_subscription(request, topic)
        if topic is not None and topic.options.queue:
            raise FailedPrecondition(
                f"{topic.name} is a queue and has exactly one subscription. Receive from it, or use a topic instead."
            )
        await self._control.create(record)
        return self.subscription_message(record)

    def new_subscription(self, request: pubsub.Subscription, topic: Topic | None) -> Subscription:
        """The record of a subscription that can be made now, or of one whose creation is to be finished. Raises
        `SyncpointError`.
        """
        record = subscriptions.new_subscription(request, topic, self._control.clock.time_ns(), self._vetting, caller)
        known = self._catalog.subscription(record.name)
        if known is not None and not subscriptions.resumes(known, record):
            raise AlreadyExists(record.name)
        if topic is None:
            raise NotFound(record.topic_name)
        self._check_dead_letter(record)
        if known is not None:
            return known
        if self._catalog.subscription_count_of(topic.incarnation) >= SUBSCRIPTIONS_PER_TOPIC_MAX:
            raise ResourceExhausted(
                f"Topic {topic.name} already has {SUBSCRIPTIONS_PER_TOPIC_MAX} subscriptions, the maximum. Delete one"
                " first."
            )
        return replace(record, incarnation=self._control.next_incarnation())

    async def get_subscription(self, request: pubsub.GetSubscriptionRequest) -> pubsub.Subscription:
        """GetSubscription."""
        return self.subscription_message(self._subscription(request.subscription))

    async def update_subscription(self, request: pubsub.UpdateSubscriptionRequest) -> pubsub.Subscription:
        """UpdateSubscription."""
        await check_transforms(request.subscription.name, request.subscription.message_transforms, self._transformer)
        known = self._subscription(request.subscription.name)
        record = subscriptions.changed_subscription(known, request, self._vetting, caller)
        if record.expiration_s is not None and self._is_queues(record):
            raise queue_admin.expiring(record.topic_name)
        # A topic deleted since then does not stand in the way of other changes.
        if record.dead_letter and (known.dead_letter is None or record.dead_letter.topic != known.dead_letter.topic):
            self._check_dead_letter(record)
        await self._control.commit([CatalogChange.put(self._touched(record))])
        return self.subscription_message(record)

    async def modify_push_config(self, request: pubsub.ModifyPushConfigRequest) -> well_known.Empty:
        """ModifyPushConfig. An empty one means pull; what is not acknowledged stays."""
        known = self._subscription(request.subscription)
        record = subscriptions.pushed_elsewhere(known, request.push_config, self._vetting, caller)
        await self._control.commit([CatalogChange.put(self._touched(record))])
        return well_known.Empty()

    async def delete_subscription(self, request: pubsub.DeleteSubscriptionRequest) -> well_known.Empty:
        """DeleteSubscription."""
        record = self._subscription(request.subscription)
        if self._is_queues(record):
            raise queue_admin.part_of_queue(record.topic_name, "deleted")
        await self._control.commit([CatalogChange.delete(record)])
        return well_known.Empty()

    async def detach_subscription(self, request: pubsub.DetachSubscriptionRequest) -> pubsub.DetachSubscriptionResponse:
        """DetachSubscription. Its backlog is dropped; doing it again changes nothing."""
        record = self._subscription(request.subscription)
        if self._is_queues(record):
            raise queue_admin.part_of_queue(record.topic_name, "detached")
        detached = record if record.detached else self._touched(replace(record, detached=True))
        await self._control.commit([CatalogChange.put(detached)])
        return pubsub.DetachSubscriptionResponse()

    async def list_subscriptions(self, request: pubsub.ListSubscriptionsRequest) -> pubsub.ListSubscriptionsResponse:
        """ListSubscriptions."""
        found, token = self._listed(request, "subscriptions", self._catalog.subscriptions_in)
        return pubsub.ListSubscriptionsResponse(
            subscriptions=map(self.subscription_message, found), next_page_token=token
        )

    # -- snapshots ---------------------------------------------------------------------------------------------------

    async def create_snapshot(self, request: pubsub.CreateSnapshotRequest) -> pubsub.Snapshot:
        """CreateSnapshot: what the subscription has not acknowledged, and everything published after this."""
        if not request.name:
            source = parse_subscription(request.subscription)
            request.name = self._assigned_name(source, "snapshots", "snap")
        snapshots.check_new_snapshot(request)
        subscription = self._attached(request.subscription)
        self._check_new_name(request.name)
        age_s = await self._control.oldest_age_s(subscription)
        # Others had their turn in the meantime; from here to the commit nobody has.
        subscription = self._attached(request.subscription)
        self._check_new_name(request.name)
        if len(self._catalog.snapshots_of(subscription.topic_incarnation)) >= SNAPSHOTS_PER_TOPIC_MAX:
            raise ResourceExhausted(
                f"Topic {subscription.topic_name} already has {SNAPSHOTS_PER_TOPIC_MAX} snapshots, the maximum."
                " Delete one first."
            )
        record = snapshots.new_snapshot(request, subscription, age_s, self._control.clock.time_ns())
        record = replace(record, incarnation=self._control.next_incarnation())
        await self._control.create(record)
        return self._snapshot_message(record)

    async def get_snapshot(self, request: pubsub.GetSnapshotRequest) -> pubsub.Snapshot:
        """GetSnapshot."""
        return self._snapshot_message(self._snapshot(request.snapshot))

    async def update_snapshot(self, request: pubsub.UpdateSnapshotRequest) -> pubsub.Snapshot:
        """UpdateSnapshot: labels."""
        record = snapshots.changed_snapshot(self._snapshot(request.snapshot.name), request)
        await self._control.commit([CatalogChange.put(record)])
        return self._snapshot_message(record)

    async def delete_snapshot(self, request: pubsub.DeleteSnapshotRequest) -> well_known.Empty:
        """DeleteSnapshot."""
        await self._control.commit([CatalogChange.delete(self._snapshot(request.snapshot))])
        return well_known.Empty()

    async def list_snapshots(self, request: pubsub.ListSnapshotsRequest) -> pubsub.ListSnapshotsResponse:
        """ListSnapshots."""
        found, token = self._listed(request, "snapshots", self._catalog.snapshots_in)
        shown = [self._snapshot_message(one) for one in found if one.status != COPYING]
        return pubsub.ListSnapshotsResponse(snapshots=shown, next_page_token=token)

    # -- shared ------------------------------------------------------------------------------------------------------

    def methods(self) -> Methods:
        """The method table of this service."""
        named = ((service[name], _snake(name)) for service, names in _METHODS.items() for name in names)
        queues = queue_admin.QueueAdmin(self._control, self, self._tenants)
        mine = {path: checked_where_shared(self._control, getattr(self, name)) for path, name in named}
        return {**served(mine, fair=True), **queues.methods()}

    def _topic(self, name: str) -> Topic:
        record = self._catalog.topic(parse_topic(name))
        if record is None:
            raise NotFound(name)
        return record

    def _subscription(self, name: str) -> Subscription:
        record = self._catalog.subscription(parse_subscription(name))
        if record is None:
            raise NotFound(name)
        return record

    def _is_queues(self, record: Subscription) -> bool:
        topic = self._catalog.topic_of(record)
        return topic is not None and topic.options.queue

    def _attached(self, name: str) -> Subscription:
        record = self._subscription(name)
        if record.detached:
            raise detached(name)
        return record

    def _touched(self, record: Subscription) -> Subscription:
        return replace(record, changed_ns=self._control.clock.time_ns())

    def _snapshot(self, name: str) -> Snapshot:
        record = self._catalog.snapshot(parse_snapshot(name))
        if record is None or record.status == COPYING:
            raise NotFound(name)
        return record

    def _check_new_name(self, snapshot: str) -> None:
        known = self._catalog.snapshot(snapshot)
        if known is not None and not is_creating(known):
            raise AlreadyExists(snapshot)

    def _check_dead_letter(self, record: Subscription) -> None:
        if record.dead_letter is None:
            return
        name = record.dead_letter.topic
        found = self._catalog.topic(name)
        if found is None:
            raise NotFound(name, f"Dead letter topic not found (resource={name}).")
        if found.incarnation == record.topic_incarnation:
            # Given up there, a message would come back to this very subscription, for ever.
            raise refused(
                "dead_letter_policy.dead_letter_topic",
                f"The dead_letter_topic must not be the subscription's own topic (resource={name}). Name another"
                " topic.",
            )

    def topic_message(self, record: Topic) -> pubsub.Topic:
        """The pubsub.Topic that users see."""
        return topic_schemas.shown(self._catalog, record, topics.topic_message(record))

    def subscription_message(self, record: Subscription) -> pubsub.Subscription:
        """The pubsub.Subscription that users see."""
        exists = record.dead_letter is None or self._catalog.topic(record.dead_letter.topic) is not None
        return subscriptions.subscription_message(record, self._catalog.topic_of(record), exists, self._export_state)

    def _snapshot_message(self, record: Snapshot) -> pubsub.Snapshot:
        return snapshots.snapshot_message(record, self._catalog.topic_of(record))

    def _assigned_name(self, sibling: str, collection: str, start: str) -> str:
        """A free name in the project of a resource that the request names."""
        identifier = f"{start}-{self._control.random.token(10).hex()}"
        return resource_name(project_of(sibling), collection, identifier)

    def _listed(
        self, request: _ListRequest, collection: str, page_of: Callable[[str, str | None, int], list[_Named]]
    ) -> tuple[Sequence[_Named], str]:
        listing = f"{collection} of {parse_project(request.project)}"
        page = pages.asked(request.page_size, request.page_token, listing)
        found = page_of(request.project, page.after, page.size + 1)
        return pages.cut(found, page, listing, lambda record: record.name, lambda one: len(one.name) + len(one.config))


def _named_page(request: _NamesRequest, collection: str, records: Sequence[_Named]) -> tuple[Sequence[str], str]:
    listing = f"{collection} of {request.topic}"
    page = pages.asked(request.page_size, request.page_token, listing)
    names = sorted(record.name for record in records if page.after is None or record.name > page.after)
    return pages.cut(names, page, listing, str)


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")


_METHODS = {
    methods.PUBLISHER: (
        "CreateTopic", "GetTopic", "UpdateTopic", "DeleteTopic", "ListTopics", "ListTopicSubscriptions",
        "ListTopicSnapshots", "DetachSubscription",
    ),
    methods.SUBSCRIBER: (
        "CreateSubscription", "GetSubscription", "UpdateSubscription", "DeleteSubscription", "ListSubscriptions",
        "ModifyPushConfig", "CreateSnapshot", "GetSnapshot", "UpdateSnapshot", "DeleteSnapshot", "ListSnapshots",
    ),
}  # fmt: skip
