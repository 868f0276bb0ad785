"""What a site lacks of dual topics is brought to it: topics, subscriptions, and messages.

Place: beside `dual_publisher`, with the gateway's own credentials. On each dual topic each site has a subscription
`gateway-fill-TOPIC`; what comes on it is acknowledged when the other site certainly has it, and else published there
under the same identity, which the site recognises where it has it after all.
Promise: a message that was answered is at both sites in the end, once each, whatever dies in between; a site that was
left is held back until it has the topics and subscriptions of the home, and lacks no more than `lag` messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from syncpoint.base.model.errors import Code, FailedPrecondition, SyncpointError
from syncpoint.base.model.reserved import IDENTITY
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.front.gateway.dual_identities import in_topic
from syncpoint.front.gateway.dual_publish import FILLED, OWN
from syncpoint.front.gateway.dual_publisher import DualPublisher
from syncpoint.front.gateway.gateway_file import DualTopics
from syncpoint.front.gateway.site_board import SiteBoard
from syncpoint.front.gateway.site_changes import subscription_update, topic_update, unlike
from syncpoint.front.gateway.site_differences import SiteDifferences
from syncpoint.front.gateway.site_link import SiteLink
from syncpoint.front.proxy.cancellable_calls import MOVABLE
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub
from syncpoint.wire.protobuf.methods import Method

FILL: Final = "gateway-fill-"
NAME_MAX: Final = 255
WINDOW_S: Final = 3600  # of topics that drop no duplicates yet
ROUND_S: Final = 2.0
CALL_S: Final = 5.0
LEASE_S: Final = 60
AHEAD_BYTES: Final = 32 << 20
AHEAD: Final = 2_000  # messages of a topic that wait here to be compared
BATCH, BATCH_BYTES = 100, 1 << 20
NOT_COMPARED: Final = "its topics and messages have not been compared with the home's yet"

log = logging.getLogger(__name__)


def fill_of(topic: str) -> str:
    """The subscription by which a dual topic is copied."""
    project, _, short = topic.partition("/topics/")
    if len(short) > NAME_MAX - len(FILL):
        short = f"{short[:200]}-{blake2b(short.encode(), digest_size=12).hexdigest()}"
    return f"{project}/subscriptions/{FILL}{short}"


class Waiting(NamedTuple):
    """A message that may have to be copied."""

    ack_id: str
    identity: str
    message: Any


def _key(one: Waiting) -> str:
    key: str = one.message.ordering_key
    return key


class SiteCalls:
    """Calls of the gateway itself to a site."""

    def __init__(self, links: Mapping[str, SiteLink]) -> None:
        self.links = links

    async def call(self, site: str, method: Method, **fields: Any) -> Any:
        """The answer of a method. Raises `SyncpointError`."""
        return await self.send(site, method, method.request(**fields))

    async def send(self, site: str, method: Method, request: Any) -> Any:
        """Send a request that is made already. Raises `SyncpointError`."""
        link = self.links[site]
        return method.response.FromString(await link.unary(method, request.SerializeToString(), link.own(), CALL_S))

    async def listed(self, site: str, method: Method, field: str, **fields: Any) -> AsyncIterator[Any]:
        """Everything that a method lists, page by page: the items of a field of its answers."""
        token = ""
        while True:
            page = await self.call(site, method, page_size=1000, page_token=token, **fields)
            for one in getattr(page, field):
                yield one
            token = page.next_page_token
            if not token:
                return


class SiteFill:
    """All dual topics. `lacks[site]`: how many messages of the others a site lacks, as of the newest look."""

    def __init__(
        self, patterns: Sequence[DualTopics], board: SiteBoard, own: SiteCalls, publisher: DualPublisher, lag: int
    ) -> None:
        self._patterns, self.board, self.own, self.publisher, self._lag = patterns, board, own, publisher, lag
        self._done: dict[str, set[str]] = {name: set() for name in board.sites}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # callers make up names
        self.tasks = Tasks()
        self._copying: dict[tuple[str, str], asyncio.Task[None]] = {}
        self.lacks: dict[str, int] = {}
        self.differences = SiteDifferences(own)
        self._missed: set[tuple[str, str]] = set()  # sites and topics to be compared
        self.copied = 0

    # -- topics and subscriptions -------------------------------------------------------------------------------------

    async def ready(self, topic: str) -> None:
        """Return once every site that takes calls drops duplicates of a topic, and keeps what the other may lack."""
        sites = self.board.open_sites()
        if all(topic in self._done[site] for site in sites):
            return
        try:
            await self._bring(topic, sites)
        except SyncpointError as error:
            if error.code in (Code.PERMISSION_DENIED, Code.UNAUTHENTICATED):
                raise FailedPrecondition(
                    f"The gateway may not prepare {topic} for two sites: {error.message} Let `credentials` of the"
                    " sites be of an account with roles/pubsub.editor on the project."
                ) from error
            raise

    def forget(self, topic: str) -> None:
        """A topic was created or deleted: look at it anew before it is published to."""
        for done in self._done.values():
            done.discard(topic)

    def left(self, site: str) -> None:
        """A site is left: it may miss anything from now on."""
        self._done[site].clear()
        self.board.hold(site, NOT_COMPARED)

    async def _bring(self, topic: str, sites: Sequence[str]) -> None:
        """Let sites have a topic as the home has it."""
        lock = self._locks.get(topic)
        if lock is None:
            lock = self._locks[topic] = asyncio.Lock()
        async with lock:
            home = self.board.home
            record = await self.own.call(home, methods.PUBLISHER.GetTopic, topic=topic)
            subscriptions = [one async for one in self._subscriptions(home, topic)]
            for site in sites:
                if topic not in self._done[site]:
                    await self._bring_to(site, record, subscriptions if site != home else ())
                    self._done[site].add(topic)
                    self._copy(topic, site)

    async def _bring_to(self, site: str, record: Any, subscriptions: Sequence[Any]) -> None:
        await self._bring_schema(site, record)
        missed = self.board.sites[site].masked  # else what differs was made so on purpose
        if missed:
            self._missed.add((site, record.name))
        if not await self._made(site, methods.PUBLISHER.CreateTopic, record) and missed:
            topic = await self.own.call(site, methods.PUBLISHER.GetTopic, topic=record.name)
            await self._changed(site, methods.PUBLISHER.UpdateTopic, topic_update(record, topic))
        found = await self.own.call(site, methods.ADMIN.GetTopicOptions, topic=record.name)
        if not found.duplicate_detection_window.seconds:
            options = admin.TopicOptions(topic=record.name, duplicate_detection_window={"seconds": WINDOW_S})
            mask = {"paths": ["duplicate_detection_window"]}
            await self.own.call(site, methods.ADMIN.UpdateTopicOptions, options=options, update_mask=mask)
        fill = pubsub.Subscription(
            name=fill_of(record.name),
            topic=record.name,
            ack_deadline_seconds=LEASE_S,
            enable_message_ordering=True,
            expiration_policy={},
        )
        if not await self._made(site, methods.SUBSCRIBER.CreateSubscription, fill):
            there = await self.own.call(site, methods.SUBSCRIBER.GetSubscription, subscription=fill.name)
            if there.topic != record.name or there.filter:  # of a topic of this name that was deleted: it gets nothing
                await self.own.call(site, methods.SUBSCRIBER.DeleteSubscription, subscription=fill.name)
                await self._made(site, methods.SUBSCRIBER.CreateSubscription, fill)
        for one in subscriptions:
            if not await self._made(site, methods.SUBSCRIBER.CreateSubscription, one) and missed:
                there = await self.own.call(site, methods.SUBSCRIBER.GetSubscription, subscription=one.name)
                if why := unlike(one, there):  # it was deleted and made again while the site was away
                    raise FailedPrecondition(f"{one.name} {why}. Delete it at {site}, and it is made as at the home.")
                await self._changed(site, methods.SUBSCRIBER.UpdateSubscription, subscription_update(one, there))

    async def _bring_schema(self, site: str, record: Any) -> None:
        """Let a site have the newest schema of a topic. It may lack older revisions, so the range stays open there."""
        settings = record.schema_settings
        if settings.schema and site != self.board.home:
            settings.ClearField("first_revision_id")
            settings.ClearField("last_revision_id")
            schema = await self.own.call(self.board.home, methods.SCHEMAS.GetSchema, name=settings.schema, view="FULL")
            parent, _, short = settings.schema.partition("/schemas/")
            made = {"type": schema.type, "definition": schema.definition}
            request = methods.SCHEMAS.CreateSchema.request(parent=parent, schema_id=short, schema=made)
            if not await self._made(site, methods.SCHEMAS.CreateSchema, request) and self.board.sites[site].masked:
                there = await self.own.call(site, methods.SCHEMAS.GetSchema, name=settings.schema, view="FULL")
                if there.definition != schema.definition:
                    await self.own.call(site, methods.SCHEMAS.CommitSchema, name=settings.schema, schema=made)

    async def _made(self, site: str, method: Method, record: Any) -> bool:
        """Whether it was made; False where the site has one of that name."""
        try:
            await self.own.send(site, method, record)
        except SyncpointError as error:
            if error.code is not Code.ALREADY_EXISTS:
                raise
            return False
        return True

    async def _changed(self, site: str, method: Method, request: Any) -> None:
        """Send an update, if there is one."""
        if request is not None:
            await self.own.send(site, method, request)
            log.info("%s at %s: it was away for %s", method, site, ", ".join(request.update_mask.paths))

    async def _subscriptions(self, site: str, topic: str) -> AsyncIterator[Any]:
        async for name in self.own.listed(site, methods.PUBLISHER.ListTopicSubscriptions, "subscriptions", topic=topic):
            if f"/subscriptions/{FILL}" not in name:
                yield await self.own.call(site, methods.SUBSCRIBER.GetSubscription, subscription=name)

    async def _topics(self, site: str) -> list[str]:
        """The dual topics that a site has."""
        found, projects = [], {one.topics.partition("/topics/")[0] for one in self._patterns}
        for project in projects:
            async for one in self.own.listed(site, methods.PUBLISHER.ListTopics, "topics", project=project):
                if self.publisher.answer_of(one.name) is not None:
                    found.append(one.name)
        return found

    # -- rounds -------------------------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Look again and again."""
        while True:
            try:
                await self._round()
            except SyncpointError as error:
                log.warning("dual topics are compared again: %s", error)
            await asyncio.sleep(ROUND_S)

    async def _round(self) -> None:
        topics = await self._topics(self.board.home)
        answering = [site.name for site in self.board.sites.values() if site.answers]
        lacking = ""
        for topic in topics:
            if not all(topic in self._done[site] for site in answering):
                try:
                    await self._bring(topic, answering)
                except SyncpointError as error:
                    if error.code in MOVABLE:
                        raise
                    log.warning("%s cannot be prepared for two sites: %s", topic, error)
                    lacking = lacking or f"{topic} cannot be prepared for two sites: {error.message}"
        for site in self.board.sites.values():
            if site.masked and site.answers and lacking:
                self.board.hold(site.name, lacking)
            elif site.masked and site.answers:
                self.lacks[site.name] = lacks = await self._lacking(topics, answering)
                why = f"{lacks:,} messages are not copied yet" if lacks > self._lag else ""
                self.board.hold(site.name, why)
        await self._compare(set(topics), answering)

    async def _compare(self, topics: set[str], sites: Sequence[str]) -> None:
        """Look at what sites that were away may have missed and do not get, and again at what differed."""
        for site in sites:
            missed = {topic for name, topic in self._missed if name == site}
            if missed:
                missed.update(set(await self._topics(site)) - topics)
            for topic in sorted(missed.union(self.differences.topics(site))) if site != self.board.home else ():
                await self.differences.look(self.board.home, site, topic, at_home=topic in topics)
            self._missed = {one for one in self._missed if one[0] != site}

    async def _lacking(self, topics: Sequence[str], sites: Sequence[str]) -> int:
        """Messages that one site has and the other may lack."""
        total = 0
        for topic in topics:
            for site in sites:
                state = await self.own.call(site, methods.ADMIN.GetSubscriptionState, subscription=fill_of(topic))
                total += state.backlog_messages
        return total

    # -- copying ------------------------------------------------------------------------------------------------------

    def _copy(self, topic: str, site: str) -> None:
        if (topic, site) not in self._copying:
            self._copying[topic, site] = self.tasks.start(self._keep_copying(topic, site))

    def copies(self, topic: str, other: str) -> bool:
        """Whether a site may be given messages: it answers, and has the subscriptions that are to get them."""
        return self.board.sites[other].answers and topic in self._done[other]

    async def _keep_copying(self, topic: str, site: str) -> None:
        other = next(one for one in self.board.sites if one != site)
        while True:
            if self.board.sites[site].answers and self.copies(topic, other):
                try:
                    await FillStream(self, topic, site, other).run()
                except SyncpointError as error:
                    if error.code is Code.NOT_FOUND and topic not in self._done[site]:
                        del self._copying[topic, site]
                        return  # the topic is gone; who brings it back begins anew
                    log.info("copying %s from %s goes on: %s", topic, site, error)
                    if error.code is Code.NOT_FOUND:
                        self.forget(topic)
            await asyncio.sleep(0.5)

    async def close(self) -> None:
        """Leave nothing running."""
        await self.tasks.stop()


