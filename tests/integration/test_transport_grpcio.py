"""gRPC's own Python client against our server, and our channel against gRPC's own server."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop
from google.rpc import status_pb2

from syncpoint.base.model.errors import Code, InvalidArgument, SyncpointError
from syncpoint.wire.transport.calls import Call, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.client import Channel
from syncpoint.wire.transport.server import Server, serve
from syncpoint.wire.transport.tasks import unary_async

pytestmark = pytest.mark.shows("transport")

BIG = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Service:
    """The methods; what they saw is kept for the tests."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.drained = threading.Event()
        self.calls: list[dict[bytes, bytes]] = []
        self.methods = {
            b"/t.T/Echo": Unary(self.echo),
            b"/t.T/Bad": Unary(self.bad),
            b"/t.T/Slow": unary_async(self.slow),
            b"/t.T/Chat": Streaming(self.chat),
            b"/t.T/Flood": Streaming(self.flood),
        }

    def echo(self, call: Call, request: bytes) -> None:
        self.calls.append(call.metadata)
        call.reply(request)

    def bad(self, call: Call, request: bytes) -> None:
        detail = status_pb2.Status()
        detail.details.add(type_url="type.googleapis.com/x", value=b"v")
        raise InvalidArgument("", "nö: 100 %\n", (detail.details[0].SerializeToString(),))

    async def slow(self, call: Call, request: bytes) -> bytes:
        try:
            await asyncio.sleep(float(request))
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return b"done"

    def chat(self, stream: StreamingCall) -> None:
        stream.on_message = stream.send
        stream.on_end = stream.finish
        stream.on_cancel = self.cancelled.set

        def drain() -> None:
            self.drained.set()
            stream.finish(SyncpointError(Code.UNAVAILABLE, "again"))

        stream.on_drain = drain

    def flood(self, stream: StreamingCall) -> None:
        left = [1000]

        def pump() -> None:
            while left[0] and stream.writable:
                stream.send([left[0].to_bytes(4, "big"), bytes(99_996)])
                left[0] -= 1
            if not left[0]:
                stream.finish()

        stream.on_writable = pump
        pump()


