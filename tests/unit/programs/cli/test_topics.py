"""Topics: what each command asks of the server, and what it prints."""

import pytest

from syncpoint.base.model.errors import AlreadyExists, InvalidArgument, NotFound, Unavailable
from syncpoint.wire.protobuf.messages import admin, pubsub


def test_create_sends_the_options(server, run_json):
    server.answers["Publisher.CreateTopic"] = lambda request: request
    made = run_json(
        "topics", "create", "orders", "--message-retention-duration", "7d", "--labels", "a=1,b=2", "--labels", "c=3"
    )
    request = server.request("Publisher.CreateTopic")
    assert request.name == "projects/p/topics/orders"
    assert request.message_retention_duration.seconds == 7 * 86_400
    assert dict(request.labels) == {"a": "1", "b": "2", "c": "3"}
    assert not request.HasField("message_storage_policy")
    assert made == [
        {
            "name": "projects/p/topics/orders",
            "labels": {"a": "1", "b": "2", "c": "3"},
            "messageRetentionDuration": "604800s",
        }
    ]


def test_create_takes_several_and_full_names(server, run):
    server.answers["Publisher.CreateTopic"] = lambda request: request
    result = run("topics", "create", "one", "projects/other/topics/two")
    assert [request.name for _, request in server.calls] == ["projects/p/topics/one", "projects/other/topics/two"]
    assert result.stderr == "Created topic [projects/p/topics/one].\nCreated topic [projects/other/topics/two].\n"
    assert result.stdout == ""


def test_list_as_table_is_not_cut(server, run):
    name = "projects/p/topics/" + "x" * 200
    server.answers["Publisher.ListTopics"] = pubsub.ListTopicsResponse(topics=[pubsub.Topic(name=name)])
    result = run("topics", "list")
    assert name in result.stdout.split()


def test_list_of_nothing(server, run, run_json):
    server.answers["Publisher.ListTopics"] = pubsub.ListTopicsResponse()
    assert run("topics", "list").stdout == ""
    assert run_json("topics", "list") == []


def test_limit(server, run_json):
    topics = [pubsub.Topic(name=f"projects/p/topics/t{n}") for n in range(5)]
    server.answers["Publisher.ListTopics"] = pubsub.ListTopicsResponse(topics=topics)
    assert [one["name"][-2:] for one in run_json("topics", "list", "--limit", "2")] == ["t0", "t1"]


def test_publish(server, run_json):
    server.answers["Publisher.Publish"] = pubsub.PublishResponse(message_ids=["17"])
    words = ["--message", "hällo", "--attribute", "a=1,b=x=y", "--ordering-key", "k"]
    assert run_json("topics", "publish", "orders", *words) == {"messageIds": ["17"]}
    (message,) = server.request("Publisher.Publish").messages
    assert message.data == "hällo".encode()
    assert dict(message.attributes) == {"a": "1", "b": "x=y"}
    assert message.ordering_key == "k"


def test_publish_reads_standard_input(server, run):
    server.answers["Publisher.Publish"] = pubsub.PublishResponse(message_ids=["17"])
    run("topics", "publish", "orders", "--message", "-", input=b"\x00\xff")
    assert server.request("Publisher.Publish").messages[0].data == b"\x00\xff"


def test_publish_nothing_is_a_usage_error(run):
    result = run("topics", "publish", "orders")
    assert result.exit_code == 2
    assert "--message" in result.stderr


def test_update_merges_labels_and_names_its_fields(server, run):
    current = pubsub.Topic(name="projects/p/topics/orders", labels={"old": "1", "gone": "2"})
    server.answers["Publisher.GetTopic"] = current
    server.answers["Publisher.UpdateTopic"] = lambda request: request.topic
    result = run("topics", "update", "orders", "--update-labels", "new=3", "--remove-labels", "gone")
    assert result.exit_code == 0, result.output
    request = server.request("Publisher.UpdateTopic")
    assert dict(request.topic.labels) == {"old": "1", "new": "3"}
    assert list(request.update_mask.paths) == ["labels"]


def test_update_can_take_the_retention_away(server, run):
    server.answers["Publisher.UpdateTopic"] = lambda request: request.topic
    run("topics", "update", "orders", "--clear-message-retention-duration")
    request = server.request("Publisher.UpdateTopic")
    assert list(request.update_mask.paths) == ["message_retention_duration"]
    assert not request.topic.HasField("message_retention_duration")


def test_update_of_nothing_is_a_usage_error(server, run):
    result = run("topics", "update", "orders")
    assert result.exit_code == 2
    assert server.calls == []


