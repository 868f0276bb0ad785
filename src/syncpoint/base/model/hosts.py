"""Who can reach a host, judged by its name."""

from __future__ import annotations

import ipaddress


def loopback(host: str) -> bool:
    """Whether only programs of this machine reach what listens there, as far as the name shows."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
