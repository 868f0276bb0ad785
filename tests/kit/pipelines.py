"""Imagined owners of chains that stage, commit and are read, behind a proxy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.cluster import ChainOwner
from syncpoint.base.model.errors import NotFound, SyncpointError, Unavailable
from syncpoint.broker.pipeline.mounting import CHAIN
from syncpoint.catalog.metadata.contract import Put
from syncpoint.catalog.metadata.layout import OPEN, QUERY_HOMES
from syncpoint.catalog.metadata.view import OWNERS
from syncpoint.wire.protobuf.messages import pipeline
from syncpoint.wire.transport.calls import Call, Methods, Streaming, StreamingCall
from syncpoint.wire.transport.tasks import unary_async
from tests.kit.proxy import TOPIC, ProxyHarness, ProxyProcess
from tests.kit.proxy_processes import PublishProcess

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


async def refused(work: Any) -> SyncpointError:
    with pytest.raises(SyncpointError) as caught:
        await work
    return caught.value


def home_of(harness: ProxyHarness, name: str, prefix: Any = QUERY_HOMES) -> int | None:
    found = harness.store.get(prefix.key(name))
    return None if found is None else int(found.value)


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
