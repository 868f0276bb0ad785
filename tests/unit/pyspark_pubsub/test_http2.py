"""The blocking client against the project's own server, against grpcio, and against peers that do odd things."""

import contextlib
import pickle
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from hpack import Decoder
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_pubsub import rpc
from pyspark_pubsub.errors import (
    DEADLINE_EXCEEDED,
    INTERNAL,
    NOT_FOUND,
    UNAUTHENTICATED,
    UNAVAILABLE,
    CallError,
    OptionError,
)
from pyspark_pubsub.http2 import BlockingConnection, frame, header_block
from pyspark_pubsub.options import ServerAccess
from pyspark_pubsub.rpc import BlockingChannel, close_idle, pb
from syncpoint.base.model.errors import Code
from syncpoint.testing.rigs.certificates import Authority
from syncpoint.wire.protobuf import methods
from tests.unit.pyspark_pubsub.pubsub_twin import TOPIC, Running, Twin, failure


def plain(size: int) -> memoryview:
    return memoryview(bytearray(size))


def access(endpoint: str, **more: object) -> ServerAccess:
    return ServerAccess((endpoint,), **({"patience_seconds": 0.0, "call_seconds": 20.0} | more))  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.lists(st.tuples(st.from_regex(r"[a-z-]{1,200}", fullmatch=True), st.text("abc/:", max_size=400)), max_size=5))
def test_headers_are_read_by_hpack(headers):
    encoded = [(name.encode(), value.encode()) for name, value in headers]
    assert [tuple(pair) for pair in Decoder().decode(header_block(encoded), raw=True)] == encoded


def test_a_call_and_its_error(running):
    channel = BlockingChannel(access(running.endpoint))
    answer = pb.Positions.FromString(channel.call(methods.LOG_READER.GetPositions, pb.GetPositionsRequest(topic=TOPIC)))
    assert [source.source for source in answer.sources] == [1]
    with pytest.raises(CallError, match="NOT_FOUND: There is no topic x") as caught:
        channel.call(methods.LOG_READER.GetPositions, pb.GetPositionsRequest(topic="x"))
    assert caught.value.code == NOT_FOUND


def test_frames_of_many_megabytes_both_ways(running):
    """Larger than any window and any frame of either side."""
    running.twin.fill(3, size=9_000_000)
    channel = BlockingChannel(access(running.endpoint))
    request = pb.ReadRangeRequest(topic=TOPIC, source=1, end=3, columns=[4], frame_bytes=1)
    frames = [pb.ReadFrame.FromString(bytes(f)) for f in channel.frames(methods.LOG_READER.ReadRange, request, plain)]
    assert [frame.next_offset for frame in frames] == [1, 2, 3]
    assert all(len(frame.batch) > 9_000_000 for frame in frames)
    upload = channel.upload(methods.EPOCH_WRITER.Stage)
    try:
        header = pb.StageHeader(run=pb.Run(query="q", run="r"), attempt="a")
        upload.send([pb.StageRequest(header=header).SerializeToString()])
        for one in frames:
            staged = pb.StageFrame(topic=TOPIC, columns=[4], batch=one.batch)
            upload.send([pb.StageRequest(frame=staged).SerializeToString()])
        assert pb.StageResponse.FromString(upload.finish()).bytes == 27_000_000
    finally:
        upload.close()


def test_a_stream_given_up_leaves_the_next_call_alone(running):
    running.twin.fill(1000, size=10_000)
    channel = BlockingChannel(access(running.endpoint))
    request = pb.ReadRangeRequest(topic=TOPIC, source=1, end=1000, columns=[4], frame_bytes=20_000)
    frames = channel.frames(methods.LOG_READER.ReadRange, request, plain)
    next(frames)
    frames.close()
    assert channel.call(methods.LOG_READER.GetPositions, pb.GetPositionsRequest(topic=TOPIC))


def test_connections_are_kept_and_a_dead_one_is_replaced(running):
    channel = BlockingChannel(access(running.endpoint, patience_seconds=20.0))
    for _ in range(5):
        channel.call(methods.LOG_READER.GetPositions, pb.GetPositionsRequest(topic=TOPIC))
    assert running._server.stats["connections"] == 1
    running.stop()
    running.again()
    channel.call(methods.LOG_READER.GetPositions, pb.GetPositionsRequest(topic=TOPIC))