class FillStream:
    """One topic from one site to the other, until a stream ends."""

    def __init__(self, fill: SiteFill, topic: str, site: str, other: str) -> None:
        self.fill, self.topic, self.site, self.other = fill, topic, site, other
        self._waiting: deque[Waiting] = deque()
        self._over = False

    def lost(self) -> None:
        """The site is left."""
        self._over = True

    def move(self) -> None:
        """Which site is the home does not matter here."""

    async def run(self) -> None:
        """Raises `SyncpointError`."""
        link = self.fill.own.links[self.site]
        upstream = link.stream(self, methods.SUBSCRIBER.StreamingPull, link.own())
        opening = pubsub.StreamingPullRequest(
            subscription=fill_of(self.topic),
            stream_ack_deadline_seconds=LEASE_S,
            max_outstanding_messages=AHEAD,
            max_outstanding_bytes=AHEAD_BYTES,
        )
        comparing = self.fill.tasks.start(self._compare())
        receiving: asyncio.Future[bytes | None] | None = None
        try:
            await upstream.send(opening.SerializeToString())
            receiving = asyncio.ensure_future(upstream.receive())
            while not self._over:
                await asyncio.wait((receiving, comparing), return_when=asyncio.FIRST_COMPLETED)
                if comparing.done():
                    comparing.result()
                    return
                response = receiving.result()
                if response is None:
                    return
                self._take(response)
                receiving = asyncio.ensure_future(upstream.receive())
        finally:
            self._over = True
            if receiving is not None:
                receiving.cancel()
            upstream.cancel()
            link.end_stream(self)
            comparing.cancel()

    def _take(self, response: bytes) -> None:
        for one in pubsub.StreamingPullResponse.FromString(response).received_messages:
            message = one.message
            identity = message.attributes.get(IDENTITY) or f"{FILLED}{self.site}.{message.message_id}"
            self._waiting.append(Waiting(one.ack_id, identity, message))

    async def _compare(self) -> None:
        publisher = self.fill.publisher
        while not self._over and self.fill.copies(self.topic, self.other):
            there: list[str] = []
            lacking: list[Waiting] = []
            size = 0
            while self._waiting and len(there) < AHEAD and len(lacking) < BATCH and size < BATCH_BYTES:
                one = self._waiting[0]
                known = publisher.both.has(in_topic(one.identity, self.topic), 0.0)
                if known or one.identity.startswith(f"{FILLED}{self.other}."):
                    there.append(one.ack_id)
                elif one.identity in publisher.flying or (
                    lacking and lacking[0].message.ordering_key != one.message.ordering_key
                ):
                    break
                else:
                    lacking.append(one)
                    size += one.message.ByteSize()
                self._waiting.popleft()
            if lacking:
                there += [one.ack_id for one in await self._publish(lacking)]
            if there:
                await self.fill.own.call(
                    self.site, methods.SUBSCRIBER.Acknowledge, subscription=fill_of(self.topic), ack_ids=there
                )
            else:
                await asyncio.sleep(0.05)

    async def _publish(self, lacking: Sequence[Waiting]) -> Sequence[Waiting]:
        """Bring messages to the other site, under their identities; returns those that it has now. Of what it refuses
        together each is tried alone; what it refuses then is tried again when its lease is over. Raises
        `SyncpointError`.
        """
        try:
            await self._publish_together(lacking)
        except SyncpointError as error:
            if error.code is not Code.INVALID_ARGUMENT:
                raise
            if len(lacking) > 1:
                return [found for one in lacking for found in await self._publish([one])]
            held = lacking[0].message.message_id
            log.warning("message %s of %s stays at %s alone: %.300s", held, self.topic, self.site, error)
            return ()
        return lacking

    async def _publish_together(self, lacking: Sequence[Waiting]) -> None:
        messages = [
            pubsub.PubsubMessage(
                data=one.message.data,
                attributes={**one.message.attributes, IDENTITY: one.identity},
                ordering_key=one.message.ordering_key,
            )
            for one in lacking
        ]
        await self.fill.own.call(self.other, methods.PUBLISHER.Publish, topic=self.topic, messages=messages)
        for one in lacking:
            if one.identity.startswith(OWN):
                self.fill.publisher.both.add(in_topic(one.identity, self.topic), 0.0)
        self.fill.copied += len(lacking)
