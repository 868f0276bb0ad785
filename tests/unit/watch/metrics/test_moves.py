"""Each family of a node moves: by calls to a real node; what takes faults or hours, by the number it is read from."""

from __future__ import annotations

import asyncio
import itertools
import resource
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from syncpoint.base.model.cluster import ChainRecord, DiskPlace, Member
from syncpoint.base.model.errors import SyncpointError, Unavailable
from syncpoint.broker.export.buckets import Place
from syncpoint.broker.subscribe.delivery_counts import SubscriptionCounts
from syncpoint.catalog.access.disaster_classes import declared
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.failure_domains import FailureDomains, PlacedDisk, PlacedProcess
from syncpoint.log.storage.quorum import AckRule
from syncpoint.node.settings import ServeSettings
from syncpoint.node.solo.node import Node
from syncpoint.watch.metrics import bridge_families, federation_families, gateway_families, prober_families
from syncpoint.watch.metrics.call_families import ListenerRoom
from syncpoint.watch.metrics.family import QuickCollector, Samples
from syncpoint.watch.metrics.family_table import FAMILIES
from syncpoint.watch.metrics.gathered import GatheredText
from syncpoint.watch.metrics.log_families import COLD_READS, LogRoom
from syncpoint.watch.metrics.otlp_export import FAILED, MetricsExportSettings, OtlpMetrics
from syncpoint.watch.metrics.risk_families import RiskRoom, WatchedChain
from syncpoint.watch.metrics.role_families import (
    GATHERING,
    MITIGATION,
    PROXY,
    ROUTER,
    ChainDiskRoom,
    DiskServerRoom,
    HeadroomRoom,
    MemberRoom,
    StatusRoom,
)
from syncpoint.watch.metrics.service_families import AccessRoom, ConsumptionRoom
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.transport.client import Channel
from tests.kit.endpoint import Endpoint

P = "projects/p"
TOPIC, SUB, STRICT = f"{P}/topics/orders", f"{P}/subscriptions/billing", f"{P}/subscriptions/strict"
SLOW = f"{P}/subscriptions/slow"
LAPSED, AGED = f"{P}/subscriptions/lapsed", f"{P}/subscriptions/aged"
AVRO = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}'
Found = Mapping[str, Any]


def shown(samples: Samples) -> Found:
    """The numbers of each family by labels; what is 0 is as if it was not there."""
    return {
        name: {
            one.labels: numbers
            for one in rows
            if any(numbers := (one.value, one.total, *(one.histogram.counts if one.histogram else ())))
        }
        for name, rows in samples.rows.items()
    }


FIXED = {  # as long as a process lives
    "process_max_fds",
    "process_start_time_seconds",
    "syncpoint_process_info",
    "syncpoint_publish_limit_bytes",
    "syncpoint_publish_limit_messages",
}


