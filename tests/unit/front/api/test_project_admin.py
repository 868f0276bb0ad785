"""Classes of disaster recovery over a control plane: what follows for topics, and what is refused and remembered."""

import asyncio

import pytest

from syncpoint.base.model.errors import Aborted, FailedPrecondition, InvalidArgument, NotFound
from syncpoint.base.model.flow import FlowLimits
from syncpoint.catalog.access.policy import Policies
from syncpoint.catalog.access.tenant_book import TenantBook
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.entity_options import HELD_ELSEWHERE, HERE, NO_WRITER, WRITTEN_ELSEWHERE
from syncpoint.catalog.metadata.home_sites import HomeSite, put_home
from syncpoint.catalog.metadata.records import decode_record, encode_record
from syncpoint.front.api.admin_handlers import CatalogService
from syncpoint.front.api.options_admin import OptionsAdmin
from syncpoint.front.api.project_admin import FINDINGS_MAX, ProjectAdmin
from syncpoint.front.api.queue_admin import QueueAdmin
from syncpoint.front.api.tenant_admin import TenantAdmin
from syncpoint.wire.protobuf.messages import admin, pubsub

pytestmark = pytest.mark.shows("disaster-classes")

P, ORDERS, RECORDS = "projects/p", "projects/p/topics/orders", "projects/p/topics/delivery-records"


async def _metrics(name):
    return b""


class Desk:
    """Classes, tenants, topics and options over one catalog."""

    def __init__(self, plane):
        self.plane, self.catalog = plane, plane.catalog
        self.projects = ProjectAdmin(plane)
        self.tenants = TenantAdmin(plane, Policies(plane.catalog), tuple, _metrics)
        self.topics = CatalogService(plane)
        self.options = OptionsAdmin(plane, FlowLimits())

    def declare(self, name, writer="", resource=P, tenant=""):
        request = admin.SetDisasterClassRequest(resource=resource, tenant=tenant)
        request.disaster_class.name, request.disaster_class.writer = name, writer
        return asyncio.run(self.projects.set_class(request))

    def topic(self, name=ORDERS):
        asyncio.run(self.topics.create_topic(pubsub.Topic(name=name)))

    def set(self, name=ORDERS, **options):
        request = admin.UpdateTopicOptionsRequest(options={"topic": name, **options})
        request.update_mask.paths.extend(options)
        asyncio.run(self.options.update_topic_options(request))

    def get(self, project=P, tenant=""):
        return asyncio.run(self.projects.get(admin.GetProjectRequest(project=project, tenant=tenant)))

    def of(self, name=ORDERS):
        return self.catalog.topic(name).options

    def own(self, *projects, name="acme"):
        tenant = admin.Tenant(name=name, projects=projects)
        asyncio.run(self.tenants.create(admin.CreateTenantRequest(tenant=tenant)))


@pytest.fixture
def desk(plane):
    return Desk(plane)


def test_billing_gives_records_to_topics_there_are_and_to_new_ones(desk) -> None:
    desk.topic()
    desk.topic("projects/q/topics/other")
    assert desk.declare("billing").writer == "here"
    assert desk.of().records_topic == RECORDS
    assert desk.of().writer == HERE
    assert desk.of(RECORDS) == desk.of("projects/q/topics/other"), "the records are not recorded, and take links"
    assert desk.catalog.topic(RECORDS).retention_s == 7 * 86_400
    desk.topic("projects/p/topics/late")
    assert desk.of("projects/p/topics/late").records_topic == RECORDS
    found = desk.get()
    assert (found.topics, found.recorded_topics, found.records_topics[:]) == (3, 2, [RECORDS])
    desk.declare("")
    assert desk.of().records_topic == RECORDS, "records are data"
    assert desk.of().writer == NO_WRITER


def test_a_new_topic_of_a_billing_project_comes_with_its_records(desk) -> None:
    desk.declare("billing", resource="server")
    desk.topic()
    assert desk.catalog.topic(RECORDS) is not None
    queue = admin.CreateQueueRequest(topic={"name": "projects/q/topics/jobs"})
    asyncio.run(QueueAdmin(desk.plane, desk.topics, TenantBook(desk.catalog)).create_queue(queue))
    assert desk.of("projects/q/topics/jobs").records_topic == "projects/q/topics/delivery-records"
    assert desk.catalog.topic("projects/q/topics/delivery-records") is not None


