"""Publisher.Publish for a cluster: each request goes to a chain, and its answer comes back when it is persisted.

Place: the first station of a message's life in a cluster, in front of `publish.service` of the chain's owner. The
request is passed on as it came, behind a head of some bytes; nothing of it is decoded but topic and ordering key.
Promise: ids are returned only when a chain has persisted the messages. A failure that leaves the outcome unknown is not
shown to the client while there is time: without an ordering key the next chain takes the request, with one it is sent
again to whoever owns its chain now, under the same number, so that the owner can tell a repetition. Where two chains
may have stored a batch, the one that has not confirmed it is told so afterwards, see `duplicate_reports`.
Leaves to `route_cache`: where to. Leaves to the publish forwarder: all rules about messages.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from syncpoint.kernel import split
from syncpoint.kernel.errors import Malformed
from syncpoint.metadata.catalog import Catalog
from syncpoint.metadata.records import Topic
from syncpoint.model.cluster import PUBLISH as PUBLISH_ROLE
from syncpoint.model.errors import (
    Code,
    FailedPrecondition,
    InvalidArgument,
    MetadataSilent,
    NotFound,
    OtherSchema,
    OtherTopic,
    StaleEpoch,
    SyncpointError,
    Unavailable,
    Unprocessed,
)
from syncpoint.model.flow import FlowLimits
from syncpoint.model.limits import PUBLISH_REQUEST_BYTES_MAX, PUBLISH_SEALED_ROOM_BYTES
from syncpoint.model.names import parse_topic
from syncpoint.proxy.cancellable_calls import MOVABLE, CancellableCall, CancellableCalls
from syncpoint.proxy.duplicate_reports import DuplicateReports
from syncpoint.proxy.key_order import BatchPlace, PublishOrder
from syncpoint.proxy.rate_limits import RateLimiter
from syncpoint.proxy.route_cache import RouteCache, RouteTarget
from syncpoint.proxy.route_client import RouteClient
from syncpoint.proxy.sealing import Sealer
from syncpoint.publish.envelope import PublishBatch, write_publish
from syncpoint.router.location import may_pass
from syncpoint.runtime.child_processes import Apart, at_once
from syncpoint.runtime.tasks import Tasks
from syncpoint.schemas.publishing import SchemaGate, stamp
from syncpoint.transport.calls import Call, Methods, Unary
from syncpoint.transport.stream_state import Message
from syncpoint.wire import methods

DEADLINE_S = 60.0  # of callers who name none
LAG_S = 3.0  # how long a forwarder may not know yet what we know
REGION_S = 5.0  # so long a region may be away before messages that must lie in it are refused
METADATA_S = 3.0  # how long other chains are tried for what one cannot take while the metadata do not answer
FULL_S = 3.0  # how long full forwarders are asked again before the caller is told
PAUSES_S = (0.01, 0.02, 0.03, *(0.05,) * 30, 0.1, 0.2, 0.4)  # the next owner of a chain is often ready in a second
TRIES_PER_S = 2_000  # of all batches that wait, together
JOIN_BYTES = 4096
Refresh = Callable[[], Awaitable[None]]

log = logging.getLogger(__name__)


class PublishAttempt(CancellableCall):
    """One request on its way."""

    __slots__ = (
        "call", "chain", "deadline", "doubtful", "key", "number", "place", "plain", "request", "schema", "sealed",
        "silent", "size", "started", "topic", "tried",
    )  # fmt: skip

    def __init__(self, call: Call, request: bytes, topic: Topic, key: bytes, number: int, now: float) -> None:
        super().__init__()
        self.call, self.request, self.topic, self.key, self.number = call, request, topic, key, number
        self.plain = request  # as it came
        self.size = len(request)
        self.started = now
        self.deadline = now + DEADLINE_S if call.deadline is None else call.deadline
        self.place: BatchPlace | None = None
        self.chain = 0
        self.sealed = False  # it came sealed
        self.schema = 0  # what it was checked against
        self.doubtful: set[int] = set()  # chains at which an attempt may have succeeded
        self.tried: set[int] = set()
        self.silent = False  # a chain could not take it because the metadata did not answer

    @property
    def unknown(self) -> bool:
        """Whether some attempt may have succeeded."""
        return bool(self.doubtful)


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
        sealer: Sealer | None = None,
        apart: Apart = at_once,
    ) -> None:
        self.catalog, self.routes, self.route_client, self.calls = catalog, routes, route_client, calls
        self.sealer, self.refresh = sealer, refresh
        self.schemas = SchemaGate(catalog, apart)
        self.rate_limiter = RateLimiter(limits)
        self.order = PublishOrder()
        self.duplicate_reports = DuplicateReports(routes.view, calls.peers, sender)
        self.published = self.resent = 0
        self.sender = sender
        self._number = 0
        self._tasks = Tasks()
        self._changed: asyncio.Future[None] | None = None
        self._pausing = 0
        self._gone: dict[tuple[str, ...], float] = {}  # regions of which nobody is there, since when that is known
        routes.view.on_change.append(self.cluster_changed)

    def methods(self) -> Methods:
        """The data-plane method of google.pubsub.v1.Publisher."""
        return {methods.PUBLISHER.Publish.encode(): Unary(self.publish)}

    def internal_methods(self) -> Methods:
        """The same for other processes of the cluster: what they publish, dead letters, was sealed when it came in."""
        sealed = Unary(lambda call, request: self.publish(call, request, sealed=True))
        return {methods.PUBLISHER.Publish.encode(): sealed}

    def publish(self, call: Call, request: bytes, *, sealed: bool = False) -> None:
        """Take a request. Raises `SyncpointError` when it is refused at once."""
        try:
            raw_name, key = split.route_of(request)
            name = raw_name.decode()
        except (Malformed, UnicodeDecodeError) as bad:
            raise InvalidArgument("", f"the request is not a PublishRequest: {bad}") from None
        topic = self.catalog.topic(name)
        if topic is None:
            self._tasks.start(self._late(call, request, name, key, sealed))
        else:
            self._begin(call, request, topic, key, sealed)

    async def _late(self, call: Call, request: bytes, name: str, key: bytes, sealed: bool) -> None:
        """The topic may have been created a moment ago, by another proxy."""
        try:
            checked = parse_topic(name)
            await self.refresh()
            topic = self.catalog.topic(name)
            if topic is None:
                raise NotFound(checked)
            self._begin(call, request, topic, key, sealed)
        except SyncpointError as error:
            call.fail(error)

    def _begin(self, call: Call, request: bytes, topic: Topic, key: bytes, sealed: bool) -> None:
        if len(request) > PUBLISH_REQUEST_BYTES_MAX + (PUBLISH_SEALED_ROOM_BYTES if sealed else 0):
            raise InvalidArgument("request", "request_size is too large")
        if topic.incarnation in self.route_client.stale_topics:
            self.route_client.renew(topic=topic.incarnation)
        if not may_pass(topic, self.routes.region):
            raise FailedPrecondition(f"Messages of {topic.name} may not pass through region {self.routes.region}.")
        self._number += 1
        batch = PublishAttempt(call, request, topic, key, self._number, asyncio.get_running_loop().time())

        batch.sealed = sealed

        def go() -> None:
            self._tasks.start(self._run(batch))

        # A line is joined on arrival: whatever waits for room keeps its place in it.
        self.rate_limiter.enter(topic.name, batch.size, go)
        if key:
            batch.place = self.order.enter(topic.incarnation, key)

    async def _run(self, batch: PublishAttempt) -> None:
        call, topic = batch.call, batch.topic
        try:
            if batch.place is None:
                await self._seal(batch)
            elif topic.schema is not None or self.sealer is not None:
                batch.place.preparing = True
                await self._seal(batch)
                batch.place.prepared()
            answer = await (self._keyed(batch) if batch.key else self._keyless(batch))
        except SyncpointError as error:
            call.fail(error)
        except asyncio.CancelledError:
            call.fail(_outcome_unknown("the proxy is stopping"))
            raise
        except Exception:
            log.exception("a publish failed")
            call.fail(SyncpointError(Code.INTERNAL, "Internal error."))
        else:
            self.published += 1
            call.reply(answer)
            for chain in batch.doubtful - {batch.chain}:
                self.duplicate_reports.add(chain, batch.number)
        finally:
            self.rate_limiter.leave(topic.name, batch.size)
            if batch.place is not None:
                self.order.leave(topic.incarnation, batch.key, batch.place)

    async def _seal(self, batch: PublishAttempt) -> None:
        """Make the request one for the topic as it is known now: checked against its schema, if it has one, sealed."""
        request = batch.plain
        if batch.topic.schema is not None and not batch.sealed:
            request = await self._checked(batch)
        batch.schema = 0 if batch.sealed else stamp(batch.topic.schema)
        if self.sealer is not None and not batch.sealed:
            batch.request = await self.sealer.seal(batch.topic.incarnation, request)
        elif self.sealer is not None:
            await self.sealer.lend(batch.topic.incarnation, batch.request)
        else:
            batch.request = request

    async def _checked(self, batch: PublishAttempt) -> bytes:
        """The messages marked with what they fit. What they do not fit here they may fit by what another proxy has
        committed: nothing is refused before our copy has caught up."""
        try:
            return await self.schemas.marked_apart(batch.topic, batch.plain)
        except (InvalidArgument, NotFound):
            await self.refresh()
            found = self.catalog.topic_by_incarnation(batch.topic.incarnation)
            if found is None:
                raise NotFound(parse_topic(batch.topic.name)) from None
            batch.topic = found
            return await self.schemas.marked_apart(found, batch.plain)

    async def _renew_topic(self, batch: PublishAttempt) -> bool:
        """The forwarder knows another topic by this name, or other schema settings of it. If those are the newer ones,
        the batch is meant for them now; otherwise False."""
        await self.refresh()
        found = self.catalog.topic(batch.topic.name)
        if found is None:
            raise NotFound(parse_topic(batch.topic.name))
        known, batch.topic = batch.topic, found
        if found.incarnation == known.incarnation and found.schema == known.schema:
            return False
        batch.tried.clear()
        try:
            await self._seal(batch)
        except (InvalidArgument, NotFound) as error:
            if batch.unknown:
                raise _outcome_unknown(f"they were sent before, and now: {error.message}") from None
            raise
        return True

    # -- with an ordering key ----------------------------------------------------------------------------------------

    async def _keyed(self, batch: PublishAttempt) -> bytes:
        place = batch.place
        assert place is not None
        turns = 0
        while True:
            await place.wait()
            topic = batch.topic
            self._refuse_cut_off(batch)
            target = self._keyed_target(batch)
            if target is None:
                if not self.routes.assigned(topic):
                    await self.route_client.assign(topic)
                    target = self._keyed_target(batch)
                if target is None:  # nobody has the chain just now
                    await self._pause(batch, turns)
                    turns += 1
                    continue
            chain, epoch, address = target
            try:
                answer = await self._attempt(batch, chain, epoch, address)
                if turns:
                    self._wake()  # others may have waited for the same
                return answer
            except SyncpointError as error:
                place.failed = True
                await self._classify_failure(batch, error, epoch, turns)
            turns += 1

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
        turns = 0
        while True:
            self._refuse_cut_off(batch)
            if self.route_client.unknown_topic(batch.topic.incarnation):
                await self.route_client.topic(batch.topic.incarnation)
            target = self._keyless_target(batch)
            if target is None:
                if batch.silent and not batch.unknown:
                    raise _no_metadata(batch.topic)
                batch.tried.clear()
                await self._pause(batch, turns)
                turns += 1
                continue
            batch.tried.add(target.chain)
            try:
                return await self._attempt(batch, target.chain, 0, target.address)
            except SyncpointError as error:
                if not self._elsewhere(batch, error):
                    await self._classify_failure(batch, error, 0, turns)
                    turns += 1
                    batch.tried.discard(target.chain)

    def _keyless_target(self, batch: PublishAttempt) -> RouteTarget | None:
        """The next chain to try: one of those that share the topic by turns, then the others."""
        choice = self.routes.keyless(batch.topic)
        first = choice.first
        for at in range(len(first)):
            target = first[(batch.number + at) % len(first)]
            if target.chain not in batch.tried:
                return target
        return next((one for one in choice.others if one.chain not in batch.tried), None)

    def _elsewhere(self, batch: PublishAttempt, error: SyncpointError) -> bool:
        """Whether another chain is to be tried at once."""
        if isinstance(error, MetadataSilent):
            batch.silent = True  # another one may have the topic open
            late = asyncio.get_running_loop().time() > batch.started + METADATA_S
            if late and not batch.unknown:
                raise _no_metadata(batch.topic)
        if error.code in MOVABLE:
            self._note_unknown(batch, error)
            return self._time_left(batch) > 0
        if error.code is Code.RESOURCE_EXHAUSTED:
            return any(one.chain not in batch.tried for one in self.routes.keyless(batch.topic).first)
        return False

    # -- one attempt -------------------------------------------------------------------------------------------------

    async def _attempt(self, batch: PublishAttempt, chain: int, epoch: int, address: str) -> bytes:
        left_s = self._time_left(batch)
        if left_s <= 0:
            raise self._too_late(batch)
        if batch.unknown:
            self.resent += 1
        batch.chain = chain
        parts = write_publish(
            PublishBatch(
                chain,
                epoch,
                bool(batch.key),
                self.sender,
                batch.number,
                batch.unknown,
                batch.request,
                batch.topic.incarnation,
                batch.schema,
                batch.sealed,
            )
        )
        message: Message = b"".join(parts) if batch.size <= JOIN_BYTES else parts
        return await self.calls.call(batch, address, methods.CHAINS.Publish, message, stepped(left_s))

    async def _classify_failure(self, batch: PublishAttempt, error: SyncpointError, epoch: int, turns: int) -> None:
        """Return when the batch may be tried again; raise what the caller is told otherwise."""
        now = asyncio.get_running_loop().time()
        code = error.code
        if isinstance(error, MetadataSilent) and not batch.unknown:
            raise _no_metadata(batch.topic)
        if code in MOVABLE:
            self._note_unknown(batch, error)
        elif isinstance(error, StaleEpoch) and batch.key:
            await self.route_client.newer(batch.topic.incarnation, epoch)
        elif isinstance(error, OtherTopic):
            await self._renew_topic(batch)
        elif isinstance(error, OtherSchema):
            # The forwarder's copy of the catalog may be a moment behind ours.
            if not await self._renew_topic(batch) and now > batch.started + LAG_S:
                raise Unavailable(f"Not all of the cluster knows the schema settings of {batch.topic.name}. Try again.")
        elif code is Code.NOT_FOUND:
            # The forwarder's copy of the catalog may be a moment behind ours.
            if now > batch.started + LAG_S or self.catalog.topic_by_incarnation(batch.topic.incarnation) is None:
                raise error
        elif code is not Code.RESOURCE_EXHAUSTED or now > batch.started + FULL_S:
            raise error
        await self._pause(batch, turns)

    def _note_unknown(self, batch: PublishAttempt, error: SyncpointError) -> None:
        if not isinstance(error, (Unprocessed, MetadataSilent)):
            batch.doubtful.add(batch.chain)

    def _time_left(self, batch: PublishAttempt) -> float:
        return batch.deadline - asyncio.get_running_loop().time()

    def _too_late(self, batch: PublishAttempt) -> SyncpointError:
        if batch.call.deadline is not None:
            return SyncpointError(Code.DEADLINE_EXCEEDED, "Deadline exceeded.")
        if batch.unknown:
            return _outcome_unknown("the forwarders did not answer in time")
        return Unavailable(f"No publish forwarder can take messages of {batch.topic.name} now. Try again.")

    def _is_gone(self, topic: Topic) -> bool:
        """Whether no publish forwarder of the regions that may store a topic has been there for a while."""
        if not topic.regions:
            return False
        if self.routes.has_region(topic):
            self._gone.pop(topic.regions, None)
            return False
        now = asyncio.get_running_loop().time()
        return now - self._gone.setdefault(topic.regions, now) > REGION_S

    def _is_cut_off(self, topic: Topic) -> bool:
        """Whether nobody in the regions that may store a topic can be reached, though they count as living."""
        silent = self.calls.detector.silent
        if not topic.regions or not silent:
            return False
        takers = self.routes.takers(topic)
        return bool(takers) and all(one.address in silent for one in takers)

    def _refuse_cut_off(self, batch: PublishAttempt) -> None:
        """Nobody else may take it, and nobody knows for how long: the caller is told at once."""
        if self._is_cut_off(batch.topic):
            where = f"no publish forwarder of {', '.join(batch.topic.regions)} can be reached from here"
            if batch.unknown:
                raise _outcome_unknown(where)
            raise Unavailable(
                f"Messages of {batch.topic.name} may be stored nowhere else, and {where}. Try again later."
            )

    async def _pause(self, batch: PublishAttempt, turns: int) -> None:
        """Wait a little, or until something changes. Raises what the caller is told when its time is over."""
        left_s = self._time_left(batch)
        if left_s <= 0 or batch.call.cancelled:
            raise self._too_late(batch)
        if not batch.unknown and self._is_gone(batch.topic):
            raise Unavailable(f"None of the regions that may store {batch.topic.name} is there now. Try again later.")
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        pause_s = max(PAUSES_S[min(turns, len(PAUSES_S) - 1)], self._pausing / TRIES_PER_S)
        self._pausing += 1
        try:
            await asyncio.wait((self._changed,), timeout=min(left_s, pause_s, PAUSES_S[-1]))
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
                    detector.look(one.address)
        for batch in list(self.calls.underway):
            if isinstance(batch, PublishAttempt) and self._is_cut_off(batch.topic):
                batch.move()

    async def close(self) -> None:
        """Fail what is still underway."""
        await self._tasks.stop()
        await self.duplicate_reports.close()


def stepped(seconds: float) -> float:
    """A timeout rounded up to one of few values: the transport remembers the header block of each."""
    if seconds > 1.0:
        return float(math.ceil(seconds))
    return max(0.05, math.ceil(seconds * 10) / 10)


def _no_metadata(topic: Topic) -> MetadataSilent:
    return MetadataSilent(
        f"{topic.name} has to be opened before messages are taken, which needs the metadata, and the metadata does not "
        "answer. Nothing was stored. Try again."
    )


def _outcome_unknown(why: str) -> Unavailable:
    return Unavailable(f"The messages may or may not be stored: {why}. Publish them again.")