class Running:
    """Our server in a thread of its own."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.service = Service()
        self._tls = tls
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._main()))
        self._thread.start()
        assert self._ready.wait(20)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.server: Server = await serve(self.service.methods, tls=self._tls)
        self._ready.set()
        await self._stop.wait()

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def do(self, work: Callable[[], Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(20)

    def stop(self) -> None:
        self.do(self.server.close)
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert self.server.stats["connections"] == self.server.stats["held"] == 0


@pytest.fixture
def running() -> Iterator[Running]:
    server = Running()
    yield server
    server.stop()


@pytest.fixture
def channel(running: Running) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(running.target, BIG) as made:
        yield made


def status(call: Callable[[], Any]) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


def test_unary(channel: grpc.Channel) -> None:
    echo = channel.unary_unary("/t.T/Echo")
    for size in (0, 1, 16_379, 16_384, 100_000, 10_000_000, 20 << 20):
        assert echo(bytes(size), timeout=30) == bytes(size)
    pending = [echo.future(b"%d" % i) for i in range(2000)]
    assert [call.result(30) for call in pending] == [b"%d" % i for i in range(2000)]


def test_many_large_requests_at_once(channel: grpc.Channel) -> None:
    """More than the windows and their budget hold at a time: they take turns and all come through."""
    echo = channel.unary_unary("/t.T/Echo")
    body = bytes(9_999_990)
    pending = [echo.future(body + b"%d" % i, timeout=60) for i in range(10)]
    assert [call.result(60)[9_999_990:] for call in pending] == [b"%d" % i for i in range(10)]


def test_too_large(channel: grpc.Channel) -> None:
    error = status(lambda: channel.unary_unary("/t.T/Echo")(bytes((20 << 20) + 1), timeout=20))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert channel.unary_unary("/t.T/Echo")(b"after") == b"after"


def test_gzip(channel: grpc.Channel) -> None:
    echo = channel.unary_unary("/t.T/Echo")
    for kind in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        assert echo(b"text " * 50_000, compression=kind, timeout=10) == b"text " * 50_000


def test_metadata(running: Running, channel: grpc.Channel) -> None:
    wanted = [("x-goog-request-params", "topic=a%2Fb"), ("x-t-bin", b"\x00\xff\xfe"), ("x-two", "1"), ("x-two", "2")]
    for _ in range(3):
        channel.unary_unary("/t.T/Echo")(b"", metadata=wanted, timeout=10)
    for seen in running.service.calls:
        assert seen[b"x-goog-request-params"] == b"topic=a%2Fb"
        assert seen[b"x-t-bin"] == b"\x00\xff\xfe"
        assert seen[b"x-two"] == b"1,2"
        assert b"grpc-timeout" not in seen


def test_errors(channel: grpc.Channel) -> None:
    error = status(lambda: channel.unary_unary("/t.T/Bad")(b""))
    assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "nö: 100 %\n")
    raw = dict(error.trailing_metadata())["grpc-status-details-bin"]
    reported = status_pb2.Status.FromString(raw)
    assert (reported.code, reported.message, reported.details[0].value) == (3, "nö: 100 %\n", b"v")
    one = channel.unary_unary("/t.T/None")
    many = channel.stream_unary("/t.T/None")
    for call in (lambda: one(b"x"), lambda: many(iter([b"x"] * 3))):
        error = status(call)
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED
        assert "/t.T/None" in error.details()


def test_deadline(running: Running, channel: grpc.Channel) -> None:
    slow = channel.unary_unary("/t.T/Slow")
    assert slow(b"0.01", timeout=10) == b"done"
    assert status(lambda: slow(b"30", timeout=2)).code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert running.service.cancelled.wait(10)


@pytest.mark.parametrize("path", ["/t.T/Slow", "/t.T/Chat"])
def test_cancel(running: Running, channel: grpc.Channel, path: str) -> None:
    if path.endswith("Slow"):
        call: Any = channel.unary_unary(path).future(b"30")
        channel.unary_unary("/t.T/Echo")(b"")
    else:
        call = channel.stream_stream(path)(iter(lambda: b"x", None))
        next(call)
    call.cancel()
    assert running.service.cancelled.wait(10)
    assert channel.unary_unary("/t.T/Echo")(b"ok") == b"ok"


def test_bidi(channel: grpc.Channel) -> None:
    sent = [bytes(i * 997 % 50_000) for i in range(300)]
    assert list(channel.stream_stream("/t.T/Chat")(iter(sent), timeout=30)) == sent


def test_server_stream(channel: grpc.Channel) -> None:
    got = [int.from_bytes(m[:4], "big") for m in channel.unary_stream("/t.T/Flood")(b"", timeout=60)]
    assert got == list(range(1000, 0, -1))


def test_drain(running: Running, channel: grpc.Channel) -> None:
    slow = channel.unary_unary("/t.T/Slow").future(b"0.5", timeout=20)
    chat = channel.stream_stream("/t.T/Chat")(iter(lambda: b"x", None))
    next(chat)
    assert channel.unary_unary("/t.T/Echo")(b"") == b""
    running.do(lambda: running.server.drain(15))
    assert slow.result(20) == b"done"
    assert running.service.drained.is_set()
    assert status(lambda: list(chat)).details() == "again"


# -- TLS -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A key and a certificate for localhost that signs itself."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    alternatives = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    return folder / "key.pem", folder / "cert.pem"


def test_tls(certificate: tuple[Path, Path]) -> None:
    key, cert = certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    running = Running(context)
    try:
        with grpc.secure_channel(
            f"localhost:{running.server.port}", grpc.ssl_channel_credentials(cert.read_bytes()), BIG
        ) as channel:
            assert channel.unary_unary("/t.T/Echo")(bytes(5_000_000), timeout=30) == bytes(5_000_000)
            sent = [bytes(i * 97) for i in range(200)]
            assert list(channel.stream_stream("/t.T/Chat")(iter(sent), timeout=30)) == sent

        async def ours() -> None:
            trust = ssl.create_default_context(cafile=cert)
            channel = Channel("localhost", running.server.port, trust)
            assert len(await channel.unary("/t.T/Echo", bytes(3_000_000), timeout=20)) == 3_000_000
            await channel.close()
            distrust = Channel("localhost", running.server.port, ssl.create_default_context())
            with pytest.raises(SyncpointError, match="CERTIFICATE_VERIFY_FAILED"):
                await distrust.unary("/t.T/Echo", b"", timeout=20)
            await distrust.close()

        uvloop.run(ours())
        asyncio.run(ours())
    finally:
        running.stop()


# -- the other way round -------------------------------------------------------------------------------------------


class Theirs(grpc.GenericRpcHandler):
    """Methods on gRPC's own server."""

    def service(self, details: Any) -> Any:
        def fail(request: bytes, context: Any) -> bytes:
            context.abort(grpc.StatusCode.NOT_FOUND, "nö")
            return b""

        def wait(request: bytes, context: Any) -> bytes:
            done = threading.Event()
            context.add_callback(done.set)
            done.wait(20)
            return b""

        return {
            "/t.T/Echo": grpc.unary_unary_rpc_method_handler(lambda request, context: request),
            "/t.T/Fail": grpc.unary_unary_rpc_method_handler(fail),
            "/t.T/Wait": grpc.unary_unary_rpc_method_handler(wait),
            "/t.T/Chat": grpc.stream_stream_rpc_method_handler(lambda requests, context: requests),
        }.get(details.method)


def test_our_channel_with_their_server() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[Theirs()], options=BIG)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    async def main() -> None:
        channel = Channel("127.0.0.1", port)
        for size in (0, 1, 100_000, 10_000_000):
            assert await channel.unary("/t.T/Echo", bytes(size), timeout=30) == bytes(size)
        many = await asyncio.gather(*(channel.unary("/t.T/Echo", b"%d" % i, timeout=30) for i in range(500)))
        assert many == [b"%d" % i for i in range(500)]
        for path, code, timeout in (
            ("/t.T/Fail", Code.NOT_FOUND, 10), ("/t.T/None", Code.UNIMPLEMENTED, 10),
            ("/t.T/Wait", Code.DEADLINE_EXCEEDED, 0.2),
        ):  # fmt: skip
            with pytest.raises(SyncpointError) as caught:
                await channel.unary(path, b"", timeout=timeout)
            assert caught.value.code == code
        stream = channel.stream("/t.T/Chat", timeout=30)
        for i in range(100):
            await stream.send(bytes(i * 1000))
            assert await stream.receive() == bytes(i * 1000)
        await stream.end()
        assert await stream.receive() is None
        await channel.close()

    try:
        uvloop.run(main())
    finally:
        server.stop(0).wait(10)
