"""The address that a listener is known by: its name where it has one, since the name may lead elsewhere tomorrow."""

from __future__ import annotations

import pytest

from syncpoint.wire.transport.network import address_called


@pytest.mark.parametrize(
    ("asked", "host", "port", "called"),
    [
        ("storage-0.internal.shop.svc:7000", "10.0.1.7", 7000, "storage-0.internal.shop.svc:7000"),
        ("10.0.1.7:7000", "10.0.1.7", 7000, "10.0.1.7:7000"),
        ("[fd00::7]:7000", "fd00::7", 7000, "[fd00::7]:7000"),
        ("127.0.0.1:0", "127.0.0.1", 41_000, "127.0.0.1:41000"),
        ("localhost:0", "127.0.0.1", 41_000, "127.0.0.1:41000"),
        ("0.0.0.0:7000", "0.0.0.0", 7000, "0.0.0.0:7000"),
    ],
)
def test_a_name_that_was_given_with_a_port_is_kept(asked: str, host: str, port: int, called: str) -> None:
    assert address_called(asked, host, port) == called
