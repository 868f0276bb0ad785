"""Names that exist, for one that does not.

Place: on the driver, around calls that name a topic, a subscription, a snapshot or a schema.
Promise: a name that is not found is answered with the nearest one of the same project; a caller who may not
list them is asked to check it.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from typing import Any

from pyspark_pubsub.errors import NOT_FOUND, PERMISSION_DENIED, UNIMPLEMENTED, CallError, NameNotFound
from pyspark_pubsub.rpc import BlockingChannel
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.methods import Method

_SHOWN_MAX = 5
#: By kind: the method that lists, the field of the names' holder in requests, that of the names in responses.
_LISTS: dict[str, tuple[Method, str, str]] = {
    "topics": (methods.PUBLISHER.ListTopics, "project", "topics"),
    "subscriptions": (methods.SUBSCRIBER.ListSubscriptions, "project", "subscriptions"),
    "snapshots": (methods.SUBSCRIBER.ListSnapshots, "project", "snapshots"),
    "schemas": (methods.SCHEMAS.ListSchemas, "parent", "schemas"),
}


@contextlib.contextmanager
def suggesting(channel: BlockingChannel, *names: str) -> Iterator[None]:
    """Around a call: the one of these names that the server does not find is answered with those it has. Raises
    NameNotFound, and CallError as it was for any other failure.
    """
    try:
        yield
    except CallError as error:
        missing = next((name for name in names if name and name in error.text), "")
        if error.code != NOT_FOUND or not missing:
            raise
        raise _not_found(channel, missing) from error


def topic_of(channel: BlockingChannel, name: str) -> Any:
    """A topic as the server describes it; None: the caller may not look it up, and learns more from the call that
    follows. Raises NameNotFound, CallError.
    """
    return _described(channel, name, methods.PUBLISHER.GetTopic, pubsub.GetTopicRequest(topic=name))


def subscription_of(channel: BlockingChannel, name: str) -> Any:
    """A subscription, as for a topic. Raises NameNotFound, CallError."""
    request = pubsub.GetSubscriptionRequest(subscription=name)
    return _described(channel, name, methods.SUBSCRIBER.GetSubscription, request)


def _described(channel: BlockingChannel, name: str, method: Method, request: Any) -> Any:
    try:
        with suggesting(channel, name):
            return method.response.FromString(channel.call(method, request))
    except CallError as error:
        if error.code not in (PERMISSION_DENIED, UNIMPLEMENTED):
            raise
        return None


def _not_found(channel: BlockingChannel, name: str) -> NameNotFound:
    project, _, rest = name.removeprefix("projects/").partition("/")
    kind = rest.partition("/")[0]
    where = ",".join(channel.access.endpoints)
    what = f"There is no {kind.removesuffix('s')} {name} at {where}"
    if kind not in _LISTS:
        return NameNotFound(f"{what}.")
    try:
        known = _listed(channel, f"projects/{project}", *_LISTS[kind])
    except CallError:
        return NameNotFound(f"{what}. Check its name, or create it.")
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return NameNotFound(f"{what}: did you mean {near[0]}?")
    if not known:
        return NameNotFound(f"{what}, and projects/{project} has no {kind} at all: check the project, or create it.")
    shown = ", ".join(one.rpartition("/")[2] for one in known[:_SHOWN_MAX])
    more = f" and {len(known) - _SHOWN_MAX} more" if len(known) > _SHOWN_MAX else ""
    return NameNotFound(f"{what}. projects/{project} has the {kind} {shown}{more}.")


def _listed(channel: BlockingChannel, holder: str, method: Method, asked: str, field: str) -> list[str]:
    """The first thousand."""
    request = method.request(**{asked: holder}, page_size=1000)
    answer = method.response.FromString(channel.call(method, request))
    return sorted(one.name for one in getattr(answer, field))
