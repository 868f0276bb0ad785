"""Topics written by epochs: a real server, killed at any moment, and a client made of grpcio and pyarrow.

What the epochs hold is numbered; an official subscriber and the log say what arrived, never the server's own counters.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
import pyarrow as pa
import pytest

from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline

pytestmark = pytest.mark.shows("pipelines")

COLUMNS = {
    "message_id": (1, pa.utf8()), "offset": (2, pa.int64()), "publish_time": (3, pa.timestamp("us", "UTC")),
    "data": (4, pa.binary()), "attributes": (5, pa.map_(pa.utf8(), pa.utf8())), "ordering_key": (6, pa.utf8()),
    "origin": (7, pa.utf8()), "visited": (8, pa.list_(pa.utf8())),
}  # fmt: skip


class Writer:
    """A client of EpochWriter with gRPC's own library."""

    def __init__(self, endpoint: str, query: str) -> None:
        self.query, self.channel = query, grpc.insecure_channel(endpoint)

    def close(self) -> None:
        self.channel.close()

    def stage(self, run: str, epoch: int, partition: int, attempt: str, *frames: Any, **header: Any) -> Any:
        first = pipeline.StageHeader(
            run=pipeline.Run(query=self.query, run=run), epoch=epoch, partition=partition, attempt=attempt, **header
        )
        requests = [pipeline.StageRequest(header=first), *(pipeline.StageRequest(frame=one) for one in frames)]
        call = self.channel.stream_unary(methods.EPOCH_WRITER.Stage, _dump, pipeline.StageResponse.FromString)
        return call(iter(requests), timeout=30)

    def call(self, name: str, request: Any, **options: Any) -> Any:
        path = methods.EPOCH_WRITER[name]
        return self.channel.unary_unary(path, _dump, path.response.FromString)(request, timeout=30, **options)

    def commit(self, run: str, epoch: int, *stages: tuple[int, str], **link: Any) -> Any:
        names = [pipeline.StageName(partition=partition, attempt=attempt) for partition, attempt in stages]
        request = pipeline.CommitEpochRequest(
            run=pipeline.Run(query=self.query, run=run), epoch=epoch, stages=names, **link
        )
        return self.call("CommitEpoch", request, wait_for_ready=True)


def _dump(message: Any) -> bytes:
    return message.SerializeToString()


def frame(topic: str, source: int = 0, **columns: Sequence[Any]) -> Any:
    arrays = [pa.array(values, COLUMNS[name][1]) for name, values in columns.items()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns)).serialize().to_pybytes()
    return pipeline.StageFrame(topic=topic, columns=[COLUMNS[name][0] for name in columns], batch=batch, source=source)


def numbered(topic: str, numbers: Sequence[int], filler: int = 0, source: int = 0) -> Any:
    columns: dict[str, Any] = {"data": [b"%d|" % number + b"." * filler for number in numbers]}
    if source:
        columns["offset"] = list(numbers)
    return frame(topic, source, **columns)


def planned(begin: int, end: int, source: int = 5) -> dict[str, Any]:
    ranges = [pipeline.SourceRange(source=source, begin=begin, end=end)]
    return {"link": "l", "source_topic": "1/2", "planned": ranges}


@pytest.fixture
def write() -> Iterator[Callable[..., Writer]]:
    made: list[Writer] = []

    def connect(endpoint: str, query: str = "q") -> Writer:
        made.append(Writer(endpoint, query))
        return made[-1]

    yield connect
    for one in made:
        one.close()


def code(error: pytest.ExceptionInfo[Any]) -> str:
    return error.value.code().name


def number(body: bytes) -> int:
    return int(body.split(b"|")[0])


def test_official_subscribers_see_each_message_of_an_epoch_once(space: Any, write: Callable[..., Writer]) -> None:
    topics = [space.topic("one"), space.topic("two")]
    subscriptions = [space.subscription(topic, f"sub{index}") for index, topic in enumerate(topics)]
    writer, run = write(space.endpoint, space.project), "a"
    streams = [space.stream(subscription, stream_ack_deadline_seconds=600) for subscription in subscriptions]
    for partition in range(2):
        numbers = range(100 * partition, 100 * partition + 100)
        frames = [numbered(topics[0], numbers[:70]), numbered(topics[1], numbers[70:])]
        writer.stage(run, 0, partition, "x", *frames)
    assert [space.peek(subscription) for subscription in subscriptions] == [[], []]
    with pytest.raises(grpc.RpcError) as refused:
        writer.commit(run, 0, (0, "x"), (1, "other"))
    assert code(refused) == "FAILED_PRECONDITION"
    result = writer.commit(run, 0, (0, "x"), (1, "x"))
    assert result.rows == 200
    assert {one.topic for one in result.stored} == set(topics)
    for stream, wanted in zip(
        streams, ({*range(70), *range(100, 170)}, {*range(70, 100), *range(170, 200)}), strict=True
    ):
        stream.wait(len(wanted))
        assert Counter(number(body) for body in stream.bodies) == Counter(wanted)
    assert writer.commit(run, 0, (0, "x"), (1, "x")).repeated_epoch
    assert writer.commit(run, 1).rows == 0


