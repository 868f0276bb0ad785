"""The same features on one server, on `serve --workers` and on a cluster: one composition, which answers alike."""

from __future__ import annotations

import base64
import http.client
import json
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import grpc
import pytest

from syncpoint.testing.rigs.official import attributes_of, bodies, refused
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from tests.integration.conftest import Space
from tests.integration.test_pipeline_cluster import KEPT, Program, numbered, numbers
from tests.kit.any_request import Drawing

pytestmark = pytest.mark.shows("one-house")

SERVICES = (methods.PUBLISHER, methods.SUBSCRIBER, methods.SCHEMAS, methods.IAM)
OFTEN = ["CreateTopic", "CreateSubscription", "CreateSnapshot", "UpdateTopic", "UpdateSubscription", "UpdateSnapshot",
         "Publish", "Pull", "StreamingPull", "Acknowledge", "ModifyAckDeadline", "Seek"]  # fmt: skip
FIRST: list[Any] = []  # what the first of the three answered


@pytest.fixture
def space(house: str) -> Iterator[Space]:
    made = Space(house)
    yield made
    made.close()


def test_any_request_has_the_same_outcome(house: str) -> None:
    """Legal or not: the same status and the same text, over everything that the requests before have made."""
    random, outcomes = Random(1), []
    found = {one.descriptor.name: one for service in SERVICES for one in service}
    names = [*OFTEN, *OFTEN, *sorted(found)]
    with grpc.insecure_channel(house) as channel:
        for _ in range(250):
            method = found[random.choice(names)]
            drawing = Drawing(random.randrange(1 << 30), [], [])
            requests = [drawing.request(method) for _ in range(random.randrange(1, 3) if method.is_streaming else 1)]
            outcomes.append((method.descriptor.name, requests, outcome_of(channel, method, requests)))
    assert not {"INTERNAL", "UNKNOWN"} & {status for *_, (status, _) in outcomes}
    if FIRST:
        for ours, theirs in zip(outcomes, FIRST, strict=True):
            assert ours == theirs
    FIRST[:] = outcomes


def outcome_of(channel: grpc.Channel, method: methods.Method, requests: list[bytes]) -> tuple[str, str]:
    try:
        if method.is_streaming:
            for _ in channel.stream_stream(str(method))(iter(requests), timeout=20):
                pass
        else:
            if method is methods.SUBSCRIBER.Pull:
                requests = [requests[0] + b"\x10\x01"]  # return_immediately
            channel.unary_unary(str(method))(requests[0], timeout=20)
    except grpc.RpcError as error:
        return error.code().name, error.details()
    return "OK", ""


def test_what_is_published_is_pulled_and_what_is_acknowledged_is_gone(space: Space) -> None:
    topic, subscription = space.pair()
    ids = space.publish(topic, b"a", b"b", b"c")
    got = space.pull(subscription, 3)
    assert {one.message.message_id: one.message.data for one in got} == dict(zip(ids, (b"a", b"b", b"c"), strict=True))
    space.ack(subscription, *got)
    space.publish(topic, b"d")
    assert bodies(space.pull(subscription, ack=True)) == [b"d"]


def test_a_key_is_delivered_in_order_one_message_behind_the_other(space: Space) -> None:
    topic, subscription = space.pair(enable_message_ordering=True)
    for number in range(5):
        space.publish(topic, b"%d" % number, key="k")
    stream = space.stream(subscription, stream_ack_deadline_seconds=600)
    while len(stream.bodies) < 5:
        stream.acknowledge(*stream.wait(len(stream.bodies) + 1))
    assert stream.bodies == [b"%d" % number for number in range(5)]


def test_with_exactly_once_delivery_only_the_newest_ack_id_is_good(space: Space) -> None:
    topic, subscription = space.pair(enable_exactly_once_delivery=True, ack_deadline_seconds=600)
    space.publish(topic, b"x")
    (old,) = space.pull(subscription)
    space.nack(subscription, old)
    (new,) = space.pull(subscription)
    with refused("INVALID_ARGUMENT"):
        space.ack(subscription, old)
    space.ack(subscription, new)
    space.publish(topic, b"y")
    assert bodies(space.pull(subscription, ack=True)) == [b"y"]


