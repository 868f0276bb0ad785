"""Which addresses a push may go to.

Place: asked for every address a name stands for, right before a connection is made to that address.
Promise: nothing that only this machine or its network can reach is reached for a user, unless the operator named the
network. A name of which one address is refused is refused whole: it may stand for another one a moment later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from syncpoint.broker.push.own_endpoints import OwnEndpoints

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LOOPBACK: tuple[Network, ...] = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
# Beside what the registries call not global: these may carry an address of another kind inside, which nobody vets.
_CARRIERS = tuple(
    IPv6Network(one)
    for one in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16")
)
_REFUSED: tuple[Network, ...] = (
    IPv4Network("100.64.0.0/10"), IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"),
    IPv4Network("198.18.0.0/15"), IPv4Network("240.0.0.0/4"), IPv6Network("fec0::/10"), *_CARRIERS,
)  # fmt: skip


class AddressRefused(OSError):
    """A push must not go there. The text is for the owner of the subscription."""


class Vetting:
    """`allowed`: networks that the operator lets pushes go to, whatever they are. `own`: where nothing goes even so."""

    def __init__(self, allowed: Iterable[Network] = (), own: OwnEndpoints | None = None) -> None:
        self.allowed, self.own = tuple(allowed), own or OwnEndpoints()

    @property
    def loopback(self) -> bool:
        """Whether pushes may go to programs on this machine."""
        return any(net.version == 4 and net.overlaps(LOOPBACK[0]) for net in self.allowed)

    def permits(self, address: Address) -> bool:
        """Whether a push may go to this address."""
        if any(address.version == net.version and address in net for net in self.allowed):
            return True
        if isinstance(address, IPv6Address) and address.scope_id:
            return False  # of one network of this machine
        if address.is_multicast or address.is_unspecified or not address.is_global:
            return False
        return not any(address.version == net.version and address in net for net in _REFUSED)

    def vetted(self, host: str, found: Sequence[str]) -> list[str]:
        """The addresses to connect to, out of what a name stands for. Raises `AddressRefused`."""
        if not found:
            raise AddressRefused(f"{host} has no address")
        addresses = [ip_address(one) for one in dict.fromkeys(found)]
        for address in addresses:
            if not self.permits(address):
                raise AddressRefused(f"{host} resolves to an address that pushes may not go to")
        return [str(one) for one in addresses]


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks as an operator writes them, 10.1.0.0/16; `loopback` is this machine. Raises `ValueError`."""
    found: list[Network] = []
    for text in texts:
        found.extend(LOOPBACK if text == "loopback" else (ip_network(text),))
    return tuple(found)
