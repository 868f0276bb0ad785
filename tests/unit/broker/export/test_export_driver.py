"""Cloud Storage subscriptions over both forwarders and a folder, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.names import READING_REFUSED
from syncpoint.broker.export import bucket_files, buckets, export_driver
from syncpoint.broker.export.buckets import Buckets, Place, place_of
from syncpoint.broker.export.export_driver import ExportDriver, advice, export_state
from syncpoint.broker.inner import inner_driver
from syncpoint.broker.publish.intake.seek import seek_to_time
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.consuming import ConsumerHarness

pytestmark = pytest.mark.shows("export")


async def at_once(work: Callable[[], Any]) -> Any:
    return work()


def config(**fields: Any) -> bytes:
    storage = pubsub.CloudStorageConfig(**{"bucket": "b", "max_messages": 2, "filename_suffix": ".txt", **fields})
    storage.max_duration.seconds = 60
    storage.text_config.SetInParent()
    data: bytes = pubsub.Subscription(cloud_storage_config=storage).SerializeToString()
    return data


class Harness(ConsumerHarness):
    driver: ExportDriver

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        super().__init__(**{"config": config(), **options})
        self.buckets = Buckets({"b": place_of(str(folder))}, at_once)
        self.driver = ExportDriver(self.consuming(), self.buckets)

    @property
    def lines(self) -> list[str]:
        files = sorted(self.folder.rglob("*.txt"), key=lambda path: path.stat().st_mtime_ns)
        files = [path for path in files if path.parent.name != bucket_files.UNFINISHED]
        return [line for path in files for line in path.read_text().splitlines()]

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        async def with_buckets() -> None:
            self.buckets.start()
            try:
                await story
                await self.driver.close()
            finally:
                await self.buckets.stop()

        super().run(with_buckets())


def test_full_files_at_once_and_the_rest_when_it_is_due(tmp_path: Path) -> None:
    harness = Harness(tmp_path)

    async def story() -> None:
        harness.forwarders.send(*"abcde")
        await asyncio.sleep(5)
        assert sorted(harness.lines) == list("abcd")
        assert harness.unacknowledged() == 1
        await asyncio.sleep(60)
        assert sorted(harness.lines) == list("abcde")
        assert harness.unacknowledged() == 0
        await asyncio.sleep(120)
        assert len(harness.lines) == 5
        assert harness.driver.totals()["exported_files"] == 3
        assert list((tmp_path / bucket_files.UNFINISHED).iterdir()) == []

    harness.run(story())


def test_after_a_change_of_where_files_go_none_is_written_as_before(tmp_path: Path) -> None:
    harness = Harness(tmp_path, config=config(max_messages=10, filename_prefix="before/"))

    async def story() -> None:
        harness.forwarders.send(*"abc")
        await asyncio.sleep(5)
        changed = config(max_messages=10, filename_prefix="after/")
        change = CatalogChange.put(replace(harness.forwarders.record, config=changed))
        harness.change(change)
        harness.forwarders.send(*"defghij")
        await asyncio.sleep(70)
        assert sorted(harness.lines) == list("abcdefghij")
        assert {path.parent.name for path in tmp_path.rglob("*.txt")} == {"after"}
        assert harness.unacknowledged() == 0

    harness.run(story())


def test_a_file_holds_what_a_seek_brings_back_beside_what_was_written_before(tmp_path: Path) -> None:
    harness = Harness(tmp_path, config=config(max_messages=4), retain_acked=True)

    async def story() -> None:
        harness.forwarders.send(*"abcdef")
        await asyncio.sleep(5)
        assert sorted(harness.lines) == list("abcd")
        seek_to_time(harness.forwarders.publish, harness.forwarders.record, 0, None)  # e and f wait
        harness.forwarders.quiesce()
        await asyncio.sleep(70)
        assert sorted(harness.lines) == sorted("abcd" + "abcdef")
        assert harness.unacknowledged() == 0

    harness.run(story())


def test_a_bucket_that_is_away_and_comes_back(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "bucket")

    async def story() -> None:
        harness.forwarders.send("a", "b")
        await asyncio.sleep(30)
        assert harness.buckets.state("b") == pubsub.CloudStorageConfig.NOT_FOUND
        [state] = harness.driver.states()
        assert (state.state, state.last_error) == (pubsub.CloudStorageConfig.NOT_FOUND, "FileNotFoundError")
        assert "`syncpoint serve --bucket`" in advice(state.state, state.bucket)
        harness.folder.mkdir()
        await asyncio.sleep(5)
        assert sorted(harness.lines) == ["a", "b"]
        assert harness.unacknowledged() == 0

    harness.run(story())


def test_a_file_that_cannot_be_stored_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(tmp_path)
    whole, failing = bucket_files.put_whole, True

    def put(system: Any, root: str, name: str, data: bytes) -> None:
        if failing:
            raise OSError(28, "No space left on device")
        whole(system, root, name, data)

    monkeypatch.setattr(bucket_files, "put_whole", put)
    monkeypatch.setattr(buckets, "put_whole", put)

    async def story() -> None:
        nonlocal failing
        harness.forwarders.send("a", "b")
        await asyncio.sleep(20)
        assert harness.buckets.state("b") == pubsub.CloudStorageConfig.NOT_FOUND  # a look stores a file, too
        assert harness.driver.states()[0].refused == 2  # once, not in vain again and again
        failing = False
        await asyncio.sleep(70)
        assert sorted(harness.lines) == ["a", "b"]
        assert harness.unacknowledged() == 0

    harness.run(story())


def test_without_a_grant_or_where_another_process_exports_nothing_is(tmp_path: Path) -> None:
    harness = Harness(tmp_path)

    async def story() -> None:
        harness.refusal = READING_REFUSED
        harness.forwarders.send("a", "b")
        await asyncio.sleep(10)
        assert harness.lines == []
        harness.refusal, harness.mine = "", False
        await asyncio.sleep(10)
        assert harness.lines == []
        harness.mine = True
        await asyncio.sleep(5)
        assert sorted(harness.lines) == ["a", "b"]

    harness.run(story())


def test_names_that_mean_other_folders_stay_inside(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "in", config=config(filename_prefix="/../../x//./y_"))
    harness.folder.mkdir()

    async def story() -> None:
        harness.forwarders.send("a", "b")
        await asyncio.sleep(5)
        assert sorted(harness.lines) == ["a", "b"]
        assert [path.name for path in tmp_path.iterdir()] == ["in"]

    harness.run(story())


def test_keys_stay_in_order_over_files_that_are_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(tmp_path, ordered=True)
    whole, fails = bucket_files.put_whole, [True, False, True, False]

    def put(system: Any, root: str, name: str, data: bytes) -> None:
        if fails and fails.pop():
            raise OSError(28, "No space left on device")
        whole(system, root, name, data)

    monkeypatch.setattr(bucket_files, "put_whole", put)

    async def story() -> None:
        harness.forwarders.send(*map(str, range(9)), key="k")
        await asyncio.sleep(120)
        first = list(dict.fromkeys(harness.lines))
        assert first == [str(number) for number in range(9)]
        assert harness.unacknowledged() == 0

    harness.run(story())


def test_a_bucket_in_a_region_that_the_topic_does_not_allow_gets_nothing(tmp_path: Path) -> None:
    forwarders = Harness(tmp_path).forwarders
    known = forwarders.publish.catalog.topic_of(forwarders.record)
    assert known is not None
    topic = replace(known, regions=("r1",), enforce_in_transit=True)

    class Changed(Catalog):
        def topic_of(self, record: Subscription) -> Topic:
            return topic

    config = pubsub.CloudStorageConfig(bucket="b")
    restricted = pubsub.CloudStorageConfig.IN_TRANSIT_LOCATION_RESTRICTION
    for region, found in (("r2", True), ("r1", False), ("", False)):
        placed = Buckets({"b": place_of(str(tmp_path), region=region)}, at_once)
        state, _ = export_state(forwarders.record, config, Changed(), placed, lambda record: "")
        assert (state == restricted) is found


def test_a_bucket_that_does_not_answer_delays_no_other(tmp_path: Path) -> None:
    async def blocking(work: Any) -> Any:
        if "silent" in work.args:
            await asyncio.Event().wait()
        return work()

    async def story() -> None:
        buckets = Buckets({one: place_of(str(tmp_path)) for one in ("silent", "other")}, blocking)
        buckets.start()
        for _ in range(5):
            await asyncio.sleep(0)
        assert buckets.state("other") == pubsub.CloudStorageConfig.ACTIVE
        assert buckets.state("silent") == pubsub.CloudStorageConfig.NOT_FOUND
        await buckets.stop()

    asyncio.run(story())


def test_a_file_larger_than_memory_is_written_while_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_driver, "HELD_LEAST", 40_000)
    monkeypatch.setattr(export_driver, "HELD_MAX", 40_000)
    harness = Harness(tmp_path, config=config(max_messages=1_000))
    data = [f"{number:05d}" * 2_000 for number in range(12)]

    async def story() -> None:
        await asyncio.sleep(2)
        for one in data[:-2]:
            harness.forwarders.send(one)
            await asyncio.sleep(0.2)
        await asyncio.sleep(5)
        assert harness.lines == []
        (file,) = (tmp_path / bucket_files.UNFINISHED).iterdir()
        assert file.stat().st_size >= 60_000
        harness.mine = False  # another process exports it from now on
        await asyncio.sleep(2)
        assert not file.exists()
        assert harness.unacknowledged() == 0
        harness.mine = True
        harness.forwarders.send(*data[-2:])
        await asyncio.sleep(70)
        assert sorted(harness.lines) == data
        (path,) = tmp_path.glob("*.txt")
        assert path.stat().st_size == 12 * 10_000 + 11
        assert harness.unacknowledged() == 0

    harness.run(story())


def test_many_acknowledgements_leave_the_loop_to_others_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inner_driver, "IDS_A_TURN", 10)
    harness = Harness(tmp_path, config=config(max_messages=1_000))
    parts: list[int] = []
    acknowledge = harness.forwarders.subscribe.acknowledge

    def acknowledged(record: Subscription, request: bytes, *more: Any) -> None:
        parts.append(len(pubsub.AcknowledgeRequest.FromString(request).ack_ids))
        acknowledge(record, request, *more)

    monkeypatch.setattr(harness.forwarders.subscribe, "acknowledge", acknowledged)

    async def story() -> None:
        harness.forwarders.send(*map(str, range(35)))
        await asyncio.sleep(70)
        assert parts == [10, 10, 10, 5]
        assert harness.unacknowledged() == 0

    harness.run(story())


def test_a_bucket_is_written_for_projects_that_may_alone(tmp_path: Path) -> None:
    """Asked when it is used: what was allowed before goes no further than the next look."""
    harness, asked, allowed = Harness(tmp_path), set[tuple[str, str]](), [True]

    def may_use(project: str, bucket: str) -> bool:
        asked.add((project, bucket))
        return allowed[0]

    async def story() -> None:
        harness.buckets.may_use = may_use
        harness.forwarders.send("a", "b")
        await asyncio.sleep(5)
        assert sorted(harness.lines) == ["a", "b"]
        allowed[0] = False
        await asyncio.sleep(10)
        harness.forwarders.send("c", "d")
        await asyncio.sleep(90)
        assert sorted(harness.lines) == ["a", "b"]
        allowed[0] = True
        await asyncio.sleep(90)
        assert sorted(harness.lines) == ["a", "b", "c", "d"]

    harness.run(story())
    project = "/".join(harness.forwarders.record.name.split("/")[:2])
    assert asked == {(project, "b")}


@pytest.mark.parametrize(
    "place",
    [
        place_of("http://127.0.0.1:2379/folder"),
        place_of("memory://x", {"client_kwargs": {"endpoint_url": "http://127.0.0.1:2379"}}),
        place_of("memory://x", {"host": "127.0.0.1", "port": 2379}),
    ],
)
def test_a_bucket_at_an_endpoint_of_the_deployment_is_denied_and_nothing_is_sent_there(place: Place) -> None:
    called: list[Any] = []

    async def blocking(work: Callable[[], Any]) -> None:
        called.append(work)

    async def look() -> None:
        buckets = Buckets({"b": place}, blocking)
        buckets.is_own = lambda url: "127.0.0.1:2379" in url
        await buckets.look("b")
        assert buckets.state("b") == pubsub.CloudStorageConfig.PERMISSION_DENIED
        with pytest.raises(PermissionError, match="leads back to this deployment"):
            await buckets.store("b", frozenset)
        assert called == []
        buckets.is_own = lambda url: False
        buckets._failed.add("b")
        for _ in range(2):
            await buckets.look("b")
            assert buckets.state("b") == pubsub.CloudStorageConfig.ACTIVE
        assert [one.args[1] for one in called] == [True, False], "one file is stored to see whether files can be"

    asyncio.run(look())
