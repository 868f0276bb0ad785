"""EpochWriter in a cluster: every query is sent to the chain where it is at home.

Place: beside the other methods for clients; the chain's owner does the work (`pipeline.mounting`).
Promise: a query and its link have one home, chosen by the process that first learns of them and written in the metadata
before anything is staged; it goes where the chain goes. Messages of a topic are staged only where that topic may be
stored. Frames pass as they came, or with their data sealed; nothing of a stage is kept here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from syncpoint.base.model.names import parse_topic
from syncpoint.base.runtime.tasks import stop
from syncpoint.broker.pipeline.epoch_commits import check_name
from syncpoint.broker.pipeline.homes import Homes, link_key, query_key
from syncpoint.broker.router import rendezvous
from syncpoint.broker.router.location import check_passing, durability_class
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Topic
from syncpoint.front.proxy.pipeline_chains import ChainCalls, RelayedStream, Relays, deadline_of
from syncpoint.front.proxy.route_cache import RouteCache
from syncpoint.front.proxy.sealing import Sealer
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from syncpoint.wire.protobuf.serving import parsed
from syncpoint.wire.transport.calls import Call, Methods
from syncpoint.wire.transport.network import AnyStream
from syncpoint.wire.transport.tasks import unary_async

WRITER = methods.EPOCH_WRITER
NO_TOPIC = Topic(0, "projects/-/topics/-")  # of an epoch that has none
RACES_MAX = 10


class ClusterWriter:
    """The service. `sealer`: seals data on its way in."""

    def __init__(
        self,
        catalog: Catalog,
        homes: Homes,
        chains: ChainCalls,
        relays: Relays,
        routes: RouteCache,
        refresh: Callable[[], Awaitable[None]],
        *,
        sealer: Sealer | None = None,
    ) -> None:
        self.catalog, self.homes, self.chains, self.relays, self.routes = catalog, homes, chains, relays, routes
        self._refresh, self._sealer = refresh, sealer

    def methods(self) -> Methods:
        """The method table of this service."""
        unary = {
            WRITER.CommitEpoch: self._commit_epoch,
            WRITER.AbortEpoch: self._abort_epoch,
            WRITER.ListLinks: self._list_links,
            WRITER.AcceptGap: self._accept_gap,
            WRITER.MapOffsets: self._map_offsets,
        }
        table = {path.encode(): unary_async(function) for path, function in unary.items()}
        return {**table, WRITER.Stage.encode(): self.relays.method(self._stage)}

    # -- staging -----------------------------------------------------------------------------------------------------

    async def _stage(self, client: RelayedStream) -> None:
        first = await client.receive()
        asked = parsed(pipeline.StageRequest, first or b"")
        if first is None or not asked.HasField("header"):
            raise InvalidArgument("header", "the first message must be the header")
        header, deadline = asked.header, deadline_of(client.stream)
        chain = await self._known_home(header.run.query, header.link)
        frames: list[bytes] = []
        if chain is None:  # the first topic decides where the query is at home
            frame = await client.receive()
            topic = NO_TOPIC
            if frame is not None:
                frames.append(frame)
                topic = await self._topic_of(_staged(frame)) or NO_TOPIC
            chain = await self._home(header.run.query, header.link, topic, deadline)
        owner = await self.chains.owner(chain, deadline)
        upstream = self.chains.stream(chain, owner, WRITER.Stage)
        try:
            answer = await self.chains.while_owner(chain, owner, self._relay(client, upstream, chain, [first, *frames]))
        finally:
            self.chains.close(owner, upstream)
        await client.send(answer)

    async def _relay(self, client: RelayedStream, upstream: AnyStream, chain: int, begun: list[bytes]) -> bytes:
        """Pass everything on; returns the answer. The owner may refuse at any time."""

        async def send() -> None:
            for message in begun:
                await self._pass(message, upstream, chain)
            while (message_now := await client.receive()) is not None:
                await self._pass(message_now, upstream, chain)
            await upstream.end()

        sending, answering = asyncio.ensure_future(send()), asyncio.ensure_future(upstream.receive())
        try:
            await asyncio.wait((sending, answering), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                await sending
            answer = await answering
        finally:
            await stop((sending, answering))
        if answer is None:
            raise Unavailable("The stage may or may not be stored. Stage again.")
        return answer

    async def _pass(self, message: bytes, upstream: AnyStream, chain: int) -> None:
        asked = _staged(message)
        topic = await self._topic_of(asked)
        if topic is not None and not self.routes.allowed(chain, topic):
            raise FailedPrecondition(
                f"The query writes to chain {chain}, where messages of {topic.name} (durability class"
                f" {durability_class(topic)}) may not be stored. Use a query of its own for each durability class and"
                " region."
            )
        if topic is not None and self._sealer is not None:
            asked.frame.batch = await self._sealer.seal_batch(topic.incarnation, asked.frame.batch, asked.frame.columns)
            asked.frame.topic_incarnation = topic.incarnation
            message = asked.SerializeToString()
        await upstream.send(message)

    async def _topic_of(self, asked: pipeline.StageRequest) -> Topic | None:
        """The topic of a frame; None: it is none. Raises `NotFound`, `FailedPrecondition`."""
        return await self._named(asked.frame.topic) if asked.HasField("frame") else None

    async def _named(self, name: str) -> Topic:
        """The topic of that name. Raises `NotFound`, `FailedPrecondition`."""
        topic = self.catalog.topic(name)
        if topic is None:
            checked = parse_topic(name)
            await self._refresh()
            topic = self.catalog.topic(name)
            if topic is None:
                raise NotFound(checked)
        check_passing(topic, self.routes.region)
        return topic

    # -- homes -------------------------------------------------------------------------------------------------------

    async def _known_home(self, query: str, link: str) -> int | None:
        """Where a query and its link are at home; None: one of them has none yet."""
        keys = _keys(query, link)
        found = [await self.homes.chain_at(key) for key in keys]
        _check_same(query, link, found)
        return None if None in found else found[0]

    async def _home(self, query: str, link: str, topic: Topic, deadline: float) -> int:
        """Return the home chain of a query and its link, claiming one if neither has any. A known link decides."""
        keys = _keys(query, link)
        for _ in range(RACES_MAX):
            found = [await self.homes.chain_at(key) for key in keys]
            _check_same(query, link, found)
            missing = [key for key, chain in zip(keys, found, strict=True) if chain is None]
            chain = next((one for one in found if one is not None), None)
            if chain is not None and not missing:
                return chain
            if chain is None:
                chain = await self._chosen(link or query, topic, deadline)
            if await self.homes.place(missing, chain):
                return chain
        raise Unavailable(f"Query {query} cannot be assigned to a chain now. Try again.")

    async def _chosen(self, name: str, topic: Topic, deadline: float) -> int:
        """A chain that may store the topic: of the nearest of those that are open, the name's first choice."""
        while not (candidates := self._candidates(topic)):
            await self.chains.change(deadline, f"a chain of the durability class {durability_class(topic)}")
        return int(rendezvous.pick(name.encode(), [str(one) for one in candidates]))

    def _candidates(self, topic: Topic) -> list[int]:
        cluster_state = self.routes.lists.cluster_state
        usable = {
            number: record
            for number, record in cluster_state.chains.items()
            if (owner := cluster_state.owner(number)) is not None
            and cluster_state.takes_new(owner)
            and self.routes.allowed(number, topic)
        }
        near = [number for number, record in usable.items() if record.region == self.routes.region]
        return near or list(usable)

    # -- unary -------------------------------------------------------------------------------------------------------

    async def _commit_epoch(self, call: Call, request: bytes) -> bytes:
        asked = parsed(pipeline.CommitEpochRequest, request)
        deadline = deadline_of(call)
        chain = await self._known_home(asked.run.query, asked.link)
        if chain is None:
            topic = await self._named(asked.topic) if asked.topic else NO_TOPIC
            chain = await self._home(asked.run.query, asked.link, topic, deadline)
        return await self.chains.call(chain, WRITER.CommitEpoch, request, deadline)

    async def _abort_epoch(self, call: Call, request: bytes) -> bytes:
        asked = parsed(pipeline.AbortEpochRequest, request)
        chain = await self._known_home(asked.run.query, "")
        if chain is None:
            return b""  # nothing of it was ever staged
        return await self.chains.call(chain, WRITER.AbortEpoch, request, deadline_of(call))

    async def _list_links(self, call: Call, request: bytes) -> bytes:
        asked = parsed(pipeline.ListLinksRequest, request)
        if asked.name:
            home = await self.homes.chain_at(link_key(asked.name))
            numbers = [] if home is None else [home]
        else:
            numbers = await self.homes.link_chains()
        path, deadline = WRITER.ListLinks, deadline_of(call)
        answers = [await self.chains.call(one, path, request, deadline) for one in numbers]
        links = [link for answer in answers for link in pipeline.ListLinksResponse.FromString(answer).links]
        links.sort(key=lambda link: link.name)
        return pipeline.ListLinksResponse(links=links).SerializeToString()

    async def _accept_gap(self, call: Call, request: bytes) -> bytes:
        name = parsed(pipeline.AcceptGapRequest, request).link
        chain = await self._link_home(name)
        return await self.chains.call(chain, WRITER.AcceptGap, request, deadline_of(call), again=False)

    async def _map_offsets(self, call: Call, request: bytes) -> bytes:
        name = parsed(pipeline.MapOffsetsRequest, request).link
        chain = await self._link_home(name)
        return await self.chains.call(chain, WRITER.MapOffsets, request, deadline_of(call))

    async def _link_home(self, link: str) -> int:
        chain = await self.homes.chain_at(link_key(link))
        if chain is None:
            raise NotFound(link, f"Link not found (resource={link}).")
        return chain


def _staged(message: bytes) -> pipeline.StageRequest:
    return parsed(pipeline.StageRequest, message)


def _keys(query: str, link: str) -> list[str]:
    """The metadata's keys of a query and its link. Raises `InvalidArgument`."""
    check_name("run.query", query)
    if not link:
        return [query_key(query)]
    check_name("link", link)
    return [query_key(query), link_key(link)]


def _check_same(query: str, link: str, found: list[Any]) -> None:
    known = [one for one in found if one is not None]
    if len(set(known)) > 1:
        raise FailedPrecondition(
            f"Query {query} writes to chain {known[0]} and link {link} to chain {known[1]}; an epoch must be in one"
            " chain. Restart the query with a new checkpoint, or rename the link."
        )
