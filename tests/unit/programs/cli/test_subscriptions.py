"""Subscriptions, their messages, and snapshots: what each command asks of the server."""

from datetime import UTC, datetime

import pytest
from google.protobuf import empty_pb2

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.protobuf.messages import admin, pubsub

NAME = "projects/p/subscriptions/billing"


@pytest.fixture
def existing(server):
    """A subscription the server knows, with both policies set."""
    found = pubsub.Subscription(name=NAME, topic="projects/p/topics/orders", ack_deadline_seconds=10)
    found.dead_letter_policy.dead_letter_topic = "projects/p/topics/failed"
    found.dead_letter_policy.max_delivery_attempts = 7
    found.retry_policy.minimum_backoff.seconds = 1
    server.answers["Subscriber.GetSubscription"] = found
    server.answers["Subscriber.UpdateSubscription"] = lambda request: request.subscription
    return found


def test_create_with_everything(server, run):
    server.answers["Subscriber.CreateSubscription"] = lambda request: request
    words = """--topic orders --ack-deadline 60 --enable-message-ordering --enable-exactly-once-delivery
        --message-retention-duration 1d12h --retain-acked-messages --dead-letter-topic failed --max-delivery-attempts 9
        --min-retry-delay 1500ms --max-retry-delay 60 --expiration-period 2d --labels team=shop"""
    result = run("subscriptions", "create", "billing", "--message-filter", 'attributes.a = "b"', *words.split())
    assert result.exit_code == 0, result.output
    made = server.request("Subscriber.CreateSubscription")
    assert (made.name, made.topic) == (NAME, "projects/p/topics/orders")
    assert (made.ack_deadline_seconds, made.filter) == (60, 'attributes.a = "b"')
    assert made.enable_message_ordering
    assert made.enable_exactly_once_delivery
    assert made.retain_acked_messages
    assert made.message_retention_duration.seconds == 129_600
    assert made.dead_letter_policy.dead_letter_topic == "projects/p/topics/failed"
    assert made.dead_letter_policy.max_delivery_attempts == 9
    assert (made.retry_policy.minimum_backoff.seconds, made.retry_policy.minimum_backoff.nanos) == (1, 500_000_000)
    assert made.retry_policy.maximum_backoff.seconds == 60
    assert made.expiration_policy.ttl.seconds == 172_800
    assert dict(made.labels) == {"team": "shop"}


def test_create_leaves_the_rest_to_the_server(server, run):
    server.answers["Subscriber.CreateSubscription"] = lambda request: request
    run("subscriptions", "create", "billing", "--topic", "orders")
    made = server.request("Subscriber.CreateSubscription")
    assert made == pubsub.Subscription(name=NAME, topic="projects/p/topics/orders")


@pytest.mark.parametrize(("state", "waits"), [("RESOURCE_ERROR", True), ("ACTIVE", False)])
def test_create_says_that_nothing_is_exported_yet(server, run, state, waits):
    server.answers["Subscriber.CreateSubscription"] = pubsub.Subscription(name=NAME, state=state)
    result = run("subscriptions", "create", "billing", "--topic", "orders", "--cloud-storage-bucket", "archive")
    assert ("`syncpoint subscriptions describe billing` shows the reason" in result.stderr) is waits


def test_expiration_never_is_a_policy_without_a_period(server, run):
    server.answers["Subscriber.CreateSubscription"] = lambda request: request
    run("subscriptions", "create", "billing", "--topic", "orders", "--expiration-period", "never")
    made = server.request("Subscriber.CreateSubscription")
    assert made.HasField("expiration_policy")
    assert not made.expiration_policy.HasField("ttl")


def test_update_keeps_the_other_half_of_a_policy(server, run, existing):
    result = run("subscriptions", "update", "billing", "--max-delivery-attempts", "20", "--max-retry-delay", "1m")
    assert result.exit_code == 0, result.output
    request = server.request("Subscriber.UpdateSubscription")
    assert list(request.update_mask.paths) == ["dead_letter_policy", "retry_policy"]
    assert request.subscription.dead_letter_policy.dead_letter_topic == "projects/p/topics/failed"
    assert request.subscription.dead_letter_policy.max_delivery_attempts == 20
    assert request.subscription.retry_policy.minimum_backoff.seconds == 1
    assert request.subscription.retry_policy.maximum_backoff.seconds == 60