def test_records_of_a_billing_project_cannot_be_taken_away(desk) -> None:
    desk.topic()
    desk.declare("billing")
    with pytest.raises(FailedPrecondition, match="class billing, which demands delivery records"):
        desk.set(records_topic="")
    with pytest.raises(FailedPrecondition, match=r"cannot be deleted: it keeps the delivery records of .*orders"):
        asyncio.run(desk.topics.delete_topic(pubsub.DeleteTopicRequest(topic=RECORDS)))
    request = pubsub.UpdateTopicRequest(topic={"name": RECORDS})
    request.update_mask.paths.append("message_retention_duration")
    with pytest.raises(FailedPrecondition, match="left without a message retention"):
        asyncio.run(desk.topics.update_topic(request))
    desk.declare("")
    desk.set(records_topic="")
    asyncio.run(desk.topics.delete_topic(pubsub.DeleteTopicRequest(topic=RECORDS)))


def test_who_chose_another_topic_for_records_keeps_it(desk) -> None:
    asyncio.run(
        desk.topics.create_topic(
            pubsub.Topic(name="projects/p/topics/mine", message_retention_duration={"seconds": 9999})
        )
    )
    desk.topic()
    desk.set(records_topic="projects/p/topics/mine")
    desk.declare("billing")
    assert desk.of().records_topic == "projects/p/topics/mine"
    assert not desk.of("projects/p/topics/mine").records_topic
    assert desk.catalog.topic(RECORDS) is None


def test_another_site_writes_and_what_was_suspended_before_still_is(desk) -> None:
    desk.topic()
    desk.topic("projects/p/topics/held")
    desk.set("projects/p/topics/held", send_suspended=True)
    desk.declare("billing", "elsewhere")
    assert (desk.of().writer, desk.of().send_suspended) == (WRITTEN_ELSEWHERE, True)
    assert desk.of("projects/p/topics/held").writer == HELD_ELSEWHERE
    assert not desk.of(RECORDS).send_suspended
    record = desk.catalog.topic("projects/p/topics/held")
    assert decode_record(encode_record(record)) == record
    with pytest.raises(FailedPrecondition, match="another site takes publishes"):
        desk.set(send_suspended=False)
    desk.topic("projects/p/topics/late")
    assert desk.of("projects/p/topics/late").send_suspended
    desk.declare("billing", "recovering")
    assert (desk.of().writer, desk.of().send_suspended) == (NO_WRITER, False)
    assert "links are admitted" in " ".join(desk.get().lacking)
    desk.declare("billing", "here")
    assert desk.of().writer == HERE
    assert desk.of("projects/p/topics/held") == desk.of()._replace(send_suspended=True)


def test_a_class_that_changed_since_it_was_read_is_not_changed(desk) -> None:
    request = admin.SetDisasterClassRequest(resource=P, disaster_class=desk.declare("billing"))
    request.disaster_class.writer = "elsewhere"
    request.disaster_class.since.nanos += 1
    with pytest.raises(Aborted, match="declared anew"):
        asyncio.run(desk.projects.set_class(request))
    request.disaster_class.since.nanos -= 1
    assert asyncio.run(desk.projects.set_class(request)).writer == "elsewhere"


def test_the_innermost_class_holds(desk) -> None:
    desk.own(P, "projects/q")
    sources = []
    for resource, name in (("", ""), ("server", "geo"), ("tenants/acme", "geo-acks"), (P, "dual")):
        if resource:
            desk.declare(name, resource=resource)
        found = desk.get()
        sources.append((found.disaster_class.name, found.disaster_class.source, found.terms.name))
    assert sources == [
        ("local", "installation", "local"), ("geo", "installation", "geo"), ("geo-acks", "tenant", "geo-acks"),
        ("dual", "project", "dual"),
    ]  # fmt: skip
    listed = asyncio.run(desk.projects.list_classed(admin.ListClassedProjectsRequest(page_size=1)))
    more = admin.ListClassedProjectsRequest(page_size=1, page_token=listed.next_page_token)
    rest = asyncio.run(desk.projects.list_classed(more))
    names = [(one.project, one.disaster_class.name) for one in (*listed.projects, *rest.projects)]
    assert names == [(P, "dual"), ("projects/q", "geo-acks")]
    desk.declare("")
    assert desk.get().disaster_class.name == "geo-acks"


