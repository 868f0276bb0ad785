"""The probers as processes of their own against a real server: each metric fires by its fault, and by no other one's.

Four rounds run at once, each through a relay of its own. In each round every prober meets a fault of another kind than
its neighbours, and in one round none, so that a fault that disturbs another prober shows.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.runtime.ports import free_ports
from syncpoint.front.client.client import Client
from syncpoint.programs.probers.prober_table import METRICS, PROBERS, Measure
from syncpoint.testing.rigs import official
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin
from tests.kit.prober_faults import FAULTS, PATIENCE, TIMEOUT_S, garbled
from tests.kit.probing import held_probers, probed_once, unexpected, verdicts
from tests.kit.relay import FaultyPushes, FaultyRelay, PushFault, RelayFault
from tests.kit.scraping import scraped, within

pytestmark = [pytest.mark.timeout(300), pytest.mark.shows("probers")]
KINDS = (*Measure, None)
PATIENCE_ELSE = 8.0
CALM = ("--patience", str(PATIENCE_ELSE), "--timeout", str(TIMEOUT_S))
SUCCESSES = {one.metric(Measure.SUCCESS) for one in PROBERS}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess(args=["--push-network", "loopback"]) as started:
        yield started


def faults_of(number: int) -> dict[str, str]:
    """The metrics that are to fire in a round, by prober."""
    chosen = {one: KINDS[(index + number) % len(KINDS)] for index, one in enumerate(PROBERS)}
    return {one.name: one.metric(kind) for one, kind in chosen.items() if kind is not None}


@pytest.fixture(scope="module")
def rounds(server: ServerProcess) -> list[dict[str, Any]]:
    """What became of each round: its entries by prober, of which some were run by one program and some by another.

    Where no duration is to fire, limits are so wide that a busy machine does not exceed them.
    """
    ports = free_ports(len(KINDS))

    def done(number: int) -> dict[str, Any]:
        firing = faults_of(number)
        made = {metric: FAULTS[metric].make() for metric in firing.values()}
        pushed = next((one for one in made.values() if isinstance(one, PushFault)), None)
        faults = [one for one in made.values() if isinstance(one, RelayFault)]
        late = [prober for prober, metric in firing.items() if metric.endswith(Measure.DURATION)]
        with FaultyRelay(server.endpoint, faults) as relay, FaultyPushes(ports[number], pushed) as pushes:
            push = ("--push-listen", f"127.0.0.1:{ports[number]}", "--push-url", pushes.url)

            def program(option: str, patience: float) -> tuple[int, dict[str, Any]]:
                chosen = [word for one in late for word in (option, one)]
                line = ("--timeout", str(TIMEOUT_S), "--patience", str(patience), *chosen)
                return probed_once([relay.endpoint], *line, *(push if ("P7" in late) == (option == "--only") else ()))

            with ThreadPoolExecutor(2) as pool:
                programs = list(pool.map(program, ("--only", "--without"), (PATIENCE, PATIENCE_ELSE)))
        assert [one for one in faults if not one.hits] == [], "every fault was met"
        assert [code for code, _ in programs] == [1, 1]
        return {entry["prober"]: entry for _, found in programs for entry in found["probers"]}

    with ThreadPoolExecutor(len(KINDS)) as pool:
        return list(pool.map(done, range(len(KINDS))))


def test_there_is_a_fault_for_each_of_the_thirty_metrics() -> None:
    assert set(FAULTS) == set(METRICS)
    assert len(FAULTS) == 30
    assert sorted(metric for number in range(len(KINDS)) for metric in faults_of(number).values()) == sorted(METRICS)


@pytest.mark.parametrize("prober", [one.name for one in PROBERS])
@pytest.mark.parametrize("number", range(len(KINDS)))
def test_a_fault_fires_its_metric_and_no_other_one(rounds: list[dict[str, Any]], number: int, prober: str) -> None:
    entry = rounds[number][prober]
    fired = {one["name"] for one in entry["metrics"] if one["verdict"] == "unexpected"}
    expected = faults_of(number).get(prober)
    assert fired == ({expected} if expected else set()), entry
    if not expected:
        assert {one["verdict"] for one in entry["metrics"]} == {"expected"}, entry


def test_a_server_that_dies_or_hangs_fires_every_success_and_nothing_else(tmp_path: Path) -> None:
    """Real faults, as probers that go on see them: kill -9, a restart, SIGSTOP, SIGCONT."""
    everything = {(metric, "expected") for metric in METRICS}
    with ServerProcess(tmp_path / "data", args=["--push-network", "loopback"]) as server:
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        held = ("--interval", "1", "--timeout", "3", "--patience", "10", "--metrics", address)

        def well(found: Any) -> bool:
            return {(metric, verdict) for (metric, _), verdict in found.items()} == everything

        with held_probers(tmp_path, [server.endpoint], *held) as probers:
            probers.until(well, "all is well")
            where = {(server.endpoint, measure, prober.name) for prober in PROBERS for measure in Measure}
            within(address, "syncpoint_prober_as_expected", dict.fromkeys(where, 1.0))
            with urllib.request.urlopen(f"http://{address}/probers.json", timeout=10) as answer:
                assert len(verdicts(answer.read())) == 30
            server.kill9()
            probers.until(lambda found: unexpected(found) == SUCCESSES, "kill -9")
            shown = scraped(address, "syncpoint_prober_as_expected")
            assert {labels[2] for labels, value in shown.items() if value == 0.0} == {one.name for one in PROBERS}
            assert {labels[1] for labels in shown} == {"success"}, "what is not known has no sample"
            server.start()
            probers.until(well, "it is back")
            assert server.pid is not None
            os.kill(server.pid, signal.SIGSTOP)
            try:
                probers.until(lambda found: unexpected(found) == SUCCESSES, "SIGSTOP")
            finally:
                os.kill(server.pid, signal.SIGCONT)
            probers.until(well, "it goes on")
            assert probers.end() == 0


def test_what_dead_probers_left_is_removed_and_nothing_else(server: ServerProcess) -> None:
    api = official.Api(server.endpoint)
    project = "projects/left"
    topic = api.create_topic({"name": f"{project}/topics/probe-p1"}).name
    over, later, other = "probe-p1-abcdef-7-until-1000000000", "probe-p1-abcdef-7-until-4000000000", "until-1000000000"
    gone = api.create_topic({"name": f"{project}/topics/probe-p8-abcdef-7-until-1000000000"}).name
    for name in (over, later, other):
        api.create_subscription({"name": f"{project}/subscriptions/{name}", "topic": topic})
    code, _ = probed_once([server.endpoint], *CALM, "--project", "left", "--only", "P2")
    assert code == 0
    left = {one.name.rpartition("/")[2] for one in api.list_subscriptions({"project": project}).subscriptions}
    assert left == {later, other}
    topics = {one.name for one in api.list_topics({"project": project}).topics}
    assert topic in topics
    assert gone not in topics
    api.close()


def test_copies_in_another_cluster_are_waited_for(server: ServerProcess) -> None:
    """A forwarding subscription stands for the federation; without it the copies are lost."""
    source, target = "projects/here/topics/probe-p10-copied", "projects/there/topics/probe-p10-copied"
    api = official.Api(server.endpoint)
    for name in (source, target):
        api.create_topic({"name": name})
    line = (*CALM, "--project", "here", "--only", "P10", "--copy", f"{server.endpoint}/there")
    with Client(server.endpoint) as client:
        copier = "projects/here/subscriptions/copier"
        api.create_subscription({"name": copier, "topic": source})
        options = admin.SubscriptionOptions(subscription=copier, forward_to=target)
        mask = {"paths": ["forward_to"]}
        request = admin.UpdateSubscriptionOptionsRequest(options=options, update_mask=mask)
        client.call("Admin.UpdateSubscriptionOptions", request)
    code, found = probed_once([server.endpoint], *line)
    assert code == 0, found
    assert set(found["probers"][0]["steps"]) == {"copy"}
    with FaultyRelay(server.endpoint, [RelayFault(methods.SUBSCRIBER.StreamingPull, answer=garbled)]) as relay:
        code, found = probed_once([server.endpoint], *line[:-1], f"{relay.endpoint}/there")
    assert code == 1
    assert unexpected(verdicts(json.dumps(found))) == {"P10.correctness"}
    api.close()
