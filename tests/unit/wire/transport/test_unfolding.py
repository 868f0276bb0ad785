"""Compressed messages that are large are unfolded apart: what comes behind them waits, and the loop does not."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.testing.rigs.plain_tests import on_loop
from syncpoint.wire.transport import frames
from syncpoint.wire.transport.calls import Call, CallContext, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.server_streams import HERE_BYTES

LARGE = bytes(range(256)) * (HERE_BYTES // 256 + 1)
LARGEST = 1 << 20
GZIP = ("grpc-encoding", "gzip")


class HeldThread:
    """Work waits until it is let go; who it was for is kept."""

    def __init__(self) -> None:
        self.busy = False
        self.projects: list[str] = []
        self.go = asyncio.Event()

    @contextlib.contextmanager
    def here(self, project: str) -> Iterator[None]:
        yield

    async def __call__(self, work: Callable[[], Any], project: str, /) -> Any:
        raise AssertionError("a process would have to be sent the message")

    async def in_thread(self, work: Callable[[], Any], project: str, /) -> Any:
        self.projects.append(project)
        await self.go.wait()
        return work()


def gzipped(harness: Any, message: bytes) -> bytes:
    packed: bytes = harness.grpc(zlib.compress(message, wbits=31), flag=1)
    return packed


class Served:
    """A peer of a server that keeps what its methods were given."""

    def __init__(self, harness: Any) -> None:
        self.took: list[bytes] = []
        self.ended = 0
        methods = {b"/t.T/Echo": Unary(self._unary), b"/t.T/Chat": Streaming(self._stream)}
        self.peer = harness.Peer(methods, TransportLimits(message_bytes=LARGEST))
        self.apart = HeldThread()
        self.payers: list[bytes] = []
        self.peer.server.unfold_apart(self.apart, self._payer)

    def _payer(self, call: CallContext) -> str:
        self.payers.append(call.path)
        if b"nobody" in call.metadata:
            raise SyncpointError(Code.UNAUTHENTICATED, "Nobody is let in.")
        return "projects/p"

    def _unary(self, call: Call, request: bytes) -> None:
        self.took.append(request)
        call.reply(b"ok")

    def _stream(self, stream: StreamingCall) -> None:
        def over() -> None:
            self.ended += 1
            stream.finish()

        stream.on_message, stream.on_end = self.took.append, over

    async def let_go(self) -> None:
        """Until all that waited is done."""
        self.apart.go.set()
        while len(self.peer.server.tasks):
            await asyncio.sleep(0)

    @property
    def held(self) -> int:
        held: int = self.peer.server.counters.held
        return held


@on_loop
async def test_large_ones_wait_and_small_ones_do_not(*, harness: Any) -> None:
    served = Served(harness)
    peer = served.peer
    large, small, plain = (peer.open(harness.ECHO, GZIP) for _ in range(3))
    peer.data(large, gzipped(harness, LARGE), end=True)
    peer.data(small, gzipped(harness, b"small"), end=True)
    peer.data(plain, harness.grpc(LARGE[:9000]), end=True)
    await asyncio.sleep(0)
    assert served.took == [b"small", LARGE[:9000]]
    assert served.apart.projects == ["projects/p"]
    assert served.held, "it counts as unfinished"
    got = peer.read()
    assert peer.answer(large, got) == (b"", {})
    await served.let_go()
    assert served.took[2:] == [LARGE]
    assert peer.answer(large)[0] == harness.grpc(b"ok")
    assert not served.held


@on_loop
async def test_small_ones_go_apart_in_a_turn_that_had_many(*, harness: Any) -> None:
    served = Served(harness)
    served.apart.busy = True
    sid = served.peer.open(harness.ECHO, GZIP)
    served.peer.data(sid, gzipped(harness, b"small"), end=True)
    assert not served.took
    await served.let_go()
    assert served.took == [b"small"]


@pytest.mark.parametrize("piece", [1, 7, 16_384])
@on_loop
async def test_what_comes_behind_keeps_its_order(*, harness: Any, piece: int) -> None:
    served = Served(harness)
    peer = served.peer
    sid = peer.open("/t.T/Chat", GZIP)
    wanted = [LARGE, b"a", LARGE[::-1], b"b", b"c"]
    packed = (gzipped(harness, one) if at % 2 == 0 else harness.grpc(one) for at, one in enumerate(wanted))
    sent = b"".join(packed)
    for at in range(0, len(sent), piece):
        peer.data(sid, sent[at : at + piece], end=at + piece >= len(sent))
    await asyncio.sleep(0)
    assert not served.took
    assert not served.ended
    await served.let_go()
    assert served.took == wanted
    assert served.ended == 1
    assert not served.held


@on_loop
async def test_what_comes_behind_is_bounded_by_the_window(*, harness: Any) -> None:
    served = Served(harness)
    peer = served.peer
    window = peer.server.limits.stream_window_bytes
    sid = peer.open("/t.T/Chat", GZIP)
    first = gzipped(harness, LARGE)
    peer.data(sid, first)
    behind = harness.grpc(b"x" * (window - len(first) - 5))
    for at in range(0, len(behind), 16_384):
        peer.data(sid, behind[at : at + 16_384])
    assert [one for one in peer.read() if one.kind == frames.WINDOW_UPDATE and one.sid == sid] == []
    await served.let_go()
    assert [len(one) for one in served.took] == [len(LARGE), len(behind) - 5]
    assert [one for one in peer.read() if one.kind == frames.WINDOW_UPDATE and one.sid == sid]


@on_loop
async def test_what_cannot_be_unfolded_fails_its_call(*, harness: Any) -> None:
    served = Served(harness)
    peer = served.peer
    bomb, torn = peer.open(harness.ECHO, GZIP), peer.open(harness.ECHO, GZIP)
    peer.data(bomb, gzipped(harness, bytes(LARGEST + 1)), end=True)
    peer.data(torn, harness.grpc(zlib.compress(LARGE, wbits=31)[:-9], flag=1), end=True)
    await served.let_go()
    got = peer.read()
    assert peer.answer(bomb, got)[1]["grpc-status"] == str(int(Code.RESOURCE_EXHAUSTED))
    assert peer.answer(torn, got)[1]["grpc-status"] == str(int(Code.INTERNAL))
    assert not served.took
    assert not served.held


@on_loop
async def test_for_nobody_nothing_large_is_unfolded(*, harness: Any) -> None:
    served = Served(harness)
    sid = served.peer.open(harness.ECHO, GZIP, ("nobody", "1"))
    served.peer.data(sid, gzipped(harness, LARGE), end=True)
    assert served.peer.answer(sid)[1]["grpc-status"] == str(int(Code.UNAUTHENTICATED))
    assert not served.apart.projects
    assert not served.held


@pytest.mark.parametrize("how", ["reset", "lost"])
@on_loop
async def test_who_leaves_is_given_nothing(*, harness: Any, how: str) -> None:
    served = Served(harness)
    peer = served.peer
    sid = peer.open(harness.ECHO, GZIP)
    peer.data(sid, gzipped(harness, LARGE), end=True)
    await asyncio.sleep(0)
    if how == "lost":
        peer.lose()
    else:
        peer.send(frames.rst_stream(sid, frames.ErrorCode.CANCEL))
    assert not served.held, "nothing is kept of it"
    await served.let_go()
    assert not served.took