def test_topics_follow_a_project_into_a_tenant_and_out_of_it(desk) -> None:
    desk.topic()
    desk.own("projects/q")
    desk.declare("billing", "elsewhere", "tenants/acme")
    update = admin.UpdateTenantRequest(tenant={"name": "acme", "projects": [P, "projects/q"]})
    update.update_mask.paths.append("projects")
    asyncio.run(desk.tenants.update(update))
    assert desk.of().send_suspended
    update.tenant.projects[:] = []
    asyncio.run(desk.tenants.update(update))
    assert not desk.of().send_suspended
    asyncio.run(desk.tenants.delete(admin.DeleteTenantRequest(name="acme")))
    desk.own(P)
    assert desk.get().disaster_class.name == "local", "a later tenant of the name has no class of the earlier one"


@pytest.mark.parametrize(
    ("name", "writer", "resource", "message"),
    [
        ("gold", "", P, "choose from local, geo, geo-acks, dual, billing"),
        ("geo", "here", P, "only billing has one writer"),
        ("billing", "there", P, "here, elsewhere, recovering"),
        ("", "here", P, "is not a class"),
        ("geo", "", "topics/x", "is not server, tenants/NAME or projects/P"),
    ],
)
def test_what_is_no_class_changes_nothing(desk, name, writer, resource, message) -> None:
    with pytest.raises(InvalidArgument, match=message):
        desk.declare(name, writer, resource)
    assert desk.get().disaster_class.name == "local"


def test_owners_of_a_tenant_reach_its_projects_alone(desk) -> None:
    desk.own(P)
    assert desk.declare("geo", tenant="acme").source == "project"
    assert desk.get(tenant="acme").tenant == "acme"
    for work in (
        lambda: desk.declare("geo", resource="projects/q", tenant="acme"),
        lambda: desk.get("projects/q", "acme"),
    ):
        with pytest.raises(NotFound, match="not a project of tenant acme"):
            work()
    for resource in ("server", "tenants/acme"):
        with pytest.raises(InvalidArgument):
            desk.declare("geo", resource=resource, tenant="acme")
    with pytest.raises(NotFound):
        desk.declare("geo", resource="tenants/none")


def test_homes_and_the_last_reconciliation_are_shown(desk) -> None:
    desk.topic()
    for name in ("pay", "away"):
        made = pubsub.Subscription(name=f"projects/{'p' if name == 'pay' else 'q'}/subscriptions/{name}", topic=ORDERS)
        asyncio.run(desk.topics.create_subscription(made))
        incarnation = desk.catalog.subscription(made.name).incarnation
        asyncio.run(desk.plane.commit(put_home(desk.catalog, incarnation, HomeSite("eu", "us", 3))))
    (home,) = desk.get().homes
    assert (home.subscription, home.site, home.home, home.epoch) == ("projects/p/subscriptions/pay", "eu", "us", 3)
    assert not desk.get().HasField("last_reconciliation")
    desk.declare("billing")
    assert "never reconciled" in " ".join(desk.get().lacking)
    report = admin.ReportReconciliationRequest(project=P)
    report.reconciliation.findings_total = 500
    for number in range(FINDINGS_MAX + 5):
        report.reconciliation.findings.add(hop="copy", kind="not copied", message_id=str(number))
    kept = asyncio.run(desk.projects.report(report))
    assert (len(kept.findings), kept.time.ToNanoseconds()) == (FINDINGS_MAX, desk.plane.clock.time_ns())
    assert desk.get().last_reconciliation == kept
    assert "500 messages amiss" in " ".join(desk.get().lacking)
    report.reconciliation.findings_total = 1
    with pytest.raises(InvalidArgument, match="findings_total"):
        asyncio.run(desk.projects.report(report))


def test_the_terms_of_every_class_are_listed(desk) -> None:
    found = asyncio.run(desk.projects.list_classes(admin.ListDisasterClassesRequest())).classes
    assert [one.name for one in found] == ["local", "geo", "geo-acks", "dual", "billing"]
    assert all(one.does and one.buys and one.costs for one in found)


def test_a_class_looks_at_all_topics_a_few_times_and_not_for_each(desk, monkeypatch) -> None:
    for number in range(40):
        desk.topic(f"{ORDERS}-{number}")
    looks, topics = [], Catalog.topics
    monkeypatch.setattr(Catalog, "topics", lambda catalog: looks.append(1) or topics(catalog))
    desk.declare("billing")
    assert desk.of(f"{ORDERS}-39").records_topic == RECORDS
    assert len(looks) < 10