@pytest.mark.parametrize(("word", "suspended"), [("--suspend", True), ("--resume", False)])
def test_topics_and_subscriptions_are_suspended(server, run, word, suspended):
    server.answers["Admin.UpdateTopicOptions"] = lambda request: request.options
    server.answers["Admin.UpdateSubscriptionOptions"] = lambda request: request.options
    server.answers["Publisher.GetTopic"] = pubsub.Topic()
    server.answers["Subscriber.GetSubscription"] = pubsub.Subscription()
    assert run("topics", "update", "orders", word).exit_code == 0
    request = server.request("Admin.UpdateTopicOptions")
    assert (request.options.send_suspended, request.update_mask.paths) == (suspended, ["send_suspended"])
    assert run("subscriptions", "update", "billing", word).exit_code == 0
    request = server.request("Admin.UpdateSubscriptionOptions")
    assert (request.options.receive_suspended, request.update_mask.paths) == (suspended, ["receive_suspended"])


def test_times_to_live_are_set_and_cleared(server, run):
    def last(method):
        return [request for name, request in server.calls if name == method][-1]

    server.answers["Publisher.CreateTopic"] = lambda request: request
    server.answers["Publisher.GetTopic"] = pubsub.Topic()
    server.answers["Publisher.Publish"] = pubsub.PublishResponse(message_ids=["1"])
    server.answers["Admin.UpdateTopicOptions"] = lambda request: request.options
    server.answers["Subscriber.CreateSubscription"] = lambda request: request
    server.answers["Subscriber.GetSubscription"] = pubsub.Subscription()
    server.answers["Admin.UpdateSubscriptionOptions"] = lambda request: request.options
    assert run("topics", "create", "orders", "--default-ttl", "2m").exit_code == 0
    request = last("Admin.UpdateTopicOptions")
    assert (request.options.default_ttl.seconds, request.update_mask.paths) == (120, ["default_ttl"])
    assert run("topics", "update", "orders", "--clear-default-ttl").exit_code == 0
    request = last("Admin.UpdateTopicOptions")
    assert (request.options.HasField("default_ttl"), request.update_mask.paths) == (False, ["default_ttl"])
    words = ["--topic", "orders", "--ttl", "2s", "--dead-letter-expired"]
    assert run("subscriptions", "create", "billing", *words).exit_code == 2  # nothing is made by halves
    assert "Subscriber.CreateSubscription" not in [method for method, _ in server.calls]
    assert run("subscriptions", "create", "billing", *words, "--dead-letter-topic", "failed").exit_code == 0
    request = last("Admin.UpdateSubscriptionOptions")
    assert (request.options.ttl.seconds, request.options.dead_letter_expired) == (2, True)
    assert run("subscriptions", "update", "billing", "--clear-ttl", "--drop-expired").exit_code == 0
    request = last("Admin.UpdateSubscriptionOptions")
    assert (request.options.HasField("ttl"), request.options.dead_letter_expired) == (False, False)
    assert sorted(request.update_mask.paths) == ["dead_letter_expired", "ttl"]
    assert run("topics", "publish", "orders", "--message", "x", "--ttl", "36h").exit_code == 0
    (message,) = last("Publisher.Publish").messages
    assert message.attributes == {"sys.TimeToLive": "1.12:00:00.0000000"}


def test_describe_shows_what_is_set(server, run_json):
    server.answers["Publisher.GetTopic"] = pubsub.Topic(name="projects/p/topics/orders")
    server.answers["Admin.GetTopicOptions"] = admin.TopicOptions(topic="t", queue=True, send_suspended=True)
    described = run_json("topics", "describe", "orders")
    assert described == {"name": "projects/p/topics/orders", "options": {"queue": True, "sendSuspended": True}}


def test_list_subscriptions(server, run_json):
    server.answers["Publisher.ListTopicSubscriptions"] = pubsub.ListTopicSubscriptionsResponse(subscriptions=["a", "b"])
    assert run_json("topics", "list-subscriptions", "orders") == ["a", "b"]


def test_list_snapshots(server, run_json):
    server.answers["Publisher.ListTopicSnapshots"] = pubsub.ListTopicSnapshotsResponse(snapshots=["a", "b"])
    assert run_json("topics", "list-snapshots", "orders") == ["a", "b"]
    assert server.request("Publisher.ListTopicSnapshots").topic == "projects/p/topics/orders"


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("get-iam-policy", "`syncpoint iam policy get topics/NAME`"),
        ("add-iam-policy-binding", "`syncpoint iam policy add topics/NAME`"),
        ("desribe", "Did you mean 'describe'?"),
    ],
)
def test_a_word_that_is_no_command_is_answered_with_what_was_meant(server, run, word, meant):
    result = run("topics", word, "orders")
    assert result.exit_code == 2
    assert meant in result.stderr


