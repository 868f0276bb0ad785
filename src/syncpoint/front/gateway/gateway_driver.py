"""The gateway, put together: one address in front of several sites, which are probed, masked and taken back.

Place: made by `programs.cli.gateway` from a file; the driver of `site_board`. Stateless: any number of gateways run,
and a client may use any of them.
Leaves to the sites: everything that lasts, and who may do what; the caller's own authorization is passed on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from syncpoint.base.model.errors import Code, ConnectionRefused, SyncpointError
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.front.api.health import HealthService
from syncpoint.front.api.receipted_publish import HEADER, PROBLEM
from syncpoint.front.api.reflection import SERVICES, reflection_methods
from syncpoint.front.gateway.ack_tags import tags_of
from syncpoint.front.gateway.caller_bounds import CallerBounds
from syncpoint.front.gateway.dual_delivery import DualBook, DualDelivery
from syncpoint.front.gateway.dual_publisher import DualPublisher
from syncpoint.front.gateway.gateway_file import GatewayFile
from syncpoint.front.gateway.gateway_peers import GatewayPeers, poster
from syncpoint.front.gateway.gateway_stream import GatewayStreams
from syncpoint.front.gateway.link_lag import LinkLag
from syncpoint.front.gateway.site_board import BY_HEALTH, HealthRules, SiteBoard, SiteState
from syncpoint.front.gateway.site_fill import FILL, SiteCalls, SiteFill
from syncpoint.front.gateway.site_link import SiteLink
from syncpoint.front.gateway.unary_calls import UnaryCalls, named_in
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import health, pubsub
from syncpoint.wire.transport.calls import Call, CallContext, Methods, Streaming, Trailing, Unary
from syncpoint.wire.transport.client import MetadataItems
from syncpoint.wire.transport.network import AnyChannel
from syncpoint.wire.transport.tasks import unary_async

AT_ONCE_S: Final = 0.05  # between a call that failed and the probe that asks why

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SiteAccess:
    """How one site is reached: what makes channels to it, and the metadata of the gateway's own calls."""

    open_channel: Callable[[], AnyChannel]
    own: Callable[[], MetadataItems] = lambda: ()


def without_receipt(publish: Unary) -> Unary:
    """Publish, with the reason why a gateway has no receipt for who asks for one."""

    def handle(call: Any, request: bytes) -> None:
        call.trail(PROBLEM, Code.UNIMPLEMENTED.name.encode())
        publish.handler(call, request)

    return publish.varied(HEADER, Trailing(handle))


