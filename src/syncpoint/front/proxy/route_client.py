"""Requests for routes: to routers first, then to the metadata they write; with neither, the proxy decides itself.

Place: fills `route_cache`. What is asked in one turn of the loop shares one call. A watch on one router brings later
changes; when it breaks, another router is watched and everything known is asked again.
Promise: the chains of ordering keys come from the metadata and nowhere else, so two proxies never disagree about them:
a topic that nobody has assigned is assigned by one transaction, which the first to try wins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from syncpoint.base.model.cluster import ROUTER
from syncpoint.base.model.errors import MetadataSilent, SyncpointError, Unavailable
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.broker.router.assignment import SubscriptionAssignment, TopicAssignment
from syncpoint.catalog.metadata.contract import Put, StoreError, absent
from syncpoint.catalog.metadata.layout import ASSIGNED_SUBSCRIPTIONS, ASSIGNED_TOPICS, Prefix
from syncpoint.catalog.metadata.records import Topic
from syncpoint.catalog.metadata.store_client import SharedStore
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.front.proxy.route_cache import RouteCache, SubscriptionRoute, TopicRoute
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal

ROUTER_S = 1.0  # one router's time to answer
ROUTERS_TRIED = 2
SILENT_S = 5.0  # how long one that did not answer is left alone, and what nobody assigned is not asked for again
STORE_S = 2.0
ASKED_MAX = 1000  # names in one request
_PAUSE_S = 0.5

_Item = TypeVar("_Item")

log = logging.getLogger(__name__)


class RouteClient:
    """Asks for one proxy. `asked`: calls to routers; `assigned`: topics this proxy had to assign itself."""

    def __init__(self, routes: RouteCache, peers: PeerChannels, store: SharedStore, *, name: str) -> None:
        self.routes, self.name = routes, name
        self._peers, self._store = peers, store
        self._topics: set[int] = set()
        self._subscriptions: set[int] = set()
        self.stale_topics: set[int] = set()
        self.stale_subscriptions: set[int] = set()
        self._asking: asyncio.Task[None] | None = None
        self._tasks = Tasks()
        self._unassigned: dict[tuple[str, int], float] = {}  # looked up in vain, and when
        self._silent: dict[str, float] = {}  # routers by address, and until when
        self._turn = 0
        self.asked = self.assigned = 0

    def start(self) -> None:
        """Begin to watch for changes."""
        self._tasks.start(self._follow())

    async def stop(self) -> None:
        """No more changes."""
        await self._tasks.stop()

    # -- asking ------------------------------------------------------------------------------------------------------

    def unknown_topic(self, topic: int) -> bool:
        """Whether it may be worth it to ask for a topic."""
        return topic not in self.routes.topics and self._worth((ASSIGNED_TOPICS, topic))

    def unknown_subscription(self, subscription: int) -> bool:
        """Whether it may be worth it to ask for a subscription."""
        return subscription not in self.routes.subscriptions and self._worth((ASSIGNED_SUBSCRIPTIONS, subscription))

    def _worth(self, key: tuple[str, int]) -> bool:
        asked = self._unassigned.get(key)
        return asked is None or self._now() >= asked + SILENT_S

    async def topic(self, topic: int) -> None:
        """Look a topic up; it stays unknown when nobody knows it. Never fails."""
        self._topics.add(topic)
        await self._ask()

    async def subscription(self, subscription: int) -> None:
        """Look a subscription up; it stays unknown when nobody knows it. Never fails."""
        self._subscriptions.add(subscription)
        await self._ask()

    async def newer(self, topic: int, epoch: int) -> None:
        """A chain reports that an assignment is old: ask again, also the metadata if the routers know no newer one."""
        await self.topic(topic)
        known = self.routes.topics.get(topic)
        if known is None or known.epoch <= epoch:
            await self._read((topic,), ())

    async def _ask(self) -> None:
        """Join those who ask in this turn."""
        await asyncio.shield(self._ask_soon())

    def _ask_soon(self) -> asyncio.Task[None]:
        if self._asking is None:
            self._asking = self._tasks.start(self._answer())
        return self._asking

    async def _answer(self) -> None:
        await asyncio.sleep(0)  # all who ask in this turn share one call
        topics, subscriptions = self._topics, self._subscriptions
        self._topics, self._subscriptions, self._asking = set(), set(), None
        missing = set(topics), set(subscriptions)
        try:
            await self._ask_routers(*missing)
            await self._read(sorted(missing[0]), sorted(missing[1]))
        except Exception:
            log.exception("looking up routes failed")

    async def _ask_routers(self, topics: set[int], subscriptions: set[int]) -> None:
        """Take away what was answered."""
        now = self._now()
        routers = [one for one in self.routes.view.with_role(ROUTER) if self._silent.get(one.address, 0.0) <= now]
        regions = list(self.routes.nearest({one.region for one in routers}))
        near = sorted(routers, key=lambda one: regions.index(one.region))
        wanted = _wanted(sorted(topics), sorted(subscriptions))
        for router in near[:ROUTERS_TRIED]:
            try:
                for part in _parts(wanted, ASKED_MAX):
                    request = internal.RouteRequest(
                        proxy=self.name,
                        region=self.routes.region,
                        topics=[one for kind, one in part if kind == ASSIGNED_TOPICS],
                        subscriptions=[one for kind, one in part if kind == ASSIGNED_SUBSCRIPTIONS],
                    )
                    self.asked += 1
                    answer = await self._peers.call(
                        router.address, methods.ROUTER.Route, request.SerializeToString(), timeout_s=ROUTER_S
                    )
                    self._take(internal.RouteResponse.FromString(answer))
                break
            except SyncpointError as error:
                log.info("router %s does not answer: %s", router.name, error)
                self._silent[router.address] = self._now() + SILENT_S
        topics -= self.routes.topics.keys()
        subscriptions -= self.routes.subscriptions.keys()

    async def _read(self, topics: Sequence[int], subscriptions: Sequence[int]) -> None:
        """Look into the metadata."""
        for part in _parts(_wanted(topics, subscriptions), 100):
            await asyncio.gather(*(self._read_one(kind, number) for kind, number in part))

    async def _read_one(self, kind: Prefix, number: int) -> None:
        try:
            found = await self._store.get(kind.key(number), deadline_s=STORE_S)
        except StoreError as error:
            log.info("%s%d cannot be looked up: %s", kind, number, error)
            found = None
        if found is None:
            if len(self._unassigned) >= ASKED_MAX * 100:
                self._unassigned.clear()
            self._unassigned[kind, number] = self._now()
            return
        self._unassigned.pop((kind, number), None)
        if kind == ASSIGNED_SUBSCRIPTIONS:
            shared = SubscriptionAssignment.decode(found.value)
            self.routes.put_subscription(number, SubscriptionRoute(shared.epoch, shared.members))
            return
        known = self.routes.topics.get(number)
        assigned = TopicAssignment.decode(found.value)
        if known is None or known.epoch < assigned.epoch:
            route = TopicRoute(assigned.epoch, assigned.chains, elsewhere=assigned.elsewhere)
            self.routes.put_topic(number, route)

    # -- deciding ----------------------------------------------------------------------------------------------------

    async def assign(self, topic: Topic) -> None:
        """Return when the topic is assigned. Raises `Unavailable` when neither routers nor metadata answer."""
        if not self.routes.assigned(topic):
            await self.topic(topic.incarnation)
        if self.routes.assigned(topic):
            return
        candidates = self.routes.candidates(topic)
        if not candidates:
            raise Unavailable(f"No chain can accept messages of {topic.name} now. Try again.")
        key = ASSIGNED_TOPICS.key(topic.incarnation)
        value = TopicAssignment(1, tuple(candidates[:1])).encode()
        written = self._store.txn([absent(key)], [Put(key, value)], deadline_s=STORE_S)
        try:
            self.assigned += (await written).ok
        except StoreError as error:
            raise MetadataSilent(
                f"{topic.name} is not assigned to a chain yet, and the metadata store does not answer. Nothing was"
                " stored. Try again."
            ) from error
        await self._read((topic.incarnation,), ())
        if not self.routes.assigned(topic):
            raise Unavailable(f"The chain of {topic.name} cannot be looked up now. Try again.")

    # -- following ---------------------------------------------------------------------------------------------------

    def _take(self, answer: Any, only_known: bool = False) -> None:
        for one in answer.topics:
            if not only_known or one.topic in self.routes.topics or (ASSIGNED_TOPICS, one.topic) in self._unassigned:
                self._unassigned.pop((ASSIGNED_TOPICS, one.topic), None)
                self.stale_topics.discard(one.topic)
                route = TopicRoute(one.epoch, tuple(one.chains), tuple(one.nearest), tuple(one.alternatives))
                self.routes.put_topic(one.topic, route)
        for one in answer.subscriptions:
            key = (ASSIGNED_SUBSCRIPTIONS, one.subscription)
            if not only_known or one.subscription in self.routes.subscriptions or key in self._unassigned:
                self._unassigned.pop(key, None)
                self.stale_subscriptions.discard(one.subscription)
                shared = SubscriptionRoute(one.epoch, tuple(one.members), tuple(one.others))
                self.routes.put_subscription(one.subscription, shared)

    async def _follow(self) -> None:
        request = internal.WatchRequest(proxy=self.name, region=self.routes.region).SerializeToString()
        while True:
            routers = self.routes.view.with_role(ROUTER)
            if routers:
                self._turn += 1
                address = routers[self._turn % len(routers)].address
                try:
                    await self._follow_one(address, request)
                except SyncpointError as error:
                    log.info("router at %s is not followed any more: %s", address, error)
            await asyncio.sleep(_PAUSE_S)

    async def _follow_one(self, address: str, request: bytes) -> None:
        stream = self._peers.stream(address, methods.ROUTER.Watch)
        try:
            await stream.send(request)
            await stream.end()
            self._all_stale()
            while (answer := await stream.receive()) is not None:
                response = internal.RouteResponse.FromString(answer)
                if response.topics or response.subscriptions:
                    self._take(response, only_known=True)
                else:
                    self._all_stale()  # anything may have changed
        finally:
            stream.cancel()
            self._peers.unpin(address)

    def _all_stale(self) -> None:
        """What is known goes on being used, and is asked for again when it is used next."""
        self.stale_topics = set(self.routes.topics)
        self.stale_subscriptions = set(self.routes.subscriptions)
        self._unassigned.clear()

    def renew(self, *, topic: int | None = None, subscription: int | None = None) -> None:
        """Something stale was used: ask for it, and let nobody wait for the answer."""
        if topic is not None:
            self.stale_topics.discard(topic)
            self._topics.add(topic)
        if subscription is not None:
            self.stale_subscriptions.discard(subscription)
            self._subscriptions.add(subscription)
        self._ask_soon()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _wanted(topics: Sequence[int], subscriptions: Sequence[int]) -> list[tuple[Prefix, int]]:
    return [*((ASSIGNED_TOPICS, one) for one in topics), *((ASSIGNED_SUBSCRIPTIONS, one) for one in subscriptions)]


def _parts(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    return (items[at : at + size] for at in range(0, len(items), size))
