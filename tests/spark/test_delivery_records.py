"""What Spark makes of delivery records: a clean run has nothing to name; faults of server and disk are named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from syncpoint.base.model.identity import parse_message_id
from syncpoint.front.client.client import Client
from syncpoint.front.client.message_path import recorded_path
from syncpoint.programs.analytics.delivery_reconciliation import DeliveryReconciliation, reconcile_deliveries
from syncpoint.programs.analytics.delivery_slis import _lags, delivery_slis
from syncpoint.programs.analytics.plots import PLOTS
from syncpoint.programs.analytics.recorded_topic import readable_ranges, record_messages, recorded_topic
from syncpoint.programs.cli.main import cli
from syncpoint.programs.federation.spec import FederatedCluster
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerFailed, ServerProcess
from syncpoint.wire.protobuf.messages import admin
from tests.kit.delivery_faults.sitecustomize import DROPPED, FORGOTTEN, LENT_TWICE, SKIPPED
from tests.spark.federation_kit import Site, name_of

pytestmark = pytest.mark.shows("analytics")

FAULTS = Path(__file__).parents[1] / "kit" / "delivery_faults"
MESSAGES = 40
Ids = list[str]


def nothing(done: int, total: int) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    path = os.pathsep.join([str(FAULTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    server = ServerProcess(tmp_path_factory.mktemp("records") / "a", env={"PYTHONPATH": path})
    found = Site("a", server.start())
    yield found
    found.close()


def recorded(site: Site, topic: str, *subscriptions: str, create: bool = True, **fields: Any) -> str:
    """A topic that is recorded into `TOPIC-records`, and its subscriptions. `create` False: it is there."""
    name, records = site.topic(topic) if create else name_of(topic), site.topic(f"{topic}-records")
    with Client(site.server.endpoint) as client:
        options = admin.TopicOptions(topic=name, records_topic=records)
        request = admin.UpdateTopicOptionsRequest(options=options)
        request.update_mask.paths.append("records_topic")
        client.call("Admin.UpdateTopicOptions", request)
    for one in subscriptions:
        site.api.create_subscription({"name": one, "topic": name, **fields})
    return name


def published(site: Site, topic: str, count: int = MESSAGES) -> Ids:
    """Ids of messages, by offset: one request each, so that each is an entry of its own."""
    ids: Ids = []
    for number in range(count):
        message = {"data": b"x" * 2000, "attributes": {"n": str(number)}}
        ids += site.api.publish({"topic": topic, "messages": [message]}).message_ids
    return ids


def pulled(site: Site, subscription: str, *, ack: bool = True) -> Ids:
    """What comes at once."""
    request = {"subscription": subscription, "max_messages": 1000, "return_immediately": True}
    received = list(site.api.pull(request).received_messages)
    if received and ack:
        site.api.acknowledge({"subscription": subscription, "ack_ids": [one.ack_id for one in received]})
    return [one.message.message_id for one in received]


def drained(site: Site, subscription: str, expected: int) -> Ids:
    got: Ids = []

    def enough() -> bool:
        got.extend(pulled(site, subscription))
        return len(got) >= expected

    eventually(enough, 30, f"{expected} messages come")
    return got


def of(site: Site, topic: str) -> Any:
    return recorded_topic(FederatedCluster("server", site.server.endpoint), topic)


def noted(site: Site, topic: str, message_id: str, event: str) -> None:
    """Return once an event of a message is among the records: what came before it is there then, too."""
    with Client(site.server.endpoint) as client:
        place = parse_message_id(message_id)[1:]

        def found() -> bool:
            return event in {one.event for one in recorded_path(client.call, "a", topic, *place).events}

        eventually(found, 30, f"{event} is recorded")


def concluded(spark: Any, site: Site, topic: str) -> DeliveryReconciliation:
    return reconcile_deliveries(spark, of(site, topic), nothing, grace_s=0.0, margin_s=0.0)


def test_a_clean_run_has_nothing_to_name(spark: Any, site: Site, tmp_path: Path) -> None:
    sub, few = "projects/fed/subscriptions/clean", "projects/fed/subscriptions/few"
    topic = recorded(site, "clean", sub)
    site.api.create_subscription({"name": few, "topic": topic, "filter": 'attributes.n = "3"'})
    ids = published(site, topic)
    assert sorted(drained(site, sub, MESSAGES)) == sorted(ids)
    assert drained(site, few, 1) == [ids[3]]
    late = "projects/fed/subscriptions/late"
    site.api.create_subscription({"name": late, "topic": topic})
    (waiting,) = published(site, topic, 1)
    assert pulled(site, sub) == [waiting]

    noted(site, topic, waiting, "acknowledged")
    result = concluded(spark, site, topic)
    assert result.clean, result
    assert (result.stored, result.recorded, result.gone, result.unknown) == (MESSAGES + 1, MESSAGES + 1, 0, 0)
    by_name = {one.subscription: one for one in result.subscriptions}
    assert (by_name[sub].delivered, by_name[sub].acknowledged, by_name[sub].waiting) == (MESSAGES + 1, MESSAGES + 1, 0)
    assert (by_name[few].delivered, by_name[few].over) == (1, MESSAGES - 1)
    assert (by_name[late].over, by_name[late].waiting) == (MESSAGES, 1)

    slis = delivery_slis(spark, of(site, topic), nothing, target_s=60)
    rows = {one.subscription: one for one in slis.rows}
    assert rows[""].messages == rows[sub].messages == MESSAGES + 1
    assert (rows[few].messages, rows[sub].within, rows[sub].again) == (1, 1.0, 0)
    assert 0 <= rows[""].p50_ms <= rows[""].p99_ms <= rows[""].max_ms < 60_000
    assert rows[sub].acknowledged == MESSAGES + 1
    assert delivery_slis(spark, of(site, topic), nothing, target_s=0).rows[0].within == 0.0
    lags = {one.subscription: one for one in slis.lags}
    assert set(lags) == {sub, few}
    assert len(slis.times) == len(lags[sub].waiting) <= 60
    assert (lags[sub].waiting[-1], lags[sub].outstanding[-1]) == (0, 0)  # all of it was delivered and acknowledged
    PLOTS["slis"](slis, tmp_path / "slis.svg")
    assert "<svg" in (tmp_path / "slis.svg").read_text(encoding="utf-8")


def test_what_waited_over_time(spark: Any) -> None:
    second = 1_000_000
    copies = [("sub", 0, 3 * second // 2, 5 * second // 2), ("sub", 0, 5 * second // 2, None)]
    names = "subscription string, published_us long, delivered_us long, acknowledged_us long"
    times, (lag,) = _lags(spark.createDataFrame(copies, names))
    assert [time.timestamp() for time in times] == [1, 2, 3]
    assert (lag.subscription, lag.waiting, lag.outstanding) == ("sub", (2, 1, 0), (0, 1, 1))
    assert _lags(spark.createDataFrame([], names)) == ((), ())


def test_what_a_faulty_server_does_is_named_by_id_kind_and_hop(spark: Any, site: Site) -> None:
    sub = "projects/fed/subscriptions/faulty"
    topic = recorded(site, "wrong", sub)
    ids = published(site, topic)
    drained(site, sub, MESSAGES - 2)
    eventually(lambda: ids[FORGOTTEN] in pulled(site, sub), 30, "what was acknowledged comes again")
    pulled(site, sub)
    noted(site, topic, *published(site, topic, 1), "persisted")
    result = concluded(spark, site, topic)
    assert {(one.kind, one.hop, one.message_id) for one in result.anomalies if one.subscription == sub} == {
        ("never delivered", "deliver", ids[SKIPPED]),
        ("acknowledged without delivery", "acknowledge", ids[DROPPED]),
        ("delivered after acknowledgement", "deliver", ids[FORGOTTEN]),
        ("delivered twice", "deliver", ids[LENT_TWICE]),
    }
    assert sum(result.counts.values()) == 4
    assert result.unknown == 0


def test_what_no_disk_has_in_good_order_is_lost_and_a_crash_is_no_anomaly(spark: Any, site: Site) -> None:
    sub = "projects/fed/subscriptions/rotten"
    topic = recorded(site, "rotten", sub)
    ids = published(site, topic)
    drained(site, sub, MESSAGES)
    noted(site, topic, ids[-1], "acknowledged")
    site.server.kill9()
    marker = b"\x01n\x12\x0217"  # in the attributes of number 17
    for file in site.server.data.rglob("*.seg"):
        content = file.read_bytes()
        at = content.rfind(marker)
        if at >= 0:
            file.write_bytes(content[: at - 500] + b"rot" + content[at - 497 :])
            break
    else:
        pytest.fail("no segment has the message")
    with pytest.raises(ServerFailed, match="accept the loss explicitly"):
        site.server.start()
    accepted = CliRunner().invoke(cli, ["log", "recover", "--data", str(site.server.data), "--accept-loss", "--yes"])
    assert accepted.exit_code == 0, accepted.output
    site.server.start()
    whole = list(readable_ranges(of(site, topic)))
    assert sum(one.end - one.begin for one in whole) == MESSAGES - 1
    noted(site, topic, ids[0], "found stored")
    result = concluded(spark, site, topic)
    assert [(one.kind, one.hop, one.message_id) for one in result.anomalies] == [("lost", "persist", ids[17])], result
    assert any("ended without saying so" in one.why for one in result.gaps)


def test_a_record_that_was_published_twice_counts_once(spark: Any, site: Site) -> None:
    sub = "projects/fed/subscriptions/again"
    topic = recorded(site, "again", sub)
    ids = published(site, topic, 3)
    drained(site, sub, 3)
    noted(site, topic, ids[-1], "acknowledged")
    records = f"{topic}-records"
    for one in site.log(records):
        site.api.publish({"topic": records, "messages": [{"data": one.data, "attributes": dict(one.attributes)}]})
    assert concluded(spark, site, topic).clean
    assert record_messages(spark, of(site, topic)).count() == len(site.log(records)) // 2
