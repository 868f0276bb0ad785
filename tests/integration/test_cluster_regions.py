"""Two regions, message data sealed: where payloads lie, and that nobody behind the proxy can read them."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import uuid

import pytest

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs.etcd import why_not
from syncpoint.testing.rigs.official import bodies, eventually, refused
from syncpoint.wire.protobuf.messages import admin
from tests.kit.clusters import Kit, holds

pytestmark = pytest.mark.shows("regions")

SHAPE = Shape(clusters=1, disks=1, forwarders=1, routers=1, proxies=1, regions=2)


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    """A small cluster: one disk per region, so that a byte which is elsewhere shows."""
    if why_not():
        pytest.skip(why_not())
    folder = tmp_path_factory.mktemp("regions")
    (folder / "kek").write_text(secrets.token_hex(32) + "\n")
    (folder / "bucket").mkdir()
    buckets = {"archive": {"url": str(folder / "bucket"), "region": "r1"}}
    made = Kit(folder, SHAPE, {"sealing": {"key_file": "kek"}, "buckets": buckets})
    try:
        yield made.up()
    finally:
        made.down()


@pytest.fixture
def near(kit, enter):
    """A project, by way of the proxy of each region."""
    spaces = {region: enter(address) for region, address in zip(("r1", "r2"), kit.proxies, strict=True)}
    spaces["r2"].project = spaces["r1"].project
    return spaces


def only_in(space, region, **fields):
    policy = {"allowed_persistence_regions": [region], **fields}
    return space.topic(f"in-{uuid.uuid4().hex[:8]}", message_storage_policy=policy)


def marker():
    return f"marker-{uuid.uuid4().hex}"


def regions_holding(kit, text):
    return {path.name.split("-")[0] for path in kit.disks_holding(text.encode())}


def test_what_is_sealed_is_exported_opened_and_only_to_buckets_of_the_regions_in_transit(kit, near):
    space, states = near["r1"], {}
    config = {"bucket": "archive", "filename_prefix": f"{space.project}/", "max_messages": 1_000}
    sent = {f"{marker()} {number}".encode() for number in range(1_000)}
    for region in ("r1", "r2"):
        topic = only_in(space, region, enforce_in_transit=True)
        name = space.subscription(topic, f"exported-{region}", cloud_storage_config=config)
        eventually(lambda topic=topic, region=region: near[region].publish(topic, *sent))
        states[region] = space.api.get_subscription({"subscription": name}).cloud_storage_config.state
    assert states == {"r1": 1, "r2": 4}  # ACTIVE, IN_TRANSIT_LOCATION_RESTRICTION
    peek = admin.PeekTopicRequest(topic=topic, page_size=1)
    with pytest.raises(FailedPrecondition, match="may not pass"):
        kit.admin("PeekTopic", peek, proxy=0)
    eventually(lambda: kit.admin("PeekTopic", peek, proxy=1).messages[0].message.data in sent)
    folder = kit.local.folder / "bucket" / space.project
    eventually(lambda: list(folder.glob("*")), what="a file is stored")
    (path,) = folder.glob("*")
    assert set(path.read_bytes().split(b"\n")) == sent
    assert not kit.disks_holding(next(iter(sent)))


@pytest.mark.parametrize("region", ["r1", "r2"])
def test_messages_lie_in_the_allowed_region_only(kit, near, region):
    """Published and received through both regions' proxies. Attributes are not sealed, so they show where it lies."""
    topic = only_in(near["r1"], region)
    subscription = near["r2"].subscription(topic, f"sub-{region}")
    marks = [marker() for _ in range(4)]
    for number, mark in enumerate(marks):
        near["r1" if number % 2 else "r2"].publish(topic, b"payload", attributes={"mark": mark})
    for mark in marks:
        eventually(lambda mark=mark: regions_holding(kit, mark), what="it is stored")
        assert regions_holding(kit, mark) == {region}
    got = near["r1"].pull(subscription, 2, most=2) + near["r2"].pull(subscription, 2)
    assert {one.message.attributes["mark"] for one in got} == set(marks)
    near["r2"].ack(subscription, *got)
    assert all(regions_holding(kit, mark) == {region} for mark in marks)


def test_a_topic_over_two_regions_has_each_message_in_one_and_is_gathered(kit, near):
    """Both regions are equally near here, so routers choose. In the middle a rule takes the chosen one away from the
    topic: the other one takes what is published from then on, what lies in the first stays, and both are gathered.
    """
    topic = near["r1"].topic("anywhere")
    subscription = near["r1"].subscription(topic, "gathered")
    marks: list[str] = []

    def publish(times):
        """Through the proxies of both regions; where each message lies, and it lies in one region."""
        new = []
        for space in [*near.values()] * times:
            new.append(marker())
            space.publish(topic, b"payload", attributes={"mark": new[-1]})
        marks.extend(new)
        where = set()
        for mark in new:
            eventually(lambda mark=mark: regions_holding(kit, mark), what="it is stored")
            assert len(regions_holding(kit, mark)) == 1
            where |= regions_holding(kit, mark)
        return where

    first = publish(2)
    chosen = sorted(first)[0]
    rule = {"name": "elsewhere", "action": "DENY", "forwarders": f"region={chosen}"}
    rule["topics"] = f"project={near['r1'].project},name=anywhere*"
    kit.admin("CreateConstraint", admin.CreateConstraintRequest(constraint=rule))
    try:
        rest = {"r1", "r2"} - {chosen}
        eventually(lambda: publish(1) == rest, 60, what="the other region takes what is published")
        assert publish(2) == rest, "and goes on to"
        got = near["r1"].pull(subscription, len(marks), ack=True)
        assert {one.message.attributes["mark"] for one in got} == set(marks)
        assert first | rest == {"r1", "r2"}
    finally:
        kit.admin("DeleteConstraint", admin.DeleteConstraintRequest(name="elsewhere"))