NAMES = {one.name for one in FAMILIES} - {
    one.name
    # Programs with rooms of their own:
    for one in (
        *bridge_families.FAMILIES,
        *federation_families.FAMILIES,
        *gateway_families.FAMILIES,
        *prober_families.FAMILIES,
    )
}
OF_CLUSTERS = ("chain", "disk_server", "gather", "headroom", "member", "mitigation", "proxy", "router")
"""How families of roles in clusters begin; `test_cluster_metrics.py` has those that move on any day."""
BY_HAND = {one for one in NAMES if one.startswith(tuple(f"syncpoint_{name}" for name in OF_CLUSTERS))} | {
    f"syncpoint_{name}"
    for name in (
        "access_callers", "access_refused_total", "at_risk_entries", "at_risk_messages", "at_risk_stopping_failures",
        "at_risk_unborne_disks", "at_risk_uncounted", "attended_letters_total", "consumption_refused",
        "delivery_failed_steps_total", "delivery_records_waiting", "disk_behind_entries", "disk_cold_read_bytes_total",
        "disk_cold_read_share", "disk_cold_read_wait_seconds_total", "disk_damages_total",
        "disk_failures_total",
        "disk_healed_segments_total", "disk_lacking_segments", "disk_queued_bytes", "disk_spare_segments", "disk_state",
        "disk_unreadable_places", "export_failures_total", "export_held_bytes", "listener_faults_total",
        "listener_held_bytes", "listener_refused_total", "listener_shed_total", "listener_unsent_bytes",
        "log_cache_misses_total", "log_checkpoints_total", "log_copied_bytes_total", "log_copied_entries_total",
        "log_counter", "log_earlier_logs", "log_ended", "log_full", "log_judged_entries_total",
        "log_refused_full_total", "log_removed_segments_total", "log_segments", "log_too_few_disks",
        "log_uncovered_logs", "log_under_replicated_entries", "log_under_replicated_seconds", "log_waiting_entries",
        "loop_tasks", "metrics_exports_total", "metrics_failures_total", "metrics_unanswered_total",
        "process_peak_memory_bytes", "publish_in_flight_bytes", "publish_in_flight_messages",
        "publish_unknown_messages_total", "push_under_way", "reconciliation_overdue",
        "subscription_run_out_total",
    )
}  # fmt: skip
"""What faults, hours, other processes or earlier tests move, and what is over in a moment. All others have
to move by calls."""
PATIENCE_S = 60.0


class Client:
    """Calls to one node."""

    def __init__(self, node: Node) -> None:
        host, port = node.endpoint.rsplit(":", 1)
        self.channel = Channel(host, int(port))

    async def __call__(self, method: Method, **fields: Any) -> Any:
        answer = await self.channel.unary(method, method.request(**fields).SerializeToString(), timeout=8.0)
        return method.response.FromString(answer)

    async def pulled(self, subscription: str) -> list[str]:
        found = await self(methods.SUBSCRIBER.Pull, subscription=subscription, max_messages=100)
        return [one.ack_id for one in found.received_messages]


async def used(client: Client) -> None:
    """What clients do on any day."""
    create, publish = methods.SUBSCRIBER.CreateSubscription, methods.PUBLISHER.Publish
    await client(methods.PUBLISHER.CreateTopic, name=TOPIC)
    await client(create, name=SUB, topic=TOPIC, ack_deadline_seconds=10, filter='attributes.kind != "x"')
    await client(create, name=STRICT, topic=TOPIC, enable_exactly_once_delivery=True)
    await client(methods.SUBSCRIBER.CreateSnapshot, name=f"{P}/snapshots/snap", subscription=SUB)
    await client(publish, topic=TOPIC, messages=[{"data": b"1"}, {"data": b"2"}, {"attributes": {"kind": "x"}}])
    ids = await client.pulled(SUB)
    await client(methods.SUBSCRIBER.Acknowledge, subscription=SUB, ack_ids=ids[:1])
    await client(methods.SUBSCRIBER.ModifyAckDeadline, subscription=SUB, ack_ids=ids[1:], ack_deadline_seconds=0)
    assert await client.pulled(SUB)  # again, and kept
    strict = await client.pulled(STRICT)
    await client(methods.SUBSCRIBER.Acknowledge, subscription=STRICT, ack_ids=strict)
    with pytest.raises(SyncpointError):
        await client(methods.SUBSCRIBER.Acknowledge, subscription=STRICT, ack_ids=strict)
    records = f"{P}/topics/records"
    await client(methods.PUBLISHER.CreateTopic, name=records, message_retention_duration={"seconds": 600})
    options = {"topic": TOPIC, "duplicate_detection_window": {"seconds": 60}, "records_topic": records}
    mask = {"paths": ["duplicate_detection_window", "records_topic"]}
    await client(methods.ADMIN.UpdateTopicOptions, options=admin.TopicOptions(**options), update_mask=mask)
    amiss = admin.Reconciliation(findings_total=1)
    await client(methods.ADMIN.ReportReconciliation, project="projects/away", reconciliation=amiss)
    for _ in range(2):
        await client(publish, topic=TOPIC, messages=[{"data": b"3", "attributes": {"sys.MessageId": "one"}}])
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    await client(publish, topic=TOPIC, messages=[{"attributes": {"sys.ScheduledEnqueueTimeUtc": later}}])
    await checked_and_transformed(client)
    await client(create, name=SLOW, topic=TOPIC, retry_policy={"minimum_backoff": {"seconds": 60}})
    await client(publish, topic=TOPIC, messages=[{"data": b"5"}])
    back = await client.pulled(SLOW)
    await client(methods.SUBSCRIBER.ModifyAckDeadline, subscription=SLOW, ack_ids=back, ack_deadline_seconds=0)
    client.stream = client.channel.stream(methods.SUBSCRIBER.StreamingPull)
    first = pubsub.StreamingPullRequest(subscription=SLOW, stream_ack_deadline_seconds=10)
    await client.stream.send(first.SerializeToString())


