"""What policies grant, who may replace them, and what they may not say."""

from typing import Any

import pytest

from syncpoint.base.model.errors import Aborted, InvalidArgument, NotFound
from syncpoint.catalog.access.conditions import OPERATORS_MAX, TERMS_MAX, compiled
from syncpoint.catalog.access.permission_needs import SERVER
from syncpoint.catalog.access.policy import CONDITIONS_MAX, NO_POLICY_ETAG, Policies, Verdict, orphaned_policies
from syncpoint.catalog.access.roles import ROLES
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Setting, Subscription, Topic
from syncpoint.wire.protobuf.messages import iam

TOPIC = "projects/a/topics/one"
SUBSCRIPTION = "projects/a/subscriptions/two"
PUBLISH = "pubsub.topics.publish"
ANN = frozenset({"user:ann@example.com", "domain:example.com", "allAuthenticatedUsers", "allUsers"})


class Harness:
    def __init__(self) -> None:
        self.catalog = Catalog()
        self.policies = Policies(self.catalog)
        self.apply(CatalogChange.put(Topic(1, TOPIC)), CatalogChange.put(Subscription(2, SUBSCRIPTION, 1, TOPIC)))

    def apply(self, *changes: CatalogChange) -> None:
        for change in self.catalog.assign(changes):
            self.catalog.apply(change)

    def set(self, resource: str, policy: Any, *paths: str) -> Any:
        setting, stored = self.policies.changed(resource, policy, paths)
        self.apply(CatalogChange.put(setting))
        return stored

    def grant(self, resource: str, role: str, *members: str) -> Any:
        return self.set(resource, iam.Policy(bindings=[iam.Binding(role=role, members=members)]))

    def may(self, permission: str, resource: str = TOPIC, now_s: float = 0.0) -> bool:
        return self.policies.verdict(ANN, permission, resource, now_s).allowed


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_nothing_is_granted_by_default(harness: Harness) -> None:
    assert harness.policies.verdict(ANN, PUBLISH, TOPIC, 0.0) == Verdict(False)


@pytest.mark.parametrize("member", ["user:ann@example.com", "user:Ann@Example.com", "domain:example.com", "allUsers"])
@pytest.mark.parametrize("resource", [TOPIC, "projects/a", SERVER])
def test_a_grant_holds_where_it_is_made_and_below(harness: Harness, member: str, resource: str) -> None:
    harness.grant(resource, "roles/pubsub.publisher", member)
    assert harness.may(PUBLISH)
    assert not harness.may("pubsub.topics.get")
    assert harness.may(PUBLISH, "projects/b/topics/other") == (resource == SERVER)
    assert harness.may(PUBLISH, "projects/a") == (resource != TOPIC)


def test_a_grant_to_others_is_none(harness: Harness) -> None:
    harness.grant(
        TOPIC, "roles/pubsub.admin", "user:bob@example.com", "serviceAccount:ann@example.com", "domain:le.com"
    )
    assert not harness.may(PUBLISH)


def test_a_resource_that_is_created_anew_begins_without_a_policy(harness: Harness) -> None:
    harness.grant(TOPIC, "roles/pubsub.publisher", "allUsers")
    deletion = CatalogChange.delete(Topic(1, TOPIC))
    (orphan,) = orphaned_policies(harness.catalog, [deletion])
    harness.apply(deletion)
    harness.apply(CatalogChange.put(Topic(7, TOPIC)))
    assert not harness.may(PUBLISH)
    harness.apply(orphan)
    assert harness.catalog.settings_named("iam-policy:") == []