def test_a_copy_keeps_its_identity(space: Any, write: Callable[..., Writer]) -> None:
    topic, subscription = space.pair(enable_message_ordering=True)
    writer, run = write(space.endpoint, space.project), "a"
    header = {"keep_identity": True, "via": "eu", "here": "us"}
    answer = writer.stage(
        run, 50, 0, "x",
        frame(
            topic, 5, offset=[3, 4, 5, 6], data=[b"1", b"2", b"3", b"4"], message_id=["id-1", "id-2", None, "id-4"],
            publish_time=[1_600_000_000_123_456, 1_600_000_001_000_000, None, 0],
            attributes=[[("a", "b"), ("ü", "")], [], None, []], ordering_key=["k", "k", "", None],
            origin=["", "asia", None, "us"], visited=[[], ["asia"], [], ["us"]],
        ), **header,
    )  # fmt: skip
    assert (answer.rows, answer.dropped) == (3, 1)
    writer.commit(run, 50, (0, "x"), **{**planned(3, 7), "link": space.project})
    got = {one.message.data: one.message for one in space.pull(subscription, 3)}
    assert set(got) == {b"1", b"2", b"3"}
    one, two, three = got[b"1"], got[b"2"], got[b"3"]
    assert (one.message_id, two.message_id) == ("id-1", "id-2")
    assert one.publish_time.timestamp() == pytest.approx(1_600_000_000.123456)
    assert dict(one.attributes) == {"a": "b", "ü": ""}
    assert (one.ordering_key, two.ordering_key, three.ordering_key) == ("k", "k", "")
    assert three.message_id.isdigit()
    assert three.publish_time.timestamp() > 1_700_000_000


def test_overlap_is_dropped_and_gaps_are_refused(boot: Any, enter: Any, write: Callable[..., Writer]) -> None:
    server = boot()
    space = enter(server.endpoint)
    topic, subscription = space.pair()
    writer = write(server.endpoint)
    writer.stage("a", 0, 0, "x", numbered(topic, range(10), source=5))
    writer.commit("a", 0, (0, "x"), **planned(0, 10))
    server.restart(hard=True)
    writer = write(server.endpoint)
    writer.stage("b", 0, 0, "x", numbered(topic, range(5, 15), source=5))  # the checkpoint was rolled back
    result = writer.commit("b", 0, (0, "x"), **planned(5, 15))
    assert (result.rows, result.duplicates_dropped) == (5, 5)
    writer.stage("b", 1, 0, "x", numbered(topic, range(20, 25), source=5))
    with pytest.raises(grpc.RpcError, match=r"source 5 \[15, 20\)") as refused:
        writer.commit("b", 1, (0, "x"), **planned(20, 25))
    assert code(refused) == "OUT_OF_RANGE"
    server.restart(hard=True)
    writer = write(server.endpoint)
    (link,) = writer.call("ListLinks", pipeline.ListLinksRequest(name="l")).links
    assert [(one.begin, one.end) for one in (*link.committed, *link.refused)] == [(0, 15), (15, 20)]
    writer.call("AcceptGap", pipeline.AcceptGapRequest(link="l"))
    writer.commit("b", 1, (0, "x"), **planned(20, 25))
    asked = pipeline.MapOffsetsRequest(link="l", source=5, begin=0, end=25)
    mapped = writer.call("MapOffsets", asked)  # as long as they are stored: before anything is acknowledged
    spans = [(getattr(one, "from").begin, getattr(one, "from").end) for one in mapped.mappings]
    assert sum(end - begin for begin, end in spans) == 20
    assert spans[0][0] == 0
    assert spans[-1] == (20, 25)
    got = space.pull(subscription, 20, ack=True)
    assert sorted(number(one.message.data) for one in got) == [*range(15), *range(20, 25)]


