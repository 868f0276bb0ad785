"""Heads of requests, and the statuses we write."""

from __future__ import annotations

import asyncio
import base64
from urllib.parse import unquote

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import Code, SyncpointError, Unavailable
from syncpoint.wire.protobuf.status import ack_failure
from syncpoint.wire.transport import headers
from syncpoint.wire.transport.calls import Call, Unary
from syncpoint.wire.transport.fields import FieldReader
from syncpoint.wire.transport.server import serve

REQUEST = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/t.T/M"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc+proto"),
]


def read(*extra: tuple[bytes, bytes], size: int = 100) -> headers.RequestHead:
    return headers.read_request([*REQUEST, *extra], size, 1000)


def test_metadata_of_the_caller_is_kept() -> None:
    head = read(
        (b"x-a", b"1"), (b"x-a", b"2"), (b"t-bin", b"AAE"), (b"t-bin", b"Ag==,Aw"), (b"grpc-timeout", b"5S"),
        (b"grpc-encoding", b"gzip"), (b"content-length", b"12"),
    )  # fmt: skip
    assert head.metadata == {b"x-a": b"1,2", b"t-bin": b"\x00\x01,\x02,\x03"}
    assert (head.path, head.timeout_s, head.encoding, head.length, head.grpc) == (b"/t.T/M", 5.0, b"gzip", 12, True)
    assert head.problem is None


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ((b"grpc-timeout", b"soon"), Code.INTERNAL),
        ((b"grpc-encoding", b"snappy"), Code.UNIMPLEMENTED),
        ((b"x-bin", b"*"), Code.INTERNAL),
    ],
)
def test_what_gets_a_status_instead_of_a_call(field: tuple[bytes, bytes], code: Code) -> None:
    problem = read(field).problem
    assert problem is not None
    assert problem.code == code


def test_metadata_above_the_limit_is_refused() -> None:
    problem = read(size=1001).problem
    assert problem is not None
    assert problem.code == Code.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    "field",
    [
        (b"X-Upper", b"1"), (b"connection", b"close"), (b"te", b"gzip"), (b":path", b"/x"), (b":status", b"200"),
        (b"", b"x"), (b"a b", b"x"), (b"x", b"a\nb"), (b"content-length", b"-1"), (b"transfer-encoding", b"chunked"),
    ],
)  # fmt: skip
def test_malformed_requests(field: tuple[bytes, bytes]) -> None:
    with pytest.raises(headers.MalformedHeaders):
        read(field)


@pytest.mark.parametrize("missing", [b":method", b":scheme", b":path"])
def test_missing_pseudo_headers(missing: bytes) -> None:
    with pytest.raises(headers.MalformedHeaders):
        headers.read_request([f for f in REQUEST if f[0] != missing], 100, 1000)


errors = st.builds(
    SyncpointError,
    st.sampled_from([code for code in Code if code]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.lists(st.binary(max_size=100), max_size=3),
)


@given(errors)
def test_a_status_is_read_back(error: SyncpointError) -> None:
    block = headers.status_block(error, 1 << 20)
    reported = headers.error_of(headers.read_response(FieldReader(1 << 20).read(block)[0]))
    assert reported is not None
    assert (reported.code, reported.message, reported.details) == (error.code, error.message, error.details)


@given(st.sampled_from(list(Code)), st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
def test_details_are_a_google_rpc_status(code: Code, text: str) -> None:
    expected = status_pb2.Status(code=code, message=text)
    expected.details.add(type_url="t", value=b"1")
    expected.details.add(type_url="u", value=b"2" * 300)
    details = tuple(detail.SerializeToString() for detail in expected.details)
    raw = headers.pack_details(SyncpointError(code, text, details))
    assert status_pb2.Status.FromString(raw) == expected
    assert headers.unpack_details(expected.SerializeToString()) == details


@given(st.binary(max_size=60))
def test_details_may_be_any_bytes(raw: bytes) -> None:
    headers.unpack_details(raw)


def test_a_status_fits_what_the_peer_takes() -> None:
    error = SyncpointError(Code.INVALID_ARGUMENT, "ä" * 10_000, (b"d" * 20_000,))
    block = headers.status_block(error, 8192)
    assert len(block) < 8192
    reported = headers.error_of(headers.read_response(FieldReader(1 << 20).read(block)[0]))
    assert reported is not None
    assert error.message.startswith(reported.message)
    assert reported.message
    assert reported.details == ()


def test_of_a_message_of_megabytes_only_the_beginning_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error names what a request named; encoding all of that would hold up everybody else."""
    encode, read = headers.percent_encode, list[int]()
    monkeypatch.setattr(headers, "percent_encode", lambda text: (read.append(len(text)), encode(text))[1])
    block = headers.status_block(SyncpointError(Code.NOT_FOUND, "y" * 9_000_000, (b"d" * 9_000_000,)), 1 << 14)
    assert len(block) < 8192
    assert max(read) < 10_000


@pytest.mark.parametrize("ids", [1, 40, 60, 80, 300, 2500])
@pytest.mark.parametrize("list_bytes", [8192, 16_384, 0x7FFFFFFF])
def test_no_failed_acknowledgement_looks_confirmed(ids: int, list_bytes: int) -> None:
    """Official clients in Python confirm acknowledgements whose error has no status that they can read."""
    names = ["A" * 44 + f"{number:04}" for number in range(ids)]
    for error in (ack_failure(names), ack_failure([], unknown=names), Unavailable("ä" * ids)):
        block = headers.status_block(error, list_bytes)
        assert len(block) <= list_bytes // 2
        answer = dict(FieldReader(1 << 24).read(block)[0])
        raw = answer[b"grpc-status-details-bin"]
        status = status_pb2.Status.FromString(base64.b64decode(raw + b"=" * (-len(raw) % 4)))
        assert status.code == int(answer[b"grpc-status"]) == error.code
        assert status.message == unquote(answer[b"grpc-message"].decode())
        for detail in status.details:
            info = error_details_pb2.ErrorInfo()
            assert detail.Unpack(info)
            assert set(info.metadata) == set(names)


@pytest.mark.parametrize("size", [5_500, 6_500, 9_000, 12_000])
def test_the_c_core_of_grpc_takes_each_status_as_it_is(size: int) -> None:
    """Above its soft limit it refuses some by lot, which is another status beside the details of ours."""

    def refuse(call: Call, request: bytes) -> None:
        raise SyncpointError(Code.INVALID_ARGUMENT, "no", (Any(type_url="t", value=bytes(size)).SerializeToString(),))

    async def main() -> set[grpc.StatusCode]:
        server = await serve({b"/t.T/Refuse": Unary(refuse)})
        found = set()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            for _ in range(40):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await channel.unary_unary("/t.T/Refuse")(b"", timeout=60)
                found.add(caught.value.code())
        await server.close()
        return found

    assert asyncio.run(main()) == {grpc.StatusCode.INVALID_ARGUMENT}