def test_a_policy_is_read_as_it_was_set_and_replaced_by_who_has_seen_it(harness: Harness) -> None:
    assert harness.policies.get(TOPIC) == iam.Policy(etag=NO_POLICY_ETAG)
    first = harness.grant(TOPIC, "roles/pubsub.publisher", "allUsers")
    assert harness.policies.get(TOPIC) == first
    assert first.version == 1
    changed = iam.Policy(etag=first.etag, bindings=[iam.Binding(role="roles/pubsub.viewer", members=["allUsers"])])
    second = harness.set(TOPIC, changed)
    assert second.etag != first.etag
    with pytest.raises(Aborted, match="concurrent policy changes"):
        harness.set(TOPIC, changed)
    with pytest.raises(Aborted):
        harness.set(TOPIC, iam.Policy(etag=NO_POLICY_ETAG))
    third = harness.set(TOPIC, iam.Policy(etag=second.etag), "etag")
    assert third.bindings == second.bindings, "the mask leaves them out"
    assert harness.set(TOPIC, iam.Policy()).bindings == [], "without an etag it is replaced whatever stands"


def test_going_back_to_an_earlier_content_does_not_bring_its_etag_back(harness: Harness) -> None:
    first = harness.grant(TOPIC, "roles/pubsub.publisher", "allUsers")
    harness.grant(TOPIC, "roles/pubsub.viewer", "allUsers")
    assert harness.grant(TOPIC, "roles/pubsub.publisher", "allUsers").etag != first.etag


@pytest.mark.parametrize("name", ["projects/a/topics/none", "projects/a/snapshots/none", "projects/a/schemas/none"])
def test_what_does_not_exist_has_no_policy(harness: Harness, name: str) -> None:
    with pytest.raises(NotFound):
        harness.policies.get(name)
    assert not harness.policies.exists(name)


@pytest.mark.parametrize(
    "binding",
    [
        {"role": "roles/pubsub.god", "members": ["allUsers"]},
        {"role": "", "members": ["allUsers"]},
        {"role": "roles/pubsub.viewer_withcond_1234", "members": ["allUsers"]},
        *(
            {"role": "roles/pubsub.viewer", "members": [member]}
            for member in ("", "ann@example.com", "user:", "user:ann", "root:a@b.c", "domain:a@b", "user:a@b.c ", "*")
        ),
    ],
)
def test_illegal_bindings_are_refused(harness: Harness, binding: Any) -> None:
    with pytest.raises(InvalidArgument):
        harness.set(TOPIC, iam.Policy(bindings=[iam.Binding(**binding)]))


def test_a_policy_is_bounded(harness: Harness) -> None:
    members = [f"user:u{number}@example.com" for number in range(1500)]
    harness.grant(TOPIC, "roles/pubsub.viewer", *members)
    with pytest.raises(InvalidArgument, match="1500"):
        harness.grant(TOPIC, "roles/pubsub.viewer", *members, "allUsers")


def conditional(expression: str, version: int = 3) -> Any:
    binding = iam.Binding(role="roles/pubsub.publisher", members=["user:ann@example.com"])
    binding.condition.expression = expression
    return iam.Policy(version=version, bindings=[binding])


def test_a_condition_decides_by_the_resource_and_the_time(harness: Harness) -> None:
    harness.set(
        "projects/a",
        conditional(
            'resource.name.startsWith("projects/a/topics/o") && request.time < timestamp("1970-01-01T00:01:00Z")'
        ),
    )
    assert harness.policies.verdict(ANN, PUBLISH, TOPIC, 59.0) == Verdict(True, True)
    assert harness.policies.verdict(ANN, PUBLISH, TOPIC, 60.0) == Verdict(False, True)
    assert not harness.may(PUBLISH, "projects/a/topics/two")
    assert harness.policies.verdict(ANN, "pubsub.topics.get", TOPIC, 0.0) == Verdict(False), "nothing hangs on it"


def test_who_does_not_know_conditions_reads_roles_that_can_not_be_mistaken(harness: Harness) -> None:
    harness.set(TOPIC, conditional("true"))
    (seen,) = harness.policies.get(TOPIC, 1).bindings
    assert seen.role.startswith("roles/pubsub.publisher_withcond_")
    assert not seen.HasField("condition")
    assert harness.policies.get(TOPIC, 3).bindings[0].condition.expression == "true"
    with pytest.raises(InvalidArgument):
        harness.policies.get(TOPIC, 2)


