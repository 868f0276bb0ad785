"""Official clients at work while the processes of a cluster are restarted, one of each role after the other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.official import CACHE, CLIENTS, prepare
from tests.clients.run import together
from tests.clients.targets import Target

pytestmark = pytest.mark.shows("clients-restart")

ROLES = ("proxy", "router", "publish-forwarder", "subscribe-forwarder", "storage")


def test_none_stops_and_none_loses(cluster: Any) -> None:
    """Streams and publishers of the clients for Python and Node, through the proxy that is restarted first."""

    def restart_one_of_each() -> None:
        for role in ROLES:
            cluster.restart(cluster.names(role)[0])

    CACHE.mkdir(exist_ok=True)
    clients = [client for client in CLIENTS if client.key in ("python", "node") and not prepare(client)]
    assert clients
    target = Target(cluster.proxies[0], {"rolling": restart_one_of_each})
    results = together(target, clients, ["rolling"], PUBLISH_PAUSE_MS="500")
    assert [one["rolling"][0] for one in results.values()] == ["pass"] * len(clients), results
    cluster.stabilize()
