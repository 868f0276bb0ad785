"""One stream out of two sites: subscribers of dual topics get each message from the home, and once.

Place: between the relays and `dual_identities`. The other site has the same messages in the same subscription. While
clients receive here, a stream of the gateway's own (a *shadow*) holds the other site's copies, and acknowledges each
when its original is acknowledged. When that site becomes the home the shadow gives back what it holds, and what was
acknowledged before is acknowledged there instead of being delivered.
Bounded: see `dual_identities`; a shadow holds `HELD_MAX` copies. What a gateway forgets, or never knew because it
started anew, may be delivered again after a move.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from syncpoint.base.model.errors import SyncpointError, Unavailable
from syncpoint.base.model.reserved import IDENTITY
from syncpoint.base.runtime.backoff import Backoff
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.front.gateway.dual_identities import AckBook
from syncpoint.front.gateway.dual_publish import OWN
from syncpoint.front.gateway.dual_publisher import DualPublisher
from syncpoint.front.gateway.gateway_peers import ASKED_MAX, Fact, GatewayPeers
from syncpoint.front.gateway.site_board import SiteBoard
from syncpoint.front.gateway.site_fill import FILL, LEASE_S, SiteCalls, fill_of
from syncpoint.front.gateway.site_link import SiteLink
from syncpoint.front.proxy.cancellable_calls import MOVABLE
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.status import ack_outcomes

HELD_MAX: Final = 10_000
RANGES_MAX: Final = 1_000  # of a source, that the home names
IDS_EACH: Final = 2_500  # of one request
FLUSH_S: Final = 0.05
UNDERWAY_S: Final = 1.0
EXTEND_S: Final = LEASE_S / 3
IDLE_S: Final = 60.0  # of a subscription that is pulled from, without a stream
BOOKS_MAX: Final = 10_000

log = logging.getLogger(__name__)


def _published_s(message: Any) -> float:
    return float(message.publish_time.seconds + message.publish_time.nanos / 1e9)


class DualDelivery:
    """All subscriptions of dual topics that clients receive from here."""

    def __init__(self, board: SiteBoard, own: SiteCalls, publisher: DualPublisher) -> None:
        self.board, self.own, self.publisher = board, own, publisher
        self.books: dict[str, DualBook] = {}
        self._plain: set[str] = set()
        self.peers: GatewayPeers | None = None
        self.tasks = Tasks()

    async def book_of(self, subscription: str, may: Callable[[], Awaitable[bool]]) -> DualBook | None:
        """The book of a subscription; None: its topic is at one site alone, or there is none. `may`: whether the
        caller may receive from it, asked before copies are held on the caller's behalf. Raises `Unavailable` while
        that cannot be known: without its book a stream would bring again what was acknowledged.
        """
        book = self.books.get(subscription)
        if book is not None:
            book.used()
            return book
        if subscription in self._plain or f"/subscriptions/{FILL}" in subscription:
            return None
        try:
            found = await self.own.call(self.board.home, methods.SUBSCRIBER.GetSubscription, subscription=subscription)
        except SyncpointError as error:
            if error.code in MOVABLE:
                raise Unavailable(f"{self.board.home} does not answer. Try again.") from error
            log.info("%.300r is taken to be of one site: %.300s", subscription, error)
            return None
        if self.publisher.answer_of(found.topic) is None:
            if len(self._plain) >= BOOKS_MAX:
                self._plain.clear()
            self._plain.add(subscription)
            return None
        if not await may():
            return None
        book = self.books.get(subscription)
        if book is None:
            book = self.books[subscription] = DualBook(self, found)
            self.tasks.start(book.keep())
        book.used()
        return book

    def changed(self, subscription: str) -> None:
        """A subscription was created, deleted or moved back: nothing is known of it any more."""
        self._plain.discard(subscription)
        book = self.books.pop(subscription, None)
        if book is not None:
            book.over = True

    @property
    def held(self) -> int:
        """Copies that are held."""
        return sum(len(book.acks.held) for book in self.books.values())

    @property
    def dropped(self) -> int:
        """Messages that were not delivered because a subscriber had acknowledged them before."""
        return sum(book.acks.dropped for book in self.books.values())

    async def close(self) -> None:
        """Leave nothing running."""
        await self.tasks.stop()


class DualBook:
    """One subscription. `streams`: how many clients have one open at each site."""

    def __init__(self, delivery: DualDelivery, record: Any) -> None:
        self.delivery, self.name = delivery, record.name
        self.exactly_once = bool(record.enable_exactly_once_delivery)
        self.acks = AckBook(link.tag.decode() for link in delivery.own.links.values())
        if delivery.peers is not None:
            self.acks.news = []
        self.over = False
        self.streams: dict[str, int] = {}
        self._used = 0.0
        self._site = ""  # whose copies are held
        self._asked: list[str] = []  # identities that were held a while ago
        self._ask_from = 0  # with which of them the next question begins
        self._done: dict[str, list[str]] = {}  # by site: ack ids to be acknowledged there

    def used(self) -> None:
        """Somebody receives."""
        self._used = self._now()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # -- what passes --------------------------------------------------------------------------------------------------

    def delivered(self, link: SiteLink, response: Any) -> None:
        """Take out of a response what was acknowledged before, and tag the rest."""
        tag, kept = link.tag.decode(), []
        for one in response.received_messages:
            identity = one.message.attributes.get(IDENTITY, "")
            if self.acks.deliver(tag, one.ack_id, identity, _published_s(one.message), one.message.message_id):
                if identity.startswith(OWN):  # published again with it, it would be taken for this one
                    del one.message.attributes[IDENTITY]
                one.ack_id = tag + one.ack_id
                kept.append(one)
            else:
                self._done.setdefault(link.name, []).append(one.ack_id)
        if len(kept) < len(response.received_messages):
            del response.received_messages[:]
            response.received_messages.extend(kept)

    def acknowledged(self, ack_ids: list[str], *, gone: bool = False) -> None:
        """A subscriber acknowledged these, as it has them; `gone`: the site that lent them does not know."""
        copies = self.acks.acknowledged(ack_ids, gone=gone)
        if copies:
            self._done.setdefault(self._site, []).extend(copies)

    def reported(self, facts: Sequence[Fact]) -> None:
        """Subscribers of another gateway acknowledged these."""
        copies = self.acks.reported(facts)
        if copies:
            self._done.setdefault(self._site, []).extend(copies)

    async def ask_peers(self) -> None:
        """Ask for copies that were held when this was last asked: what was acknowledged before, peers may know."""
        if self.delivery.peers is not None:
            old = [one for one in self._asked if one in self.acks.held]
            self._asked = list(self.acks.held)
            if old:
                self._ask_from %= len(old)  # beyond what is asked at a time the next ones have their turn later
                turned = (old[self._ask_from :] + old[: self._ask_from])[:ASKED_MAX]
                self._ask_from += ASKED_MAX
                self.reported(await self.delivery.peers.ask(self.name, turned))

    async def ask_home(self) -> None:
        """Ask the home what it has done with, of what was under way when this was last asked."""
        home, own = self.delivery.board.home, self.delivery.own
        tag = own.links[home].tag.decode()
        if not self.acks.proof.to_ask(tag):
            return
        try:
            state = await own.call(
                home, methods.ADMIN.GetSubscriptionState, subscription=self.name, ranges_max=RANGES_MAX
            )
            record = await own.call(home, methods.SUBSCRIBER.GetSubscription, subscription=self.name)
            topic, letters = record.dead_letter_policy.dead_letter_topic, None
            if topic and self.delivery.publisher.answer_of(topic) is not None:
                fill = fill_of(topic)
                letters = await own.call(home, methods.ADMIN.GetSubscriptionState, subscription=fill, ranges_max=1)
        except SyncpointError as error:
            log.info("what %s has done with of %s is asked again: %s", home, self.name, error)
            return
        found = self.acks.proof.looked(tag, state, letters)
        if found:
            log.info("%s at %s: %d messages are done with, and were not known to be", self.name, home, len(found))
            self._done.setdefault(self._site, []).extend(self.acks.completed(tag, found))

    def stands_in(self, ack_ids: list[str]) -> bool:
        """Acknowledge messages whose site is gone, by their copies; False where that would not be true."""
        if self.exactly_once or not self.acks.knows(ack_ids):
            return False
        self.acknowledged(ack_ids, gone=True)
        return True

    # -- the shadow ---------------------------------------------------------------------------------------------------

    def _shadowed(self) -> str:
        """The site whose copies are to be held: the one that clients do not receive from; "" for none."""
        board = self.delivery.board
        for site in board.sites.values():
            if site.name != board.home and site.answers and not self.streams.get(site.name):
                return site.name
        return ""

    async def keep(self) -> None:
        """Hold the copies of whichever site is not the home, for as long as somebody receives."""
        flushing, backoff = self.delivery.tasks.start(self._flush()), Backoff(0.2, 5.0)
        try:
            while not self.over:
                if not any(self.streams.values()) and self._now() > self._used + IDLE_S:
                    break
                site = self._shadowed()
                if site:
                    try:
                        await ShadowStream(self, site).run()
                        backoff.succeeded()
                    except SyncpointError as error:  # detached, or a push subscription: there are no copies to hold
                        log.info("copies of %s at %s: %s", self.name, site, error)
                        backoff.failed()
                await asyncio.sleep(backoff.pause_s)
        finally:
            flushing.cancel()
            if self.delivery.books.get(self.name) is self:
                del self.delivery.books[self.name]

    def moves(self, site: str) -> bool:
        """Whether a shadow at a site is to end, so that its copies are delivered: the site is the home, and what is
        under way elsewhere is done with.
        """
        board = self.delivery.board
        if self.over or not board.sites[site].answers:
            return True
        return board.home == site and not any(count for name, count in self.streams.items() if name != site)

    def hold(self, site: str, response: Any) -> None:
        """Copies came from a site."""
        self._site, tag = site, self.delivery.own.links[site].tag.decode()
        for one in response.received_messages:
            identity = one.message.attributes.get(IDENTITY, "")
            if not self.acks.hold(tag, identity, one.ack_id, _published_s(one.message)):
                self._done.setdefault(site, []).append(one.ack_id)

    async def _flush(self) -> None:
        """Acknowledge, in the background, what is done with."""
        while True:
            await asyncio.sleep(FLUSH_S)
            if self.delivery.peers is not None and (news := self.acks.take_news()):
                self.delivery.peers.report(self.name, news)
            done, self._done = self._done, {}
            for site, ids in done.items():
                unknown_ids: Sequence[str] = ids
                if self.delivery.board.sites[site].answers:
                    unknown_ids = await self.send(site, methods.SUBSCRIBER.Acknowledge, ids)
                tag, failed = self.delivery.own.links[site].tag.decode(), set(unknown_ids)
                good = [one for one in ids if one not in failed]  # what was lent again before that may still come
                asyncio.get_running_loop().call_later(
                    UNDERWAY_S, partial(self.acks.answered, tag, good, confirmed=True)
                )
                self.acks.answered(tag, unknown_ids, confirmed=False)

    async def send(self, site: str, method: methods.Method, ids: Sequence[str], **fields: Any) -> Sequence[str]:
        """Ack ids to a site, some at a time; returns those that it did not confirm, whose messages come again."""
        failed: list[str] = []
        for at in range(0, len(ids), IDS_EACH):
            some = list(ids[at : at + IDS_EACH])
            try:
                await self.delivery.own.call(site, method, subscription=self.name, ack_ids=some, **fields)
            except SyncpointError as error:
                log.info("copies of %s at %s come again: %s", self.name, site, error)
                outcomes = ack_outcomes(error)
                if not outcomes:
                    return [*failed, *ids[at:]]
                failed += [one for one in some if one in outcomes]
        return failed


class ShadowStream:
    """Holds the copies of one site until it is the home."""

    def __init__(self, book: DualBook, site: str) -> None:
        self.book, self.site = book, site
        self._over = False

    def lost(self) -> None:
        """The site is left."""
        self._over = True

    def move(self) -> None:
        """Which site is the home is asked in `run`."""

    async def run(self) -> None:
        """Raises `SyncpointError`."""
        book, loop = self.book, asyncio.get_running_loop()
        link = book.delivery.own.links[self.site]
        upstream = link.stream(self, methods.SUBSCRIBER.StreamingPull, link.own())
        opening = pubsub.StreamingPullRequest(
            subscription=book.name, stream_ack_deadline_seconds=LEASE_S, max_outstanding_messages=HELD_MAX
        )
        receiving: asyncio.Future[bytes | None] | None = None
        extend_at = loop.time()  # at once: proof begins with the first look
        try:
            await upstream.send(opening.SerializeToString())
            while not self._over and not book.moves(self.site):
                receiving = receiving or asyncio.ensure_future(upstream.receive())
                await asyncio.wait((receiving,), timeout=0.1)
                if receiving.done():
                    response, receiving = receiving.result(), None
                    if response is None:
                        return
                    book.hold(self.site, pubsub.StreamingPullResponse.FromString(response))
                if loop.time() >= extend_at:
                    extend_at = loop.time() + EXTEND_S
                    await self._modify(book.acks.copies(), LEASE_S)
                    await book.ask_peers()
                    await book.ask_home()
        finally:
            upstream.cancel()
            link.end_stream(self)
            if receiving is not None:
                receiving.cancel()
            given_back = book.acks.release()
            if book.delivery.board.sites[self.site].answers:
                book.delivery.tasks.start(self._modify(given_back, 0))

    async def _modify(self, ids: Sequence[str], seconds: int) -> None:
        path = methods.SUBSCRIBER.ModifyAckDeadline
        await self.book.send(self.site, path, ids, ack_deadline_seconds=seconds)