@pytest.mark.parametrize(
    "expression",
    [
        "", "1", "resource.nme == 'x'", "true &&", "[1, 2].map(x, x) == []", "x" * 1001, "(" * 30 + "true" + ")" * 30,
        "resource.name.matches('(a+)+$')", "!" * 990 + "true", "import('os')",
    ],
)  # fmt: skip
def test_expressions_that_can_not_be_evaluated_or_bounded_are_refused(expression: str) -> None:
    with pytest.raises(InvalidArgument):
        compiled(expression)


def test_policies_have_no_more_conditions_than_can_be_judged_at_each_call(harness: Harness) -> None:
    one = conditional(" && ".join(["resource.name != 'x'"] * (OPERATORS_MAX + 1))).bindings[0]
    many = iam.Policy(version=3, bindings=[one] * CONDITIONS_MAX)
    harness.set(TOPIC, many)
    assert harness.may(PUBLISH)
    with pytest.raises(InvalidArgument, match="with conditions"):
        harness.set(TOPIC, iam.Policy(version=3, bindings=[*many.bindings, one]))
    for text in (" && ".join(["true"] * (OPERATORS_MAX + 2)), "!" * (OPERATORS_MAX + 1) + "true"):
        with pytest.raises(InvalidArgument, match="logical operators"):
            harness.set(TOPIC, conditional(text))


def test_conditions_of_a_policy_have_a_bound_together(harness: Harness) -> None:
    dense = conditional("+".join(["1"] * 490) + " == 490").bindings[0]
    harness.set(TOPIC, iam.Policy(version=3, bindings=[dense] * (TERMS_MAX // 981)))
    assert harness.may(PUBLISH)
    with pytest.raises(InvalidArgument, match="in total"):
        harness.set(TOPIC, iam.Policy(version=3, bindings=[dense] * (TERMS_MAX // 981 + 1)))


def test_conditions_need_version_3(harness: Harness) -> None:
    with pytest.raises(InvalidArgument, match="version"):
        harness.set(TOPIC, conditional("true", version=1))


def test_roles_of_pubsub_hold_what_google_documents() -> None:
    assert ROLES["roles/pubsub.publisher"] == {PUBLISH}
    assert ROLES["roles/pubsub.subscriber"] == {
        "pubsub.snapshots.seek", "pubsub.subscriptions.consume", "pubsub.topics.attachSubscription",
    }  # fmt: skip
    viewer, editor, admin = (ROLES[f"roles/pubsub.{name}"] for name in ("viewer", "editor", "admin"))
    assert viewer < editor < admin < ROLES["roles/owner"]
    assert not any("IamPolicy" in permission or "TagBinding" in permission.replace("listTagBindings", "")
                   for permission in editor)  # fmt: skip
    assert len(admin) == 51


def test_whether_anything_is_granted_to_everybody_follows_each_change(harness: Harness) -> None:
    later = Policies(harness.catalog)
    assert not harness.policies.grant_to_everybody()
    for resource in (TOPIC, SUBSCRIPTION):
        harness.grant(resource, "roles/pubsub.publisher", "user:ann@example.com", "allUsers")
    assert harness.policies.grant_to_everybody()
    assert later.grant_to_everybody()
    assert Policies(harness.catalog).grant_to_everybody(), "what stands already counts"
    harness.grant(TOPIC, "roles/pubsub.publisher", "user:ann@example.com")
    assert harness.policies.grant_to_everybody()
    gone = CatalogChange.delete(Subscription(2, SUBSCRIPTION, 1, TOPIC))
    harness.apply(*orphaned_policies(harness.catalog, [gone]), gone)
    assert not harness.policies.grant_to_everybody()
    harness.grant("projects/a", "roles/pubsub.publisher", "allUsers")
    assert later.grant_to_everybody()
    kept = [one for one in harness.catalog.records() if not isinstance(one, Setting)]
    harness.catalog.become(kept, harness.catalog.revision + 9, harness.catalog.incarnation)
    assert not harness.policies.grant_to_everybody(), "also where changes between were not seen"