class Gateway:
    """One gateway. Made in a running event loop; `start`ed, and `stop`ped after its server has closed."""

    def __init__(self, file: GatewayFile, access: Mapping[str, SiteAccess], token: str = "") -> None:
        self.file = file
        states = [SiteState(one.name, one.weight, one.region) for one in file.sites]
        health_of = file.health
        rules = HealthRules(health_of.failures, health_of.successes, file.budget.changes, file.budget.within_s)
        self.board = SiteBoard(states, rules, file.region)
        tags = tags_of(one.name for one in file.sites)
        self.links = {
            name: SiteLink(name, tags[name], access[name].open_channel, access[name].own) for name in self.board.sites
        }
        self._probe_channels = {name: access[name].open_channel() for name in self.links}
        self._wake = {name: asyncio.Event() for name in self.links}
        self.bounds = CallerBounds(file.limits.streams_per_caller, file.limits.bytes_per_caller)
        self.calls = UnaryCalls(self.board, self.links, self.bounds, self.lost)
        self.streams = GatewayStreams(self.calls, file.drain_s)
        self.peers: GatewayPeers | None = None
        self._pair_up(file, token)
        self.links_lag = LinkLag(self.board, file.federation, file.lag) if file.federation else None
        self.health = HealthService(("", methods.PUBLISHER.name, methods.SUBSCRIBER.name))
        self.tasks = Tasks()
        self.board.on_change = self._changed
        self.ready = False

    def _pair_up(self, file: GatewayFile, token: str) -> None:
        """Have topics of the file at two sites."""
        own = SiteCalls(self.links)
        self.publisher = DualPublisher(file.dual, self.calls, self._ready)
        self.fill = SiteFill(file.dual, self.board, own, self.publisher, file.lag)
        self.delivery = DualDelivery(self.board, own, self.publisher)
        if file.dual and file.peers:
            self.peers = self.delivery.peers = GatewayPeers(file.peers, self.delivery, poster(token))
            self.peers.on_changed = self.fill.forget
        if file.dual:
            self.streams.book_of = self._book_of
            self.calls.on_acknowledged = self._acknowledged
            self.calls.stands_in = self._stands_in
            self.calls.on_change = self._resource_changed

    async def _ready(self, topic: str) -> None:
        await self.fill.ready(topic)

    def _acknowledged(self, subscription: str, ack_ids: list[str]) -> None:
        book = self.delivery.books.get(subscription)
        if book is not None:
            book.acknowledged(ack_ids)

    def _stands_in(self, subscription: str, ack_ids: list[str]) -> bool:
        book = self.delivery.books.get(subscription)
        return book is not None and book.stands_in(ack_ids)

    def _resource_changed(self, path: str, request: bytes) -> None:
        """What is known of a topic or a subscription may hold no more."""
        if path == methods.SUBSCRIBER.UpdateSubscription:
            updated = pubsub.UpdateSubscriptionRequest.FromString(request).subscription
            book = self.delivery.books.get(updated.name)
            if book is not None and updated.enable_exactly_once_delivery:
                book.exactly_once = True
            return
        name = named_in(request)
        book = self.delivery.books.get(name)
        if path != methods.SUBSCRIBER.Seek:
            self.fill.forget(name)
            self.delivery.changed(name)
        elif book is not None:
            book.acks.forget()
        if self.peers is not None:
            self.peers.report(name, ["reset" if path == methods.SUBSCRIBER.Seek else "changed"])

    async def _book_of(self, call: CallContext, subscription: str) -> DualBook | None:
        return await self.delivery.book_of(subscription, lambda: self.calls.may_consume(call, subscription))

    async def _pull(self, call: Call, request: bytes) -> bytes:
        """A pull of a subscription that may be of a dual topic."""
        book = await self._book_of(call, named_in(request))
        if book is None:
            return await self.calls.pull(call, request)
        response, link = await self.calls.at_home(call, methods.SUBSCRIBER.Pull, request)
        found = pubsub.PullResponse.FromString(response)
        book.delivered(link, found)
        answer: bytes = found.SerializeToString()
        return answer

    async def _list(self, method: methods.Method, call: Call, request: bytes) -> bytes:
        """Subscriptions, without those by which dual topics are copied."""
        response, _ = await self.calls.at_home(call, method, request)
        found = method.response.FromString(response)
        kept = [one for one in found.subscriptions if f"/subscriptions/{FILL}" not in getattr(one, "name", one)]
        del found.subscriptions[:]
        found.subscriptions.extend(kept)
        answer: bytes = found.SerializeToString()
        return answer

    def methods(self) -> Methods:
        """What clients may call."""
        table: dict[bytes, Unary | Streaming] = {}
        for found in (self.calls.methods(), self.streams.methods(), self.health.methods()):
            table.update(found)
        table.update(reflection_methods(SERVICES))
        if self.file.dual:
            table[methods.PUBLISHER.Publish.encode()] = unary_async(self.publisher.publish)
            table[methods.SUBSCRIBER.Pull.encode()] = unary_async(self._pull)
            for listing in (methods.SUBSCRIBER.ListSubscriptions, methods.PUBLISHER.ListTopicSubscriptions):
                table[listing.encode()] = unary_async(partial(self._list, listing))
        publish = table[methods.PUBLISHER.Publish.encode()]
        assert isinstance(publish, Unary)
        table[methods.PUBLISHER.Publish.encode()] = without_receipt(publish)
        return table

    # -- the life of it -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Probe every site once, then go on probing."""
        await asyncio.gather(*(self._probe(name) for name in self.links))
        self.ready = True
        for name in self.links:
            self.tasks.start(self._keep_probing(name))
        if self.file.dual:
            self.tasks.start(self.fill.keep())
        if self.peers is not None:
            self.peers.start()
        if self.links_lag is not None:
            self.tasks.start(self.links_lag.keep())

    def drain(self) -> None:
        """Before the server drains: balancers and clients go to another gateway."""
        self.ready = False
        self.health.stop()

    async def stop(self) -> None:
        """Leave nothing running."""
        await self.tasks.stop()
        await self.streams.close()
        await self.publisher.close()
        await self.fill.close()
        await self.delivery.close()
        if self.peers is not None:
            await self.peers.tasks.stop()
        await asyncio.gather(
            *(link.close() for link in self.links.values()), *(one.close() for one in self._probe_channels.values())
        )

    # -- health -------------------------------------------------------------------------------------------------------

    def lost(self, name: str) -> None:
        """A call found a site silent or gone: probe it now."""
        self._wake[name].set()

    async def _keep_probing(self, name: str) -> None:
        wake = self._wake[name]
        while True:
            try:
                async with asyncio.timeout(self.file.health.interval_s):
                    await wake.wait()
                await asyncio.sleep(AT_ONCE_S)
            except TimeoutError:
                pass
            wake.clear()
            await self._probe(name)

    async def _probe(self, name: str) -> None:
        loop, request = asyncio.get_running_loop(), health.HealthCheckRequest()
        try:
            answer = await self._probe_channels[name].unary(
                methods.HEALTH.Check, request.SerializeToString(), timeout=self.file.health.timeout_s
            )
        except ConnectionRefused as error:
            self._missed(name, error.message, refused=True)
        except SyncpointError as error:
            if error.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
                self._missed(name, error.message)
            else:
                self.board.answered(name, loop.time())  # an answer of any kind is one
        else:
            if health.HealthCheckResponse.FromString(answer).status == health.HealthCheckResponse.SERVING:
                self.board.answered(name, loop.time())
                if name == self.board.home:
                    self.streams.come_home()
            else:
                self._missed(name, "it takes no work: it is stopping, or its log cannot be written")

    def _missed(self, name: str, why: str, *, refused: bool = False) -> None:
        """A probe was not answered. A masked site, too, may come back with other disks: it is compared anew."""
        self.board.missed(name, why, asyncio.get_running_loop().time(), refused=refused)
        if self.board.sites[name].masked and self.file.dual:
            self.publisher.both.clear()
            self.fill.left(name)

    def _changed(self, name: str) -> None:
        """A site was masked or is back."""
        state, link = self.board.sites[name], self.links[name]
        log.warning(
            "site %s %s; home: %s", name, f"masked by {state.masked}" if state.masked else "open", self.board.home
        )
        if state.masked and self.file.dual:
            self.publisher.both.clear()
            self.fill.left(name)
        if state.masked and self.links_lag is not None:
            self.links_lag.left(name)
        if state.masked == BY_HEALTH:
            link.leave()
        home = self.board.home
        for one in list(self.streams.open):
            if one.link is not None and one.link.name != home:
                one.move()

    # -- operators ----------------------------------------------------------------------------------------------------

    def mask(self, name: str, *, force: bool = False) -> None:
        """Take a site out. Raises `SyncpointError`."""
        self.board.mask(name, asyncio.get_running_loop().time(), force=force)

    def unmask(self, name: str, *, force: bool = False) -> None:
        """Take a site back. Raises `SyncpointError`."""
        self.board.unmask(name, asyncio.get_running_loop().time(), force=force)

    def status(self) -> dict[str, Any]:
        """Numbers for operators."""
        now = asyncio.get_running_loop().time()
        return {
            "home": self.board.home,
            "ready": self.ready,
            "changesLeft": self.board.changes_left(now),
            "streams": self.bounds.open_streams,
            "movedStreams": self.streams.moved,
            "responses": self.streams.responses,
            "refused": self.bounds.refused,
            "dual": {
                "published": self.publisher.published,
                "atOneSite": self.publisher.alone,
                "repeated": self.publisher.repeated,
                "copied": self.fill.copied,
                "lacks": self.fill.lacks,
                "dropped": self.delivery.dropped,
                "held": self.delivery.held,
            },
            "peers": [
                {"peer": one.address, "answers": one.answers, "waiting": len(one.waiting), "dropped": one.dropped}
                for one in (self.peers.peers if self.peers is not None else ())
            ],
            "sites": [self._site_status(one, now) for one in self.board.sites.values()],
        }

    def _site_status(self, site: SiteState, now: float) -> dict[str, Any]:
        link = self.links[site.name]
        return {
            "site": site.name,
            "region": site.region,
            "weight": site.weight,
            "state": "home" if site.name == self.board.home else f"masked by {site.masked}" if site.masked else "open",
            "answers": site.answers,
            "sinceSeconds": round(now - site.since, 1) if site.changes else None,
            "streams": len(link.streams),
            "calls": link.calls,
            "failed": link.failed,
            "changes": site.changes,
            "held": site.held,
            "differs": self.fill.differences.shown(site.name),
            "error": site.last_error,
        }
