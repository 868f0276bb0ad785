"""Every method has a rule, every rule asks for what roles can hold, and what is asked stands in the request."""

from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.catalog.access.permission_needs import SERVER, Need
from syncpoint.catalog.access.roles import INTERNAL, PERMISSIONS, ROLES
from syncpoint.catalog.access.rules import RULES, rule_of
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import FILES, POOL, admin, iam, pipeline, pubsub

TOPIC, SUBSCRIPTION, SNAPSHOT = "projects/a/topics/one", "projects/b/subscriptions/two", "projects/c/snapshots/three"


def needs(path: methods.Method, request: Any, catalog: Catalog | None = None) -> list[Need]:
    rule = rule_of(path)
    assert rule.needs is not None
    return list(rule.needs(request, catalog or Catalog()))


def acting_as(email: str) -> Need:
    return Need("iam.serviceAccounts.actAs", SERVER, f"projects/-/serviceAccounts/{email}")


def test_every_method_that_is_described_has_a_rule_and_nothing_else_has() -> None:
    described = {
        f"/{service.full_name}/{method.name}"
        for file in FILES
        for service in POOL.FindFileByName(file).services_by_name.values()
        for method in service.methods
    }
    assert described - set(RULES) == set(), "say in access/rules.py what these methods ask of their callers"
    assert set(RULES) - described == set()


def test_a_method_without_a_rule_can_not_be_served() -> None:
    with pytest.raises(KeyError):
        rule_of("/google.pubsub.v1.Publisher/Unheard")


def test_only_health_is_open_and_processes_of_a_cluster_have_a_permission_that_no_role_holds() -> None:
    assert {path for path, rule in RULES.items() if rule.open} == set(methods.HEALTH)
    internal = {path for path, rule in RULES.items() if rule.internal}
    assert internal == {path for path in RULES if path.startswith("/syncpoint.internal.")}
    assert all(INTERNAL not in held for held in ROLES.values())


def test_every_rule_asks_for_something() -> None:
    for path, rule in RULES.items():
        assert [rule.open, rule.known, rule.needs is not None, rule.hot is not None].count(True) == 1, path


def test_hot_rules_stand_on_the_first_field() -> None:
    hot = {path: rule.hot for path, rule in RULES.items() if rule.hot is not None}
    assert {path: permission for path, (permission, _) in hot.items()} == {
        methods.PUBLISHER.Publish: "pubsub.topics.publish",
        **dict.fromkeys(
            (methods.SUBSCRIBER[name] for name in ("Pull", "StreamingPull", "Acknowledge", "ModifyAckDeadline")),
            "pubsub.subscriptions.consume",
        ),
    }
    for path, (_, collection) in hot.items():
        assert isinstance(path, methods.Method)
        assert path.descriptor.input_type.fields_by_number[1].name == collection[:-1]
    assert all(permission in PERMISSIONS for permission, _ in hot.values())


def test_a_subscription_needs_rights_in_its_project_and_on_the_topic_and_where_it_gives_up() -> None:
    request = pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC)
    request.dead_letter_policy.dead_letter_topic = "projects/d/topics/dead"
    request.push_config.push_endpoint = "https://example.com"
    request.push_config.oidc_token.service_account_email = "pusher@example.com"
    assert needs(methods.SUBSCRIBER.CreateSubscription, request) == [
        Need("pubsub.subscriptions.create", "projects/b"),
        Need("pubsub.topics.attachSubscription", TOPIC),
        Need("pubsub.topics.publish", "projects/d/topics/dead"),
        acting_as("pusher@example.com"),
    ]
    request = pubsub.Subscription(topic=TOPIC)
    assert needs(methods.SUBSCRIBER.CreateSubscription, request)[0].resource == "projects/a", (
        "the server names it there"
    )


