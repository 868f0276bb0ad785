"""Listeners of the deployment are no targets, however they are written."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.broker.push.addresses import Vetting, networks
from syncpoint.broker.push.own_endpoints import OwnEndpointRefused, OwnEndpoints
from syncpoint.broker.push.push_config import endpoint_of

OURS = ["127.0.0.1:2379", "storage-1.internal:7000", "10.0.0.1:443"]


class Names:
    def __init__(self, **found: list[str] | OSError) -> None:
        self.found, self.asked = found, 0

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        found = self.found[host.replace(".", "_")]
        if isinstance(found, OSError):
            raise found
        return found


def refused(own: Sequence[str], address: str, port: int, names: Names | None = None) -> bool:
    try:
        asyncio.run(OwnEndpoints(lambda: own).check("host", [address], port, (names or Names()).resolve))
    except OwnEndpointRefused:
        return True
    return False


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.9.9.9", "0.0.0.0", "::", "::1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1",
     "2002:7f00:1::", "::ffff:0:127.0.0.1"],
)  # fmt: skip
def test_an_address_of_loopback_is_known_in_every_spelling(address: str) -> None:
    assert refused(["127.0.0.1:2379"], address, 2379)
    assert not refused(["127.0.0.1:2379"], address, 2380)


def test_other_machines_are_known_by_their_addresses() -> None:
    own = ["10.0.0.1:7000", "[fd00::5]:7001"]
    assert refused(own, "10.0.0.1", 7000)
    assert refused(own, "::ffff:10.0.0.1", 7000)
    assert refused(own, "fd00::5", 7001)
    assert not refused(own, "10.0.0.2", 7000)
    assert not refused(own, "10.0.0.1", 7001)


def test_one_that_listens_everywhere_is_on_any_host_of_ours() -> None:
    own = ["0.0.0.0:9090", "10.0.0.1:7000"]
    assert refused(own, "127.0.0.1", 9090)
    assert refused(own, "10.0.0.1", 9090)
    assert not refused(own, "10.0.0.2", 9090)


def test_one_that_listens_everywhere_is_on_every_address_of_this_machine() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("this machine has no address but loopback")
        mine = probe.getsockname()[0]
    assert refused(["0.0.0.0:9090"], mine, 9090)
    assert refused(["[::]:9090"], mine, 9090)


def test_names_of_ours_are_looked_up_and_unknown_is_not_absent() -> None:
    names = Names(etcd_internal=["10.0.0.7"])
    assert refused(["etcd.internal:2379"], "10.0.0.7", 2379, names)
    assert not refused(["etcd.internal:2379"], "10.0.0.8", 2379, names)
    silent = Names(etcd_internal=socket.gaierror(socket.EAI_AGAIN, "again"))
    assert refused(["etcd.internal:2379"], "10.0.0.8", 2379, silent)
    gone = Names(etcd_internal=socket.gaierror(socket.EAI_NONAME, "none"))
    assert not refused(["etcd.internal:2379"], "10.0.0.8", 2379, gone)


def test_nothing_is_looked_up_for_ports_that_are_not_ours() -> None:
    names = Names()
    assert not refused(["etcd.internal:2379"], "10.0.0.8", 443, names)
    assert names.asked == 0


def test_a_listener_that_opened_later_counts() -> None:
    listening: list[str] = []
    own = OwnEndpoints(lambda: listening)

    async def check() -> None:
        await own.check("host", ["127.0.0.1"], 8085, Names().resolve)

    asyncio.run(check())
    listening.append("127.0.0.1:8085")
    with pytest.raises(OwnEndpointRefused, match="leads back to this deployment"):
        asyncio.run(check())


def test_a_name_that_comes_to_be_there_counts_at_once() -> None:
    names = Names(etcd_internal=socket.gaierror(socket.EAI_NONAME, "none"))
    own = OwnEndpoints(lambda: ["etcd.internal:2379"])

    async def both() -> None:
        await own.check("host", ["10.0.0.7"], 2379, names.resolve)
        names.found["etcd_internal"] = ["10.0.0.7"]
        with pytest.raises(OwnEndpointRefused, match="leads back to this deployment"):
            await own.check("host", ["10.0.0.7"], 2379, names.resolve)

    asyncio.run(both())


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:2379/v3/kv/put", "http://localhost:2379/", "http://[::ffff:7f00:1]:2379/",
        "http://0.0.0.0:2379/", "https://storage-1.internal:7000/x", "https://STORAGE-1.internal:7000",
        "storage-1.internal:7000", "127.0.0.1:2379", "https://10.0.0.1/",
    ],
)  # fmt: skip
def test_what_is_written_is_known_before_anything_is_sent(url: str) -> None:
    assert OwnEndpoints(lambda: OURS).certain_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:2380/", "https://storage-2.internal:7000/", "https://elsewhere.example/", "http://[", "",
        "file:///srv/archive", "s3://archive/folder", "memory://",
    ],
)  # fmt: skip
def test_what_is_somewhere_else_or_nowhere_is_not_refused(url: str) -> None:
    assert not OwnEndpoints(lambda: OURS).certain_url(url)


def test_one_that_listens_everywhere_is_known_by_the_names_of_all() -> None:
    own = OwnEndpoints(lambda: ["0.0.0.0:9090", "worker-1.internal:7000"])
    assert own.certain("localhost", 9090)
    assert own.certain("127.0.0.1", 9090)
    assert own.certain("worker-1.internal", 9090)
    assert not own.certain("worker-2.internal", 9090)


def test_a_subscription_is_not_made_to_push_there() -> None:
    vetting = Vetting(networks(["loopback"]), OwnEndpoints(lambda: ["127.0.0.1:2379"]))
    for url in ("http://localhost:2379/v3/kv/put", "http://127.0.0.1:2379/"):
        with pytest.raises(InvalidArgument, match="leads back to this deployment"):
            endpoint_of(url, vetting)
    assert endpoint_of("http://localhost:2380/x", vetting).port == 2380
