"""Reading by pipelines through a proxy: positions joined, ranges relayed, cursors of all chains, owners that change."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.broker.pipeline.cursor_names import cursors_of
from syncpoint.catalog.metadata.contract import Delete
from syncpoint.catalog.metadata.view import OWNERS
from syncpoint.front.proxy.pipeline_reading import in_order
from syncpoint.wire.protobuf.messages import pipeline
from tests.kit.epochs import frame
from tests.kit.pipelines import READER, cluster, positions, refused, source, stage
from tests.kit.proxy import TOPIC, ProxyHarness, ProxyProcess, in_harness


def test_sources_are_in_the_order_of_keys_and_those_of_a_chain_in_that_of_their_numbers() -> None:
    found = in_order({2: [source(30, 1), source(20, 0)], 1: [source(10, 1), source(40, 0)]})
    assert [(one.source, one.chain, one.epoch) for one in found] == [(20, 2, 0), (10, 1, 1), (40, 1, 1), (30, 2, 1)]


@in_harness()
async def test_positions_are_those_of_all_chains(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    one.sources[1], two.sources[2] = [source(10, 1)], [source(20, 0), source(30, 1)]
    found = await positions(harness, latest=True)
    assert [(at.source, at.chain) for at in found.sources] == [(20, 2), (10, 1), (30, 2)]
    assert (found.topic, found.topic_incarnation, found.time.seconds) == (TOPIC, harness.topic.incarnation, 2)
    assert found.universe == "0"  # the cluster's, not a chain's
    ((_, asked),) = one.asked
    assert asked.latest
    assert asked.topic_incarnation == harness.topic.incarnation


@in_harness()
async def test_positions_are_never_shorter_because_a_chain_is_away(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    one.sources[1], two.sources[2] = [source(10)], [source(20)]
    harness.store.txn([], [Delete(f"{OWNERS}2")])
    failing = asyncio.ensure_future(refused(positions(harness, timeout=None)))
    await asyncio.sleep(5.0)
    assert not failing.done()  # it waits for an owner
    await asyncio.sleep(40.0)
    error = await failing
    assert error.code is Code.UNAVAILABLE
    assert "Chain 2" in error.message
    waiting = asyncio.ensure_future(positions(harness))
    await asyncio.sleep(1.0)
    one.sources[2] = [source(20)]
    harness.chain(2, one, epoch=2)
    assert [at.source for at in (await waiting).sources] == [10, 20]


@in_harness()
async def test_a_topic_without_chains_has_no_positions_and_refusals_are_those_of_one_node(
    harness: ProxyHarness,
) -> None:
    await harness.start(ProxyProcess, "proxy")
    assert not (await positions(harness)).sources
    for asked, code in (
        ({"topic": "projects/p/topics/none"}, Code.NOT_FOUND),
        ({"topic_incarnation": 99}, Code.FAILED_PRECONDITION),
        ({"topic": "", "subscription": "projects/p/subscriptions/none"}, Code.NOT_FOUND),
        ({"subscription": "projects/p/subscriptions/billing"}, Code.INVALID_ARGUMENT),
        ({"snapshot": "projects/p/snapshots/none"}, Code.NOT_FOUND),
        ({"cursor": {"name": ""}}, Code.INVALID_ARGUMENT),
        ({"topic": "", "subscription": "projects/p/subscriptions/billing", "cursor": {"name": "c"}},
         Code.INVALID_ARGUMENT),
        ({"topic": "", "subscription": "projects/p/subscriptions/billing", "exclusive_reader": "x",
          "exclusive_seconds": -1}, Code.INVALID_ARGUMENT),
    ):  # fmt: skip
        assert (await refused(positions(harness, **asked))).code is code, asked


@in_harness()
async def test_chains_must_agree_about_a_seek(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    one.sources[1], two.sources[2] = [source(10)], [source(20)]
    one.generations[1], two.generations[2] = [1, 1, 1], [0, 0, 1]
    found = await positions(harness, topic="", subscription="projects/p/subscriptions/billing", backlog=True)
    assert found.generation == 1
    assert len(two.asked) == 3
    two.generations[2] = [0]
    error = await refused(positions(harness, topic="", subscription="projects/p/subscriptions/billing"))
    assert error.code is Code.UNAVAILABLE


@in_harness()
async def test_a_cursor_has_its_name_in_the_catalog_and_its_positions_in_each_chain(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    one.sources[1], two.sources[2] = [source(10)], [source(20)]
    await positions(harness, cursor={"name": "c", "retention_seconds": 60}, first=True)
    assert cursors_of(harness.catalog, harness.topic.incarnation)["c"].retention_s == 60
    assert [asked.first for _, asked in (*one.asked, *two.asked)] == [True, True]
    ranges = [pipeline.SourceRange(source=10, end=3, chain=1), pipeline.SourceRange(source=20, end=4)]
    await positions(harness, cursor={"name": "c", "retention_seconds": 60}, processed=ranges)
    assert [(at.source, at.end) for at in one.asked[-1][1].processed] == [(10, 3)]
    assert [(at.source, at.end) for at in two.asked[-1][1].processed] == [(20, 4)]


async def cursors(harness: ProxyHarness, **asked: Any) -> list[Any]:
    answer = await harness.call(READER + "ListCursors", pipeline.ListCursorsRequest(**asked))
    return list(pipeline.ListCursorsResponse.FromString(answer).cursors)


@in_harness()
async def test_cursors_are_listed_and_deleted_over_all_chains(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    for name in ("c", "new"):
        await positions(harness, cursor={"name": name}, first=True)
    one.cursors[1], two.cursors[2] = {"c"}, {"c"}
    for asked in ({"topic": TOPIC}, {"project": "projects/p"}):
        first, second = await cursors(harness, **asked)
        assert (first.name, first.lag_messages) == ("c", 3)
        assert [(at.source, at.chain) for at in first.ranges] == [(10, 1), (20, 2)]
        assert (second.name, second.lag_messages) == ("new", 0)
    await harness.call(READER + "DeleteCursor", pipeline.DeleteCursorRequest(topic=TOPIC, name="c"))
    assert (one.cursors, two.cursors) == ({1: set()}, {2: set()})
    assert [found.name for found in await cursors(harness, topic=TOPIC)] == ["new"]
    gone = harness.call(READER + "DeleteCursor", pipeline.DeleteCursorRequest(topic=TOPIC, name="c"))
    assert (await refused(gone)).code is Code.NOT_FOUND


@in_harness()
async def test_names_of_cursors_that_no_chain_has_any_more_go(harness: ProxyHarness) -> None:
    one, _ = await cluster(harness)
    for name in ("used", "unused"):
        await positions(harness, cursor={"name": name}, first=True)
    one.cursors[1] = {"used"}
    reader = harness.processes["proxy"].proxy.cursors
    await reader.clean()
    assert set(cursors_of(harness.catalog, harness.topic.incarnation)) == {"used"}
    harness.delete(harness.topic)
    await reader.clean()
    assert not cursors_of(harness.catalog, harness.topic.incarnation)


def rows_of(batch: bytes) -> list[dict[str, Any]]:
    """Of three columns, as the test of sealed data stages them."""
    schema = pa.schema([("ordering_key", pa.utf8()), ("data", pa.binary()), ("offset", pa.int64())])
    found = pa.ipc.read_record_batch(pa.py_buffer(batch), schema)
    found.validate(full=True)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


async def read(harness: ProxyHarness, **asked: Any) -> tuple[list[int], SyncpointError | None]:
    """The `next_offset` of every frame, and how the stream ended."""
    frames, error = await frames_of(harness, **asked)
    return [one.next_offset for one in frames], error


async def frames_of(harness: ProxyHarness, **asked: Any) -> tuple[list[Any], SyncpointError | None]:
    """The frames of a range, and how the stream ended."""
    stream = harness.network.channel("proxy:1").stream(READER + "ReadRange")
    request = pipeline.ReadRangeRequest(**{"topic": TOPIC, "begin": 5, "end": 8, **asked})
    await stream.send(request.SerializeToString())
    await stream.end()
    frames: list[Any] = []
    try:
        while (message := await stream.receive()) is not None:
            frames.append(pipeline.ReadFrame.FromString(message))
    except SyncpointError as error:
        return frames, error
    return frames, None


@in_harness()
async def test_a_range_comes_from_the_owner_of_its_chain(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    two.sources[2] = [source(20)]
    assert await read(harness, source=20, chain=2) == ([6, 7, 8], None)
    ((chain, asked),) = two.asked
    assert (chain, asked.source, asked.begin, asked.end) == (2, 20, 5, 8)
    assert await read(harness, source=20) == ([6, 7, 8], None)  # whose caller does not know the chain
    offsets, error = await read(harness, source=99)
    assert (offsets, error is not None and error.code) == ([], Code.OUT_OF_RANGE)
    assert not one.streams


@in_harness()
async def test_a_range_ends_unavailable_when_its_chain_moves_and_goes_on_at_the_next_owner(
    harness: ProxyHarness,
) -> None:
    one, two = await cluster(harness)
    two.hangs_behind = 1
    reading = asyncio.ensure_future(read(harness, source=20, chain=2))
    await asyncio.sleep(1.0)
    harness.chain(2, one, epoch=2)
    offsets, error = await reading
    assert (offsets, error is not None and error.code) == ([6], Code.UNAVAILABLE)
    assert await read(harness, source=20, chain=2, begin=6) == ([7, 8, 9], None)
    assert len(one.streams) == 1


@in_harness()
async def test_data_is_sealed_on_its_way_into_a_stage_and_opened_on_its_way_out_of_a_range(
    harness: ProxyHarness,
) -> None:
    one, two = await cluster(harness, sealed=True)
    plain = frame(TOPIC, ordering_key=["k", "", "k"], data=[b"secret", None, b"more"], offset=[3, 4, 9])
    await stage(harness, staged=plain, frames=1)
    ((_, sealed),) = [found for owner in (one, two) for staged in owner.staged.values() for found in staged]
    assert sealed.frame.topic_incarnation == harness.topic.incarnation
    hidden, opened = rows_of(sealed.frame.batch), rows_of(plain.batch)
    assert [row["ordering_key"] for row in hidden] == ["k", "", "k"]
    assert [row["offset"] for row in hidden] == [3, 4, 9]
    assert [len(row["data"] or b"") for row in hidden] == [46, 0, 44]
    assert hidden[0]["data"].startswith(b"\xf5SPseal")
    one.batch = sealed.frame.batch
    frames, error = await frames_of(harness, source=10, chain=1, columns=[6, 4, 2])
    assert error is None
    assert [rows_of(one.batch) for one in frames] == [opened] * 3
    one.batch = plain.batch  # stored before anything was sealed
    frames, _ = await frames_of(harness, source=10, chain=1, columns=[6, 4, 2])
    assert frames[0].batch == plain.batch
    broken = bytearray(sealed.frame.batch)
    broken[sealed.frame.batch.index(hidden[2]["data"]) + 43] ^= 1
    one.batch = bytes(broken)
    frames, error = await frames_of(harness, source=10, chain=1, columns=[6, 4, 2])
    assert frames == []
    assert error is not None
    assert error.code is Code.DATA_LOSS
    assert await read(harness, source=20, chain=2, columns=[2]) == ([6, 7, 8], None)
    garbled = pipeline.StageFrame(topic=TOPIC, columns=[4], batch=b"no batch")
    assert (await refused(stage(harness, staged=garbled))).code is Code.INVALID_ARGUMENT
