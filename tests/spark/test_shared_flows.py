"""Many topics on one link: one streaming query, which flows leave and join; and ranges that no flow has copied."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.programs.federation.backfill import Backfill
from syncpoint.programs.federation.flow_plan import Flow
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import Federation, parse
from syncpoint.testing.rigs.log_oracle import judge
from syncpoint.wire.protobuf.messages import pipeline
from tests.spark.federation_kit import RunningJob, Site, awaited, name_of, running_job, sites

pytestmark = pytest.mark.shows("federation")

TOPICS = [f"topic-{number}" for number in range(24)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Site]]:
    with sites("ab", tmp_path_factory.mktemp("pair")) as made:
        yield made


def content(pair: dict[str, Site], topics: list[str], **keys: Any) -> dict[str, Any]:
    task = {
        "pattern": "replicate",
        "from": {"cluster": "a", "project": "fed", "topics": topics},
        "to": {"cluster": "b"},
    }
    clusters = {name: {"endpoint": site.server.endpoint} for name, site in pair.items()}
    return {"version": 1, "clusters": clusters, "tasks": {"copy": {**task, **keys}}, "runtime": {"max_rows": 200}}


def copied(pair: dict[str, Site], running: RunningJob, *topics: str) -> None:
    """Wait until these are copied; each message once, unchanged, in the order of its key."""
    names = [f"copy.{one}" for one in topics]
    awaited(lambda: set(running.job.running) >= set(names), "the flows are known")
    flows = [running.job.running[name].flow for name in names]

    def done() -> bool:
        with Servers() as servers:
            return all(one.lag == 0 and one.rows for one in servers.progress_of(flows))

    awaited(done, f"{topics} copied; {running.state.flows()}")
    for one in topics:
        verdict = judge(pair["a"].log(name_of(one)), pair["b"].log(name_of(one)))
        assert verdict.exact, (one, verdict)


def test_one_query_copies_all_topics_and_goes_on_without_one_that_fails_or_is_paused(
    spark: Any, pair: dict[str, Site], tmp_path: Path
) -> None:
    source = pair["a"]
    for one in TOPICS:
        source.topic(one)
        source.publish(name_of(one), range(30))
    poison = "CASE WHEN attributes['poison'] = 'yes' THEN raise_error('poisoned') ELSE true END"
    given = content(pair, ["topic-*"], where=poison)
    with running_job(spark, given, tmp_path) as running:
        copied(pair, running, *TOPICS)
        assert set(running.job.queries) == {"copy"}

        source.publish(name_of("topic-3"), [900], poison="yes")
        awaited(lambda: running.state.flows()["copy.topic-3"].error, "the poisoned flow has failed")
        awaited(
            lambda: "copy.topic-3" in running.job.queries or running.job.running["copy.topic-3"].alone, "and is alone"
        )
        source.publish(name_of("topic-4"), range(30, 60))
        copied(pair, running, "topic-4")
        assert "poisoned" in running.state.flows()["copy.topic-3"].error
        assert running.job.queries["copy"].flows >= {"copy.topic-4"}

        running.state.pause("copy.topic-5")
        awaited(lambda: running.state.flows()["copy.topic-5"].state == "paused", "the pause")
        source.publish(name_of("topic-5"), range(30, 60))
        source.publish(name_of("topic-6"), range(30, 60))
        copied(pair, running, "topic-6")
        assert len(pair["b"].log(name_of("topic-5"))) == 30
        running.state.resume("copy.topic-5")
        copied(pair, running, "topic-5")
    with running_job(
        spark, content(pair, ["topic-*"]), tmp_path
    ) as running:  # the file is mended, and the job begins anew
        copied(pair, running, *TOPICS)
        awaited(lambda: set(running.job.queries) == {"copy"}, "all in one query again")


def test_flows_of_a_release_with_a_checkpoint_each_go_on_where_they_were(
    spark: Any, pair: dict[str, Site], tmp_path: Path
) -> None:
    """One had copied some; the other had begun at `latest`, and was stopped before its first batch was committed."""
    source, topics = pair["a"], ["old-some", "old-none"]
    for one in topics:
        source.topic(one)
        source.publish(name_of(one), range(10))
    given = content(pair, ["old-*"], start="latest")
    with running_job(spark, given, tmp_path) as running:
        awaited(lambda: len(running.job.running) == 2, "both flows")
        awaited(lambda: {one.name for one in _cursors(source)} >= {f"copy.{one}" for one in topics}, "both have begun")
        source.publish(name_of("old-some"), range(10, 20))
        awaited(lambda: len(pair["b"].log(name_of("old-some"))) == 10, "one has copied")
    for one in topics:
        source.publish(name_of(one), range(20, 30))
        (tmp_path / "federation-state" / "checkpoints" / f"copy.{one}" / "offsets").mkdir(parents=True)
    with running_job(spark, given, tmp_path) as running:
        awaited(lambda: len(pair["b"].log(name_of("old-some"))) == 20, "ten more")
        awaited(lambda: len(pair["b"].log(name_of("old-none"))) == 10, "those since it had begun")
    assert [one.attributes["n"] for one in pair["b"].log(name_of("old-none"))] != []
    for one, first in (("old-some", 10), ("old-none", 20)):
        wanted = [message for message in source.log(name_of(one)) if int(message.attributes["n"]) >= first]
        assert judge(wanted, pair["b"].log(name_of(one))).exact, one
    assert not (tmp_path / "federation-state" / "checkpoints").exists()


def _cursors(site: Site) -> Any:
    from pyspark_pubsub.options import ServerAccess
    from pyspark_pubsub.rpc import BlockingChannel
    from syncpoint.wire.protobuf import methods

    request = pipeline.ListCursorsRequest(project="projects/fed")
    answer = BlockingChannel(ServerAccess((site.server.endpoint,))).call(methods.LOG_READER.ListCursors, request)
    return pipeline.ListCursorsResponse.FromString(answer).cursors


def test_a_backfill_brings_what_lies_before_a_flow_once_however_often_it_is_run(
    spark: Any, pair: dict[str, Site], tmp_path: Path
) -> None:
    source, topic = pair["a"], name_of("late")
    source.topic("late")
    source.publish(topic, range(400))
    given = content(pair, ["late"], start="latest", where="CAST(attributes['n'] AS INT) % 4 <> 0")
    federation = parse(given, tmp_path)
    (link,) = links_of(federation)
    (flow,) = link.flows([topic])
    with Servers() as servers:
        with pytest.raises(FailedPrecondition, match="has not copied anything yet"):
            Backfill(servers, flow).plan("earliest", "latest")
        with running_job(spark, given, tmp_path) as running:
            awaited(lambda: any(one.name == flow.name for one in _cursors(source)), "the flow has begun")
            source.publish(topic, range(400, 500))
            awaited(lambda: len(pair["b"].log(topic)) == 75, f"the new ones; {running.state.flows()}")
            _three_backfills(spark, servers, federation, flow, tmp_path)
    wanted = [one for one in source.log(topic) if int(one.attributes["n"]) % 4]
    verdict = judge(wanted, pair["b"].log(topic))
    assert (verdict.published, verdict.missing, verdict.twice, verdict.changed) == (375, 0, 0, 0)


def _three_backfills(spark: Any, servers: Servers, federation: Federation, flow: Flow, folder: Path) -> None:
    """One is overtaken in the middle, one does the rest, one has nothing to do."""
    first = Backfill(servers, flow)
    plan = first.plan("earliest", "latest")
    assert 400 <= plan.messages < 500  # those that the flow leaves out are among them
    ended: list[BaseException] = []

    def overtaken() -> None:
        try:
            spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
            with Servers() as own:
                first.servers = own
                first.copy(plan, spark, _small(federation), folder / "first")
        except FailedPrecondition as error:
            ended.append(error)

    thread = threading.Thread(target=overtaken)
    thread.start()
    awaited(lambda: _stored(servers, flow, plan.link), "a batch of the first")
    second = Backfill(servers, flow)
    rest = second.plan("earliest", "latest")
    thread.join(120)
    assert rest.messages < plan.messages
    assert ended or rest.messages < 200, "the first one was stopped, or was through"
    second.copy(rest, spark, federation.runtime, folder / "second")
    third = Backfill(servers, flow).plan("earliest", "latest")
    assert third.present
    assert Backfill(servers, flow).copy(third, spark, federation.runtime, folder / "third") == 0


def _small(federation: Federation) -> Any:
    from dataclasses import replace

    return replace(federation.runtime, max_rows=40)


def _stored(servers: Servers, flow: Flow, link: str) -> bool:
    time.sleep(0.1)
    found = servers.call(flow.link.target, "EpochWriter.ListLinks", pipeline.ListLinksRequest(name=link)).links
    return bool(found and found[0].epochs)
