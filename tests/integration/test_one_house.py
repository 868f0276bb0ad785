"""The same features on one server, on `serve --workers` and on a cluster: one composition, which answers alike; with
forwards and topologies."""

from __future__ import annotations

import base64
import http.client
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest

from syncpoint.base.model.errors import InvalidArgument, NotFound
from syncpoint.broker.forward.forward_driver import HELD_MAX
from syncpoint.front.client.client import Client
from syncpoint.programs.topology.topology_drawing import drawn
from syncpoint.programs.topology.topology_file import load, parse
from syncpoint.programs.topology.topology_flows import flows, project_graph
from syncpoint.programs.topology.topology_live import carry_out, read
from syncpoint.programs.topology.topology_plan import plan
from syncpoint.testing.rigs.official import attributes_of, bodies, eventually, refused
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from tests.integration.conftest import Space
from tests.integration.test_pipeline_cluster import KEPT, Program, numbered, numbers
from tests.kit.any_request import Drawing

pytestmark = pytest.mark.shows("one-house", "forwarding")

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


def test_what_is_forwarded_comes_in_order_once_and_four_times_at_most(space: Space) -> None:
    first, queue, dead = space.topic("hop"), space.topic("hop-archive"), space.topic("hop-dead")
    policy = {"dead_letter_topic": dead, "max_delivery_attempts": 5}
    onwards = space.subscription(first, "hop-onwards", enable_message_ordering=True, dead_letter_policy=policy)
    reader = space.subscription(queue, "hop-reader", enable_message_ordering=True)
    letters = space.subscription(dead, "hop-letters")

    def forward(subscription: str, topic: str) -> None:
        options = {"subscription": subscription, "forward_to": topic}
        space.asked("UpdateSubscriptionOptions", options=options, update_mask={"paths": ["forward_to"]})

    with pytest.raises(NotFound):
        forward(onwards, f"{first}-not-there")
    with pytest.raises(InvalidArgument, match="forward_to must not be"):
        forward(onwards, first)
    forward(onwards, queue)
    with refused("FAILED_PRECONDITION", f"forwarded to {queue}"):
        space.pull(onwards)
    for number in range(20):
        space.publish(first, b"%d" % number, key=f"k{number % 2}", attributes={"own": "kept"})
    got = space.pull(reader, 20, ack=True)
    for key in ("k0", "k1"):
        mine = [int(one.message.data) for one in got if one.message.ordering_key == key]
        assert mine == sorted(mine), f"order of {key}"
    assert {attributes_of(one)["sys.ForwardHops"] for one in got} == {"1"}
    assert len({attributes_of(one)["sys.ForwardedFrom"] for one in got}) == 20
    eventually(lambda: space.asked("GetSubscriptionState", subscription=onwards).backlog_messages == 0)
    state = space.asked("GetSubscriptionState", subscription=onwards)
    assert (state.forward.topic, state.forward.forwarded, state.forward.held) == (queue, 20, 0)

    suspend = {"options": {"topic": queue, "send_suspended": True}, "update_mask": {"paths": ["send_suspended"]}}
    space.asked("UpdateTopicOptions", **suspend)
    space.publish(first, b"later")

    def waits() -> bool:
        return "suspended" in space.asked("GetSubscriptionState", subscription=onwards).forward.last_error

    eventually(waits)
    suspend["options"]["send_suspended"] = False
    space.asked("UpdateTopicOptions", **suspend)
    assert bodies(space.pull(reader, 1, ack=True)) == [b"later"]

    back = space.subscription(queue, "hop-back", enable_message_ordering=True, dead_letter_policy=policy)
    forward(back, first)
    space.publish(first, b"round", key="k0")
    (letter,) = space.pull(letters, ack=True)
    assert letter.message.data == b"round"
    assert attributes_of(letter)["sys.DeadLetterReason"] == "MaxTransferHopCountExceeded"
    assert "sys.ForwardHops" not in attributes_of(letter), "it begins anew"
    assert attributes_of(letter)["sys.DeadLetterCount"] == "1"
    assert bodies(space.pull(reader, 2, ack=True)) == [b"round", b"round"]


