"""What callers may have under way at a gateway, each and all together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from syncpoint.base.model.errors import ResourceExhausted
from syncpoint.front.gateway import caller_bounds
from syncpoint.front.gateway.caller_bounds import CallerBounds

pytestmark = pytest.mark.shows("gateway")


def call(authorization: bytes = b"", peer: str = "10.0.0.1:1") -> Any:
    return SimpleNamespace(metadata={b"authorization": authorization} if authorization else {}, peer=peer)


def test_each_caller_is_bounded_by_what_it_shows() -> None:
    bounds = CallerBounds(2, 100)
    held = [bounds.open_stream(call(b"a")) for _ in range(2)]
    with pytest.raises(ResourceExhausted, match="streams_per_caller"):
        bounds.open_stream(call(b"a"))
    bounds.close_stream(held[0])
    bounds.open_stream(call(b"a"))
    with (
        bounds.sending(call(b"a"), 500),
        pytest.raises(ResourceExhausted, match="bytes_per_caller"),
        bounds.sending(call(b"a"), 1),
    ):
        pass
    with bounds.sending(call(b"a"), 100), bounds.sending(call(peer="10.0.0.1:2"), 100):
        pass
    assert bounds.refused == 2


def test_all_together_are_bounded_whatever_they_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller_bounds, "ALL_STREAMS_MAX", 3)
    monkeypatch.setattr(caller_bounds, "ALL_BYTES_MAX", 300)
    bounds = CallerBounds(2, 200)
    held = [bounds.open_stream(call(b"%d" % number)) for number in range(3)]
    with pytest.raises(ResourceExhausted, match="streams of all callers"):
        bounds.open_stream(call(b"another"))
    for who in held:
        bounds.close_stream(who)
    assert bounds.open_streams == 0
    with (
        bounds.sending(call(b"1"), 200),
        pytest.raises(ResourceExhausted, match="bytes of all callers"),
        bounds.sending(call(b"2"), 101),
    ):
        pass
    with bounds.sending(call(b"2"), 300):
        pass
