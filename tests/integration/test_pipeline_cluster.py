"""Pipelines on a cluster of real processes: epochs written and topics read through any proxy, while owners are killed.

What the epochs hold is numbered; an official subscriber and the ranges say what arrived, never the servers' counters.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from typing import Any

import grpc
import pyarrow as pa
import pytest

from syncpoint.testing.rigs import official
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf.messages import pipeline

pytestmark = pytest.mark.shows("pipeline-clusters")

READER, WRITER = "/syncpoint.pipeline.v1.LogReader/", "/syncpoint.pipeline.v1.EpochWriter/"
KEPT = {"message_retention_duration": {"seconds": 3600}}
TYPES = {"data": (4, pa.binary()), "ordering_key": (6, pa.utf8())}


class Program:
    """A program that reads and writes topics through one proxy. What is UNAVAILABLE is tried again for a minute."""

    def __init__(self, endpoint: str) -> None:
        self.channel = official.connect(endpoint)
        self.unavailable = 0

    def call(self, path: str, request: Any, answer: Any) -> Any:
        made = self.channel.unary_unary(path, lambda one: one.SerializeToString(), answer.FromString)
        return self.again(lambda: made(request, timeout=60, wait_for_ready=True))

    def again(self, work: Any) -> Any:
        end = time.monotonic() + 60
        while True:
            try:
                return work()
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > end:
                    raise
                self.unavailable += 1
                time.sleep(0.1)

    def stage(self, query: str, run: str, epoch: int, attempt: str, topic: str, *columns: dict[str, list[Any]]) -> Any:
        header = pipeline.StageHeader(
            run=pipeline.Run(query=query, run=run), epoch=epoch, partition=0, attempt=attempt, link=""
        )
        frames = [frame(topic, **one) for one in columns]
        requests = [pipeline.StageRequest(header=header), *(pipeline.StageRequest(frame=one) for one in frames)]
        made = self.channel.stream_unary(
            WRITER + "Stage", lambda one: one.SerializeToString(), pipeline.StageResponse.FromString
        )
        return self.again(lambda: made(iter(requests), timeout=60, wait_for_ready=True))

    def commit(self, query: str, run: str, epoch: int, attempt: str, topic: str = "") -> Any:
        request = pipeline.CommitEpochRequest(
            run=pipeline.Run(query=query, run=run), epoch=epoch, topic=topic,
            stages=[pipeline.StageName(partition=0, attempt=attempt)],
        )  # fmt: skip
        return self.call(WRITER + "CommitEpoch", request, pipeline.EpochResult)

    def positions(self, topic: str, **fields: Any) -> Any:
        request = pipeline.GetPositionsRequest(topic=topic, **fields)
        return self.call(READER + "GetPositions", request, pipeline.Positions)

    def cursors(self, topic: str) -> list[Any]:
        request = pipeline.ListCursorsRequest(topic=topic)
        return list(self.call(READER + "ListCursors", request, pipeline.ListCursorsResponse).cursors)

    def read(self, topic: str, at: Any, behind_each: Any = lambda: None) -> list[bytes]:
        """All data of one source, taken up again where a stream broke."""
        made = self.channel.unary_stream(
            READER + "ReadRange", lambda one: one.SerializeToString(), pipeline.ReadFrame.FromString
        )
        rows: list[bytes] = []
        reached = at.begin

        def go_on() -> None:
            nonlocal reached
            request = pipeline.ReadRangeRequest(
                topic=topic, source=at.source, chain=at.chain, begin=reached, end=at.end, columns=[4],
                frame_bytes=200_000,
            )  # fmt: skip
            for one in made(request, timeout=60, wait_for_ready=True):
                schema = pa.schema([("data", pa.binary())])
                rows.extend(pa.ipc.read_record_batch(pa.py_buffer(one.batch), schema).column(0).to_pylist())
                assert one.next_offset == reached + one.rows
                reached = one.next_offset
                behind_each()

        while reached < at.end:
            self.again(go_on)
        return rows

    def everything(self, topic: str) -> list[bytes]:
        return [body for at in self.positions(topic).sources for body in self.read(topic, at)]


def frame(topic: str, **columns: list[Any]) -> Any:
    arrays = [pa.array(values, TYPES[name][1]) for name, values in columns.items()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns)).serialize().to_pybytes()
    return pipeline.StageFrame(topic=topic, columns=[TYPES[name][0] for name in columns], batch=batch)


def numbered(first: int, end: int, filler: int = 0) -> dict[str, list[Any]]:
    return {"data": [b"%d|" % number + b"." * filler for number in range(first, end)]}


def numbers(bodies: list[bytes]) -> list[int]:
    return [int(body.split(b"|")[0]) for body in bodies]


@pytest.fixture
def programs(cluster):
    made = [Program(endpoint) for endpoint in cluster.proxies]
    yield made
    for one in made:
        one.channel.close()


def owner_of(cluster, chain: int) -> str:
    found = {one.number: one.owner for one in cluster.chains()}
    return str(found[chain])


def home_of(cluster, program: Program, topic: str, result: Any) -> str:
    """Who has the chain open in which an epoch was stored."""
    chains = {at.source: at.chain for at in program.positions(topic).sources}
    return owner_of(cluster, chains[result.stored[0].source])


def test_what_one_proxy_writes_another_reads(cluster, enter, programs):
    one, two = programs[0], programs[-1]
    space = enter(cluster.proxies[0])
    topic = space.topic(**KEPT)
    subscription = space.subscription(topic)
    stream = space.stream(subscription, stream_ack_deadline_seconds=600)
    query = space.project
    space.publish(topic, b"published")
    for epoch in range(5):
        begin = 100 * epoch
        one.stage(query, "a", epoch, "x", topic, numbered(begin, begin + 50), numbered(begin + 50, begin + 100))
        assert two.commit(query, "a", epoch, "x").rows == 100
        assert one.commit(query, "a", epoch, "x").repeated_epoch
    stream.wait(501)
    bodies = [body for body in stream.bodies if body != b"published"]
    assert Counter(numbers(bodies)) == Counter(range(500))
    everything = two.everything(topic)
    assert Counter(everything) == Counter([*bodies, b"published"])
    assert numbers([body for body in everything if body != b"published"]) == list(range(500))
    two.stage(query, "b", 5, "x", topic, numbered(0, 1))
    with pytest.raises(grpc.RpcError) as refused:
        one.stage(query, "a", 5, "x", topic, numbered(0, 1))
    assert refused.value.code() is grpc.StatusCode.ABORTED  # the run was superseded through the other proxy


def test_owners_are_killed_between_stage_and_commit_and_after_it(cluster, enter, programs):
    one, two = programs[0], programs[-1]
    space = enter(cluster.proxies[0])
    topic = space.topic(**KEPT)
    subscription = space.subscription(topic)
    stream = space.stream(subscription, stream_ack_deadline_seconds=600)
    query = space.project
    one.stage(query, "a", 0, "x", topic, numbered(0, 1000))
    result = one.commit(query, "a", 0, "x")
    for epoch in range(1, 4):  # killed before the commit, in it, and before it again, on chains that were adopted
        begin = 1000 * epoch
        one.stage(
            query, "a", epoch, "x", topic, numbered(begin, begin + 500, 1000), numbered(begin + 500, begin + 1000)
        )
        victim = home_of(cluster, two, topic, result)
        if epoch % 2:
            cluster.local.kill(victim)
            result = two.commit(query, "a", epoch, "x")
        else:
            killing = threading.Thread(target=cluster.local.kill, args=(victim,))
            killing.start()
            result = two.commit(query, "a", epoch, "x")
            killing.join()
            assert one.commit(query, "a", epoch, "x").repeated_epoch
        assert result.rows == 1000
        cluster.local.start(victim)
        cluster.stabilize()
    assert numbers(two.everything(topic)) == list(range(4000))
    eventually(lambda: len(set(stream.bodies)) == 4000, 60, "everything is delivered")
    assert one.unavailable + two.unavailable < 50


def test_the_owner_of_a_chain_is_killed_in_the_middle_of_a_range(cluster, enter, programs):
    one = programs[0]
    space = enter(cluster.proxies[0])
    topic, query = space.topic(**KEPT), space.project
    for epoch in range(4):
        begin = 2000 * epoch
        pieces = [numbered(at, at + 500, 2000) for at in range(begin, begin + 2000, 500)]
        one.stage(query, "a", epoch, "x", topic, *pieces)
        one.commit(query, "a", epoch, "x")
    sources = one.positions(
        topic
    ).sources  # of one chain: more than one when the topic was assigned anew in the meantime
    (chain,) = {at.chain for at in sources}
    victim = owner_of(cluster, chain)
    frames = 0

    def kill() -> None:
        nonlocal frames
        frames += 1
        if frames == 3:
            cluster.local.kill(victim)

    assert numbers([body for at in sources for body in one.read(topic, at, kill)]) == list(range(8000))
    assert one.unavailable
    cluster.local.start(victim)
    cluster.stabilize()


def test_a_paused_owner_that_wakes_up_changes_nothing_of_a_query(cluster, enter, programs):
    one, two = programs[0], programs[-1]
    space = enter(cluster.proxies[0])
    topic, query = space.topic(**KEPT), space.project
    one.stage(query, "a", 0, "x", topic, numbered(0, 100))
    victim = home_of(cluster, two, topic, one.commit(query, "a", 0, "x"))
    one.stage(query, "a", 1, "x", topic, numbered(100, 200))
    cluster.local.pause(victim)
    try:
        # The commit waits at the paused owner, and is made again at the next one.
        assert two.commit(query, "a", 1, "x").rows == 100
        one.stage(query, "b", 2, "x", topic, numbered(200, 300))  # a later run
        one.commit(query, "b", 2, "x")
    finally:
        cluster.local.resume(victim)
    with pytest.raises(grpc.RpcError) as refused:
        two.stage(query, "a", 2, "y", topic, numbered(900, 950))
    assert refused.value.code() is grpc.StatusCode.ABORTED
    cluster.stabilize()
    assert numbers(two.everything(topic)) == list(range(300))


def test_a_cursor_keeps_what_it_has_not_passed_in_every_chain_and_through_adoption(cluster, enter, programs):
    """A topic without retention or subscription: only the cursor keeps anything."""
    one, two = programs[0], programs[-1]
    space = enter(cluster.proxies[0])
    topic = space.topic()
    name = pipeline.Cursor(name="reader")
    one.positions(topic, cursor=name, first=True)
    space.publish(topic, *(b"%d|" % number for number in range(100)))
    for number in range(100, 130):  # keys take it to several chains
        space.publish(topic, b"%d|" % number, key=f"k{number}")
    one.stage(space.project, "a", 0, "x", topic, numbered(130, 200))
    one.commit(space.project, "a", 0, "x")
    for victim in cluster.names("publish-forwarder"):
        cluster.local.kill(victim)
        cluster.local.start(victim)
        cluster.stabilize()
    found = two.positions(topic, cursor=name)
    assert not found.lost
    assert sorted(numbers([body for at in found.sources for body in two.read(topic, at)])) == list(range(200))
    (listed,) = two.cursors(topic)
    assert (listed.name, listed.lag_messages) == ("reader", 200)
    assert {at.chain for at in listed.ranges} == {at.chain for at in found.sources}
    processed = [pipeline.SourceRange(source=at.source, end=at.end, chain=at.chain) for at in found.sources]
    assert not one.positions(topic, cursor=name, processed=processed).lost
    (listed,) = two.cursors(topic)
    assert listed.lag_messages == 0
    one.call(READER + "DeleteCursor", pipeline.DeleteCursorRequest(topic=topic, name="reader"),
             pipeline.DeleteCursorResponse)  # fmt: skip
    assert not two.cursors(topic)


def test_order_holds_within_a_query_and_within_publishers_of_the_same_keys(cluster, enter, programs):
    space = enter(cluster.proxies[0])
    topic = space.topic(**KEPT)
    subscription = space.subscription(topic, enable_message_ordering=True)
    stream = space.stream(subscription, stream_ack_deadline_seconds=60)
    query, keys = space.project, ["a", "b", "c"]
    for round_ in range(10):
        rows = [(f"epoch {round_} {at}".encode(), keys[at % 3]) for at in range(30)]
        programs[0].stage(
            query, "r", round_, "x", topic,
            {"data": [body for body, _ in rows], "ordering_key": [key for _, key in rows]},
        )  # fmt: skip
        programs[0].commit(query, "r", round_, "x")
        for key in keys:
            space.publish(topic, *(b"published %d %d" % (round_, at) for at in range(5)), key=key)
    wanted = 10 * (30 + 3 * 5)

    def arrived() -> bool:
        stream.acknowledge(*stream.messages)
        return len({one.message.message_id for one in stream.messages}) >= wanted

    eventually(arrived, 60, "all of it is delivered in order")
    first: dict[str, list[tuple[str, bytes]]] = {}
    seen = set()
    for one in stream.messages:
        message = one.message
        if message.message_id not in seen:
            seen.add(message.message_id)
            first.setdefault(message.ordering_key, []).append((message.data.split()[0].decode(), message.data))
    for key in keys:
        for kind in ("epoch", "published"):
            places = [tuple(map(int, body.split()[1:])) for found, body in first[key] if found == kind]
            assert places == sorted(places), (key, kind)


@pytest.mark.long
def test_a_reader_has_a_subscription_to_itself_whoever_is_killed(cluster, enter, programs):
    one, two = programs[0], programs[-1]
    space = enter(cluster.proxies[-1])
    topic = space.topic()
    subscription = space.subscription(topic)
    mine = {"subscription": subscription, "exclusive_reader": "stream-1", "exclusive_seconds": 120, "backlog": True}
    consumer = space.stream(subscription, stream_ack_deadline_seconds=60)
    space.publish(topic, *(b"%d|" % number for number in range(20)))
    consumer.wait(20)
    with pytest.raises(grpc.RpcError, match="other consumers"):
        one.positions("", **mine)
    consumer.acknowledge(*consumer.messages)
    consumer.half_close()
    assert consumer.ended() == "OK"
    space.publish(topic, *(b"%d|" % number for number in range(20, 60)))

    def take() -> Any:
        """What others held is acknowledged a moment later."""
        with contextlib.suppress(grpc.RpcError):
            return one.positions("", **mine)
        return None

    begun = eventually(take, what="the reader has the subscription")
    for victim in (*cluster.names("publish-forwarder"), *cluster.names("subscribe-forwarder")):
        cluster.local.kill(victim)
        cluster.local.start(victim)
        other = space.stream(subscription, stream_ack_deadline_seconds=60)
        other.until(lambda other=other: other.status is not None, 30, "another consumer is refused")
        assert (other.status, other.messages) == ("FAILED_PRECONDITION", [])
        assert "stream-1" in other.text
        cluster.stabilize()
    found = two.positions("", **mine)
    starts = {at.source: at.start for at in found.sources}
    rows = [
        body
        for at in found.sources
        for body in two.read(topic, at)[starts[at.source] - at.begin :]
    ]  # fmt: skip
    assert sorted(numbers(rows)) == list(range(20, 60))
    processed = [pipeline.SourceRange(source=at.source, end=at.end, chain=at.chain) for at in found.sources]
    two.positions("", **mine, processed=processed, generation=begun.generation)
    space.publish(topic, b"60|")
    request = pipeline.ReleaseSubscriptionRequest(subscription=subscription, exclusive_reader="stream-1")
    two.call(READER + "ReleaseSubscription", request, pipeline.ReleaseSubscriptionResponse)
    last = space.stream(subscription, stream_ack_deadline_seconds=60)
    last.wait(1)
    time.sleep(0.5)
    assert numbers(last.bodies) == [60]
