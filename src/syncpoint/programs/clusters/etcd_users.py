"""The user of an etcd that `cluster up` made: with a password, so that nobody else on the machine is let in.

Place: under `local`, over etcd's JSON interface, before any process connects.
Promise: it may be done again at any time, and is completed where it was broken off.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request

USER = "root"  # whom etcd needs before it asks anybody who they are
_ANSWER_S = 5.0
_EXISTS, _NO_PASSWORDS = ("user name already exists", "role name already exists"), "authentication is not enabled"


def require_password(address: str, password: str, within_s: float) -> None:
    """Make the etcd at HOST:PORT require this password. Raises `OSError`."""
    end = time.monotonic() + within_s
    while True:
        try:
            if _call(address, "authenticate", {"name": USER, "password": password}) != _NO_PASSWORDS:
                return
            for path, content in (
                ("user/add", {"name": USER, "password": password}),
                ("role/add", {"name": USER}),
                ("user/grant", {"user": USER, "role": USER}),
                ("enable", {}),
            ):
                _call(address, path, content)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)  # members of a new etcd have no leader yet


def _call(address: str, path: str, content: dict[str, str]) -> str:
    """The refusal if this was done before; empty: it is done now."""
    request = urllib.request.Request(f"http://{address}/v3/auth/{path}", json.dumps(content).encode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_ANSWER_S):
            return ""
    except urllib.error.HTTPError as error:
        said = error.read(10_000).decode(errors="replace")
        for known in (*_EXISTS, _NO_PASSWORDS):
            if known in said:
                return known
        raise OSError(f"{path}: {said.strip()}") from None