class Wire:
    """Everything that goes over loopback ports of the cluster, but not between it and its clients."""

    def __init__(self, ports):
        self._ports, self._stop = ports, threading.Event()
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.1)
        self.seen = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        while not self._stop.is_set():
            try:
                packet = self._socket.recv(70_000)
            except TimeoutError:
                continue
            tcp = 14 + (packet[14] & 15) * 4
            ports = {int.from_bytes(packet[tcp : tcp + 2]), int.from_bytes(packet[tcp + 2 : tcp + 4])}
            if packet[23] == 6 and ports & self._ports:
                self.seen += packet[tcp + 20 :]

    def end(self):
        self._stop.set()
        self._thread.join()
        self._socket.close()
        return bytes(self.seen)


def test_sealed_data_is_plain_on_no_disk_and_on_no_internal_wire(kit, near):
    space = near["r1"]
    topic = space.topic("sealed")
    subscription = space.subscription(topic, "opened")
    plain, open_mark = marker(), marker()
    processes = kit.local.settings().processes.values()
    ports = {int(one.listen.rpartition(":")[2]) for one in processes}
    wire = None
    with contextlib.suppress(PermissionError, AttributeError):
        wire = Wire(ports)
    space.publish(topic, plain.encode(), attributes={"mark": open_mark})
    got = space.pull(subscription, 1, ack=True)
    assert bodies(got) == [plain.encode()]
    eventually(lambda: kit.disks_holding(open_mark.encode()), what="it is stored")
    assert not kit.disks_holding(plain.encode())
    assert not holds(kit.local.folder / "etcd", plain.encode())
    if wire is not None:
        eventually(lambda: open_mark.encode() in wire.seen, what="it was seen on the wire")
        assert plain.encode() not in wire.end()
    logs = b"".join(path.read_bytes() for path in (kit.local.folder / "logs").iterdir())
    assert plain.encode() not in logs
    if wire is None:
        pytest.skip("disks and logs are good; without the right to listen on the wire, that is not judged")


def test_a_region_that_is_gone_is_not_replaced_by_a_forbidden_one(kit, near):
    topic = only_in(near["r1"], "r2")
    free = near["r1"].topic("free")
    subscription = near["r1"].subscription(free, "of-free")
    near["r1"].publish(topic, b"while it lives")
    gone = [one.name for one in kit.local.states() if one.name.startswith("r2-")]
    for name in gone:
        kit.local.kill(name)
    try:
        mark = marker()
        request = {"topic": topic, "messages": [{"data": b"x", "attributes": {"mark": mark}}]}
        with refused("UNAVAILABLE", "regions"):
            near["r1"].api.publish(request, timeout=15)
        assert near["r1"].publish(free, b"goes on")
        assert bodies(near["r1"].pull(subscription, 1, ack=True)) == [b"goes on"]
        assert regions_holding(kit, mark) <= {"r2"}
    finally:
        kit.local.up()
    kit.stabilize()
    assert near["r1"].publish(topic, b"again")


@pytest.mark.shows("tenants")
def test_messages_of_a_tenant_lie_within_its_regions(kit, near):
    """Of topics without a storage policy, also of those that were made before; another policy is refused."""
    space, project = near["r1"], f"projects/{near['r1'].project}"
    earlier = space.topic("earlier")
    kit.admin("CreateTenant", admin.CreateTenantRequest(tenant={"name": "bounded", "projects": [project]}))

    def bound(*regions):
        tenant = {"name": "bounded", "allowed_regions": regions}
        kit.admin("UpdateTenant", admin.UpdateTenantRequest(tenant=tenant, update_mask={"paths": ["allowed_regions"]}))

    bound("r2")
    for topic in (earlier, space.topic("later"), only_in(space, "r2")):
        mark = marker()
        for proxy in near.values():
            proxy.publish(topic, b"payload", attributes={"mark": mark})
        eventually(lambda mark=mark: regions_holding(kit, mark), what="it is stored")
        assert regions_holding(kit, mark) == {"r2"}
    with refused("FAILED_PRECONDITION", "r1 is outside the regions of tenant bounded: r2"):
        only_in(space, "r1")
    with pytest.raises(FailedPrecondition, match=f"allowed_regions: .*{topic}"):
        bound("r1")
    found = kit.admin("GetEffectivePolicy", admin.GetEffectivePolicyRequest(resource=earlier), proxy=1)
    assert (found.settings[0].value, found.settings[0].source) == ("r2", "tenant")
