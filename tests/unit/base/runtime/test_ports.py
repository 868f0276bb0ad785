"""Ports that nobody listens on: each given once, within a range that the environment may name."""

from __future__ import annotations

import socket

import pytest

from syncpoint.base.runtime import ports
from syncpoint.base.runtime.ports import free_ports


@pytest.fixture(autouse=True)
def own_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCPOINT_PORTS", "20000-20999")
    monkeypatch.setattr(ports, "_given", set())


def test_what_was_given_is_not_given_again_before_anybody_listens_there() -> None:
    found = [port for _ in range(8) for port in free_ports(100)]
    assert len(set(found)) == len(found) == 800
    assert all(20_000 <= port <= 20_999 for port in found)
    assert len(set(free_ports(300))) == 300  # there are too few others


def test_where_somebody_listens_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        monkeypatch.setenv("SYNCPOINT_PORTS", f"{number}-{number}")
        with pytest.raises(OSError, match="0 of 1 free ports"):
            free_ports(1)
