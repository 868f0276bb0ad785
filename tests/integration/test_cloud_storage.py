"""Cloud Storage subscriptions of a real server: a folder over kill -9, and a service that speaks S3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import fsspec

from syncpoint.testing.official import eventually
from syncpoint.testing.server_process import ServerProcess

ACTIVE, RESOURCE_ERROR = 1, 2
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
    eventually(lambda: len(lines(bucket)) > 0, within=20)
    server.restart(hard=True)
    after = enter(server.endpoint)

    def all_there() -> bool:
        start = len(sent)
        sent.update(publish(after, topic, start, 500))  # so that files become full
        return {str(number) for number in range(3_500)} <= set(lines(bucket))

    eventually(all_there, within=50)
    assert set(lines(bucket)) <= sent
    assert sum(lines(bucket).values()) <= 2 * len(sent)


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
        eventually(lambda: space.api.get_subscription({"subscription": sub}).state == ACTIVE, within=20)
        eventually(lambda: there.find("far/below/x"), within=20)
        with there.open(there.find("far/below/x")[0], "rb") as file:
            records = list(fastavro.reader(file))
        assert {one["data"].decode() for one in records} == sent
        assert {one["subscription_name"] for one in records} == {sub}
    finally:
        moto.stop()
