"""Subscriptions that a process itself consumes: the driver of one machine for each, over feeds.

Place: under the drivers of pushes and of exports, one of each in every process that may push or export; it follows the
catalog, and `mine` lists its own subscriptions.
Promise: each subscription of ours that has a configuration of this kind is subscribed to while it exists, is not
detached, and its check allows it. What fails is a failure of that subscription alone, and its last text is kept for its
owner. Acknowledgements of one turn of the event loop go to the forwarder together.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from syncpoint.base.kernel.errors import BadAckId
from syncpoint.base.model.errors import Code, FailedPrecondition, SyncpointError
from syncpoint.base.runtime.backoff import Backoff
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.random import Random
from syncpoint.base.runtime.tasks import Tasks, stop
from syncpoint.broker.inner.feed import Feed, FeedTerms, OpenFeed
from syncpoint.broker.inner.inner_consumer import Effect, GiveUp, InnerConsumer, Send, SendOutcome, Work
from syncpoint.broker.inner.lent import Acknowledged, Extended, GivenBack, Lent, Nacked, Reported, Room
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.catalog.metadata.catalog import CatalogCopy, listening
from syncpoint.catalog.metadata.records import CatalogChange, ChangeOp, Feature, Subscription

TICK_S, REVIEW_S = 0.1, 1.0
IDS_A_TURN = 5_000  # ack ids reported at once: some milliseconds
END_S = 5.0  # for what is under way when the process ends

log = logging.getLogger(__name__)
Config = TypeVar("Config")
One = TypeVar("One", bound="InnerSubscription[Any]")


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of what was sent; see `InnerConsumer.ended`."""

    outcome: SendOutcome
    why: str = ""
    unfit: Collection[CopyId] = ()


@dataclass(frozen=True)
class ConsumingProcess:
    """What all drivers of a process consume by. `mine`: by incarnation, whether it is this process that consumes a
    subscription; `refusal`: why its messages may not go where they go, by anybody's rights, "" where they may; `name`:
    of the process."""

    copy: CatalogCopy
    open_feed: OpenFeed
    clock: Clock
    random: Random
    mine: Callable[[int], bool] = lambda incarnation: True
    refusal: Callable[[Subscription], str] = lambda record: ""
    name: str = ""


