"""Classes of disaster recovery on real servers: two sites of a billing project, and tenants that see only their own."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from click.testing import CliRunner
from google.cloud import pubsub_v1

from syncpoint.programs.cli.main import cli
from syncpoint.programs.disaster.class_duties import ClassDuties
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import load
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin
from tests.integration.test_tenants import House, house
from tests.kit.copying import Copier

pytestmark = pytest.mark.shows("disaster-classes")

__all__ = ["house"]
P, ORDERS, ADMIN = "projects/shop", "projects/shop/topics/orders", methods.ADMIN


class Sites:
    """Two servers, a federation's file, and the command line at either."""

    def __init__(self, folder: Path, durability: str = "memory") -> None:
        self.folder = folder
        self.servers = {name: ServerProcess(folder / name, durability=durability).start() for name in ("eu", "us")}
        self.file = folder / "federation.yaml"
        clusters = {name: {"endpoint": one.endpoint} for name, one in self.servers.items()}
        self.file.write_text(
            yaml.safe_dump({"version": 1, "clusters": clusters, "namespaces": {"shop": {"clusters": ["eu", "us"]}}})
        )

    def close(self) -> None:
        for one in self.servers.values():
            one.close()

    def cli(self, site: str, *words: str) -> Any:
        line = [*words, "--endpoint", self.servers[site].endpoint]
        return CliRunner().invoke(cli, [*line, *(() if "--project" in words else ("--project", "shop"))])

    def done(self, site: str, *words: str) -> Any:
        found = self.cli(site, *words)
        assert found.exit_code == 0, found.output
        return found.output

    def publish(self, site: str, text: str) -> str:
        options = {"api_endpoint": self.servers[site].endpoint}
        transport = pubsub_v1.PublisherClient.get_transport_class("grpc")(
            channel=grpc.insecure_channel(options["api_endpoint"])
        )
        with pubsub_v1.PublisherClient(transport=transport) as client:
            return client.publish(ORDERS, text.encode(), retry=None).result(timeout=20)

    def copiers(self, servers: Servers, topic: str = "orders") -> dict[tuple[str, str], Copier]:
        """By source and target, of one topic."""
        federation = load(self.file)
        flows = [one for one in servers.flows(links_of(federation)) if one.source_topic == f"{P}/topics/{topic}"]
        return {(one.link.source.name, one.link.target.name): Copier(federation, one) for one in flows}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    made = Sites(tmp_path_factory.mktemp("sites"))
    try:
        yield made
    finally:
        made.close()


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(Exception) as error:  # the official client's, or the data source's
        work()
    return str(error.value)


def test_one_site_writes_and_the_writer_moves_with_what_the_other_had_left(sites: Sites) -> None:
    """eu writes and us has copies; then us writes, brings what eu had left, and nothing is lost or doubled."""
    sites.done("eu", "topics", "create", "orders")
    for site, writer in (("eu", "here"), ("us", "elsewhere")):
        sites.done(site, "projects", "set-class", "shop", "billing", "--writer", writer)
    sites.publish("eu", "1")
    written = sites.folder / "needed.yaml"
    planned = sites.cli("eu", "federation", "plan", str(sites.file), "--classes", "--write", str(written))
    assert planned.exit_code == 1
    assert "the link shop.us-eu would be a second writer at eu" in planned.output
    needed = yaml.safe_load(written.read_text())["namespaces"]
    assert needed == {"shop": {"clusters": ["eu", "us"], "links": [["eu", "us"]]}}
    sites.done("eu", "federation", "plan", str(written), "--classes")
    with Servers() as servers:
        assert len(sites.copiers(servers)["eu", "us"].copy(servers)) == 1
        assert "another site takes publishes of it" in refused(lambda: sites.publish("us", "twice"))
        shown = json.loads(sites.done("us", "topics", "describe", "orders", "--format", "json"))
        assert shown["name"] == ORDERS
        described = sites.done("eu", "projects", "describe", "shop", "--federation", str(sites.file))
        assert "billing, publishes: here" in described
        assert "1 of 1 topics, in delivery-records" in described
        assert "shop.eu-us.orders" in described
        sites.publish("eu", "2")  # and eu dies here, with this one not copied
        sites.done("us", "projects", "set-class", "shop", "billing", "--writer", "here")
        sites.publish("us", "3")
        copier = sites.copiers(servers)["eu", "us"]
        assert "Link shop.eu-us.orders would be a second writer" in refused(lambda: copier.copy(servers))
        # eu is back: it takes no publishes any more, and its tail is brought.
        sites.done("eu", "projects", "set-class", "shop", "billing", "--writer", "elsewhere")
        sites.done("us", "projects", "set-class", "shop", "billing", "--writer", "recovering")
        assert len(sites.copiers(servers)["eu", "us"].copy(servers)) == 1
        sites.done("us", "projects", "set-class", "shop", "billing", "--writer", "here")
        assert len(sites.copiers(servers)["us", "eu"].copy(servers)) == 1
        back = ClassDuties(links_of(load(sites.file)), servers)
        back.look()
        assert written_at(sites, servers) == {"eu": "elsewhere", "us": "here"}, "there is nothing to do"
        sites.publish("us", "4")  # and us is lost: eu is declared to write, and us comes back and believes it does
        sites.done("eu", "projects", "set-class", "shop", "billing", "--writer", "here")
        back.look()
        assert written_at(sites, servers) == {"eu": "recovering", "us": "elsewhere"}
        assert "another site takes publishes of it" in refused(lambda: sites.publish("us", "fenced"))
        sites.publish("eu", "5")
        back.look()
        assert written_at(sites, servers) == {"eu": "recovering", "us": "elsewhere"}, "what us had is not there yet"
        assert len(sites.copiers(servers)["us", "eu"].copy(servers)) == 1
        back.look()
        assert written_at(sites, servers) == {"eu": "recovering", "us": "elsewhere"}, "nor are its records"
        sites.copiers(servers, "delivery-records")["us", "eu"].copy(servers)
        back.look()
        assert written_at(sites, servers) == {"eu": "here", "us": "elsewhere"}
        assert len(sites.copiers(servers)["eu", "us"].copy(servers)) == 1
        back.reconcile_daily()
        done = reconciled_at(sites, servers)
        assert all(done.values())
        back.reconcile_daily()
        assert reconciled_at(sites, servers) == done, "a day has not passed"
        ClassDuties(links_of(load(sites.file)), servers, lambda: time.time() + 86_400).reconcile_daily()
        assert all(later > done[site] for site, later in reconciled_at(sites, servers).items())
    for site in ("eu", "us"):
        peeked = json.loads(sites.done(site, "topics", "peek", "orders", "--format", "json"))
        assert sorted(data(one) for one in peeked) == ["1", "2", "3", "4", "5"], site


