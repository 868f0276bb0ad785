"""Cloud Storage subscriptions of a real server: a folder over kill -9, and a service that speaks S3."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import fsspec
import pytest

from syncpoint.broker.export.bucket_files import BucketFile, remove_left
from syncpoint.broker.export.contents import Contents
from syncpoint.broker.inner.lent import Lent
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.testing.rigs.official import eventually, refused
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("export")

ACTIVE, RESOURCE_ERROR = 1, 2
SCHEMA_MISMATCH = 5
NOT_FOUND = 3  # of the bucket


def lines(folder: Path) -> Counter[str]:
    return Counter(line for path in folder.rglob("*.txt") for line in path.read_text().splitlines())


def publish(space: Any, topic: str, start: int, count: int) -> set[str]:
    names = [str(number) for number in range(start, start + count)]
    space.publish(topic, *[name.encode() for name in names])
    return set(names)


def test_everything_is_in_files_at_least_once_over_kill_9(
    boot: Callable[..., ServerProcess], enter: Callable[[str], Any], tmp_path: Path
) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    server = boot(args=["--bucket", f"archive={bucket}"])
    space = enter(server.endpoint)
    config = {"bucket": "archive", "filename_suffix": ".txt", "max_messages": 1_000}
    topic, sub = space.pair(cloud_storage_config=config)
    assert space.api.get_subscription({"subscription": sub}).state == ACTIVE
    sent = set[str]()
    for start in range(0, 3_500, 500):
        sent |= publish(space, topic, start, 500)
    eventually(lambda: len(lines(bucket)) > 0)
    server.restart(hard=True)
    after = enter(server.endpoint)

    def all_there() -> bool:
        start = len(sent)
        sent.update(publish(after, topic, start, 500))  # so that files become full
        return {str(number) for number in range(3_500)} <= set(lines(bucket))

    eventually(all_there, within=50)
    assert set(lines(bucket)) <= sent
    assert sum(lines(bucket).values()) <= 2 * len(sent)


def test_a_file_larger_than_memory_and_one_by_the_schema_of_the_topic(
    boot: Callable[..., ServerProcess], enter: Callable[[str], Any], tmp_path: Path
) -> None:
    """Both on one server; what does not fit a schema of Protocol Buffers is not written at all."""
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    space = enter(boot(args=["--bucket", f"archive={bucket}"]).endpoint)
    large, count = 1 << 20, 50
    config = {"bucket": "archive", "filename_prefix": "large/", "max_bytes": 48 << 20}
    topic, _ = space.pair(cloud_storage_config=config)
    for at in range(0, count, 5):
        space.publish(topic, *[b"%04d" % number * (large // 4) for number in range(at, at + 5)])

    avro = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    files = {"bucket": "archive", "max_messages": 1_000, "avro_config": {"use_topic_schema": True}}
    for kind, definition in (
        ("AVRO", json.dumps(avro)),
        ("PROTOCOL_BUFFER", 'syntax="proto3"; message R {int32 n=1;}'),
    ):
        short = kind.lower().replace("_", "-")
        schema = space.api.create_schema(
            {
                "parent": f"projects/{space.project}",
                "schema_id": short,
                "schema": {"type_": kind, "definition": definition},
            }
        )
        typed = space.topic(short, schema_settings={"schema": schema.name, "encoding": "JSON"})
        made = space.subscription(typed, short, cloud_storage_config={**files, "filename_prefix": f"{short}/"})
        space.publish(typed, *[json.dumps({"n": number}).encode() for number in range(1_000)])
        state = space.api.get_subscription({"subscription": made}).cloud_storage_config.state
        assert state == (ACTIVE if kind == "AVRO" else SCHEMA_MISMATCH)
    eventually(lambda: list(bucket.glob("avro/*")))
    with next(bucket.glob("avro/*")).open("rb") as file:
        assert sorted(one["n"] for one in fastavro.reader(file)) == list(range(1_000))
    assert not list(bucket.glob("protocol-buffer/*"))

    eventually(lambda: list(bucket.glob("large/*")))
    (path,) = bucket.glob("large/*")
    found = path.read_bytes().split(b"\n")
    assert 40 <= len(found) == len(set(found)) <= 48  # of a MiB and some bytes each
    assert all(one == one[:4] * (large // 4) for one in found)


def uploads_leave_nothing(there: Any) -> None:
    """A file in pieces is not there before it is whole; what is discarded, or was left long ago, not at all."""
    name = "x/2026-03-04T05:06:07+00:00_00010203-0405-0607-0809-0a0b0c0d0e0f"
    piece = [Lent("a", CopyId(1, 1, 0), pubsub.PubsubMessage(data=bytes(9 << 20)))]
    for last in ("whole", "discarded", "left"):
        file = BucketFile(lambda: (there, "far/below"), name, Contents(pubsub.CloudStorageConfig(), "s"))
        file.add(piece, last=False)
        assert len(there.list_multipart_uploads("far")) == 1
        assert not there.exists(f"far/below/{name}")
        if last == "whole":
            file.add(piece, last=True)
            assert there.size(f"far/below/{name}") == 2 * (9 << 20) + 1
            there.rm_file(f"far/below/{name}")
        elif last == "discarded":
            file.discard()
        else:
            del file
            assert remove_left(there, "far/below", 1) == 0
            assert remove_left(there, "far/below", time.time()) == 1
        assert there.list_multipart_uploads("far") == []


def test_a_service_that_speaks_s3(boot: Callable[..., ServerProcess], enter: Callable[[str], Any]) -> None:
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    moto.start()
    try:
        host, port = moto.get_host_and_port()
        options = {"endpoint_url": f"http://{host}:{port}", "key": "k", "secret": "s"}
        query = "&".join(f"{name}={value}" for name, value in options.items())
        space = enter(boot(args=["--bucket", f"archive=s3://far/below?{query}"]).endpoint)
        config = {"bucket": "archive", "filename_prefix": "x/", "max_messages": 1_000}
        topic, sub = space.pair(cloud_storage_config={**config, "avro_config": {"write_metadata": True}})
        found = space.api.get_subscription({"subscription": sub})
        assert (found.state, found.cloud_storage_config.state) == (RESOURCE_ERROR, NOT_FOUND)
        sent = publish(space, topic, 0, 1_000)
        there = fsspec.filesystem("s3", **options, use_listings_cache=False)
        there.mkdir("far")
        eventually(lambda: space.api.get_subscription({"subscription": sub}).state == ACTIVE)
        eventually(lambda: there.find("far/below/x"))
        with there.open(there.find("far/below/x")[0], "rb") as file:
            records = list(fastavro.reader(file))
        assert {one["data"].decode() for one in records} == sent
        assert {one["subscription_name"] for one in records} == {sub}
        uploads_leave_nothing(there)
    finally:
        moto.stop()


def test_what_is_not_backed_waits_and_can_be_pulled_when_it_is_no_export_any_more(space: Any) -> None:
    topic = space.topic()
    table = {"table": "projects/p/instances/i/tables/t"}
    for short, config in (("rows", {"bigquery_config": {"table": "p.d.t"}}), ("cells", {"bigtable_config": table})):
        sub = space.subscription(topic, short, **config)
        space.publish(topic, short.encode())
        assert space.api.get_subscription({"subscription": sub}).state == RESOURCE_ERROR
        with refused("FAILED_PRECONDITION"):
            space.peek(sub)
        changed = {"subscription": {"name": sub, "topic": topic}, "update_mask": {"paths": list(config)}}
        assert space.api.update_subscription(changed).state == ACTIVE
        assert short.encode() in {one.message.data for one in space.pull(sub)}