async def left_alone(client: Client, endpoint: Endpoint) -> None:
    """What the service does by itself: push, store files, give messages up, take them back, publish what is due."""
    create, publish = methods.SUBSCRIBER.CreateSubscription, methods.PUBLISHER.Publish
    topic, dead, gone = (f"{P}/topics/{name}" for name in ("left", "dead", "gone"))
    for name in (topic, dead, gone):
        await client(methods.PUBLISHER.CreateTopic, name=name)
    file = {"bucket": "files", "max_bytes": 1_000, "max_duration": {"seconds": 60}}
    for short, options in {
        "pushed": {"push_config": {"push_endpoint": endpoint.url}},
        "stored": {"cloud_storage_config": file},
        "given-up": {"dead_letter_policy": {"dead_letter_topic": dead, "max_delivery_attempts": 5}},
        "kept": {"dead_letter_policy": {"dead_letter_topic": gone, "max_delivery_attempts": 5}},
        "lapsed": {},
        "aged": {},
    }.items():
        await client(create, name=f"{P}/subscriptions/{short}", topic=topic, **options)
    short = {"subscription": AGED, "ttl": {"seconds": 1}}
    await client(methods.ADMIN.UpdateSubscriptionOptions, options=short, update_mask={"paths": ["ttl"]})
    await client(methods.PUBLISHER.DeleteTopic, topic=gone)
    soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    await client(publish, topic=topic, messages=[{"attributes": {"sys.ScheduledEnqueueTimeUtc": soon}}])
    endpoint.status, endpoint.delay_s = 500, 1.5
    await client(publish, topic=topic, messages=[{"data": b"x" * 2_000}])
    for _ in range(5):
        for subscription in (f"{P}/subscriptions/given-up", f"{P}/subscriptions/kept"):
            ids = await client.pulled(subscription)
            await client(
                methods.SUBSCRIBER.ModifyAckDeadline, subscription=subscription, ack_ids=ids, ack_deadline_seconds=0
            )
    ids = await client.pulled(LAPSED)
    await client(methods.SUBSCRIBER.ModifyAckDeadline, subscription=LAPSED, ack_ids=ids, ack_deadline_seconds=1)
    least = {"limits": {"system": {"messages": 1, "bytes": 1}}, "update_mask": {"paths": ["system"]}}
    await client(methods.ADMIN.UpdateLimits, **least)
    together = (client(publish, topic=topic, messages=[{"data": b"1"}]) for _ in range(9))
    assert any(isinstance(one, SyncpointError) for one in await asyncio.gather(*together, return_exceptions=True))