def project_at(sites: Sites, servers: Servers) -> dict[str, Any]:
    request, clusters = admin.GetProjectRequest(project=P), load(sites.file).clusters
    return {site: servers.call(clusters[site], "Admin.GetProject", request) for site in ("eu", "us")}


def written_at(sites: Sites, servers: Servers) -> dict[str, str]:
    return {site: one.disaster_class.writer for site, one in project_at(sites, servers).items()}


def reconciled_at(sites: Sites, servers: Servers) -> dict[str, int]:
    return {site: one.last_reconciliation.time.ToNanoseconds() for site, one in project_at(sites, servers).items()}


def data(one: Any) -> str:
    import base64

    return base64.b64decode(one["message"]["data"]).decode()


def test_a_reconciliation_adds_up_through_a_seek_and_names_what_does_not(sites: Sites) -> None:
    """Delivered again by a seek is well; delivered again without one is named, with its hop and id; and what a flow has
    not copied. The outcome is kept, shown, and measured."""
    project = ("--project", "paid")
    for words in (
        ("projects", "set-class", "paid", "billing"),
        ("topics", "create", "bills", "--message-retention-duration", "1d"),
        ("subscriptions", "create", "pay", "--topic", "bills"),
        ("topics", "publish", "bills", "--message", "1"),
        ("subscriptions", "pull", "pay", "--auto-ack"),
        ("subscriptions", "seek", "pay", "--time", "2020-01-01T00:00:00Z"),
        ("topics", "publish", "bills", "--message", "2"),
    ):
        sites.done("eu", *words, *project)
    eventually(lambda: pulled(sites) == 0 or None)
    reconcile = ("eu", "projects", "reconcile", "paid", "--grace", "0s")
    eventually(lambda: "all adds up: 2 messages of 1" in sites.cli(*reconcile).output or None)  # records are behind
    peeked = json.loads(sites.done("eu", "topics", "peek", "bills", "--format", "json", *project))
    # A record as of a forwarder that has delivered the first message once more, long after it was acknowledged.
    record = {"kind": "delivered", "at": int((time.time() + 60) * 1e6), "source": int(peeked[0]["source"]),
              "subscription": "projects/paid/subscriptions/pay", "generation": 1, "runs": [[0, 1]]}  # fmt: skip
    forged = json.dumps(
        {"topic": "projects/paid/topics/bills", "writer": "other/1", "number": 1, "lost": 0, "records": [record]}
    )
    attributes = ("--attribute", "topic=projects/paid/topics/bills")
    sites.done("eu", "topics", "publish", "delivery-records", "--message", forged, *attributes, *project)
    found = sites.cli(*reconcile)
    assert found.exit_code == 1
    assert "delivered after acknowledgement" in found.output
    assert peeked[0]["message"]["messageId"] in found.output
    assert "1 messages amiss" in sites.done("eu", "projects", "describe", "paid")
    expected = {'findings{project="paid"} 1', 'overdue{project="paid"} 0', 'overdue{project="shop"} 0'}
    eventually(lambda: expected <= set(metrics(sites).replace("syncpoint_reconciliation_", "").splitlines()) or None)
    file = sites.folder / "paid.yaml"
    file.write_text(sites.file.read_text().replace("shop:", "paid:"))
    late = sites.cli(*reconcile, "--federation", str(file))
    assert re.search(r"copy +not copied +" + peeked[0]["message"]["messageId"], late.output), late.output


