"""Which addresses pushes go to."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from syncpoint.broker.push.addresses import AddressRefused, Vetting, networks

REFUSED = [
    "127.0.0.1",
    "127.8.9.10",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.127.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.1.2.3",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "fc00::1",
    "fd00::8",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "2606:4700::1111%eth0",
    "ff02::1",
    "ff0e::1",
    "100::1",
]


@pytest.mark.parametrize("address", REFUSED)
def test_what_is_not_public_is_refused(address: str) -> None:
    assert not Vetting().permits(ip_address(address))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.1", "2606:4700::1111", "2a00:1450::1"]
)
def test_public_addresses_are_allowed(address: str) -> None:
    assert Vetting().permits(ip_address(address))


def test_one_refused_address_refuses_the_name() -> None:
    with pytest.raises(AddressRefused):
        Vetting().vetted("e.example", ["8.8.8.8", "127.0.0.1"])
    with pytest.raises(AddressRefused):
        Vetting().vetted("e.example", [])
    assert Vetting().vetted("e.example", ["8.8.8.8", "8.8.8.8", "1.1.1.1"]) == ["8.8.8.8", "1.1.1.1"]


def test_the_operator_lets_pushes_into_networks() -> None:
    vetting = Vetting(networks(["loopback", "10.1.0.0/16"]))
    assert vetting.loopback
    for address in ("127.0.0.1", "::1", "10.1.2.3"):
        assert vetting.permits(ip_address(address))
    for address in ("10.2.0.1", "::ffff:127.0.0.1", "::ffff:10.1.2.3", "169.254.169.254"):
        assert not vetting.permits(ip_address(address))
    assert not Vetting(networks(["10.1.0.0/16"])).loopback
    with pytest.raises(ValueError, match="host bits"):
        networks(["10.1.0.1/16"])
