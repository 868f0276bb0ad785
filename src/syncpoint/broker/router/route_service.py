"""What a router answers to proxies: internal Router Route and Watch.

Place: beside `router`, which assigns what a proxy asks for and nobody has assigned yet.
Promise: a list is made of the metadata at that moment. A watcher learns of every new assignment and is asked
to ask again when anything else changes that lists depend on; one that reads too slowly is asked to ask again, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from syncpoint.base.model.cluster import PROXY, Member
from syncpoint.broker.router.candidate_lists import CandidateLists, Nearest
from syncpoint.broker.router.cluster_inputs import ClusterInputs
from syncpoint.broker.router.cluster_state import ClusterState
from syncpoint.broker.router.distance import Distances
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods, Streaming, StreamingCall

NAMES_MAX = 500  # names in one message to a watcher; where more have changed it asks for what it needs
NOTIFY_S = 0.1
_TURN = 100  # lists made in one turn of the loop


class RouteService:
    """Answers for one router. `ensure`: assigns topics and subscriptions that are assigned to nothing."""

    def __init__(
        self,
        inputs: ClusterInputs,
        distances: Distances,
        ensure: Callable[[Sequence[int], Sequence[int]], Awaitable[None]],
    ) -> None:
        self._inputs, self._distances, self._ensure = inputs, distances, ensure
        self._lists: CandidateLists | None = None
        self._watchers: dict[StreamingCall, Member] = {}
        self._topics: set[int] = set()
        self._subscriptions: set[int] = set()
        self._anything = False
        self._timer: asyncio.TimerHandle | None = None
        self.answered = 0

    def start(self) -> None:
        """Listen for changes. The inputs have been started."""
        self._inputs.on_cluster_state.append(self._ask_again)
        self._distances.on_change.append(self._ask_again)
        self._inputs.topics.listeners.append(self._topics_assigned)
        self._inputs.subscriptions.listeners.append(self._subscriptions_assigned)

    def stop(self) -> None:
        """End all watches: their proxies go to other routers."""
        self._inputs.on_cluster_state.remove(self._ask_again)
        self._distances.on_change.remove(self._ask_again)
        self._inputs.topics.listeners.remove(self._topics_assigned)
        self._inputs.subscriptions.listeners.remove(self._subscriptions_assigned)
        if self._timer is not None:
            self._timer.cancel()
        for stream in list(self._watchers):
            self._end(stream)

    def methods(self) -> Methods:
        """For the method table of the process."""
        return {**served({methods.ROUTER.Route: self._route}), methods.ROUTER.Watch.encode(): Streaming(self._watch)}

    @property
    def watchers(self) -> int:
        """Proxies that learn of changes from this router."""
        return len(self._watchers)

    # -- lists -------------------------------------------------------------------------------------------------------

    async def _route(self, asked: Any) -> Any:
        await self._ensure(asked.topics, asked.subscriptions)
        client = self._client(asked.proxy, asked.region)
        self.answered += 1
        response = internal.RouteResponse(revision=self._revision)
        for count, (topics, subscriptions) in enumerate(_turns(asked.topics, asked.subscriptions)):
            if count:
                await asyncio.sleep(0)
            self._fill(response, client, topics, subscriptions)
        return response

    def _fill(self, response: Any, client: Member, topics: Iterable[int], subscriptions: Iterable[int]) -> None:
        """Lists for what exists; the rest is left out."""
        inputs, lists, nearest = self._inputs, self._current, self._nearest(client)
        for number in topics:
            topic = inputs.catalog.topic_by_incarnation(number)
            if topic is not None:
                seen = inputs.topics.items.get(str(number))
                found = lists.topic(topic, None if seen is None else seen.value, client, nearest)
                response.topics.add(
                    topic=number,
                    epoch=found.epoch,
                    chains=found.chains,
                    nearest=found.nearest,
                    alternatives=found.alternatives,
                )
        for number in subscriptions:
            record = inputs.catalog.subscription_by_incarnation(number)
            if record is not None:
                assigned = inputs.subscriptions.items.get(str(number))
                given = lists.subscription(
                    number,
                    inputs.catalog.topic_of(record),
                    None if assigned is None else assigned.value,
                    client,
                    nearest,
                )
                response.subscriptions.add(
                    subscription=number, epoch=given.epoch, members=given.members, others=given.others
                )

    @property
    def _current(self) -> CandidateLists:
        cluster_state: ClusterState = self._inputs.cluster_state
        if self._lists is None or self._lists.cluster_state is not cluster_state:
            self._lists = CandidateLists(cluster_state)
        return self._lists

    def _client(self, name: str, region: str) -> Member:
        found = self._inputs.cluster_state.members.get(name)
        return found if found is not None and PROXY in found.roles else Member(name, (PROXY,), "", 0, region)

    def _nearest(self, client: Member) -> Nearest:
        """Regions as the client sees them: by its own measurements, else by those of somebody beside it."""
        measured = self._inputs.distances_from(client.region, client.name)
        if measured is None and client.region == self._distances.here:
            return self._distances.order
        known = measured or {}
        far = float("inf")

        def nearest(regions: Iterable[str]) -> list[str]:
            return sorted(regions, key=lambda one: (known.get(one, far), one != client.region, one))

        return nearest

    @property
    def _revision(self) -> int:
        return max(self._inputs.topics.revision, self._inputs.subscriptions.revision)

    # -- watching ----------------------------------------------------------------------------------------------------

    def _watch(self, stream: StreamingCall) -> None:
        def begin(request: bytes) -> None:
            asked = internal.WatchRequest.FromString(request)
            self._watchers[stream] = self._client(asked.proxy, asked.region)

        stream.on_message = begin
        stream.on_cancel = lambda: self._forget(stream)
        stream.on_drain = lambda: self._end(stream)

    def _end(self, stream: StreamingCall) -> None:
        self._forget(stream)
        stream.finish()

    def _forget(self, stream: StreamingCall) -> None:
        self._watchers.pop(stream, None)

    def _topics_assigned(self, keys: set[str]) -> None:
        self._topics.update(map(int, keys))
        self._soon()

    def _subscriptions_assigned(self, keys: set[str]) -> None:
        self._subscriptions.update(map(int, keys))
        self._soon()

    def _ask_again(self) -> None:
        self._anything = True
        self._soon()

    def _soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(NOTIFY_S, self._notify)

    def _notify(self) -> None:
        topics, subscriptions, anything = sorted(self._topics), sorted(self._subscriptions), self._anything
        self._topics, self._subscriptions, self._anything, self._timer = set(), set(), False, None
        anything |= len(topics) + len(subscriptions) > NAMES_MAX
        for stream, client in list(self._watchers.items()):
            if not stream.writable:
                stream.on_writable = partial(self._send, stream, None)
                continue
            response = internal.RouteResponse(revision=self._revision)
            if not anything:
                self._fill(response, client, topics, subscriptions)
                if not response.topics and not response.subscriptions:
                    continue  # deleted ones
            self._send(stream, response)

    def _send(self, stream: StreamingCall, response: Any) -> None:
        """Send lists or, with None, the word that anything may have changed."""
        if stream in self._watchers:
            message = internal.RouteResponse(revision=self._revision) if response is None else response
            stream.send(message.SerializeToString())


def _turns(topics: Sequence[int], subscriptions: Sequence[int]) -> list[tuple[Sequence[int], Sequence[int]]]:
    size = max(len(topics), len(subscriptions), 1)
    return [(topics[at : at + _TURN], subscriptions[at : at + _TURN]) for at in range(0, size, _TURN)]
