"""What a server has of a topology, and the calls that change it.

Place: between `topology_plan` and a client; every call is one that any client may make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.front.client.client import Client
from syncpoint.programs.topology.topology_file import WantedTopology
from syncpoint.programs.topology.topology_plan import LiveTopology, PlanStep, ServerCall
from syncpoint.wire.protobuf.messages import admin, iam, pubsub


def read(client: Client, wanted: WantedTopology) -> LiveTopology:
    """What there is of the projects of a file, and of what it names. Raises `SyncpointError`."""
    live = LiveTopology()
    named = {one.name for part in (wanted.topics, wanted.subscriptions, wanted.schemas) for one in part.values()}
    for project in dict.fromkeys(["/".join(name.split("/")[:2]) for name in named]):
        read_project(client, project, live)
    for name in wanted.topics.keys() & live.topics.keys():
        live.topic_options[name] = client.call("Admin.GetTopicOptions", admin.GetTopicOptionsRequest(topic=name))
    for name in wanted.subscriptions.keys() & live.subscriptions.keys():
        options = admin.GetSubscriptionOptionsRequest(subscription=name)
        live.subscription_options[name] = client.call("Admin.GetSubscriptionOptions", options)
        if wanted.subscriptions[name].rules is not None:
            rules = client.call("Admin.ListRules", admin.ListRulesRequest(subscription=name)).rules
            live.rules[name] = {one.name: one for one in rules}
    there = {"server", *live.topics, *live.subscriptions, *live.schemas}
    for resource in dict.fromkeys(one.resource for one in wanted.grants):
        if resource in there or resource.count("/") == 1:
            asked = iam.GetIamPolicyRequest(resource=resource)
            asked.options.requested_policy_version = 3
            live.policies[resource] = client.call("IAMPolicy.GetIamPolicy", asked)
    return live


def read_project(client: Client, project: str, live: LiveTopology) -> None:
    """All topics, queues, subscriptions and schemas of a project."""
    for one in client.pages("Publisher.ListTopics", pubsub.ListTopicsRequest(project=project), "topics"):
        live.topics[one.name] = one
    asked = pubsub.ListSubscriptionsRequest(project=project)
    for one in client.pages("Subscriber.ListSubscriptions", asked, "subscriptions"):
        live.subscriptions[one.name] = one
    for one in client.pages("Admin.ListQueues", admin.ListQueuesRequest(project=project), "queues"):
        live.queues.add(one.topic.name)
    full = pubsub.ListSchemasRequest(parent=project, view=pubsub.SchemaView.Value("FULL"))
    for one in client.pages("SchemaService.ListSchemas", full, "schemas"):
        live.schemas[one.name] = one


def carry_out(client: Client, steps: Sequence[PlanStep], done: Callable[[PlanStep], None]) -> None:
    """Make the calls of a plan; `done` is called with each step once it is done. What somebody else has deleted in the
    meantime is as it should be. Raises `SyncpointError`: what was done before is done, and a new plan goes on."""
    for phase in range(3):
        for step in steps:
            calls, *later = step.phases[phase:]
            _make(client, step, calls)
            if calls and not any(later):
                done(step)


def _make(client: Client, step: PlanStep, calls: Sequence[ServerCall]) -> None:
    for call in calls:
        try:
            client.call(call.method, call.request)
        except SyncpointError as error:
            if not (step.sign == "-" and error.code is Code.NOT_FOUND):
                raise
