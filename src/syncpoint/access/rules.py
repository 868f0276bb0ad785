"""What each method asks of its caller: one table from the paths of methods to permissions on what the request names.

Place: read by `gate` for every call. The names are those in the request itself; headers that repeat them mean nothing.
Promise: a method that is described and stands in no line of the table cannot be served: `rule_of` raises, and a test
compares the table with the descriptors.
Leaves to `policy`: who has a permission.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

from syncpoint.access.accounts import find_account
from syncpoint.access.roles import INTERNAL
from syncpoint.metadata.catalog import Catalog
from syncpoint.model.errors import InvalidArgument
from syncpoint.model.names import (
    parse_project,
    parse_schema,
    parse_snapshot,
    parse_subscription,
    parse_topic,
    project_of,
    queue_subscription,
)
from syncpoint.wire import methods
from syncpoint.wire.methods import Method, Service

SERVER: Final = "server"
"""The resource above all projects."""

_COLLECTIONS: Final[dict[str, Callable[[str], str]]] = {
    "topics": parse_topic,
    "subscriptions": parse_subscription,
    "snapshots": parse_snapshot,
    "schemas": lambda name: parse_schema(name.partition("@")[0]),
}
_PARSERS: Final = {**_COLLECTIONS, "projects": parse_project}


class Need(NamedTuple):
    """A permission on a resource: `projects/P`, `projects/P/topics/T` and so on, or SERVER. `named`: what the request
    says, where the resource was looked up by it and would show who is refused what there is."""

    permission: str
    resource: str
    named: str = ""


Needs = Callable[[Any, Catalog], Iterable[Need]]


@dataclass(frozen=True, slots=True)
class Rule:
    """What one method asks for. `open`: of nobody anything; `known`: only that the caller is known.

    `needs`: of a request. `hot`: the one permission of a method that is called all the time, on what field 1 of the
    request names, of that collection. `each`: every message of a stream is a request of its own, not just the first.
    """

    open: bool = False
    known: bool = False
    internal: bool = False
    needs: Needs | None = None
    hot: tuple[str, str] | None = None
    each: bool = False


def resource(collection: str, name: str) -> str:
    """A name as the resource that grants are made on: of a schema without its revision. Raises `InvalidArgument`."""
    return _PARSERS[collection](name)


def any_resource(name: str) -> tuple[str, str]:
    """(collection, resource) of anything that has a policy. Raises `InvalidArgument`."""
    if name == SERVER:
        return SERVER, SERVER
    parts = name.split("/")
    if len(parts) == 2:
        return "projects", parse_project(name)
    if len(parts) == 4 and parts[2] in _COLLECTIONS:
        return parts[2], resource(parts[2], name)
    raise InvalidArgument("resource", f"Invalid resource name: (name={name})")


def rule_of(path: str) -> Rule:
    """The rule of a method. Raises `KeyError` when there is none: it must not be served."""
    return RULES[path]


# -- how needs are written ---------------------------------------------------------------------------------------------


def _value(request: Any, field: str) -> str:
    return str(_at(field)(request))


_at = cache(attrgetter)


def _on(permission: str, field: str, collection: str, *, optional: bool = False) -> Needs:
    """The permission on what a field names."""
    value, parse = attrgetter(field), _PARSERS[collection]

    def needs(request: Any, catalog: Catalog) -> Iterable[Need]:
        name = value(request)
        return (Need(permission, parse(name)),) if name or not optional else ()

    return needs


def _in(permission: str, field: str, collection: str, sibling: tuple[str, str] | None = None) -> Needs:
    """The permission on the project of what a field names; `sibling`: the field, and its collection, that says which
    project when the name is left to the server."""

    def needs(request: Any, catalog: Catalog) -> Iterator[Need]:
        name = _value(request, field)
        if name or sibling is None:
            yield Need(permission, project_of(resource(collection, name)))
        else:
            yield Need(permission, project_of(resource(sibling[1], _value(request, sibling[0]))))

    return needs


def _server(permission: str) -> Needs:
    def needs(request: Any, catalog: Catalog) -> Iterator[Need]:
        yield Need(permission, SERVER)

    return needs


def _all(*parts: Needs) -> Rule:
    def needs(request: Any, catalog: Catalog) -> Iterable[Need]:
        found: list[Need] = []
        for part in parts:
            found += part(request, catalog)
        return found

    return Rule(needs=parts[0] if len(parts) == 1 else needs)


def _hot(permission: str, collection: str) -> Rule:
    return Rule(hot=(permission, collection))


def _part(field: str, *needs: Needs) -> Needs:
    """What a message inside a request asks for."""

    def inside(request: Any, catalog: Catalog) -> Iterator[Need]:
        for one in needs:
            yield from one(getattr(request, field), catalog)

    return inside


def _queue(verb: str) -> Rule:
    """The same of both parts of a queue, which is named by its topic."""

    def needs(request: Any, catalog: Catalog) -> Iterator[Need]:
        name = parse_topic(request.topic)
        yield Need(f"pubsub.topics.{verb}", name)
        yield Need(f"pubsub.subscriptions.{verb}", queue_subscription(name))

    return Rule(needs=needs)


_ACTING: Final = {
    "push_config": ("oidc_token.service_account_email",),
    "bigquery_config": ("service_account_email",),
    "cloud_storage_config": ("service_account_email",),
    "bigtable_config": ("service_account_email",),
    "ingestion_data_source_settings": tuple(
        f"{source}.gcp_service_account" for source in ("aws_kinesis", "azure_event_hubs", "aws_msk", "confluent_cloud")
    ),
    "message_transforms": ("ai_inference.service_account_email",),
}
"""Settings under which the server acts as a service account, and where its address stands in them."""


def _accounts_in(message: Any, settings: Container[str]) -> set[str]:
    found = set()
    for field, value in message.ListFields():
        if field.name in settings:
            each = value if field.is_repeated else (value,)
            found |= {_value(one, path) for one in each for path in _ACTING.get(field.name, ())}
    return found


def _for_account(permission: str, email: str, catalog: Catalog) -> Need:
    """Asked of the account's project; of the server when there is no such account, so that the answer does not give it
    away."""
    account = find_account(catalog, email)
    return Need(permission, SERVER if account is None else account.project, f"projects/-/serviceAccounts/{email}")


def _acting(prefix: str) -> Needs:
    """To let pushes, exports and sources carry the identity of a service account one must be allowed to act as it; also
    to change a part of how they are made, and leave them that identity: where they go, for instance.
    """

    def needs(request: Any, catalog: Catalog) -> Iterable[Need]:
        asked = getattr(request, prefix) if prefix else request
        emails = _accounts_in(asked, _ACTING)
        # Of a slice: to iterate over the field itself takes twice as long.
        if prefix and (parts := [path for path in request.update_mask.paths[:] if "." in path]):
            changed = {path.partition(".")[0] for path in parts}
            record = catalog.topic(asked.name) if prefix == "topic" else catalog.subscription(asked.name)
            if record is not None and record.config:
                emails |= _accounts_in(type(asked).FromString(record.config), changed)
        if not emails:
            return ()
        return [_for_account("iam.serviceAccounts.actAs", email, catalog) for email in sorted(emails) if email]

    return needs


def _given_up(prefix: str) -> Needs:
    """What a subscription gives up is published: whoever says where must be allowed to publish there."""
    return _on("pubsub.topics.publish", f"{prefix}dead_letter_policy.dead_letter_topic", "topics", optional=True)


def _detached(request: Any, catalog: Catalog) -> Iterator[Need]:
    """Asked of the topic, which need not be in the project of the subscription; of the subscription once that topic is
    gone, and when there is none, so that the answer does not give it away."""
    name = parse_subscription(request.subscription)
    record = catalog.subscription(name)
    topic = None if record is None else catalog.topic_of(record)
    yield Need("pubsub.topics.detachSubscription", name if topic is None else topic.name, name)


def _schema_attached(request: Any, catalog: Catalog) -> Iterator[Need]:
    """Whoever sets a topic's schema must be allowed to use it; a topic that is sent whole to change other things names
    one, too, perhaps one that is deleted."""
    if any(path in ("schema_settings", "schema_settings.schema") for path in request.update_mask.paths):
        yield from _on("pubsub.schemas.attach", "topic.schema_settings.schema", _SCHEMA, optional=True)(
            request, catalog
        )


def _positions(request: Any, catalog: Catalog) -> Iterator[Need]:
    if not request.topic and not request.subscription:
        raise InvalidArgument("topic", "name a topic or a subscription")
    if request.topic:
        yield Need("syncpoint.topics.read", parse_topic(request.topic))
    if request.subscription:
        name = parse_subscription(request.subscription)
        yield Need("syncpoint.subscriptions.read", name)
        yield Need(_CONSUME, name)  # what was processed is acknowledged by the same call
        record = catalog.subscription(name)
        if not request.topic and record is not None and (topic := catalog.topic_of(record)) is not None:
            yield Need("syncpoint.topics.read", topic.name, name)
    if request.snapshot:
        yield Need("pubsub.snapshots.seek", parse_snapshot(request.snapshot))


def _cursors(request: Any, catalog: Catalog) -> Iterator[Need]:
    if request.topic:
        yield Need("syncpoint.topics.listCursors", parse_topic(request.topic))
    else:
        yield Need("syncpoint.topics.listCursors", parse_project(request.project) if request.project else SERVER)


def _staged(request: Any, catalog: Catalog) -> Iterator[Need]:
    if request.WhichOneof("what") == "frame":
        yield Need("syncpoint.topics.write", parse_topic(request.frame.topic))
    else:
        yield Need("syncpoint.epochs.write", SERVER)


def _published_again(request: Any, catalog: Catalog) -> Iterator[Need]:
    """Asked of the topic that letters go to: the one that is named, or that they came from. Where there is none it is
    asked of the subscription, so that the answer does not give it away."""
    if request.topic:
        yield Need("pubsub.topics.publish", parse_topic(request.topic))
    elif request.selection.source:
        name = parse_subscription(request.selection.source)
        record = catalog.subscription(name)
        topic = None if record is None else catalog.topic_of(record)
        yield Need("pubsub.topics.publish", name if topic is None else topic.name, name)


def _policy(verb: str) -> Needs:
    def needs(request: Any, catalog: Catalog) -> Iterator[Need]:
        collection, name = any_resource(request.resource)
        if collection in ("projects", SERVER):
            yield Need(f"resourcemanager.projects.{verb}", name)
        else:
            yield Need(f"pubsub.{collection}.{verb}", name)

    return needs


def _account(permission: str) -> Needs:
    def needs(request: Any, catalog: Catalog) -> Iterator[Need]:
        yield _for_account(permission, _value(request, "email"), catalog)

    return needs


# -- the table ---------------------------------------------------------------------------------------------------------

_OPEN, _KNOWN, _INTERNAL = Rule(open=True), Rule(known=True), Rule(internal=True, needs=_server(INTERNAL))
_TOPIC, _SUBSCRIPTION, _SNAPSHOT, _SCHEMA = "topics", "subscriptions", "snapshots", "schemas"
_CONSUME = "pubsub.subscriptions.consume"


def _of(service: Service, rules: dict[str, Rule]) -> dict[str, Rule]:
    return {service[name]: rule for name, rule in rules.items()}


def _same(rule: Rule, *services: Iterable[Method]) -> dict[str, Rule]:
    return {path: rule for service in services for path in service}


RULES: Final[dict[str, Rule]] = {
    **_of(
        methods.PUBLISHER,
        {
            "CreateTopic": _all(
                _in("pubsub.topics.create", "name", _TOPIC),
                _on("pubsub.schemas.attach", "schema_settings.schema", _SCHEMA, optional=True),
                _acting(""),
            ),
            "UpdateTopic": _all(
                _on("pubsub.topics.update", "topic.name", _TOPIC),
                _schema_attached,
                _acting("topic"),
            ),
            "Publish": _hot("pubsub.topics.publish", _TOPIC),
            "GetTopic": _all(_on("pubsub.topics.get", "topic", _TOPIC)),
            "ListTopics": _all(_on("pubsub.topics.list", "project", "projects")),
            "ListTopicSubscriptions": _all(_on("pubsub.topics.get", "topic", _TOPIC)),
            "ListTopicSnapshots": _all(_on("pubsub.topics.get", "topic", _TOPIC)),
            "DeleteTopic": _all(_on("pubsub.topics.delete", "topic", _TOPIC)),
            "DetachSubscription": _all(_detached),
        },
    ),
    **_of(
        methods.SUBSCRIBER,
        {
            "CreateSubscription": _all(
                _in("pubsub.subscriptions.create", "name", _SUBSCRIPTION, ("topic", _TOPIC)),
                _on("pubsub.topics.attachSubscription", "topic", _TOPIC),
                _given_up(""),
                _acting(""),
            ),
            "GetSubscription": _all(_on("pubsub.subscriptions.get", "subscription", _SUBSCRIPTION)),
            "UpdateSubscription": _all(
                _on("pubsub.subscriptions.update", "subscription.name", _SUBSCRIPTION),
                _given_up("subscription."),
                _acting("subscription"),
            ),
            "ListSubscriptions": _all(_on("pubsub.subscriptions.list", "project", "projects")),
            "DeleteSubscription": _all(_on("pubsub.subscriptions.delete", "subscription", _SUBSCRIPTION)),
            "ModifyAckDeadline": _hot(_CONSUME, _SUBSCRIPTION),
            "Acknowledge": _hot(_CONSUME, _SUBSCRIPTION),
            "Pull": _hot(_CONSUME, _SUBSCRIPTION),
            "StreamingPull": _hot(_CONSUME, _SUBSCRIPTION),
            "ModifyPushConfig": _all(_on("pubsub.subscriptions.update", "subscription", _SUBSCRIPTION), _acting("")),
            "GetSnapshot": _all(_on("pubsub.snapshots.get", "snapshot", _SNAPSHOT)),
            "ListSnapshots": _all(_on("pubsub.snapshots.list", "project", "projects")),
            "CreateSnapshot": _all(
                _in("pubsub.snapshots.create", "name", _SNAPSHOT, ("subscription", _SUBSCRIPTION)),
                _on(_CONSUME, "subscription", _SUBSCRIPTION),
            ),
            "UpdateSnapshot": _all(_on("pubsub.snapshots.update", "snapshot.name", _SNAPSHOT)),
            "DeleteSnapshot": _all(_on("pubsub.snapshots.delete", "snapshot", _SNAPSHOT)),
            "Seek": _all(
                _on(_CONSUME, "subscription", _SUBSCRIPTION),
                _on("pubsub.snapshots.seek", "snapshot", _SNAPSHOT, optional=True),
            ),
        },
    ),
    **_of(
        methods.SCHEMAS,
        {
            "CreateSchema": _all(_on("pubsub.schemas.create", "parent", "projects")),
            "GetSchema": _all(_on("pubsub.schemas.get", "name", _SCHEMA)),
            "ListSchemas": _all(_on("pubsub.schemas.list", "parent", "projects")),
            "ListSchemaRevisions": _all(_on("pubsub.schemas.listRevisions", "name", _SCHEMA)),
            "CommitSchema": _all(_on("pubsub.schemas.commit", "name", _SCHEMA)),
            "RollbackSchema": _all(_on("pubsub.schemas.rollback", "name", _SCHEMA)),
            "DeleteSchemaRevision": _all(_on("pubsub.schemas.delete", "name", _SCHEMA)),
            "DeleteSchema": _all(_on("pubsub.schemas.delete", "name", _SCHEMA)),
            "ValidateSchema": _all(_on("pubsub.schemas.validate", "parent", "projects")),
            "ValidateMessage": _all(
                _on("pubsub.schemas.validate", "parent", "projects"),
                _on("pubsub.schemas.get", "name", _SCHEMA, optional=True),
            ),
        },
    ),
    **_of(
        methods.IAM,
        {
            "SetIamPolicy": _all(_policy("setIamPolicy")),
            "GetIamPolicy": _all(_policy("getIamPolicy")),
            "TestIamPermissions": _KNOWN,  # it answers callers about themselves alone
        },
    ),
    **_of(
        methods.ADMIN,
        {
            "GetServer": _all(_server("syncpoint.server.get")),
            "ListDisks": _all(_server("syncpoint.server.get")),
            "GetLimits": _all(_server("syncpoint.limits.get")),
            "UpdateLimits": _all(_server("syncpoint.limits.update")),
            "GetSubscriptionState": _all(_on("pubsub.subscriptions.get", "subscription", _SUBSCRIPTION)),
            "GetTopicState": _all(_on("pubsub.topics.get", "topic", _TOPIC)),
            "ListSubscriptionClients": _all(_on("pubsub.subscriptions.get", "subscription", _SUBSCRIPTION)),
            "ListTopicPublishers": _all(_on("pubsub.topics.get", "topic", _TOPIC)),
            "UpdateSubscriptionOptions": _all(
                _on("pubsub.subscriptions.update", "options.subscription", _SUBSCRIPTION),
                _on("pubsub.topics.publish", "options.forward_to", _TOPIC, optional=True),
            ),
            "GetSubscriptionOptions": _all(_on("pubsub.subscriptions.get", "subscription", _SUBSCRIPTION)),
            "CreateQueue": _all(
                _in("pubsub.topics.create", "topic.name", _TOPIC),
                _in("pubsub.subscriptions.create", "topic.name", _TOPIC),
                _on("pubsub.schemas.attach", "topic.schema_settings.schema", _SCHEMA, optional=True),
                _part("topic", _acting("")),
                _part("subscription", _given_up(""), _acting("")),
            ),
            "PeekTopic": _all(_on("syncpoint.topics.read", "topic", _TOPIC)),
            "PreviewSeek": _all(
                _on(_CONSUME, "subscription", _SUBSCRIPTION),
                _on("pubsub.snapshots.seek", "snapshot", _SNAPSHOT, optional=True),
            ),
            "GetReceipt": _all(_on("syncpoint.topics.read", "topic", _TOPIC)),
            "GetAtRisk": _all(_server("syncpoint.server.get")),
            "GetMitigation": _all(_server("syncpoint.routing.get")),
            "PauseMitigation": _all(_server("syncpoint.routing.drain")),
            "ResumeMitigation": _all(_server("syncpoint.routing.drain")),
            "GetHeadroom": _all(_server("syncpoint.server.get")),
            "PeekSubscription": _all(_on("syncpoint.subscriptions.read", "subscription", _SUBSCRIPTION)),
            "ListScheduledMessages": _all(_on("syncpoint.topics.read", "topic", _TOPIC)),
            "GetScheduledMessage": _all(_on("syncpoint.topics.read", "topic", _TOPIC)),
            "CancelScheduledMessage": _all(_on("pubsub.topics.publish", "topic", _TOPIC)),
            "GetQueue": _queue("get"),
            "DeleteQueue": _queue("delete"),
            "ListQueues": _all(
                _on("pubsub.topics.list", "project", "projects"),
                _on("pubsub.subscriptions.list", "project", "projects"),
            ),
            "CreateRule": _all(_on("pubsub.subscriptions.update", "subscription", _SUBSCRIPTION)),
            "UpdateRule": _all(_on("pubsub.subscriptions.update", "subscription", _SUBSCRIPTION)),
            "ListRules": _all(_on("pubsub.subscriptions.get", "subscription", _SUBSCRIPTION)),
            "DeleteRule": _all(_on("pubsub.subscriptions.update", "subscription", _SUBSCRIPTION)),
            "TestRule": _all(_on("pubsub.subscriptions.get", "subscription", _SUBSCRIPTION)),
            "DeadLetterMessages": _all(_on(_CONSUME, "subscription", _SUBSCRIPTION)),
            "ListDeadLetters": _all(_on("syncpoint.subscriptions.read", "selection.subscription", _SUBSCRIPTION)),
            "RedriveDeadLetters": _all(_on(_CONSUME, "selection.subscription", _SUBSCRIPTION), _published_again),
            "ListMembers": _all(_server("syncpoint.server.get")),
            "ListChains": _all(_server("syncpoint.server.get")),
            "ListDurabilityClasses": _all(_server("syncpoint.server.get")),
            "CreateDurabilityClass": _all(_server("syncpoint.server.update")),
            "GetTopicOptions": _all(_on("pubsub.topics.get", "topic", _TOPIC)),
            "UpdateTopicOptions": _all(
                _on("pubsub.topics.update", "options.topic", _TOPIC),
                _on("pubsub.topics.publish", "options.records_topic", _TOPIC, optional=True),
            ),
            "CreateConstraint": _all(_server("syncpoint.routing.update")),
            "ListConstraints": _all(_server("syncpoint.routing.get")),
            "DeleteConstraint": _all(_server("syncpoint.routing.update")),
            "TestConstraint": _all(_server("syncpoint.routing.get")),
            "QueryHistory": _all(_server("syncpoint.server.get")),
            "ListSlis": _all(_server("syncpoint.server.get")),
            "ListSlos": _all(_server("syncpoint.server.get")),
            "GetSlaReport": _all(_server("syncpoint.server.get")),
            "ListAlerts": _all(_server("syncpoint.server.get")),
            "AcknowledgeAlert": _all(_server("syncpoint.server.update")),
            "CreateSilence": _all(_server("syncpoint.server.update")),
            "ListSilences": _all(_server("syncpoint.server.get")),
            "DeleteSilence": _all(_server("syncpoint.server.update")),
            "GetOnCall": _all(_server("syncpoint.server.get")),
            "ListProbers": _all(_server("syncpoint.server.get")),
            "ListOwnerships": _all(_server("syncpoint.server.get")),
            "GetRollout": _all(_server("syncpoint.server.get")),
            "AbortRollout": _all(_server("syncpoint.server.update")),
            "Drain": _all(_server("syncpoint.routing.drain")),
            "GetDrain": _all(_server("syncpoint.routing.get")),
            "ListDrains": _all(_server("syncpoint.routing.get")),
            "Undrain": _all(_server("syncpoint.routing.drain")),
        },
    ),
    **_of(
        methods.LOG_READER,
        {
            "GetPositions": Rule(needs=_positions),
            "ReadRange": _all(
                _on("syncpoint.topics.read", "topic", _TOPIC),
                _on("syncpoint.subscriptions.read", "skip_subscription", _SUBSCRIPTION, optional=True),
                _on("pubsub.snapshots.seek", "skip_snapshot", _SNAPSHOT, optional=True),
            ),
            "ListCursors": Rule(needs=_cursors),
            "DeleteCursor": _all(_on("syncpoint.topics.deleteCursor", "topic", _TOPIC)),
            "ReleaseSubscription": _all(_on(_CONSUME, "subscription", _SUBSCRIPTION)),
        },
    ),
    **_of(
        methods.EPOCH_WRITER,
        {
            "Stage": Rule(needs=_staged, each=True),
            "CommitEpoch": _all(
                _server("syncpoint.epochs.write"), _on("syncpoint.topics.write", "topic", _TOPIC, optional=True)
            ),
            "AbortEpoch": _all(_server("syncpoint.epochs.write")),
            "ListLinks": _all(_server("syncpoint.epochs.list")),
            "AcceptGap": _all(_server("syncpoint.epochs.write")),
            "MapOffsets": _all(_server("syncpoint.epochs.list")),
        },
    ),
    **_of(
        methods.ACCOUNTS,
        {
            "CreateServiceAccount": _all(_on("iam.serviceAccounts.create", "project", "projects")),
            "ListServiceAccounts": _all(_on("iam.serviceAccounts.list", "project", "projects")),
            "DeleteServiceAccount": _all(_account("iam.serviceAccounts.delete")),
            "AddServiceAccountKey": _all(_account("iam.serviceAccountKeys.create")),
            "ListServiceAccountKeys": _all(_account("iam.serviceAccountKeys.list")),
            "DeleteServiceAccountKey": _all(_account("iam.serviceAccountKeys.delete")),
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
