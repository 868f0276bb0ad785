"""Quotas from the installation to the tenant to the project: the smallest holds, and a tenant's for all together."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import ResourceExhausted
from syncpoint.catalog.access.gate import HELD_S, Gate
from syncpoint.catalog.access.inherited_quotas import smallest, sources
from syncpoint.catalog.access.quotas import BURST_S, CPU_BURST_S, RETRY_S_MAX, UNBOUNDED, Quota
from syncpoint.catalog.access.settings import parse
from syncpoint.catalog.access.tenant_book import Tenant
from syncpoint.catalog.metadata.records import CatalogChange, Topic
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.calls import Streaming, Unary

pytestmark = [pytest.mark.shows("tenants"), pytest.mark.shows("quotas")]

A, A2, B = "projects/a", "projects/a2", "projects/b"
ROOT = {"email": "root@example.com"}


@pytest.fixture
def quotas(harness):
    harness.content["quotas"] = {"default": {"requests_per_s": 50}}
    harness.authenticator.take(parse(harness.content))
    harness.gate.take_quotas()
    return harness


def put(harness, **fields):
    harness.apply(CatalogChange.put(Tenant("acme", projects=(A, A2), **fields).setting()))


def publish(harness, project, size=0):
    request = pubsub.PublishRequest(topic=f"{project}/topics/one", messages=[pubsub.PubsubMessage(data=b"x" * size)])
    return harness.call(methods.PUBLISHER.Publish, request, harness.token(**ROOT, iat=None))


def let_in(harness, *projects, size=0):
    """How many come through, by turns of the projects, until one is refused."""
    for count in range(1000):
        error = publish(harness, projects[count % len(projects)], size)
        if error is not None:
            assert isinstance(error, ResourceExhausted)
            return count
    raise AssertionError("nothing is refused")


def test_projects_of_a_tenant_share_its_rate_and_others_do_not(quotas) -> None:
    put(quotas, quota=UNBOUNDED._replace(requests_per_s=5))
    assert let_in(quotas, A, A2) == pytest.approx(5 * BURST_S, abs=1)
    error = publish(quotas, A2)
    assert "consumer 'tenants/acme'" in error.message
    assert let_in(quotas, B) == pytest.approx(50 * BURST_S, abs=1)


def test_what_a_tenant_is_refused_is_charged_to_none_of_its_projects(quotas) -> None:
    put(quotas, quota=UNBOUNDED._replace(requests_per_s=5))
    for _ in range(500):
        publish(quotas, A)
    put(quotas)
    assert let_in(quotas, A) >= 50 * BURST_S - 12


def test_the_smallest_bound_of_a_project_holds(quotas) -> None:
    put(quotas, quota=UNBOUNDED._replace(requests_per_s=20), project_quotas={A: UNBOUNDED._replace(requests_per_s=2)})
    assert let_in(quotas, A) == pytest.approx(2 * BURST_S, abs=1)
    assert let_in(quotas, A2) == pytest.approx((20 - 2) * BURST_S, abs=2), "what the tenant has left"
    put(quotas, project_quotas={A: UNBOUNDED._replace(requests_per_s=500)})
    assert let_in(quotas, A) <= 50 * BURST_S + 1, "no project has more than the installation gives"


def test_a_quota_counts_as_soon_as_a_tenant_has_one_and_no_longer(harness) -> None:
    """Where the file of --auth has none, nothing is counted."""
    assert harness.gate.quotas is None
    put(harness)
    assert harness.gate.quotas is None
    put(harness, quota=UNBOUNDED._replace(requests_per_s=5))
    assert let_in(harness, A) == pytest.approx(5 * BURST_S, abs=1)
    put(harness, quota=UNBOUNDED._replace(requests_per_s=8))
    assert publish(harness, A) is not None, "what was counted stays when a bound changes"
    harness.apply(CatalogChange.delete(Tenant("acme").setting()))
    assert harness.gate.quotas is None
    assert publish(harness, A) is None


def test_topics_of_a_tenant_are_counted_over_its_projects(quotas) -> None:
    put(quotas, quota=UNBOUNDED._replace(topics=2))
    quotas.apply(CatalogChange.put(Topic(1, f"{A}/topics/one")))
    token = quotas.token(**ROOT)

    def create(name):
        return quotas.call(methods.PUBLISHER.CreateTopic, pubsub.Topic(name=name), token)

    assert create(f"{A2}/topics/two") is None
    assert create(f"{A2}/topics/two") is None, "again, as a client does that had no answer"
    for project in (A, A2):
        error = create(f"{project}/topics/three")
        assert isinstance(error, ResourceExhausted)
        assert "tenants/acme" in error.message
    assert create(f"{B}/topics/three") is None


def test_streams_of_a_tenant_are_counted_over_its_projects(quotas) -> None:
    put(quotas, quota=UNBOUNDED._replace(streams=2))
    method = quotas.table[methods.SUBSCRIBER.StreamingPull.encode()]
    assert isinstance(method, Streaming)
    ends = []
    for project in (A, A2, A, B):
        ended = []
        call = quotas.opened(methods.SUBSCRIBER.StreamingPull, quotas.token(**ROOT), ended)
        call.run(method.handler, call)
        call.on_message(pubsub.StreamingPullRequest(subscription=f"{project}/subscriptions/one").SerializeToString())
        ends.append(bool(ended))
    assert ends == [False, False, True, False]


def test_processor_time_of_a_tenant_is_that_of_its_projects(quotas) -> None:
    put(quotas, quota=UNBOUNDED._replace(cpu=0.5), weight=7)
    cpu = quotas.gate.cpu
    for project in (A, A2):
        cpu.check(project)
        cpu.charge(project, 0.5 * CPU_BURST_S)
    for project in (A, A2):
        with pytest.raises(ResourceExhausted, match="tenants/acme"):
            cpu.check(project)
    cpu.check(B)
    assert (cpu.share_of(A), cpu.share_of(B)) == (("tenants/acme", 7), (B, 1))


def test_outstanding_bytes_of_a_tenant_bound_all_its_projects(quotas) -> None:
    own = UNBOUNDED._replace(outstanding_bytes=10)
    put(quotas, quota=UNBOUNDED._replace(outstanding_bytes=100), project_quotas={A: own})
    bounds = quotas.gate.inherited.outstanding_bounds
    assert bounds(A) == [((A,), 10), ((A, A2), 100)]
    assert bounds(A2) == [((A, A2), 100)]
    assert bounds(B) == []


def test_callers_beyond_a_rate_are_sent_to_one_moment_each(quotas) -> None:
    """So those who heed it are let in when they come again, and not refused together once more."""
    put(quotas, quota=UNBOUNDED._replace(requests_per_s=5))
    let_in(quotas, A)
    delays = [publish(quotas, A).after_s for _ in range(20)]
    steps = [later - earlier for earlier, later in itertools.pairwise(delays)]
    assert steps == [pytest.approx(0.2)] * 19
    quotas.clock.advance(delays[0])
    for step in steps:
        assert publish(quotas, A) is None
        quotas.clock.advance(step)
    let_in(quotas, A)
    assert max(publish(quotas, A).after_s for _ in range(200)) <= RETRY_S_MAX


def test_who_does_not_wait_is_made_to(harness) -> None:
    """A refusal of a rate is answered when the caller may try again, at most a second later; never are many kept."""
    waiting = []
    parts = harness.authenticator, harness.policies, harness.catalog, harness.clock
    gate = Gate(*parts, later=lambda *what: waiting.append(what))
    reached = []
    harness.table = gate.guarded({methods.PUBLISHER.Publish.encode(): Unary(lambda call, data: reached.append(call))})
    put(harness, quota=UNBOUNDED._replace(requests_per_s=5))
    for _ in range(30):
        assert publish(harness, A) is None
    assert [seconds for seconds, _ in waiting] == [pytest.approx(min(0.2 * one, HELD_S)) for one in range(len(waiting))]
    assert len(reached) + len(waiting) == 30
    ended = []
    call = harness.opened(methods.PUBLISHER.Publish, harness.token(**ROOT, iat=None), ended)
    call.run(harness.table[call.path].handler, call, pubsub.PublishRequest(topic=f"{A}/topics/one").SerializeToString())
    assert ended == []
    waiting[-1][1]()
    (error,) = ended
    assert isinstance(error, ResourceExhausted)
    assert error.message.endswith(f"Retry in {0.2 * (len(waiting) - 1) - HELD_S:.3g} s.")
    kept = len(waiting)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("syncpoint.catalog.access.gate.HELD_MAX", kept - 1)
        assert isinstance(publish(harness, A), ResourceExhausted)
    assert len(waiting) == kept


_BOUNDS = st.sampled_from([0, 1, 2, 3, 5])
_QUOTAS = st.builds(Quota, *[_BOUNDS] * len(Quota._fields))


@given(_QUOTAS, _QUOTAS, _QUOTAS)
def test_what_is_shown_is_the_smallest_of_all_levels(installation, tenant, project) -> None:
    record = Tenant("acme", projects=(A,), quota=tenant, project_quotas={A: project})
    found = sources(installation, record, A)
    assert Quota._make(found[kind].value for kind in Quota._fields) == smallest(smallest(installation, tenant), project)
    levels = {"installation": installation, "tenant": tenant, "project": project}
    for kind, bound in found.items():
        assert getattr(levels[bound.source], kind) == bound.value
    assert smallest(installation, UNBOUNDED) == installation
