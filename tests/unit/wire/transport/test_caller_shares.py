"""One caller that begins much and finishes nothing leaves room to the others."""

from __future__ import annotations

from typing import Any

import pytest

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.transport.caller_shares import NAMED_BYTES, CallerShares, Holding
from syncpoint.wire.transport.calls import CallContext, Unary
from syncpoint.wire.transport.limits import MIB, TransportLimits

HELD = 64 * MIB
HALF = 5_000_000  # of a message of 10 MB


def shown(call: CallContext) -> str:
    return call.metadata.get(b"authorization", b"").decode()


def begin(harness: Any, peer: Any, *extra: tuple[str, str], pieces: int = HALF) -> int:
    """A stream, and half of its message."""
    sid = int(peer.open("/t.T/Hold", *extra))
    body = harness.grpc(bytes(2 * HALF))[:pieces]
    for at in range(0, len(body), 65_536):
        peer.data(sid, body[at : at + 65_536])
    return sid


def refused(peer: Any, sids: list[int]) -> list[int]:
    """Those of them that failed, and why."""
    found, got = [], peer.read()
    for sid in sids:
        own = [one for one in got if one.sid == sid]
        if any(one.kind == 1 for one in own):
            fields = peer.answer(sid, own)[1]
            assert fields["grpc-status"] == "8", fields
            assert "Too much unfinished data of" in fields["grpc-message"]
            assert "A caller may not hold more than what is left for the others" in fields["grpc-message"]
            found.append(sid)
    return found


def server_of(harness: Any, *, named: bool = True) -> Any:
    limits = TransportLimits(held_bytes=HELD, receive_extra_bytes=HELD, connection_window_bytes=2 * HELD)
    peer = harness.Peer({b"/t.T/Hold": Unary(lambda call, request: call.reply(b""))}, limits)
    peer.server.bound_callers(shown if named else None)
    return peer.server


def test_who_sends_halves_over_many_connections_is_refused_and_others_are_not(harness: Any) -> None:
    server = server_of(harness)
    evil = ("authorization", "evil")
    peers = [harness.Peer({}, server=server) for _ in range(6)]
    began = [(peer, [begin(harness, peer, evil) for _ in range(2)]) for peer in peers]
    failed = sum(len(refused(peer, sids)) for peer, sids in began)
    assert failed >= 4
    assert HELD // 3 < server.shares.of["evil"] <= HELD // 2 + 65_536
    good = harness.Peer({}, server=server)
    sids = [begin(harness, good, ("authorization", "good")) for _ in range(2)]
    assert refused(good, sids) == []
    assert server.shares.of["good"] == pytest.approx(2 * HALF, abs=100)
    for peer in [*peers, good]:
        peer.lose()
    assert (server.shares.held, server.shares.of, server.stats["held"]) == (0, {}, 0)


def test_without_names_the_address_is_who_calls(harness: Any) -> None:
    server = server_of(harness, named=False)
    peers = [harness.Peer({}, server=server) for _ in range(6)]
    began = [(peer, [begin(harness, peer) for _ in range(2)]) for peer in peers]
    assert sum(len(refused(peer, sids)) for peer, sids in began) >= 4
    assert len(server.shares.of) == 1


def test_one_message_of_any_size_that_fits_comes_in_and_gives_back_what_it_held(harness: Any) -> None:
    server = server_of(harness)
    peer = harness.Peer({}, server=server)
    sid = peer.call(bytes(10_000_000), "/t.T/Hold", ("authorization", "good"))
    assert peer.answer(sid)[1]["grpc-status"] == "0"
    assert server.shares.of == {}


def too_much(one: Holding) -> SyncpointError | None:
    try:
        one.hold(NAMED_BYTES)
    except SyncpointError as error:
        return error
    return None


def test_a_share_is_what_is_left_and_each_that_comes_has_some() -> None:
    shares = CallerShares(100 * NAMED_BYTES)
    held = []
    for number in range(5):
        one = Holding(shares, f"10.0.0.{number}", None)
        while (error := too_much(one)) is None:
            assert one.held < shares.most
        assert error.code is Code.RESOURCE_EXHAUSTED
        assert f"of 10.0.0.{number} is being received" in error.message
        one.hold(-NAMED_BYTES)  # the request that failed
        held.append(one.held // NAMED_BYTES)
    assert held == sorted(held, reverse=True)
    assert held[0] == 50
    assert held[-1] > 0


def test_nobody_is_named_for_what_is_small_and_once_for_what_is_large() -> None:
    asked: list[str] = []

    def name() -> str:
        asked.append("asked")
        return ""

    one = Holding(CallerShares(100 * NAMED_BYTES), "10.0.0.1", name)
    one.hold(NAMED_BYTES)
    assert asked == []
    for _ in range(5):
        one.hold(NAMED_BYTES)
    assert asked == ["asked"]
    one.hold(-one.held)
    one.hold(2 * NAMED_BYTES)
    assert len(asked) == 2, "another request may be of somebody else"
