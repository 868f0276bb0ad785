"""Streams of other systems, from end to end: a real Kafka broker with Spark's own Kafka source and sink, and a folder.

One broker, one server, three lives of the job. The first one is killed (SIGKILL of all of Spark) behind a commit, the
second one in the middle of a stage, and all that they had on disk is deleted, so that nothing but the target knows what
was copied; the third one has all flows. Every record must be in the log once, those of a key in their order. Kafka's
side is written and read by a client of its own (kafka-python). Run by `make test-kafka`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from syncpoint.testing.kafka.kafka_broker import KafkaBroker
from syncpoint.testing.kafka.kafka_jars import spark_jars
from syncpoint.testing.server_process import ServerProcess
from tests.faults_spark.faults_kit import Driver
from tests.spark.federation_kit import Site, awaited, running_job

pytest.importorskip("kafka")
from syncpoint.testing.kafka import kafka_client
from syncpoint.testing.kafka.kafka_client import KafkaRecord
from tests.spark.kafka_kit import PATIENCE_S, Produced, check_once_in_order, place_of, produced

pytestmark = pytest.mark.shows("streams")

ALL, ONE, DROPPED = "projects/lake/topics/all", "projects/lake/topics/one", "projects/lake/topics/dropped"
COUNT, LATER, BATCH = 2000, 500, 300
LONG_KEY = b"k" * 1500
ODD = [
    KafkaRecord("orders", None, b"no key"),
    KafkaRecord("orders", b"\xff\xfe", b"a key of bytes", [("trace", b"\x00\xff"), ("n", b"1"), ("n", b"2")]),
    KafkaRecord("orders", LONG_KEY, b"a long key", [("huge", b"x" * 2000), ("kafka.offset", b"forged")]),
    KafkaRecord("orders", b"gone", None),
    KafkaRecord("orders", b"id", b"elsewhere", [("syncpoint.message-id", b"41"), ("syncpoint.visited", b"us")]),
    KafkaRecord("orders", b"id", b"was here", [("syncpoint.visited", b"us,eu")]),
]


@dataclass
class Streams:
    """What the tests look at, behind it all."""

    site: Site
    broker: KafkaBroker
    produced: list[Produced] = field(default_factory=list)
    odd: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # where each odd record is
    killed_at: list[int] = field(default_factory=list)  # rows at the target when each job had died
    state: Mapping[str, Any] = field(default_factory=dict)
    lags: dict[str, list[int | None]] = field(default_factory=dict)


def federation(site: Site, broker: KafkaBroker, folder: Path, *tasks: str) -> dict[str, Any]:
    every = {
        "whole": {
            "pattern": "stream-to-queue",
            "from": {"stream": "lake", "topic": "orders"},
            "to": {"cluster": "eu", "topic": ALL},
        },
        "part": {
            "pattern": "stream-to-queue",
            "from": {"stream": "lake", "topic": "orders", "partitions": [1]},
            "to": {"cluster": "eu", "topic": ONE},
            "where": "CAST(attributes['kafka.offset'] AS BIGINT) % 2 = 0",
        },
        "files": {
            "pattern": "stream-to-queue",
            "from": {"stream": "drop"},
            "to": {"cluster": "eu", "topic": DROPPED},
            "select": {"ordering_key": "get_json_object(CAST(data AS STRING), '$.key')"},
        },
        "back": {
            "pattern": "queue-to-stream",
            "from": {"cluster": "eu", "topic": DROPPED},
            "to": {"stream": "lake", "topic": "accepted"},
        },
    }
    return {
        "version": 1,
        "clusters": {"eu": {"endpoint": site.server.endpoint}},
        "streams": {
            "lake": {"kafka": {"bootstrap": broker.address, "options": {"client.id": {"env": "LAKE_CLIENT"}}}},
            "drop": {"files": {"path": str(folder / "drop"), "format": "json"}},
        },
        "tasks": {name: every[name] for name in tasks or every},
        "runtime": {"state": str(folder / "state"), "max_rows": BATCH, "master": "local[2]"},
    }


@pytest.fixture(scope="module")
def streams(jars: list[Path], spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Streams]:
    folder = tmp_path_factory.mktemp("streams")
    os.environ["LAKE_CLIENT"] = "lake-reader"
    site = Site("eu", ServerProcess(folder / "eu").start())
    for topic in ("all", "one", "dropped"):
        site.topic(topic, "lake")
    try:
        with KafkaBroker(folder / "kafka", jars, partitions=3) as broker:
            made = Streams(site, broker)
            made.produced += produced(broker.address, "orders", range(COUNT))
            killed(made, folder, jars, "committed")
            killed(made, folder, jars, "staging")
            (folder / "drop").mkdir()
            dropped(folder, 0)
            with running_job(spark, federation(site, broker, folder), folder) as running:
                odd(made)
                made.produced += produced(broker.address, "orders", range(COUNT, COUNT + LATER))
                awaited(lambda: len(site.log(DROPPED)) == 10, "the first file", PATIENCE_S)
                dropped(folder, 1)
                finished(made, running)
            yield made
    finally:
        os.environ.pop("LAKE_CLIENT")
        site.close()


def odd(made: Streams) -> None:
    places = kafka_client.produce(made.broker.address, ODD)
    made.odd = {one.value or b"": place for one, place in zip(ODD, places, strict=True)}


def dropped(folder: Path, number: int) -> None:
    """A file comes as a whole, by a new name."""
    lines = [json.dumps({"key": f"f{n % 3}", "n": 10 * number + n}) for n in range(10)]
    (folder / f"{number}.new").write_text("\n".join([*lines[:5], "", *lines[5:]]) + "\n")
    (folder / f"{number}.new").rename(folder / "drop" / f"{number}.jsonl")


def killed(made: Streams, folder: Path, jars: list[Path], point: str) -> None:
    """A job of one flow, killed as a whole when it comes to a point, and nothing of it left."""
    file = folder / "federation.yaml"
    file.write_text(json.dumps(federation(made.site, made.broker, folder, "whole")))  # JSON is YAML
    driver = Driver(folder / f"driver-{point}", settings={"spark.jars": spark_jars(jars)})
    driver.start()
    try:
        driver.hold(point)
        driver.do(f"job(spark, {str(file)!r})")
        driver.reached(point)
    finally:
        driver.kill()
    shutil.rmtree(folder / "state")
    made.killed_at.append(len(made.site.log(ALL)))


def finished(made: Streams, running: Any) -> None:
    """Until every flow has copied what there is; what was said of them in the meantime."""
    names = ("whole.orders", "part.orders", "files.files", "back.dropped")

    def done() -> bool:
        said = running.state.flows()
        for name in names:
            if name in said:
                made.lags.setdefault(name, []).append(said[name].lag)
        known = len(made.produced) + len(ODD) - 1
        return (
            len(made.site.log(ALL)) >= known
            and len(made.site.log(DROPPED)) >= 20
            and all(said[name].lag == 0 for name in names[:3])
            and said["back.dropped"].rows >= 20
        )

    awaited(done, f"all is copied; {running.state.flows()}", PATIENCE_S)
    made.state = running.state.flows()


def test_every_record_is_in_the_log_once_in_the_order_of_its_key(streams: Streams) -> None:
    log = [one for one in streams.site.log(ALL) if one.ordering_key.startswith("key-")]
    behind_a_commit, in_a_stage = streams.killed_at
    assert 0 < behind_a_commit == in_a_stage < len(log), "the jobs were killed in the middle"
    check_once_in_order(log, streams.produced)
    assert len({partition for partition, _ in map(place_of, log)}) == 3
    assert {one.origin for one in log} == {"lake"}
    assert {one.attributes["kafka.topic"] for one in log} == {"orders"}
    partition, offset = streams.produced[0].place
    assert log[0].message_id.startswith("lake:orders:")
    assert f"lake:orders:{partition}:{offset}" in {one.message_id for one in log}


def test_one_partition_and_a_condition(streams: Streams) -> None:
    log = streams.site.log(ONE)
    places = [*(one.place for one in streams.produced), *streams.odd.values()]
    wanted = [(partition, offset) for partition, offset in places if partition == 1 and offset % 2 == 0]
    assert Counter(map(place_of, log)) == Counter(wanted) - Counter([streams.odd[b"was here"]])


def test_a_record_becomes_a_message_whatever_is_in_it(streams: Streams) -> None:
    by_place = {place_of(one): one for one in streams.site.log(ALL)}
    found = {value: by_place.get(place) for value, place in streams.odd.items()}
    assert found.pop(b"was here") is None, "it came through this server already"
    messages = {value: one for value, one in found.items() if one is not None}
    assert len(messages) == len(ODD) - 1
    assert messages[b"no key"].ordering_key == ""
    of_bytes = messages[b"a key of bytes"]
    assert (of_bytes.ordering_key, of_bytes.attributes["kafka.key"]) == ("//4=", "base64")
    assert (of_bytes.attributes["trace.base64"], of_bytes.attributes["n"]) == ("AP8=", "2")
    long = messages[b"a long key"]
    assert (len(long.ordering_key), long.attributes["kafka.key"]) == (64, "sha256")
    assert long.attributes["kafka.headers-left-out"] == "1"
    assert long.attributes["kafka.offset"] == str(streams.odd[b"a long key"][1])
    assert (messages[b""].data, messages[b""].attributes["kafka.tombstone"]) == (b"", "true")
    assert (messages[b"elsewhere"].message_id, messages[b"elsewhere"].visited) == ("41", ("us", "lake"))


def test_each_line_of_a_file_is_in_the_log_once_and_at_kafka_at_least_once(streams: Streams) -> None:
    log = streams.site.log(DROPPED)
    assert sorted(json.loads(one.data)["n"] for one in log) == list(range(20))
    assert {one.attributes["file.name"] for one in log} == {"0.jsonl", "1.jsonl"}
    for key in ("f0", "f1", "f2"):
        numbers = [json.loads(one.data)["n"] for one in log if one.ordering_key == key]
        assert numbers == sorted(numbers)
    records = kafka_client.records_of(streams.broker.address, "accepted")
    ids = Counter(dict(one.headers)["syncpoint.message-id"].decode() for one in records)
    assert ids.keys() == {one.message_id for one in log}
    assert sum(ids.values()) - len(ids) <= 2 * BATCH
    first = {}
    for one in records:
        first.setdefault(dict(one.headers)["syncpoint.message-id"], one)
    for key in (b"f0", b"f1", b"f2"):
        numbers = [json.loads(one.value)["n"] for one in first.values() if one.key == key]
        assert numbers == sorted(numbers)
        assert len({one.partition for one in first.values() if one.key == key}) == 1


def test_what_is_said_of_the_flows(streams: Streams) -> None:
    assert {name: one.error for name, one in streams.state.items() if one.error} == {}
    assert streams.state["whole.orders"].lag == 0
    assert any(lag for lag in streams.lags["whole.orders"]), "what waited was seen"
    assert streams.state["back.dropped"].rows >= 20
