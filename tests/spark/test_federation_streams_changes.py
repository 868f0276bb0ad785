"""What becomes of flows from a real Kafka broker while the topic changes: pauses, new partitions, deletion, holes.

One broker, one server, one job with a flow for each case; every test drives its own flow, by the command line where
a person would. Nothing is waited for but what the log, the job or the broker says. Run by `make test-kafka`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from syncpoint.programs.cli.main import cli
from syncpoint.testing.kafka.kafka_broker import KafkaBroker
from syncpoint.testing.rigs.log_oracle import Message
from syncpoint.testing.server_process import ServerProcess
from tests.spark.federation_kit import RunningJob, Site, awaited, name_of, running_job

pytest.importorskip("kafka")
from syncpoint.testing.kafka import kafka_client
from tests.spark.kafka_kit import Produced, check_once_in_order, place_of, placed, produced, records

pytestmark = pytest.mark.shows("streams")

BATCH = 100
LOST, LARGE = 3000, 1500  # records, and bytes of each: Kafka's clients read a MiB of a partition ahead
TOPICS = {"pausing": 2, "growing": 1, "losing": 2, "compacted": 1, "transactions": 1}
FLOWS = {  # by name, which is also that of the topic they write: the topic they read, and what else their task says
    "pausing": ("pausing", {}),
    "steady": ("pausing", {}),
    "growing": ("growing", {"start": "latest"}),
    "losing": ("losing", {}),
    "careless": ("losing", {"loss": "accept"}),
    "compacted": ("compacted", {}),
    "transactions": ("transactions", {}),
}
COMPACTED = {  # a segment is full after a few records, and only full ones are compacted
    "cleanup.policy": "compact",
    "segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0.01",
}
QUICK_CLEANER = {"log.cleaner.backoff.ms": 200, "log.cleaner.threads": 1}


@dataclass
class Changes:
    """What the tests look at and change."""

    site: Site
    broker: KafkaBroker
    running: RunningJob
    file: Path

    def log(self, flow: str) -> list[Message]:
        """What a flow has copied."""
        return self.site.log(name_of(flow))

    def copied(self, flow: str, count: int) -> None:
        """Wait until a flow has copied so many records at least."""
        awaited(lambda: len(self.log(flow)) >= count, f"{flow}: {count} records")

    def said(self, flow: str) -> Any:
        """What the job says of a flow; None: nothing yet."""
        return self.running.state.flows().get(_flow_name(flow))

    def until(self, flow: str, holds: Callable[[Any], Any], what: str) -> Any:
        """Wait until what the job says of a flow is like this; what it says then."""

        def look() -> Any:
            said = self.said(flow)
            return said if said is not None and holds(said) else None

        try:
            return awaited(look, f"{flow}: {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.said(flow)}") from None

    def federation(self, command: str, *arguments: str) -> str:
        """Run `syncpoint federation COMMAND ... FILE`; its output."""
        line = ["federation", command, *arguments, str(self.file)]
        result = CliRunner().invoke(cli, line, prog_name="syncpoint")
        assert result.exit_code == 0, result.output
        return result.output

    def pause(self, flow: str) -> None:
        """Pause a flow, and wait until it copies nothing any more."""
        self.federation("pause", _flow_name(flow))
        self.until(flow, lambda said: said.state == "paused", "paused")

    def resume(self, flow: str) -> None:
        self.federation("resume", _flow_name(flow))

    def status(self, flow: str) -> dict[str, Any]:
        """What `federation status` says of a flow."""
        every: list[dict[str, Any]] = json.loads(self.federation("status", "--format", "json"))
        (found,) = [one for one in every if one["flow"] == _flow_name(flow)]
        return found

    def skipped(self, flow: str) -> int:
        """How many records the target says that it will never have."""
        return int(self.status(flow)["messagesSkipped"])


def _flow_name(flow: str) -> str:
    return f"{flow}.{FLOWS[flow][0]}"


@pytest.fixture(scope="module")
def changes(jars: list[Path], spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changes]:
    folder = tmp_path_factory.mktemp("changes")
    site = Site("eu", ServerProcess(folder / "eu").start())
    try:
        for flow in FLOWS:
            site.topic(flow)
        with KafkaBroker(folder / "kafka", jars, more=QUICK_CLEANER) as broker:
            for topic, partitions in TOPICS.items():
                settings = COMPACTED if topic == "compacted" else {}
                kafka_client.create_topics(broker.address, {topic: partitions}, settings)
            produced(broker.address, "growing", range(10), 0)  # before its flow begins, which is at the end
            content = {
                "version": 1,
                "clusters": {"eu": {"endpoint": site.server.endpoint}},
                "streams": {"lake": {"kafka": {"bootstrap": broker.address}}},
                "tasks": {
                    flow: {
                        "pattern": "stream-to-queue",
                        "from": {"stream": "lake", "topic": topic},
                        "to": {"cluster": "eu", "topic": name_of(flow)},
                        **more,
                    }
                    for flow, (topic, more) in FLOWS.items()
                },
                "runtime": {"state": str(folder / "state"), "max_rows": BATCH, "master": "local[2]"},
            }
            file = folder / "federation.yaml"
            file.write_text(json.dumps(content))  # JSON is YAML
            with running_job(spark, content, folder) as running:
                yield Changes(site, broker, running, file)
    finally:
        site.close()


def test_a_paused_flow_copies_nothing_and_then_the_rest_once_in_order(changes: Changes) -> None:
    address = changes.broker.address
    sent = produced(address, "pausing", range(600))
    changes.copied("pausing", 1)
    changes.pause("pausing")
    before = changes.log("pausing")
    sent += produced(address, "pausing", range(600, 800))
    changes.copied("steady", len(sent))
    assert changes.log("pausing") == before, "another flow of the topic has copied all, and the paused one nothing"
    assert changes.status("pausing")["state"] == "paused"
    changes.resume("pausing")
    changes.copied("pausing", len(sent))
    changes.until("pausing", lambda said: said.lag == 0, "nothing waits")
    for flow in ("pausing", "steady"):
        check_once_in_order(changes.log(flow), sent)
        assert changes.skipped(flow) == 0


def test_partitions_that_come_are_read_from_their_beginning(changes: Changes) -> None:
    """Also by a flow that began at the end of the topic: what is new came behind that."""
    address = changes.broker.address
    changes.until("growing", lambda said: said.lag == 0, "begun at the end")
    sent = produced(address, "growing", range(20), 0)
    changes.copied("growing", 20)
    kafka_client.add_partitions(address, "growing", 3)
    for partition in range(3):
        sent += produced(address, "growing", range(20, 40), partition)
    changes.copied("growing", len(sent))
    changes.pause("growing")
    kafka_client.add_partitions(address, "growing", 5)
    for partition in (0, 3):  # 4 stays empty until the flow goes on
        sent += produced(address, "growing", range(40, 60), partition)
    changes.resume("growing")
    changes.copied("growing", len(sent))
    sent += produced(address, "growing", range(60, 80), 4)
    changes.copied("growing", len(sent))
    changes.until("growing", lambda said: said.lag == 0, "nothing waits")
    check_once_in_order(changes.log("growing"), sent)
    assert changes.skipped("growing") == 0


def test_what_kafka_deletes_stops_a_flow_until_that_is_accepted(changes: Changes) -> None:
    """Deleted under a running flow, and once more under a paused one: what was accepted was the first gap alone."""
    address, flow = changes.broker.address, "losing"
    kept = produced(address, "losing", range(30), 1)
    sent = produced(address, "losing", range(LOST), 0, size=LARGE)
    changes.copied(flow, len(kept) + 1)
    kafka_client.delete_before(address, "losing", {0: len(sent) - 50})
    before = stopped(changes, flow, 0, len(sent) - 50)
    kept += produced(address, "losing", range(30, 40), 1)
    had = {place_of(one) for one in before}
    changes.federation("accept-gap", _flow_name(flow))
    arrived = goes_on(changes, flow, before, [one for one in [*kept, *sent[-50:]] if one.place not in had])
    gap = len(sent) - 50 - len([one for one in before if place_of(one)[0] == 0])
    assert changes.skipped(flow) == gap > 0
    check_accepted_unasked(changes, "careless", [*kept, *sent], len(sent) - 50)

    changes.pause(flow)
    more = produced(address, "losing", range(LOST, LOST + 40), 0)
    kafka_client.delete_before(address, "losing", {0: len(sent) + 15})
    changes.resume(flow)
    assert stopped(changes, flow, 0, len(sent) + 15) == arrived
    changes.federation("accept-gap", _flow_name(flow))
    goes_on(changes, flow, arrived, more[15:])
    assert changes.skipped(flow) == gap + 15
    assert changes.status(flow)["state"] != "blocked"


def stopped(changes: Changes, flow: str, partition: int, end: int) -> list[Message]:
    """Wait until a flow has stopped for what is gone below `end`, and says so; what it had copied."""
    said = changes.until(flow, lambda said: "accept-gap" in said.error, "stopped for what is gone")
    before = changes.log(flow)
    at = 1 + max(offset for number, offset in map(place_of, before) if number == partition)
    assert said.state == "failed"
    assert f"(partition {partition}: {at} to {end - 1})" in said.error
    assert f"`syncpoint federation accept-gap {_flow_name(flow)}`" in said.error
    return before


def goes_on(changes: Changes, flow: str, before: Sequence[Message], rest: Sequence[Produced]) -> list[Message]:
    """Wait until a flow has copied the rest behind a gap: once, and nothing else; all that it has copied."""
    changes.copied(flow, len(before) + len(rest))
    changes.until(flow, lambda said: said.lag == 0 and not said.error, "nothing waits")
    log = changes.log(flow)
    new = [one for one in log if one not in before]
    assert len(new) + len(before) == len(log)
    check_once_in_order(new, rest)
    return log


def check_accepted_unasked(changes: Changes, flow: str, sent: Sequence[Produced], end: int) -> None:
    """With `loss: accept` a flow goes on by itself, and each record is either copied or counted as skipped."""
    wanted = {one.place for one in sent if one.partition or one.offset >= end}
    awaited(lambda: wanted <= {place_of(one) for one in changes.log(flow)}, f"{flow}: all that is left")
    places = {place_of(one) for one in changes.log(flow)}
    check_once_in_order(changes.log(flow), [one for one in sent if one.place in places])
    assert changes.skipped(flow) == len(sent) - len(places) > 0


def test_holes_that_compaction_leaves_stop_nothing(changes: Changes) -> None:
    """A flow stands where the record is gone that it was to read next, and there are holes in what it reads."""
    address, flow = changes.broker.address, "compacted"
    first = produced(address, "compacted", range(20))
    changes.copied(flow, len(first))
    changes.pause(flow)
    sent = produced(address, "compacted", range(20, 500))

    def left() -> list[tuple[int, int]]:
        return [(one.partition, one.offset) for one in kafka_client.records_of(address, "compacted")]

    gone = awaited(lambda: {one.place for one in sent} - set(left()), "the broker compacts")
    assert sent[0].place in gone
    changes.resume(flow)
    last = produced(address, "compacted", range(500, 510))
    kept = [one for one in sent if one.place not in gone]
    changes.until(flow, lambda said: said.lag == 0, "nothing waits")
    log = changes.log(flow)
    places = [place_of(one) for one in log]
    assert len(places) == len(set(places)), "each once"
    assert set(places) <= {one.place for one in [*first, *kept, *last]}
    assert {one.place for one in first} | set(left()) <= set(places)
    check_once_in_order(log, [one for one in [*first, *kept, *last] if one.place in set(places)])
    assert (changes.skipped(flow), changes.status(flow)["gapsRefused"], changes.said(flow).error) == (0, 0, "")


def test_marks_of_transactions_and_what_was_aborted_are_no_gaps(changes: Changes) -> None:
    address, flow = changes.broker.address, "transactions"

    def written(numbers: range, *, committed: bool = True) -> list[Produced]:
        sent = records("transactions", numbers)
        return placed(sent, kafka_client.produce_in_transaction(address, sent, committed=committed))

    sent = written(range(20))
    written(range(20, 40), committed=False)
    sent += written(range(40, 60))
    changes.copied(flow, len(sent))
    changes.pause(flow)
    written(range(60, 80), committed=False)  # nothing but what is aborted waits
    changes.resume(flow)
    changes.until(flow, lambda said: said.state == "running" and said.lag == 0, "over what was aborted")
    sent += produced(address, "transactions", range(80, 90))
    changes.copied(flow, len(sent))
    assert sent[-1].offset > len(sent) + 40, "there are marks"
    check_once_in_order(changes.log(flow), sent)
    assert (changes.skipped(flow), changes.status(flow)["gapsRefused"], changes.said(flow).error) == (0, 0, "")
