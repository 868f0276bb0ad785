"""The metadata store over an etcd whose members are killed and paused, that wants passwords, that speaks TLS."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncpoint.base.runtime.clock import SystemClock
from syncpoint.base.runtime.random import SystemRandom
from syncpoint.catalog.metadata.contract import Event, Indeterminate, Put, Resync, StoreError, StoreUnavailable, absent
from syncpoint.catalog.metadata.etcd import EtcdStore, open_etcd
from syncpoint.catalog.metadata.etcd_client import User
from syncpoint.catalog.metadata.store_client import read_all
from syncpoint.node.cluster import settings
from syncpoint.node.cluster.cluster_environment import ClusterEnvironment, EtcdNetwork
from syncpoint.testing.rigs.certificates import Authority
from syncpoint.testing.rigs.etcd import EtcdCluster, why_not
from syncpoint.testing.rigs.plain_tests import on_loop
from syncpoint.wire.transport.network import TcpNetwork

pytestmark = [pytest.mark.skipif(why_not() is not None, reason=why_not() or ""), pytest.mark.shows("etcd-down")]

CLOCK, RANDOM = SystemClock(), SystemRandom()


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("etcd"), 3) as cluster:
        yield cluster


async def opened(cluster: EtcdCluster, prefix: str, at: int | None = None, user: User | None = None) -> EtcdStore:
    """A store that begins with the member `at`, or any."""
    endpoints = cluster.endpoints
    if at is not None:
        endpoints = endpoints[at:] + endpoints[:at]
    random = SystemRandom() if at is None else First()
    return await open_etcd(endpoints, TcpNetwork(), clock=CLOCK, random=random, user=user, prefix=prefix, deadline_s=10)


class First(SystemRandom):
    """Chance that always takes the first."""

    def randrange(self, start: int, stop: int) -> int:
        return start


@pytest.mark.parametrize("fault", ["kill", "pause"])
@pytest.mark.parametrize("near", [True, False], ids=["its client", "another's client"])
@on_loop
async def test_the_leader_is_lost_while_all_write(*, members: EtcdCluster, fault: str, near: bool) -> None:
    """What was confirmed is there, what was not confirmed is there or not, a watch sees each once, a lease lives on."""
    members.start()
    leader = members.leader()
    prefix = f"{RANDOM.token(4).hex()}/"
    writer = await opened(members, prefix, leader if near else (leader + 1) % 3)
    reader = await opened(members, prefix, leader if near else (leader + 2) % 3)
    lease = await writer.lease(4.0)
    watch = reader.watch("k/", from_revision=1)
    begin = await writer.txn([], [Put("owner", b"", lease.id)])
    confirmed: list[str] = []
    unknown: list[str] = []
    refused: list[str] = []
    end = asyncio.Event()

    async def write(name: str) -> None:
        for i in itertools.count():
            key = f"k/{name}/{i:06}"
            try:
                assert (await writer.txn([absent(key)], [Put(key, b"")])).ok
                confirmed.append(key)
            except Indeterminate:
                unknown.append(key)
            except StoreUnavailable:
                refused.append(key)
            if end.is_set():
                return

    writing = [asyncio.ensure_future(write(str(n))) for n in range(4)]
    await asyncio.sleep(0.5)
    (members.kill if fault == "kill" else members.pause)(leader)
    before = len(confirmed)
    while len(confirmed) < before + 200:
        await asyncio.sleep(0.05)
    if fault == "kill":
        await asyncio.to_thread(members.start)
    else:
        members.resume(leader)
    await asyncio.sleep(0.5)
    end.set()
    await asyncio.gather(*writing)
    items, revision = await read_all(reader, "k/")
    stored = [item.key for item in items]
    assert set(confirmed) <= set(stored) <= set(confirmed) | set(unknown)
    assert not set(refused) & set(stored)
    last = await writer.txn([], [Put("k/end", b"")])
    seen: list[Event] = []
    while not seen or seen[-1].revision < last.revision:
        events = await watch.next()
        assert not isinstance(events, Resync)
        seen += events
    assert [event.revision for event in seen] == sorted({event.revision for event in seen})
    assert sorted(event.key for event in seen) == sorted([*stored, "k/end"])
    assert not lease.lost.is_set()
    found = await reader.get("owner")
    assert found is not None
    assert found.revision == begin.revision
    assert revision <= last.revision + 1
    await watch.close()
    await writer.close()
    await reader.close()


@on_loop
async def test_without_a_majority_nothing_is_said_to_be_done(*, members: EtcdCluster) -> None:
    members.start()
    store = await opened(members, f"{RANDOM.token(4).hex()}/")
    lease = await store.lease(4.0)
    await store.txn([], [Put("owner", b"", lease.id)])
    for number in (0, 1):
        members.pause(number)
    with pytest.raises(StoreError):
        await store.txn([], [Put("a", b"")], deadline_s=1.0)
    with pytest.raises(StoreUnavailable):
        await store.get("a", deadline_s=1.0)
    with pytest.raises(StoreUnavailable):
        await store.counter("c", deadline_s=1.0)
    await lease.lost.wait()
    assert CLOCK.monotonic() >= lease.valid_until()
    for number in (0, 1):
        members.resume(number)
    while True:
        try:
            assert (await store.txn([], [Put("b", b"")])).ok
            break
        except StoreError:
            continue
    await store.close()


@on_loop
async def test_every_member_is_restarted_under_a_watch(*, members: EtcdCluster) -> None:
    members.start()
    store = await opened(members, f"{RANDOM.token(4).hex()}/")
    watch = store.watch("", from_revision=1)
    wanted, got = [], []
    for number in (0, 1, 2):
        members.kill(number)
        key = f"while {number} was away"
        wanted.append(key)
        while True:
            try:
                await store.txn([absent(key)], [Put(key, b"")])
                break
            except (Indeterminate, StoreUnavailable):
                continue
        await asyncio.to_thread(members.start)
    while len(got) < 3:
        events = await watch.next()
        assert not isinstance(events, Resync)
        got += [event.key for event in events]
    assert got == wanted
    await watch.close()
    await store.close()


def test_a_password_is_asked_for(tmp_path: Path) -> None:
    async def main(cluster: EtcdCluster) -> None:
        with pytest.raises(StoreUnavailable, match="denied access"):
            await opened(cluster, "syncpoint/")
        with pytest.raises(StoreUnavailable, match="rejected the user name"):
            await opened(cluster, "syncpoint/", user=User("sync", "wrong"))
        with pytest.raises(StoreUnavailable, match="denied access"):
            await opened(cluster, "others/", user=User("sync", "secret"))
        store = await opened(cluster, "syncpoint/", user=User("sync", "secret"))
        watch = store.watch("", from_revision=1)
        lease = await store.lease(2.0)
        await store.txn([], [Put("a", b"1", lease.id)])
        assert [event.key for event in await watch.next() or ()] == ["a"]
        # Tokens are forgotten by a member that starts again.
        cluster.kill(0)
        cluster.start()
        assert await store.get("a", deadline_s=10.0) is not None
        await store.txn([], [Put("b", b"2")])
        assert [event.key for event in await watch.next() or ()] == ["b"]
        await watch.close()
        await store.close()

    def ask(path: str, **values: object) -> dict[str, str]:
        body = {
            key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for key, value in values.items()
        }
        answer: dict[str, str] = cluster.ask(0, path, json.dumps(body).encode())
        return answer

    with EtcdCluster(tmp_path / "etcd") as cluster:
        ask("/v3/auth/user/add", name="root", password="root")
        ask("/v3/auth/role/add", name="root")
        ask("/v3/auth/user/grant", user="root", role="root")
        ask("/v3/auth/user/add", name="sync", password="secret")
        ask("/v3/auth/role/add", name="sync")
        # Everything that begins with `syncpoint`: the keys, and the identity beside them.
        perm = {"permType": "READWRITE", "key": _text(b"syncpoint"), "range_end": _text(b"syncpoinu")}
        ask("/v3/auth/role/grant", name="sync", perm=perm)
        ask("/v3/auth/user/grant", user="sync", role="sync")
        ask("/v3/auth/enable")
        asyncio.run(main(cluster))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_it_speaks_tls_and_shows_the_certificate_that_is_there_by_then(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "tls"), Authority(tmp_path / "other")
    shown, stranger = authority.issue("node"), other.issue("node")
    content = {"metadata": {"ca_file": "tls/ca.pem", "cert_file": "node.pem", "key_file": "node.key"}}

    def put_down(certificate: Path, key: Path) -> None:
        shutil.copy(certificate, tmp_path / "node.pem")
        shutil.copy(key, tmp_path / "node.key")

    async def refused(endpoints: list[str], network: TcpNetwork) -> None:
        with pytest.raises(StoreUnavailable):
            await open_etcd(endpoints, network, clock=CLOCK, random=RANDOM, deadline_s=1.0)

    async def main(endpoints: list[str]) -> None:
        content["metadata"]["etcd"] = endpoints  # type: ignore[assignment]
        put_down(*shown)
        store = await ClusterEnvironment().metadata(settings.parse(content, tmp_path))
        watch = store.watch("", from_revision=1)
        await store.txn([], [Put("a", b"1")])
        assert [event.key for event in await watch.next() or ()] == ["a"]
        await watch.close()
        await store.close()

        await refused(endpoints, TcpNetwork())
        await refused(endpoints, EtcdNetwork(authority.ca, None, None))
        await refused(endpoints, EtcdNetwork(other.ca, *shown))
        put_down(*stranger)
        network = EtcdNetwork(authority.ca, tmp_path / "node.pem", tmp_path / "node.key")
        await refused(endpoints, network)
        put_down(*shown)
        await (await open_etcd(endpoints, network, clock=CLOCK, random=RANDOM)).close()
        (tmp_path / "node.key").write_text("half a key")
        await (await open_etcd(endpoints, network, clock=CLOCK, random=RANDOM)).close()

    asking = ["--client-cert-auth", "--trusted-ca-file", str(authority.ca)]
    with EtcdCluster(tmp_path / "etcd", certificate=authority.issue("etcd"), arguments=asking) as cluster:
        asyncio.run(main(cluster.endpoints))