def test_a_mailbox_that_nobody_empties_holds_up_neither_its_source_nor_other_subscriptions(space: Space) -> None:
    """More is forwarded than may be held to be forwarded, and it all stays in the mailbox until somebody comes."""
    size, count = 120_000, 300
    assert size * count > HELD_MAX
    source, mailbox = space.topic("full-source"), space.topic("full-mailbox")
    onwards, beside = space.subscription(source, "full-onwards"), space.subscription(source, "full-beside")
    unread = space.subscription(mailbox, "full-unread")
    options = {"subscription": onwards, "forward_to": mailbox}
    space.asked("UpdateSubscriptionOptions", options=options, update_mask={"paths": ["forward_to"]})

    def backlog(subscription: str) -> int:
        return int(space.asked("GetSubscriptionState", subscription=subscription).backlog_messages)

    expected = {b"%d" % number for number in range(count)}
    for number in range(0, count, 10):
        space.publish(source, *(b"%d" % one + b"." * size for one in range(number, number + 10)))
    eventually(lambda: backlog(onwards) == 0, 180)
    assert backlog(unread) == count
    assert {body.rstrip(b".") for body in bodies(space.pull(beside, count, within=120, ack=True))} == expected
    space.publish(source, b"last")
    assert bodies(space.pull(beside, ack=True)) == [b"last"]
    eventually(lambda: backlog(unread) == count + 1, 60)
    found = [body.rstrip(b".") for body in bodies(space.pull(unread, count + 1, within=120, ack=True))]
    assert (len(found), set(found)) == (count + 1, expected | {b"last"})


def test_a_topology_is_applied_from_a_file_carries_messages_and_is_drawn(space: Space) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "topology" / "two_tenants.yaml"
    wanted = load(example, None)
    with Client(space.endpoint) as client:
        steps = plan(wanted, read(client, wanted))
        done: list[str] = []
        carry_out(client, steps, lambda step: done.append(step.name))
        assert sorted(done) == sorted(step.name for step in steps)
        assert plan(wanted, read(client, wanted)) == []
    for tenant, temperatures in (("factory", (21, 85, 95)), ("lab", (-75, -20))):
        for temperature in temperatures:
            attributes = {"temperature": str(temperature)}
            space.publish(f"projects/{tenant}/topics/readings", b"%d" % temperature, key="k", attributes=attributes)
    space.publish("projects/lab/topics/readings", b"no number", key="k")
    for tenant, alarms in (("factory", [b"85", b"95"]), ("lab", [b"-75"])):
        got = space.pull(f"projects/{tenant}/subscriptions/alarms", len(alarms), ack=True)
        assert bodies(got) == alarms
        assert {attributes_of(one)["tenant"] for one in got} == {tenant}
    kept = space.pull("projects/hub/subscriptions/archive", 5, ack=True)
    assert sorted(bodies(kept)) == [b"-20", b"-75", b"21", b"85", b"95"]
    with Client(space.endpoint) as client:
        found = project_graph(client, "projects/hub")
        before = flows(client, found)
        space.publish("projects/hub/topics/intake", b"a", b"b")
        found.measure(before, flows(client, found), 1.0)
        assert found.topics["projects/hub/topics/intake"].rate == 2.0
        assert "factory/alarms" in drawn(found)
        nothing = parse({"projects": {name: {"topics": {"kept": {}}} for name in wanted.projects}}, None)
        carry_out(client, plan(nothing, read(client, nothing), prune=True), lambda step: None)
        assert project_graph(client, "projects/hub").topics.keys() == {"projects/hub/topics/kept"}


def test_a_circle_of_fans_ends_within_the_copies_of_one_message(space: Space) -> None:
    """Ten forwards each way: 10 copies, and 100 of these; each of those would be 1,000."""
    first, second = space.topic("fan"), space.topic("fan-back")
    watched = {one: space.subscription(one, f"{one.rpartition('/')[2]}-all") for one in (first, second)}
    there = [space.subscription(first, f"there-{number}") for number in range(10)]
    back = [space.subscription(second, f"back-{number}") for number in range(10)]
    for subscription in (*there, *back):
        options = {"subscription": subscription, "forward_to": second if subscription in there else first}
        space.asked("UpdateSubscriptionOptions", options=options, update_mask={"paths": ["forward_to"]})
    space.publish(first, b"bomb", attributes={"sys.ForwardCopies": "999999"})

    def backlogs(subscriptions: Iterable[str]) -> list[int]:
        return [space.asked("GetSubscriptionState", subscription=one).backlog_messages for one in subscriptions]

    def ended() -> bool:
        states = [space.asked("GetSubscriptionState", subscription=one).forward.last_error for one in there]
        whole = backlogs(watched.values()) == [1 + 100, 10] and backlogs(there) == [100] * 10
        return whole and all("MaxForwardCopiesExceeded" in one for one in states)

    eventually(ended, 90.0)
    assert backlogs(watched.values()) == [1 + 100, 10], "nothing comes of what goes too far"
    assert backlogs(there) == [100] * 10, "what goes too far waits where it is"


