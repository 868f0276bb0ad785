"""LogReader in a cluster: positions gathered from all chains of a topic, ranges relayed from the chain that has them.

Place: beside the other methods for clients; each chain answers for its own sources (`pipeline.mounting`).
Promise: positions are complete, or the call fails: they hold every source of every chain that was registered for the
topic when the call began. What is read comes from the owner of the chain then, with the offsets it always had. Data
that was sealed is opened here, or the read fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from syncpoint.base.model.errors import Aborted, InvalidArgument, OutOfRange, Unavailable
from syncpoint.base.runtime.tasks import all_of
from syncpoint.broker.pipeline import columns, reading_positions
from syncpoint.broker.pipeline.reading import FRAME_BYTES, FRAME_BYTES_MAX
from syncpoint.broker.router.location import check_passing
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Topic
from syncpoint.catalog.metadata.store_client import SharedStore, answered
from syncpoint.cluster.control.registration import registered_chains
from syncpoint.front.proxy.exclusive_readers import ClusterReaders
from syncpoint.front.proxy.pipeline_chains import ChainCalls, RelayedStream, Relays, deadline_of
from syncpoint.front.proxy.pipeline_cursors import ClusterCursors
from syncpoint.front.proxy.sealing import Sealer
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from syncpoint.wire.protobuf.serving import parsed
from syncpoint.wire.transport.calls import Call, Methods
from syncpoint.wire.transport.tasks import unary_async

READER = methods.LOG_READER
RELAYED_BYTES_MAX = 8 << 20  # of a frame; one message more must still fit into what the transport takes
AGREE_TRIES = 5
AGREE_PAUSE_S = 0.1


class ClusterReader:
    """The service. `region`: that of this proxy; `sealer`: opens data that was sealed."""

    def __init__(
        self,
        catalog: Catalog,
        store: SharedStore,
        chains: ChainCalls,
        relays: Relays,
        cursors: ClusterCursors,
        readers: ClusterReaders,
        refresh: Callable[[], Awaitable[None]],
        *,
        universe: int,
        region: str,
        sealer: Sealer | None = None,
    ) -> None:
        self.catalog, self.chains, self.relays, self.cursors = catalog, chains, relays, cursors
        self._store, self._readers, self._refresh = store, readers, refresh
        self._universe, self._region, self._sealer = universe, region, sealer

    def methods(self) -> Methods:
        """The method table of this service."""
        unary = {
            READER.GetPositions: self._get_positions,
            READER.ListCursors: self._list_cursors,
            READER.DeleteCursor: self._delete_cursor,
            READER.ReleaseSubscription: self._release_subscription,
        }
        table = {path.encode(): unary_async(function) for path, function in unary.items()}
        return {**table, READER.ReadRange.encode(): self.relays.method(self._read_range)}

    # -- positions ---------------------------------------------------------------------------------------------------

    async def _get_positions(self, call: Call, request: bytes) -> bytes:
        encoded: bytes
        asked = parsed(pipeline.GetPositionsRequest, request)
        topic = await self._topic_of(asked)
        asked.topic_incarnation = topic.incarnation
        deadline = deadline_of(call)
        if asked.subscription and asked.exclusive_reader:
            encoded = (await self._alone(topic, asked, deadline)).SerializeToString()
            return encoded
        if asked.HasField("cursor"):
            await self.cursors.enter(topic, asked.cursor)
            await self._place(topic, asked, deadline)
        encoded = (await self._gathered(topic, asked, deadline)).SerializeToString()
        return encoded

    async def _alone(self, topic: Topic, asked: pipeline.GetPositionsRequest, deadline: float) -> pipeline.Positions:
        """Positions for a reader that has the subscription to itself."""
        await self._place(topic, asked, deadline)
        for left in reversed(range(AGREE_TRIES)):
            record = reading_positions.subscription_named(self.catalog, asked.subscription)
            try:
                async with self._readers.held(record, asked.exclusive_reader, asked.exclusive_seconds):
                    return await self._gathered(topic, asked, deadline)
            except Aborted:
                if not left:
                    raise
            await self._refresh()  # what is known of the hold here is old
        raise AssertionError("the last try returns or raises")

    async def _gathered(self, topic: Topic, asked: pipeline.GetPositionsRequest, deadline: float) -> pipeline.Positions:
        """What all chains say, as one, of one seek. Raises `Unavailable`."""
        for left in reversed(range(AGREE_TRIES)):
            answers = await self._ask(topic, asked, deadline)
            # A chain that holds nothing of the topic has no opinion.
            generations = {answer.generation for answer in answers.values() if answer.sources}
            if len(generations) < 2:
                return self._joined(topic, answers, max(generations, default=0))
            if left:
                await asyncio.sleep(AGREE_PAUSE_S)
        raise Unavailable(f"The subscription {asked.subscription} is being reset by a seek. Try again.")

    async def _topic_of(self, asked: Any) -> Topic:
        """The topic that is meant; what a request without any chain to ask would be refused for is found here."""
        if bool(asked.topic) == bool(asked.subscription):
            raise InvalidArgument("topic", "exactly one of topic and subscription must be set")
        if asked.subscription and self.catalog.subscription(asked.subscription) is None:
            await self._refresh()
        name = asked.topic
        if asked.subscription and asked.HasField("cursor"):
            raise InvalidArgument(
                "cursor", "must not be set for a subscription, which keeps its unacknowledged messages"
            )
        if asked.subscription:
            name = reading_positions.subscription_named(self.catalog, asked.subscription).topic_name
            if asked.processed and not asked.exclusive_reader:
                raise InvalidArgument("processed", "may only be set together with exclusive_reader")
        topic = await self._topic(name, asked.topic_incarnation)
        if asked.WhichOneof("starting") == "snapshot":
            if self.catalog.snapshot(asked.snapshot) is None:
                await self._refresh()
            reading_positions.snapshot_named(self.catalog, asked.snapshot, topic.incarnation)
        return topic

    async def _topic(self, name: str, incarnation: int) -> Topic:
        known = self.catalog.topic(name)
        if known is None or (incarnation and known.incarnation != incarnation):
            await self._refresh()
        topic = reading_positions.topic_named(self.catalog, name, incarnation)
        check_passing(topic, self._region)
        return topic

    async def _ask(self, topic: Topic, asked: Any, deadline: float) -> dict[int, Any]:
        """What every chain of the topic answers, by number; all of them, or an error."""
        # What was published before this call is in chains that are registered by now.
        numbers = await answered(registered_chains(self._store, topic.incarnation))
        processed = list(asked.processed)
        calls = []
        for number in numbers:
            del asked.processed[:]
            asked.processed.extend(one for one in processed if one.chain == number)
            calls.append(self.chains.call(number, READER.GetPositions, asked.SerializeToString(), deadline))
        del asked.processed[:]
        asked.processed.extend(processed)
        found = await all_of(calls)
        return {number: pipeline.Positions.FromString(one) for number, one in zip(numbers, found, strict=True)}

    async def _place(self, topic: Topic, asked: Any, deadline: float) -> None:
        """Fill in the chains of the sources in the processed positions, if they still exist."""
        if all(one.chain for one in asked.processed):
            return
        plain = pipeline.GetPositionsRequest(topic=topic.name, topic_incarnation=topic.incarnation)
        answers = await self._ask(topic, plain, deadline)
        chains = {one.source: number for number, answer in answers.items() for one in answer.sources}
        for one in asked.processed:
            one.chain = one.chain or chains.get(one.source, 0)

    def _joined(self, topic: Topic, answers: dict[int, Any], generation: int) -> pipeline.Positions:
        joined = pipeline.Positions(
            topic=topic.name,
            topic_incarnation=topic.incarnation,
            universe=f"{self._universe:x}",
            generation=generation,
        )
        for number, answer in answers.items():
            for one in answer.lost:
                joined.lost.add(source=one.source, begin=one.begin, end=one.end, chain=number)
            for one in answer.ended:
                joined.ended.add(source=one.source, end=one.end, chain=number)
            if (answer.time.seconds, answer.time.nanos) > (joined.time.seconds, joined.time.nanos):
                joined.time.CopyFrom(answer.time)
        joined.sources.extend(in_order({number: answer.sources for number, answer in answers.items()}))
        return joined

    # -- cursors -----------------------------------------------------------------------------------------------------

    async def _list_cursors(self, call: Call, request: bytes) -> bytes:
        asked = parsed(pipeline.ListCursorsRequest, request)
        if bool(asked.topic) == bool(asked.project):
            raise InvalidArgument("topic", "exactly one of topic and project must be set")
        topics = [await self._topic(asked.topic, 0)] if asked.topic else self.cursors.topics(asked.project)
        found = [one for topic in topics for one in await self.cursors.listed(topic, deadline_of(call))]
        encoded: bytes = pipeline.ListCursorsResponse(cursors=found).SerializeToString()
        return encoded

    async def _delete_cursor(self, call: Call, request: bytes) -> bytes:
        asked = parsed(pipeline.DeleteCursorRequest, request)
        await self.cursors.delete(await self._topic(asked.topic, 0), asked.name, deadline_of(call))
        return b""

    async def _release_subscription(self, call: Call, request: bytes) -> bytes:
        asked = parsed(pipeline.ReleaseSubscriptionRequest, request)
        if not asked.exclusive_reader:
            raise InvalidArgument("exclusive_reader", "must be set: the reader that releases the subscription")
        await self._refresh()
        record = reading_positions.subscription_named(self.catalog, asked.subscription)
        await self._readers.release(record, asked.exclusive_reader)
        return b""

    # -- ranges ------------------------------------------------------------------------------------------------------

    async def _read_range(self, client: RelayedStream) -> None:
        request = await client.receive()
        if request is None:
            raise InvalidArgument("", "The call ended without a request.")
        asked = parsed(pipeline.ReadRangeRequest, request)
        if not 0 <= asked.frame_bytes <= FRAME_BYTES_MAX:
            raise InvalidArgument("frame_bytes", f"must be between 0 (the default) and {FRAME_BYTES_MAX}")
        topic = await self._topic(asked.topic, asked.topic_incarnation)
        deadline = deadline_of(client.stream)
        asked.topic_incarnation = topic.incarnation
        asked.frame_bytes = min(asked.frame_bytes or FRAME_BYTES, RELAYED_BYTES_MAX)
        if not asked.chain:
            asked.chain = await self._chain_of(topic, asked, deadline)
        owner = await self.chains.owner(asked.chain, deadline)
        upstream = self.chains.stream(asked.chain, owner, READER.ReadRange)

        sealer = self._sealer if columns.DATA in asked.columns else None

        async def relay() -> None:
            await upstream.send(asked.SerializeToString())
            await upstream.end()
            if sealer is None:
                while (parts := await upstream.receive_parts()) is not None:
                    await client.send(parts)
            else:
                while (frame := await upstream.receive()) is not None:
                    await client.send(await self._opened(frame, asked.columns))

        try:
            await self.chains.while_owner(asked.chain, owner, relay())
        finally:
            self.chains.close(owner, upstream)

    async def _opened(self, message: bytes, chosen: Sequence[int]) -> bytes:
        assert self._sealer is not None
        frame = pipeline.ReadFrame.FromString(message)
        frame.batch = await self._sealer.open_batch(frame.batch, chosen)
        return frame.SerializeToString()

    async def _chain_of(self, topic: Topic, asked: Any, deadline: float) -> int:
        """The chain that has a source. Raises `OutOfRange` when none has."""
        plain = pipeline.GetPositionsRequest(topic=topic.name, topic_incarnation=topic.incarnation)
        for number, answer in (await self._ask(topic, plain, deadline)).items():
            if any(one.source == asked.source for one in answer.sources):
                return number
        raise OutOfRange(
            f"Source {asked.source} of {topic.name} has no stored messages any more. Call GetPositions for the sources"
            " that have."
        )


def in_order(found: dict[int, Sequence[Any]]) -> Iterable[Any]:
    """Sources of all chains in the order of keys. A chain's next owner may know an older assignment of the topic than
    the owner before; its sources follow all the same, so within a chain epochs never go back here.
    """
    out = []
    for number, sources in found.items():
        epoch = 0
        for one in sorted(sources, key=lambda one: one.source):
            epoch = max(epoch, one.epoch)
            placed = pipeline.SourcePosition()
            placed.CopyFrom(one)
            placed.chain, placed.epoch = number, epoch
            out.append(placed)
    return sorted(out, key=lambda one: (one.epoch, one.chain, one.source))
