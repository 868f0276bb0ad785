"""Queues: what each command asks of the server, and what it prints."""

from syncpoint.base.model.errors import NotFound
from syncpoint.wire.protobuf.messages import admin

NAME = "projects/p/topics/jobs"


def queue(**options):
    return admin.Queue(topic={"name": NAME}, subscription={"name": "projects/p/subscriptions/jobs"}, **options)


def test_create_sends_the_options(server, run_json):
    server.answers["Admin.CreateQueue"] = lambda request: admin.Queue(topic=request.topic)
    words = ["--ack-deadline", "60", "--enable-message-ordering", "--labels", "a=1"]
    words += ["--dead-letter-topic", "failed", "--max-delivery-attempts", "10"]
    assert run_json("queues", "create", "jobs", *words) == [{"topic": {"name": NAME, "labels": {"a": "1"}}}]
    request = server.request("Admin.CreateQueue")
    subscription = request.subscription
    assert (request.topic.name, subscription.name, subscription.topic) == (NAME, "", "")
    assert (subscription.ack_deadline_seconds, subscription.enable_message_ordering) == (60, True)
    assert subscription.dead_letter_policy.dead_letter_topic == "projects/p/topics/failed"
    assert subscription.dead_letter_policy.max_delivery_attempts == 10


def test_list_and_describe_show_what_is_suspended(server, run, run_json):
    server.answers["Admin.ListQueues"] = admin.ListQueuesResponse(queues=[queue(receive_suspended=True)])
    server.answers["Admin.GetQueue"] = queue(send_suspended=True)
    assert "RECEIVE_SUSPENDED" in run("queues", "list").stdout
    assert run_json("queues", "list")[0]["receiveSuspended"]
    assert run_json("queues", "describe", "jobs")["sendSuspended"]
    assert server.request("Admin.GetQueue").topic == NAME
    server.answers["Admin.GetQueue"].subscription.expiration_policy.SetInParent()
    assert ["subscription.expirationPolicy", "never"] in map(
        str.split, run("queues", "describe", "jobs").stdout.splitlines()
    )


def test_delete_says_what_is_not_there(server, run):
    server.answers["Admin.DeleteQueue"] = NotFound(NAME, "There is no such queue.")
    result = run("queues", "delete", "jobs")
    assert result.exit_code == 3
    assert "no such queue" in result.stderr
