"""What a listener needs before programs on other machines may reach it.

Place: asked by `serve` and `run` before anything starts.
Promise: a listener without access control or without TLS is opened to other machines only where the operator confirms
it (`--insecure`), and then with a warning.
"""

from __future__ import annotations

from syncpoint.base.model.hosts import loopback
from syncpoint.programs.cli.errors import Problem


def warning(host: str, *, tls: bool, known: bool, insecure: bool, ways: str) -> str:
    """What to say of a listener; "" of one that is as it should be. `known`: callers must show who they are; `ways`:
    what to give instead. Raises `Problem` for the others, unless that is meant (`insecure`).
    """
    if loopback(host) or (tls and known):
        return ""
    lack = "connections are not encrypted" if known else "there is no access control: any caller may do everything"
    if not insecure:
        raise Problem(f"{host} is reachable from other machines, and {lack}", ways, exit_code=2)
    return f"Warning: {host} is reachable from other machines, and {lack}."