def test_update_clears_policies_and_switches_off(server, run, existing):
    run("subscriptions", "update", "billing", "--clear-dead-letter-policy", "--no-retain-acked-messages")
    request = server.request("Subscriber.UpdateSubscription")
    assert set(request.update_mask.paths) == {"dead_letter_policy", "retain_acked_messages"}
    assert not request.subscription.HasField("dead_letter_policy")


def test_attempts_without_a_dead_letter_topic(server, run):
    result = run("subscriptions", "create", "billing", "--topic", "orders", "--max-delivery-attempts", "9")
    assert result.exit_code == 2
    assert "--dead-letter-topic" in result.stderr


def pulled(*data):
    received = []
    for index, body in enumerate(data):
        one = pubsub.ReceivedMessage(ack_id=f"ack-{index}")
        one.message.data, one.message.message_id = body, str(index)
        received.append(one)
    return pubsub.PullResponse(received_messages=received)


def test_pull_shows_ack_ids(server, run):
    server.answers["Subscriber.Pull"] = pulled(b"hello", b"\xff\x00")
    result = run("subscriptions", "pull", "billing", "--limit", "5")
    request = server.request("Subscriber.Pull")
    assert (request.max_messages, request.return_immediately) == (5, True)
    assert "hello" in result.stdout
    assert "ack-0" in result.stdout
    assert r"b'\xff\x00'" in result.stdout


def test_pull_auto_ack(server, run):
    server.answers["Subscriber.Pull"] = pulled(b"one", b"two")
    server.answers["Subscriber.Acknowledge"] = None
    result = run("subscriptions", "pull", "billing", "--auto-ack", "--limit", "2")
    assert result.exit_code == 0, result.output
    assert list(server.request("Subscriber.Acknowledge").ack_ids) == ["ack-0", "ack-1"]
    assert "ack-0" not in result.stdout


def test_pull_of_nothing_acknowledges_nothing(server, run):
    server.answers["Subscriber.Pull"] = pulled()
    assert run("subscriptions", "pull", "billing", "--auto-ack").exit_code == 0
    assert [method for method, _ in server.calls] == ["Subscriber.Pull"]


def test_pull_waits_until_something_comes(server, run):
    answers = iter([pulled(), pulled(), pulled(b"late")])
    server.answers["Subscriber.Pull"] = lambda request: next(answers)
    result = run("subscriptions", "pull", "billing", "--wait")
    assert "late" in result.stdout
    assert not server.calls[0][1].return_immediately


def test_pull_collects_until_it_has_what_was_asked_for(server, run):
    def answer(request):
        asked.append(request.max_messages)
        one = pubsub.ReceivedMessage(ack_id=str(len(asked)))
        one.message.message_id = f"id-{len(asked)}"
        return pubsub.PullResponse(received_messages=[one])

    asked = []
    server.answers["Subscriber.Pull"] = answer
    server.answers["Subscriber.GetSubscription"] = pubsub.Subscription(name=NAME, ack_deadline_seconds=10)
    result = run("subscriptions", "pull", "billing", "--wait", "--limit", "3", "--timeout", "60")
    assert result.exit_code == 0, result.output
    assert asked == [3, 2, 1]
    assert [line.split() for line in result.stdout.splitlines()[2:]] == [["id-1", "1"], ["id-2", "2"], ["id-3", "3"]]