def test_what_is_refused_five_times_is_a_dead_letter(space: Space) -> None:
    topic, letters = space.topic("main"), space.topic("dead")
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": 5}
    subscription = space.subscription(topic, "main-sub", dead_letter_policy=policy, ack_deadline_seconds=600)
    dead = space.subscription(letters, "dead-sub")
    space.publish(topic, b"poison")
    for _ in range(5):
        space.nack(subscription, *space.pull(subscription))
    (letter,) = space.pull(dead, ack=True)
    assert letter.message.data == b"poison"
    assert attributes_of(letter)["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert not space.peek(subscription)


def test_a_filter_passes_over_what_it_does_not_want(space: Space) -> None:
    topic, subscription = space.pair(filter='attributes.kind = "red"')
    space.publish(topic, b"1", attributes={"kind": "blue"})
    space.publish(topic, b"2", attributes={"kind": "red"})
    assert bodies(space.pull(subscription, ack=True)) == [b"2"]


def test_a_seek_to_a_snapshot_brings_back_what_it_holds(space: Space) -> None:
    topic, subscription = space.pair()
    space.publish(topic, b"a", b"b")
    got = space.pull(subscription, 2)
    space.ack(subscription, *(one for one in got if one.message.data == b"a"))
    snapshot = space.path("snapshots", "snap")
    space.api.create_snapshot({"name": snapshot, "subscription": subscription})
    space.publish(topic, b"c")
    space.ack(subscription, *(one for one in got if one.message.data == b"b"), *space.pull(subscription))
    space.api.seek({"subscription": subscription, "snapshot": snapshot})
    assert sorted(bodies(space.pull(subscription, 2, ack=True))) == [b"b", b"c"]
    space.publish(topic, b"d")
    space.api.seek({"subscription": subscription, "time": "2100-01-01T00:00:00Z"})
    space.publish(topic, b"e")
    assert bodies(space.pull(subscription, ack=True)) == [b"e"]


def test_a_subscription_has_everything_from_its_creation_on(space: Space) -> None:
    topic = space.topic()
    for number in range(5):
        space.publish(topic, b"before")
        subscription = space.subscription(topic, f"sub-{number}")
        space.publish(topic, b"after", b"after %d" % number)
        assert Counter(bodies(space.pull(subscription, 2, ack=True))) == Counter([b"after", b"after %d" % number])


def test_epochs_are_stored_once_and_read_by_ranges(space: Space) -> None:
    topic = space.topic(**KEPT)
    subscription, query = space.subscription(topic), space.project
    stream = space.stream(subscription, stream_ack_deadline_seconds=600)
    program = Program(space.endpoint)
    program.positions(topic, cursor=pipeline.Cursor(name="reader"), first=True)
    space.publish(topic, b"published")
    for epoch in range(2):
        begin = 100 * epoch
        program.stage(query, "run", epoch, "x", topic, numbered(begin, begin + 50), numbered(begin + 50, begin + 100))
        assert program.commit(query, "run", epoch, "x").rows == 100
        assert program.commit(query, "run", epoch, "x").repeated_epoch
    stream.wait(201)
    read = program.everything(topic)
    assert Counter(read) == Counter(stream.bodies)
    assert numbers([body for body in read if body != b"published"]) == list(range(200))
    assert [cursor.name for cursor in program.cursors(topic)] == ["reader"]
    program.channel.close()


def test_every_process_answers_over_rest_what_it_answers_over_grpc(space: Space) -> None:
    def ask(verb: str, path: str, body: Any = None, status: int = 200) -> Any:
        connection = http.client.HTTPConnection(space.endpoint, timeout=40)  # each goes to any of the workers
        connection.request(verb, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        content = json.loads(answer.read())
        connection.close()
        assert answer.status == status, content
        return content

    topic, sub = space.path("topics", "over-rest"), space.path("subscriptions", "over-rest")
    ask("PUT", f"/v1/{topic}", {"labels": {"a": "b"}})
    ask("PUT", f"/v1/{sub}", {"topic": topic, "ackDeadlineSeconds": 600})
    assert space.api.get_topic({"topic": topic}).labels == {"a": "b"}
    sent = [{"data": base64.b64encode(b"%d" % number).decode()} for number in range(8)]
    ids = [ask("POST", f"/v1/{topic}:publish", {"messages": [one]})["messageIds"][0] for one in sent]
    ids += space.publish(topic, b"over gRPC")
    got: list[Any] = []
    while len(got) < 9:
        got += ask("POST", f"/v1/{sub}:pull", {"maxMessages": 9 - len(got)}).get("receivedMessages", [])
    assert sorted(one["message"]["messageId"] for one in got) == sorted(ids)
    ask("POST", f"/v1/{sub}:acknowledge", {"ackIds": [one["ackId"] for one in got]})
    assert not space.peek(sub)
    schema = {"type": "AVRO", "definition": json.dumps({"type": "record", "name": "R", "fields": []})}
    name = ask("POST", f"/v1/projects/{space.project}/schemas?schemaId=over-rest", schema)["name"]
    assert ask("GET", f"/v1/{name}?view=BASIC")["type"] == "AVRO"
    assert ask("GET", f"/v1/{topic}:getIamPolicy") == {"etag": "ACAB"}
    assert ask("GET", f"/v1/{topic}x", status=404)["error"]["status"] == "NOT_FOUND"
    for _ in range(4):
        assert int(ask("GET", "/admin/v1/server")["topics"]) >= 1
        assert "/v1/projects/{projectsId}/topics/{topicsId}" in ask("GET", "/openapi.json")["paths"]


def test_what_there_is_is_listed(space: Space) -> None:
    topic, subscription = space.pair()
    snapshot = space.api.create_snapshot({"name": space.path("snapshots", "one"), "subscription": subscription}).name
    project = f"projects/{space.project}"

    def names(answer: Any, field: str) -> list[str]:
        return [one if isinstance(one, str) else one.name for one in getattr(answer, field)]

    assert names(space.api.list_topics({"project": project}), "topics") == [topic]
    assert names(space.api.list_subscriptions({"project": project}), "subscriptions") == [subscription]
    assert names(space.api.list_snapshots({"project": project}), "snapshots") == [snapshot]
    assert names(space.api.list_topic_subscriptions({"topic": topic}), "subscriptions") == [subscription]
    space.api.delete_topic({"topic": topic})
    with refused("NOT_FOUND"):
        space.publish(topic, b"x")
    assert space.api.get_subscription({"subscription": subscription}).topic == "_deleted-topic_"


def test_a_stream_is_kept_alive_and_says_what_changes(space: Space) -> None:
    topic, subscription = space.pair()
    stream = space.stream(subscription, protocol_version=1)
    stream.send()
    stream.until(lambda: len(stream.responses) == 1, what="the answer to a keep-alive")
    assert not stream.responses[0].subscription_properties.exactly_once_delivery_enabled
    change = {"name": subscription, "enable_exactly_once_delivery": True}
    space.api.update_subscription({"subscription": change, "update_mask": {"paths": ["enable_exactly_once_delivery"]}})
    stream.until(lambda: len(stream.responses) > 1, what="the changed properties")
    assert stream.responses[-1].subscription_properties.exactly_once_delivery_enabled
    space.publish(topic, b"a")
    (got,) = stream.wait(1)
    stream.send(modify_deadline_ack_ids=[got.ack_id], modify_deadline_seconds=[60])
    stream.send(ack_ids=[got.ack_id])
    stream.half_close()
    assert stream.ended() == "OK"
    assert [list(one.modify_ack_deadline_confirmation.ack_ids) for one in stream.responses].count([got.ack_id]) == 1
    assert [list(one.acknowledge_confirmation.ack_ids) for one in stream.responses].count([got.ack_id]) == 1


def test_streams_end_with_what_clients_take_for_final(space: Space) -> None:
    topic = space.topic()
    names = [space.subscription(topic, f"sub-{number}") for number in range(4)]
    streams = [space.stream(name) for name in names]
    space.publish(topic, b"a")
    for stream in streams:
        stream.wait(1)
    space.api.delete_subscription({"subscription": names[0]})
    space.api.detach_subscription({"subscription": names[1]})
    push = {"subscription": names[2], "push_config": {"push_endpoint": "https://push.example/x"}}
    space.api.modify_push_config(push)
    streams[3].send(ack_ids=["bogus"])
    ends = [stream.ended() for stream in streams]
    assert ends == ["NOT_FOUND", "FAILED_PRECONDITION", "FAILED_PRECONDITION", "INVALID_ARGUMENT"]
    assert f"Resource not found (resource={names[0]})." in streams[0].text
    assert f"Subscription is a push subscription: (resource={names[2]})" in streams[2].text
    assert "Invalid ack id (ack_id=bogus)" in streams[3].text


def paged(method: Any, topic: str, field: str) -> list[str]:
    """All there is, one by one."""
    found: list[str] = []
    answer = method({"topic": topic, "page_size": 1})
    while True:
        assert len(getattr(answer, field)) == 1
        found += getattr(answer, field)
        if not answer.next_page_token:
            return found
        answer = method({"topic": topic, "page_size": 1, "page_token": answer.next_page_token})


def test_what_belongs_to_a_topic_is_listed_by_pages(space: Space) -> None:
    topic = space.topic()
    subscriptions = sorted(space.subscription(topic, f"sub-{number}") for number in range(3))
    snapshots = []
    for number in range(3):
        name = space.path("snapshots", f"snap-{number}")
        snapshots.append(space.api.create_snapshot({"name": name, "subscription": subscriptions[0]}).name)
    changed = {"snapshot": {"name": snapshots[0], "labels": {"a": "b"}}, "update_mask": {"paths": ["labels"]}}
    assert space.api.update_snapshot(changed).labels == {"a": "b"}
    space.api.detach_subscription({"subscription": subscriptions[1]})
    assert paged(space.api.list_topic_snapshots, topic, "snapshots") == snapshots
    assert paged(space.api.list_topic_subscriptions, topic, "subscriptions") == [subscriptions[0], subscriptions[2]]
    with refused("INVALID_ARGUMENT", "page_token"):
        space.api.list_topic_snapshots({"topic": topic, "page_token": "nonsense"})
