"""Pipelines through a proxy: positions joined, ranges and stages relayed, homes chosen once, owners that change."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from syncpoint.metadata.contract import Delete, Put
from syncpoint.metadata.layout import LINK_HOMES, OPEN, QUERY_HOMES
from syncpoint.metadata.view import OWNERS
from syncpoint.model.cluster import ChainOwner
from syncpoint.model.errors import Aborted, Code, NotFound, SyncpointError, Unavailable
from syncpoint.pipeline.cursor_names import cursors_of
from syncpoint.pipeline.mounting import CHAIN
from syncpoint.proxy.pipeline_reading import in_order
from syncpoint.transport.calls import Call, Methods, Streaming, StreamingCall
from syncpoint.transport.tasks import unary_async
from syncpoint.wire.messages import pipeline
from tests.kit.epochs import frame
from tests.kit.proxy import TOPIC, ProxyHarness, ProxyProcess, PublishProcess, in_harness

READER, WRITER = "/syncpoint.pipeline.v1.LogReader/", "/syncpoint.pipeline.v1.EpochWriter/"


class PipelineProcess(PublishProcess):
    """An imagined owner of chains: says what it was asked to, and what it was asked."""

    def __init__(self, harness: ProxyHarness, name: str, region: str = "r1") -> None:
        super().__init__(harness, name, region)
        self.sources: dict[int, list[Any]] = {}  # by chain
        self.generations: dict[int, list[int]] = {}
        self.asked: list[tuple[int, Any]] = []
        self.committed: list[tuple[int, str, int]] = []
        self.staged: dict[int, list[Any]] = {}
        self.links: dict[int, list[str]] = {}
        self.cursors: dict[int, set[str]] = {}
        self.refuse: SyncpointError | None = None
        self.answer_s = 0.001
        self.frames, self.batch = 3, b""
        self.hangs_behind = 1 << 30
        self.streams: list[StreamingCall] = []

    def methods(self) -> Methods:
        return {
            **super().methods(),
            (READER + "GetPositions").encode(): unary_async(self._positions),
            (READER + "ReadRange").encode(): Streaming(self._read),
            (READER + "ListCursors").encode(): unary_async(self._list_cursors),
            (READER + "DeleteCursor").encode(): unary_async(self._delete_cursor),
            (WRITER + "Stage").encode(): Streaming(self._stage),
            (WRITER + "CommitEpoch").encode(): unary_async(self._commit),
            (WRITER + "ListLinks").encode(): unary_async(self._links),
        }

    def _chain(self, call: Any) -> int:
        chain = int(call.metadata[CHAIN])
        owner = self.harness.store.get(f"{OWNERS}{chain}")
        if owner is None or ChainOwner.decode(owner.value).member != self.name:
            raise Unavailable(f"Chain {chain} is not open here.")
        if self.refuse is not None:
            raise self.refuse
        return chain

    async def _positions(self, call: Call, request: bytes) -> bytes:
        chain = self._chain(call)
        await asyncio.sleep(self.answer_s)
        asked = pipeline.GetPositionsRequest.FromString(request)
        self.asked.append((chain, asked))
        generations = self.generations.get(chain, [0])
        answer = pipeline.Positions(
            topic=asked.topic, universe="own", sources=self.sources.get(chain, []), generation=generations[0]
        )
        answer.time.seconds = chain
        self.generations[chain] = generations[1:] or generations
        encoded: bytes = answer.SerializeToString()
        return encoded

    async def _list_cursors(self, call: Call, request: bytes) -> bytes:
        chain, answer = self._chain(call), pipeline.ListCursorsResponse()
        for name in sorted(self.cursors.get(chain, ())):
            answer.cursors.add(topic=TOPIC, name=name, lag_messages=chain)
            answer.cursors[-1].ranges.add(source=chain * 10, begin=1, end=2)
        encoded: bytes = answer.SerializeToString()
        return encoded

    async def _delete_cursor(self, call: Call, request: bytes) -> bytes:
        name = pipeline.DeleteCursorRequest.FromString(request).name
        if name not in self.cursors.get(self._chain(call), ()):
            raise NotFound(name)
        self.cursors[self._chain(call)].remove(name)
        return b""

    def _read(self, stream: StreamingCall) -> None:
        def message(request: bytes) -> None:
            self.streams.append(stream)
            asked = pipeline.ReadRangeRequest.FromString(request)
            self.asked.append((int(stream.metadata[CHAIN]), asked))
            for number in range(self.frames):
                if number < self.hangs_behind:
                    frame = pipeline.ReadFrame(rows=1, next_offset=asked.begin + number + 1, batch=self.batch)
                    stream.send(frame.SerializeToString())
            if self.hangs_behind >= self.frames:
                stream.finish()

        stream.on_message = message

    def _stage(self, stream: StreamingCall) -> None:
        came: list[Any] = []
        chain = int(stream.metadata[CHAIN])

        def message(request: bytes) -> None:
            came.append(pipeline.StageRequest.FromString(request))
            if self.refuse is not None:
                stream.finish(self.refuse)

        def end() -> None:
            self.staged.setdefault(chain, []).append(came)
            stream.send(pipeline.StageResponse(rows=len(came) - 1).SerializeToString())
            stream.finish()

        stream.on_message, stream.on_end = message, end

    async def _commit(self, call: Call, request: bytes) -> bytes:
        chain = self._chain(call)
        asked = pipeline.CommitEpochRequest.FromString(request)
        self.committed.append((chain, asked.run.query, asked.epoch))
        await asyncio.sleep(self.answer_s)
        encoded: bytes = pipeline.EpochResult(rows=chain).SerializeToString()
        return encoded

    async def _links(self, call: Call, request: bytes) -> bytes:
        asked, names = pipeline.ListLinksRequest.FromString(request), self.links.get(self._chain(call), [])
        links = [pipeline.Link(name=name) for name in names if asked.name in ("", name)]
        encoded: bytes = pipeline.ListLinksResponse(links=links).SerializeToString()
        return encoded


def source(number: int, epoch: int = 0, begin: int = 0, end: int = 10) -> Any:
    return pipeline.SourcePosition(source=number, epoch=epoch, begin=begin, end=end)


async def cluster(harness: ProxyHarness, chains: int = 2, **options: Any) -> list[Any]:
    """As many owners as chains, all registered for the topic, and a proxy."""
    owners = [await harness.start(PipelineProcess, f"f{number}") for number in range(1, chains + 1)]
    for number, owner in enumerate(owners, 1):
        harness.chain(number, owner)
        harness.store.txn([], [Put(OPEN.key(harness.topic.incarnation, number), b"{}")])
    await harness.start(ProxyProcess, "proxy", **options)
    await asyncio.sleep(0.1)
    return owners


async def positions(harness: ProxyHarness, timeout: float | None = None, **asked: Any) -> Any:
    request = pipeline.GetPositionsRequest(**{"topic": TOPIC, **asked})
    return pipeline.Positions.FromString(await harness.call(READER + "GetPositions", request, timeout=timeout))


async def stage(
    harness: ProxyHarness, query: str = "q", link: str = "", topic: str = TOPIC, frames: int = 2, proxy: str = "proxy",
    staged: Any = None,
) -> Any:  # fmt: skip
    stream = harness.network.channel(f"{proxy}:1").stream(WRITER + "Stage")
    header = pipeline.StageHeader(run=pipeline.Run(query=query, run="r"), attempt="a", link=link)
    await stream.send(pipeline.StageRequest(header=header).SerializeToString())
    for number in range(frames):
        frame = staged or pipeline.StageFrame(topic=topic, batch=b"%d" % number)
        await stream.send(pipeline.StageRequest(frame=frame).SerializeToString())
    await stream.end()
    return pipeline.StageResponse.FromString(await stream.receive() or b"")


async def commit(harness: ProxyHarness, query: str = "q", link: str = "", epoch: int = 0) -> int:
    request = pipeline.CommitEpochRequest(run=pipeline.Run(query=query, run="r"), epoch=epoch, link=link)
    answer = await harness.call(WRITER + "CommitEpoch", request, timeout=20.0)
    return int(pipeline.EpochResult.FromString(answer).rows)


async def refused(work: Any) -> SyncpointError:
    with pytest.raises(SyncpointError) as caught:
        await work
    return caught.value


def home_of(harness: ProxyHarness, name: str, prefix: Any = QUERY_HOMES) -> int | None:
    found = harness.store.get(prefix.key(name))
    return None if found is None else int(found.value)


# -- reading -----------------------------------------------------------------------------------------------------------


def test_sources_are_in_the_order_of_keys_and_those_of_a_chain_in_that_of_their_numbers() -> None:
    found = in_order({2: [source(30, 1), source(20, 0)], 1: [source(10, 1), source(40, 0)]})
    assert [(one.source, one.chain, one.epoch) for one in found] == [(20, 2, 0), (10, 1, 1), (40, 1, 1), (30, 2, 1)]


@in_harness()
async def test_positions_are_those_of_all_chains(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    one.sources[1], two.sources[2] = [source(10, 1)], [source(20, 0), source(30, 1)]
    found = await positions(harness, latest=True)
    assert [(at.source, at.chain) for at in found.sources] == [(20, 2), (10, 1), (30, 2)]
    assert (found.topic, found.topic_incarnation, found.time.seconds) == (TOPIC, harness.topic.incarnation, 2)
    assert found.universe == "0"  # the cluster's, not a chain's
    ((_, asked),) = one.asked
    assert asked.latest
    assert asked.topic_incarnation == harness.topic.incarnation


@in_harness()
async def test_positions_are_never_shorter_because_a_chain_is_away(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    one.sources[1], two.sources[2] = [source(10)], [source(20)]
    harness.store.txn([], [Delete(f"{OWNERS}2")])
    failing = asyncio.ensure_future(refused(positions(harness, timeout=None)))
    await asyncio.sleep(5.0)
    assert not failing.done()  # it waits for an owner
    await asyncio.sleep(40.0)
    error = await failing
    assert error.code is Code.UNAVAILABLE
    assert "Chain 2" in error.message
    waiting = asyncio.ensure_future(positions(harness))
    await asyncio.sleep(1.0)
    one.sources[2] = [source(20)]
    harness.chain(2, one, epoch=2)
    assert [at.source for at in (await waiting).sources] == [10, 20]


@in_harness()
async def test_a_topic_without_chains_has_no_positions_and_refusals_are_those_of_one_node(
    harness: ProxyHarness,
) -> None:
    await harness.start(ProxyProcess, "proxy")
    assert not (await positions(harness)).sources
    for asked, code in (
        ({"topic": "projects/p/topics/none"}, Code.NOT_FOUND),
        ({"topic_incarnation": 99}, Code.FAILED_PRECONDITION),
        ({"topic": "", "subscription": "projects/p/subscriptions/none"}, Code.NOT_FOUND),
        ({"subscription": "projects/p/subscriptions/billing"}, Code.INVALID_ARGUMENT),
        ({"snapshot": "projects/p/snapshots/none"}, Code.NOT_FOUND),
        ({"cursor": {"name": ""}}, Code.INVALID_ARGUMENT),
        ({"topic": "", "subscription": "projects/p/subscriptions/billing", "cursor": {"name": "c"}},
         Code.INVALID_ARGUMENT),
        ({"topic": "", "subscription": "projects/p/subscriptions/billing", "exclusive_reader": "x",
          "exclusive_seconds": -1}, Code.INVALID_ARGUMENT),
    ):  # fmt: skip
        assert (await refused(positions(harness, **asked))).code is code, asked


@in_harness()
async def test_chains_must_agree_about_a_seek(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    one.sources[1], two.sources[2] = [source(10)], [source(20)]
    one.generations[1], two.generations[2] = [1, 1, 1], [0, 0, 1]
    found = await positions(harness, topic="", subscription="projects/p/subscriptions/billing", backlog=True)
    assert found.generation == 1
    assert len(two.asked) == 3
    two.generations[2] = [0]
    error = await refused(positions(harness, topic="", subscription="projects/p/subscriptions/billing"))
    assert error.code is Code.UNAVAILABLE


@in_harness()
async def test_a_cursor_has_its_name_in_the_catalog_and_its_positions_in_each_chain(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    one.sources[1], two.sources[2] = [source(10)], [source(20)]
    await positions(harness, cursor={"name": "c", "retention_seconds": 60}, first=True)
    assert cursors_of(harness.catalog, harness.topic.incarnation)["c"].retention_s == 60
    assert [asked.first for _, asked in (*one.asked, *two.asked)] == [True, True]
    ranges = [pipeline.SourceRange(source=10, end=3, chain=1), pipeline.SourceRange(source=20, end=4)]
    await positions(harness, cursor={"name": "c", "retention_seconds": 60}, processed=ranges)
    assert [(at.source, at.end) for at in one.asked[-1][1].processed] == [(10, 3)]
    assert [(at.source, at.end) for at in two.asked[-1][1].processed] == [(20, 4)]


async def cursors(harness: ProxyHarness, **asked: Any) -> list[Any]:
    answer = await harness.call(READER + "ListCursors", pipeline.ListCursorsRequest(**asked))
    return list(pipeline.ListCursorsResponse.FromString(answer).cursors)


@in_harness()
async def test_cursors_are_listed_and_deleted_over_all_chains(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    for name in ("c", "new"):
        await positions(harness, cursor={"name": name}, first=True)
    one.cursors[1], two.cursors[2] = {"c"}, {"c"}
    for asked in ({"topic": TOPIC}, {"project": "projects/p"}):
        first, second = await cursors(harness, **asked)
        assert (first.name, first.lag_messages) == ("c", 3)
        assert [(at.source, at.chain) for at in first.ranges] == [(10, 1), (20, 2)]
        assert (second.name, second.lag_messages) == ("new", 0)
    await harness.call(READER + "DeleteCursor", pipeline.DeleteCursorRequest(topic=TOPIC, name="c"))
    assert (one.cursors, two.cursors) == ({1: set()}, {2: set()})
    assert [found.name for found in await cursors(harness, topic=TOPIC)] == ["new"]
    gone = harness.call(READER + "DeleteCursor", pipeline.DeleteCursorRequest(topic=TOPIC, name="c"))
    assert (await refused(gone)).code is Code.NOT_FOUND


@in_harness()
async def test_names_of_cursors_that_no_chain_has_any_more_go(harness: ProxyHarness) -> None:
    one, _ = await cluster(harness)
    for name in ("used", "unused"):
        await positions(harness, cursor={"name": name}, first=True)
    one.cursors[1] = {"used"}
    reader = harness.processes["proxy"].proxy.cursors
    await reader.clean()
    assert set(cursors_of(harness.catalog, harness.topic.incarnation)) == {"used"}
    harness.delete(harness.topic)
    await reader.clean()
    assert not cursors_of(harness.catalog, harness.topic.incarnation)


def rows_of(batch: bytes) -> list[dict[str, Any]]:
    """Of three columns, as the test of sealed data stages them."""
    schema = pa.schema([("ordering_key", pa.utf8()), ("data", pa.binary()), ("offset", pa.int64())])
    found = pa.ipc.read_record_batch(pa.py_buffer(batch), schema)
    found.validate(full=True)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


async def read(harness: ProxyHarness, **asked: Any) -> tuple[list[int], SyncpointError | None]:
    """The `next_offset` of every frame, and how the stream ended."""
    frames, error = await frames_of(harness, **asked)
    return [one.next_offset for one in frames], error


async def frames_of(harness: ProxyHarness, **asked: Any) -> tuple[list[Any], SyncpointError | None]:
    """The frames of a range, and how the stream ended."""
    stream = harness.network.channel("proxy:1").stream(READER + "ReadRange")
    request = pipeline.ReadRangeRequest(**{"topic": TOPIC, "begin": 5, "end": 8, **asked})
    await stream.send(request.SerializeToString())
    await stream.end()
    frames: list[Any] = []
    try:
        while (message := await stream.receive()) is not None:
            frames.append(pipeline.ReadFrame.FromString(message))
    except SyncpointError as error:
        return frames, error
    return frames, None


@in_harness()
async def test_a_range_comes_from_the_owner_of_its_chain(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    two.sources[2] = [source(20)]
    assert await read(harness, source=20, chain=2) == ([6, 7, 8], None)
    ((chain, asked),) = two.asked
    assert (chain, asked.source, asked.begin, asked.end) == (2, 20, 5, 8)
    assert await read(harness, source=20) == ([6, 7, 8], None)  # whose caller does not know the chain
    offsets, error = await read(harness, source=99)
    assert (offsets, error is not None and error.code) == ([], Code.OUT_OF_RANGE)
    assert not one.streams


@in_harness()
async def test_a_range_ends_unavailable_when_its_chain_moves_and_goes_on_at_the_next_owner(
    harness: ProxyHarness,
) -> None:
    one, two = await cluster(harness)
    two.hangs_behind = 1
    reading = asyncio.ensure_future(read(harness, source=20, chain=2))
    await asyncio.sleep(1.0)
    harness.chain(2, one, epoch=2)
    offsets, error = await reading
    assert (offsets, error is not None and error.code) == ([6], Code.UNAVAILABLE)
    assert await read(harness, source=20, chain=2, begin=6) == ([7, 8, 9], None)
    assert len(one.streams) == 1


@in_harness()
async def test_data_is_sealed_on_its_way_into_a_stage_and_opened_on_its_way_out_of_a_range(
    harness: ProxyHarness,
) -> None:
    one, two = await cluster(harness, sealed=True)
    plain = frame(TOPIC, ordering_key=["k", "", "k"], data=[b"secret", None, b"more"], offset=[3, 4, 9])
    await stage(harness, staged=plain, frames=1)
    ((_, sealed),) = [found for owner in (one, two) for staged in owner.staged.values() for found in staged]
    assert sealed.frame.topic_incarnation == harness.topic.incarnation
    hidden, opened = rows_of(sealed.frame.batch), rows_of(plain.batch)
    assert [row["ordering_key"] for row in hidden] == ["k", "", "k"]
    assert [row["offset"] for row in hidden] == [3, 4, 9]
    assert [len(row["data"] or b"") for row in hidden] == [46, 0, 44]
    assert hidden[0]["data"].startswith(b"\xf5SPseal")
    one.batch = sealed.frame.batch
    frames, error = await frames_of(harness, source=10, chain=1, columns=[6, 4, 2])
    assert error is None
    assert [rows_of(one.batch) for one in frames] == [opened] * 3
    one.batch = plain.batch  # stored before anything was sealed
    frames, _ = await frames_of(harness, source=10, chain=1, columns=[6, 4, 2])
    assert frames[0].batch == plain.batch
    broken = bytearray(sealed.frame.batch)
    broken[sealed.frame.batch.index(hidden[2]["data"]) + 43] ^= 1
    one.batch = bytes(broken)
    frames, error = await frames_of(harness, source=10, chain=1, columns=[6, 4, 2])
    assert frames == []
    assert error is not None
    assert error.code is Code.DATA_LOSS
    assert await read(harness, source=20, chain=2, columns=[2]) == ([6, 7, 8], None)
    garbled = pipeline.StageFrame(topic=TOPIC, columns=[4], batch=b"no batch")
    assert (await refused(stage(harness, staged=garbled))).code is Code.INVALID_ARGUMENT


# -- writing -----------------------------------------------------------------------------------------------------------


@in_harness()
async def test_a_query_gets_one_home_and_keeps_it(harness: ProxyHarness) -> None:
    owners = await cluster(harness, chains=3)
    assert (await stage(harness)).rows == 2
    home = home_of(harness, "q")
    assert home is not None
    ((header, *frames),) = owners[home - 1].staged[home]
    assert header.header.run.query == "q"
    assert [one.frame.batch for one in frames] == [b"0", b"1"]
    for epoch in range(3):
        assert await commit(harness, epoch=epoch) == home
    homes = set()
    for number in range(20):
        await stage(harness, query=f"other {number}")
        homes.add(home_of(harness, f"other%20{number}"))
    assert homes == {1, 2, 3}


@in_harness()
async def test_a_link_decides_where_its_queries_are_at_home(harness: ProxyHarness) -> None:
    owners = await cluster(harness, chains=3)
    await stage(harness, query="first", link="l")
    home = home_of(harness, "l", LINK_HOMES)
    assert home == home_of(harness, "first")
    for number in range(5):
        await stage(harness, query=f"q{number}", link="l")
        assert home_of(harness, f"q{number}") == home
    elsewhere = next(one for one in (1, 2, 3) if one != home)
    harness.store.txn([], [Put(QUERY_HOMES.key("away"), b"%d" % elsewhere)])
    assert (await refused(stage(harness, query="away", link="l"))).code is Code.FAILED_PRECONDITION
    assert (await refused(commit(harness, query="away", link="l"))).code is Code.FAILED_PRECONDITION
    assert not any(owner.staged.get(elsewhere) for owner in owners)


@in_harness()
async def test_who_loses_the_race_for_a_home_takes_what_is_there(harness: ProxyHarness) -> None:
    owners = await cluster(harness, chains=2)
    proxies = [harness.processes["proxy"], await harness.start(ProxyProcess, "proxy2")]
    await asyncio.sleep(0.1)

    def choose(chain: int) -> Any:
        async def chosen(name: str, topic: Any, deadline: float) -> int:
            await asyncio.sleep(0.01)  # both have looked before one of them writes
            return chain

        return chosen

    for number, proxy in enumerate(proxies, 1):
        proxy.proxy.writer._chosen = choose(number)
    answers = await asyncio.gather(
        *(stage(harness, query=f"q{at}", link=f"l{at}", proxy=proxy.name) for at in range(4) for proxy in proxies)
    )
    assert [one.rows for one in answers] == [2] * 8
    for at in range(4):
        home = home_of(harness, f"q{at}")
        assert home is not None
        assert home == home_of(harness, f"l{at}", LINK_HOMES)
        went = [chain for owner in owners for chain, all_ in owner.staged.items()
                for header, *_ in all_ if header.header.run.query == f"q{at}"]  # fmt: skip
        assert went == [home, home]


@in_harness()
async def test_a_commit_waits_for_the_next_owner_and_is_made_again_there(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    harness.store.txn([], [Put(QUERY_HOMES.key("q"), b"2")])
    two.answer_s = 1000.0  # it hangs in the middle of the commit
    committing = asyncio.ensure_future(commit(harness))
    await asyncio.sleep(1.0)
    assert two.committed == [(2, "q", 0)]
    two.lease_ends()
    await asyncio.sleep(1.0)
    harness.chain(2, one, epoch=2)
    assert await committing == 2
    assert one.committed == [(2, "q", 0)]


@in_harness()
async def test_what_the_owner_refuses_is_reported(harness: ProxyHarness) -> None:
    owners = await cluster(harness)
    for owner in owners:
        owner.refuse = Aborted("Run r was superseded.")
    assert (await refused(stage(harness))).code is Code.ABORTED
    assert (await refused(commit(harness))).code is Code.ABORTED


@in_harness()
async def test_a_stage_ends_unavailable_when_its_chain_moves(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    harness.store.txn([], [Put(QUERY_HOMES.key("q"), b"2")])
    stream = harness.network.channel("proxy:1").stream(WRITER + "Stage")
    header = pipeline.StageHeader(run=pipeline.Run(query="q", run="r"), attempt="a")
    await stream.send(pipeline.StageRequest(header=header).SerializeToString())
    await asyncio.sleep(0.5)
    harness.chain(2, one, epoch=2)
    assert (await refused(stream.receive())).code is Code.UNAVAILABLE
    assert not one.staged
    assert not two.staged
    assert (await stage(harness)).rows == 2


@in_harness()
async def test_messages_are_staged_only_where_their_topic_may_be_stored(harness: ProxyHarness) -> None:
    owners = await cluster(harness)
    other = await harness.start(PipelineProcess, "f9")
    harness.chain(9, other, klass="strong")
    harness.add_topic("projects/p/topics/strong", durability="strong")
    await asyncio.sleep(0.1)
    await stage(harness, query="strong", topic="projects/p/topics/strong")
    assert home_of(harness, "strong") == 9
    await stage(harness, query="plain")
    error = await refused(stage(harness, query="plain", topic="projects/p/topics/strong"))
    assert error.code is Code.FAILED_PRECONDITION
    assert "strong" in error.message
    assert len([one for owner in owners for staged in owner.staged.values() for one in staged]) == 1
    assert (await refused(stage(harness, topic="projects/p/topics/none"))).code is Code.NOT_FOUND
    request = pipeline.CommitEpochRequest(
        run=pipeline.Run(query="empty", run="r"), link="e", topic="projects/p/topics/strong"
    )
    await harness.call(WRITER + "CommitEpoch", request)
    assert home_of(harness, "empty") == home_of(harness, "e", LINK_HOMES) == 9


@in_harness()
async def test_links_are_those_of_all_homes(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    one.links[1], two.links[2] = ["b"], ["a", "c"]
    for name, chain in (("a", 2), ("b", 1), ("c", 2)):
        harness.store.txn([], [Put(LINK_HOMES.key(name), b"%d" % chain)])
    for name, expected in (("", ["a", "b", "c"]), ("b", ["b"]), ("none", [])):
        answer = await harness.call(WRITER + "ListLinks", pipeline.ListLinksRequest(name=name))
        assert [link.name for link in pipeline.ListLinksResponse.FromString(answer).links] == expected
    for method in ("AcceptGap", "MapOffsets"):
        request = getattr(pipeline, f"{method}Request")(link="none")
        assert (await refused(harness.call(WRITER + method, request))).code is Code.NOT_FOUND