def test_unavailable_is_tried_again_where_that_does_no_harm(running):
    running.twin.failures = [failure(Code.UNAVAILABLE, "not now")] * 2
    channel = BlockingChannel(access(running.endpoint, patience_seconds=20.0))
    channel.call(methods.LOG_READER.GetPositions, pb.GetPositionsRequest(topic=TOPIC))
    assert running.twin.calls["GetPositions"] == 3
    running.twin.failures = [failure(Code.UNAVAILABLE, "not now")]
    with pytest.raises(CallError, match="UNAVAILABLE: not now"):
        channel.call(methods.LOG_READER.GetPositions, pb.GetPositionsRequest(topic=TOPIC), idempotent=False)
    assert running.twin.calls["GetPositions"] == 4


def test_nobody_there_says_so_and_names_the_option():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, not listening
        channel = BlockingChannel(access(f"127.0.0.1:{held.getsockname()[1]}"))
        with pytest.raises(CallError, match=r"No connection .*Connection refused.*patienceSeconds") as caught:
            channel.call(methods.LOG_READER.GetPositions, pb.GetPositionsRequest())
    assert caught.value.unsent


def test_a_second_endpoint_is_tried(running):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        first = f"127.0.0.1:{held.getsockname()[1]}"
        channel = BlockingChannel(ServerAccess((first, running.endpoint), patience_seconds=0.0))
        channel.call(methods.LOG_READER.GetPositions, pb.GetPositionsRequest(topic=TOPIC))


def test_a_silent_server_meets_the_deadline():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(CallError) as caught:
            BlockingChannel(access(endpoint, call_seconds=0.3)).call(
                methods.LOG_READER.GetPositions, pb.GetPositionsRequest()
            )
    assert caught.value.code == DEADLINE_EXCEEDED


def test_a_token_travels_with_every_call(running, tmp_path):
    (tmp_path / "token").write_text("abc\n")
    channel = BlockingChannel(access(running.endpoint, token_file=str(tmp_path / "token")))
    channel.call(methods.LOG_READER.GetPositions, pb.GetPositionsRequest(topic=TOPIC))
    assert running.twin.metadata[-1][b"authorization"] == b"Bearer abc"


def test_tls_with_a_clients_certificate(tmp_path):
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("server")
    mine, my_key = authority.issue("client")
    twin = Twin()
    twin.topic()
    twin.fill(20, size=300_000)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.ca))
    context.load_cert_chain(str(cert), str(key))
    context.verify_mode = ssl.CERT_REQUIRED
    with Running(twin, tls=context) as running:
        good = access(running.endpoint, tls=True, ca=str(authority.ca), cert=str(mine), key=str(my_key))
        request = pb.ReadRangeRequest(topic=TOPIC, source=1, end=20, columns=[4], frame_bytes=2_000_000)
        found = [
            pb.ReadFrame.FromString(bytes(f))
            for f in BlockingChannel(good).frames(methods.LOG_READER.ReadRange, request, plain)
        ]
        assert found[-1].next_offset == 20
        with pytest.raises(CallError, match=r"is not accepted .*See tls.ca") as caught:
            BlockingChannel(access(running.endpoint, tls=True)).call(
                methods.LOG_READER.GetPositions, pb.GetPositionsRequest()
            )
        assert caught.value.code == UNAUTHENTICATED
    with pytest.raises(OptionError, match=r"tls.ca, .*none.pem, cannot be used"):
        rpc.tls_context(access("a:1", tls=True, ca=str(tmp_path / "none.pem")))


def test_a_connection_is_not_carried_over_a_fork(running, monkeypatch):
    channel = BlockingChannel(access(running.endpoint))
    channel.call(methods.LOG_READER.GetPositions, pb.GetPositionsRequest(topic=TOPIC))
    kept = dict(rpc._idle)
    monkeypatch.setattr(rpc.os, "getpid", lambda: -1)
    channel.call(methods.LOG_READER.GetPositions, pb.GetPositionsRequest(topic=TOPIC))
    assert running._server.stats["connections"] == 2
    close_idle()
    monkeypatch.undo()
    rpc._idle.update(kept)


# ------------------------------------------------------------------------------------------------------------- grpcio


