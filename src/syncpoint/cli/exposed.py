"""What a listener must have before others than programs of this machine may reach it.

Place: asked by `serve` and `run` before anything starts.
Promise: a listener that lets in whoever reaches it is opened only by who says that it is meant, and then with a
warning.
"""

from __future__ import annotations

import ipaddress

from syncpoint.cli.errors import Problem


def loopback(host: str) -> bool:
    """Whether only programs of this machine reach what listens there, as far as the name reports."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def warning(host: str, *, tls: bool, known: bool, insecure: bool, ways: str) -> str:
    """What to say of a listener; "" of one that is as it should be. `known`: callers must show who they are; `ways`:
    what to give instead. Raises `Problem` for the others, unless that is meant (`insecure`).
    """
    if loopback(host) or (tls and known):
        return ""
    lack = "connections are not encrypted" if known else "there is no access control: who reaches the port may do all"
    if not insecure:
        raise Problem(f"{host} is not this machine alone, and {lack}", ways, exit_code=2)
    return f"Warning: {host} is not this machine alone, and {lack}."