def test_what_is_forwarded_to_a_topic_with_a_schema_fits_it_or_is_a_letter(space: Space) -> None:
    """In one request with what fits, and at its time where the target schedules."""
    definition = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]})
    schema = {"type_": "AVRO", "definition": definition}
    made = space.api.create_schema({"parent": f"projects/{space.project}", "schema_id": "orders", "schema": schema})
    first, dead = space.topic("loose"), space.topic("loose-dead")
    strict = space.topic("strict", schema_settings={"schema": made.name, "encoding": "JSON"})
    policy = {"dead_letter_topic": dead, "max_delivery_attempts": 5}
    onwards = space.subscription(first, "loose-onwards", dead_letter_policy=policy)
    reader, letters = space.subscription(strict, "strict-reader"), space.subscription(dead, "loose-letters")
    space.publish(first, b'{"id": "a"}', b"no order", b'{"id": "b"}')
    due = (datetime.now(UTC) + timedelta(seconds=4)).isoformat()
    space.asked("CreateRule", subscription=onwards, rule={"name": "later", "sql": "later IS NOT NULL",
          "action": f"SET sys.ScheduledEnqueueTimeUtc = '{due}'"})  # fmt: skip
    space.publish(first, b'{"id": "c"}', attributes={"later": "yes"})
    options = {"subscription": onwards, "forward_to": strict}
    space.asked("UpdateSubscriptionOptions", options=options, update_mask={"paths": ["forward_to"]})
    got = space.pull(reader, 4, within=40, ack=True)
    assert sorted(bodies(got)) == [b'{"id": "a"}', b'{"id": "b"}', b'{"id": "c"}', b'{"id": "c"}']
    assert {attributes_of(one)["googclient_schemarevisionid"] for one in got} == {made.revision_id}
    (later,) = (one for one in got if "RuleName" in attributes_of(one))
    assert later.message.publish_time >= datetime.fromisoformat(due)
    (letter,) = space.pull(letters, ack=True)
    assert letter.message.data == b"no order"
    assert attributes_of(letter)["sys.DeadLetterReason"] == "ForwardingRefused"
    assert "schema" in attributes_of(letter)["sys.DeadLetterErrorDescription"]


def test_soon_after_a_change_of_its_target_is_answered_all_is_forwarded_there(space: Space) -> None:
    """On one server at once; workers and clusters learn of it by what they watch, which takes milliseconds."""
    topic, targets = space.topic("moves"), [space.topic(f"moves-{number}") for number in range(3)]
    readers = [space.subscription(target, f"moves-reader-{number}") for number, target in enumerate(targets)]
    onwards, got = space.subscription(topic, "moves-onwards"), list[list[bytes]]([[], [], []])

    def arrived(number: int) -> bool:
        space.publish(topic, b"%d: a probe" % number)
        came = space.pull_once(readers[number], wait=1.0)
        if came:
            space.ack(readers[number], *came)
        got[number] += bodies(came)
        return bool(came)

    for number, target in enumerate(targets):
        options = {"subscription": onwards, "forward_to": target}
        space.asked("UpdateSubscriptionOptions", options=options, update_mask={"paths": ["forward_to"]})
        eventually(lambda number=number: arrived(number), what="the change is in force")
        after = {b"%d: %d" % (number, one) for one in range(20)}
        space.publish(topic, *after)
        while not after <= set(got[number]):
            got[number] += bodies(space.pull(readers[number], ack=True))
    for number, reader in enumerate(readers):
        left = [*got[number], *(one.message.data for one in space.peek(reader))]
        strays = {one for one in left if not one.startswith(b"%d:" % number) and b"probe" not in one}
        assert not strays, "what was published once a change was in force went elsewhere"