class LeasingServer:
    """One message, delivered again whenever its deadline has passed. Calls last as long as they may, by its clock."""

    def __init__(self, server, monkeypatch, *, extends=True):
        self.now, self.until, self.deliveries = 0.0, 0.0, 0
        self.extends = extends
        monkeypatch.setattr("syncpoint.programs.cli.deliveries.time.monotonic", lambda: self.now)
        server.answers["Subscriber.GetSubscription"] = pubsub.Subscription(name=NAME, ack_deadline_seconds=10)
        server.answers["Subscriber.ModifyAckDeadline"] = self.extend
        server.answers["Subscriber.Acknowledge"] = self.acknowledge
        monkeypatch.setattr(server, "call", self.timed(server.call))
        self.acknowledged = []

    def timed(self, call):
        def timed(method, request, *, timeout_s=None):
            if method != "Subscriber.Pull":
                return call(method, request)
            end = self.now + timeout_s
            if self.until > end:
                self.now = end
                return pubsub.PullResponse()
            self.now = max(self.now, self.until)
            self.until, self.deliveries = self.now + 10, self.deliveries + 1
            one = pubsub.ReceivedMessage(ack_id=f"ack-{self.deliveries}")
            one.message.message_id, one.message.data = "7", b"only"
            return pubsub.PullResponse(received_messages=[one])

        return timed

    def extend(self, request):
        assert list(request.ack_ids) == [f"ack-{self.deliveries}"]
        if self.extends:
            self.until = self.now + request.ack_deadline_seconds

    def acknowledge(self, request):
        assert self.now < self.until
        self.acknowledged += request.ack_ids


@pytest.mark.parametrize("more", [[], ["--auto-ack"]])
def test_pull_holds_what_it_has_while_it_waits_for_more(server, run, monkeypatch, more):
    leasing = LeasingServer(server, monkeypatch)
    result = run("subscriptions", "pull", "billing", "--wait", "--limit", "5", "--timeout", "35", *more)
    assert result.exit_code == 0, result.output
    assert leasing.deliveries == 1
    assert leasing.now >= 34
    assert result.stdout.count("only") == 1
    assert leasing.acknowledged == (["ack-1"] if more else [])


def test_pull_shows_what_came_twice_once_with_its_newest_ack_id(server, run, monkeypatch):
    leasing = LeasingServer(server, monkeypatch, extends=False)
    result = run("subscriptions", "pull", "billing", "--wait", "--limit", "5", "--timeout", "35", "--auto-ack")
    assert result.exit_code == 0, result.output
    assert leasing.deliveries > 1
    assert result.stdout.count("only") == 1
    assert leasing.acknowledged == [f"ack-{leasing.deliveries}"]


def test_pull_waits_no_longer_than_asked(server, run):
    server.answers["Subscriber.Pull"] = pulled()
    result = run("subscriptions", "pull", "billing", "--wait", "--timeout", "0.05")
    assert result.exit_code == 0
    assert "(none)" in result.stderr

    answers = iter([pulled(), SyncpointError(Code.DEADLINE_EXCEEDED, "late")])
    server.answers["Subscriber.Pull"] = lambda request: next(answers)
    assert run("subscriptions", "pull", "billing", "--wait", "--timeout", "60").exit_code == 0

    server.answers["Subscriber.Pull"] = SyncpointError(Code.DEADLINE_EXCEEDED, "no answer at all")
    assert run("subscriptions", "pull", "billing", "--wait", "--timeout", "60").exit_code == 5


def test_pull_json_has_the_form_of_the_interface(server, run_json):
    server.answers["Subscriber.Pull"] = pulled(b"hello")
    assert run_json("subscriptions", "pull", "billing") == [
        {"ackId": "ack-0", "message": {"data": "aGVsbG8=", "messageId": "0"}}
    ]


def test_ack_and_modify(server, run):
    server.answers["Subscriber.Acknowledge"] = server.answers["Subscriber.ModifyAckDeadline"] = None
    run("subscriptions", "ack", "billing", "--ack-ids", "a,b", "--ack-ids", "c")
    assert list(server.request("Subscriber.Acknowledge").ack_ids) == ["a", "b", "c"]
    for name in ("modify-message-ack-deadline", "modify-ack-deadline"):
        server.calls.clear()
        run("subscriptions", name, "billing", "--ack-ids", "a", "--ack-deadline", "0")
        request = server.request("Subscriber.ModifyAckDeadline")
        assert (list(request.ack_ids), request.ack_deadline_seconds) == (["a"], 0)