@pytest.mark.long
def test_kill_9_at_any_moment_and_every_epoch_is_there_once(
    boot: Any, enter: Any, write: Callable[..., Writer]
) -> None:
    """Rounds of: stage two partitions over two topics, commit; the server is killed while that goes on, and the driver,
    too, loses its place: it does the epoch again under a new run.
    """
    server = boot()
    space = enter(server.endpoint)
    topics = [space.topic("one"), space.topic("two")]
    # Ordered: then sources come one after the other, and nothing comes behind what was stored last.
    subscriptions = [space.subscription(topic, "sub" + topic[-3:], enable_message_ordering=True) for topic in topics]
    chance = random.Random(7)
    per_epoch, done, runs, kills = 3000, 0, 0, 0
    for epoch in range(6):
        low = per_epoch * epoch
        kill_after = (chance.uniform(0.0, 0.3), chance.uniform(0.0, 0.05))[epoch % 2]
        while done == epoch:
            runs += 1
            writer, run = write(server.endpoint), f"run-{runs}"
            staged = threading.Event()
            killer = None
            if kills <= epoch:
                kills += 1

                def kill(when: bool = bool(epoch % 2), delay: float = kill_after, staged: Any = staged) -> None:
                    if when:  # while the commit goes on
                        staged.wait(30)
                    threading.Event().wait(delay)
                    server.kill9()

                killer = threading.Thread(target=kill)
                killer.start()
            try:
                for partition in range(2):
                    numbers = range(low + 1500 * partition, low + 1500 * partition + 1500)
                    frames = [numbered(topics[n % 2], numbers[n * 250 : n * 250 + 250], 1000, 5) for n in range(6)]
                    writer.stage(run, epoch, partition, run, *frames)
                staged.set()
                writer.channel.unary_unary(methods.EPOCH_WRITER.CommitEpoch, _dump, pipeline.EpochResult.FromString)(
                    pipeline.CommitEpochRequest(
                        run=pipeline.Run(query="q", run=run), epoch=epoch,
                        stages=[pipeline.StageName(partition=one, attempt=run) for one in range(2)],
                        **planned(low, low + per_epoch),
                    ), timeout=30,
                )  # fmt: skip
                done += 1
            except grpc.RpcError as error:
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                    raise
            finally:
                staged.set()
                if killer is not None:
                    killer.join()
                    server.start()
    assert kills == 6
    seen: Counter[int] = Counter()
    for topic, subscription in zip(topics, subscriptions, strict=True):
        stream = space.stream(subscription, stream_ack_deadline_seconds=600)
        space.publish(topic, b"-1|the end")
        stream.until(lambda stream=stream: b"-1|the end" in stream.bodies[-2000:], within=60)
        seen.update(number(body) for body in stream.bodies if body != b"-1|the end")
    lost = sorted(set(range(per_epoch * 6)) - set(seen))
    twice = sorted(one for one, times in seen.items() if times > 1)
    assert (lost[:5], len(lost), twice[:5], len(twice)) == ([], 0, [], 0)
    (link,) = write(server.endpoint).call("ListLinks", pipeline.ListLinksRequest()).links
    assert (link.rows, link.committed[0].end) == (per_epoch * 6, per_epoch * 6)


def test_a_superseded_run_is_notified_so(boot: Any, enter: Any, write: Callable[..., Writer]) -> None:
    server = boot()
    space = enter(server.endpoint)
    topic, subscription = space.pair()
    writer = write(server.endpoint)
    writer.stage("a", 0, 0, "x", numbered(topic, [1]))
    writer.stage("b", 0, 0, "y", numbered(topic, [1]))
    server.restart(hard=True)
    writer = write(server.endpoint)
    for call in (
        lambda: writer.stage("a", 0, 0, "z", numbered(topic, [1])),
        lambda: writer.commit("a", 0, (0, "x")),
    ):
        with pytest.raises(grpc.RpcError, match="superseded by run b") as refused:
            call()
        assert code(refused) == "ABORTED"
    writer.commit("b", 0, (0, "y"))
    eventually(lambda: len(space.peek(subscription)) == 1)
    with pytest.raises(grpc.RpcError, match=r"rows\[1\]\.ordering_key") as refused:
        writer.stage("b", 1, 0, "x", frame(topic, data=[b"a", b"b"], ordering_key=["", "x" * 1025]))
    assert code(refused) == "INVALID_ARGUMENT"
