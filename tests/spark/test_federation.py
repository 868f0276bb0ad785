"""A federation of three servers, as its job runs it: each has the union, each message once, and nothing goes round."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from syncpoint.programs.federation.servers import Servers
from syncpoint.testing.rigs.log_oracle import Message, disordered
from syncpoint.testing.rigs.official import refused
from tests.spark.federation_kit import RunningJob, Site, awaited, name_of, running_job, sites

pytestmark = pytest.mark.shows("federation")

SECRET = "a-token-that-nobody-may-see-40517"
ORDERS = name_of("orders")
COPIES = "projects/copies/topics/a-orders"
RULES = """
from pyspark.sql.functions import concat, lit

def signed(frame):
    return frame.withColumn("data", concat(frame["data"], lit("!").cast("binary")))
"""


@dataclass
class Harness:
    sites: dict[str, Site]
    running: RunningJob
    folder: Path

    def logs(self, topic: str) -> dict[str, list[Message]]:
        return {name: site.log(topic) for name, site in self.sites.items()}

    def union(self, topic: str, count: int) -> dict[str, list[Message]]:
        """The logs, as soon as each cluster has so many messages and no flow waits."""

        def stable() -> bool:
            with Servers() as servers:
                flows = [one.flow for one in self.running.job.running.values()]
                return all(servers.progress(flow).lag == 0 for flow in flows)

        def there() -> bool:
            return all(len(log) >= count for log in self.logs(topic).values()) and stable()

        awaited(there, f"{count} messages of {topic} everywhere; {self.running.state.flows()}")
        return self.logs(topic)


@pytest.fixture(scope="module")
def harness(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    folder = tmp_path_factory.mktemp("federation")
    (folder / "rules_for_tests.py").write_text(RULES)
    (folder / "token").write_text(SECRET + "\n")
    sys.path.insert(0, str(folder))
    with sites("abc", folder) as made:
        for site in made.values():
            site.topic("orders")
        made["a"].publish(ORDERS, range(20))
        clusters: dict[str, Any] = {name: {"endpoint": site.server.endpoint} for name, site in made.items()}
        clusters["b"]["token"] = {"file": "token"}
        clusters["c"]["token"] = {"file": "token"}
        content = {
            "version": 1,
            "clusters": clusters,
            "namespaces": {"fed": {"clusters": ["a", "b", "c"], "topics": ["orders", "new-*"]}},
            "tasks": {
                "changed": {
                    "pattern": "replicate",
                    "from": {"cluster": "a", "topic": ORDERS},
                    "to": {"cluster": "b", "topic": "projects/copies/topics/a-{topic}"},
                    "where": "attributes['from'] = 'a' AND CAST(attributes['n'] AS INT) % 2 = 0",
                    "select": {
                        "data": "upper(CAST(data AS STRING))",
                        "attributes": "map_concat(attributes, map('region', 'a'))",
                    },
                    "python": "rules_for_tests:signed",
                }
            },
            "runtime": {"max_rows": 40},
        }
        with running_job(spark, content, folder) as running:
            yield Harness(made, running, folder)
    sys.path.remove(str(folder))


def test_each_region_has_the_union_once_and_in_order(harness: Harness) -> None:
    for number, site in enumerate(harness.sites.values()):
        site.publish(ORDERS, range(20 + 100 * number, 60 + 100 * number))
    logs = harness.union(ORDERS, 140)
    original = {one.message_id: one for log in logs.values() for one in log if not one.origin}
    assert len(original) == 140
    for name, log in logs.items():
        assert len(log) == len({one.message_id for one in log}) == 140, name
        for one in log:
            assert one.content == original[one.message_id].content
            published_at = one.attributes["from"]
            assert (one.origin, one.visited) == (("", ()) if published_at == name else (published_at, (published_at,)))
        for publisher, other in logs.items():
            mine = [one for one in log if one.attributes["from"] == publisher]
            theirs = [one for one in other if one.attributes["from"] == publisher]
            assert not disordered(theirs, mine), (name, publisher)


def test_nothing_goes_round(harness: Harness) -> None:
    before = {name: len(log) for name, log in harness.union(ORDERS, 20).items()}
    # A message that travels shows that every link has checked all that lay before it.
    harness.sites["c"].publish(ORDERS, [9000])
    harness.sites["b"].publish(ORDERS, [9001])
    after = harness.union(ORDERS, max(before.values()) + 2)
    assert {name: len(log) for name, log in after.items()} == {name: count + 2 for name, count in before.items()}
    with Servers() as servers:
        progress = [servers.progress(one.flow) for one in harness.running.job.running.values()]
    links = [one for one in progress if one.flow.source_topic == ORDERS and one.flow.name.startswith("fed.")]
    assert len(links) == 6
    assert all(one.gaps_refused == 0 and one.lag == 0 for one in links)
    assert sum(one.rows for one in links) == 2 * len(after["a"])  # each message has gone to the two others, once


def test_what_is_written_back_is_written_locally_and_travels(harness: Harness) -> None:
    """A consumer in c answers what it got from a; the answer is c's own, and reaches the others as such."""
    harness.union(ORDERS, 20)
    site = harness.sites["c"]
    (question,) = [one for one in site.log(ORDERS) if one.data == b"a-7"]
    assert question.origin == "a"
    answer = {"data": b"answer to a-7", "attributes": {"from": "c", "n": "-7"}}
    (answer_id,) = site.api.publish({"topic": ORDERS, "messages": [answer]}).message_ids

    def arrived() -> bool:
        logs = harness.logs(ORDERS)
        return all(any(one.message_id == answer_id for one in log) for log in logs.values())

    awaited(arrived, "the answer everywhere")
    (seen,) = [one for one in harness.sites["a"].log(ORDERS) if one.message_id == answer_id]
    assert (seen.origin, seen.visited) == ("c", ("c",))