def test_a_reconciliation_after_a_kill_calls_nothing_lost_that_is_gone(tmp_path: Path) -> None:
    """The log of the killed process goes once all of it is acknowledged."""
    with ServerProcess(tmp_path / "data", durability="sync") as server:
        shop = ("--endpoint", server.endpoint, "--project", "shop")

        def done(*words: str) -> str:
            found = CliRunner().invoke(cli, [*words, *shop])
            assert found.exit_code == 0, found.output
            return found.output

        done("projects", "set-class", "shop", "billing")
        done("topics", "create", "orders")
        done("subscriptions", "create", "pay", "--topic", "orders")
        for _ in range(2):
            done("topics", "publish", "orders", "--message", "x")
            assert done("subscriptions", "pull", "pay", "--auto-ack", "--format", "json") != "[]\n"
            time.sleep(0.5)
            server.kill9()
            server.start()
        output = done("projects", "reconcile", "shop", "--grace", "0s")
        assert "all adds up: 2 messages of 1 topic" in output


def pulled(sites: Sites) -> int:
    output = sites.done("eu", "subscriptions", "pull", "pay", "--auto-ack", "--project", "paid", "--format", "json")
    return len(json.loads(output))


def metrics(sites: Sites) -> str:
    import urllib.request

    with urllib.request.urlopen(f"http://{sites.servers['eu'].endpoint}/metrics", timeout=20) as answer:
        return str(answer.read().decode())


def test_nobody_reads_or_sets_the_class_of_another_tenants_project(house: House) -> None:
    """Every call, over gRPC and REST: ann owns acme with project a, bob other with project b."""
    declared = admin.DisasterClass(name="geo")
    denied = grpc.StatusCode.PERMISSION_DENIED
    for path, request in (
        (ADMIN.GetProject, admin.GetProjectRequest(project="projects/b")),
        (ADMIN.GetProject, admin.GetProjectRequest(project="projects/b", tenant="other")),
        (ADMIN.ListClassedProjects, admin.ListClassedProjectsRequest()),
        (ADMIN.ReportReconciliation, admin.ReportReconciliationRequest(project="projects/b")),
        *(
            (ADMIN.SetDisasterClass, admin.SetDisasterClassRequest(resource=one, tenant=of, disaster_class=declared))
            for one, of in (
                ("projects/b", ""), ("projects/b", "other"), ("projects/a", ""), ("tenants/acme", ""), ("server", ""),
            )
        ),
    ):  # fmt: skip
        assert house.refusal(path, request, "ann")[0] == denied, request
    drilled = admin.Drill(project="projects/b", drill="mine", state=admin.Drill.RUNNING)
    drilled.deadline.GetCurrentTime()
    house.call(ADMIN.RecordDrill, admin.RecordDrillRequest(drill=drilled), "bob")
    for path, request in (
        (ADMIN.RecordDrill, admin.RecordDrillRequest(drill=drilled)),
        (ADMIN.GetDrill, admin.GetDrillRequest(project="projects/b", drill="mine")),
        (ADMIN.GetDrill, admin.GetDrillRequest(project="projects/b", drill="none")),
        (ADMIN.ListDrills, admin.ListDrillsRequest(project="projects/b")),
        (ADMIN.AbortDrill, admin.AbortDrillRequest(project="projects/b", drill="mine")),
    ):
        assert house.refusal(path, request, "ann")[0] == denied, request
    assert house.rest("/admin/v1/projects/b/drills", "ann")[0] == 403
    assert house.rest("/admin/v1/projects/b/drills/mine", "bob")[1]["drill"] == "mine"
    foreign = admin.GetProjectRequest(project="projects/b", tenant="acme")
    assert house.refusal(ADMIN.GetProject, foreign, "ann")[0] == grpc.StatusCode.NOT_FOUND
    assert house.rest("/admin/v1/projects/b:disasterRecovery", "ann")[0] == 403
    body = {"disasterClass": {"name": "geo"}, "tenant": "acme"}
    assert house.rest("/admin/v1/projects/b:disasterClass", "ann", "POST", body)[0] == 404
    assert house.rest("/admin/v1/projects/a:disasterClass", "ann", "POST", body)[0] == 200
    assert house.rest("/admin/v1/projects/a:disasterRecovery", "ann")[1]["disasterClass"]["name"] == "geo"
    for resource in ("server", "tenants/other"):
        body = {"disasterClass": {"name": "dual" if resource == "server" else "geo"}}
        assert house.rest(f"/admin/v1/{resource}:disasterClass", "root", "POST", body)[0] == 200
    own = house.call(ADMIN.GetProject, admin.GetProjectRequest(project="projects/b"), "bob").disaster_class
    assert (own.name, own.source) == ("geo", "tenant")
    listed = house.call(ADMIN.ListClassedProjects, admin.ListClassedProjectsRequest()).projects
    assert [one.project for one in listed] == ["projects/a", "projects/b"]
