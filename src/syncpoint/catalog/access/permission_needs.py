"""How it is written what a method asks of its caller: permissions on what a request names.

Place: under `rules`, whose table is made of these; `resource` and `any_resource` also read names for `policy`.
Promise: what is needed follows from the request and the catalog alone; a name that is none is refused as such.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.names import (
    parse_project,
    parse_schema,
    parse_snapshot,
    parse_subscription,
    parse_topic,
    project_of,
    queue_subscription,
)
from syncpoint.catalog.access.accounts import find_account
from syncpoint.catalog.access.tenant_book import RESOURCE, parse_tenant
from syncpoint.catalog.access.tenant_book import SERVER as SERVER
from syncpoint.catalog.metadata.catalog import Catalog

CONSUME: Final = "pubsub.subscriptions.consume"

_COLLECTIONS: Final[dict[str, Callable[[str], str]]] = {
    "topics": parse_topic,
    "subscriptions": parse_subscription,
    "snapshots": parse_snapshot,
    "schemas": lambda name: parse_schema(name.partition("@")[0]),
}
_PARSERS: Final = {**_COLLECTIONS, "projects": parse_project}


class Need(NamedTuple):
    """A permission on a resource: `projects/P`, `projects/P/topics/T` and so on, or SERVER. `named`: what the request
    names, where the resource was looked up by it and would show who is refused what there is."""

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


def _value(request: Any, field: str) -> str:
    return str(_at(field)(request))


_at = cache(attrgetter)


def on(permission: str, field: str, collection: str, *, optional: bool = False) -> Needs:
    """The permission on what a field names."""
    value, parse = attrgetter(field), _PARSERS[collection]

    def needs(request: Any, catalog: Catalog) -> Iterable[Need]:
        name = value(request)
        return (Need(permission, parse(name)),) if name or not optional else ()

    return needs


def within(permission: str, field: str, collection: str, sibling: tuple[str, str] | None = None) -> Needs:
    """The permission on the project of what a field names; `sibling`: the field, and its collection, that determines
    which project when the name is left to the server."""

    def needs(request: Any, catalog: Catalog) -> Iterator[Need]:
        name = _value(request, field)
        if name or sibling is None:
            yield Need(permission, project_of(resource(collection, name)))
        else:
            yield Need(permission, project_of(resource(sibling[1], _value(request, sibling[0]))))

    return needs


def of_server(permission: str) -> Needs:
    def needs(request: Any, catalog: Catalog) -> Iterator[Need]:
        yield Need(permission, SERVER)

    return needs


def all_of(*parts: Needs) -> Rule:
    def needs(request: Any, catalog: Catalog) -> Iterable[Need]:
        found: list[Need] = []
        for part in parts:
            found += part(request, catalog)
        return found

    return Rule(needs=parts[0] if len(parts) == 1 else needs)


def hot(permission: str, collection: str) -> Rule:
    return Rule(hot=(permission, collection))


def part(field: str, *needs: Needs) -> Needs:
    """What a message inside a request asks for."""

    def inside(request: Any, catalog: Catalog) -> Iterator[Need]:
        for one in needs:
            yield from one(getattr(request, field), catalog)

    return inside


def queue(verb: str) -> Rule:
    """Build a rule that requires the permission on both the topic and the subscription of a queue."""

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


def acting(prefix: str) -> Needs:
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
        return acting_needs(sorted(emails), catalog) if emails else ()

    return needs


def acting_needs(emails: Iterable[str], catalog: Catalog) -> list[Need]:
    """To act as these accounts; an empty address is none."""
    return [_for_account("iam.serviceAccounts.actAs", email, catalog) for email in emails if email]


def given_up(prefix: str) -> Needs:
    """What a subscription gives up is published: the caller who sets where must be allowed to publish there."""
    return on("pubsub.topics.publish", f"{prefix}dead_letter_policy.dead_letter_topic", "topics", optional=True)


def detached(request: Any, catalog: Catalog) -> Iterator[Need]:
    """Asked of the topic, which need not be in the project of the subscription; of the subscription once that topic is
    gone, and when there is none, so that the answer does not give it away."""
    name = parse_subscription(request.subscription)
    record = catalog.subscription(name)
    topic = None if record is None else catalog.topic_of(record)
    yield Need("pubsub.topics.detachSubscription", name if topic is None else topic.name, name)


def schema_attached(request: Any, catalog: Catalog) -> Iterator[Need]:
    """A caller who sets a topic's schema must be allowed to use it; a topic that is sent whole to change other things
    names one, too, perhaps one that is deleted."""
    if any(path in ("schema_settings", "schema_settings.schema") for path in request.update_mask.paths):
        yield from on("pubsub.schemas.attach", "topic.schema_settings.schema", "schemas", optional=True)(
            request, catalog
        )


def positions(request: Any, catalog: Catalog) -> Iterator[Need]:
    if not request.topic and not request.subscription:
        raise InvalidArgument("topic", "exactly one of topic and subscription must be set")
    if request.topic:
        yield Need("syncpoint.topics.read", parse_topic(request.topic))
    if request.subscription:
        name = parse_subscription(request.subscription)
        yield Need("syncpoint.subscriptions.read", name)
        yield Need(CONSUME, name)  # what was processed is acknowledged by the same call
        record = catalog.subscription(name)
        if not request.topic and record is not None and (topic := catalog.topic_of(record)) is not None:
            yield Need("syncpoint.topics.read", topic.name, name)
    if request.snapshot:
        yield Need("pubsub.snapshots.seek", parse_snapshot(request.snapshot))


def cursors(request: Any, catalog: Catalog) -> Iterator[Need]:
    if request.topic:
        yield Need("syncpoint.topics.listCursors", parse_topic(request.topic))
    else:
        yield Need("syncpoint.topics.listCursors", parse_project(request.project) if request.project else SERVER)


def staged(request: Any, catalog: Catalog) -> Iterator[Need]:
    if request.WhichOneof("what") == "frame":
        yield Need("syncpoint.topics.write", parse_topic(request.frame.topic))
    else:
        yield Need("syncpoint.epochs.write", SERVER)


def published_again(request: Any, catalog: Catalog) -> Iterator[Need]:
    """Asked of the topic that letters go to: the one that is named, or that they came from. Where there is none it is
    asked of the subscription, so that the answer does not give it away."""
    if request.topic:
        yield Need("pubsub.topics.publish", parse_topic(request.topic))
    elif request.selection.source:
        name = parse_subscription(request.selection.source)
        record = catalog.subscription(name)
        topic = None if record is None else catalog.topic_of(record)
        yield Need("pubsub.topics.publish", name if topic is None else topic.name, name)


def tenant(permission: str, field: str, *, optional: bool = False) -> Needs:
    """The permission on the tenant that a field names; `optional`: on the server where it names none."""

    def needs(request: Any, catalog: Catalog) -> Iterator[Need]:
        name = _value(request, field)
        yield Need(permission, SERVER if optional and not name else RESOURCE + parse_tenant(name))

    return needs


def project_or_tenant(permission: str, of_tenant: str, field: str) -> Needs:
    """The permission on the project that a field names; where the request names a tenant, another one on that; where
    the field names no project, on the server."""

    def needs(request: Any, catalog: Catalog) -> Iterator[Need]:
        name = _value(request, field)
        if request.tenant:
            yield Need(of_tenant, RESOURCE + parse_tenant(request.tenant))
        else:
            yield Need(permission, parse_project(name) if name.startswith("projects/") else SERVER)

    return needs


def policy(verb: str) -> Needs:
    def needs(request: Any, catalog: Catalog) -> Iterator[Need]:
        collection, name = any_resource(request.resource)
        if collection in ("projects", SERVER):
            yield Need(f"resourcemanager.projects.{verb}", name)
        else:
            yield Need(f"pubsub.{collection}.{verb}", name)

    return needs


def listed(request: Any, catalog: Catalog) -> Iterator[Need]:
    """What it takes to list the accounts of one project, or of all of them."""
    yield Need("iam.serviceAccounts.list", parse_project(request.project) if request.project else SERVER)


def account(permission: str) -> Needs:
    def needs(request: Any, catalog: Catalog) -> Iterator[Need]:
        yield _for_account(permission, _value(request, "email"), catalog)

    return needs