class InnerDriver(ABC, Generic[Config, One]):
    """Run the subscriptions that a process itself consumes."""

    feature: Feature
    """What subscriptions of this kind ask for."""

    def __init__(self, process: ConsumingProcess) -> None:
        self.process = process
        self.tasks = Tasks()
        self.ours: dict[int, One] = {}
        self.ending: set[One] = set()  # no longer ours, with work under way
        self._known: dict[int, Config] = {}  # all subscriptions there are
        self._listener = listening(self._changed, Subscription, self.feature, self._known)
        self._reviewed = float("-inf")
        self._started = False
        self._ticking: asyncio.Task[None] | None = None  # only while there is something to do

    @abstractmethod
    def config_of(self, record: Subscription) -> Config | None:
        """How a subscription is consumed; None: not in this way."""

    @abstractmethod
    def new(self, record: Subscription, config: Config) -> One:
        """One that is ours from now on."""

    @abstractmethod
    def share(self) -> None:
        """What all may have together is for those that have something to do; called once a second."""

    @property
    def refused_now(self) -> int:
        """Count the subscriptions that wait for a missing permission."""
        return sum(one.refused for one in self.ours.values())

    def share_memory(self, total: int, least: int, most: int) -> None:
        """Bytes that all may have together, for those that hold something."""
        busy = sum(one.machine.held > 0 for one in self.ours.values())
        for one in self.ours.values():
            one.machine.memory_max = max(least, min(most, total // max(1, busy)))

    def start(self) -> None:
        """Begin. Needs the event loop."""
        self._started = True
        for record in self.process.copy.catalog.subscriptions():
            self._note(record)
        self.process.copy.on_change.append(self._listener)

    async def close(self) -> None:
        """Take nothing more, wait a little for what is under way, and end the rest unanswered."""
        self._started = False
        if self._listener in self.process.copy.on_change:
            self.process.copy.on_change.remove(self._listener)
        if self._ticking is not None:
            await stop([self._ticking])
        for one in list(self.ours.values()):
            self._end(one)
        work = [task for task in self.tasks if not task.done()]
        if work:
            _, late = await asyncio.wait(work, timeout=END_S)
            await stop(late)
        for one in list(self.ending):
            one.flush(whole=True)
        self.ending.clear()

    def review(self) -> None:
        """Which subscriptions are ours may have changed; also called once a second."""
        self._reviewed = now = self.process.clock.monotonic()
        catalog = self.process.copy.catalog
        for incarnation, config in list(self._known.items()):
            record, one = catalog.subscription_by_incarnation(incarnation), self.ours.get(incarnation)
            if record is None or not self.process.mine(incarnation):
                if one is not None:
                    self._end(one)
                continue
            if one is None:
                one = self.ours[incarnation] = self.new(record, config)
            one.review(record, config, now)
        self.share()

    def tick(self) -> None:
        """Ten times a second."""
        now = self.process.clock.monotonic()
        if now - self._reviewed >= REVIEW_S:
            self.review()
        for one in (*self.ours.values(), *self.ending):
            one.tick(now)
        self.ending = {one for one in self.ending if one.under_way}

    async def _run(self) -> None:
        while self._known or self.ours or self.ending:
            try:
                self.tick()
            except Exception:
                log.exception("a tick of %s failed", type(self).__name__)
            await asyncio.sleep(TICK_S)

    def _changed(self, change: CatalogChange) -> None:
        record = change.record
        assert isinstance(record, Subscription)
        if change.op is ChangeOp.DELETE:
            self._forget(record.incarnation)
        else:
            self._note(record)
            self._reviewed = float("-inf")  # at the next tick
            one, config = self.ours.get(record.incarnation), self._known.get(record.incarnation)
            if one is not None and config is not None:
                one.reconfigure(record, config)

    def _note(self, record: Subscription) -> None:
        config = self.config_of(record)
        if config is None:
            self._forget(record.incarnation)
        else:
            self._known[record.incarnation] = config
            if self._started and (self._ticking is None or self._ticking.done()):
                self._ticking = self.tasks.start(self._run())

    def _forget(self, incarnation: int) -> None:
        self._known.pop(incarnation, None)
        one = self.ours.get(incarnation)
        if one is not None:
            self._end(one)

    def _end(self, one: One) -> None:
        self.ours.pop(one.record.incarnation, None)
        one.close()
        if one.under_way:
            self.ending.add(one)


class InnerSubscription(ABC, Generic[Config]):
    """One of them: its machine, its feed, and what is under way."""

    doing: str
    """What is done with its messages, for texts about failures."""

    def __init__(
        self, driver: InnerDriver[Config, Any], record: Subscription, config: Config, machine: InnerConsumer
    ) -> None:
        self.driver, self.record, self.config, self.machine = driver, record, config, machine
        self.feed: Feed | None = None
        self.last_error = ""
        self.refused = False  # somebody's right to it is missing
        self.under_way = 0
        self._again_at, self._backoff = float("-inf"), Backoff(1.0, 60.0)  # until a feed is opened again
        self._for_feed: list[Reported] = []
        self._breaks_off = False  # something is refused or given back, and the feed has not been notified of it yet
        self._reports: deque[tuple[int, Callable[[], None]]] = deque()  # how many ack ids each has
        self._serving: Feed | None = None  # where acknowledgements go, also after the feed was closed

    @property
    @abstractmethod
    def lease_s(self) -> float:
        """For how long messages are lent."""

    def free(self) -> Callable[[], int] | None:
        """Bytes that there is room for, where that is not what is outstanding."""
        return None

    def parted(self) -> None:
        """More of an ordering key comes only once all that is held of it has ended."""

    @abstractmethod
    def check(self, now: float) -> None:
        """Whether it may be consumed at all now. Raises `SyncpointError`."""

    @abstractmethod
    def send(self, effect: Send) -> Coroutine[Any, Any, Ended]:
        """Send a batch to where it goes by the configuration of now. An error that is raised means UNKNOWN."""

    async def give_up(self, effect: GiveUp) -> None:
        """Make a dead letter. Raises `SyncpointError` where there is none."""
        raise FailedPrecondition("This kind of subscription does not dead-letter messages.")

    def keep(self, why: str) -> None:
        """A message waits that could be neither sent nor given up."""
        self.last_error = why

    async def discard(self, number: int) -> None:
        """Let nothing remain of the parts of a batch that were sent."""

    # -- whether, and where from -------------------------------------------------------------------------------------

    def review(self, record: Subscription, config: Config, now: float) -> None:
        """The record is this one now, and ours."""
        self.reconfigure(record, config)
        if self.machine.lease_s != self.lease_s:
            self.machine.lease_s = self.lease_s
            if self.feed is not None:
                self.feed.set_lease(int(self.lease_s))
        try:
            self.check(now)
        except SyncpointError as error:
            self.last_error, self.refused = error.message, error.code is Code.PERMISSION_DENIED
            self._close_feed()
            return
        self.refused = False
        if self.feed is None and now >= self._again_at:
            self._open(now)

    def reconfigure(self, record: Subscription, config: Config) -> None:
        """The record is this one now. What was lent for another configuration and is not under way is given back at
        once: who changed it has the answer before anything goes where it does not go any more."""
        if config != self.config:
            self._close_feed()  # opened again by the next review
        self.record, self.config = record, config

    def _open(self, now: float) -> None:
        self.machine.resume()
        try:
            terms = FeedTerms(
                self.record,
                int(self.lease_s),
                self._received,
                self._gone,
                lambda: self.machine.held,
                self.free(),
                self.parted,
            )
            self.feed = self._serving = self.driver.process.open_feed(terms)
        except SyncpointError as error:
            self.last_error = error.message
            self._later(now)
            return
        self.last_error = ""
        self._backoff.succeeded()
        self.perform(self.machine.tick(now))

    def _gone(self) -> None:
        """The subscription was deleted or detached, or somebody reads it alone."""
        self.feed = None
        self._later(self.driver.process.clock.monotonic())
        self.perform(self.machine.stop())

    def _later(self, now: float) -> None:
        self._again_at = now + self._backoff.failed()

    def _close_feed(self) -> None:
        if self.feed is not None:
            self.perform(self.machine.stop())
            self.flush()
            feed, self.feed = self.feed, None
            feed.close()

    def close(self) -> None:
        """Not consumed from here any more."""
        self._close_feed()
        self.flush(whole=True)

    # -- the machine's events and effects ----------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        if self.feed is not None and not self.machine.at_rest:  # without one the machine would speak to nobody
            self.perform(self.machine.tick(now))

    def _received(self, lent: Sequence[Lent]) -> None:
        if self._breaks_off and self.record.ordered:  # lent before the forwarder learns what comes again: not in order
            self.perform([GivenBack(tuple(one.ack_id for one in lent))])
            return
        self.perform(self.machine.received(lent, self.driver.process.clock.monotonic()))

    def perform(self, effects: Iterable[Effect]) -> None:
        """Work begins at once; the forwarder may be in the middle of lending, and learns in a turn of its own."""
        for effect in effects:
            if isinstance(effect, Work):
                self.under_way += 1
                self.driver.tasks.start(self.begin(effect))
                continue
            self._breaks_off |= isinstance(effect, Nacked | GivenBack)
            if not self._for_feed:
                asyncio.get_running_loop().call_soon(self.flush)
            self._for_feed.append(effect)

    def begin(self, effect: Work) -> Coroutine[Any, Any, None]:
        """What an effect that is not for the feed asks for; ends with another event of the machine."""
        if isinstance(effect, Send):
            return self._send(effect.number, self.send(effect))
        return self._give_up(effect) if isinstance(effect, GiveUp) else self._discard(effect.number)

    async def _send(self, number: int, sending: Coroutine[Any, Any, Ended]) -> None:
        ended = Ended(SendOutcome.UNKNOWN)
        try:
            ended = await sending
        except SyncpointError as error:
            self.last_error = error.message
        except Exception as failure:
            log.exception("%s: %s failed", self.record.name, self.doing)
            self.last_error = f"{self.doing} failed: {type(failure).__name__}; the server's log has the reason."
        finally:  # also when the process ends: who does not know how it ended does not acknowledge
            self.under_way -= 1
            now = self.driver.process.clock.monotonic()
            self.perform(self.machine.ended(number, ended.outcome, now, why=ended.why, unfit=ended.unfit))

    async def _give_up(self, effect: GiveUp) -> None:
        kept = True
        try:
            await self.give_up(effect)
            kept = False
        except SyncpointError as error:
            self.keep(error.message)
        except Exception as failure:
            log.exception("%s: a message was not given up", self.record.name)
            self.keep(type(failure).__name__)
        finally:
            self.under_way -= 1
            self.perform(self.machine.given_up(effect.number, self.driver.process.clock.monotonic(), kept=kept))

    async def _discard(self, number: int) -> None:
        try:
            await self.discard(number)
        except Exception as error:  # whatever is left is found as what a crash left
            log.warning("%s: not discarded: %s: %s", self.record.name, type(error).__name__, error)
        finally:
            self.under_way -= 1

    def flush(self, *, whole: bool = False) -> None:
        """Report to the forwarder, about `IDS_A_TURN` ack ids now and others in turns to come; `whole`: all of it now.
        What cannot be reported is lent until its deadline, and comes again."""
        self._queue_reports()
        left = IDS_A_TURN
        while self._reports and (whole or left > 0):
            ids, report = self._reports.popleft()
            left -= ids
            self._notify(report)
        if self._reports:
            asyncio.get_running_loop().call_soon(self.flush)
        else:
            self._breaks_off = False

    def _queue_reports(self) -> None:
        effects, self._for_feed = self._for_feed, []
        feed = self._serving
        if feed is None or not effects:
            return
        ids: dict[type[Reported], list[str]] = {}
        room: int | None = None
        for one in effects:
            if isinstance(one, Room):
                room = one.messages
            else:
                ids.setdefault(type(one), []).extend(one.ack_ids)
        for kind, reported in (
            (GivenBack, feed.give_back),
            (Acknowledged, feed.acknowledge),
            (Nacked, feed.refuse),
            (Extended, feed.extend),
        ):
            found = ids.get(kind, [])
            for at in range(0, len(found), IDS_A_TURN):
                part = found[at : at + IDS_A_TURN]
                self._reports.append((len(part), partial(reported, part)))
        if room is not None:
            self._reports.append((0, partial(feed.set_room, room)))

    def _notify(self, reported: Callable[[], None]) -> None:
        try:
            reported()
        except (SyncpointError, BadAckId) as error:
            log.debug("%s: the forwarder did not take it: %s", self.record.name, error)
