"""The graph of a project as it is now, and how much goes along its edges.

Place: between a client and `topology_drawing`. Rates are differences of counts that the server keeps anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.front.client.client import Client
from syncpoint.programs.topology.topology_live import read_project
from syncpoint.programs.topology.topology_plan import LiveTopology
from syncpoint.wire.protobuf.messages import admin

Counts = Mapping[str, Mapping[int, int]]
"""By topic or subscription, by source: messages so far."""


@dataclass
class TopicNode:
    """A topic, or a queue with its subscription. `rate`: messages published in a second; None: not measured."""

    name: str
    queue: bool = False
    suspended: bool = False
    rate: float | None = None


@dataclass
class SubscriptionNode:
    """A subscription. `rate`: messages acknowledged in a second; `forward`, `letters`: names of topics, or ""."""

    name: str
    topic: str
    forward: str = ""
    letters: str = ""
    filtered: bool = False
    suspended: bool = False
    backlog: int = 0
    rate: float | None = None


@dataclass
class ProjectGraph:
    """Topics and subscriptions by name. Topics of other projects that are referred to are among them."""

    topics: dict[str, TopicNode] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionNode] = field(default_factory=dict)

    def measure(self, before: Counts, after: Counts, seconds: float) -> None:
        """Set the rates between two looks, `seconds` apart; 0: there are none."""
        nodes: list[TopicNode | SubscriptionNode] = [*self.topics.values(), *self.subscriptions.values()]
        for node in nodes:
            if seconds and node.name in before and node.name in after:
                first = before[node.name]
                grown = (count - first.get(source, 0) for source, count in after[node.name].items())
                node.rate = sum(max(0, one) for one in grown) / seconds


def project_graph(client: Client, project: str) -> ProjectGraph:
    """What there is of a project. Raises `SyncpointError`."""
    live, graph = LiveTopology(), ProjectGraph()
    read_project(client, project, live)
    for name in live.topics:
        options = client.call("Admin.GetTopicOptions", admin.GetTopicOptionsRequest(topic=name))
        graph.topics[name] = TopicNode(name, queue=options.queue, suspended=options.send_suspended)
    for name, one in live.subscriptions.items():
        options = client.call("Admin.GetSubscriptionOptions", admin.GetSubscriptionOptionsRequest(subscription=name))
        rules = client.call("Admin.ListRules", admin.ListRulesRequest(subscription=name)).rules
        all_of_it = len(rules) == 1 and rules[0].sql == "1=1" and not rules[0].action
        node = graph.subscriptions[name] = SubscriptionNode(
            name,
            one.topic,
            options.forward_to,
            one.dead_letter_policy.dead_letter_topic,
            bool(one.filter) or not all_of_it,
            options.receive_suspended,
        )
        for topic in (node.topic, node.forward, node.letters):
            if topic and topic not in graph.topics:
                graph.topics[topic] = TopicNode(topic)
    return graph


def flows(client: Client, graph: ProjectGraph) -> Counts:
    """How many messages were published to each topic, and acknowledged by each subscription, until now."""
    found: dict[str, dict[int, int]] = {}
    for name, node in graph.subscriptions.items():
        state = client.call("Admin.GetSubscriptionState", admin.GetSubscriptionStateRequest(subscription=name))
        node.backlog = state.backlog_messages
        found[name] = {one.source: one.acked_messages for one in state.sources}
    for name in graph.topics:
        try:
            topic = client.call("Admin.GetTopicState", admin.GetTopicStateRequest(topic=name))
        except SyncpointError as error:  # it is somebody else's, or was deleted
            if error.code not in (Code.PERMISSION_DENIED, Code.NOT_FOUND, Code.INVALID_ARGUMENT):
                raise
        else:
            found[name] = {one.source: one.next_offset for one in topic.sources}
    return found
