"""Publisher.Publish for a cluster: each request goes to a chain, and its answer comes back when it is persisted.

Place: the first station of a message's life in a cluster, in front of `publish.service` of the chain's owner. The
request is passed on as it came, after a head of some bytes; nothing of it is decoded but topic and ordering key.
Promise: ids are returned only when a chain has persisted the messages. A request is sent again under the same number,
so that the owner of its chain can recognise a repetition. Where two chains may have stored a batch, the one that has
not confirmed it learns of that afterwards, see `duplicate_reports`.
Leaves to `publish_attempt`: what follows a failure. To `route_cache`: where to. To the publish forwarder: all rules
about messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import cast

from syncpoint.base.kernel import split
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.kernel.publish import count_plain
from syncpoint.base.model.cluster import PUBLISH as PUBLISH_ROLE
from syncpoint.base.model.errors import (
    Code,
    NotFound,
    SyncpointError,
    Unavailable,
    not_a,
)
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.model.limits import PUBLISH_MESSAGES_MAX, PUBLISH_SEALED_ROOM_BYTES
from syncpoint.base.model.names import parse_topic, project_of
from syncpoint.base.model.publish_rules import check_size
from syncpoint.base.model.reserved import FORWARDED_FROM
from syncpoint.base.runtime.child_processes import Apart, at_once
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.publish.intake.envelope import PublishBatch, write_publish
from syncpoint.broker.publish.intake.key_order import PublishOrder
from syncpoint.broker.router.location import check_passing
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Topic
from syncpoint.catalog.transforms.publish_requests import PublishTransforms
from syncpoint.front.proxy.cancellable_calls import CancellableCalls
from syncpoint.front.proxy.duplicate_reports import DuplicateReports
from syncpoint.front.proxy.joined_publishes import JoinedPublishes
from syncpoint.front.proxy.publish_attempt import NextStep, PublishAttempt, outcome_unknown
from syncpoint.front.proxy.publish_preparing import PublishPreparation, Refresh
from syncpoint.front.proxy.rate_limits import RateLimiter
from syncpoint.front.proxy.region_reach import RegionReach
from syncpoint.front.proxy.retrying import stepped
from syncpoint.front.proxy.route_cache import RouteCache, RouteTarget
from syncpoint.front.proxy.route_client import RouteClient
from syncpoint.front.proxy.sealing import Sealer
from syncpoint.wire.protobuf import methods
from syncpoint.wire.transport.call_batches import CallBatch
from syncpoint.wire.transport.calls import Call, Methods, Unary
from syncpoint.wire.transport.stream_state import Message

JOIN_BYTES = 4096
ONE_KEY = b"\0"  # where the ids of messages without a key decide, which one chain has to know

log = logging.getLogger(__name__)


class ClusterPublisher:
    """All publishes of one proxy. `sender`: the incarnation of this process; `refresh`: let the catalog catch up."""

    def __init__(
        self,
        catalog: Catalog,
        routes: RouteCache,
        route_client: RouteClient,
        calls: CancellableCalls,
        *,
        sender: int,
        limits: FlowLimits,
        refresh: Refresh,
        transforms: PublishTransforms,
        sealer: Sealer | None = None,
        apart: Apart = at_once,
    ) -> None:
        self.catalog, self.routes, self.route_client, self.calls = catalog, routes, route_client, calls
        self.refresh = refresh
        self._preparation = PublishPreparation(catalog, refresh, sealer, apart, transforms)
        self.schemas, self.edited = self._preparation.schemas, self._preparation.edited
        self._regions = RegionReach(routes, calls.detector)
        self.rate_limiter = RateLimiter(limits)
        self.order = PublishOrder()
        self.duplicate_reports = DuplicateReports(routes.view, calls.peers, sender)
        self.note_publisher: Callable[[Call, str], None] = lambda call, topic: None
        self.published = self.resent = 0
        self.sender = sender
        self._number = 0
        self._late: dict[
            str, deque[tuple[Call, bytes, bytes, PublishOrigin]]
        ] = {}  # by the name of a topic not known here
        self._tasks = Tasks()
        self._changed: asyncio.Future[None] | None = None
        self._pausing = 0
        routes.view.on_change.append(self.cluster_changed)

    def methods(self) -> Methods:
        """The data-plane method of google.pubsub.v1.Publisher."""
        return {methods.PUBLISHER.Publish.encode(): Unary(self.publish, batch_handler=self.publish_batch)}

    def publish_batch(self, batch: CallBatch, at: int) -> int:
        """Take requests from `at` on that can be one, see `JoinedPublishes`; how many. None where there is nothing to
        join. Raises `SyncpointError`, with nothing taken, where they have to be refused.
        """
        try:
            raw_name, key = split.route_of(batch.requests[at])
            name = raw_name.decode()
        except (Malformed, UnicodeDecodeError):
            return 0
        topic = self.catalog.topic(name)
        if key or topic is None or name in self._late or topic.transforms or topic.options.duplicate_window_s:
            return 0
        counts = count_plain(batch.requests, at, raw_name)
        if len(counts) < 2 or sum(counts) > PUBLISH_MESSAGES_MAX:
            return 0
        if batch.noted.get(name, 0.0) <= batch.began:
            self.note_publisher(cast(Call, batch), name)
        joined = JoinedPublishes(batch, at, counts)
        self._begin(cast(Call, joined), joined.request, topic, b"", PublishOrigin.CLIENT)
        return len(counts)

    def internal_methods(self) -> Methods:
        """Return the methods for other processes of the cluster.

        Their messages, dead letters, were sealed on arrival.
        """
        return {methods.PUBLISHER.Publish.encode(): Unary(partial(self.publish, origin=PublishOrigin.SERVICE))}

    def publish(self, call: Call, request: bytes, *, origin: PublishOrigin = PublishOrigin.CLIENT) -> None:
        """Take a request. Raises `SyncpointError` when it is refused at once."""
        try:
            raw_name, key = split.route_of(request)
            name = raw_name.decode()
        except (Malformed, UnicodeDecodeError):
            raise not_a("PublishRequest") from None
        if call.noted.get(name, 0.0) <= call.began and origin is PublishOrigin.CLIENT:
            self.note_publisher(call, name)
        topic = self.catalog.topic(name)
        late = self._late.get(name)
        if late is not None:
            late.append((call, request, key, origin))  # not before those that came before it
        elif topic is None:
            self._late[name] = deque([(call, request, key, origin)])
            self._tasks.start(self._look_for(name))
        else:
            self._begin(call, request, topic, key, origin)

    async def _look_for(self, name: str) -> None:
        """The topic may be a moment old, made by another proxy. What comes in the meantime is looked for again."""
        late, failed = self._late[name], Unavailable("The server is stopping; nothing was stored.")
        try:
            while late:
                asked = len(late)
                try:
                    checked = parse_topic(name)
                    await self.refresh()
                    topic = self.catalog.topic(name)
                    for _ in range(asked if topic is None else len(late)):
                        self._begin_late(topic or NotFound(checked), *late.popleft())
                except SyncpointError as error:
                    for _ in range(asked):
                        self._begin_late(error, *late.popleft())
        finally:
            del self._late[name]
            for one in late:
                self._begin_late(failed, *one)

    def _begin_late(
        self, found: Topic | SyncpointError, call: Call, request: bytes, key: bytes, origin: PublishOrigin
    ) -> None:
        try:
            if isinstance(found, SyncpointError):
                raise found
            self._begin(call, request, found, key, origin)
        except SyncpointError as error:
            call.fail(error)

    def _begin(self, call: Call, request: bytes, topic: Topic, key: bytes, origin: PublishOrigin) -> None:
        own = origin.own
        check_size(request, PUBLISH_SEALED_ROOM_BYTES if own else 0)
        if topic.incarnation in self.route_client.stale_topics:
            self.route_client.renew(topic=topic.incarnation)
        check_passing(topic, self.routes.region)
        self._number += 1
        judged = (FORWARDED_FROM.encode() in request) if own else bool(topic.options.duplicate_window_s)
        key = key or (ONE_KEY if judged else b"")
        batch = PublishAttempt(call, request, topic, key, self._number, asyncio.get_running_loop().time())
        batch.origin, batch.judged = origin, judged

        def go() -> None:
            self._tasks.start(self._run(batch))

        before = self.order.newest(topic.incarnation, key) if key else None
        # Nothing takes the room to be sent in which one before it of its key needs.
        batch.transforming = bool(topic.transforms and not origin.accepted) or (before is not None and before.preparing)
        if batch.transforming:
            self.rate_limiter.enter_transforming(project_of(topic.name), topic.name, batch.size, go)
        else:
            self.rate_limiter.enter(topic.name, batch.size, go)
        if key:  # on arrival: whatever waits for room keeps its place in the line
            batch.place = self.order.enter(topic.incarnation, key)
            batch.place.preparing = batch.transforming

    async def _run(self, batch: PublishAttempt) -> None:
        call, topic = batch.call, batch.topic
        try:
            answer = b""
            if await (self._transformed(batch) if batch.transforming else self._preparation.prepare(batch)):
                answer = await (self._keyed(batch) if batch.key else self._keyless(batch))
            if batch.transformed is not None:
                answer = batch.transformed.response(answer)
        except SyncpointError as error:
            call.fail(error)
        except asyncio.CancelledError:
            call.fail(outcome_unknown("the proxy is stopping"))
            raise
        except Exception:
            log.exception("a publish failed")
            call.fail(SyncpointError(Code.INTERNAL, "Internal error."))
        else:
            self.published += call.calls if isinstance(call, JoinedPublishes) else 1
            call.reply(answer)
            for chain in batch.doubtful - {batch.chain} if not batch.judged else ():
                self.duplicate_reports.add(chain, batch.number)
        finally:
            if not batch.transforming:
                self.rate_limiter.release(topic.name, batch.size)
            if batch.place is not None:
                self.order.release(topic.incarnation, batch.key, batch.place)

    async def _transformed(self, batch: PublishAttempt) -> bool:
        """Prepare what must be transformed, and wait until that may leave; False: all of it was dropped."""
        name = batch.topic.name
        try:
            batch.left_s(asyncio.get_running_loop().time())  # no function runs for who has given up
            left = await self._preparation.prepare(batch)
            if batch.place is not None:
                if left:
                    await batch.place.wait()
                batch.place.preparing = False
        finally:
            self.rate_limiter.leave_transforming(project_of(name), name, batch.size)
        if left:
            batch.size = len(batch.request)
            may_leave = asyncio.Event()
            self.rate_limiter.enter(name, batch.size, may_leave.set)
            await may_leave.wait()
            batch.transforming = False
        return left

    # -- with an ordering key ----------------------------------------------------------------------------------------

    async def _keyed(self, batch: PublishAttempt) -> bytes:
        place = batch.place
        assert place is not None
        while True:
            await place.wait()
            topic = batch.topic
            if self._regions.is_cut_off(topic):
                raise batch.cut_off()
            target = self._keyed_target(batch)
            if target is None and not self.routes.assigned(topic):
                await self.route_client.assign(topic)
                target = self._keyed_target(batch)
            if target is None:  # nobody has the chain just now
                await self._pause(batch)
                continue
            chain, epoch, address = target
            left_s = batch.begin(chain, asyncio.get_running_loop().time())
            place.leave()  # not before: nothing overtakes it while it waits for a route
            try:
                answer = await self._send(batch, epoch, address, left_s)
            except SyncpointError as error:
                place.failed = True
                await self._after(batch, error, epoch)
                continue
            if batch.turns:
                self._wake()  # others may have waited for the same
            return answer

    def _keyed_target(self, batch: PublishAttempt) -> tuple[int, int, str] | None:
        found = self.routes.keyed(batch.topic, batch.key)
        if found is None:
            return None
        address = self.routes.open_at(found[0])
        if address is None or not self.routes.allowed(found[0], batch.topic):
            return None
        return found[0], found[1], address

    # -- without -----------------------------------------------------------------------------------------------------

    async def _keyless(self, batch: PublishAttempt) -> bytes:
        while True:
            if batch.topic.options.duplicate_window_s and not batch.origin.own:  # since a moment ago
                batch.key, batch.judged = ONE_KEY, True
                batch.place = self.order.enter(batch.topic.incarnation, batch.key)
                return await self._keyed(batch)
            if self._regions.is_cut_off(batch.topic):
                raise batch.cut_off()
            if self.route_client.unknown_topic(batch.topic.incarnation):
                await self.route_client.topic(batch.topic.incarnation)
            target = self._keyless_target(batch)
            if target is None:
                batch.begin_round()
                await self._pause(batch)
                continue
            left_s = batch.begin(target.chain, asyncio.get_running_loop().time())
            try:
                return await self._send(batch, 0, target.address, left_s)
            except SyncpointError as error:
                await self._after(batch, error, 0)

    def _keyless_target(self, batch: PublishAttempt) -> RouteTarget | None:
        return batch.next_target(self.routes.keyless(batch.topic))

    # -- one attempt -------------------------------------------------------------------------------------------------

    async def _send(self, batch: PublishAttempt, epoch: int, address: str, left_s: float) -> bytes:
        if batch.unknown:
            self.resent += 1
        parts = write_publish(
            PublishBatch(
                batch.chain,
                epoch,
                bool(batch.key),
                self.sender,
                batch.number,
                batch.unknown,
                batch.request,
                batch.topic.incarnation,
                batch.schema,
                batch.origin,
            )
        )
        message: Message = b"".join(parts) if batch.size <= JOIN_BYTES else parts
        return await self.calls.call(batch, address, methods.CHAINS.Publish, message, stepped(left_s))

    async def _after(self, batch: PublishAttempt, error: SyncpointError, epoch: int) -> None:
        """Return when the batch may be tried again; raise what the caller is shown otherwise."""
        now = asyncio.get_running_loop().time()
        topic = batch.topic.incarnation
        others = not batch.key and any(one.chain not in batch.tried for one in self.routes.keyless(batch.topic).first)
        exists = self.catalog.topic_by_incarnation(topic) is not None
        step = batch.failed(error, now, others=others, exists=exists)
        if step is NextStep.ELSEWHERE:
            return
        if step is NextStep.NEWER_ROUTE:
            await self.route_client.newer(topic, epoch)
        elif step is NextStep.NEWER_TOPIC:
            await self._preparation.renew(batch)
        elif step is NextStep.NEWER_SCHEMA and not await self._preparation.renew(batch):
            batch.refuse_old_schema(now)
        await self._pause(batch)

    async def _pause(self, batch: PublishAttempt) -> None:
        """Wait a little, or until something changes. Raises what the caller is shown when its time is over."""
        loop = asyncio.get_running_loop()
        pause_s = batch.pause_s(loop.time(), self._pausing)
        if not batch.unknown and self._regions.is_gone(batch.topic, loop.time()):
            raise Unavailable(
                f"None of the regions that may store {batch.topic.name} is reachable now"
                f" ({', '.join(batch.topic.regions)})."
                " Nothing was stored. Try again later."
            )
        if self._changed is None:
            self._changed = loop.create_future()
        self._pausing += 1
        try:
            await asyncio.wait((self._changed,), timeout=pause_s)
        finally:
            self._pausing -= 1

    # -- what others say ---------------------------------------------------------------------------------------------

    def cluster_changed(self) -> None:
        """Owners or members changed: what waits at somebody who does not own its chain any more is sent elsewhere."""
        for batch in [one for one in self.calls.underway if isinstance(one, PublishAttempt)]:
            now_at = self.routes.open_at(batch.chain)
            if now_at is None and (batch.key or self._keyless_target(batch) is None):
                continue  # nobody else can take it: the old owner may still answer
            if now_at != batch.address:
                if batch.place is not None:
                    batch.place.failed = True  # from this moment on nothing of its key goes to the new owner before it
                batch.move()
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)

    def suspected(self, address: str) -> None:
        """An address is silent: what has no ordering key goes elsewhere, if there is another place."""
        for batch in self.calls.at(address):
            if isinstance(batch, PublishAttempt) and not batch.key and self._keyless_target(batch) is not None:
                batch.move()
        detector, members = self.calls.detector, self.routes.lists.cluster_state.members.values()
        region = next((one.region for one in members if one.address == address), self.routes.region)
        if region != self.routes.region and address in detector.silent:
            for one in members:
                if one.region == region and PUBLISH_ROLE in one.roles:
                    detector.check(one.address)
        for batch in list(self.calls.underway):
            if isinstance(batch, PublishAttempt) and self._regions.is_cut_off(batch.topic):
                batch.move()

    async def close(self) -> None:
        """Fail what is still underway."""
        await self._tasks.stop()
        await self.duplicate_reports.close()
