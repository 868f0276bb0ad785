"""Regions own keys: two real servers, consumers of the official client at both, and copies as the job on Spark makes
them. Each key is delivered at one site, in order, also while keys move and while the sites are parted.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark_pubsub.rpc import close_idle
from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.model.key_homes import slot_of
from syncpoint.programs.federation.acks.ack_rounds import AckRounds
from syncpoint.programs.federation.owned_keys.key_move import KeyMove
from syncpoint.programs.federation.owned_keys.key_shares import balanced
from syncpoint.programs.federation.owned_keys.key_sites import KeySites
from syncpoint.programs.federation.owned_keys.key_watch import KeyWatch
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import parse
from syncpoint.testing.rigs.official import eventually
from tests.integration.conftest import Space
from tests.kit.copying import Copier
from tests.kit.tcp_cut import TcpCut

pytestmark = [pytest.mark.shows("region-keys"), pytest.mark.timeout(300)]

SUB = "billing"
SITES = ("a", "b")


class Regions:
    """A topic that lives at two sites. The federation reaches them through cuts; publishers and consumers do not."""

    def __init__(self, endpoints: list[str], folder: Path, takeover: str = "") -> None:
        self.spaces = [Space(one) for one in endpoints]
        self.spaces[1].project = self.spaces[0].project
        for space in self.spaces:
            topic = space.topic("orders")
            space.subscription(space.topic("dead"), "dead")
            space.subscription(
                topic, SUB, enable_message_ordering=True, ack_deadline_seconds=60, retain_acked_messages=True,
                filter='attributes.kind != "noise"',
                dead_letter_policy={"dead_letter_topic": space.path("topics", "dead"), "max_delivery_attempts": 5},
            )  # fmt: skip
        self.topic, self.name = self.spaces[0].path("topics", "orders"), self.spaces[0].path("subscriptions", SUB)
        self.cuts = [TcpCut(one) for one in endpoints]
        clusters = {name: {"endpoint": cut.endpoint} for name, cut in zip(SITES, self.cuts, strict=True)}
        namespace: dict[str, Any] = {"clusters": list(SITES), "topics": ["orders"], "acks": True}
        if takeover:
            namespace["keys"] = {"takeover": takeover}
        content = {"version": 1, "clusters": clusters, "namespaces": {self.spaces[0].project: namespace}}
        self.federation = parse(content, folder)
        self.links = links_of(self.federation)
        self.got: list[tuple[str, str, int]] = []  # site, key, number, in the order of their delivery
        self.sent: Counter[str] = Counter()
        self.ids_received: Counter[str] = Counter()
        self.records: list[dict[str, Any]] = []
        self.paused, self.exchanging = False, threading.Lock()
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._copy, self._exchange)]

    def _copy(self) -> None:
        """What the job on Spark does."""
        with Servers(patience_s=0.2, call_s=2.0) as servers:
            copiers: dict[str, Copier] = {}
            while not self._ending.wait(0.02):
                try:
                    for flow in servers.flows(self.links):
                        copiers.setdefault(flow.name, Copier(self.federation, flow)).copy(servers)
                except Exception:
                    copiers.clear()  # parted: the next try begins anew where the target is

    def _exchange(self) -> None:
        """What `federation run` does."""
        with Servers(patience_s=0.2, call_s=2.0) as servers:
            watch = KeyWatch(self.links, servers, list, lambda records: setattr(self, "records", records))
            rounds = AckRounds(self.links, servers, watch=watch)
            while not self._ending.wait(0.02):
                with self.exchanging:
                    if not self.paused:
                        rounds.hurry()
                        rounds.step()

    def start(self) -> None:
        for one in self._threads:
            one.start()

    def publish(self, site: int, key: str, count: int = 1) -> None:
        for _ in range(count):
            number = self.sent[key]
            self.sent[key] += 1
            self.spaces[site].publish(self.topic, b"%d" % number, key=key)

    def consume(self) -> None:
        for name, space in zip(SITES, self.spaces, strict=True):
            space.listen(self.name, self._receiver(name))

    def _receiver(self, site: str) -> Any:
        def receive(message: Any) -> None:
            if message.data == b"bad":
                message.nack()
                return
            self.got.append((site, message.ordering_key, int(message.data)))
            self.ids_received[message.message_id] += 1
            message.ack()

        return receive

    def sites(self, servers: Servers) -> KeySites:
        return KeySites(self.links, servers, SUB)

    def move(self, wanted: dict[int, str], drain_s: float = 20.0, **options: bool) -> Any:
        with Servers(patience_s=0.2, call_s=5.0) as servers:
            return KeyMove(self.sites(servers)).move(wanted, drain_s, **options)

    def balance(self) -> None:
        with Servers() as servers:
            sites = self.sites(servers)
            KeyMove(sites).move(balanced(sites.known().newest, dict.fromkeys(SITES, 1.0)), 20.0)

    def owner(self, key: str) -> str:
        with Servers(patience_s=0.2, call_s=2.0) as servers:
            return self.sites(servers).known().newest[slot_of(key.encode())].home

    def all_came(self, within: float = 60.0) -> None:
        eventually(lambda: len(set(self.got_once())) == sum(self.sent.values()), within=within)

    def copied_at_b(self) -> int:
        found = self.spaces[1].asked("GetTopicState", topic=self.topic)
        return sum(one.next_offset for one in found.sources)

    def got_once(self) -> list[tuple[str, int]]:
        return [(key, number) for _, key, number in self.got]

    def check_once_in_order(self) -> None:
        for key, count in self.sent.items():
            numbers = [number for _, one, number in self.got if one == key]
            assert numbers == list(range(count)), f"{key}: {numbers}"

    def close(self) -> None:
        self._ending.set()
        for one in self._threads:
            if one.ident is not None:
                one.join(30)
        for one in (*self.spaces, *self.cuts):
            one.close()
        close_idle()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    from syncpoint.testing.server_process import ServerProcess

    made = [ServerProcess(tmp_path_factory.mktemp(name)) for name in SITES]
    for one in made:
        one.start()
    yield [one.endpoint for one in made]
    for one in made:
        one.close()


@pytest.fixture
def regions(servers: list[str], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Regions]:
    made = Regions(servers, tmp_path, getattr(request, "param", ""))
    yield made
    made.close()


KEYS = [f"customer-{number}" for number in range(8)]


def test_both_regions_consume_and_each_key_is_in_one_in_order(regions: Regions) -> None:
    """While keys move to and fro under load: none is lost, none comes twice, and each key is in order."""
    regions.balance()
    regions.start()
    regions.consume()
    for number, key in enumerate(KEYS):
        regions.publish(number % 2, key, 5)
    regions.all_came()
    regions.check_once_in_order()
    at = {key: {site for site, one, _ in regions.got if one == key} for key in KEYS}
    assert at == {key: {regions.owner(key)} for key in KEYS}
    assert {site for found in at.values() for site in found} == set(SITES)

    ending = threading.Event()

    def load() -> None:
        while not ending.is_set():
            for number, key in enumerate(KEYS):
                regions.publish(number % 2, key)

    publisher = threading.Thread(target=load)
    publisher.start()
    try:
        for number in range(4):
            site = SITES[number % 2]
            moved = regions.move({slot_of(key.encode()): site for key in KEYS[:4]})
            assert (moved.lent, moved.lacking) == (0, 0)
            before = len(regions.got)
            eventually(lambda before=before: len(regions.got) > before + 40)
            assert {one for one, key, _ in regions.got[before:] if key in KEYS[:4]} == {site}
    finally:
        ending.set()
        publisher.join()
    regions.all_came()
    regions.check_once_in_order()
    assert sum(regions.sent.values()) > 200


def test_parted_regions_deliver_their_own_keys_and_hold_the_others(regions: Regions) -> None:
    """Consistent: no key moves from a site that does not answer, and nothing is ever delivered twice."""
    regions.balance()
    regions.start()
    regions.consume()
    for key in KEYS:
        regions.publish(0, key)
    regions.all_came()
    owners = {key: regions.owner(key) for key in KEYS}
    regions.cuts[0].cut()
    with pytest.raises(SyncpointError, match="a does not answer"):
        regions.move({slot_of(key.encode()): "b" for key in KEYS}, 2.0)
    for site in (0, 1):
        for key in KEYS:
            regions.publish(site, f"{key}") if SITES[site] == owners[key] else None
    for key in KEYS:  # published where another site delivers it
        regions.publish(1 - SITES.index(owners[key]), key)
    eventually(lambda: len(regions.got) == 2 * len(KEYS))
    time.sleep(1.0)
    assert len(regions.got) == 2 * len(KEYS), "what is at the other site waits"
    regions.cuts[0].mend()
    regions.all_came()
    regions.check_once_in_order()
    assert {(site, key) for site, key, _ in regions.got} == {(site, key) for key, site in owners.items()}
    assert regions.move({slot_of(key.encode()): "b" for key in KEYS}).lent == 0


@pytest.mark.parametrize("regions", ["1s"], indirect=True)
def test_keys_of_a_region_that_is_cut_off_are_taken_over_and_what_comes_twice_is_listed(regions: Regions) -> None:
    """Available: both sides go on; what both delivered is listed by its id, exactly."""
    regions.balance()
    regions.start()
    regions.consume()
    for key in KEYS:
        regions.publish(0, key)
    regions.all_came()
    at_a = [key for key in KEYS if regions.owner(key) == "a"]
    assert 0 < len(at_a) < len(KEYS)
    with regions.exchanging:
        regions.paused = True  # from here on only copies are made
    for key in at_a:
        regions.publish(0, key, 2)
    regions.all_came()  # at a; nobody brings that to b, which has copies
    eventually(lambda: regions.copied_at_b() == sum(regions.sent.values()))
    regions.cuts[0].cut()
    regions.paused = False
    eventually(lambda: {regions.owner(key) for key in KEYS} == {"b"})
    for key in KEYS:
        regions.publish(1, key)
    eventually(lambda: {key for site, key, _ in regions.got if site == "b"} == set(KEYS))
    alone = sum(site == "a" for site, *_ in regions.got)
    for key in at_a:  # a does not know, and delivers its own keys
        regions.publish(0, key, 3)
    eventually(lambda: sum(site == "a" for site, *_ in regions.got) == alone + 3 * len(at_a))
    regions.cuts[0].mend()
    eventually(lambda: bool(regions.records) and regions.records[-1]["back_at"] > 0, within=60.0)
    regions.all_came()
    (record,) = regions.records
    twice = int(record["twice"])
    assert twice >= 2 * len(at_a)
    eventually(lambda: len(regions.got) - len(set(regions.got_once())) == twice, what="all that comes twice has come")
    assert (record["lost"], record["twice"], record["lent"], len(set(record["ids"]))) == ("a", twice, 0, twice)
    assert Counter(record["ids"]) == regions.ids_received - Counter(regions.ids_received.keys())
    regions.publish(0, at_a[0], 5)
    regions.all_came()
    assert {site for site, key, _ in regions.got[-5:]} == {"b"}
    assert sum(count - 1 for count in Counter(regions.got_once()).values()) == twice


def test_seeks_filters_and_dead_letters_are_those_of_the_owner(regions: Regions) -> None:
    regions.balance()
    regions.start()
    regions.consume()
    for number, key in enumerate(KEYS):
        regions.spaces[number % 2].publish(regions.topic, b"0", key=key, attributes={"kind": "noise"})
        regions.publish(number % 2, key, 2)
    regions.all_came()
    regions.check_once_in_order()
    regions.spaces[1].api.seek({"subscription": regions.name, "time": {"seconds": 1}})
    eventually(lambda: Counter(regions.got_once()) == dict.fromkeys(set(regions.got_once()), 2))
    assert {(site, key) for site, key, _ in regions.got} == {(regions.owner(key), key) for key in KEYS}
    for number, key in enumerate(KEYS):
        regions.spaces[number % 2].publish(regions.topic, b"bad", key=key)
    owners = [SITES.index(regions.owner(key)) for key in KEYS]
    for site, space in enumerate(regions.spaces):
        letters = space.pull(space.path("subscriptions", "dead"), owners.count(site), within=60.0, ack=True)
        assert {one.message.ordering_key for one in letters} == {
            key for key, owner in zip(KEYS, owners, strict=True) if owner == site
        }
        assert not space.pull_once(space.path("subscriptions", "dead"), wait=1.0)