def test_detach(server, run):
    server.answers["Publisher.DetachSubscription"] = pubsub.DetachSubscriptionResponse()
    assert run("topics", "detach-subscription", "billing").exit_code == 0
    assert server.request("Publisher.DetachSubscription").subscription == "projects/p/subscriptions/billing"


@pytest.mark.parametrize(
    ("error", "exit_code", "words"),
    [
        (NotFound("projects/p/snapshots/nope"), 3, ["snapshots list"]),
        (NotFound("projects/other/topics/orders"), 3, ["project (other)", "topics list --project other"]),
        (InvalidArgument("", "Invalid [topics] name: (name=x). Use"), 1, ["(name=x). Use", "topics delete --help"]),
        (NotFound("projects/p/topics/orders"), 3, ["NOT_FOUND", "projects/p/topics/orders", "topics list"]),
        (AlreadyExists("projects/p/topics/orders"), 4, ["ALREADY_EXISTS", "topics describe orders"]),
        (
            Unavailable("No connection to 127.0.0.1:8085: refused."),
            5,
            ["UNAVAILABLE", "127.0.0.1:8085", "syncpoint serve"],
        ),
    ],
)
def test_failures_name_the_code_and_what_to_do(server, run, error, exit_code, words):
    server.answers["Publisher.DeleteTopic"] = error
    result = run("topics", "delete", "orders")
    assert result.exit_code == exit_code
    assert result.stdout == ""
    for word in words:
        assert word in result.stderr


def test_failures_in_json(server, run):
    import json

    server.answers["Publisher.GetTopic"] = NotFound("projects/p/topics/orders")
    result = run("topics", "describe", "orders", "--format", "json")
    reported = json.loads(result.stderr)["error"]
    assert reported["code"] == "NOT_FOUND"
    assert "orders" in reported["message"]


def test_create_with_a_durability_class(server, run):
    server.answers["Publisher.CreateTopic"] = lambda request: request
    server.answers["Admin.UpdateTopicOptions"] = lambda request: request.options
    assert run("topics", "create", "orders", "--durability-class", "telemetry").exit_code == 0
    methods, requests = zip(*server.calls, strict=True)
    assert methods == ("Admin.UpdateTopicOptions", "Publisher.CreateTopic", "Admin.UpdateTopicOptions")
    assert (requests[0].validate_only, requests[2].validate_only) == (True, False)
    for request in (requests[0], requests[2]):
        assert (request.options.topic, request.options.durability_class) == ("projects/p/topics/orders", "telemetry")
        assert list(request.update_mask.paths) == ["durability_class"]


def test_with_a_class_that_does_not_exist_no_topic_is_created(server, run):
    server.answers["Admin.UpdateTopicOptions"] = InvalidArgument("durability_class", "there is no class x")
    result = run("topics", "create", "orders", "returns", "--durability-class", "x")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: INVALID_ARGUMENT: ")
    assert "there is no class x" in result.stderr
    assert "Publisher.CreateTopic" not in [method for method, _ in server.calls]


@pytest.mark.parametrize(
    ("words", "wanted"), [(["--durability-class", "telemetry"], "telemetry"), (["--clear-durability-class"], "")]
)
def test_update_of_the_durability_class_alone(server, run_json, words, wanted):
    server.answers["Admin.UpdateTopicOptions"] = lambda request: request.options
    server.answers["Publisher.GetTopic"] = pubsub.Topic(name="projects/p/topics/orders")
    assert run_json("topics", "update", "orders", *words) == {"name": "projects/p/topics/orders"}
    assert server.request("Admin.UpdateTopicOptions").options.durability_class == wanted
    assert "Publisher.UpdateTopic" not in [method for method, _ in server.calls]


@pytest.mark.parametrize(("kind", "shown"), [("telemetry", {"options": {"durabilityClass": "telemetry"}}), ("", {})])
def test_describe_shows_a_class_that_is_not_the_default(server, run, run_json, kind, shown):
    server.answers["Publisher.GetTopic"] = pubsub.Topic(name="projects/p/topics/orders")
    server.answers["Admin.GetTopicOptions"] = admin.TopicOptions(durability_class=kind)
    assert run_json("topics", "describe", "orders") == {"name": "projects/p/topics/orders", **shown}
    assert ("options.durabilityClass" in run("topics", "describe", "orders").stdout) is bool(kind)
