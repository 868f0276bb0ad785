"""The patterns that work on messages, from end to end: every example of `examples/federation` in one job on real
servers.

Each message is at its target once, in the order of its key, as the example's `expected.jsonl` says; what is
published later comes, too, and a table that changes is read again.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from examples.federation import play
from syncpoint.base.model.errors import NotFound, SyncpointError
from syncpoint.front.client.switching_receiver import ReceivingPlace, SwitchingReceiver
from syncpoint.programs.cli.main import cli
from syncpoint.programs.federation.failover import path_of
from syncpoint.programs.federation.job import FederationJob
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import load
from syncpoint.programs.federation.state import StateFolder
from syncpoint.programs.federation.steps.payload_keys import KeyringPlace
from syncpoint.testing.rigs.log_oracle import Message, disordered
from syncpoint.testing.server_process import ServerProcess
from tests.spark import federation_kit
from tests.spark.federation_kit import RunningJob, Site, job_in_thread

pytestmark = pytest.mark.shows("patterns")

EXAMPLES = ("validate", "reduce", "enrich", "route", "normalise", "consolidate", "active-passive", "spillover")
SECRETS = (b'"currency":"CHF"', b"7;19.5;CHF", b"not for the partner", b"a lot;CHF")
MAIL_S = 3  # so long a message of the queue `mail` lives at each cluster; jobs live longer than a busy machine needs
PATIENCE_S = 600.0  # eight flows begin, two at a time, each with a Python of its own


def awaited(holds: Callable[[], Any], what: str) -> Any:
    return federation_kit.awaited(holds, what, PATIENCE_S)


@dataclass
class Played:
    """All examples in one job."""

    sites: dict[str, Site]
    folder: Path
    running: RunningJob

    @property
    def endpoints(self) -> dict[str, str]:
        return {name: site.server.endpoint for name, site in self.sites.items()}

    def finished(self, task: str) -> None:
        """Wait until the flows of a task have copied what there is."""
        flows = [one.flow for name, one in self.running.job.running.items() if name.startswith(f"{task}.")]

        def done() -> bool:
            with Servers() as servers:
                return bool(flows) and all(servers.progress(flow).lag == 0 for flow in flows)

        awaited(done, f"{task} has copied everything; {self.running.state.flows()}")

    def counts(self, flow: str) -> dict[str, int]:
        return dict(self.running.state.flows()[flow].counts)

    def scanned(self) -> dict[Path, bytes]:
        """Whatever Spark and the job have on disk."""
        folders = [self.folder / "state", *self.folder.parent.glob("spark*")]
        return {path: path.read_bytes() for one in folders for path in one.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def played(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("patterns")
    sites: dict[str, Site] = {}
    try:
        for name in ("eu", "us", "asia"):
            sites[name] = Site(name, ServerProcess(folder / name).start(300))
        endpoints = {name: site.server.endpoint for name, site in sites.items()}
        links, federation = [], None
        for name in EXAMPLES:
            file = play.prepare(name, folder / "examples" / name, endpoints)
            if name == "spillover":
                topology = file.parent / "topology.yaml"
                lives = topology.read_text().replace("default_ttl: 30m", f"default_ttl: {MAIL_S}s")
                topology.write_text(lives.replace("default_ttl: 1m", "default_ttl: 30m"))
            federation = load(file)
            links += links_of(federation)
            play.publish(folder / "examples" / name, {one: endpoints[one] for one in play.clusters_of(name)})
        assert federation is not None
        federation = replace(federation, runtime=replace(federation.runtime, state=folder / "state", max_rows=1000))
        state = StateFolder(federation.runtime.state)
        with job_in_thread(spark, FederationJob(federation, links, spark, state), state) as running:
            yield Played(sites, folder, running)
    finally:
        for site in sites.values():
            site.close()


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_comes_of_an_example_is_what_it_says(played: Played, name: str) -> None:
    expected = play.lines(play.HERE / name / "expected.jsonl")
    topics = play.topics_of(expected)

    def there() -> bool:
        try:
            return len(play.results(topics, played.endpoints)) >= len(expected)
        except NotFound:
            return False  # a topic is made when its flow begins

    awaited(there, f"{len(expected)} messages; {played.running.state.flows()}")
    found = play.results(topics, played.endpoints)
    assert play.same(found, expected), "\n".join(json.dumps(one, ensure_ascii=False) for one in found)


def test_rows_are_in_the_order_of_their_keys_over_topics_and_batches(played: Played) -> None:
    """Many more for the example of routes, in batches: each in one topic, once, each key in its order in each."""
    site, count = played.sites["eu"], 3000
    source = "projects/orders/topics/all"
    site.publish(source, range(1000, 1000 + count), region="us")
    site.publish(source, range(9000, 9000 + count), region="test")
    played.finished("by-audience")
    originals = [one for one in site.log(source) if "n" in one.attributes]
    assert len(originals) == 2 * count
    for region, topic in (("us", "projects/orders/topics/america"), ("test", "projects/lab/topics/orders")):
        copies = [one for one in played.sites["us"].log(topic) if "n" in one.attributes]
        published = [one for one in originals if one.attributes["region"] == region]
        assert Counter(one.message_id for one in copies) == Counter(one.message_id for one in published)
        assert not disordered(published, copies)
    awaited(lambda: played.counts("by-audience.all").get("read") == 2 * count + 6, "the counts of the last batch")
    counts = played.counts("by-audience.all")
    assert (counts["passed"], counts["refused"]) == (2 * count + 6, 0)


def test_sizes_are_reported(played: Played) -> None:
    played.finished("without-cards")
    awaited(lambda: played.counts("without-cards.payments").get("read") == 4, "the counts of the batch")
    counts = played.counts("without-cards.payments")
    assert (counts["passed"], counts["refused"]) == (2, 2)
    log = played.sites["us"].log("projects/payments/topics/payments")
    assert counts["bytes_written"] == sum(len(one.data) for one in log)
    given = [line["data"] for line in play.lines(play.HERE / "reduce/input.jsonl")[:2]]
    assert counts["bytes_read"] == sum(len(json.dumps(one, separators=(",", ":"))) for one in given)


def test_counts_of_each_region_are_conserved(played: Played) -> None:
    source, count = "projects/sales/topics/sales", 500
    for name in ("eu", "us"):
        for kind in ("web", "test"):
            played.sites[name].publish(source, range(count), kind=kind)
    played.finished("all-sales")
    merged = played.sites["asia"].log("projects/sales/topics/all-sales")
    assert len(merged) == len({one.message_id for one in merged})
    for name in ("eu", "us"):
        sold = [one for one in played.sites[name].log(source) if one.attributes["kind"] != "test"]
        here: list[Message] = [one for one in merged if one.attributes["region"] == name]
        assert {one.message_id for one in here} == {one.message_id for one in sold}
        assert not disordered(sold, here)
        assert {one.origin for one in here} == {name}


def test_a_table_that_changes_is_read_again_while_the_stream_runs(played: Played) -> None:
    folder = played.folder / "examples/enrich/airlines"
    source = target = "projects/flights/topics/departures"
    number = iter(range(1000))

    def named() -> Any:
        """One more flight each time, as somebody has to come by for a batch to see the new table."""
        data = json.dumps({"carrier": "QQ", "n": next(number)}).encode()
        played.sites["eu"].api.publish({"topic": source, "messages": [{"data": data}]})
        return [one for one in played.sites["us"].log(target) if b"New Airline" in one.data]

    assert not named()
    shutil.copy(folder / "airlines.csv", folder / ".new.csv")
    with (folder / ".new.csv").open("a") as out:
        out.write("QQ,New Airline\n")
    (folder / ".new.csv").rename(folder / "airlines.csv")
    assert awaited(named, "a flight with the new airline")


def test_only_the_partner_reads_what_was_encrypted_for_it_and_no_plaintext_is_on_disk(played: Played) -> None:
    played.finished("orders-for-partner")
    files = played.folder / "examples/normalise"
    partner = KeyringPlace(file=str(files / "partner.keys.json")).load()
    ours = KeyringPlace(file=str(files / "ours.keys.json")).load()
    for message in played.sites["us"].log("projects/partners/topics/orders"):
        assert partner.decrypt(message.data, message.attributes) == b'{"id":7,"total":19.5,"currency":"CHF"}'
        with pytest.raises(ValueError, match="no key with this id"):
            ours.decrypt(message.data, message.attributes)
    scanned = played.scanned()
    assert len(scanned) > 20
    assert not [path for path, content in scanned.items() if any(secret in content for secret in SECRETS)]
    # The scan reaches what Spark writes: checkpoints name their sources.
    assert any(path.parent.name == "offsets" and b"orders" not in content for path, content in scanned.items())


def test_a_failover_and_a_failback_in_the_order_of_the_runbook(played: Played) -> None:
    """The primary is killed: each message is handled once, duplicates are counted twice, wrong moves are refused."""
    topic, subscription = "projects/retail/topics/orders", "projects/retail/subscriptions/app"
    eu, us = played.sites["eu"], played.sites["us"]
    file = played.folder / "examples/active-passive/federation.yaml"
    file.write_text(file.read_text().replace("failover: 1m", "failover: 30m"))
    played.finished("standby-orders")
    for site in (eu, us):
        site.api.create_subscription({"name": subscription, "topic": topic, "ack_deadline_seconds": 600})
    short = subscription.replace("app", "short")
    us.api.create_subscription({"name": short, "topic": topic})

    def run(*words: str, ok: bool = True) -> str:
        done = CliRunner().invoke(cli, ["federation", words[0], "standby-orders", str(file), *words[1:]])
        assert (done.exit_code == 0) is ok, done.output
        return done.output

    def publish(site: Site, names: list[str]) -> None:
        messages = [{"data": one.encode(), "attributes": {"sys.MessageId": one}, "ordering_key": "k"} for one in names]
        site.api.publish({"topic": topic, "messages": messages})

    def consumers() -> str:
        path = path_of(file.parent / "federation-state", "standby-orders")
        return str(json.loads(path.read_text())["consumers"]) if path.exists() else "eu"

    run("standby", "--subscription", "app")
    copied, stuck = [f"copied-{n}" for n in range(100)], [f"stuck-{n}" for n in range(10)]
    local, late = [f"local-{n}" for n in range(20)], [f"late-{n}" for n in range(10)]
    handled: list[str] = []
    places = {name: ReceivingPlace(site.server.endpoint, subscription) for name, site in played.sites.items()}
    with SwitchingReceiver(places, consumers) as receiver:

        def handle(most: int) -> list[str]:
            try:
                found = receiver.receive(most)
            except SyncpointError:
                return handled
            handled.extend(one.identity for one in found)
            receiver.done(found)
            return handled

        publish(eu, copied)
        played.finished("standby-orders")
        awaited(lambda: len(handle(60 - len(handled))) == 60, "sixty handled at the primary")
        assert "the primary answers" in run("failover", ok=False)
        assert "is not the next step" in run("failback", "--publishers", ok=False)
        publish(eu, stuck)  # whether these are copied before the server dies, or when it is back, does not matter
        eu.server.kill9()
        assert "publishers: us; consumers: us" in run("failover")
        awaited(lambda: set(copied) <= set(handle(50)) and receiver.seen.skipped >= 60, "what was copied")
        at_failover = receiver.seen.skipped
        publish(us, local)
        assert "does not answer yet" in run("failback", "--publishers", ok=False)
        eu.server.start(300)
        assert "is not the next step" in run("failback", "--consumers", "--subscription", "app", ok=False)
        assert "publishers: eu; consumers: us" in run("failback", "--publishers")
        assert "drain them first" in run("failback", "--consumers", "--subscription", "app", ok=False)
        awaited(lambda: set(local + stuck) <= set(handle(50)), "local ones, and what was copied once it was back")
        assert "publishers: eu; consumers: eu" in run("failback", "--consumers", "--subscription", "app")
        publish(eu, late)
        awaited(
            lambda: set(late) <= set(handle(50)) and receiver.seen.skipped >= 110, "the newest, at the primary again"
        )
        assert sorted(handled) == sorted(copied + stuck + local + late)
        assert at_failover == 60  # handled at the primary before, found again at the secondary
        assert receiver.seen.skipped - at_failover == 50  # handled at the secondary, found again at the primary
        assert receiver.moves == 2
    assert not [one for one in eu.log(topic) if one.origin]  # nothing flows back
    file.write_text(file.read_text().replace("failover: 30m", "failover: 500ms"))
    run("standby", "--subscription", "short")
    publish(us, ["local-last"])
    pulled: list[Any] = []

    def last() -> bool:
        answer = us.api.pull({"subscription": short, "max_messages": 1000})
        pulled.extend(one.message for one in answer.received_messages)
        return any(one.data == b"local-last" for one in pulled)

    awaited(last, "the last local message")
    # Rules count for what was published since they were made, so only that is looked for here.
    eu_copy = ["copy-too-old"]
    publish(eu, eu_copy)
    played.finished("standby-orders")
    awaited(lambda: us.log(topic)[-1].data == b"copy-too-old", "the copy")
    time.sleep(1.1)  # longer than it lives
    publish(us, ["local-end"])

    def end() -> bool:
        answer = us.api.pull({"subscription": short, "max_messages": 1000})
        pulled.extend(one.message for one in answer.received_messages)
        return any(one.data == b"local-end" for one in pulled)

    awaited(end, "what was published behind it")
    assert not [one for one in pulled if one.data == b"copy-too-old"]


@pytest.mark.long
def test_what_one_cluster_gives_up_is_done_by_the_other_and_what_fails_at_both_is_kept_once(played: Played) -> None:
    """A database that is away, nobody at work at either cluster, and a cluster that is lost for a time."""
    eu, us = played.sites["eu"], played.sites["us"]
    work = "projects/factory/subscriptions/"

    def publish(site: Site, topic: str, names: list[str]) -> None:
        site.api.publish(
            {"topic": f"projects/factory/topics/{topic}", "messages": [{"data": n.encode()} for n in names]}
        )

    def taken(site: Site, queue: str, handled: list[str] | None) -> None:
        """Receive for a moment: handled, or given back, as by a worker whose database is away."""
        answer = site.api.pull({"subscription": work + queue, "max_messages": 100}, timeout=20)
        ack_ids = [one.ack_id for one in answer.received_messages]
        if not ack_ids:
            return
        if handled is None:
            site.api.modify_ack_deadline({"subscription": work + queue, "ack_ids": ack_ids, "ack_deadline_seconds": 0})
        else:
            handled += [one.message.data.decode() for one in answer.received_messages]
            site.api.acknowledge({"subscription": work + queue, "ack_ids": ack_ids})

    # What the queue of jobs has of the example, and then jobs that a topic's subscription passes on.
    done_at_us: list[str] = []
    awaited(lambda: (taken(us, "jobs", done_at_us), "job 1" in done_at_us)[1], "the example's job")
    jobs = [f"job {n}" for n in range(100, 150)]
    publish(eu, "tasks", jobs)

    def spilled() -> bool:
        taken(eu, "jobs", None)
        taken(us, "jobs", done_at_us)
        return set(jobs) <= set(done_at_us)

    awaited(spilled, "jobs done by the other cluster")
    assert sorted(done_at_us) == sorted(["job 1", *jobs])  # each once
    for site, origin in ((us, "eu"), (eu, "")):  # nothing comes back to where it was given up
        found = [one for one in site.log("projects/factory/topics/jobs") if one.data.decode() in jobs]
        assert Counter(one.data.decode() for one in found) == Counter(jobs)
        assert {one.origin for one in found} == {origin}
    # Nobody receives mail: it runs out at one cluster, then at the other, and is kept where it began.
    letters = [f"letter {n}" for n in range(100, 120)]
    publish(eu, "mail", letters)
    kept: list[str] = []
    awaited(lambda: (taken(eu, "mail-auxiliary", kept), set(letters) <= set(kept))[1], "what failed at both clusters")
    assert sorted(kept) == sorted(letters)
    assert not [one for one in us.log("projects/factory/topics/mail-auxiliary") if one.data.decode() in letters]
    copies = [one for one in us.log("projects/factory/topics/mail") if one.data.decode() in letters]
    assert len(copies) == len(letters)
    assert {one.attributes["sys.DeadLetterReason"] for one in copies} == {"TTLExpiredException"}
    # A cluster is lost with mail in its queue: that comes to the other one when it is back, later than its time.
    publish(eu, "mail", ["late"])
    eu.server.kill9()
    eu.server.start(300)
    at_us: list[str] = []
    awaited(lambda: (taken(us, "mail", at_us), "late" in at_us)[1], "what the lost cluster had")
    assert at_us.count("late") == 1