def test_where_pushes_go_is_changed_by_who_may_act_as_their_account() -> None:
    config = pubsub.Subscription()
    config.push_config.push_endpoint = "https://example.com"
    config.push_config.oidc_token.service_account_email = "pusher@example.com"
    catalog = Catalog()
    record = Subscription(2, SUBSCRIPTION, 1, TOPIC, config=config.SerializeToString())
    for change in catalog.assign([CatalogChange.put(Topic(1, TOPIC)), CatalogChange.put(record)]):
        catalog.apply(change)
    request = pubsub.UpdateSubscriptionRequest(subscription={"name": SUBSCRIPTION})
    acting = acting_as("pusher@example.com")
    for path, needed in (("push_config.push_endpoint", True), ("push_config", False), ("labels", False)):
        request.update_mask.paths[:] = [path]
        assert (acting in needs(methods.SUBSCRIBER.UpdateSubscription, request, catalog)) is needed, path


def test_exports_and_sources_act_as_accounts_only_for_who_may() -> None:
    catalog = Catalog()
    export = {"table": "p.d.t", "service_account_email": "writer@example.com"}
    source = {"aws_kinesis": {"gcp_service_account": "reader@example.com"}}
    subscription = pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, bigquery_config=export)
    topic = pubsub.Topic(name=TOPIC, ingestion_data_source_settings=source)
    writing, reading = acting_as("writer@example.com"), acting_as("reader@example.com")
    assert writing in needs(methods.SUBSCRIBER.CreateSubscription, subscription)
    assert reading in needs(methods.PUBLISHER.CreateTopic, topic)
    model = {"ai_inference": {"endpoint": "e", "service_account_email": "model@example.com"}}
    asked = pubsub.Topic(name=TOPIC, message_transforms=[{}, model])
    assert acting_as("model@example.com") in needs(methods.PUBLISHER.CreateTopic, asked)
    records = (
        Topic(1, TOPIC, config=topic.SerializeToString()),
        Subscription(2, SUBSCRIPTION, 1, TOPIC, config=subscription.SerializeToString()),
    )
    for change in catalog.assign(map(CatalogChange.put, records)):
        catalog.apply(change)
    for path, needed in (("bigquery_config.table", True), ("bigquery_config", False), ("labels", False)):
        changed = pubsub.UpdateSubscriptionRequest(subscription={"name": SUBSCRIPTION}, update_mask={"paths": [path]})
        assert (writing in needs(methods.SUBSCRIBER.UpdateSubscription, changed, catalog)) is needed, path
    part = "ingestion_data_source_settings.aws_kinesis.stream_arn"
    for path, needed in ((part, True), ("labels", False)):
        changed = pubsub.UpdateTopicRequest(topic={"name": TOPIC}, update_mask={"paths": [path]})
        assert (reading in needs(methods.PUBLISHER.UpdateTopic, changed, catalog)) is needed, path


def test_a_subscription_is_detached_by_who_has_the_topic_whoever_owns_the_subscription() -> None:
    catalog, request = Catalog(), pubsub.DetachSubscriptionRequest(subscription=SUBSCRIPTION)
    permission = "pubsub.topics.detachSubscription"
    assert needs(methods.PUBLISHER.DetachSubscription, request, catalog) == [
        Need(permission, SUBSCRIPTION, SUBSCRIPTION)
    ]
    topic = Topic(1, TOPIC)
    for change in catalog.assign(
        [CatalogChange.put(topic), CatalogChange.put(Subscription(2, SUBSCRIPTION, 1, TOPIC))]
    ):
        catalog.apply(change)
    assert needs(methods.PUBLISHER.DetachSubscription, request, catalog) == [Need(permission, TOPIC, SUBSCRIPTION)]
    for change in catalog.assign([CatalogChange.delete(topic)]):
        catalog.apply(change)
    assert needs(methods.PUBLISHER.DetachSubscription, request, catalog) == [
        Need(permission, SUBSCRIPTION, SUBSCRIPTION)
    ]


def test_a_seek_to_a_snapshot_needs_the_snapshot_too() -> None:
    request = pubsub.SeekRequest(subscription=SUBSCRIPTION, snapshot=SNAPSHOT)
    preview = admin.PreviewSeekRequest(subscription=SUBSCRIPTION, snapshot=SNAPSHOT)
    assert needs(methods.ADMIN.PreviewSeek, preview) == needs(methods.SUBSCRIBER.Seek, request)
    assert needs(methods.SUBSCRIBER.Seek, request) == [
        Need("pubsub.subscriptions.consume", SUBSCRIPTION),
        Need("pubsub.snapshots.seek", SNAPSHOT),
    ]