async def checked_and_transformed(client: Client) -> None:
    """Topics that look at messages before they are stored."""
    publish, schema = methods.PUBLISHER.Publish, {"type_": 2} if hasattr(pubsub.Schema, "type_") else {"type": 2}
    schema = {"name": f"{P}/schemas/record", "definition": AVRO, **schema}
    await client(methods.SCHEMAS.CreateSchema, parent=P, schema_id="record", schema=pubsub.Schema(**schema))
    checked, transformed = f"{P}/topics/checked", f"{P}/topics/transformed"
    await client(
        methods.PUBLISHER.CreateTopic, name=checked, schema_settings={"schema": f"{P}/schemas/record", "encoding": 1}
    )
    with pytest.raises(SyncpointError):
        await client(publish, topic=checked, messages=[{"data": b"{}"}])
    code = "function f(m, meta) { if (m.data == 'bad') throw new Error('no'); return null; }"
    await client(
        methods.PUBLISHER.CreateTopic,
        name=transformed,
        message_transforms=[{"javascript_udf": {"function_name": "f", "code": code}}],
    )
    await client(publish, topic=transformed, messages=[{"data": b"dropped"}])
    with pytest.raises(SyncpointError):
        await client(publish, topic=transformed, messages=[{"data": b"bad"}])


def counted(node: Node) -> SubscriptionCounts:
    record = node.log.control.catalog.subscription(SUB)
    assert record is not None
    return node.deliveries.forwarder.counts.of_subscription(record.incarnation)


def more(owner: Any, *names: str) -> None:
    for name in names:
        setattr(owner, name, getattr(owner, name) + 1)


