"""Tenants of one server that asks who calls: operators make them, owners see their own and no other's.

One server for all of it; ann owns the tenant acme with projects a and a2, bob the tenant other with project b.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from syncpoint.programs.cli.main import cli
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, iam, pubsub
from tests.kit.issuer import TokenIssuer

pytestmark = pytest.mark.shows("tenants")

ADMIN = methods.ADMIN
OWNERS = {"acme": "ann", "other": "bob"}
PROJECTS = {"acme": ["projects/a", "projects/a2"], "other": ["projects/b"]}


class House:
    """The server, and callers by their names."""

    def __init__(self, folder: Path) -> None:
        issuer = TokenIssuer(folder, audit={"file": "audit.log"})
        self.token, self.folder = issuer.token, folder
        self.server = ServerProcess(folder / "data", durability="memory", args=["--auth", str(issuer.auth)])

    def start(self) -> None:
        self.server.start()
        self.channel = grpc.insecure_channel(self.server.endpoint)

    def close(self) -> None:
        self.channel.close()
        self.server.close()

    def call(self, path: methods.Method, request: Any, who: str = "root") -> Any:
        metadata = [("authorization", f"Bearer {self.token(who)}")]
        found = self.channel.unary_unary(path)(request.SerializeToString(), metadata=metadata, timeout=20)
        return path.response.FromString(found)

    def refusal(self, path: methods.Method, request: Any, who: str) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.RpcError) as refused:
            self.call(path, request, who)
        return refused.value.code(), refused.value.details()

    def rest(self, path: str, who: str, verb: str = "GET", body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        fields = {"authorization": f"Bearer {self.token(who)}", "content-type": "application/json"}
        request = urllib.request.Request(f"http://{self.server.endpoint}{path}", data, fields, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def cli(self, who: str, *words: str) -> Any:
        token = self.folder / f"{who}.token"
        token.write_text(self.token(who))
        line = [*words, "--endpoint", self.server.endpoint, "--credentials", str(token), "--format", "json"]
        return CliRunner().invoke(cli, line)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("tenants"))
    try:
        made.start()
        for name, owner in OWNERS.items():
            tenant = admin.Tenant(name=name, owners=[f"user:{owner}@example.com"], projects=PROJECTS[name])
            made.call(ADMIN.CreateTenant, admin.CreateTenantRequest(tenant=tenant))
            for project in PROJECTS[name]:
                binding = iam.Binding(role="roles/owner", members=[f"user:{owner}@example.com"])
                policy = iam.SetIamPolicyRequest(resource=project, policy=iam.Policy(bindings=[binding]))
                made.call(methods.IAM.SetIamPolicy, policy)
            made.call(methods.PUBLISHER.CreateTopic, pubsub.Topic(name=f"{PROJECTS[name][0]}/topics/kept"), owner)
        yield made
    finally:
        made.close()


def test_a_tenant_is_read_by_its_owner_and_by_nobody_elses(house: House) -> None:
    """Over gRPC and REST, and in the same words whether the other one exists or not."""
    own = house.call(ADMIN.GetTenant, admin.GetTenantRequest(name="acme"), "ann")
    assert own.projects[:] == PROJECTS["acme"]
    assert house.rest("/admin/v1/tenants/acme", "ann") == (
        200,
        json.loads(house.cli("root", "tenants", "describe", "acme").stdout),
    )
    refusals = {house.refusal(ADMIN.GetTenant, admin.GetTenantRequest(name=name), "ann") for name in ("other", "none")}
    assert [code for code, _ in refusals] == [grpc.StatusCode.PERMISSION_DENIED]
    for path in ("tenants/other", "tenants/none", "tenants", "projects/b:effectivePolicy?tenant=other"):
        assert house.rest(f"/admin/v1/{path}", "ann")[0] == 403, path
    code, text = house.refusal(ADMIN.GetEffectivePolicy, effective("projects/b", "acme"), "ann")
    assert (code, "not a project of tenant acme" in text) == (grpc.StatusCode.NOT_FOUND, True)
    found = house.call(ADMIN.GetEffectivePolicy, effective("projects/a2", "acme"), "ann")
    assert found.tenant == "acme"


def effective(resource: str, tenant: str = "") -> admin.GetEffectivePolicyRequest:
    return admin.GetEffectivePolicyRequest(resource=resource, tenant=tenant)


def test_no_owner_changes_what_bounds_the_tenant(house: House) -> None:
    before = house.call(ADMIN.ListTenants, admin.ListTenantsRequest())
    for name in OWNERS:
        grown = {"name": name, "owners": ["user:ann@example.com"], "projects": ["projects/a", "projects/b"]}
        mask = {"paths": ["owners", "projects"]}
        for path, request in (
            (ADMIN.UpdateTenant, admin.UpdateTenantRequest(tenant=grown, update_mask=mask)),
            (ADMIN.DeleteTenant, admin.DeleteTenantRequest(name=name)),
            (ADMIN.CreateTenant, admin.CreateTenantRequest(tenant={**grown, "name": "new"})),
            (ADMIN.ListTenants, admin.ListTenantsRequest()),
        ):
            assert house.refusal(path, request, "ann")[0] is grpc.StatusCode.PERMISSION_DENIED, path
    body = {"allowedRegions": []}
    assert house.rest("/admin/v1/tenants/acme?updateMask=allowedRegions", "ann", "PATCH", body)[0] == 403
    assert house.call(ADMIN.ListTenants, admin.ListTenantsRequest()) == before


def test_the_command_line_changes_lists_and_deletes(house: House) -> None:
    def done(*words: str) -> Any:
        result = house.cli("root", "tenants", *words)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout) if result.stdout else None

    done("create", "small", "--owner", "user:eve@example.com", "--owned-project", "e1,e2", "--display-name", "Small")
    done(
        "update",
        "small",
        "--add-project",
        "e3",
        "--remove-project",
        "projects/e1",
        "--add-owner",
        "group:g@example.com",
    )
    made = done("describe", "small")
    assert (made["projects"], made["owners"]) == (
        ["projects/e2", "projects/e3"], ["user:eve@example.com", "group:g@example.com"],
    )  # fmt: skip
    assert [one["name"] for one in done("list")] == ["acme", "other", "small"]
    assert done("effective", "--project", "e2")["tenant"] == "small"
    assert house.cli("ann", "tenants", "describe", "small").exit_code == 1
    refused = house.cli("root", "tenants", "update", "small", "--add-project", "a")
    assert (refused.exit_code, "belongs to tenant acme" in refused.stderr) == (1, True)
    assert house.cli("root", "tenants", "delete", "small").exit_code == 1, "it has projects"
    done("update", "small", "--remove-project", "e2,e3")
    done("delete", "small")
    assert house.cli("root", "tenants", "describe", "small").exit_code == 3


def test_a_quota_is_shared_by_the_projects_of_a_tenant_and_divided_by_its_owner(house: House) -> None:
    """Nobody raises his own, and another tenant's projects have what they had."""

    def divided(who: str, project: str, *bounds: str, tenant: str = "acme") -> Any:
        return house.cli(who, "tenants", "set-quota", tenant, "--project", project, "--quota", ",".join(bounds))

    assert house.cli("root", "tenants", "update", "acme", "--quota", "topics=4,requests_per_s=500").exit_code == 0
    assert json.loads(divided("ann", "a2", "topics=1").stdout)["projectQuotas"] == {"projects/a2": {"topics": "1"}}
    for project, words in (("a", "must not be more than 4"), ("b", "not a project of tenant acme")):
        refused = divided("ann", project, "topics=5")
        assert (refused.exit_code in (1, 3), words in refused.stderr) == (True, True), refused.stderr
    for who, tenant, project in (("ann", "other", "b"), ("bob", "acme", "a"), ("bob", "acme", "a2")):
        assert "PERMISSION_DENIED" in divided(who, project, "topics=1", tenant=tenant).stderr
        body, path = {"topics": "2"}, f"/admin/v1/tenants/{tenant}/projects/{project}:quota"
        assert house.rest(path, who, "PATCH", body)[0] == 403
    wider = {"quota": {"topics": "9"}}
    assert house.rest("/admin/v1/tenants/acme?updateMask=quota", "ann", "PATCH", wider)[0] == 403
    shown = house.cli("ann", "tenants", "effective", "--project", "a2", "--tenant", "acme")
    found = {one["name"]: (one.get("value"), one["source"]) for one in json.loads(shown.stdout)["settings"]}
    assert (found["topics"], found["requests_per_s"], found["cpu"]) == (
        ("1", "project"), ("500", "tenant"), ("2", "installation"),
    )  # fmt: skip

    def create(project: str, number: int, who: str = "ann") -> tuple[int, Any]:
        return house.rest(f"/v1/projects/{project}/topics/t-{number}", who, "PUT", {})

    assert [create("a2", number)[0] for number in range(2)] == [200, 429]
    answers = [create("a", number) for number in range(3)]
    assert [status for status, _ in answers] == [200, 200, 429]
    assert "consumer 'tenants/acme'" in answers[-1][1]["error"]["message"]
    assert [create("b", number, "bob")[0] for number in range(4)] == [200] * 4