def test_state_says_that_nothing_waits(server, run, run_json):
    state = admin.SubscriptionState(subscription="projects/p/subscriptions/s", backlog_bytes=7)
    server.answers["Admin.GetSubscriptionState"] = state
    lines = [line.split() for line in run("subscriptions", "state", "s").stdout.splitlines()]
    assert lines[3:5] == [["backlogMessages", "0"], ["backlogBytes", "7"]]
    assert run_json("subscriptions", "state", "s")["backlogBytes"] == "7"


def test_seek(server, run):
    server.answers["Subscriber.Seek"] = pubsub.SeekResponse()
    assert run("subscriptions", "seek", "billing", "--time", "2026-01-02T03:04:05.678Z").exit_code == 0
    request = server.calls[-1][1]
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    assert (request.time.seconds, request.time.nanos) == (int(moment.timestamp()), 678_000_000)
    assert run("subscriptions", "seek", "billing", "--snapshot", "before").exit_code == 0
    assert server.calls[-1][1].snapshot == "projects/p/snapshots/before"


def test_a_dry_run_of_a_seek_says_what_would_come_back(server, run, run_json):
    answer = admin.SeekPreview(backlog_messages=2, returning_messages=1_203, acknowledged_messages=1)
    server.answers["Admin.PreviewSeek"] = answer
    result = run("subscriptions", "seek", "billing", "--snapshot", "before", "--dry-run")
    assert result.exit_code == 0
    assert "1,203 acknowledged messages would be redelivered" in result.stderr
    assert "1 of 2 unacknowledged now would count as acknowledged" in result.stderr
    assert "at least" not in result.stderr
    assert [name for name, _ in server.calls] == ["Admin.PreviewSeek"]
    assert server.calls[-1][1].snapshot == "projects/p/snapshots/before"
    assert run_json("subscriptions", "seek", "billing", "--time", "-5m", "--dry-run")["returningMessages"] == "1203"
    answer.unknown.append("chain 3: no process has it open now")
    result = run("subscriptions", "seek", "billing", "--time", "-5m", "--dry-run")
    assert result.exit_code == 2
    assert "at least 1,203 acknowledged messages" in result.stderr
    assert "chain 3: no process has it open now" in result.stderr


@pytest.mark.parametrize("words", [[], ["--time", "now", "--snapshot", "x"], ["--time", "yesterday-ish"]])
def test_seek_needs_one_target(server, run, words):
    assert run("subscriptions", "seek", "billing", *words).exit_code == 2
    assert server.calls == []


def test_snapshots(server, run, run_json):
    server.answers["Subscriber.CreateSnapshot"] = lambda request: pubsub.Snapshot(name=request.name)
    run("snapshots", "create", "before", "--subscription", "billing", "--labels", "a=1")
    request = server.request("Subscriber.CreateSnapshot")
    assert (request.name, request.subscription) == ("projects/p/snapshots/before", NAME)
    assert dict(request.labels) == {"a": "1"}

    current = pubsub.Snapshot(name="projects/p/snapshots/before", labels={"a": "1"})
    server.answers["Subscriber.GetSnapshot"] = current
    server.answers["Subscriber.UpdateSnapshot"] = lambda request: request.snapshot
    run("snapshots", "update", "before", "--clear-labels", "--update-labels", "b=2")
    changed = server.request("Subscriber.UpdateSnapshot")
    assert dict(changed.snapshot.labels) == {"b": "2"}
    assert list(changed.update_mask.paths) == ["labels"]


def test_early_delivery_is_chosen_when_a_subscription_is_made(server, run):
    server.answers["Subscriber.CreateSubscription"] = lambda request: request
    server.answers["Admin.UpdateSubscriptionOptions"] = lambda request: request.options
    assert run("subscriptions", "create", "billing", "--topic", "orders", "--early-delivery").exit_code == 0
    request = server.request("Admin.UpdateSubscriptionOptions")
    assert (request.options.subscription, request.options.early_delivery) == (NAME, True)
    assert list(request.update_mask.paths) == ["early_delivery"]


