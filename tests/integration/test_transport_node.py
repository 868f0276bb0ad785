"""gRPC's own client for Node.js against our server; the checks themselves are in tests/node/transport/check.js."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest
import uvloop

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument
from syncpoint.wire.transport.calls import Call, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.server import serve

pytestmark = pytest.mark.shows("clients-node")

FOLDER = Path(__file__).resolve().parents[1] / "node" / "transport"
cancelled = 0


def bad(call: Call, request: bytes) -> None:
    raise InvalidArgument("", "nö: 100 %", (b"\x0a\x01t",))


def chat(stream: StreamingCall) -> None:
    stream.on_message = stream.send
    stream.on_end = stream.finish


def hold(stream: StreamingCall) -> None:
    """Never ends by itself: a client that cancels closes its side first, and resets then."""

    def cancel() -> None:
        global cancelled
        cancelled += 1

    stream.on_message = stream.send
    stream.on_cancel = cancel


def refuse(stream: StreamingCall) -> None:
    stream.on_message = lambda message: stream.finish(FailedPrecondition("no"))


def flood(stream: StreamingCall) -> None:
    left = [300]

    def pump() -> None:
        while left[0] and stream.writable:
            stream.send(bytes(50_000))
            left[0] -= 1
        if not left[0]:
            stream.finish()

    stream.on_writable = pump
    pump()


METHODS = {
    b"/t.T/Echo": Unary(lambda call, request: call.reply(request)),
    b"/t.T/Meta": Unary(lambda call, request: call.reply(call.metadata[request])),
    b"/t.T/Bad": Unary(bad),
    b"/t.T/Slow": Unary(lambda call, request: None),
    b"/t.T/Cancelled": Unary(lambda call, request: call.reply(b"%d" % cancelled)),
    b"/t.T/Chat": Streaming(chat),
    b"/t.T/Hold": Streaming(hold),
    b"/t.T/Refuse": Streaming(refuse),
    b"/t.T/Flood": Streaming(flood),
}


async def run() -> str:
    server = await serve(METHODS)
    try:
        process = await asyncio.create_subprocess_exec(
            "node", "check.js", f"127.0.0.1:{server.port}", cwd=FOLDER,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            out, _ = await asyncio.wait_for(process.communicate(), 60)
        except TimeoutError:
            process.kill()
            raise
    finally:
        await server.close()
    assert server.stats["held"] == server.stats["faults"] == 0
    return out.decode()


@pytest.mark.node
def test_node() -> None:
    if shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    if not (FOLDER / "node_modules" / "@grpc" / "grpc-js").is_dir():
        done = subprocess.run(
            ["npm", "ci", "--no-audit", "--no-fund"],
            cwd=FOLDER,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"npm cannot install: {done.stderr[-300:]}")
    assert uvloop.run(run()).strip() == "ok"
