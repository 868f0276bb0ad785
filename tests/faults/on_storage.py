"""Scenarios of storage that is away for longer than its lease while owners of chains die.

Chains lie on the same disks in every order of the clusters: what is asked first, and does not answer, must not keep
anybody from asking the others. A ledger of ids says what was confirmed, and in which order of its key.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import grpc

from syncpoint.base.model.cluster import DiskPlace
from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.log.storage.placement import Candidate, Wanted, place
from syncpoint.testing.rigs import official
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf.messages import admin
from tests.faults.net_cluster import NetShape
from tests.faults.stage import Stage, scenario

SHAPE = NetShape(clusters=3, disks=3, forwarders=2, routers=1, proxies=1, servers=2)
DYING, HEIR = "publish-forwarder-1", "publish-forwarder-2"
LEASE_S = 12.0  # more than any lease of a member
SERVED_S = 90.0  # at most, until somebody serves what nobody served
WHOLE_S = 180.0  # at most, until all disks have everything again
KEYS = ("a", "b", "c")


@dataclass
class Ledger:
    """What one topic was confirmed to have taken: message ids in the order of their key, and which of them came."""

    topic: str
    subscription: str
    order: tuple[str, ...]
    confirmed: dict[str, list[str]] = field(default_factory=lambda: {key: [] for key in KEYS})
    came: dict[str, list[str]] = field(default_factory=lambda: {key: [] for key in KEYS})

    def publish(self, api: official.Api) -> float:
        """One message of each key, each until it is confirmed; returns the longest time that one took."""
        longest = 0.0
        for key, ids in self.confirmed.items():
            begun = time.monotonic()
            message = {"data": f"{len(ids)}".encode(), "ordering_key": key}

            def taken(message: dict[str, object] = message) -> str:
                try:
                    return str(api.publish({"topic": self.topic, "messages": [message]}, timeout=10).message_ids[0])
                except grpc.RpcError:
                    return ""

            ids.append(eventually(taken, SERVED_S, f"{self.topic} takes messages with key {key}"))
            longest = max(longest, time.monotonic() - begun)
        return longest

    def receive(self, api: official.Api) -> None:
        """Take until all that was confirmed has come, in the order of its key."""

        def all_came() -> bool:
            try:
                found = api.pull({"subscription": self.subscription, "max_messages": 100}, timeout=10).received_messages
            except grpc.RpcError:
                return False
            for one in found:
                came = self.came[one.message.ordering_key]
                if one.message.message_id not in came:
                    came.append(one.message.message_id)
            if found:
                ids = [one.ack_id for one in found]
                try:
                    api.acknowledge({"subscription": self.subscription, "ack_ids": ids}, timeout=10)
                except grpc.RpcError:
                    return False  # they come again
            return all(set(ids) <= set(self.came[key]) for key, ids in self.confirmed.items())

        eventually(all_came, SERVED_S, f"all of {self.topic} arrives")
        for key, ids in self.confirmed.items():
            known = set(ids)  # a publish whose answer was lost may be there as well
            assert [one for one in self.came[key] if one in known] == ids, f"{self.topic}: key {key} is out of order"


@scenario("zones-away", shape=SHAPE)
def _(stage: Stage) -> None:
    """each zone in turn is away for longer than a lease, then an owner of chains dies that have their disks in every
    order"""
    owners_die(stage, zones(stage))


@scenario("storage-away", shape=SHAPE)
def _(stage: Stage) -> None:
    """each storage process, with some of a zone's disks, is away for longer than a lease, then an owner of chains
    dies"""
    owners_die(stage, [AwayUnit(name, partial(gone, stage, [name]), True) for name in storages(stage)])


@scenario("disks-away", shape=SHAPE)
def _(stage: Stage) -> None:
    """each disk gives EIO, whatever is asked of it, for longer than a lease, then an owner of chains dies"""
    folders = [(name, folder.name) for name, one in storages(stage).items() for folder in one.disks.values()]
    owners_die(stage, [AwayUnit(folder, partial(failing, stage, name, folder), False) for name, folder in folders])


def owners_die(stage: Stage, units: Iterable[AwayUnit]) -> None:
    """Each unit is away, and an owner dies then; it is back, and all disks have everything again."""
    api = official.Api(stage.kit.proxies[0])
    ledgers = in_every_order(stage, api)
    longest = 0.0
    for unit in units:
        with unit.away():
            time.sleep(LEASE_S)
            if unit.process:
                eventually(lambda unit=unit: not present(stage, unit.name), SERVED_S, f"the lease of {unit.name} ended")
            for one in ledgers:
                one.publish(api)
            stage.kit.local.kill(DYING)
            longest = max(longest, *(one.publish(api) for one in ledgers))
            eventually(lambda: adopted(stage), SERVED_S, f"{unit.name} away: all chains of {DYING} have another owner")
            for one in ledgers:
                one.receive(api)
        stage.kit.local.up()
        stage.kit.stabilize(WHOLE_S)
        eventually(lambda: whole(stage), WHOLE_S, f"{unit.name} is back, and all disks have everything")
    confirmed = sum(len(ids) for one in ledgers for ids in one.confirmed.values())
    stage.notes.append(
        f"{confirmed} keyed messages beside the load, in chains of {len({one.order for one in ledgers})} orders;"
        f" longest until one was taken: {longest:.1f} s"
    )
    api.close()


class AwayUnit(NamedTuple):
    """What may be away: its name, what takes it away for a while, and whether it is a process, or several."""

    name: str
    away: Callable[[], AbstractContextManager[None]]
    process: bool


def zones(stage: Stage) -> list[AwayUnit]:
    by_cluster: dict[str, list[str]] = {}
    for name, one in storages(stage).items():
        by_cluster.setdefault(one.cluster, []).append(name)
    return [AwayUnit(f"storage-{zone}", partial(gone, stage, names), True) for zone, names in by_cluster.items()]


def storages(stage: Stage) -> dict[str, Any]:
    """Processes that have disks."""
    return {name: one for name, one in stage.net.settings().processes.items() if one.disks}


@contextmanager
def gone(stage: Stage, names: list[str]) -> Iterator[None]:
    """These processes are killed; they are started by whoever mends what was done in the meantime."""
    for name in names:
        stage.kit.local.kill(name)
    yield


@contextmanager
def failing(stage: Stage, name: str, folder: str) -> Iterator[None]:
    """Whatever is asked of one disk gives EIO."""
    faults = stage.net.faults[name]
    faults.set(*(f"{operation} /{folder}/ 0 -1 eio" for operation in ("write", "sync", "read", "allocate")))
    try:
        yield
    finally:
        faults.set()


def asked(stage: Stage, method: str, request: object) -> Any:
    """One call of syncpoint.admin.v1, again and again until it is answered."""

    def answer() -> Any:
        try:
            return stage.kit.admin(method, request)
        except SyncpointError as error:
            if error.code not in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
                raise
            return None

    return eventually(answer, SERVED_S, f"{method} is answered")


def present(stage: Stage, place: str) -> bool:
    """Whether a storage process of this name, or whose name begins so, is a member."""
    return any(one.name.startswith(place) for one in asked(stage, "ListMembers", admin.ListMembersRequest()).members)


def chains(stage: Stage) -> list[Any]:
    return list(asked(stage, "ListChains", admin.ListChainsRequest()).chains)


def adopted(stage: Stage) -> bool:
    """Whether the heir has all chains of the dead one."""
    return all(one.owner == HEIR for one in chains(stage) if one.home == DYING)


def whole(stage: Stage) -> bool:
    """Whether every disk takes part in every chain on it, and lacks nothing."""
    found = asked(stage, "ListDisks", admin.ListDisksRequest())
    return not found.unknown and not found.under_replicated and all(one.state == admin.Disk.OK for one in found.disks)


def in_every_order(stage: Stage, api: official.Api) -> list[Ledger]:
    """A topic in a chain of `DYING` for each order of the clusters; durability classes are made for them."""
    members = stage.net.settings().processes.items()
    disks = [
        Candidate(DiskPlace(one.cluster, disk, name, one.rack, one.zone), one.region)
        for name, one in members
        for disk in one.disks
    ]
    wanted = set(itertools.permutations(sorted({one.place.cluster for one in disks})))
    ledgers = []
    for number in itertools.count():
        klass = f"order-{number}"
        order = clusters(place(disks, Wanted(), seed=f"{DYING}/{klass}").places)
        if order not in wanted:
            continue
        wish = admin.CreateDurabilityClassRequest(durability_class=admin.DurabilityClass(name=klass))
        asked(stage, "CreateDurabilityClass", wish)
        ledgers.append(in_chain_of_the_dying(stage, api, klass, order))
        wanted.remove(order)
        if not wanted:
            return ledgers
    raise AssertionError


def clusters(places: Iterable[Any]) -> tuple[str, ...]:
    """In which order the clusters of disks come."""
    return tuple(dict.fromkeys(one.cluster for one in places))


def in_chain_of_the_dying(stage: Stage, api: official.Api, klass: str, order: tuple[str, ...]) -> Ledger:
    """A topic of a class whose keyed messages go to the chain that `DYING` has."""

    def made() -> int:
        mine = [one for one in chains(stage) if one.durability_class == klass]
        found = [one for one in mine if one.home == DYING and one.owner == DYING]
        return found[0].number if found and len(mine) == len(stage.kit.names("publish-forwarder")) else 0

    number = eventually(made, 60.0, f"the chains of {klass} are made")
    assert clusters(next(one for one in chains(stage) if one.number == number).disks) == order
    for attempt in itertools.count():
        name = f"{stage.load.project}/topics/{klass}-{attempt}"
        topic = api.create_topic({"name": name}).name
        options = admin.TopicOptions(topic=topic, durability_class=klass)
        wish = admin.UpdateTopicOptionsRequest(options=options, update_mask={"paths": ["durability_class"]})
        asked(stage, "UpdateTopicOptions", wish)
        subscription = api.create_subscription(
            {"name": name.replace("/topics/", "/subscriptions/"), "topic": topic, "enable_message_ordering": True}
        ).name
        ledger = Ledger(topic, subscription, order)
        ledger.publish(api)
        first = admin.GetReceiptRequest(topic=topic, message_id=ledger.confirmed[KEYS[0]][0])
        if asked(stage, "GetReceipt", first).chain == number:
            return ledger
        assert attempt < 20, f"no topic is assigned to chain {number}"
    raise AssertionError
