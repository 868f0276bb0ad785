"""The service EpochWriter over disks in memory: what a caller sees, what is kept, and what is forgotten."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from dataclasses import replace

import pytest

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.broker.pipeline import epoch_apply, staging, writing
from syncpoint.catalog.metadata.entity_options import HERE, WRITTEN_ELSEWHERE
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.testing.rigs.memory_files import FailOn
from syncpoint.wire.protobuf.messages import pipeline
from tests.kit.epochs import ONE, TWO, Harness, frame

RUN_A = pipeline.Run(query="q", run="a")


@pytest.fixture
def harness() -> Iterator[Harness]:
    made = Harness()
    made.subscribe(1, "one", 11)
    made.subscribe(2, "two", 12)
    yield made
    made.close()


def test_an_epoch_is_visible_as_a_whole_and_only_when_committed(harness: Harness) -> None:
    answer = harness.stage("a", 0, 0, "x", frame(ONE, data=[b"1", b"2"]), frame(TWO, data=[b"3"]))
    assert (answer.rows, answer.dropped) == (3, 0)
    harness.stage("a", 0, 1, "x", frame(ONE, data=[b"4"]))
    assert harness.data(1) == harness.data(2) == []
    result = harness.commit_epoch("a", 0, (1, "x"), (0, "x"))
    assert harness.data(1) == [b"4", b"1", b"2"]
    assert harness.data(2) == [b"3"]
    assert result.rows == 4
    assert not result.repeated_epoch
    (one, two) = result.stored
    assert (one.topic, one.begin, one.end, two.topic, two.begin, two.end) == (ONE, 0, 3, TWO, 0, 1)
    again = harness.commit_epoch("a", 0, (1, "x"), (0, "x"))
    assert again.repeated_epoch
    assert list(again.stored) == list(result.stored)
    assert harness.data(1) == [b"4", b"1", b"2"]


def test_messages_without_identity_get_one(harness: Harness) -> None:
    harness.stage("a", 0, 0, "x", frame(ONE, data=[b"1", b"2"], message_id=["7", ""], ordering_key=["k", ""]),
                keep_identity=True)  # fmt: skip
    harness.commit_epoch("a", 0, (0, "x"))
    one, two = harness.stored(1)
    (source,) = harness.publish.sources.of_topic(1)
    assert one.message_id == "7"
    assert one.ordering_key == "k"
    assert two.message_id == f"{source.prefix.decode()}{1:012d}"
    assert one.publish_time.ToNanoseconds() == harness.clock.time_ns() == two.publish_time.ToNanoseconds()


@pytest.mark.shows("disaster-classes")
def test_no_epoch_makes_a_second_writer_of_a_topic_of_a_billing_project(harness: Harness) -> None:
    """While publishes are taken here no link may write, but for a backfill; while they are taken elsewhere nothing but
    links may, although the topic is suspended for sending."""

    def write(number: int, link: str) -> None:
        harness.stage(
            "a", number, 0, "x", frame(ONE, 0 if not link else 5, data=[b"1"], **({"offset": [number]} if link else {}))
        )
        planned = [pipeline.SourceRange(source=5, chain=1, begin=number, end=number + 1)] if link else []
        harness.commit_epoch("a", number, (0, "x"), link=link, source_topic="u/1" if link else "", planned=planned)

    def be(writer: int) -> None:
        topic = harness.publish.catalog.topic(ONE)
        assert topic is not None
        options = topic.options._replace(writer=writer, send_suspended=writer >= WRITTEN_ELSEWHERE)
        harness.change(CatalogChange.put(replace(topic, options=options)))

    be(HERE)
    write(0, "")
    with pytest.raises(SyncpointError, match=r"Link shop.us-eu.one would be a second writer of projects/p/topics/one"):
        write(1, "shop.us-eu.one")
    write(2, "shop.us-eu.one.backfill.1")
    be(WRITTEN_ELSEWHERE)
    write(3, "shop.us-eu.one")
    with pytest.raises(SyncpointError, match="another site takes publishes"):
        write(4, "")
    assert len(harness.data(1)) == 3


def test_the_topic_of_a_frame_must_exist_when_it_comes_and_when_it_is_committed(harness: Harness) -> None:
    with pytest.raises(SyncpointError, match="projects/p/topics/none") as refused:
        harness.stage("a", 0, 0, "x", frame("projects/p/topics/none", data=[b"1"]))
    assert refused.value.code is Code.NOT_FOUND
    harness.stage("a", 0, 0, "y", frame(ONE, data=[b"1"]), frame(TWO, data=[b"2"]))
    topic = harness.publish.catalog.topic(TWO)
    assert topic is not None
    harness.change(CatalogChange.delete(topic))
    with pytest.raises(SyncpointError) as refused:
        harness.commit_epoch("a", 0, (0, "y"))
    assert refused.value.code is Code.NOT_FOUND
    assert harness.data(1) == []
    harness.stage("a", 0, 0, "z", frame(ONE, data=[b"1"]))  # the epoch stayed open
    harness.commit_epoch("a", 0, (0, "z"))
    assert harness.data(1) == [b"1"]


BAD = [
    (frame(ONE, data=[b"a", b""]), r"frame 0: rows\[1\].data"),
    (frame(ONE, ordering_key=["x"]), "frame 0: columns: column data is missing"),
    (frame(ONE, source=5, data=[b"a"]), "frame 0: columns: column offset is missing"),
    (pipeline.StageFrame(topic=ONE, columns=[4], batch=b"nonsense"), "frame 0: batch: not an encapsulated"),
    (
        pipeline.StageFrame(topic=ONE, columns=[4, 6], batch=frame(ONE, data=[b"a"]).batch),
        "frame 0: batch: the batch has",
    ),
    (pipeline.StageFrame(topic=ONE, columns=[99], batch=b""), r"frame 0: columns\[0\]"),
    (frame(ONE, source=5, data=[b"a", b"b"], offset=[3, 3]), r"frame 0: rows\[1\].offset"),
]


@pytest.mark.parametrize(("bad", "text"), BAD, ids=[text for _, text in BAD])
def test_frames_that_can_not_be_are_named(harness: Harness, bad: object, text: str) -> None:
    with pytest.raises(SyncpointError, match=text) as refused:
        harness.stage("a", 0, 0, "x", bad)
    assert refused.value.code is Code.INVALID_ARGUMENT
    harness.rest()
    assert harness.writer.area.bytes == 0
    assert not harness.writer.state.stages


def test_a_header_comes_first_and_once(harness: Harness) -> None:
    async def send(*requests: object) -> bytes:
        stream = harness.channel.stream("/syncpoint.pipeline.v1.EpochWriter/Stage")
        for one in requests:
            await stream.send(one.SerializeToString())  # type: ignore[attr-defined]
        await stream.end()
        answer = await stream.receive()
        assert answer is not None
        return answer

    header = pipeline.StageRequest(header=pipeline.StageHeader(run=pipeline.Run(query="q", run="a")))
    for requests in ((pipeline.StageRequest(frame=frame(ONE, data=[b"a"])),), (header, header), ()):
        with pytest.raises(SyncpointError, match="header"):
            harness.run(send(*requests))
    harness.run(send(header))


def test_too_much_staged_is_refused_before_it_is_stored() -> None:
    harness = Harness(staged_bytes_max=1000)
    harness.stage("a", 0, 0, "x", frame(ONE, data=[b"x" * 600]))
    before = harness.store.appended_bytes
    with pytest.raises(SyncpointError, match="are already staged") as refused:
        harness.stage("a", 0, 1, "x", frame(ONE, data=[b"x" * 600]))
    assert refused.value.code is Code.RESOURCE_EXHAUSTED
    assert harness.store.appended_bytes == before
    harness.commit_epoch("a", 0, (0, "x"))
    harness.stage("a", 1, 0, "x", frame(ONE, data=[b"x" * 600]))
    harness.call("AbortEpoch", pipeline.AbortEpochRequest(run=pipeline.Run(query="q", run="a"), epoch=1))
    assert harness.writer.area.bytes == 0
    harness.close()


def test_callers_wait_while_the_disks_are_behind(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "UNPERSISTED_BYTES_MAX", 500)
    seen: list[int] = []
    put = staging.StagingArea.put

    def watched(area: staging.StagingArea, payload: bytes, count: int, done: object) -> tuple[int, int]:
        seen.append(area.unpersisted)
        return put(area, payload, count, done)  # type: ignore[arg-type]

    monkeypatch.setattr(staging.StagingArea, "put", watched)
    answer = harness.stage("a", 0, 0, "x", *(frame(ONE, data=[b"x" * 400]) for _ in range(12)))
    assert answer.rows == 12
    assert max(seen) < 500
    harness.commit_epoch("a", 0, (0, "x"))
    assert len(harness.data(1)) == 12


def test_a_cancelled_stage_leaves_nothing(harness: Harness) -> None:
    async def half() -> None:
        stream = harness.channel.stream("/syncpoint.pipeline.v1.EpochWriter/Stage")
        header = pipeline.StageHeader(run=pipeline.Run(query="q", run="a"), attempt="x")
        await stream.send(pipeline.StageRequest(header=header).SerializeToString())
        await stream.send(pipeline.StageRequest(frame=frame(ONE, data=[b"1"])).SerializeToString())
        for _ in range(20):
            await stream._changed if False else None
        stream.cancel()

    harness.run(half())
    harness.rest()
    assert harness.writer.area.bytes == 0
    assert not harness.writer.state.stages


def test_large_epochs_go_in_steps_and_restarts_find_everything(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "PIECE_BYTES", 300)
    monkeypatch.setattr(epoch_apply, "TURN_BYTES", 900)
    monkeypatch.setattr(epoch_apply, "UNPERSISTED_BYTES_MAX", 2000)
    wanted = [b"%03d" % number + b"x" * 90 for number in range(80)]
    harness.stage("a", 0, 0, "x", frame(ONE, data=wanted[:50]), frame(ONE, data=wanted[50:]))
    harness.restart(power=False)
    result = harness.commit_epoch("a", 0, (0, "x"))
    assert result.rows == 80
    assert len(result.stored) == 1
    assert harness.data(1) == wanted
    harness.checkpoint()
    harness.restart()
    assert harness.data(1) == wanted
    assert harness.commit_epoch("a", 0, (0, "x")).repeated_epoch


def test_staged_messages_are_kept_until_done_and_then_deleted(harness: Harness) -> None:
    harness.stage("a", 0, 0, "kept", *(frame(ONE, data=[b"x" * 20_000]) for _ in range(4)))
    for number in range(20):  # others fill the log
        harness.stage("a", 5, number, "y", frame(TWO, data=[b"y" * 30_000]))
    harness.checkpoint()
    harness.collect()
    harness.restart()
    harness.checkpoint()
    harness.collect()
    assert harness.commit_epoch("a", 0, (0, "kept")).rows == 4
    assert len(harness.data(1)) == 4
    harness.call("AbortEpoch", pipeline.AbortEpochRequest(run=pipeline.Run(query="q", run="a"), epoch=5))
    assert harness.writer.area.bytes == 0
    for _ in range(3):
        harness.restart(power=False)
        harness.checkpoint()
        harness.collect()
    assert harness.staged_sources == []


def link(begin: int, end: int, source: int = 5, **more: object) -> dict[str, object]:
    return {"link": "l", "source_topic": "u/t-1",
            "planned": [pipeline.SourceRange(source=source, begin=begin, end=end)], **more}  # fmt: skip


def rows_of(begin: int, end: int, step: int = 1) -> dict[str, list[object]]:
    offsets = list(range(begin, end, step))
    return {"data": [b"%d" % offset for offset in offsets], "offset": list(offsets)}


def test_a_link_drops_overlap_refuses_gaps_and_is_reported(harness: Harness) -> None:
    harness.stage("a", 0, 0, "x", frame(ONE, 5, **rows_of(10, 20)), via="eu", here="us")
    harness.commit_epoch("a", 0, (0, "x"), **link(10, 20))
    harness.stage("b", 0, 0, "x", frame(ONE, 5, **rows_of(10, 26, 2)))  # an empty checkpoint: planned anew
    result = harness.commit_epoch("b", 0, (0, "x"), **link(10, 26))
    assert (result.rows, result.duplicates_dropped, result.repeated_epoch) == (3, 5, False)
    assert harness.data(1) == [b"%d" % number for number in (*range(10, 20), 20, 22, 24)]
    harness.stage("b", 1, 0, "x", frame(ONE, 5, **rows_of(30, 33)))
    with pytest.raises(SyncpointError, match=r"source 5 \[26, 30\)") as refused:
        harness.commit_epoch("b", 1, (0, "x"), **link(30, 33))
    assert refused.value.code is Code.OUT_OF_RANGE
    harness.restart()
    (known,) = harness.call("ListLinks", pipeline.ListLinksRequest()).links
    assert (known.rows, known.duplicates_dropped, known.epochs, known.gaps_refused) == (13, 5, 2, 1)
    assert [(one.source, one.begin, one.end) for one in (*known.base, *known.committed, *known.refused)] == [
        (5, 10, 10), (5, 10, 26), (5, 26, 30),
    ]  # fmt: skip
    after = harness.call("AcceptGap", pipeline.AcceptGapRequest(link="l"))
    assert [(one.begin, one.end) for one in after.skipped] == [(26, 30)]
    harness.restart()
    harness.commit_epoch("b", 1, (0, "x"), **link(30, 33))  # what was staged is still there
    assert harness.data(1)[-3:] == [b"30", b"31", b"32"]
    with pytest.raises(SyncpointError) as refused:
        harness.call("AcceptGap", pipeline.AcceptGapRequest(link="l"))
    assert refused.value.code is Code.FAILED_PRECONDITION
    assert not harness.call("ListLinks", pipeline.ListLinksRequest(name="m")).links


def test_rows_outside_of_the_plan_are_refused(harness: Harness) -> None:
    harness.stage("a", 0, 0, "x", frame(ONE, 5, **rows_of(10, 20)))
    harness.stage("a", 0, 1, "y", frame(ONE, data=[b"1"]))
    for plan, name in ((link(10, 19), (0, "x")), (link(11, 20), (0, "x")), (link(10, 20, 6), (0, "x")),
                       (link(0, 20), (1, "y"))):  # fmt: skip
        with pytest.raises(SyncpointError, match="not planned") as refused:
            harness.commit_epoch("a", 0, name, **plan)
        assert refused.value.code is Code.INVALID_ARGUMENT


def test_offsets_are_mapped_exactly_as_long_as_messages_are_stored(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.stage("a", 0, 0, "x", frame(ONE, 5, **rows_of(0, 20)), frame(TWO, 5, **rows_of(20, 30, 3)))
    harness.commit_epoch("a", 0, (0, "x"), **link(0, 30))
    harness.checkpoint()
    harness.stage("a", 1, 0, "x", frame(ONE, 5, **rows_of(30, 40)))
    harness.commit_epoch("a", 1, (0, "x"), **link(30, 40))
    harness.restart()

    def mapped(begin: int, end: int) -> tuple[list[tuple[object, ...]], int]:
        answer = harness.call("MapOffsets", pipeline.MapOffsetsRequest(link="l", source=5, begin=begin, end=end))
        found = []
        for one in answer.mappings:
            (to,) = one.to
            origin = getattr(one, "from")
            found.append((origin.begin, origin.end, to.topic, to.begin, to.end))
        return found, answer.next_offset

    assert mapped(5, 35) == (
        [(5, 20, ONE, 5, 20), (20, 21, TWO, 0, 1), (23, 24, TWO, 1, 2), (26, 27, TWO, 2, 3), (29, 30, TWO, 3, 4),
         (30, 35, ONE, 20, 25)], 35,
    )  # fmt: skip
    monkeypatch.setattr(writing, "MAPPINGS_MAX", 2)
    assert mapped(5, 35) == ([(5, 20, ONE, 5, 20), (20, 21, TWO, 0, 1)], 23)
    with pytest.raises(SyncpointError, match="Link not found"):
        harness.call("MapOffsets", pipeline.MapOffsetsRequest(link="m"))
    harness.writer.forgotten(harness.publish.sources.of_topic(1)[0])
    assert all(one[2] == TWO for one in mapped(0, 40)[0])


def test_a_superseded_run_may_do_nothing(harness: Harness) -> None:
    harness.stage("a", 0, 0, "x", frame(ONE, data=[b"1"]))
    harness.stage("b", 0, 0, "x", frame(ONE, data=[b"1"]))
    harness.restart()
    for call in (
        lambda: harness.stage("a", 0, 0, "y", frame(ONE, data=[b"1"])),
        lambda: harness.commit_epoch("a", 0, (0, "x")),
        lambda: harness.call("AbortEpoch", pipeline.AbortEpochRequest(run=pipeline.Run(query="q", run="a"))),
    ):  # fmt: skip
        with pytest.raises(SyncpointError, match="superseded by run b") as refused:
            call()
        assert refused.value.code is Code.ABORTED
    harness.commit_epoch("b", 0, (0, "x"))
    assert harness.data(1) == [b"1"]


def test_a_second_commit_waits_for_the_first(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "PIECE_BYTES", 100)
    monkeypatch.setattr(epoch_apply, "TURN_BYTES", 100)
    harness.stage("a", 0, 0, "x", frame(ONE, data=[b"%02d" % number + b"x" * 90 for number in range(20)]))
    request = pipeline.CommitEpochRequest(
        run=pipeline.Run(query="q", run="a"), stages=[pipeline.StageName(attempt="x")]
    ).SerializeToString()

    async def twice() -> list[bytes]:
        path = "/syncpoint.pipeline.v1.EpochWriter/CommitEpoch"
        return list(await asyncio.gather(harness.channel.unary(path, request), harness.channel.unary(path, request)))

    one, two = (pipeline.EpochResult.FromString(answer) for answer in harness.run(twice()))
    assert (one.repeated_epoch, two.repeated_epoch) == (False, True)
    assert list(one.stored) == list(two.stored)
    assert len(harness.data(1)) == 20


def test_admission_is_left_as_it_was_entered(harness: Harness) -> None:
    harness.stage("a", 0, 0, "x", frame(ONE, data=[b"1", b"2"]))
    harness.commit_epoch("a", 0, (0, "x"))
    assert harness.publish.admission.system.messages == harness.publish.admission.system.bytes == 0


def test_the_disks_fail_under_a_commit(harness: Harness) -> None:
    harness.stage("a", 0, 0, "x", frame(ONE, data=[b"1"]))
    harness.publish.commit.give_up(OSError("gone"))
    with pytest.raises(SyncpointError) as failed:
        harness.commit_epoch("a", 0, (0, "x"))
    assert failed.value.code is Code.UNAVAILABLE
    with pytest.raises(SyncpointError) as failed:
        harness.stage("a", 1, 0, "x", frame(ONE, data=[b"1"]))
    assert failed.value.code is Code.UNAVAILABLE


def test_a_commit_that_was_lost_with_its_log_is_not_reported_to_be_repeated(harness: Harness) -> None:
    """In memory the epoch is committed; whether it is on the disks, nobody knows."""
    harness.stage("a", 0, 0, "x", frame(ONE, data=[b"1"]))
    harness.files.faults.append(FailOn("/d0", errno.EIO, ("pwritev",)))
    for _ in range(2):
        with pytest.raises(SyncpointError) as failed:
            harness.commit_epoch("a", 0, (0, "x"))
        assert failed.value.code is Code.UNAVAILABLE
    for name, request in (
        ("ListLinks", pipeline.ListLinksRequest()),
        ("AbortEpoch", pipeline.AbortEpochRequest(run=RUN_A, epoch=1)),
    ):
        with pytest.raises(SyncpointError) as failed:
            harness.call(name, request)
        assert failed.value.code is Code.UNAVAILABLE
    harness.restart()
    assert harness.data(1) == []
    assert not harness.commit_epoch("a", 0, (0, "x")).repeated_epoch
    assert harness.data(1) == [b"1"]


@pytest.mark.parametrize("name", ["CommitEpoch", "AbortEpoch"])
def test_a_run_is_answered_when_it_is_persisted_that_it_began(harness: Harness, name: str) -> None:
    """Also where what it asked for leaves nothing else to be written; else its predecessor comes back with a crash."""
    harness.stage("a", 0, 0, "x", frame(ONE, data=[b"1"]))
    harness.commit_epoch("a", 0, (0, "x"))
    fault = FailOn("/d0", errno.EIO, ("pwritev",))
    harness.files.faults.append(fault)
    request = getattr(pipeline, f"{name}Request")(run=pipeline.Run(query="q", run="b"))
    with pytest.raises(SyncpointError) as failed:
        harness.call(name, request)
    assert failed.value.code is Code.UNAVAILABLE
    harness.restart()
    harness.stage("a", 1, 0, "x", frame(ONE, data=[b"2"]))
    harness.call(name, request)
    harness.restart()
    with pytest.raises(SyncpointError) as fenced:
        harness.stage("a", 1, 0, "x", frame(ONE, data=[b"2"]))
    assert fenced.value.code is Code.ABORTED


def test_stale_stages_go_and_silent_queries_are_forgotten(harness: Harness) -> None:
    harness.stage("a", 0, 0, "x", frame(ONE, data=[b"1"]))
    harness.clock.advance(3601)
    harness.writer.tidy()
    harness.rest()
    assert harness.writer.area.bytes == 0
    with pytest.raises(SyncpointError, match="Stage it again"):
        harness.commit_epoch("a", 0, (0, "x"))
