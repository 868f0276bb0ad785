"""The deployment's own listeners, where nothing goes for a user, whatever networks the operator opened.

Place: beside `addresses`; asked with the address that a connection is made to, after its name was resolved, and before
that when something is set that would go there, as far as it shows without a name being resolved.
Promise: an address is compared however it is written: mapped or carried in IPv6, unspecified, another address of
loopback. Listeners that are named by a host are looked up; while a name cannot be looked up, its port is refused.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from syncpoint.wire.transport.network import split_address

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses a name stands for. Raises `OSError`."""

REFUSED = "leads back to this deployment, which is not allowed"
_PORTS = {"http": 80, "https": 443, "ftp": 21, "sftp": 22, "ssh": 22}
LOOKED_UP_S = 30.0  # for how long an answer counts
_LAST_FOUR = (IPv6Network("::/96"), IPv6Network("::ffff:0:0:0/96"), IPv6Network("64:ff9b::/96"))


class OwnEndpointRefused(OSError):
    """A connection for a user must not go there. The text is for that user."""


class OwnEndpoints:
    """`listed`: lists where the deployment listens now, as HOST:PORT; asked at each new connection."""

    def __init__(self, *listed: Callable[[], Iterable[str]]) -> None:
        self.listed = list(listed)
        self._found: dict[str, tuple[float, frozenset[str]]] = {}  # of a name: until when, its addresses

    async def check(self, host: str, addresses: Iterable[str], port: int, resolve: Resolve) -> None:
        """Raise `OwnEndpointRefused` if one of the addresses of a host is a listener's of the deployment."""
        listeners = [split_address(one) for listed in self.listed for one in listed()]
        if not any(port == known for _, known in listeners):
            return
        hosts = {known for known, at in listeners if at == port}
        if any(_wildcard(one) for one in hosts):
            hosts |= {known for known, _ in listeners}  # any host of ours may be the one that listens everywhere
        own = await asyncio.gather(*(self._addresses(one, port, resolve) for one in sorted(hosts)))
        known = frozenset().union(*own)
        here = any(_wildcard(one) for one in known)
        for one in addresses:
            address = plain_address(one)
            if any(_same(address, ip_address(other)) for other in known) or (here and _of_this_machine(address, port)):
                raise OwnEndpointRefused(f"{host} port {port} {REFUSED}")

    def certain(self, host: str, port: int) -> bool:
        """Whether a host as it is written, which nobody looks up, is a listener of the deployment."""
        listeners = [split_address(one) for listed in self.listed for one in listed()]
        hosts = {known.lower() for known, at in listeners if at == port}
        if not hosts:
            return False
        if any(map(_wildcard, hosts)):
            hosts |= {known.lower() for known, _ in listeners} | {"localhost"}
        address = _written(host.lower())
        if address is None:
            return host.lower() in hosts
        known = [found for one in hosts if (found := _written(one)) is not None]
        return any(_same(address, one) for one in known) or (
            any(map(_wildcard, hosts)) and _of_this_machine(address, port)
        )

    def certain_url(self, url: str) -> bool:
        """Check whether a URL or HOST:PORT is certainly an own endpoint; False for malformed text."""
        try:
            parts = urlsplit(url if "://" in url else f"//{url}")
            host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme, 0)
        except ValueError:
            return False
        return bool(host) and self.certain(host or "", port)

    async def _addresses(self, host: str, port: int, resolve: Resolve) -> frozenset[str]:
        try:
            return frozenset([str(plain_address(host, unspecified=True))])
        except ValueError:
            pass
        now = asyncio.get_running_loop().time()
        until, found = self._found.get(host, (0.0, frozenset()))
        if now < until:
            return found
        try:
            found = frozenset(str(plain_address(one, unspecified=True)) for one in await resolve(host, port))
        except socket.gaierror as error:
            if error.errno != socket.EAI_NONAME:
                raise OwnEndpointRefused(f"port {port} cannot be used now: {host} cannot be resolved") from None
            return frozenset()  # it may be there at the next connection
        except OSError:
            raise OwnEndpointRefused(f"port {port} cannot be used now: {host} cannot be resolved") from None
        self._found[host] = (now + LOOKED_UP_S, found)
        return found


def _written(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host is, if no name has to be looked up for it."""
    if host == "localhost" or host.endswith(".localhost"):
        return IPv4Address("127.0.0.1")
    try:
        return plain_address(host)
    except ValueError:
        return None


def plain_address(text: str, *, unspecified: bool = False) -> IPv4Address | IPv6Address:
    """An address without what carries it. `unspecified`: one that stands for all stays so; else it is what connecting
    to it reaches, which is loopback. Raises `ValueError`."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        carried = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
        if carried is None and int(address) > 1 and any(address in net for net in _LAST_FOUR):
            carried = IPv4Address(int(address) & 0xFFFFFFFF)
        address = carried or address
    if address.is_unspecified and not unspecified:
        return IPv4Address("127.0.0.1") if address.version == 4 else IPv6Address("::1")
    return address


def _wildcard(host: str) -> bool:
    try:
        return plain_address(host, unspecified=True).is_unspecified
    except ValueError:
        return False


def _same(one: IPv4Address | IPv6Address, other: IPv4Address | IPv6Address) -> bool:
    return one == other or (one.is_loopback and other.is_loopback)


def _of_this_machine(address: IPv4Address | IPv6Address, port: int) -> bool:
    """Whether connecting there reaches this machine: the kernel then connects from that address. Nothing is sent."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), port))
        except OSError:
            return False  # there is no way to it
        return ip_address(probe.getsockname()[0].partition("%")[0]) == address