class Behind:
    """Something whose other names are those of `real`."""

    def __init__(self, real: Any, **names: Any) -> None:
        self.__dict__.update(names, real=real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def troubled(node: Node) -> Behind:
    """A chain whose store is in trouble."""
    found = node.log.store.status()
    (disk,) = found.disks
    disk = replace(disk, state="failed", lacking_segments=2, unreadable=3, queued_bytes=4, position=0, pool_segments=99)
    worse = replace(
        found, full=True, too_few=True, under_replicated=9, appended=found.persisted + 5, segments=99, disks=(disk,),
        log_counter=found.log_counter + 1, room_bytes=1, sources=77, cache_bytes=1,
    )  # fmt: skip
    store = Behind(node.log.store, status=lambda: worse, earlier_logs=5, uncovered_logs=4)
    return Behind(node.log.publish, store=store, commit=Behind(node.log.publish.commit, failed=OSError()))


class Broken(QuickCollector):
    name = "broken"

    def collect(self, samples: Samples) -> None:
        raise RuntimeError("it cannot be read")


async def nobody(address: str) -> bytes:
    raise Unavailable(address)


def members() -> ClusterView:
    """A member, which is drained, and a chain with its owner."""
    view: Any = SimpleNamespace(members=Seen(), chains=Seen(), owners=Seen(), draining=lambda member: True)
    return cast(ClusterView, view)


class Seen:
    """One record of a kind."""

    items: ClassVar = {"a": SimpleNamespace(value=SimpleNamespace(roles=("proxy",), below_policy=True))}
    listeners: ClassVar[list[Any]] = []

    def get(self, key: str) -> None:
        """Nobody has it."""


def seen_before(room: LogRoom) -> LogRoom:
    """Its second look is the one that counts: ages are those between looks."""
    room.collect(Samples(FAMILIES))
    return room


def rooms_by_hand(node: Node) -> list[Any]:
    """Collectors over parts that no node of this test has, or whose numbers cannot be set."""
    stats = dict.fromkeys(node.clients.port.listening.stats, 5)  # type: ignore[attr-defined]
    gate = SimpleNamespace(unauthenticated=1, invalid=2, denied=3, over_quota=4, sessions=5)
    pushes, exports = node.clients.port.consumption.pushes, node.clients.port.consumption.exports
    pushed = {"pushed_subscriptions": 3, "pushes_paused": 2, "pushes_under_way": 1}
    push = Behind(pushes, totals=lambda: pushed, refused_now=1)
    export = Behind(exports, totals=lambda: {"exported_subscriptions": 3, "export_held": 2}, refused_now=2)
    forward = Behind(node.clients.port.consumption.forwards, refused_now=3)
    role_rooms = [
        StatusRoom("role", families, lambda keys=keys: dict.fromkeys(keys, 5))  # type: ignore[misc]
        for families in (PROXY, GATHERING, ROUTER, MITIGATION)
        for keys in ([one.key for one in families],)
    ]
    record = ChainRecord(1, "p/1", "", "", "p", (DiskPlace("c1", "d1", "s1"),), below_policy=True)
    cold = dict.fromkeys((name for name, *_ in COLD_READS), 0.5)
    served = {
        "disks": {"d1": {"free_bytes": 9, "chains": [1], **cold}},
        "bytes_written": 1,
        "syncs": 2,
        "connections": 3,
    }
    gathered = GatheredText(SimpleNamespace(), lambda: {"worker-2": ""}, nobody)  # type: ignore[arg-type]
    gathered._unanswered["worker-2"] += 1
    away = MetricsExportSettings("http://127.0.0.1:9")
    exported = OtlpMetrics(away, node.metrics.exposition, "node", "1", node.common.clock)
    exported._exports[FAILED] += 1
    return [
        *role_rooms,
        DiskServerRoom(lambda: served),
        MemberRoom(members(), "p", lambda: True, lambda: [1], itertools.count().__next__),
        ChainDiskRoom(lambda: [record]),
        HeadroomRoom(two_zones(), lambda: True),
        gathered,
        exported,
        ListenerRoom({"another": lambda: stats}),
        seen_before(LogRoom(lambda: {7: troubled(node)}, count(0, 100).__next__)),  # type: ignore[dict-item, return-value]
        RiskRoom(lambda: {8: at_risk(node)}, node.common.clock),
        RiskRoom(lambda: {9: at_risk(node)}, node.common.clock, entries_max=-1),
        RiskRoom(lambda: {10: without_one(node)}, node.common.clock),
        AccessRoom(gate),  # type: ignore[arg-type]
        ConsumptionRoom(push, export, forward),  # type: ignore[arg-type]
        Broken(),
    ]


def at_risk(node: Node) -> WatchedChain:
    """Its one disk, with which all that is stored goes."""
    return WatchedChain(node.log.publish, ["d"], FailureDomains([PlacedDisk("d", "d")], [PlacedProcess("p")]), "p")


def without_one(node: Node) -> WatchedChain:
    """A chain of three disks, of which one is away."""
    found = node.log.store.holdings()
    two, three = frozenset((0, 1)), frozenset((0, 1, 2))
    fragment = found.fragments[-1]._replace(rule=AckRule.single(3), known=three, named=three)
    found = found._replace(answering=two, live=two, returning=three - two, fragments=[fragment])
    disks = [PlacedDisk(name, name) for name in "def"]
    forwarder: Any = Behind(node.log.publish, store=Behind(node.log.store, holdings=lambda: found))
    return WatchedChain(forwarder, list("def"), FailureDomains(disks, [PlacedProcess("p")]), "p")


def two_zones() -> ClusterView:
    """A busy proxy in each of two zones."""
    places = {name: Member(name, ("proxy",), "", 1, zone=name) for name in "ab"}
    seen = SimpleNamespace(items={name: SimpleNamespace(value=one) for name, one in places.items()})
    loads = SimpleNamespace(items={name: SimpleNamespace(value={"cpu": 0.7}) for name in places})
    view: Any = SimpleNamespace(members=seen, loads=loads, draining=lambda member: False)
    return cast(ClusterView, view)


def by_hand(node: Node) -> None:
    """What takes hours or faults, by the numbers that rooms keep of it."""
    counts = node.log.store.counts
    more(
        counts, "cache_hits", "cache_misses", "checkpoints", "collect_steps", "judged_entries", "removed_segments",
        "copied_entries", "copied_bytes", "refused_full",
    )  # fmt: skip
    (disk,) = node.log.store.disk_counts
    more(disk, "failures", "damaged", "healed")
    assert disk.turns is not None
    disk.turns.waited_s += 0.1
    disk.turns.reads.bytes += 1
    disk.turns.reads.share = 0.5
    more(counted(node), "expired_leases", "dead_letters", "dead_letters_failed", "run_out")
    admission = node.log.publish.admission
    more(admission, "refused")
    more(admission.counts, "unknown")
    more(admission.system, "messages", "bytes")
    node.log.publish.ledgers.passed_over += 1
    more(node.deliveries.forwarder.guard, "failures")
    more(node.clients.port.attendant, "moved")
    pushes, exports = node.clients.port.consumption.pushes, node.clients.port.consumption.exports
    more(pushes, "acknowledged", "refused")
    pushes.latency.note(0.1)
    more(exports, "stored_files", "failed_writes")
    assert node.log.chain.firing is not None
    node.log.chain.firing._fired += 1
    (recorded,) = node.common.recording.recorder.topics.values()
    recorded.held.append({"runs": []})  # nobody is told, so it waits
    long_ago = declared("billing", "").setting("projects/late")
    catalog = node.log.publish.catalog
    for change in catalog.assign([CatalogChange.put(long_ago)]):
        catalog.apply(change)
    node.metrics.exposition.collectors += rooms_by_hand(node)


class Moved:
    """What moved by calls, and what by hand."""

    def __init__(self) -> None:
        self.by_calls: set[str] = set()
        self.by_hand: set[str] = set()
        self.shown: set[str] = set()


async def looked(data: Path) -> Moved:
    moved = Moved()
    (data / "files").mkdir()
    buckets = (("files", Place(f"file://{data / 'files'}")),)
    node = Node(ServeSettings(data=data / "node", port=0, push_networks=("loopback",), buckets=buckets))
    await node.start()
    client, endpoint = Client(node), Endpoint()
    try:
        first = await seen(node)
        await used(client)
        await left_alone(client, endpoint)
        begun = time.monotonic()
        while True:
            last = await seen(node)
            moved.by_calls |= different(first, last)
            if not NAMES - FIXED - BY_HAND - moved.by_calls or time.monotonic() > begun + PATIENCE_S:
                break
            for one in (LAPSED, AGED) if time.monotonic() > begun + 2 else ():
                await client(methods.SUBSCRIBER.Pull, subscription=one, max_messages=9, return_immediately=True)
            await asyncio.sleep(0.1)
        moved.shown = set(last)
        by_hand(node)
        tasks = [asyncio.create_task(asyncio.sleep(30)) for _ in range(10)]
        memory = b"x" * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)  # with this the peak moves
        moved.by_hand = different(last, await seen(node))
        del memory
        for task in tasks:
            task.cancel()
    finally:
        await client.channel.close()
        await node.stop()
        endpoint.close()
    return moved


async def seen(node: Node) -> Found:
    await node.metrics.exposition.text()
    return shown(await node.metrics.exposition.look())


def different(before: Found, after: Found) -> set[str]:
    return {name for name, rows in after.items() if rows != before.get(name, {})}


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Moved:
    return asyncio.run(looked(tmp_path_factory.mktemp("node")))


def test_every_family_moves(moved: Moved) -> None:
    still = sorted(NAMES - FIXED - moved.by_calls - moved.by_hand)
    assert not still, "no call and no number moves: " + " ".join(still)
    assert moved.shown >= FIXED


def test_calls_to_a_node_move_all_that_takes_neither_faults_nor_hours(moved: Moved) -> None:
    still = sorted(NAMES - FIXED - BY_HAND - moved.by_calls)
    assert not still, "no call moves: " + " ".join(still)
