"""A cluster of real processes in the hands of a test: asked, broken and made whole again, under a load that is judged.

`Kit` is the cluster; `Load` is official clients at work with their history; `Prober` measures how long nobody could
publish. Faults live in the tests. Everything runs on loopback; only processes that the kit started are signalled.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import yaml

from syncpoint.base.model.errors import SyncpointError
from syncpoint.front.client.client import Client
from syncpoint.programs.clusters.local import LocalCluster, Shape
from syncpoint.testing.rigs import checkers, official
from syncpoint.testing.rigs.history import History, MessageIdentity, Outcome, seal
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.rigs.workload import LoadPublisher, Receiver
from syncpoint.wire.protobuf.messages import admin

SMALL = Shape(clusters=3, disks=3, forwarders=2, routers=1, proxies=2)
KINDS = {
    "plain": {},
    "ordered": {"enable_message_ordering": True},
    "once": {"enable_exactly_once_delivery": True},
}


class Kit:
    """One running cluster."""

    def __init__(
        self,
        folder: Path,
        shape: Shape = SMALL,
        changes: dict[str, Any] | None = None,
        local: LocalCluster | None = None,
    ) -> None:
        for noisy in ("google", "grpc"):
            logging.getLogger(noisy).setLevel(logging.CRITICAL)
        self.local = local or LocalCluster(folder)
        self.local.create(shape, changes)
        self.proxies: list[str] = []

    def up(self) -> Kit:
        self.proxies = self.local.up()
        self.stabilize()
        return self

    def down(self) -> None:
        self.local.down()

    # -- asking ------------------------------------------------------------------------------------------------------

    def names(self, role: str) -> list[str]:
        """The processes of one role."""
        return [one.name for one in self.local.states() if role in one.roles]

    def admin(self, method: str, request: Any, proxy: int = 0) -> Any:
        """One call of syncpoint.admin.v1 through one proxy."""
        with Client(self.proxies[proxy], timeout_s=5.0, patience_s=5.0) as client:
            return client.call(f"Admin.{method}", request)

    def chains(self, proxy: int = 0) -> list[Any]:
        return list(self.admin("ListChains", admin.ListChainsRequest(), proxy).chains)

    def members(self, proxy: int = 0) -> dict[str, Any]:
        return {one.name: one for one in self.admin("ListMembers", admin.ListMembersRequest(), proxy).members}

    def disks(self) -> list[Path]:
        """The folder of every disk."""
        found = self.local.settings().processes.values()
        return [path for process in found for path in process.disks.values()]

    def disks_holding(self, marker: bytes) -> list[Path]:
        """Disks on which some file holds these bytes now."""
        return [disk for disk in self.disks() if holds(disk, marker)]

    # -- breaking and mending ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def frozen(self, names: Iterable[str] | None = None) -> Iterator[None]:
        """All processes (or these) stand still in the meantime."""
        processes = [(one.name, one.pid) for one in self.local.states() if one.pid is not None]
        chosen = [name for name, _ in processes] if names is None else list(names)
        for name in chosen:
            self.local.pause(name)
        try:
            yield
        finally:
            for name in chosen:
                self.local.resume(name)

    def add_process(self, name: str, role: str, **fields: Any) -> None:
        """One more process in cluster.yaml; start it with `local.start`."""
        path = self.local.settings_path
        content = yaml.safe_load(path.read_text())
        content["processes"][name] = {"roles": [role], "region": "r1", "listen": "127.0.0.1:0", **fields}
        path.write_text(yaml.safe_dump(content, sort_keys=False))

    def restart(self, name: str) -> None:
        self.local.stop(name)
        self.local.start(name)

    def heal(self) -> None:
        """Whatever a test broke runs again."""
        states = self.local.states()
        for one in states:
            if one.state == "paused":
                self.local.resume(one.name)
        if any(one.state == "down" for one in states):
            self.local.up()

    def stabilize(self, within: float = 90.0) -> None:
        """Wait until every process is a member and every chain is open at the process it was made for."""
        wanted = {one.name for one in self.local.states() if "etcd" not in one.roles and one.state == "running"}

        def stable() -> bool:
            time.sleep(0.2)
            try:
                present = {name for name, one in self.members().items() if not one.draining}
                chains = self.chains()
            except SyncpointError:
                return False
            forwarders = {name for name in wanted if "publish-forwarder" in name}
            homes = {one.home for one in chains if one.home == one.owner}
            return wanted <= present and forwarders <= homes and all(one.owner in wanted for one in chains)

        eventually(stable, within, "every process is a member and every chain is at home")


def holds(folder: Path, marker: bytes) -> bool:
    """Whether a file below `folder` holds these bytes. What vanishes in the meantime does not count."""
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                if marker in Path(place, name).read_bytes():
                    return True
            except FileNotFoundError:
                continue
    return False


class Prober(threading.Thread):
    """Publishes one message after the other through one proxy, by plain calls without retries.

    `gap` is the longest time without an answer, from the first call to the end; every error is kept.
    """

    def __init__(self, endpoint: str, topic: str, key: str = "", timeout: float = 60.0) -> None:
        super().__init__(name="prober", daemon=True)
        self.api, self.topic, self.key, self.timeout = official.Api(endpoint), topic, key, timeout
        self.answered: list[float] = []  # when; with its begin before the first one, and its end behind the last one
        self.errors: list[str] = []
        self.stop = threading.Event()

    def run(self) -> None:
        number = 0
        self.answered.append(time.monotonic())
        while not self.stop.wait(0.02):
            body = seal(MessageIdentity(f"prober{self.key}", number))
            number += 1
            request = {"topic": self.topic, "messages": [{"data": body, "ordering_key": self.key}]}
            try:
                self.api.publish(request, timeout=self.timeout)
            except grpc.RpcError as error:
                self.errors.append(f"{error.code().name}: {error.details()}")
            else:
                self.answered.append(time.monotonic())
        self.answered.append(time.monotonic())

    @property
    def gap(self) -> float:
        return max((after - before for before, after in zip(self.answered, self.answered[1:], strict=False)), default=0)

    def end(self) -> float:
        """Stop; returns the gap."""
        self.stop.set()
        self.join()
        self.api.close()
        return self.gap


HELD_S = 20.0  # without any message, before it is looked whether a client holds some back


class Load:
    """Publishers and receivers over all proxies: a plain, an ordered and an exactly-once subscription.

    with Load(kit) as load:
        ...break something...
    load.judge()
    """

    def __init__(
        self,
        kit: Kit,
        *,
        rate: float = 200.0,
        kinds: Iterable[str] = KINDS,
        proxies: Iterable[int] | None = None,
        receivers: int = 1,
        topic: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """`topic`: further fields of it."""
        self.kit, self.history = kit, History()
        self.addresses = kit.proxies if proxies is None else [kit.proxies[n] for n in proxies]
        self.api = official.Api(self.addresses[0])
        self.project = f"projects/load-{uuid.uuid4().hex[:12]}"
        self.topic = self.api.create_topic({"name": f"{self.project}/topics/topic", **topic}).name
        self.probed = self.api.create_topic({"name": f"{self.project}/topics/probed"}).name
        self.names: dict[str, str] = {}
        for kind in kinds:
            self.names[kind] = self.create(kind, **KINDS[kind])
        at = self.addresses
        self.publishers = [
            LoadPublisher(at[n % len(at)], self.history, self.topic, f"p{n}", rate / 2, keys=10 if n else 0)
            for n in range(2)
        ]
        self.receivers = [
            Receiver(at[(n + turn) % len(at)], self.history, name, f"{kind}-{turn}", confirm=kind == "once", lease_s=10)
            for n, (kind, name) in enumerate(self.names.items())
            for turn in range(receivers if kind != "ordered" else 1)
        ]
        self.probers = [Prober(at[0], self.probed), Prober(at[-1], self.probed, key="k")]
        self.usual_gap = 0.0  # the longest before anything was broken: a busy machine is slow by itself

    def create(self, short: str, **fields: Any) -> str:
        """A subscription, entered in the history."""
        name = f"{self.project}/subscriptions/{short}"
        operation = self.history.creating(
            name,
            self.topic,
            ordered=fields.get("enable_message_ordering", False),
            exactly_once=fields.get("enable_exactly_once_delivery", False),
        )
        self.api.create_subscription({"name": name, "topic": self.topic, "ack_deadline_seconds": 10, **fields})
        self.history.end(operation, Outcome.OK)
        return name

    def __enter__(self) -> Load:
        for thread in (*self.publishers, *self.probers):
            thread.start()
        self.flows(2.0)
        self.usual_gap = max(self.gaps)
        return self

    def flows(self, seconds: float, within: float = 120.0) -> float:
        """Wait until messages were confirmed and delivered again, and some time more; returns how long it took."""
        begun = time.monotonic()
        for count in (self.confirmed, self.delivered):
            before = count()
            while count() <= before:
                took = time.monotonic() - begun
                assert took < within, f"nothing is {count.__name__} for {took:.0f} s: {self.state()}"
                time.sleep(0.02)
        took = time.monotonic() - begun
        time.sleep(seconds)
        return took

    def confirmed(self) -> int:
        return sum(one.outcome is Outcome.OK for one in list(self.history.publishes))

    def delivered(self) -> int:
        return len(self.history.deliveries)

    def state(self) -> str:
        """Who waits for what, for whoever waits for them."""
        failed = [f"{one.name}: ended by {one.failure!r}" for one in self.publishers if one.failure is not None]
        return "; ".join([*failed, *(one.state() for one in self.receivers), str(self.history.counts())])

    def drains(self, within: float = 120.0, at_most: float = 400.0) -> None:
        """Everything confirmed arrives everywhere. `within`: for each subscription, without any of what it lacks;
        `at_most`: in all.
        """
        missing: dict[str, int] = {}
        end = time.monotonic() + at_most
        since = dict.fromkeys(self.names, time.monotonic())
        while True:
            for kind, name in self.names.items():
                left = len(self.history.missing(name, self.topic))
                if left < missing.get(kind, left):
                    since[kind] = time.monotonic()
                missing[kind] = left
            if any(left and time.monotonic() - since[kind] > HELD_S for kind, left in missing.items()):
                for one in self.receivers:
                    if one.release_held():
                        note(f"{one.name}: Google's client held messages back while it was free")
            late = {kind: left for kind, left in missing.items() if left and time.monotonic() - since[kind] > within}
            assert not late, f"nothing came for {within:g} s of what is missing: {late}; {self.state()}"
            if not any(missing.values()):
                return
            assert time.monotonic() < end, f"not all came within {at_most:g} s: {missing}; {self.state()}"
            time.sleep(0.1)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        for prober in self.probers:
            prober.end()
        for publisher in self.publishers:
            publisher.end()
        try:
            if error is None:
                self.drains()
        finally:
            for receiver in self.receivers:
                receiver.end()
            self.api.close()

    @property
    def gaps(self) -> list[float]:
        """The longest time without an answered publish: keyless, keyed."""
        return [round(prober.gap, 2) for prober in self.probers]

    @property
    def errors(self) -> list[str]:
        """What plain calls without retries were answered."""
        return [text for prober in self.probers for text in prober.errors]

    def judge(self, *must_have_work: checkers.Checker, certain: bool = False) -> History:
        """Every promise held. `certain`: no publish ended in anything but success."""
        checkers.check(self.history, checkers.acknowledged_is_never_lost, *must_have_work)
        if certain:
            bad = [one for one in self.history.publishes if one.outcome is not Outcome.OK]
            assert not bad, f"{len(bad)} publishes failed, first {bad[0]}"
            assert not self.errors, self.errors
        return self.history


def run_all(*work: Callable[[], Any]) -> None:
    """Run these at once, each on a thread of its own; the first error of any is raised."""
    errors: list[BaseException] = []

    def guarded(one: Callable[[], Any]) -> None:
        try:
            one()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(one,), daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def note(text: str) -> None:
    """Enter a figure in the file that SYNCPOINT_FIGURES names, if any."""
    path = os.environ.get("SYNCPOINT_FIGURES")
    if path:
        with open(path, "a") as file:
            file.write(text + "\n")
