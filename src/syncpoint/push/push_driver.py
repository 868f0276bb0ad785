"""All push subscriptions of a process: the driver over `pusher`, feeds and the HTTP client.

Place: one in every process that may push; follows the catalog, and `mine` says which subscriptions are its own.
Promise: each push subscription of ours is subscribed to while it exists, is not detached, names an endpoint that may be
pushed to, and the service's own identity may read it. What fails is a failure of that subscription alone, and its last
text is kept for its owner. Acknowledgements of one turn of the event loop go to the forwarder together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from syncpoint.kernel.errors import BadAckId
from syncpoint.metadata.catalog import CatalogCopy
from syncpoint.metadata.records import CatalogChange, ChangeOp, Subscription
from syncpoint.model.errors import PermissionDenied, SyncpointError
from syncpoint.push import pusher as machine
from syncpoint.push.addresses import Vetting
from syncpoint.push.feed import Feed, OpenFeed
from syncpoint.push.http_sender import PushFailed
from syncpoint.push.oidc_tokens import OidcTokens
from syncpoint.push.pace import BACKOFF_FIRST_S, BACKOFF_MAX_S, Pace, PaceLimits
from syncpoint.push.payload import Headers, request_of
from syncpoint.push.push_config import Endpoint, endpoint_of, push_config_of
from syncpoint.push.pusher import LEASE_MARGIN_S, Effect, Lent, Pusher
from syncpoint.runtime.clock import Clock
from syncpoint.runtime.random import Random
from syncpoint.runtime.tasks import Tasks, stop
from syncpoint.wire.messages import pubsub

TICK_S, REVIEW_S = 0.1, 1.0
AGAIN_FIRST_S, AGAIN_MAX_S = 1.0, 60.0  # until a feed that could not be opened, or ended, is opened again
UNDER_WAY_MAX = 2_000  # of all subscriptions together
END_S = 5.0  # for what is under way when the process ends

log = logging.getLogger(__name__)


class Sender(Protocol):
    """What posts: `HttpSender`, or an endpoint that a test plays."""

    async def post(self, endpoint: Endpoint, headers: Headers, body: bytes, timeout_s: float) -> int:
        """The status of the answer. Raises `PushFailed`."""
        ...


@dataclass(frozen=True, slots=True)
class PushState:
    """What the owner of a subscription may know of its pushes."""

    subscription: str
    endpoint: str
    window: int
    under_way: int
    paused_s: float
    acknowledged: int
    refused: int
    last_status: int
    last_error: str


class PushDriver:
    """See the module. `mine`: by incarnation, whether this process pushes it. `may_push`: whether the service's own
    identity may. `tokens`: None where nothing can be signed, then subscriptions that ask for tokens are not pushed.
    """

    def __init__(
        self,
        copy: CatalogCopy,
        open_feed: OpenFeed,
        sender: Sender,
        vetting: Vetting,
        clock: Clock,
        random: Random,
        *,
        tokens: OidcTokens | None = None,
        mine: Callable[[int], bool] = lambda incarnation: True,
        may_push: Callable[[Subscription], bool] = lambda record: True,
        limits: PaceLimits | None = None,
    ) -> None:
        self.copy, self.open_feed, self.sender, self.vetting = copy, open_feed, sender, vetting
        self.clock, self.random, self.tokens = clock, random, tokens
        self.mine, self.may_push, self.limits = mine, may_push, limits or PaceLimits()
        self.tasks = Tasks()
        self.pushed: dict[int, PushedSubscription] = {}
        self.acknowledged = self.refused = 0  # pushes from here, by their ends
        self._known: dict[int, pubsub.PushConfig] = {}  # all push subscriptions there are
        self._ending: set[PushedSubscription] = set()  # no longer ours, with pushes under way
        self._reviewed = float("-inf")
        self._started = False
        self._ticking: asyncio.Task[None] | None = None  # only while there is something to push

    def start(self) -> None:
        """Begin to push. Needs the event loop."""
        self._started = True
        for record in self.copy.catalog.subscriptions():
            self._note(record)
        self.copy.on_change.append(self._changed)

    async def close(self) -> None:
        """Take nothing more, wait a little for what is under way, and end the rest unanswered."""
        self._started = False
        if self._changed in self.copy.on_change:
            self.copy.on_change.remove(self._changed)
        if self._ticking is not None:
            await stop([self._ticking])
        for one in list(self.pushed.values()):
            self._end(one)
        sends = [task for task in self.tasks if not task.done()]
        if sends:
            _, late = await asyncio.wait(sends, timeout=END_S)
            await stop(late)
        for one in list(self._ending):
            one.flush()
        self._ending.clear()

    def states(self) -> list[PushState]:
        """How each subscription of ours is doing, by name."""
        return sorted((one.state() for one in self.pushed.values()), key=lambda state: state.subscription)

    def state(self, incarnation: int) -> PushState | None:
        """How a subscription of ours is doing; None for one that is not pushed from here."""
        one = self.pushed.get(incarnation)
        return None if one is None else one.state()

    def totals(self) -> dict[str, int]:
        """Numbers for operators, over all subscriptions pushed from here."""
        now = self.clock.monotonic()
        return {
            "pushed_subscriptions": len(self.pushed),
            "pushes_paused": sum(one.pusher.pace.paused_until(now) is not None for one in self.pushed.values()),
            "pushes_under_way": sum(one.under_way for one in (*self.pushed.values(), *self._ending)),
            "pushes_acknowledged": self.acknowledged,
            "pushes_refused": self.refused,
        }

    def review(self) -> None:
        """Which subscriptions are ours may have changed; also called once a second."""
        self._reviewed = now = self.clock.monotonic()
        catalog = self.copy.catalog
        for incarnation, config in list(self._known.items()):
            record, one = catalog.subscription_by_incarnation(incarnation), self.pushed.get(incarnation)
            if record is None or not self.mine(incarnation):
                if one is not None:
                    self._end(one)
                continue
            if one is None:
                one = self.pushed[incarnation] = PushedSubscription(self, record, config)
            one.review(record, config, now)
        self._share()

    def tick(self) -> None:
        """Ten times a second."""
        now = self.clock.monotonic()
        if now - self._reviewed >= REVIEW_S:
            self.review()
        for one in (*self.pushed.values(), *self._ending):
            one.tick(now)
        self._ending = {one for one in self._ending if one.under_way}

    async def _run(self) -> None:
        while self._known or self.pushed or self._ending:
            try:
                self.tick()
            except Exception:
                log.exception("a tick of the pushes failed")
            await asyncio.sleep(TICK_S)

    def _changed(self, change: CatalogChange) -> None:
        record = change.record
        if not isinstance(record, Subscription):
            return
        if change.op is ChangeOp.DELETE:
            self._forget(record.incarnation)
        else:
            self._note(record)
            self._reviewed = float("-inf")  # at the next tick

    def _note(self, record: Subscription) -> None:
        config = push_config_of(record)
        if config is None:
            self._forget(record.incarnation)
        else:
            self._known[record.incarnation] = config
            if self._started and (self._ticking is None or self._ticking.done()):
                self._ticking = self.tasks.start(self._run())

    def _forget(self, incarnation: int) -> None:
        self._known.pop(incarnation, None)
        one = self.pushed.get(incarnation)
        if one is not None:
            self._end(one)

    def _end(self, one: PushedSubscription) -> None:
        self.pushed.pop(one.record.incarnation, None)
        one.close()
        if one.under_way:
            self._ending.add(one)

    def _share(self) -> None:
        """What may be under way in all is for those that have something to do."""
        busy = sum(one.pusher.held > 0 for one in self.pushed.values())
        share = min(self.limits.window_max, max(1, UNDER_WAY_MAX // max(1, busy)))
        for one in self.pushed.values():
            one.pusher.pace.set_window_max(share)


class PushedSubscription:
    """One of them: its machine, its feed, and what is under way."""

    def __init__(self, driver: PushDriver, record: Subscription, config: pubsub.PushConfig) -> None:
        self.driver, self.record, self.config = driver, record, config
        self.endpoint: Endpoint | None = None
        self._read: pubsub.PushConfig | None = None  # where `endpoint` comes from
        self.feed: Feed | None = None
        self.last_error = ""
        self.last_status = 0  # of the last push that ended; 0: there was no answer
        self.under_way = 0
        self.pusher = Pusher(Pace(driver.limits, driver.random, _pause_max_s(record)), lease_s=_lease_s(record))
        self._again_at, self._again_s = float("-inf"), AGAIN_FIRST_S
        self._for_feed: list[Effect] = []
        self._serving: Feed | None = None  # where acknowledgements go, also after the feed was closed

    def __repr__(self) -> str:
        return f"<PushedSubscription {self.record.name} {self.pusher!r}>"

    def state(self) -> PushState:
        now, pace, counts = self.driver.clock.monotonic(), self.pusher.pace, self.pusher.counts
        return PushState(
            self.record.name, self.config.push_endpoint, pace.window, self.under_way,
            max(0.0, (pace.paused_until(now) or now) - now), counts["acknowledged"], counts["refused"],
            self.last_status, self.last_error,
        )  # fmt: skip

    # -- whether, and where to ---------------------------------------------------------------------------------------

    def review(self, record: Subscription, config: pubsub.PushConfig, now: float) -> None:
        """The record is this one now, and ours."""
        self.record, self.config = record, config
        self.pusher.pace.pause_max_s = _pause_max_s(record)
        if self.pusher.lease_s != _lease_s(record):
            self.pusher.lease_s = _lease_s(record)
            if self.feed is not None:
                self.feed.set_lease(int(self.pusher.lease_s))
        try:
            self._check()
        except SyncpointError as error:
            self.last_error = error.message
            self._close_feed()
            return
        if self.feed is None and now >= self._again_at:
            self._open(now)

    def _check(self) -> None:
        """Whether it may be pushed at all. Raises `SyncpointError`."""
        if self.config is not self._read:
            self.endpoint, self._read = endpoint_of(self.config.push_endpoint, self.driver.vetting), self.config
        if self.config.HasField("oidc_token") and self.driver.tokens is None:
            raise PermissionDenied("This server signs no tokens: no issuer is configured.")
        if not self.driver.may_push(self.record):
            raise PermissionDenied("The service's own identity may not read this subscription.")

    def _open(self, now: float) -> None:
        if self.pusher.stopped:  # what is under way there ends there
            counts, self.pusher = self.pusher.counts, Pusher(self.pusher.pace, lease_s=_lease_s(self.record))
            self.pusher.counts = counts
        try:
            lease_s = int(_lease_s(self.record))
            self.feed = self._serving = self.driver.open_feed(
                self.record, lease_s, self._received, self._gone, lambda: self.pusher.held
            )
        except SyncpointError as error:
            self.last_error = error.message
            self._later(now)
            return
        self._again_s, self.last_error = AGAIN_FIRST_S, ""
        self._perform(self.pusher.tick(now))

    def _gone(self) -> None:
        """The subscription was deleted or detached, or somebody reads it alone."""
        self.feed = None
        self._later(self.driver.clock.monotonic())
        self._perform(self.pusher.stop())

    def _later(self, now: float) -> None:
        self._again_at, self._again_s = now + self._again_s, min(AGAIN_MAX_S, 2 * self._again_s)

    def _close_feed(self) -> None:
        if self.feed is not None:
            self._perform(self.pusher.stop())
            self.flush()
            feed, self.feed = self.feed, None
            feed.close()

    def close(self) -> None:
        """Not pushed from here any more."""
        self._close_feed()

    # -- the machine's events and effects ----------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        if self.feed is not None and not self.pusher.at_rest:  # without one the machine would speak to nobody
            self._perform(self.pusher.tick(now))

    def _received(self, lent: Sequence[Lent]) -> None:
        self._perform(self.pusher.received(lent, self.driver.clock.monotonic()))

    def _perform(self, effects: Iterable[Effect]) -> None:
        """Pushes begin at once; the forwarder may be in the middle of lending, and learns in a turn of its own."""
        for effect in effects:
            if isinstance(effect, machine.Push):
                self.under_way += 1
                self.driver.tasks.start(self._push(self.pusher, effect))
                continue
            if not self._for_feed:
                asyncio.get_running_loop().call_soon(self.flush)
            self._for_feed.append(effect)

    def flush(self) -> None:
        """Report the forwarder. What cannot be reported is lent until its deadline, and comes again."""
        effects, self._for_feed = self._for_feed, []
        feed = self._serving
        if feed is None or not effects:
            return
        ids: dict[type[Effect], list[str]] = {}
        room: int | None = None
        for one in effects:
            if isinstance(one, machine.Room):
                room = one.messages
            elif not isinstance(one, machine.Push):
                ids.setdefault(type(one), []).extend(one.ack_ids)
        for kind, reported in (
            (machine.GivenBack, feed.give_back),
            (machine.Acknowledged, feed.acknowledge),
            (machine.Nacked, feed.refuse),
            (machine.Extended, feed.extend),
        ):
            if kind in ids:
                self._notify(partial(reported, ids[kind]))
        if room is not None:
            self._notify(partial(feed.set_room, room))

    def _notify(self, reported: Callable[[], None]) -> None:
        try:
            reported()
        except (SyncpointError, BadAckId) as error:
            log.debug("%s: the forwarder did not take it: %s", self.record.name, error)

    async def _push(self, pusher: Pusher, push: machine.Push) -> None:
        status: int | None = None
        try:
            status = await self._post(push.lent)
            if status not in machine.ACKNOWLEDGED:
                self.last_error = f"the endpoint answered {status}"
        except PushFailed as failed:
            self.last_error = str(failed)
        except SyncpointError as error:
            self.last_error = error.message
        except Exception as error:
            log.exception("%s: a push failed", self.record.name)
            self.last_error = f"{type(error).__name__}"
        finally:  # also when the process ends: who did not learn the answer does not know it
            self.under_way -= 1
            self.last_status = status or 0
            if status in machine.ACKNOWLEDGED:
                self.driver.acknowledged += 1
            else:
                self.driver.refused += 1
            self._perform(pusher.answered(push.number, status, self.driver.clock.monotonic()))

    async def _post(self, lent: Lent) -> int:
        endpoint, config = self.endpoint, self.config
        if endpoint is None:
            raise PushFailed("there is no endpoint")
        headers, body = request_of(config, self.record.name, lent)
        if self.driver.tokens is not None:
            token = self.driver.tokens.header(config)
            if token is not None:
                headers = [*headers, token]
        return await self.driver.sender.post(endpoint, headers, body, float(self.record.ack_deadline_s))


def _lease_s(record: Subscription) -> float:
    return record.ack_deadline_s + LEASE_MARGIN_S


def _pause_max_s(record: Subscription) -> float:
    """With a retry policy each message rests for itself, so that the subscription never rests for longer."""
    if record.retry is None:
        return BACKOFF_MAX_S
    return min(BACKOFF_MAX_S, max(BACKOFF_FIRST_S, float(record.retry[0])))
