"""Between two clusters of real processes whose owners of chains are killed: every message once, in order.

A query of its own reads a subscription that it has to itself, and what it has read is acknowledged. The job of a
federation runs six tasks with steps, and a topic that both have.
"""

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from pyspark_pubsub.rpc import close_idle
from syncpoint.programs.clusters.local import LocalCluster, Shape
from syncpoint.programs.federation.job import FederationJob
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.spec import load
from syncpoint.programs.federation.state import StateFolder
from syncpoint.testing.rigs.etcd import why_not
from syncpoint.testing.rigs.log_oracle import Message, disordered
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf.messages import pubsub
from tests.spark.federation_kit import PROJECT, Site, awaited, job_in_thread, name_of, running_job
from tests.spark.patterns_kit import PatternTasks
from tests.spark.spark_harness import SUBSCRIBER, Topic

pytestmark = [pytest.mark.long, pytest.mark.shows("pipeline-clusters", "federation")]

SHAPE = Shape(clusters=1, disks=3, forwarders=2, routers=1, proxies=1)
COUNT = 4_000
TRIES = 12


@pytest.fixture(scope="module")
def clusters(tmp_path_factory) -> Iterator[list[tuple[LocalCluster, Any]]]:
    """Two clusters, each with what a test of one server has."""
    if why_not():
        pytest.skip("etcd is not installed (Debian: apt-get install etcd-server)")
    folder = tmp_path_factory.mktemp("clusters")
    made = [LocalCluster(folder / name) for name in ("a", "b")]
    for one in made:
        one.create(SHAPE)
    try:
        yield [(one, SimpleNamespace(endpoint=one.up()[0], close=lambda: None)) for one in made]
    finally:
        for one in made:
            one.down()
        close_idle()


@pytest.mark.timeout(600)
def test_a_link_between_two_clusters_copies_once_while_owners_are_killed(spark, clusters, tmp_path):
    (one, source_server), (two, target_server) = clusters
    source, target = Topic(source_server), Topic(target_server)
    subscription = source.name.replace("topics", "subscriptions")
    source.call("CreateSubscription", pubsub.Subscription(name=subscription, topic=source.name), SUBSCRIBER)
    source.publish(0, COUNT, 500)
    victims = [(two, "publish-forwarder-1"), (one, "publish-forwarder-1"), (two, "publish-forwarder-2")]
    failures, kills, total = 0, 0, COUNT

    def start() -> Any:
        reader = spark.readStream.format("pubsub").option("endpoint", source_server.endpoint)
        frame = reader.option("subscription", subscription).option("maxRowsPerTrigger", 500).load()
        writer = frame.writeStream.format("pubsub").option("endpoint", target_server.endpoint)
        return (
            writer.option("topic", target.name)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("link", "clusters")
            .trigger(availableNow=True)
            .start()
        )

    while failures < TRIES:
        query = start()
        seen = 0
        try:
            while query.isActive:
                time.sleep(0.2)
                batches = sum(progress.numInputRows > 0 for progress in query.recentProgress)
                if batches >= seen + 2 and kills < len(victims):
                    seen, (cluster, victim) = batches, victims[kills]
                    cluster.kill(victim)
                    kills += 1
                    time.sleep(3.0)
                    cluster.start(victim)
            query.awaitTermination()
            if kills == len(victims):
                break
            source.publish(total, total + COUNT, 500)  # it was quicker than the kills
            total += COUNT
        except StreamingQueryException:
            failures += 1  # as whoever runs it: it is started again, and goes on
            time.sleep(1.0)
    reader = spark.read.format("pubsub").option("endpoint", target_server.endpoint).option("topic", target.name)
    rows = reader.load()
    assert kills == len(victims)
    copied = rows.select("message_id", "source", "offset", "data", "ordering_key").collect()
    assert sorted(int(row.data) for row in copied) == list(range(total))
    assert len({row.message_id for row in copied}) == total
    # All epochs of a query lie in the log of its home, whose sources follow each other by number.
    copied.sort(key=lambda row: (row.source, row.offset))
    orders: dict[str, list[int]] = {}
    for row in copied:
        orders.setdefault(row.ordering_key, []).append(int(row.data))
    assert orders == {f"k{key}": [n for n in range(total) if n // 250 % 3 == key] for key in range(3)}
    left = spark.read.format("pubsub").option("endpoint", source_server.endpoint).option("subscription", subscription)
    eventually(lambda: left.load().count() == 0, 30, "everything is acknowledged")


@pytest.mark.timeout(900)
def test_patterns_between_two_clusters_do_to_each_message_what_they_say_while_owners_are_killed(
    spark, clusters, tmp_path
):
    sites = {name: Site(name, server) for name, (_, server) in zip("ab", clusters, strict=True)}
    tasks = PatternTasks(sites, tmp_path)
    tasks.publish()
    federation = load(tasks.file)
    state = StateFolder(federation.runtime.state)
    job = FederationJob(federation, links_of(federation), spark, state)
    with job_in_thread(spark, job, state) as running:
        tasks.caught_up()
        for cluster, _ in clusters:
            tasks.publish()
            cluster.kill("publish-forwarder-1")
            tasks.publish()  # to the owner that takes over
            cluster.start("publish-forwarder-1")
            tasks.caught_up()
    assert not running.failures
    for task, verdict in tasks.outcomes():
        assert verdict.exact, (task, verdict)
        assert verdict.published >= tasks.published
    for site in sites.values():
        site.close()


@pytest.mark.timeout(900)
def test_both_clusters_have_the_union_once_and_nothing_goes_round_while_owners_are_killed(spark, clusters, tmp_path):
    sites = {name: Site(name, server) for name, (_, server) in zip("ab", clusters, strict=True)}
    topic, count = name_of("union"), 0
    content = {
        "version": 1,
        "clusters": {name: {"endpoint": site.server.endpoint} for name, site in sites.items()},
        "namespaces": {PROJECT: {"clusters": list(sites), "topics": ["union"]}},
        "runtime": {"max_rows": 100},
    }
    for site in sites.values():
        site.topic("union")

    def publish() -> None:
        nonlocal count
        for site in sites.values():
            site.publish(topic, range(count, count + 100))
        count += 100

    publish()
    with running_job(spark, content, tmp_path) as running:
        logs: dict[str, list[Message]] = {}

        def there() -> bool:
            logs.update((name, site.log(topic)) for name, site in sites.items())
            return all(len(log) >= 2 * count for log in logs.values())

        awaited(there, f"the first are everywhere; {running.state.flows()}", 400)
        for cluster, _ in clusters:
            publish()
            cluster.kill("publish-forwarder-1")
            publish()
            cluster.start("publish-forwarder-1")
            awaited(there, f"{2 * count} messages everywhere; {running.state.flows()}", 400)
        # What is published last is copied behind whatever a loop would have copied.
        publish()
        awaited(there, f"the last ones are everywhere; {running.state.flows()}", 400)
    originals = {one.message_id: one for log in logs.values() for one in log if not one.origin}
    assert len(originals) == 2 * count
    for name, log in logs.items():
        assert sorted(one.message_id for one in log) == sorted(originals), name
        assert all(one.content == originals[one.message_id].content for one in log)
        for publisher, other in logs.items():
            mine, theirs = ([one for one in found if one.attributes["from"] == publisher] for found in (log, other))
            assert {one.origin for one in mine} == {"" if publisher == name else publisher}
            assert not disordered(theirs, mine), (name, publisher)
    for site in sites.values():
        site.close()
