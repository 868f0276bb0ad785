"""What the live stream can watch, by the names that browsers use, each a method of the server.

`server`, `disks`, `members`, `chains`, `drains`; `topic:projects/P/topics/T`, `subscription:projects/P/subscriptions/S`
for the state of one; `rates` for counters of this server, summed from the text of its metrics.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from google.protobuf.message import Message

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.names import parse_subscription, parse_topic
from syncpoint.watch.metrics.ranked import OTHER
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin
from syncpoint.wire.protobuf.methods import Method

RATES: Final = "rates"
RATES_PERMISSION: Final = "syncpoint.server.get"

_SUMMED: Final = {
    "published_messages": "syncpoint_publish_messages_total",
    "published_bytes": "syncpoint_publish_bytes_total",
    "publish_requests": "syncpoint_publish_requests_total",
    "delivered_messages": "syncpoint_subscription_messages_total",
    "acked_messages": "pubsub_subscription_ack_message_count",
    "calls": "syncpoint_calls_total",
    "streams": "syncpoint_delivery_streams",
    "outstanding_messages": "syncpoint_delivery_outstanding_messages",
    "cpu_seconds": "syncpoint_process_cpu_seconds_total",
    "memory_bytes": "process_resident_memory_bytes",
}
"""Names of counters in the stream, and the families that are summed over all their labels."""

_BUSIEST: Final = re.compile(rb"^syncpoint_topic_messages_total\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(rb'(\w+)="((?:[^"\\]|\\.)*)"')
TOPICS_MAX: Final = 20


class LiveWatch(NamedTuple):
    """One thing to look at each second. `method` None: it is read from the metrics."""

    name: str
    method: Method | None
    request: Message | None


_PLAIN: Final[dict[str, tuple[Method, Callable[[], Message]]]] = {
    "server": (methods.ADMIN.GetServer, admin.GetServerRequest),
    "disks": (methods.ADMIN.ListDisks, admin.ListDisksRequest),
    "members": (methods.ADMIN.ListMembers, admin.ListMembersRequest),
    "chains": (methods.ADMIN.ListChains, admin.ListChainsRequest),
    "drains": (methods.ADMIN.ListDrains, admin.ListDrainsRequest),
}


def watch_of(name: str) -> LiveWatch:
    """By its name. Raises `InvalidArgument`."""
    if name == RATES:
        return LiveWatch(name, None, None)
    if name in _PLAIN:
        method, request = _PLAIN[name]
        return LiveWatch(name, method, request())
    kind, _, of = name.partition(":")
    if kind == "topic":
        return LiveWatch(name, methods.ADMIN.GetTopicState, admin.GetTopicStateRequest(topic=parse_topic(of)))
    if kind == "subscription":
        asked = admin.GetSubscriptionStateRequest(subscription=parse_subscription(of), ranges_max=1)
        return LiveWatch(name, methods.ADMIN.GetSubscriptionState, asked)
    known = ", ".join([*_PLAIN, RATES, "topic:NAME", "subscription:NAME"])
    raise InvalidArgument("watch", f"Unknown watch {name!r}; choose from {known}.")


def counters_in(text: bytes) -> dict[str, object]:
    """The counters of a server that browsers make rates of: sums, and the busiest topics of all that are named."""
    found: dict[str, object] = {}
    for name, family in _SUMMED.items():
        values = re.findall(rb"^" + family.encode() + rb"(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE)
        if values:
            found[name] = sum(float(value) for value in values)
    topics: dict[str, float] = {}
    for labels, value in _BUSIEST.findall(text):
        named = {key.decode(): content.decode() for key, content in _LABEL.findall(labels)}
        project, topic = named.get("project", ""), named.get("topic", "")
        if topic != OTHER:
            name = f"projects/{project}/topics/{topic}"
            topics[name] = topics.get(name, 0.0) + float(value)
    found["topics"] = dict(sorted(topics.items(), key=lambda one: -one[1])[:TOPICS_MAX])
    return found