def test_a_tenant_reads_its_own_metrics_and_nothing_else(house: House) -> None:
    """By its page, by the call, over REST and on the command line."""
    for project, who in (("a", "ann"), ("b", "bob")):
        message = {"messages": [{"data": "AAAA"}]}
        assert house.rest(f"/v1/projects/{project}/topics/kept:publish", who, "POST", message)[0] == 200

    def page(path: str, who: str) -> str:
        fields = {"authorization": f"Bearer {house.token(who)}"} if who else {}
        request = urllib.request.Request(f"http://{house.server.endpoint}{path}", headers=fields)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return str(answer.read().decode())

    def projects(text: str) -> set[str]:
        return set(re.findall(r'project(?:_id)?="([^"]*)"', text))

    own = eventually(lambda: (text := page("/tenants/acme/metrics", "ann")) and projects(text) and text)
    samples = [line for line in own.splitlines() if not line.startswith("#")]
    assert all("project" in line for line in samples)
    assert 'syncpoint_topic_messages_total{project="a",topic="kept"} 1' in samples
    for text in (
        house.call(ADMIN.GetTenantMetrics, admin.GetTenantMetricsRequest(name="acme"), "ann").text,
        house.rest("/admin/v1/tenants/acme/metrics", "ann")[1]["text"],
        json.loads(house.cli("ann", "tenants", "metrics", "acme").stdout)["text"],
        page("/tenants/acme/metrics", "root"),
    ):
        assert projects(text) == projects(own) == {"a"}
    assert projects(page("/tenants/other/metrics", "bob")) == {"b"}
    for who, path, status in (
        ("ann", "/tenants/other/metrics", 403),
        ("ann", "/tenants/none/metrics", 403),
        ("ann", "/tenants/a%2Fb/metrics", 400),
        ("ann", "/tenants/..%2Facme/metrics", 400),
        ("ann", "/tenants/acme%00/metrics", 400),
        ("ann", "/metrics", 403),
        ("", "/tenants/acme/metrics", 401),
        ("root", "/tenants/none/metrics", 404),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            page(path, who)
        with refused.value as error:
            assert error.code == status, path
    code, _ = house.refusal(ADMIN.GetTenantMetrics, admin.GetTenantMetricsRequest(name="acme"), "bob")
    assert code is grpc.StatusCode.PERMISSION_DENIED


def test_tenants_and_who_changed_them_survive_a_restart(house: House) -> None:
    before = house.call(ADMIN.ListTenants, admin.ListTenantsRequest())
    house.refusal(ADMIN.GetTenant, admin.GetTenantRequest(name="other"), "ann")
    house.channel.close()
    house.server.terminate()
    house.start()
    assert house.call(ADMIN.ListTenants, admin.ListTenantsRequest()) == before
    lines = [json.loads(line) for line in (house.folder / "audit.log").read_text().splitlines()]
    noted = {(one["who"], one["permission"], one["resource"], one["allowed"]) for one in lines if "permission" in one}
    assert ("user:root@example.com", "syncpoint.tenants.create", "server", True) in noted
    assert ("user:ann@example.com", "syncpoint.tenants.get", "tenants/other", False) in noted
