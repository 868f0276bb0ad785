"""What the owners of a tenant may do, and that it is nothing with another tenant or with the server."""

import pytest

from syncpoint.base.model.errors import InvalidArgument, PermissionDenied
from syncpoint.catalog.access.roles import TENANT_OWNER
from syncpoint.catalog.access.tenant_book import Tenant
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, iam

pytestmark = [pytest.mark.shows("tenants"), pytest.mark.shows("attacks")]

ADMIN = methods.ADMIN
OWN = {
    ADMIN.GetTenant: lambda name: admin.GetTenantRequest(name=name),
    ADMIN.UpdateProjectQuota: lambda name: admin.UpdateProjectQuotaRequest(tenant=name, project="projects/a"),
    ADMIN.GetTenantMetrics: lambda name: admin.GetTenantMetricsRequest(name=name),
    ADMIN.GetEffectivePolicy: lambda name: admin.GetEffectivePolicyRequest(tenant=name, resource="projects/a"),
}
"""What owners may call, by the tenant that it is about."""
OPERATORS = {
    ADMIN.CreateTenant: lambda name: admin.CreateTenantRequest(tenant={"name": name}),
    ADMIN.ListTenants: lambda name: admin.ListTenantsRequest(),
    ADMIN.UpdateTenant: lambda name: admin.UpdateTenantRequest(tenant={"name": name}),
    ADMIN.DeleteTenant: lambda name: admin.DeleteTenantRequest(name=name),
}


@pytest.fixture
def tenants(harness):
    """Two of them: ann owns one with project a, bob the other with project b; both projects are theirs, too."""
    for name, owner, project in (("acme", "ann", "a"), ("other", "bob", "b")):
        record = Tenant(name, owners=(f"user:{owner}@example.com",), projects=(f"projects/{project}",))
        harness.apply(CatalogChange.put(record.setting()))
        harness.grant(f"projects/{project}", "roles/owner", f"user:{owner}@example.com")
    return harness


def test_every_method_of_tenants_is_tried_here() -> None:
    of_tenants = {path for path in ADMIN if path.descriptor.input_type.file.name.endswith("tenants.proto")}
    assert {*OWN, *OPERATORS} == of_tenants


@pytest.mark.parametrize("path", OWN)
def test_owners_reach_their_own_tenant_and_no_other(tenants, path) -> None:
    assert tenants.call(path, OWN[path]("acme"), tenants.token()) is None
    for name in ("other", "nowhere", "acme-2"):
        error = tenants.call(path, OWN[path](name), tenants.token())
        assert isinstance(error, PermissionDenied)
    assert tenants.call(path, OWN[path]("acme"), tenants.token(email="bob@example.com")) is not None
    for name in ("", "acme/../other", "projects/a", "server"):
        assert isinstance(tenants.call(path, OWN[path](name), tenants.token()), InvalidArgument | PermissionDenied)


@pytest.mark.parametrize("path", OPERATORS)
def test_what_bounds_a_tenant_is_the_operators(tenants, path) -> None:
    for name in ("acme", "other", "new"):
        assert isinstance(tenants.call(path, OPERATORS[path](name), tenants.token()), PermissionDenied)
    tenants.grant("server", "roles/syncpoint.operator", "user:carol@example.com")
    assert tenants.call(path, OPERATORS[path]("acme"), tenants.token(email="carol@example.com")) is None


def test_observers_read_tenants_and_change_none(tenants) -> None:
    tenants.grant("server", "roles/syncpoint.observer", "user:carol@example.com")
    carol = tenants.token(email="carol@example.com")
    for path, request in {**OWN, **OPERATORS}.items():
        error = tenants.call(path, request("acme"), carol)
        reads = path != ADMIN.UpdateProjectQuota if path in OWN else path == ADMIN.ListTenants
        assert (error is None) is reads, path


def test_who_is_no_owner_any_more_has_lost_it(tenants) -> None:
    request = OWN[ADMIN.GetTenant]("acme")
    assert tenants.call(ADMIN.GetTenant, request, tenants.token()) is None
    tenants.apply(CatalogChange.put(Tenant("acme", owners=("user:dan@example.com",)).setting()))
    assert isinstance(tenants.call(ADMIN.GetTenant, request, tenants.token()), PermissionDenied)
    assert tenants.call(ADMIN.GetTenant, request, tenants.token(email="dan@example.com")) is None
    tenants.apply(CatalogChange.delete(Tenant("acme").setting()))
    assert isinstance(tenants.call(ADMIN.GetTenant, request, tenants.token(email="dan@example.com")), PermissionDenied)


def test_a_tenant_has_no_policy_to_set(tenants) -> None:
    for path, request in (
        (methods.IAM.SetIamPolicy, iam.SetIamPolicyRequest(resource="tenants/acme")),
        (methods.IAM.GetIamPolicy, iam.GetIamPolicyRequest(resource="tenants/acme")),
    ):
        for who in ("ann", "root"):
            error = tenants.call(path, request, tenants.token(email=f"{who}@example.com"))
            assert isinstance(error, InvalidArgument)


def test_what_a_project_grants_holds_on_no_tenant(tenants) -> None:
    """Also where a project has the name of a tenant."""
    tenants.grant("projects/acme", "roles/owner", "user:eve@example.com")
    for path, request in {**OWN, **OPERATORS}.items():
        assert tenants.call(path, request("acme"), tenants.token(email="eve@example.com")) is not None, path


def test_owning_a_tenant_is_no_right_in_its_projects(tenants) -> None:
    record = Tenant("acme", owners=("user:dan@example.com",), projects=("projects/a",))
    tenants.apply(CatalogChange.put(record.setting()))
    held = {
        permission
        for permission in ("pubsub.topics.get", "pubsub.topics.publish", "resourcemanager.projects.get")
        if tenants.policies.verdict(frozenset({"user:dan@example.com"}), permission, "projects/a", 0).allowed
    }
    assert held == set()
    assert all(permission.startswith("syncpoint.tenants.") for permission in TENANT_OWNER)