def test_early_delivery_alone_changes_nothing_else(server, run, existing):
    server.answers["Admin.UpdateSubscriptionOptions"] = lambda request: request.options
    assert run("subscriptions", "update", "billing", "--no-early-delivery").exit_code == 0
    assert not server.request("Admin.UpdateSubscriptionOptions").options.early_delivery
    assert "Subscriber.UpdateSubscription" not in [method for method, _ in server.calls]


@pytest.mark.parametrize(("early", "shown"), [(True, {"options": {"earlyDelivery": True}}), (False, {})])
def test_describe_shows_early_delivery_where_it_is_on(server, run_json, early, shown):
    server.answers["Subscriber.GetSubscription"] = pubsub.Subscription(name=NAME)
    state = admin.SubscriptionState(options=admin.SubscriptionOptions(early_delivery=early))
    server.answers["Admin.GetSubscriptionState"] = state
    assert run_json("subscriptions", "describe", "billing") == {"name": NAME, **shown}


@pytest.mark.parametrize(
    ("group", "method", "field"),
    [("topics", "Publisher.DeleteTopic", "topic"), ("subscriptions", "Subscriber.DeleteSubscription", "subscription")],
)
def test_delete_goes_on_after_one_that_does_not_exist(server, run, group, method, field):
    def delete(request):
        name = getattr(request, field)
        asked.append(name)
        if name.endswith("missing"):
            raise SyncpointError(Code.NOT_FOUND, f"Resource not found (resource={name}).")

    asked = []
    server.answers[method] = delete
    result = run(group, "delete", "one", "missing", "two")
    assert result.exit_code == 1
    assert asked == [f"projects/p/{group}/{name}" for name in ("one", "missing", "two")]
    assert f"1 of 3 did not exist: projects/p/{group}/missing" in result.stderr
    assert run(group, "delete", "missing").exit_code == 3


def test_options_of_pushes(server, run):
    server.answers["Subscriber.CreateSubscription"] = lambda request: request
    words = """--push-endpoint https://e.example/ --push-auth-service-account a@b.example --push-auth-token-audience me
        --push-no-wrapper-write-metadata"""
    assert run("subscriptions", "create", "billing", "--topic", "orders", *words.split()).exit_code == 0
    made = server.request("Subscriber.CreateSubscription").push_config
    assert (made.push_endpoint, made.no_wrapper.write_metadata) == ("https://e.example/", True)
    assert (made.oidc_token.service_account_email, made.oidc_token.audience) == ("a@b.example", "me")
    refused = run("subscriptions", "create", "billing", "--topic", "orders", "--push-auth-token-audience", "me")
    assert refused.exit_code == 2
    assert "require --push-endpoint" in refused.stderr


def test_update_changes_a_part_of_how_it_is_pushed(server, run, existing):
    existing.push_config.push_endpoint = "https://e.example/"
    existing.push_config.oidc_token.service_account_email = "a@b.example"
    assert run("subscriptions", "update", "billing", "--push-no-wrapper").exit_code == 0
    asked = server.request("Subscriber.UpdateSubscription")
    assert list(asked.update_mask.paths) == ["push_config"]
    assert asked.subscription.push_config.oidc_token.service_account_email == "a@b.example"
    assert asked.subscription.push_config.WhichOneof("wrapper") == "no_wrapper"


@pytest.mark.parametrize("endpoint", ["https://e.example/", ""])
def test_modify_push_config(server, run, endpoint):
    server.answers["Subscriber.ModifyPushConfig"] = lambda request: empty_pb2.Empty()
    assert run("subscriptions", "modify-push-config", "billing", "--push-endpoint", endpoint).exit_code == 0
    assert server.request("Subscriber.ModifyPushConfig") == pubsub.ModifyPushConfigRequest(
        subscription=NAME, push_config=pubsub.PushConfig(push_endpoint=endpoint)
    )


