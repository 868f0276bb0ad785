"""What each method asks of its caller: one table from the paths of methods to permissions on what the request names.

Place: read by `gate` for every call. The names are those in the request itself; headers that repeat them mean nothing.
Promise: a method that is described and stands in no line of the table cannot be served: `rule_of` raises, and a test
compares the table with the descriptors.
Leaves to `policy`: who has a permission.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from syncpoint.catalog.access.permission_needs import (
    CONSUME,
    Rule,
    account,
    acting,
    all_of,
    cursors,
    detached,
    given_up,
    hot,
    listed,
    of_server,
    on,
    part,
    policy,
    positions,
    project_or_tenant,
    published_again,
    queue,
    schema_attached,
    staged,
    tenant,
    within,
)
from syncpoint.catalog.access.roles import INTERNAL
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.methods import Method, Service

_OPEN, _KNOWN, _INTERNAL = Rule(open=True), Rule(known=True), Rule(internal=True, needs=of_server(INTERNAL))
_TOPIC, _SUBSCRIPTION, _SNAPSHOT, _SCHEMA = "topics", "subscriptions", "snapshots", "schemas"


def _of(service: Service, rules: dict[str, Rule]) -> dict[str, Rule]:
    return {service[name]: rule for name, rule in rules.items()}


def _same(rule: Rule, *services: Iterable[Method]) -> dict[str, Rule]:
    return {path: rule for service in services for path in service}


RULES: Final[dict[str, Rule]] = {
    **_of(
        methods.PUBLISHER,
        {
            "CreateTopic": all_of(
                within("pubsub.topics.create", "name", _TOPIC),
                on("pubsub.schemas.attach", "schema_settings.schema", _SCHEMA, optional=True),
                acting(""),
            ),
            "UpdateTopic": all_of(
                on("pubsub.topics.update", "topic.name", _TOPIC),
                schema_attached,
                acting("topic"),
            ),
            "Publish": hot("pubsub.topics.publish", _TOPIC),
            "GetTopic": all_of(on("pubsub.topics.get", "topic", _TOPIC)),
            "ListTopics": all_of(on("pubsub.topics.list", "project", "projects")),
            "ListTopicSubscriptions": all_of(on("pubsub.topics.get", "topic", _TOPIC)),
            "ListTopicSnapshots": all_of(on("pubsub.topics.get", "topic", _TOPIC)),
            "DeleteTopic": all_of(on("pubsub.topics.delete", "topic", _TOPIC)),
            "DetachSubscription": all_of(detached),
        },
    ),
    **_of(
        methods.SUBSCRIBER,
        {
            "CreateSubscription": all_of(
                within("pubsub.subscriptions.create", "name", _SUBSCRIPTION, ("topic", _TOPIC)),
                on("pubsub.topics.attachSubscription", "topic", _TOPIC),
                given_up(""),
                acting(""),
            ),
            "GetSubscription": all_of(on("pubsub.subscriptions.get", "subscription", _SUBSCRIPTION)),
            "UpdateSubscription": all_of(
                on("pubsub.subscriptions.update", "subscription.name", _SUBSCRIPTION),
                given_up("subscription."),
                acting("subscription"),
            ),
            "ListSubscriptions": all_of(on("pubsub.subscriptions.list", "project", "projects")),
            "DeleteSubscription": all_of(on("pubsub.subscriptions.delete", "subscription", _SUBSCRIPTION)),
            "ModifyAckDeadline": hot(CONSUME, _SUBSCRIPTION),
            "Acknowledge": hot(CONSUME, _SUBSCRIPTION),
            "Pull": hot(CONSUME, _SUBSCRIPTION),
            "StreamingPull": hot(CONSUME, _SUBSCRIPTION),
            "ModifyPushConfig": all_of(on("pubsub.subscriptions.update", "subscription", _SUBSCRIPTION), acting("")),
            "GetSnapshot": all_of(on("pubsub.snapshots.get", "snapshot", _SNAPSHOT)),
            "ListSnapshots": all_of(on("pubsub.snapshots.list", "project", "projects")),
            "CreateSnapshot": all_of(
                within("pubsub.snapshots.create", "name", _SNAPSHOT, ("subscription", _SUBSCRIPTION)),
                on(CONSUME, "subscription", _SUBSCRIPTION),
            ),
            "UpdateSnapshot": all_of(on("pubsub.snapshots.update", "snapshot.name", _SNAPSHOT)),
            "DeleteSnapshot": all_of(on("pubsub.snapshots.delete", "snapshot", _SNAPSHOT)),
            "Seek": all_of(
                on(CONSUME, "subscription", _SUBSCRIPTION),
                on("pubsub.snapshots.seek", "snapshot", _SNAPSHOT, optional=True),
            ),
        },
    ),
    **_of(
        methods.SCHEMAS,
        {
            "CreateSchema": all_of(on("pubsub.schemas.create", "parent", "projects")),
            "GetSchema": all_of(on("pubsub.schemas.get", "name", _SCHEMA)),
            "ListSchemas": all_of(on("pubsub.schemas.list", "parent", "projects")),
            "ListSchemaRevisions": all_of(on("pubsub.schemas.listRevisions", "name", _SCHEMA)),
            "CommitSchema": all_of(on("pubsub.schemas.commit", "name", _SCHEMA)),
            "RollbackSchema": all_of(on("pubsub.schemas.rollback", "name", _SCHEMA)),
            "DeleteSchemaRevision": all_of(on("pubsub.schemas.delete", "name", _SCHEMA)),
            "DeleteSchema": all_of(on("pubsub.schemas.delete", "name", _SCHEMA)),
            "ValidateSchema": all_of(on("pubsub.schemas.validate", "parent", "projects")),
            "ValidateMessage": all_of(
                on("pubsub.schemas.validate", "parent", "projects"),
                on("pubsub.schemas.get", "name", _SCHEMA, optional=True),
            ),
        },
    ),
    **_of(
        methods.IAM,
        {
            "SetIamPolicy": all_of(policy("setIamPolicy")),
            "GetIamPolicy": all_of(policy("getIamPolicy")),
            "TestIamPermissions": _KNOWN,  # it answers callers about themselves alone
        },
    ),
    **_of(
        methods.ADMIN,
        {
            "GetServer": all_of(of_server("syncpoint.server.get")),
            "ListDisks": all_of(of_server("syncpoint.server.get")),
            "GetLimits": all_of(of_server("syncpoint.limits.get")),
            "UpdateLimits": all_of(of_server("syncpoint.limits.update")),
            "GetSubscriptionState": all_of(on("pubsub.subscriptions.get", "subscription", _SUBSCRIPTION)),
            "GetTopicState": all_of(on("pubsub.topics.get", "topic", _TOPIC)),
            "ListSubscriptionClients": all_of(on("pubsub.subscriptions.get", "subscription", _SUBSCRIPTION)),
            "ListTopicPublishers": all_of(on("pubsub.topics.get", "topic", _TOPIC)),
            "UpdateSubscriptionOptions": all_of(
                on("pubsub.subscriptions.update", "options.subscription", _SUBSCRIPTION),
                on("pubsub.topics.publish", "options.forward_to", _TOPIC, optional=True),
            ),
            "GetSubscriptionOptions": all_of(on("pubsub.subscriptions.get", "subscription", _SUBSCRIPTION)),
            "CreateQueue": all_of(
                within("pubsub.topics.create", "topic.name", _TOPIC),
                within("pubsub.subscriptions.create", "topic.name", _TOPIC),
                on("pubsub.schemas.attach", "topic.schema_settings.schema", _SCHEMA, optional=True),
                part("topic", acting("")),
                part("subscription", given_up(""), acting("")),
            ),
            "PeekTopic": all_of(on("syncpoint.topics.read", "topic", _TOPIC)),
            "PreviewSeek": all_of(
                on(CONSUME, "subscription", _SUBSCRIPTION),
                on("pubsub.snapshots.seek", "snapshot", _SNAPSHOT, optional=True),
            ),
            "GetReceipt": all_of(on("syncpoint.topics.read", "topic", _TOPIC)),
            "ListReceiptKeys": _KNOWN,
            "GetAtRisk": all_of(of_server("syncpoint.server.get")),
            "GetMitigation": all_of(of_server("syncpoint.routing.get")),
            "PauseMitigation": all_of(of_server("syncpoint.routing.drain")),
            "ResumeMitigation": all_of(of_server("syncpoint.routing.drain")),
            "GetHeadroom": all_of(of_server("syncpoint.server.get")),
            "PeekSubscription": all_of(on("syncpoint.subscriptions.read", "subscription", _SUBSCRIPTION)),
            "ListScheduledMessages": all_of(on("syncpoint.topics.read", "topic", _TOPIC)),
            "GetScheduledMessage": all_of(on("syncpoint.topics.read", "topic", _TOPIC)),
            "CancelScheduledMessage": all_of(on("pubsub.topics.publish", "topic", _TOPIC)),
            "GetQueue": queue("get"),
            "DeleteQueue": queue("delete"),
            "ListQueues": all_of(
                on("pubsub.topics.list", "project", "projects"),
                on("pubsub.subscriptions.list", "project", "projects"),
            ),
            "CreateRule": all_of(on("pubsub.subscriptions.update", "subscription", _SUBSCRIPTION)),
            "UpdateRule": all_of(on("pubsub.subscriptions.update", "subscription", _SUBSCRIPTION)),
            "ListRules": all_of(on("pubsub.subscriptions.get", "subscription", _SUBSCRIPTION)),
            "DeleteRule": all_of(on("pubsub.subscriptions.update", "subscription", _SUBSCRIPTION)),
            "TestRule": all_of(on("pubsub.subscriptions.get", "subscription", _SUBSCRIPTION)),
            "DeadLetterMessages": all_of(on(CONSUME, "subscription", _SUBSCRIPTION)),
            "ListDeadLetters": all_of(on("syncpoint.subscriptions.read", "selection.subscription", _SUBSCRIPTION)),
            "RedriveDeadLetters": all_of(on(CONSUME, "selection.subscription", _SUBSCRIPTION), published_again),
            "ListMembers": all_of(of_server("syncpoint.server.get")),
            "ListChains": all_of(of_server("syncpoint.server.get")),
            "ListDurabilityClasses": all_of(of_server("syncpoint.server.get")),
            "CreateDurabilityClass": all_of(of_server("syncpoint.server.update")),
            "GetTopicOptions": all_of(on("pubsub.topics.get", "topic", _TOPIC)),
            "UpdateTopicOptions": all_of(
                on("pubsub.topics.update", "options.topic", _TOPIC),
                on("pubsub.topics.publish", "options.records_topic", _TOPIC, optional=True),
            ),
            "CreateConstraint": all_of(of_server("syncpoint.routing.update")),
            "ListConstraints": all_of(of_server("syncpoint.routing.get")),
            "DeleteConstraint": all_of(of_server("syncpoint.routing.update")),
            "TestConstraint": all_of(of_server("syncpoint.routing.get")),
            "QueryHistory": all_of(of_server("syncpoint.server.get")),
            "ListSlis": all_of(of_server("syncpoint.server.get")),
            "ListSlos": all_of(of_server("syncpoint.server.get")),
            "GetSlaReport": all_of(of_server("syncpoint.server.get")),
            "ListAlerts": all_of(of_server("syncpoint.server.get")),
            "AcknowledgeAlert": all_of(of_server("syncpoint.server.update")),
            "CreateSilence": all_of(of_server("syncpoint.server.update")),
            "ListSilences": all_of(of_server("syncpoint.server.get")),
            "DeleteSilence": all_of(of_server("syncpoint.server.update")),
            "GetOnCall": all_of(of_server("syncpoint.server.get")),
            "ListProbers": all_of(of_server("syncpoint.server.get")),
            "ListOwnerships": all_of(of_server("syncpoint.server.get")),
            "GetRollout": all_of(of_server("syncpoint.server.get")),
            "AbortRollout": all_of(of_server("syncpoint.server.update")),
            "Drain": all_of(of_server("syncpoint.routing.drain")),
            "GetDrain": all_of(of_server("syncpoint.routing.get")),
            "ListDrains": all_of(of_server("syncpoint.routing.get")),
            "Undrain": all_of(of_server("syncpoint.routing.drain")),
            "CreateTenant": all_of(of_server("syncpoint.tenants.create")),
            "GetTenant": all_of(tenant("syncpoint.tenants.get", "name")),
            "ListTenants": all_of(of_server("syncpoint.tenants.list")),
            "UpdateTenant": all_of(of_server("syncpoint.tenants.update")),
            "DeleteTenant": all_of(of_server("syncpoint.tenants.delete")),
            "UpdateProjectQuota": all_of(tenant("syncpoint.tenants.setQuotas", "tenant")),
            "GetTenantMetrics": all_of(tenant("syncpoint.tenants.readMetrics", "name")),
            "HoldFederation": all_of(on("syncpoint.federations.hold", "project", "projects")),
            "GetFederation": all_of(on("syncpoint.federations.get", "project", "projects")),
            "PutFederationState": all_of(on("syncpoint.federations.hold", "project", "projects")),
            "GetEffectivePolicy": all_of(tenant("syncpoint.tenants.get", "tenant", optional=True)),
            "ListDisasterClasses": _KNOWN,
            "SetDisasterClass": all_of(tenant("syncpoint.tenants.setClass", "tenant", optional=True)),
            "ListClassedProjects": all_of(of_server("syncpoint.tenants.list")),
            "GetProject": all_of(project_or_tenant("syncpoint.projects.get", "syncpoint.tenants.get", "project")),
            "RecordDrill": all_of(on("syncpoint.projects.drill", "drill.project", "projects")),
            "GetDrill": all_of(on("syncpoint.projects.get", "project", "projects")),
            "ListDrills": all_of(on("syncpoint.projects.get", "project", "projects")),
            "AbortDrill": all_of(on("syncpoint.projects.drill", "project", "projects")),
            "ReportReconciliation": all_of(on("syncpoint.projects.report", "project", "projects")),
        },
    ),
    **_of(
        methods.LOG_READER,
        {
            "GetPositions": Rule(needs=positions),
            "ReadRange": all_of(
                on("syncpoint.topics.read", "topic", _TOPIC),
                on("syncpoint.subscriptions.read", "skip_subscription", _SUBSCRIPTION, optional=True),
                on("pubsub.snapshots.seek", "skip_snapshot", _SNAPSHOT, optional=True),
            ),
            "ListCursors": Rule(needs=cursors),
            "DeleteCursor": all_of(on("syncpoint.topics.deleteCursor", "topic", _TOPIC)),
            "ReleaseSubscription": all_of(on(CONSUME, "subscription", _SUBSCRIPTION)),
        },
    ),
    **_of(
        methods.EPOCH_WRITER,
        {
            "Stage": Rule(needs=staged, each=True),
            "CommitEpoch": all_of(
                of_server("syncpoint.epochs.write"), on("syncpoint.topics.write", "topic", _TOPIC, optional=True)
            ),
            "AbortEpoch": all_of(of_server("syncpoint.epochs.write")),
            "ListLinks": all_of(of_server("syncpoint.epochs.list")),
            "AcceptGap": all_of(of_server("syncpoint.epochs.write")),
            "MapOffsets": all_of(of_server("syncpoint.epochs.list")),
        },
    ),
    **_of(
        methods.ACK_EXCHANGE,
        dict.fromkeys(
            ("AckChanges", "MergeAcks", "FollowSeek", "FollowSnapshot", "SetHome"),
            all_of(on("syncpoint.subscriptions.exchangeAcks", "subscription", _SUBSCRIPTION)),
        ),
    ),
    **_of(
        methods.ACCOUNTS,
        {
            "CreateServiceAccount": all_of(on("iam.serviceAccounts.create", "project", "projects")),
            "ListServiceAccounts": all_of(listed),
            "DeleteServiceAccount": all_of(account("iam.serviceAccounts.delete")),
            "AddServiceAccountKey": all_of(account("iam.serviceAccountKeys.create")),
            "ListServiceAccountKeys": all_of(account("iam.serviceAccountKeys.list")),
            "DeleteServiceAccountKey": all_of(account("iam.serviceAccountKeys.delete")),
        },
    ),
    **_same(_OPEN, methods.HEALTH),  # load balancers have no identity
    **_same(_KNOWN, methods.REFLECTION, methods.REFLECTION_ALPHA),
    **_same(
        _INTERNAL,
        methods.CHAINS,
        methods.CONSUMPTION,
        methods.DELIVERIES,
        methods.METADATA,
        methods.PROCESS,
        methods.ROUTER,
    ),
}


def rule_of(path: str) -> Rule:
    """The rule of a method. Raises `KeyError` when there is none: it must not be served."""
    return RULES[path]
