"""Backlogs: how many messages each subscription has not acknowledged, and how old the oldest one is.

Place: asked by `subscription_families` before it shows anything; the numbers are those of the chains of this process.
Promise: counted in steps that hold nobody up, and so seldom that it takes at most one part in `SHARE` of a core,
however many subscriptions there are. Ages are looked up, where disks answer in time, for subscriptions that are shown
under their names and have a backlog; an age that could not be read stays unknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Final, NamedTuple

from syncpoint.base.runtime.own_time import own_time
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.publish.keep.backlog import backlog, unacknowledged
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Subscription

STEP: Final = 100  # subscriptions counted in one turn of the event loop
SHARE: Final = 250
REST_S: Final = 2.0  # between two surveys, at least
AGES_MAX: Final = 200
AGES_S: Final = 1.0  # for all of them

log = logging.getLogger(__name__)


class SubscriptionBacklog(NamedTuple):
    """Backlog of one subscription.

    `age_s`: seconds since its oldest message was published, None: unknown; `bytes`: an estimate.
    """

    messages: int
    age_s: float | None = None
    bytes: float = 0.0


class Backlogs:
    """Backlogs of all subscriptions of this process. `chains`: the publish forwarder of each open chain."""

    def __init__(self, catalog: Catalog, chains: Callable[[], Mapping[int, PublishForwarder]]) -> None:
        self.catalog, self._chains = catalog, chains
        self.known: dict[int, SubscriptionBacklog] = {}
        self.seconds = 0.0  # that the newest survey took of this thread
        self._next = float("-inf")

    @property
    def due(self) -> bool:
        """Whether it is time for another survey: `count`, then `look_up_ages`."""
        return asyncio.get_running_loop().time() >= self._next

    async def count(self) -> None:
        """Count the messages of all subscriptions."""
        found, self.seconds = await self._counted()
        self.known = {
            number: one._replace(age_s=before.age_s, bytes=before.bytes)
            if (before := self.known.get(number)) is not None
            else one
            for number, one in found.items()
        }

    async def look_up_ages(self, named: Callable[[int], bool]) -> None:
        """Read the oldest messages of those that are `named` and have some, those with the most first."""
        known = self.known
        wanted = sorted((one for one in known if named(one)), key=lambda one: -known[one].messages)[:AGES_MAX]
        try:
            async with asyncio.timeout(AGES_S):
                for number in wanted:
                    record = self.catalog.subscription_by_incarnation(number)
                    if record is not None:
                        known[number] = await own_time(self._aged(record, known[number]), self._spent)
        except TimeoutError:
            log.info("the oldest messages of some subscriptions were not read in time for the metrics")
        self._next = asyncio.get_running_loop().time() + max(REST_S, SHARE * self.seconds)

    def _spent(self, seconds: float) -> None:
        self.seconds += seconds

    async def _counted(self) -> tuple[dict[int, SubscriptionBacklog], float]:
        found: dict[int, SubscriptionBacklog] = {}
        forwarders, took, began = list(self._chains().values()), 0.0, perf_counter()
        for number, record in enumerate(list(self.catalog.subscriptions())):
            if number % STEP == STEP - 1:
                took += perf_counter() - began
                await asyncio.sleep(0)
                began = perf_counter()
            messages = sum(unacknowledged(one, record) for one in forwarders)
            if messages:
                found[record.incarnation] = SubscriptionBacklog(messages)
        return found, took + perf_counter() - began

    async def _aged(self, record: Subscription, known: SubscriptionBacklog) -> SubscriptionBacklog:
        age_s, nbytes = None, 0.0
        for forwarder in self._chains().values():
            try:
                one = await backlog(forwarder, record)
            except TimeoutError:
                raise
            except Exception as error:  # any error of storage; `disks list` and the families of disks show it, too
                log.info("the oldest message of %s cannot be read: %s", record.name, error)
                continue
            if one.messages:
                age_s = max(age_s or 0.0, one.oldest_age_s)
                nbytes += one.messages * one.mean_bytes
        return known._replace(age_s=age_s, bytes=nbytes)