def test_state_shows_how_pushes_go(server, run):
    found = admin.SubscriptionState(subscription=NAME)
    found.push.endpoint, found.push.pushed_by, found.push.last_status = "https://e.example/", "proxy-1", 503
    server.answers["Admin.GetSubscriptionState"] = found
    shown = run("subscriptions", "state", "billing").stdout
    assert all(word in shown for word in ("push.endpoint", "proxy-1", "503"))


def test_describe_says_that_it_never_expires(server, run, run_json):
    found = pubsub.Subscription(name=NAME)
    found.expiration_policy.SetInParent()
    server.answers["Subscriber.GetSubscription"] = found
    server.answers["Admin.GetSubscriptionState"] = admin.SubscriptionState()
    lines = [line.split() for line in run("subscriptions", "describe", "billing").stdout.splitlines()]
    assert ["expirationPolicy", "never"] in lines
    assert run_json("subscriptions", "describe", "billing")["expirationPolicy"] == {}


def test_options_of_exports(server, run, existing):
    server.answers["Subscriber.CreateSubscription"] = lambda request: request
    words = """--cloud-storage-bucket b --cloud-storage-file-prefix p/ --cloud-storage-file-suffix .avro
        --cloud-storage-max-duration 2m --cloud-storage-max-bytes 2000 --cloud-storage-max-messages 1000
        --cloud-storage-service-account-email a@b.example
        --cloud-storage-output-format avro --cloud-storage-write-metadata
        --cloud-storage-file-datetime-format YYYY-MM-DD/hh_mm_ssZ"""
    assert run("subscriptions", "create", "billing", "--topic", "orders", *words.split()).exit_code == 0
    made = server.request("Subscriber.CreateSubscription").cloud_storage_config
    assert (made.bucket, made.filename_prefix, made.filename_suffix) == ("b", "p/", ".avro")
    assert made.service_account_email == "a@b.example"
    assert (made.max_duration.seconds, made.max_bytes, made.max_messages) == (120, 2000, 1000)
    assert (made.filename_datetime_format, made.avro_config.write_metadata) == ("YYYY-MM-DD/hh_mm_ssZ", True)
    refused = run("subscriptions", "create", "billing", "--topic", "orders", "--cloud-storage-max-bytes", "2000")
    assert "require --cloud-storage-bucket" in refused.stderr
    existing.cloud_storage_config.CopyFrom(made)
    assert run("subscriptions", "update", "billing", "--cloud-storage-file-prefix", "q/").exit_code == 0
    changed = server.request("Subscriber.UpdateSubscription")
    assert changed.update_mask.paths == ["cloud_storage_config"]
    assert changed.subscription.cloud_storage_config.filename_prefix == "q/"
    assert changed.subscription.cloud_storage_config.bucket == "b"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"dead_letter_advice": "Grant it a role."}, "Grant it a role."),
        ({"push": {"last_error": "the endpoint answered 500"}}, "The last push failed: the endpoint answered 500"),
        ({"export": {"state": "NOT_FOUND", "advice": "Make the bucket."}}, "NOT_FOUND. Make the bucket."),
    ],
)
def test_describe_says_what_keeps_messages(server, run, state, said):
    server.answers["Subscriber.GetSubscription"] = pubsub.Subscription(name=NAME)
    server.answers["Admin.GetSubscriptionState"] = admin.SubscriptionState(**state)
    assert said in run("subscriptions", "describe", "billing").stderr


def test_describe_says_once_whose_right_is_missing(server, run):
    server.answers["Subscriber.GetSubscription"] = pubsub.Subscription(name=NAME)
    why = "PERMISSION_DENIED: user:ann@example.com said where"
    server.answers["Admin.GetSubscriptionState"] = admin.SubscriptionState(
        delivery_advice=why,
        forward=admin.ForwardState(last_error=why),
        export=admin.ExportState(state="PERMISSION_DENIED", advice="Grant it."),
        options=admin.SubscriptionOptions(delivery_author="user:ann@example.com"),
    )
    found = run("subscriptions", "describe", "billing")
    assert found.stderr.count("PERMISSION_DENIED") == 1
    assert ["options.deliveryAuthor", "user:ann@example.com"] in [line.split() for line in found.stdout.splitlines()]


