"""Where flows begin that read a stream, what is said of them, and when Spark is kept awake for them; no JVM."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from pyspark_pubsub.stream_plans import KAFKA, kafka_at
from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, SyncpointError
from syncpoint.programs.federation.flow_plan import Flow
from syncpoint.programs.federation.flow_starts import FlowStart
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.servers import FlowProgress, Servers
from syncpoint.programs.federation.spec import Runtime, parse
from syncpoint.programs.federation.state import FlowState
from syncpoint.programs.federation.steps.step_counts import StepCounts
from syncpoint.programs.federation.streams.kafka_topics import KafkaTopic, begin_of
from syncpoint.programs.federation.streams.stream_queries import FromKafka, check_files, remaining
from syncpoint.programs.federation.streams.stream_reports import with_reports
from syncpoint.wire.protobuf.messages import pipeline
from tests.unit.programs.federation.patterns.test_stream_patterns import FROM_FILES, FROM_KAFKA, TO_KAFKA, content

TOPIC = KafkaTopic("orders", "CL", 7, {0: 0, 1: 5}, {0: 10, 1: 20}, {0: 0, 1: 5})


def flow(task: dict[str, Any]) -> Flow:
    (link,) = links_of(parse(content(task), Path("/")))
    (found,) = link.flows(["projects/p/topics/orders"])
    return found


def known(ends: dict[int, int], topic: str = "kafka:CL/7") -> Any:
    return pipeline.Link(
        name="f",
        source_topic=topic,
        committed=[{"source": one + 1, "end": end, "chain": one + 1} for one, end in ends.items()],
    )


def begin(link: Any = None, *wanted: int, accepted: bool = False, topic: KafkaTopic = TOPIC) -> dict[int, int]:
    return begin_of(topic, wanted, link, "f", accepted=accepted)


def test_a_new_flow_begins_where_the_file_says_and_an_old_one_where_its_target_is() -> None:
    assert begin() == {0: 0, 1: 5}
    assert begin(None, 1) == {1: 5}
    assert begin(known({0: 3, 1: 20})) == {0: 3, 1: 20}
    assert begin(known({1: 9})) == {0: 0, 1: 9}, "a partition that was not asked for before begins as a new flow does"


def test_a_partition_that_has_come_since_is_read_from_its_beginning() -> None:
    at_the_end = replace(TOPIC, begins={0: 0, 1: 0}, starts=TOPIC.ends)
    assert begin(known({0: 3}), topic=at_the_end) == {0: 3, 1: 0}, "the flow began at the end, but before it came"
    assert begin(topic=at_the_end) == TOPIC.ends
    assert begin(known({}), topic=at_the_end) == TOPIC.ends
    with pytest.raises(SyncpointError, match=r"partition 1: 0 to 4\): `syncpoint federation accept-gap f`"):
        begin(known({0: 3}))
    assert begin(known({0: 3}), accepted=True) == {0: 3, 1: 5}


def test_what_kafka_has_deleted_is_never_passed_over_unsaid() -> None:
    late = replace(TOPIC, begins={0: 4, 1: 5})
    with pytest.raises(SyncpointError, match=r"partition 0: 3 to 3\): `syncpoint federation accept-gap f`"):
        begin(known({0: 3, 1: 5}), topic=late)
    assert begin(known({0: 3, 1: 5}), topic=late, accepted=True) == {0: 4, 1: 5}


@pytest.mark.parametrize("loss", ["fail", "accept"])
@pytest.mark.parametrize("lenient", [False, True])
def test_spark_passes_over_nothing_by_itself_but_in_the_batch_behind_an_accepted_gap(
    tmp_path: Path, loss: str, lenient: bool
) -> None:
    """Else what is gone would count as copied: the target sees what was planned, not what Spark found."""
    one = flow({**FROM_KAFKA, "loss": loss})
    query = FromKafka(one.link, Runtime(tmp_path), tmp_path, StepCounts(), only=one, lenient=lenient)
    at = json.dumps(kafka_at("orders", "CL", 7, {0: 3}).to_json())
    query.change(add=[(one, FlowStart("earliest", at, KAFKA))])
    spark = MagicMock()
    query.read(spark)
    options = spark.readStream.format.return_value.options.call_args.kwargs
    assert options["failOnDataLoss"] == ("false" if lenient else "true")


def test_another_topic_of_the_same_name_and_lost_records_stop_the_flow() -> None:
    with pytest.raises(FailedPrecondition, match="a different topic of this name"):
        begin(known({0: 3}, "kafka:CL/8"))
    with pytest.raises(FailedPrecondition, match="partition 0 of orders ends at 10"):
        begin(known({0: 11}))
    with pytest.raises(InvalidArgument, match="no partition 2; its partitions are 0, 1"):
        begin(None, 2)


def test_files_go_on_only_by_the_checkpoint_by_which_they_were_copied(tmp_path: Path) -> None:
    one = flow(FROM_FILES)
    check_files(tmp_path, None, one)
    link = known({1: 5}, "files:abc/0")
    with pytest.raises(FailedPrecondition, match="changed"):
        check_files(tmp_path, link, one)
    (tmp_path / "metadata").write_text(json.dumps({"id": "abc"}))
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    with pytest.raises(FailedPrecondition, match="older than the state of the target"):
        check_files(tmp_path, link, one)
    (tmp_path / "offsets" / "1").touch()
    check_files(tmp_path, link, one)


def test_the_lag_by_sparks_progress() -> None:
    assert remaining('{"o":{"0":3,"1":5}}', '{"o":{"0":10,"1":5,"2":4}}') == 11
    assert remaining(None, '{"o":{"0":3}}') is None


def test_what_a_stream_has_is_not_known_without_a_job() -> None:
    reader, writer = FlowProgress(flow(FROM_KAFKA), None), FlowProgress(flow(TO_KAFKA), 4)
    assert (reader.waiting, writer.waiting) == (1, 4), "somebody has to look"
    said = {reader.flow.name: FlowState("running", lag=0), writer.flow.name: FlowState("running", rows=9)}
    found = with_reports([reader, writer], said)
    assert [(one.lag, one.rows, one.waiting) for one in found] == [(0, 0, 0), (4, 9, 4)]
    assert with_reports([reader], {}) == [reader]


def test_a_stream_is_asked_for_nothing() -> None:
    """Neither end of a link that is a stream is ever called: there is nobody at these addresses."""
    one = flow(FROM_KAFKA)
    with Servers(patience_s=0.1) as servers:
        assert servers.flows([one.link]) == [one]
        assert servers.lag(one) == (None, 0)
        assert servers.cursor(one) is None
        assert servers.cursors_in(one.link.source, "") == {}
        back = flow(TO_KAFKA)
        assert servers.link_of(back) is None
        assert servers.links_at(back.link.target) == {}
        assert servers.ensure_targets([back]) == {}
