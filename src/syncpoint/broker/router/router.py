"""A router: the driver of planner and answers over the shared metadata.

Place: one of the roles of a process. Any number run; each answers proxies, and the first by name of those that live
writes the plans. Nothing is kept anywhere but in the metadata, and nothing that is connected needs a router.
Promise: an assignment is written by compare-and-set on what it was planned from, so routers that disagree about who is
first do no harm. What a proxy asks for is assigned at once by whichever router it asks. Assignments of what was deleted
are removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence, Set
from typing import Any

from syncpoint.base.model.cluster import ROUTER, Member
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.random import Random
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.broker.router.assignment import SubscriptionAssignment, TopicAssignment
from syncpoint.broker.router.cluster_inputs import ClusterInputs
from syncpoint.broker.router.distance import Distances, Ping, Prober
from syncpoint.broker.router.planner import Changes, Planner, PlannerSettings
from syncpoint.broker.router.route_service import RouteService
from syncpoint.catalog.metadata.catalog import CatalogCopy
from syncpoint.catalog.metadata.contract import Delete, Put, StoreError, StoreUnavailable, absent, unchanged
from syncpoint.catalog.metadata.layout import ASSIGNED_SUBSCRIPTIONS, ASSIGNED_TOPICS, HEAD, Prefix
from syncpoint.catalog.metadata.store_client import SharedStore
from syncpoint.catalog.metadata.view import ClusterView, View
from syncpoint.wire.transport.calls import Methods

PERIOD_S = 4.0  # between plans when nothing happens but load
PLANNING_MAX = 20.0  # a router plans for a twentieth of its time at most, unless something happens
GATHER_S = 0.25  # what happens together is planned for together
SWEEP_S = 60.0
SEEN_S = 1.0
BATCH = 50
_RETRY_S = 0.5

log = logging.getLogger(__name__)


class Router:
    """One router. Its owner has started `cluster` (a `ClusterView`) and `catalog` (a `SharedCatalog`), and closes them.

    `ping` returns whether an address answered.
    """

    def __init__(
        self,
        store: SharedStore,
        cluster: ClusterView,
        catalog: CatalogCopy,
        me: Member,
        ping: Ping,
        clock: Clock,
        random: Random,
        *,
        settings: PlannerSettings | None = None,
        spanning: Set[str] = frozenset(),
    ) -> None:
        self._store, self._clock, self.me = store, clock, me
        self.inputs = ClusterInputs(store, cluster, catalog, spanning)
        self.planner = Planner(settings)
        self.distances = Distances(me.region)
        self.prober = Prober(self.distances, ping, lambda: cluster_members(cluster, me), clock, random)
        self.answers = RouteService(self.inputs, self.distances, self._ensure)
        self._wake = asyncio.Event()
        self._whole = True  # plan for everything, not only for what is new
        self._ensuring: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._tasks = Tasks()
        self._swept = clock.monotonic()
        self.written = self.conflicts = 0

    def methods(self) -> Methods:
        """For the method table of the process."""
        return self.answers.methods()

    async def start(self) -> None:
        """Begin to answer and to plan. Raises `StoreUnavailable`."""
        await self.inputs.start()
        self.answers.start()
        self.inputs.on_cluster_state.append(self._cluster_changed)
        self.inputs.on_owners.append(self._cluster_changed)
        self.inputs.shared_catalog.on_change.append(self._catalog_changed)
        self.prober.start()
        self._tasks.start(self._run())

    async def stop(self) -> None:
        """Stop planning; proxies that watch go elsewhere. Nothing happens where it was not started."""
        if not self._tasks:
            return
        self.inputs.shared_catalog.on_change.remove(self._catalog_changed)
        self.answers.stop()
        await self._tasks.stop()
        await self.prober.stop()
        await self.inputs.close()

    @property
    def leads(self) -> bool:
        """Whether this router writes the plans: the first living one that does not drain."""
        cluster_state = self.inputs.cluster_state
        routers = [member for member in cluster_state.with_role(ROUTER) if cluster_state.takes_new(member)]
        return bool(routers) and (routers[0].name, routers[0].incarnation) == (self.me.name, self.me.incarnation)

    def status(self) -> dict[str, Any]:
        """For operators."""
        return {
            "leads": self.leads,
            "topics": len(self.inputs.topics.items),
            "subscriptions": len(self.inputs.subscriptions.items),
            "watchers": self.answers.watchers,
            "answered": self.answers.answered,
            "written": self.written,
            "conflicts": self.conflicts,
            "distances": self.distances.known(),
        }

    # -- planning ----------------------------------------------------------------------------------------------------

    def _catalog_changed(self, change: object) -> None:
        self._wake.set()

    def _cluster_changed(self) -> None:
        self._whole = True
        self._wake.set()

    async def _run(self) -> None:
        due = self._clock.monotonic()
        while True:
            now = self._clock.monotonic()
            try:
                self.planner.observe(now, self.inputs.loads())
                if self.leads:
                    whole = self._whole or (now >= due and not self.planner.at_rest(now))
                    self._whole = False
                    await self._plan(only_new=not whole)
                    if whole:
                        # With very many topics a plan takes a second: it is made more rarely then.
                        due = now + max(PERIOD_S, PLANNING_MAX * (self._clock.monotonic() - now))
                    if now - self._swept >= SWEEP_S:
                        await self._sweep()
            except StoreError as error:
                log.info("the router cannot write its plans yet: %s", error)
                self._whole = True
                await asyncio.sleep(_RETRY_S)
            except Exception:
                log.exception("planning failed")
            try:
                async with asyncio.timeout(PERIOD_S):
                    await self._wake.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(GATHER_S)
            self._wake.clear()

    async def _ensure(self, topics: Sequence[int], subscriptions: Sequence[int]) -> None:
        """Assign what exists and is assigned to nothing. Where that is not possible now it stays so."""
        inputs = self.inputs
        if not (
            any(
                str(number) not in inputs.topics.items and inputs.catalog.topic_by_incarnation(number) is not None
                for number in topics
            )
            or any(
                str(number) not in inputs.subscriptions.items
                and inputs.catalog.subscription_by_incarnation(number) is not None
                for number in subscriptions
            )
        ):
            return
        if self._ensuring is None or self._ensuring.done():
            self._ensuring = self._tasks.start(self._plan_new())
        await asyncio.shield(self._ensuring)

    async def _plan_new(self) -> None:
        await asyncio.sleep(0)  # requests of this turn are batched
        try:
            await self._plan(only_new=True)
        except StoreError as error:
            log.info("new assignments cannot be written yet: %s", error)

    async def _plan(self, *, only_new: bool) -> None:
        async with self._writing:
            changes = self.planner.plan(
                self.inputs.cluster_state, self.inputs.state(), self._clock.monotonic(), only_new=only_new
            )
            await self._write(changes)

    # -- writing -----------------------------------------------------------------------------------------------------

    async def _write(self, changes: Changes) -> None:
        made: tuple[tuple[Prefix, Mapping[int, TopicAssignment | SubscriptionAssignment], View[Any]], ...] = (
            (ASSIGNED_TOPICS, changes.topics, self.inputs.topics),
            (ASSIGNED_SUBSCRIPTIONS, changes.subscriptions, self.inputs.subscriptions),
        )
        for prefix, assigned, view in made:
            puts = [(Put(prefix.key(number), one.encode()), _seen(view, number)) for number, one in assigned.items()]
            await self._write_all(puts, view)

    async def _write_all(self, waiting: Sequence[tuple[Put, int]], view: View[Any]) -> None:
        """Write each as long as nobody else has since the revision beside it, and let the view catch up, so that the
        next plan starts from what is written."""
        newest = 0
        for begin in range(0, len(waiting), BATCH):
            part = waiting[begin : begin + BATCH]
            written = await self._write_part(part)
            if not written and len(part) > 1:  # one of them was changed by another router: each by itself
                written = max([await self._write_part([one]) for one in part])
            newest = max(newest, written)
        end = self._clock.monotonic() + SEEN_S
        while view.revision < newest and self._clock.monotonic() < end:
            await asyncio.sleep(0.01)

    async def _write_part(self, part: Sequence[tuple[Put, int]]) -> int:
        """The revision they were written at; 0: they were not."""
        compares = [unchanged(put.key, seen) if seen else absent(put.key) for put, seen in part]
        result = await self._store.txn(compares, [put for put, _ in part])
        if result.ok:
            self.written += len(part)
            return result.revision
        self.conflicts += len(part) == 1
        return 0

    async def _sweep(self) -> None:
        """Remove assignments of what was deleted: what is absent at a revision of the catalog that was read after the
        assignment was seen."""
        self._swept = self._clock.monotonic()
        inputs, catalog = self.inputs, self.inputs.catalog
        assigned = [
            (kind.key(key), find, int(key), seen.revision)
            for kind, find, items in (
                (ASSIGNED_TOPICS, catalog.topic_by_incarnation, inputs.topics.items),
                (ASSIGNED_SUBSCRIPTIONS, catalog.subscription_by_incarnation, inputs.subscriptions.items),
            )
            for key, seen in items.items()
        ]
        head = await self._store.get(HEAD)
        if head is None:
            return
        try:
            async with asyncio.timeout(PERIOD_S):
                await self.inputs.shared_catalog.at(int(head.value.split()[0]))
        except TimeoutError:
            raise StoreUnavailable("the catalog here lags behind") from None
        for key, find, number, revision in assigned:
            if find(number) is None:
                await self._store.txn([unchanged(key, revision)], [Delete(key)])


def cluster_members(cluster: ClusterView, me: Member) -> list[Member]:
    """Everybody else, to be pinged."""
    return [seen.value for name, seen in cluster.members.items.items() if name != me.name]


def _seen(view: View[Any], number: int) -> int:
    found = view.items.get(str(number))
    return 0 if found is None else found.revision
