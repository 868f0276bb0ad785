"""Tenants over a control plane: what is stored, what is refused whole, and which regions topics have after a change."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import (
    Aborted,
    AlreadyExists,
    Conflict,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from syncpoint.catalog.access.policy import Policies
from syncpoint.catalog.access.quotas import Quota
from syncpoint.catalog.access.tenant_book import PREFIX, Tenant, TenantBook, outdated, own_regions, read_tenant
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.front.api.admin_handlers import CatalogService
from syncpoint.front.api.tenant_admin import TenantAdmin
from syncpoint.wire.protobuf.messages import admin, pubsub

pytestmark = pytest.mark.shows("tenants")

HERE = ("de", "fr", "us")
A, B = "projects/a", "projects/b"


async def _metrics(name):
    return f"# of {name}\n".encode()


class Desk:
    """Tenants and topics over one catalog of a cluster with three regions."""

    def __init__(self, plane):
        self.plane, self.catalog = plane, plane.catalog
        self.tenants = TenantAdmin(
            plane, Policies(plane.catalog), lambda: HERE, _metrics, lambda project: Quota(requests_per_s=50)
        )
        self.topics = CatalogService(plane, regions=lambda: HERE)

    def create(self, name="acme", **fields):
        return asyncio.run(self.tenants.create(admin.CreateTenantRequest(tenant=admin.Tenant(name=name, **fields))))

    def update(self, name="acme", **fields):
        request = admin.UpdateTenantRequest(tenant=admin.Tenant(name=name, **fields))
        request.update_mask.paths[:] = [path for path in fields if path != "etag"]
        return asyncio.run(self.tenants.update(request))

    def delete(self, name="acme", etag=""):
        asyncio.run(self.tenants.delete(admin.DeleteTenantRequest(name=name, etag=etag)))

    def topic(self, name, *regions):
        request = pubsub.Topic(name=name)
        request.message_storage_policy.allowed_persistence_regions.extend(regions)
        return asyncio.run(self.topics.create_topic(request))

    def move(self, name, *regions):
        request = pubsub.UpdateTopicRequest(topic={"name": name})
        request.topic.message_storage_policy.allowed_persistence_regions.extend(regions)
        request.update_mask.paths.append("message_storage_policy")
        return asyncio.run(self.topics.update_topic(request))

    def regions(self, name):
        return self.catalog.topic(name).regions

    def effective(self, resource, tenant=""):
        found = asyncio.run(self.tenants.effective(admin.GetEffectivePolicyRequest(resource=resource, tenant=tenant)))
        return {one.name: (one.value, one.source) for one in found.settings}

    def divide(self, project, name="acme", etag="", **quota):
        request = admin.UpdateProjectQuotaRequest(tenant=name, project=project, quota=quota, etag=etag)
        return asyncio.run(self.tenants.update_project_quota(request))


@pytest.fixture
def desk(plane):
    return Desk(plane)


def test_a_tenant_is_made_read_changed_and_deleted(desk) -> None:
    made = desk.create(display_name="Acme", owners=["user:Ann@Example.com"], projects=[A, A])
    assert (made.owners[:], made.projects[:]) == (["user:ann@example.com"], [A])
    assert asyncio.run(desk.tenants.get(admin.GetTenantRequest(name="acme"))) == made
    with pytest.raises(AlreadyExists):
        desk.create()
    changed = desk.update(display_name="ACME", etag=made.etag)
    assert (changed.display_name, changed.owners[:]) == ("ACME", made.owners[:])
    assert changed.etag != made.etag
    with pytest.raises(Aborted):
        desk.update(display_name="Other", etag=made.etag)
    assert desk.update(display_name="ACME", etag=made.etag) == changed, "nothing to change"
    with pytest.raises(FailedPrecondition, match="projects/a"):
        desk.delete()
    changed = desk.update(projects=[])
    with pytest.raises(Aborted):
        desk.delete(etag=made.etag)
    desk.delete(etag=changed.etag)
    assert desk.catalog.settings_named(PREFIX) == []
    with pytest.raises(NotFound):
        desk.update(display_name="x")
    assert desk.create(display_name="ACME").etag not in (made.etag, changed.etag)


def test_tenants_are_listed_in_pages(desk) -> None:
    for name in ("one", "two", "six"):
        desk.create(name)
    first = asyncio.run(desk.tenants.list(admin.ListTenantsRequest(page_size=2)))
    token = first.next_page_token
    rest = asyncio.run(desk.tenants.list(admin.ListTenantsRequest(page_size=2, page_token=token)))
    assert [one.name for one in (*first.tenants, *rest.tenants)] == ["one", "six", "two"]
    assert not rest.next_page_token


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "A"), ("name", "a_b"), ("name", "-ab"), ("name", "ab-"), ("name", "a" * 64), ("name", ""),
        ("owners", ["allUsers"]), ("owners", ["domain:example.com"]), ("owners", ["ann"]), ("owners", [""]),
        ("projects", ["a"]), ("projects", ["projects/a/topics/one"]), ("allowed_regions", [""]),
        ("display_name", "x" * 101), ("owners", [f"user:u{one}@example.com" for one in range(101)]),
        ("projects", [f"projects/p{one}" for one in range(1001)]),
    ],
)  # fmt: skip
def test_what_is_not_legal_is_refused_and_named(desk, field, value) -> None:
    with pytest.raises(InvalidArgument) as refused:
        desk.create(**{"name": "acme", field: value})
    assert field in refused.value.message or field == "projects"
    assert desk.catalog.settings_named(PREFIX) == []


def test_as_many_tenants_as_there_may_be(desk, monkeypatch) -> None:
    monkeypatch.setattr("syncpoint.front.api.tenant_admin.TENANTS_MAX", 1)
    desk.create("one")
    with pytest.raises(ResourceExhausted, match="already 1 tenants"):
        desk.create("two")


def test_a_project_has_one_tenant(desk) -> None:
    desk.create("one", projects=[A])
    with pytest.raises(FailedPrecondition, match="belongs to tenant one"):
        desk.create("two", projects=[B, A])
    desk.create("two", projects=[B])
    with pytest.raises(FailedPrecondition, match="belongs to tenant one"):
        desk.update("two", projects=[B, A])
    desk.update("one", projects=[])
    assert desk.update("two", projects=[B, A]).projects[:] == [B, A]


def test_topics_lie_within_the_ceiling(desk) -> None:
    desk.create(projects=[A], allowed_regions=["de", "fr"])
    assert not desk.topic(f"{A}/topics/all").message_storage_policy.allowed_persistence_regions
    desk.topic(f"{A}/topics/one", "fr")
    assert (desk.regions(f"{A}/topics/all"), desk.regions(f"{A}/topics/one")) == (("de", "fr"), ("fr",))
    with pytest.raises(FailedPrecondition, match=r"allowed_persistence_regions: us is outside .* acme: de, fr"):
        desk.topic(f"{A}/topics/out", "fr", "us")
    assert desk.catalog.topic(f"{A}/topics/out") is None
    with pytest.raises(FailedPrecondition, match="us is outside"):
        desk.move(f"{A}/topics/one", "us")
    desk.move(f"{A}/topics/one")
    assert desk.regions(f"{A}/topics/one") == ("de", "fr")
    desk.topic(f"{B}/topics/free", "us")
    assert desk.regions(f"{B}/topics/free") == ("us",)


def test_what_is_in_force_is_shown_with_where_it_comes_from(desk) -> None:
    desk.create(projects=[A], allowed_regions=["de", "fr"])
    desk.topic(f"{A}/topics/one", "fr")
    assert desk.effective(A, "acme")["allowed_regions"] == ("de, fr", "tenant")
    assert desk.effective(f"{A}/topics/one")["allowed_regions"] == ("fr", "topic")
    assert desk.effective(B)["allowed_regions"] == ("", "installation")
    for resource, tenant in ((B, "acme"), (A, "other"), (f"{A}/topics/two", "acme")):
        with pytest.raises(NotFound):
            desk.effective(resource, tenant)


def test_a_ceiling_that_topics_are_outside_of_is_refused_with_their_names(desk) -> None:
    for number in range(7):
        desk.topic(f"{A}/topics/t{number}x", "us")
    desk.topic(f"{A}/topics/all")
    with pytest.raises(FailedPrecondition, match=r"allowed_regions: .*topics/t0x.* and 2 more"):
        desk.create(projects=[A], allowed_regions=["de"])
    desk.create(allowed_regions=["de"])
    with pytest.raises(FailedPrecondition, match="topics/t0x"):
        desk.update(projects=[A])
    desk.update(allowed_regions=["de", "us"])
    desk.update(projects=[A])
    assert desk.regions(f"{A}/topics/all") == ("de", "us")
    with pytest.raises(FailedPrecondition, match="topics/t0x"):
        desk.update(allowed_regions=["de"])
    assert desk.regions(f"{A}/topics/all") == ("de", "us")


def test_topics_without_a_policy_follow_the_tenant(desk) -> None:
    names = [f"{A}/topics/t{number:03}" for number in range(50)]
    for name in names:
        desk.topic(name)
    desk.topic(f"{A}/topics/own", "de")
    desk.create(projects=[A], allowed_regions=["de"])
    assert {desk.regions(name) for name in names} == {("de",)}
    desk.update(allowed_regions=["de", "fr"])
    assert {desk.regions(name) for name in names} == {("de", "fr")}
    desk.update(projects=[])
    assert {desk.regions(name) for name in names} == {()}
    assert desk.regions(f"{A}/topics/own") == ("de",)


def test_a_ceiling_has_a_region_that_is_here(desk, plane) -> None:
    with pytest.raises(FailedPrecondition, match="no server is in mars; use a region of de, fr, us"):
        desk.create(allowed_regions=["mars"])
    node = TenantAdmin(plane, Policies(plane.catalog), tuple, _metrics)
    with pytest.raises(FailedPrecondition, match="this server has no regions"):
        asyncio.run(node.create(admin.CreateTenantRequest(tenant={"name": "acme", "allowed_regions": ["de"]})))
    desk.create(allowed_regions=["de", "mars"])
    assert desk.update(allowed_regions=["de", "mars"], display_name="x").display_name == "x"


def test_a_change_that_fails_half_way_is_carried_on_by_the_next_one(desk) -> None:
    commits = desk.plane.commits
    desk.topic(f"{A}/topics/one")
    whole = commits.commit

    async def first_only(changes):
        done = await whole(changes)
        commits.commit = failing
        return done

    async def failing(changes):
        raise Unavailable("the disks do not answer")

    commits.commit = first_only
    with pytest.raises(Unavailable):
        desk.create(projects=[A], allowed_regions=["de"])
    assert desk.regions(f"{A}/topics/one") == ()
    commits.commit = whole
    desk.update(projects=[A])
    assert desk.regions(f"{A}/topics/one") == ("de",)


def test_others_who_change_the_catalog_hold_nothing_up(desk) -> None:
    """Of topics that change in the meantime nothing is lost."""
    commits = desk.plane.commits
    for number in range(30):
        desk.topic(f"{A}/topics/t{number:02}")
    whole, conflicts = commits.commit, [True, True, False]

    async def contested(changes):
        if len(changes) > 1 and conflicts and conflicts.pop():
            known = desk.catalog.topic(f"{A}/topics/t29")
            request = pubsub.UpdateTopicRequest(topic={"name": known.name, "labels": {"seen": str(len(conflicts))}})
            request.update_mask.paths.append("labels")
            commits.commit = whole
            await desk.topics.update_topic(request)
            commits.commit = contested
            raise Conflict("somebody else was first")
        return await whole(changes)

    commits.commit = contested
    desk.create(projects=[A], allowed_regions=["de"])
    commits.commit = whole
    assert {desk.regions(f"{A}/topics/t{number:02}") for number in range(30)} == {("de",)}
    shown = asyncio.run(desk.topics.get_topic(pubsub.GetTopicRequest(topic=f"{A}/topics/t29")))
    assert shown.labels["seen"]


def test_owners_divide_the_quota_of_their_tenant_and_never_raise_it(desk) -> None:
    made = desk.create(projects=[A, B], quota={"requests_per_s": 10, "topics": 5}, weight=3)
    divided = desk.divide(A, requests_per_s=4, cpu=0.5, etag=made.etag)
    assert (divided.quota, divided.weight, divided.projects) == (made.quota, made.weight, made.projects)
    assert dict(divided.project_quotas) == {A: admin.TenantQuota(requests_per_s=4, cpu=0.5)}
    for kind, bound in (("requests_per_s", 10.5), ("topics", 6), ("cpu", -1), ("cpu", float("nan")), ("streams", -1)):
        with pytest.raises(InvalidArgument, match=f"quota.{kind}"):
            desk.divide(B, **{kind: bound})
    with pytest.raises(Aborted):
        desk.divide(B, requests_per_s=1, etag=made.etag)
    with pytest.raises(NotFound, match="not a project of tenant acme"):
        desk.divide("projects/c", requests_per_s=1)
    assert desk.divide(A, etag=divided.etag).project_quotas == {}, "no bound of its own"


def test_each_kind_in_force_is_the_smallest_of_all_levels(desk) -> None:
    desk.create(projects=[A], quota={"requests_per_s": 60, "topics": 5}, weight=3)
    desk.divide(A, topics=2, requests_per_s=50)
    found = desk.effective(A)
    assert (found["requests_per_s"], found["topics"]) == (("50", "project"), ("2", "project"))
    assert (found["streams"], found["cpu"]) == (("", "installation"), ("2", "installation"))
    assert (found["weight"], desk.effective(B)["weight"]) == (("3", "tenant"), ("1", "installation"))


def test_single_kinds_of_a_quota_change_alone(desk) -> None:
    desk.create(projects=[A], quota={"requests_per_s": 60, "topics": 5})
    request = admin.UpdateTenantRequest(tenant={"name": "acme", "quota": {"topics": 7}})
    request.update_mask.paths[:] = ["quota.topics"]
    changed = asyncio.run(desk.tenants.update(request))
    assert changed.quota == admin.TenantQuota(requests_per_s=60, topics=7)
    assert not desk.update(quota=admin.TenantQuota()).HasField("quota")
    request.update_mask.paths[:] = ["project_quotas"]
    with pytest.raises(InvalidArgument, match="not mutable"):
        asyncio.run(desk.tenants.update(request))
    with pytest.raises(InvalidArgument, match="weight"):
        desk.update(weight=101)


def test_a_project_that_leaves_a_tenant_takes_no_bound_along(desk) -> None:
    desk.create(projects=[A, B])
    desk.divide(A, topics=1)
    desk.update(projects=[B])
    assert desk.update(projects=[A, B]).project_quotas == {}


_NAMES = st.from_regex(r"[a-z][a-z0-9-]{1,61}[a-z0-9]", fullmatch=True)
_TEXTS = st.lists(st.text(max_size=20), max_size=4, unique=True).map(tuple)


_BOUNDS = st.just(0) | st.floats(0, 1e15, exclude_max=True) | st.integers(0, 10**15 - 1)
_QUOTAS = st.builds(Quota, *[_BOUNDS] * len(Quota._fields))


@given(
    st.builds(
        Tenant,
        _NAMES,
        st.text(max_size=100),
        _TEXTS,
        _TEXTS,
        _TEXTS,
        _QUOTAS,
        st.dictionaries(st.text(max_size=20), _QUOTAS, max_size=3),
        st.integers(1, 100),
    )
)
def test_a_tenant_is_read_as_it_was_stored(tenant) -> None:
    setting = tenant.setting()
    assert read_tenant(setting.name, setting.value) == tenant


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sets(st.sampled_from("pqr")), st.booleans()), max_size=12))
def test_the_book_goes_by_the_catalog_alone(steps) -> None:
    """Whatever was put and deleted before, also with a project that changed its tenant."""
    catalog = Catalog()
    book, known = TenantBook(catalog), {}
    for letter, projects, deleted in steps:
        for other in known:
            known[other] -= projects
        tenants = [Tenant(f"{other}bc", projects=tuple(f"projects/{one}" for one in known[other])) for other in known]
        known[letter] = set(projects)
        tenants.append(Tenant(f"{letter}bc", projects=tuple(f"projects/{one}" for one in projects)))
        changes = [CatalogChange.put(one.setting()) for one in tenants]
        if deleted:
            del known[letter]
            changes.append(CatalogChange.delete(tenants[-1].setting()))
        for change in catalog.assign(changes):
            catalog.apply(change)
    fresh = TenantBook(catalog)
    for project in "pqr":
        name = f"projects/{project}"
        assert book.of(name) == fresh.of(name)
    assert len(book) == len(fresh) == len(known)


def test_own_regions_are_those_of_the_policy_and_not_of_the_tenant(desk) -> None:
    desk.create(projects=[A], allowed_regions=["de"])
    desk.topic(f"{A}/topics/all")
    assert own_regions(desk.catalog.topic(f"{A}/topics/all")) == ()
    assert outdated(desk.catalog, TenantBook(desk.catalog)) == []