def test_official_clients_see_the_original_id_and_time(harness: Harness) -> None:
    harness.sites["b"].topic("new-official")
    subscription = "projects/fed/subscriptions/reads-copies"
    harness.sites["b"].api.create_subscription({"name": subscription, "topic": name_of("new-official")})
    harness.sites["a"].topic("new-official")
    harness.sites["a"].publish(name_of("new-official"), [1])

    def pulled() -> Any:
        return harness.sites["b"].api.pull({"subscription": subscription, "max_messages": 1}).received_messages

    (got,) = awaited(pulled, "the copy delivered")
    (published,) = [one for one in harness.sites["a"].log(name_of("new-official")) if not one.origin]
    assert (got.message.message_id, got.message.data) == (published.message_id, b"a-1")
    assert got.message.publish_time.timestamp_pb().ToMicroseconds() == round(
        published.publish_time.timestamp() * 1_000_000
    )


def test_a_topic_that_appears_begins_to_flow_and_is_made_at_the_targets(harness: Harness) -> None:
    with refused("NOT_FOUND"):
        harness.sites["b"].api.get_topic({"topic": name_of("new-items")})
    harness.sites["c"].topic("new-items")
    harness.sites["c"].publish(name_of("new-items"), range(10))

    def made() -> bool:
        return all(any(name_of("new-items") == one.name for one in topics(site)) for site in harness.sites.values())

    def topics(site: Site) -> Any:
        return site.api.list_topics({"project": "projects/fed"}).topics

    awaited(made, "the topic everywhere")
    harness.union(name_of("new-items"), 10)
    made_topic = harness.sites["a"].api.get_topic({"topic": name_of("new-items")})
    assert made_topic.message_retention_duration.total_seconds() == 86_400


def test_where_select_and_python_change_what_is_copied(harness: Harness) -> None:
    def even() -> list[Message]:
        return [
            one
            for one in harness.sites["a"].log(ORDERS)
            if one.attributes.get("from") == "a" and int(one.attributes["n"]) % 2 == 0
        ]

    awaited(lambda: len(harness.sites["b"].log(COPIES)) >= len(even()) > 0, "the copies")
    copies = harness.sites["b"].log(COPIES)
    originals = {one.message_id: one for one in even()}
    assert len(copies) == len(originals)
    for one in copies:
        original = originals[one.message_id]
        assert one.data == original.data.upper() + b"!"
        assert one.attributes == {**original.attributes, "region": "a"}
        assert (one.ordering_key, one.publish_time) == (original.ordering_key, original.publish_time)
    assert not disordered(even(), copies)


def test_secrets_are_in_no_state_file(harness: Harness) -> None:
    harness.union(ORDERS, 20)
    files = [path for path in (harness.folder / "federation-state").rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    # There was something to find: the links to b and c name the file with it. That servers are sent what such a file
    # holds is tested elsewhere; no server of ours looks at it.
    tokens = [one.flow.link.target.token for one in harness.running.job.running.values()]
    named = {(harness.folder / token["file"]).read_text().strip() for token in tokens if token is not None}
    assert named == {SECRET}
