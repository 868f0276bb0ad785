"""Full names of projects, topics, subscriptions and snapshots: one grammar, checked once at the edge.

Place: first thing that happens to a request with a name in it.
Promise: what a `parse_*` function returns is a plain `str` in the canonical form `projects/P/topics/T`, safe to be used
as a key; everything else raises `InvalidArgument` with the text Pub/Sub uses.
Source of the grammar: the resource name rules of the public Pub/Sub reference.
"""

from __future__ import annotations

import re
from typing import NewType

from syncpoint.base.model.errors import InvalidArgument

TopicName = NewType("TopicName", str)
SubscriptionName = NewType("SubscriptionName", str)
SnapshotName = NewType("SnapshotName", str)
SchemaName = NewType("SchemaName", str)
ProjectName = NewType("ProjectName", str)

#: What a subscription reports as its topic once that topic is deleted. Not a legal topic name, so it can never clash.
DELETED_TOPIC = TopicName("_deleted-topic_")

# A project id is narrower on Google's side (6-30 lower case); tests and emulators use short and mixed ones, and old
# domain-scoped projects carry a colon, so the rule here is only what keeps a name one unambiguous path segment.
_PROJECT = r"[A-Za-z0-9][A-Za-z0-9_.:~+%-]{0,254}"
_ID = r"(?!goog)[A-Za-z][A-Za-z0-9_.~+%-]{2,254}"

NAME_RULE = (
    "Names have 3 to 255 letters, digits and characters of -_.~+%, begin with a letter and do not begin with goog"
)
"""The grammar of an id, in words."""

SERVICE_ACCOUNT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}@[A-Za-z0-9][A-Za-z0-9.-]{0,252}", re.ASCII)
"""The address of one, in what it is named by to carry its token."""
SERVICE_IDENTITY = "serviceAccount:pubsub@syncpoint.internal"
"""Under which a server does what it does by itself, where the file of `--auth` names no other."""
READING_REFUSED = (
    f"The service's own identity ({SERVICE_IDENTITY} unless the file of --auth names another) may not read this"
    " subscription: grant it roles/pubsub.subscriber on it."
)
FORWARDING_REFUSED = (
    f"The service's own identity ({SERVICE_IDENTITY} unless the file of --auth names another) may not publish to the"
    " topic that this subscription forwards to: grant it roles/pubsub.publisher on it."
)
DEAD_LETTERS_REFUSED = (
    f"The service's own identity ({SERVICE_IDENTITY} unless the file of --auth names another) may not move messages to"
    " the dead letter topic: grant it roles/pubsub.subscriber on the subscription and roles/pubsub.publisher on the"
    " topic. Until then they are delivered again."
)


def _pattern(collection: str) -> re.Pattern[str]:
    return re.compile(rf"projects/{_PROJECT}/{collection}/{_ID}", re.ASCII)


_COLLECTIONS = ("topics", "subscriptions", "snapshots", "schemas", "federations")
_RESOURCE = {collection: _pattern(collection) for collection in _COLLECTIONS}
_PROJECT_NAME = re.compile(rf"projects/{_PROJECT}", re.ASCII)


def _parse(collection: str, name: str) -> str:
    if _RESOURCE[collection].fullmatch(name) is None:
        form = f"projects/PROJECT/{collection}/NAME"
        raise InvalidArgument("", f"Invalid [{collection}] name: (name={name}). Use {form}. {NAME_RULE}.")
    return name


def parse_topic(name: str) -> TopicName:
    """Check a full topic name. Raises `InvalidArgument`."""
    return TopicName(_parse("topics", name))


def parse_subscription(name: str) -> SubscriptionName:
    """Check a full subscription name. Raises `InvalidArgument`."""
    return SubscriptionName(_parse("subscriptions", name))


def parse_snapshot(name: str) -> SnapshotName:
    """Check a full snapshot name. Raises `InvalidArgument`."""
    return SnapshotName(_parse("snapshots", name))


def parse_schema(name: str) -> SchemaName:
    """Check a full schema name, without a revision. Raises `InvalidArgument`."""
    return SchemaName(_parse("schemas", name))


def parse_federation(name: str) -> str:
    """Check projects/P/federations/F. Raises `InvalidArgument`."""
    return _parse("federations", name)


def parse_project(name: str) -> ProjectName:
    """Check `projects/P`. Raises `InvalidArgument`."""
    if _PROJECT_NAME.fullmatch(name) is None:
        raise InvalidArgument("", f"Invalid [projects] name: (name={name}). Use projects/PROJECT.")
    return ProjectName(name)


def project_of(name: str) -> ProjectName:
    """`projects/P` of a full resource name that was parsed before."""
    return ProjectName(name[: name.index("/", len("projects/"))])


def short_id(name: str) -> str:
    """The last segment of a full resource name."""
    return name[name.rindex("/") + 1 :]


def queue_subscription(topic: str) -> SubscriptionName:
    """The name of a queue's one regular subscription, from the full name of its topic."""
    return SubscriptionName(resource_name(project_of(topic), "subscriptions", short_id(topic)))


def resource_name(project: str, collection: str, identifier: str) -> str:
    """Compose a full name from `projects/P`, a collection and an id. The result is not checked."""
    return f"{project}/{collection}/{identifier}"
