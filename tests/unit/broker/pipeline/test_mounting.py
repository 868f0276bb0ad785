"""Pipelines on chains: epochs in the log of a chain that is registered, adopted, closed; homes of queries and links."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.pipeline import cursor_names
from syncpoint.broker.pipeline.cursors import CursorLimits
from syncpoint.broker.pipeline.epoch_apply import EpochApply
from syncpoint.broker.pipeline.homes import Homes, link_key, query_key
from syncpoint.broker.pipeline.mounting import CHAIN, REVISION, ChainPipelines, Pipelines
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.reader_holds import ReaderHold, drop_hold, put_hold
from syncpoint.catalog.metadata.records import CatalogChange, Topic
from syncpoint.wire.protobuf.messages import internal, pipeline
from syncpoint.wire.transport.memory import MemoryChannel
from tests.kit.chain import SUB, SUB_NUMBER, TOPIC, TOPIC_NUMBER, ChainHarness, Process, simulated
from tests.kit.chain_subscriber import Subscriber
from tests.kit.epochs import frame
from tests.kit.errors import failing

WRITER, READER = "/syncpoint.pipeline.v1.EpochWriter/", "/syncpoint.pipeline.v1.LogReader/"


class Served:
    """A publish forwarder process whose chains have pipelines, and a client of it that names the chain."""

    def __init__(self, harness: ChainHarness, name: str, homes: Homes, chain: int = 1) -> None:
        self.process: Process = harness.process(name)
        self.harness, self.homes, self.chain = harness, homes, chain
        pipelines = Pipelines(homes, self.process.shared)
        self.process.host.context.mount = pipelines.mount
        self.channel = MemoryChannel(pipelines.methods(self.process.host))

    async def open(self, number: int = 1) -> Any:
        return await self.process.open(number)

    @property
    def mounted(self) -> ChainPipelines:
        found = self.process.host.chains[self.chain].mounted
        assert isinstance(found, ChainPipelines)
        return found

    @property
    def named(self) -> list[tuple[bytes, bytes]]:
        return [(CHAIN, b"%d" % self.chain), (REVISION, b"%d" % self.harness.master.revision)]

    def stream(self, path: str) -> Any:
        return self.channel.stream(path, self.named)

    async def stage(self, epoch: int, *data: str, query: str = "q", run: str = "r", link: str = "") -> Any:
        stream = self.stream(WRITER + "Stage")
        header = pipeline.StageHeader(
            run=pipeline.Run(query=query, run=run), epoch=epoch, partition=0, attempt="a", link=link
        )
        await stream.send(pipeline.StageRequest(header=header).SerializeToString())
        rows = frame(TOPIC, data=[one.encode() for one in data])
        await stream.send(pipeline.StageRequest(frame=rows).SerializeToString())
        await stream.end()
        return pipeline.StageResponse.FromString(await stream.receive())

    async def commit(self, epoch: int, query: str = "q", run: str = "r") -> Any:
        request = pipeline.CommitEpochRequest(
            run=pipeline.Run(query=query, run=run), epoch=epoch, stages=[pipeline.StageName(partition=0, attempt="a")]
        )
        return await self.call(WRITER + "CommitEpoch", request, pipeline.EpochResult)

    async def call(self, path: str, request: Any, answer: Any) -> Any:
        return answer.FromString(await self.channel.unary(path, request.SerializeToString(), metadata=self.named))

    async def read(self) -> list[str]:
        """Every message of the topic in the chain, by ranges."""
        asked = pipeline.GetPositionsRequest(topic=TOPIC)
        found = await self.call(READER + "GetPositions", asked, pipeline.Positions)
        out: list[str] = []
        for one in found.sources:
            stream = self.stream(READER + "ReadRange")
            request = pipeline.ReadRangeRequest(topic=TOPIC, source=one.source, begin=one.begin, end=one.end)
            request.columns.append(4)
            await stream.send(request.SerializeToString())
            await stream.end()
            while (message := await stream.receive()) is not None:
                batch = pipeline.ReadFrame.FromString(message).batch
                if batch:
                    rows = pa.ipc.read_record_batch(pa.py_buffer(batch), pa.schema([("data", pa.binary())]))
                    out += [value.decode() for value in rows.column(0).to_pylist()]
        return out


def homes_of(harness: ChainHarness) -> Homes:
    return Homes(LocalShared(MemoryStore(clock=harness.clock, random=SeededRandom(3)), harness.clock))


async def at_home(homes: Homes, query: str = "q", chain: int = 1) -> None:
    assert await homes.place([query_key(query)], chain)


async def opened(harness: ChainHarness) -> tuple[Served, Served]:
    """A process that has the chain open, in which the query is at home, and one that may follow it."""
    homes = homes_of(harness)
    first, second = Served(harness, "f1", homes), Served(harness, "f2", homes)
    await first.open()
    await at_home(homes)
    return first, second


@simulated
async def test_an_epoch_goes_into_a_chain_that_is_registered_for_its_topic(harness: ChainHarness) -> None:
    served, _ = await opened(harness)
    await harness.subscribe()
    assert (await served.stage(0, "a", "b")).rows == 2
    assert await served.read() == []
    result = await served.commit(0)
    assert (result.rows, result.repeated_epoch) == (2, False)
    ((topic, (messages, nbytes)),) = served.process.host.take_load().items()
    assert (topic, messages, nbytes > 2) == (TOPIC_NUMBER, 2, True)
    assert (TOPIC_NUMBER, 1) in harness.registered
    assert all(topic == TOPIC_NUMBER for topic, _ in harness.registered)  # what is staged lies in no topic
    subscriber = await Subscriber(served.process, 11).attached()
    assert await subscriber.read_all() == await served.read() == ["a", "b"]
    assert (await served.commit(0)).repeated_epoch


@simulated
async def test_a_decided_epoch_is_finished_by_the_next_owner_before_it_serves(harness: ChainHarness) -> None:
    first, second = await opened(harness)
    await harness.subscribe()
    await first.stage(0, "a", "b")
    begin, EpochApply.begin = EpochApply.begin, lambda self: None  # type: ignore[method-assign]
    try:
        committing = asyncio.ensure_future(first.commit(0))
        await asyncio.sleep(1.0)
        assert first.mounted.writer.applying
        await first.process.crash()
    finally:
        EpochApply.begin = begin  # type: ignore[method-assign]
    committing.cancel()
    await second.open()
    assert await second.read() == ["a", "b"]
    assert not second.process.host.chains[1].ingress._pins
    result = await second.commit(0)
    assert (result.repeated_epoch, result.rows) == (True, 2)
    assert await second.read() == ["a", "b"]


@simulated
async def test_what_is_staged_outlives_the_owner_and_is_committed_at_the_next(harness: ChainHarness) -> None:
    first, second = await opened(harness)
    await harness.subscribe()
    await first.stage(0, "a")
    await first.process.crash()
    await second.open()
    assert await second.read() == []
    await second.commit(0)
    await second.stage(1, "b")
    await second.commit(1)
    assert await second.read() == ["a", "b"]


@simulated
async def test_a_query_at_home_elsewhere_is_refused_and_stores_nothing(harness: ChainHarness) -> None:
    homes = homes_of(harness)
    served = Served(harness, "f1", homes)
    await served.open()
    await at_home(homes, chain=2)
    assert (await failing(served.stage(0, "a"))).code is Code.FAILED_PRECONDITION
    assert (await failing(served.commit(0))).code is Code.FAILED_PRECONDITION
    assert (await failing(served.stage(0, "a", query="unheard"))).code is Code.FAILED_PRECONDITION
    assert not served.mounted.writer.state.queries
    await at_home(homes, "linked")
    assert (await failing(served.stage(0, "a", query="linked", link="l"))).code is Code.FAILED_PRECONDITION


@simulated
async def test_a_topic_stays_registered_while_an_epoch_is_about_to_store_in_it(harness: ChainHarness) -> None:
    homes = homes_of(harness)
    served = Served(harness, "f1", homes)
    chain = await served.open()
    await served.mounted.home.pin({TOPIC_NUMBER})
    for _ in range(3):
        chain.tidy()
        await asyncio.sleep(0.1)
    assert (TOPIC_NUMBER, 1) in harness.registered
    served.mounted.home.unpin({TOPIC_NUMBER})
    chain.tidy()
    await asyncio.sleep(0.1)
    assert (TOPIC_NUMBER, 1) not in harness.registered


@simulated
async def test_a_chain_that_is_closed_ends_its_streams(harness: ChainHarness) -> None:
    served, _ = await opened(harness)
    stream = served.stream(WRITER + "Stage")
    header = pipeline.StageHeader(run=pipeline.Run(query="q", run="r"), attempt="a")
    await stream.send(pipeline.StageRequest(header=header).SerializeToString())
    await asyncio.sleep(0.1)
    await served.process.host.close(1)
    assert (await failing(stream.receive())).code is Code.UNAVAILABLE
    assert (await failing(served.read())).code is Code.UNAVAILABLE


@simulated
async def test_a_chain_whose_log_fails_ends_its_streams(harness: ChainHarness) -> None:
    first, second = await opened(harness)
    stream, idle = first.stream(WRITER + "Stage"), first.stream(WRITER + "Stage")
    header = pipeline.StageHeader(run=pipeline.Run(query="q", run="r"), attempt="a")
    for one in (stream, idle):
        await one.send(pipeline.StageRequest(header=header).SerializeToString())
    await asyncio.sleep(0.1)
    await second.open()  # under a later epoch: the disks obey nobody else
    rows = frame(TOPIC, data=[b"a"])
    await stream.send(pipeline.StageRequest(frame=rows).SerializeToString())
    await stream.end()
    assert (await failing(stream.receive())).code is Code.UNAVAILABLE
    assert (await failing(asyncio.wait_for(idle.receive(), 5.0))).code is Code.UNAVAILABLE
    assert (await failing(first.read())).code is Code.UNAVAILABLE


@simulated
async def test_positions_are_reported_only_by_who_still_owns_the_chain(harness: ChainHarness) -> None:
    homes = homes_of(harness)
    first, second = Served(harness, "f1", homes), Served(harness, "f2", homes)
    await first.open()
    await harness.subscribe()
    await first.process.publish("a")
    await second.open()
    assert 1 in first.process.host.chains  # it has not learned of the other one
    await asyncio.sleep(0.2)
    assert (await failing(first.read())).code is Code.UNAVAILABLE
    assert await second.read() == ["a"]


@simulated
async def test_an_owner_sees_that_what_is_in_its_log_has_a_home(harness: ChainHarness) -> None:
    first, second = await opened(harness)
    await at_home(first.homes, "moved")
    for query in ("q", "moved"):
        await first.stage(0, "a", query=query)
    await first.homes.release(1, [query_key("q"), query_key("moved")])
    assert await first.homes.place([query_key("moved")], 2)
    await first.process.crash()
    await second.open()
    assert await first.homes.chain_at(query_key("q")) == 1
    assert (await failing(second.commit(0, query="moved"))).code is Code.FAILED_PRECONDITION
    await second.commit(0)


@simulated
async def test_a_forgotten_query_has_no_home_any_more(harness: ChainHarness) -> None:
    served, _ = await opened(harness)
    assert await served.homes.place([link_key("l")], 1)
    await served.stage(0, "a", link="l")
    mounted = served.mounted
    mounted.writer.state.queries["q"].used_ns = 0
    mounted._tidy_at = 0.0
    await asyncio.sleep(1)
    assert await served.homes.chain_at(query_key("q")) is None
    assert (await failing(served.commit(0))).code is Code.UNAVAILABLE
    mounted._tidy_at = 0.0
    await asyncio.sleep(1)
    assert not mounted.writer.state.queries
    assert not mounted.writer.leaving
    assert (await failing(served.commit(0))).code is Code.FAILED_PRECONDITION
    assert await served.homes.chain_at(link_key("l")) == 1


@simulated
async def test_a_stream_waits_for_the_catalog_that_its_caller_knows(harness: ChainHarness) -> None:
    served, _ = await opened(harness)
    served.process.shared.held = True
    later = "projects/p/topics/later"
    harness.commit(CatalogChange.put(Topic(9, later)))
    stream = served.stream(WRITER + "Stage")
    header = pipeline.StageHeader(run=pipeline.Run(query="q", run="r"), attempt="a")
    await stream.send(pipeline.StageRequest(header=header).SerializeToString())
    await stream.send(pipeline.StageRequest(frame=frame(later, data=[b"a"])).SerializeToString())
    await stream.end()
    await asyncio.sleep(0.5)
    served.process.shared.held = False
    served.process.shared.catch_up()
    assert pipeline.StageResponse.FromString(await stream.receive()).rows == 1


async def with_cursor(served: Served, first: bool = False, **asked: Any) -> Any:
    request = pipeline.GetPositionsRequest(topic=TOPIC, first=first, **asked)
    request.cursor.name = "c"
    return await served.call(READER + "GetPositions", request, pipeline.Positions)


@simulated
async def test_a_chain_that_begins_with_a_topic_later_has_its_cursors_from_the_first_message(
    harness: ChainHarness,
) -> None:
    homes = homes_of(harness)
    served, other = Served(harness, "f1", homes), Served(harness, "f2", homes, chain=2)
    await served.open()
    await served.process.publish("a")  # nobody needs it
    harness.commit(cursor_names.put(TOPIC_NUMBER, {"c": CursorLimits()}))
    await with_cursor(served, first=True)
    chain = await other.open(2)
    await other.process.publish("b", "c", chain=2)
    (source,) = chain.forwarder.sources.of_topic(TOPIC_NUMBER)
    assert any(one.holds(source, 0, 2, harness.clock.time_ns()) for one in chain.forwarder.holding_extensions)
    await other.process.crash()
    third = Served(harness, "f3", homes, chain=2)
    chain = await third.open(2)
    assert await third.read() == ["b", "c"]
    (source,) = chain.forwarder.sources.of_topic(TOPIC_NUMBER)
    assert any(one.holds(source, 0, 2, harness.clock.time_ns()) for one in chain.forwarder.holding_extensions)
    await with_cursor(third, processed=[pipeline.SourceRange(source=source.number, end=2)])
    for _ in range(100):  # what it has passed is written within a second, and then deleted
        await asyncio.sleep(0.1)
        if source.number not in chain.forwarder.sources.by_number:
            break
    assert not (await with_cursor(third)).sources


@simulated
async def test_a_chain_delivers_nothing_while_a_reader_has_the_subscription_alone(harness: ChainHarness) -> None:
    await harness.subscribe()
    one = Served(harness, "f1", homes_of(harness))
    await one.open()
    await one.process.publish("a")
    early = await Subscriber(one.process, 70).attached()
    await asyncio.sleep(1)
    assert early.sources
    asked = pipeline.GetPositionsRequest(subscription=SUB, exclusive_reader="stream-1")

    def write(hold: ReaderHold | None) -> None:
        now_ns = harness.clock.time_ns()
        changes = put_hold(harness.master, SUB_NUMBER, hold, now_ns) if hold else [drop_hold(SUB_NUMBER)]
        harness.commit(*changes)

    with pytest.raises(SyncpointError) as refused:
        await one.call(READER + "GetPositions", asked, pipeline.Positions)
    assert refused.value.code is Code.ABORTED  # the catalog names no reader
    write(ReaderHold("stream-1", harness.clock.time_ns() + 10**11, confirmed=True))
    with pytest.raises(SyncpointError, match="1 subscribe forwarders deliver it"):
        await one.call(READER + "GetPositions", asked, pipeline.Positions)
    await early.send_message(detach=internal.Detach(subscription=SUB_NUMBER))
    (found,) = (await one.call(READER + "GetPositions", asked, pipeline.Positions)).sources
    late = await Subscriber(one.process, 71).attached()
    await asyncio.sleep(1)
    assert not late.sources
    asked.processed.add(source=found.source, end=found.end)
    await one.call(READER + "GetPositions", asked, pipeline.Positions)
    write(None)
    await one.process.publish("b")
    await asyncio.sleep(1)
    assert [late.sources[number].begin for number in late.sources] == [1]
