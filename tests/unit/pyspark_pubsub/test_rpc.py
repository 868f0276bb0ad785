"""Several endpoints: one that failed is left for the next one, by all calls of a process, and nothing counts twice."""

import pyarrow as pa
import pytest

from pyspark_pubsub import rpc
from pyspark_pubsub.options import ServerAccess
from pyspark_pubsub.rpc import BlockingChannel, pb
from pyspark_pubsub.staging import SinkTarget, StagedPart, stage
from syncpoint.base.model.errors import Code
from syncpoint.wire.protobuf import methods
from tests.unit.pyspark_pubsub.pubsub_twin import TOPIC, Running, failure

ASKED = pb.GetPositionsRequest(topic=TOPIC)


@pytest.fixture
def tried(monkeypatch):
    """The endpoints to which connections were made, or not."""
    found = []

    def connect(access, endpoint, connect=rpc.connect):
        found.append(endpoint)
        return connect(access, endpoint)

    monkeypatch.setattr(rpc, "connect", connect)
    return found


def test_an_endpoint_that_cannot_be_reached_is_asked_once(running, tried):
    dead = "127.0.0.1:1"
    access = ServerAccess((dead, running.endpoint))
    for _ in range(3):
        BlockingChannel(access).call(methods.LOG_READER.GetPositions, ASKED)
        rpc.close_idle()
    assert tried == [dead, *[running.endpoint] * 3]


def test_one_that_is_unavailable_is_left_and_its_connections_are_closed(running, tried):
    with Running(running.twin) as other:
        access = ServerAccess((running.endpoint, other.endpoint))
        running.twin.failures = [failure(Code.UNAVAILABLE, "draining")]
        for _ in range(2):
            BlockingChannel(access).call(methods.LOG_READER.GetPositions, ASKED)
        assert tried == [running.endpoint, other.endpoint]
        assert running.twin.calls["GetPositions"] == 3


def test_an_epoch_that_was_staged_at_one_is_committed_once_at_the_next(running, tried):
    with Running(running.twin) as other:
        access = ServerAccess((running.endpoint, other.endpoint))
        part = StagedPart("q", "r", 0, 0, "a")
        stage(SinkTarget(access, TOPIC), part, iter([pa.record_batch({"data": pa.array([b"x"])})]))
        running.stop()
        request = pb.CommitEpochRequest(run=pb.Run(query="q", run="r"), epoch=0, topic=TOPIC)
        request.stages.add(partition=0, attempt="a")
        for _ in range(2):
            BlockingChannel(access).call(methods.EPOCH_WRITER.CommitEpoch, request)
        running.again()
    (source,) = running.twin.topics[TOPIC].sources.values()
    assert [row["data"] for row in source.rows] == [b"x"]
    assert set(tried) == {running.endpoint, other.endpoint}
