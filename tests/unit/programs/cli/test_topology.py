"""apply, diff and the graph: what each asks of the server, prints, and ends with."""

from xml.dom import minidom

import pytest

from syncpoint.wire.protobuf.messages import admin, iam, pubsub

pytestmark = pytest.mark.shows("topologies")

TOPIC, OTHER = "projects/p/topics/orders", "projects/p/topics/other"
FILE = """
topics: {orders: {labels: {a: b}}}
subscriptions: {billing: {topic: orders, forward_to: other, rules: {eu: "region = 'eu'"}}}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "topology.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture
def empty(server):
    """A project with one topic, that the file does not name."""
    server.answers |= {
        "Publisher.ListTopics": pubsub.ListTopicsResponse(topics=[{"name": OTHER}]),
        "Subscriber.ListSubscriptions": pubsub.ListSubscriptionsResponse(),
        "Admin.ListQueues": admin.ListQueuesResponse(),
        "SchemaService.ListSchemas": pubsub.ListSchemasResponse(),
        "IAMPolicy.GetIamPolicy": iam.Policy(),
        "Publisher.CreateTopic": lambda request: request,
        "Subscriber.CreateSubscription": lambda request: request,
        "Admin.UpdateSubscriptionOptions": lambda request: request.options,
        "Admin.CreateRule": lambda request: request.rule,
        "Admin.DeleteRule": admin.DeleteRuleResponse(),
        "Publisher.DeleteTopic": lambda request: None,
    }
    return server


def changes(server):
    asking = ("List", "Get")
    return [method for method, _ in server.calls if not method.partition(".")[2].startswith(asking)]


def test_diff_shows_the_plan_and_changes_nothing(empty, run, file):
    result = run("diff", str(file))
    assert result.exit_code == 1
    assert f"+ topic {TOPIC}\n    labels  a=b" in result.stdout
    assert "    forward_to  projects/p/topics/other" in result.stdout
    assert "3 to create, 0 to change, 0 to delete." in result.stdout + result.stderr
    assert changes(empty) == []


def test_apply_asks_and_then_does_all_of_it(empty, run, file):
    assert run("apply", str(file), input="n\n").exit_code == 1
    assert run("apply", str(file), "--dry-run").exit_code == 0
    assert changes(empty) == []
    result = run("apply", str(file), input="y\n")
    assert result.exit_code == 0
    assert changes(empty) == [
        "Publisher.CreateTopic", "Subscriber.CreateSubscription", "Admin.CreateRule", "Admin.DeleteRule",
        "Admin.UpdateSubscriptionOptions",
    ]  # fmt: skip
    assert empty.request("Admin.UpdateSubscriptionOptions").options.forward_to == OTHER
    assert empty.request("Admin.CreateRule").scope == admin.RuleScope.Value("ALL_MESSAGES")
    assert "Created subscription [projects/p/subscriptions/billing]." in result.stdout + result.stderr


def test_prune_deletes_what_the_file_does_not_name(empty, run_json, file):
    steps = run_json("apply", str(file), "--prune", "--yes")
    assert {"action": "delete", "kind": "topic", "name": OTHER, "fields": []} in steps
    assert empty.request("Publisher.DeleteTopic").topic == OTHER


def test_a_mistake_is_named_before_anything_is_asked(server, run, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("topics: {orders: {retention: 1d}}")
    result = run("apply", str(path), "--yes")
    assert result.exit_code == 1
    assert "topics.orders.retention: unknown key" in result.stderr
    assert server.calls == []
    path.write_text("topics: {orders: ")
    assert "not YAML" in run("diff", str(path)).stderr


def test_the_graph_is_written(empty, run, tmp_path):
    states = iter([10, 30])
    subscription = {"name": "projects/p/subscriptions/billing", "topic": OTHER}
    empty.answers |= {
        "Subscriber.ListSubscriptions": pubsub.ListSubscriptionsResponse(subscriptions=[subscription]),
        "Admin.GetTopicOptions": admin.TopicOptions(queue=False),
        "Admin.GetSubscriptionOptions": admin.SubscriptionOptions(forward_to=TOPIC),
        "Admin.ListRules": admin.ListRulesResponse(rules=[{"name": "$Default", "sql": "1=1"}]),
        "Admin.GetTopicState": lambda request: admin.TopicState(sources=[{"source": 1, "next_offset": 5}]),
        "Admin.GetSubscriptionState": lambda request: admin.SubscriptionState(
            backlog_messages=3, sources=[{"source": 1, "acked_messages": next(states)}]
        ),
    }
    path = tmp_path / "graph.svg"
    result = run("topology", "graph", "-o", str(path), "--seconds", "0.01")
    assert "2 topics, 1 subscription." in result.stdout + result.stderr
    texts = [one.firstChild.data for one in minidom.parse(str(path)).getElementsByTagName("text")]
    assert "orders" in texts
    assert any("3 wait" in text for text in texts)