def test_a_schema_is_attached_by_who_sets_it_and_not_by_who_names_it_on_the_way() -> None:
    def asked(*paths: str, schema: str = "projects/b/schemas/shape") -> list[Need]:
        request = pubsub.UpdateTopicRequest(topic=pubsub.Topic(name="projects/a/topics/one"))
        request.topic.schema_settings.schema = schema
        request.update_mask.paths.extend(paths)
        return needs(methods.PUBLISHER.UpdateTopic, request)

    update = Need("pubsub.topics.update", "projects/a/topics/one")
    attach = Need("pubsub.schemas.attach", "projects/b/schemas/shape")
    assert asked("schema_settings") == asked("labels", "schema_settings.schema") == [update, attach]
    assert asked("labels") == asked("labels", schema="_deleted-schema_") == [update]
    assert asked("schema_settings", schema="") == asked("schema_settings.encoding") == [update]


def test_policies_are_asked_for_by_the_kind_of_resource_and_schemas_without_their_revision() -> None:
    get = methods.IAM.GetIamPolicy
    assert needs(get, iam.GetIamPolicyRequest(resource=TOPIC)) == [Need("pubsub.topics.getIamPolicy", TOPIC)]
    assert needs(get, iam.GetIamPolicyRequest(resource="projects/a")) == [
        Need("resourcemanager.projects.getIamPolicy", "projects/a")
    ]
    schema = pubsub.GetSchemaRequest(name="projects/a/schemas/shape@1f3a")
    assert needs(methods.SCHEMAS.GetSchema, schema) == [Need("pubsub.schemas.get", "projects/a/schemas/shape")]
    for name in ("", "topics/one", "projects/a/topics/../x", "projects/a/topics/one/x", "projects/a/disks/one"):
        with pytest.raises(InvalidArgument):
            needs(get, iam.GetIamPolicyRequest(resource=name))


def test_each_frame_that_is_staged_names_its_topic() -> None:
    rule = rule_of(methods.EPOCH_WRITER.Stage)
    assert rule.each
    frame = pipeline.StageRequest(frame=pipeline.StageFrame(topic=TOPIC))
    assert needs(methods.EPOCH_WRITER.Stage, frame) == [Need("syncpoint.topics.write", TOPIC)]


def test_an_empty_or_illegal_name_is_refused_and_never_passed_over() -> None:
    """Each method that names a resource refuses an empty request: no rule may come out without any need."""
    may_be_empty = {methods.LOG_READER.ListCursors, methods.EPOCH_WRITER.CommitEpoch}
    for path, rule in RULES.items():
        if rule.needs is None or path in may_be_empty:
            continue
        assert isinstance(path, methods.Method)
        try:
            found = list(rule.needs(path.request(), Catalog()))
        except InvalidArgument:
            continue
        assert found, path
        assert {need.resource for need in found} == {SERVER}, path
        assert {need.permission for need in found} <= {*PERMISSIONS, INTERNAL}, path


def test_publishing_letters_again_asks_for_both_ends() -> None:
    """Of the topic that is named, or that the letters came from; of the subscription where there is none."""
    catalog, letters = Catalog(), "projects/b/subscriptions/letters"
    consume = Need("pubsub.subscriptions.consume", letters)
    request = admin.RedriveDeadLettersRequest()
    request.selection.subscription, request.selection.source = letters, SUBSCRIPTION
    path = methods.ADMIN.RedriveDeadLetters
    hidden = Need("pubsub.topics.publish", SUBSCRIPTION, SUBSCRIPTION)
    assert needs(path, request, catalog) == [consume, hidden]
    records = (Topic(1, TOPIC), Subscription(2, SUBSCRIPTION, 1, TOPIC))
    for change in catalog.assign(map(CatalogChange.put, records)):
        catalog.apply(change)
    assert needs(path, request, catalog) == [consume, Need("pubsub.topics.publish", TOPIC, SUBSCRIPTION)]
    request.topic = "projects/d/topics/other"
    assert needs(path, request, catalog) == [consume, Need("pubsub.topics.publish", "projects/d/topics/other")]