@pytest.fixture
def grpcio() -> Iterator[str]:
    """A server of Google's implementation: echoes a request three times, or fails as it is reported."""

    def many(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        for _ in range(3):
            yield request

    def fail(request: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.INTERNAL, "ünfortunate % text")
        return b""

    def count(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        return struct.pack(">Q", sum(len(request) for request in requests))

    handlers = {
        "Many": grpc.unary_stream_rpc_method_handler(many),
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
        "Count": grpc.stream_unary_rpc_method_handler(count),
    }
    size = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(4), options=size)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("x.Y", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


class Raw:
    """A request that is bytes already."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload

    def SerializeToString(self) -> bytes:
        return self.payload


def test_grpcio_streams_and_counts(grpcio):
    channel = BlockingChannel(access(grpcio))
    payload = bytes(range(256)) * 40_000
    assert [bytes(found) for found in channel.frames("/x.Y/Many", Raw(payload), plain)] == [payload] * 3
    upload = channel.upload("/x.Y/Count")
    try:
        for _ in range(5):
            upload.send([b"head", payload, b""])
        assert struct.unpack(">Q", upload.finish()) == (5 * (len(payload) + 4),)
    finally:
        upload.close()


def test_grpcio_errors_arrive_whole(grpcio):
    with pytest.raises(CallError, match="ünfortunate % text") as caught:
        BlockingChannel(access(grpcio)).call("/x.Y/Fail", Raw(b""))
    assert caught.value.code == INTERNAL


# ---------------------------------------------------------------------------------------------- a peer that is played


class Peer:
    """The other end of a connection, played frame by frame."""

    def __init__(self) -> None:
        mine, theirs = socket.socketpair()
        self.sock = theirs
        self.connection = BlockingConnection(mine, "peer:1", time.monotonic() + 10)

    def write(self, *frames: bytes) -> None:
        self.sock.sendall(b"".join(frames))

    def start(self) -> BlockingConnection:
        self.connection.start("/a/b", ())
        return self.connection

    def close(self) -> None:
        self.sock.close()
        self.connection.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    with contextlib.closing(Peer()) as found:
        yield found


HEAD = frame(1, 4, 1, header_block([(b":status", b"200")]))
END = frame(1, 5, 1, header_block([(b"grpc-status", b"0")]))


def test_a_message_in_crumbs_with_padding_pings_and_unknown_frames(peer):
    connection = peer.start()
    message = struct.pack(">BI", 0, 6) + b"abcdef"
    crumbs = [frame(0, 8, 1, b"\x02" + message[i : i + 1] + b"\0\0") for i in range(len(message))]
    peer.write(frame(4, 0, 0), HEAD, frame(6, 0, 0, b"12345678"), frame(0x33, 0, 0, b"?"), *crumbs, END)
    assert connection.receive(plain) == b"abcdef"
    assert connection.receive(plain) is None
    assert connection.usable
    received = peer.sock.recv(10_000)
    assert frame(6, 1, 0, b"12345678") in received
    assert frame(4, 1, 0) in received


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([frame(3, 0, 1, struct.pack(">I", 7))], UNAVAILABLE),
        ([frame(7, 0, 0, struct.pack(">II", 0, 0))], UNAVAILABLE),
        ([frame(1, 5, 1, header_block([(b":status", b"503")]))], UNAVAILABLE),
        ([HEAD, frame(0, 1, 1, struct.pack(">BI", 0, 9) + b"abc")], INTERNAL),
        ([HEAD, frame(0, 0, 1, struct.pack(">BI", 1, 3) + b"abc")], INTERNAL),
        ([frame(1, 4, 1, b"\xff\xff\xff\xff\xff\xff")], INTERNAL),
    ],
)
def test_ends_that_are_no_answer(peer, frames, code):
    connection = peer.start()
    peer.write(*frames)
    with pytest.raises(CallError) as caught:
        list(iter(lambda: connection.receive(plain), None))
    assert caught.value.code == code


def test_a_lost_connection_is_unavailable_and_not_used_again(peer):
    connection = peer.start()
    peer.sock.close()
    with pytest.raises(CallError) as caught:
        connection.receive(plain)
    assert caught.value.code == UNAVAILABLE
    assert not connection.usable


def test_sending_waits_for_the_peers_window(peer):
    connection = peer.start()
    sent = threading.Thread(target=connection.send, args=([bytes(100_000)],), daemon=True)
    sent.start()
    received = 0
    while received < 65_535:  # the windows of a peer that has said nothing yet
        received += len(peer.sock.recv(1 << 20))
    assert sent.is_alive()
    peer.write(frame(8, 0, 0, struct.pack(">I", 1 << 20)), frame(8, 0, 1, struct.pack(">I", 1 << 20)))
    sent.join(10)
    assert not sent.is_alive()


def test_windows_are_opened_again(peer, monkeypatch):
    monkeypatch.setattr("pyspark_pubsub.http2.REFILL", 1000)
    connection = peer.start()
    peer.write(HEAD, frame(0, 0, 1, struct.pack(">BI", 0, 2000) + bytes(2000)), END)
    assert len(connection.receive(plain) or b"") == 2000
    assert frame(8, 0, 1, struct.pack(">I", 2005)) in peer.sock.recv(10_000)


def test_failures_can_be_pickled():
    found = pickle.loads(pickle.dumps(CallError(NOT_FOUND, "no", where="X at y")))
    assert str(found) == str(CallError(NOT_FOUND, "no", where="X at y"))
