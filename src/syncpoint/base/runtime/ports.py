"""Free ports, for callers that must know an address before anything listens there.

Place: under the cluster of one machine (`programs.clusters.local`) and the servers of tests. SYNCPOINT_PORTS=FIRST-LAST
in the environment says which ports there are to choose from, so that several who start and stop servers on one machine
keep out of each other's way.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST = 10_240
_given: set[int] = set()


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` different TCP ports nobody listens on, below the range the system takes outgoing ports from.

    From inside that range a client that keeps reconnecting to a killed server can be given the server's own port and
    connect to itself, and the restarted server finds its port taken. One that was given earlier, and where nobody
    listens yet, is not given again while there are others. A port may be taken between this call and its use, so the
    caller has to be ready to try another. Raises `OSError` when there are not enough, and `ValueError` for a
    SYNCPOINT_PORTS that is no range.
    """
    tries = 100 + 4 * count
    fresh, given = ([port for port in _candidates() if (port in _given) is before] for before in (False, True))
    found: list[int] = []
    for port in (one for some in (fresh, given) for one in random.sample(some, min(len(some), tries))):
        if len(found) == count:
            break
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((host, port))
                found.append(port)
    if len(found) < count:
        raise OSError(f"{len(found)} of {count} free ports found on {host}")
    _given.update(found)
    return found


def _candidates() -> range:
    given = os.environ.get("SYNCPOINT_PORTS", "")
    if given:
        first, _, last = given.partition("-")
        return range(int(first), int(last) + 1)
    low = 32_768
    with contextlib.suppress(OSError, ValueError, IndexError):
        low = int(_RANGE.read_text().split()[0])
    return range(_FIRST, low) if low > _FIRST + 1000 else range(_FIRST, 32_768)
