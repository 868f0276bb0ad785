"""Frames over a socket whose bytes come in any portions, or not at all."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from syncpoint.log.diskserver.protocol import LENGTHS, REPLY_HEAD, Reply, decode_reply, encode_reply
from syncpoint.log.diskserver.sockets import FrameReader, send_frame, wait_at_most

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def frame(payload: bytes) -> bytes:
    return b"".join(encode_reply(Reply(a=7, payload=payload)))


def read(sock: socket.socket, sizes: list[int]) -> list[bytes]:
    reader = FrameReader(sock)
    head, payload = reader.read_head(REPLY_HEAD)
    pieces: list[bytes] = []
    reader.read_cut(payload, sizes, pieces.append)
    assert decode_reply(head, b"").a == 7
    assert all(type(piece) is bytes for piece in pieces)
    return pieces


@pytest.mark.parametrize(
    ("sizes", "pieces"),
    [
        ([], [b"0123456789"]),
        ([4, 0, 6], [b"0123", b"", b"456789"]),
        ([8, 8, 8], [b"01234567", b"89", b""]),
        ([3, 3], [b"012", b"345", b"6789"]),
    ],
)
@pytest.mark.parametrize("portion", [1, 7, 1000])
@pytest.mark.parametrize("seconds", [None, 60.0])
def test_a_payload_is_received_in_the_pieces_asked_for(
    pair: Pair, sizes: list[int], pieces: list[bytes], portion: int, seconds: float | None
) -> None:
    here, there = pair
    if seconds is not None:
        wait_at_most(here, seconds)
    sent = frame(b"0123456789") + frame(b"")

    def send() -> None:
        for at in range(0, len(sent), portion):
            there.sendall(sent[at : at + portion])

    sender = threading.Thread(target=send)
    sender.start()
    assert read(here, sizes) == pieces
    assert read(here, []) == []
    sender.join()


def test_large_pieces_arrive_whole(pair: Pair) -> None:
    here, there = pair
    wait_at_most(here, 60.0)
    payload = bytes(range(256)) * 8192
    sender = threading.Thread(target=send_frame, args=(there, encode_reply(Reply(a=7, payload=payload))))
    sender.start()
    assert read(here, [1 << 20, 100_000]) == [payload[: 1 << 20], payload[1 << 20 :][:100_000], payload[1148576:]]
    sender.join()


@pytest.mark.parametrize("came", [0, 5, LENGTHS.size + REPLY_HEAD, LENGTHS.size + REPLY_HEAD + 2])
def test_a_frame_that_does_not_come_whole_is_an_error(pair: Pair, came: int) -> None:
    here, there = pair
    wait_at_most(here, 0.02)
    there.sendall(frame(b"0123456789")[:came])
    with pytest.raises(TimeoutError):
        read(here, [5, 5])
    there.sendall(frame(b"0123456789")[:came])
    there.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionError):
        FrameReader(here).read_head(200)


def test_a_reader_that_takes_nothing_is_an_error(pair: Pair) -> None:
    here, _ = pair
    wait_at_most(here, 0.02)
    with pytest.raises(TimeoutError):
        send_frame(here, [bytes(64 << 20)])


def test_a_head_of_another_size_is_no_reply(pair: Pair) -> None:
    here, there = pair
    there.sendall(LENGTHS.pack(REPLY_HEAD - 1, 1) + bytes(REPLY_HEAD))
    with pytest.raises(ValueError, match="head"):
        read(here, [])