def test_by_whose_rights_messages_are_sent_on(server, run, run_json):
    models = [{"ai_inference": {"endpoint": "e", "service_account_email": "asker@p.iam.syncpoint.internal"}}]
    push = pubsub.Subscription(name=NAME, push_config={"push_endpoint": "https://e.example/x"})
    policy = {"dead_letter_topic": "projects/p/topics/dead"}
    letters = pubsub.Subscription(name=f"{NAME}-2", dead_letter_policy=policy, message_transforms=models)
    pulled = pubsub.Subscription(name=f"{NAME}-3")
    listed = pubsub.ListSubscriptionsResponse(subscriptions=[push, letters, pulled])
    server.answers["Subscriber.ListSubscriptions"] = listed
    known = {
        NAME: admin.SubscriptionOptions(delivery_author="user:ann@example.com"),
        f"{NAME}-2": admin.SubscriptionOptions(transform_author="user:bob@example.com"),
    }
    nothing = admin.SubscriptionOptions()
    server.answers["Admin.GetSubscriptionOptions"] = lambda request: known.get(request.subscription, nothing)
    recorded, asking = "projects/p/topics/recorded", "projects/p/topics/asking"
    server.answers["Publisher.ListTopics"] = pubsub.ListTopicsResponse(
        topics=[{"name": recorded}, {"name": asking, "message_transforms": models}]
    )
    records = admin.TopicOptions(records_topic="projects/p/topics/records", records_author="user:ann@example.com")
    by_topic = {recorded: records, asking: admin.TopicOptions()}
    server.answers["Admin.GetTopicOptions"] = lambda request: by_topic[request.topic]
    rows = run_json("subscriptions", "authors")
    assert [tuple(one.values()) for one in rows] == [
        (NAME, "push", "https://e.example/x", "user:ann@example.com"),
        (f"{NAME}-2", "dead letters", "projects/p/topics/dead", ""),
        (f"{NAME}-2", "query models as", "asker@p.iam.syncpoint.internal", "user:bob@example.com"),
        (recorded, "delivery records", "projects/p/topics/records", "user:ann@example.com"),
        (asking, "query models as", "asker@p.iam.syncpoint.internal", ""),
    ]
    assert set(rows[0]) == {"resource", "what", "target", "author"}
    assert [one["resource"] for one in run_json("subscriptions", "authors", "--nobody")] == [f"{NAME}-2", asking]
    assert "user:ann@example.com" in run("subscriptions", "authors").stdout


def test_no_bucket_means_that_a_subscription_is_pulled(server, run, existing):
    existing.cloud_storage_config.bucket = "b"
    assert run("subscriptions", "update", "billing", "--cloud-storage-bucket", "").exit_code == 0
    changed = server.request("Subscriber.UpdateSubscription")
    assert changed.update_mask.paths == ["cloud_storage_config"]
    assert not changed.subscription.HasField("cloud_storage_config")


def test_a_subscription_forwards_and_forwards_no_more(server, run):
    server.answers["Subscriber.CreateSubscription"] = lambda request: request
    server.answers["Admin.UpdateSubscriptionOptions"] = lambda request: request.options
    server.answers["Subscriber.GetSubscription"] = pubsub.Subscription(name="projects/p/subscriptions/onwards")
    run("subscriptions", "create", "onwards", "--topic", "orders", "--forward-to", "archive")
    asked = server.request("Admin.UpdateSubscriptionOptions")
    assert (asked.options.forward_to, list(asked.update_mask.paths)) == ("projects/p/topics/archive", ["forward_to"])
    for cleared in (["--clear-forward"], ["--forward-to", ""]):
        server.calls.clear()
        assert run("subscriptions", "update", "onwards", *cleared).exit_code == 0
        asked = server.request("Admin.UpdateSubscriptionOptions")
        assert (asked.options.forward_to, list(asked.update_mask.paths)) == ("", ["forward_to"])
