"""The same features on one server, on `serve --workers` and on a cluster: one composition, which answers alike."""

from __future__ import annotations

import base64
import http.client
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from threading import Event
from typing import Any
from urllib.request import urlopen

import grpc
import jwt
import pytest

from syncpoint.access.keysets import keys_of_set
from syncpoint.cli.why import facts_of
from syncpoint.client.client import Client
from syncpoint.client.findings import findings
from syncpoint.model.errors import FailedPrecondition, InvalidArgument, NotFound
from syncpoint.node.cluster.local import Shape
from syncpoint.testing.etcd import why_not
from syncpoint.testing.official import attributes_of, bodies, eventually, refused
from syncpoint.testing.server_process import ServerProcess
from syncpoint.topology.topology_drawing import drawn
from syncpoint.topology.topology_file import load, parse
from syncpoint.topology.topology_flows import flows, project_graph
from syncpoint.topology.topology_live import carry_out, read
from syncpoint.topology.topology_plan import plan
from syncpoint.wire import methods
from syncpoint.wire.messages import admin, pipeline
from tests.integration.conftest import Space
from tests.integration.test_pipeline_cluster import KEPT, Program, numbered, numbers
from tests.kit.any_request import Drawing
from tests.kit.clusters import Kit
from tests.kit.endpoint import Endpoint

SERVICES = (methods.PUBLISHER, methods.SUBSCRIBER, methods.SCHEMAS, methods.IAM)
OFTEN = ["CreateTopic", "CreateSubscription", "CreateSnapshot", "UpdateTopic", "UpdateSubscription", "UpdateSnapshot",
         "Publish", "Pull", "StreamingPull", "Acknowledge", "ModifyAckDeadline", "Seek"]  # fmt: skip
ISSUER, MODEL = "https://pubsub.example", "projects/p/locations/l/endpoints/sentiment"
FIRST: list[Any] = []  # what the first of the three answered
SHAPE = Shape(clusters=1, disks=3, forwarders=2, routers=1, proxies=1)


@pytest.fixture(scope="module")
def model() -> Iterator[Endpoint]:
    """What transforms that name MODEL ask."""
    with Endpoint() as found:
        found.status, found.answer = 200, b'{"score": 0.5}'
        yield found


@pytest.fixture(scope="module", params=["node", "workers", "cluster"])
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, model: Endpoint) -> Iterator[str]:
    """Where one of the three is served; each is started once."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    if request.param != "cluster":
        (folder / "bucket").mkdir()
        args = ["--push-network", "loopback", "--bucket", f"archive={folder}/bucket"]
        args += ["--push-issuer", ISSUER, "--model", f"{MODEL}={model.url}"]
        args += ["--workers", "2"] if request.param == "workers" else []
        server = ServerProcess(folder / "data", args=args)
        try:
            yield server.start().endpoint
        finally:
            server.close()
        return
    if why_not():
        pytest.skip("etcd is not installed (Debian: apt-get install etcd-server)")
    (folder / "bucket").mkdir()
    push = {"networks": ["loopback"], "issuer": ISSUER}
    more = {"push": push, "buckets": {"archive": str(folder / "bucket")}, "models": {MODEL: model.url}}
    kit = Kit(folder, SHAPE, more)
    try:
        yield kit.up().proxies[0]
    finally:
        kit.down()


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


def test_what_outlives_its_time_is_dropped_or_becomes_a_letter(space: Space) -> None:
    topic, letters = space.topic("brief"), space.topic("brief-dead")
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": 100}
    dropping = space.subscription(topic, "dropping")
    burying = space.subscription(topic, "burying", dead_letter_policy=policy)
    dead = space.subscription(letters, "brief-letters")
    options = {"subscription": burying, "ttl": {"seconds": 3600}, "dead_letter_expired": True}
    mask = {"paths": ["ttl", "dead_letter_expired"]}
    assert asked(space, "UpdateSubscriptionOptions", options=options, update_mask=mask).ttl.seconds == 3600
    options = {"subscription": dropping, "dead_letter_expired": True}
    with pytest.raises(FailedPrecondition, match="no dead-letter policy"):
        asked(space, "UpdateSubscriptionOptions", options=options, update_mask={"paths": ["dead_letter_expired"]})
    with refused("INVALID_ARGUMENT", "sys.TimeToLive"):
        space.publish(topic, b"x", attributes={"sys.TimeToLive": "soon"})
    space.publish(topic, b"short", attributes={"sys.TimeToLive": "0:0:0.001"})
    space.publish(topic, b"long", attributes={"sys.TimeToLive": "31.0:0"})
    for subscription in (dropping, burying):

        def only_long(subscription: str = subscription) -> bool:
            got = space.peek(subscription)
            space.nack(subscription, *got)
            return bodies(got) == [b"long"]

        eventually(only_long)
    (letter,) = space.pull(dead, 1, ack=True)
    assert letter.message.data == b"short"
    assert attributes_of(letter)["sys.DeadLetterReason"] == "TTLExpiredException"


def test_scheduled_messages_are_published_once_at_their_time_or_cancelled(space: Space) -> None:
    topic, subscription = space.pair()

    def ahead(seconds: float) -> dict[str, str]:
        return {"sys.ScheduledEnqueueTimeUtc": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()}

    with refused("INVALID_ARGUMENT", "sys.ScheduledEnqueueTimeUtc"):
        space.publish(topic, b"x", attributes={"sys.ScheduledEnqueueTimeUtc": "tomorrow"})
    when = ahead(2)
    (soon,) = space.publish(topic, b"soon", attributes=when)
    late = [space.publish(topic, b"late", attributes=ahead(3600 + number))[0] for number in range(5)]
    (gone,) = space.publish(topic, b"gone", attributes=ahead(3))
    space.publish(topic, b"now")
    assert bodies(space.pull(subscription, 1, ack=True)) == [b"now"]
    listed = asked(space, "ListScheduledMessages", topic=topic, page_size=3)
    rest = asked(space, "ListScheduledMessages", topic=topic, page_size=100, page_token=listed.next_page_token)
    assert [one.message_id for one in [*listed.messages, *rest.messages]] == [soon, gone, *late]
    shown = asked(space, "GetScheduledMessage", topic=topic, message_id=late[0])
    assert shown.message.data == b"late"
    asked(space, "CancelScheduledMessage", topic=topic, message_id=gone)
    for method in ("CancelScheduledMessage", "GetScheduledMessage"):
        with pytest.raises(NotFound, match="waits under this id"):
            asked(space, method, topic=topic, message_id=gone)
    (message,) = space.pull(subscription, 1, ack=True)
    assert message.message.data == b"soon"
    assert attributes_of(message)["sys.ScheduledMessageId"] == soon != message.message.message_id
    assert message.message.publish_time >= datetime.fromisoformat(when["sys.ScheduledEnqueueTimeUtc"])
    with pytest.raises(NotFound):
        asked(space, "CancelScheduledMessage", topic=topic, message_id=soon)
    assert not space.peek(subscription)


def test_scheduled_messages_of_a_key_are_published_in_the_order_of_their_times(space: Space) -> None:
    topic = space.topic("keyed")
    subscription = space.subscription(topic, "keyed-sub", enable_message_ordering=True)
    begun = datetime.now(UTC)
    named: dict[bytes, str] = {}
    for key in ("a", "b", "c"):
        for seconds in (5, 3, 4):
            due = {"sys.ScheduledEnqueueTimeUtc": (begun + timedelta(seconds=seconds)).isoformat()}
            body = f"{key}{seconds}".encode()
            (named[body],) = space.publish(topic, body, key=key, attributes=due)
    (never,) = space.publish(
        topic, b"never", key="a",
        attributes={"sys.ScheduledEnqueueTimeUtc": (begun + timedelta(seconds=600)).isoformat()},
    )  # fmt: skip
    space.publish(topic, b"a0", key="a")
    asked(space, "CancelScheduledMessage", topic=topic, message_id=never)
    got = space.pull(subscription, 10, within=40, ack=True)
    for key in ("a", "b", "c"):
        wanted = [f"{key}{seconds}".encode() for seconds in (3, 4, 5)]
        assert [one for one in bodies(got) if one.startswith(key.encode())] == [b"a0"] * (key == "a") + wanted
    for one in got:
        assert attributes_of(one).get("sys.ScheduledMessageId") == named.get(one.message.data)
    assert not asked(space, "ListScheduledMessages", topic=topic, page_size=10).messages
    assert not space.peek(subscription)


def test_what_rules_fail_at_and_subscribers_give_up_is_a_letter_and_goes_back(space: Space) -> None:
    topic, letters = space.topic("odd"), space.topic("odd-dead")
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": 5}
    subscription = space.subscription(topic, "odd-sub", dead_letter_policy=policy, ack_deadline_seconds=600)
    dead = space.subscription(letters, "odd-letters")
    options = {"subscription": subscription, "dead_letter_rule_errors": True}
    asked(space, "UpdateSubscriptionOptions", options=options, update_mask={"paths": ["dead_letter_rule_errors"]})
    asked(space, "CreateRule", subscription=subscription, rule={"name": "share", "sql": "100 / n > 10"})
    asked(space, "DeleteRule", subscription=subscription, name="$Default")
    for n in ("0", "5", "50", "2"):
        space.publish(topic, f"n{n}".encode(), attributes={"n": n})
    got = space.pull(subscription, 2)
    given, kept = sorted(got, key=lambda one: one.message.data)[::-1]
    fields = {"subscription": subscription, "ack_ids": [given.ack_id], "reason": "Odd"}
    answer = asked(space, "DeadLetterMessages", **fields)
    assert (answer.moved, len(answer.failures)) == (1, 0)
    space.ack(subscription, kept)
    again = asked(space, "DeadLetterMessages", **fields)
    assert (again.moved, again.failures[0].invalid) == (0, True)
    selection = {"subscription": dead, "source": subscription}

    def reasons() -> dict[str, str]:
        found = asked(space, "ListDeadLetters", selection=selection).letters
        return {one.message.data.decode(): one.reason for one in found}

    wanted = {"n0": "FilterEvaluationException", given.message.data.decode(): "Odd"}
    eventually(lambda: reasons() == wanted)
    asked(space, "DeleteRule", subscription=subscription, name="share")
    asked(space, "CreateRule", subscription=subscription, rule={"name": "all", "sql": "1=1"})
    redriven = 0
    for dry_run in (True, False):
        answer = asked(space, "RedriveDeadLetters", selection=selection, dry_run=dry_run)
        assert not answer.failures
        assert len(answer.letters) == 2
        redriven += answer.redriven
    assert redriven == 2
    back = space.pull(subscription, 2, ack=True)
    assert {one.message.data for one in back} == {b"n0", given.message.data}
    assert {attributes_of(one)["sys.RedriveCount"] for one in back} == {"1"}
    ids = {one.message.data: attributes_of(one)["sys.RedrivenFrom"] for one in back}
    assert ids[given.message.data] == given.message.message_id
    assert not reasons()


def test_letters_come_with_nobody_there(space: Space) -> None:
    topic, letters = space.topic("lone"), space.topic("lone-dead")
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": 5}
    subscription = space.subscription(topic, "lone-sub", dead_letter_policy=policy)
    dead = space.subscription(letters, "lone-letters")
    options = {"subscription": subscription, "dead_letter_expired": True, "dead_letter_rule_errors": True}
    mask = {"paths": ["dead_letter_expired", "dead_letter_rule_errors"]}
    asked(space, "UpdateSubscriptionOptions", options=options, update_mask=mask)
    asked(space, "CreateRule", subscription=subscription, rule={"name": "share", "sql": "100 / n > 10"})
    asked(space, "DeleteRule", subscription=subscription, name="$Default")
    space.publish(topic, b"brief", attributes={"n": "5", "sys.TimeToLive": "0:0:1"})
    space.publish(topic, b"fails", attributes={"n": "0"})
    space.publish(topic, b"stays", attributes={"n": "5"})
    got = space.pull(dead, 2, within=40, ack=True)
    reasons = {one.message.data: attributes_of(one)["sys.DeadLetterReason"] for one in got}
    assert reasons == {b"brief": "TTLExpiredException", b"fails": "FilterEvaluationException"}
    assert bodies(space.pull(subscription, ack=True)) == [b"stays"]


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


def test_what_is_published_is_pushed_in_order_until_it_is_pulled_again(space: Space) -> None:
    with Endpoint() as endpoint:
        pushed = {"push_endpoint": endpoint.url}
        topic, subscription = space.pair(push_config=pushed, enable_message_ordering=True)
        endpoint.status = 500
        for number in range(5):
            space.publish(topic, b"%d" % number, key="k")
        assert endpoint.next_data() == b"0"
        endpoint.status = 204
        seen = [endpoint.next_data() for _ in range(5)]
        while seen[0] == b"0" and seen[1] == b"0":
            seen = [*seen[1:], endpoint.next_data()]
        assert seen == [b"%d" % number for number in range(5)]
        with refused("FAILED_PRECONDITION"):
            space.pull(subscription)
        space.api.modify_push_config({"subscription": subscription, "push_config": {}})

        def is_pulled() -> bool:
            """A process that pushes may know of the change a moment later, and push one more."""
            space.publish(topic, b"pulled", key="k")
            found = space.pull_once(subscription)
            if found:
                space.ack(subscription, *found)
            return found != []

        eventually(is_pulled)
        space.api.modify_push_config({"subscription": subscription, "push_config": pushed})
        space.publish(topic, b"pushed again", key="k")
        assert next(data for _ in range(20) if (data := endpoint.next_data()) != b"pulled") == b"pushed again"


def test_what_is_published_is_exported_to_a_bucket(space: Space, tmp_path_factory: pytest.TempPathFactory) -> None:
    config = {"bucket": "archive", "filename_prefix": f"{space.project}/", "max_messages": 1_000}
    topic, subscription = space.pair(cloud_storage_config=config)
    eventually(lambda: space.api.get_subscription({"subscription": subscription}).state == 1)
    names = {b"%d" % number for number in range(1_000)}
    space.publish(topic, *names)

    def written() -> set[bytes]:
        files = tmp_path_factory.getbasetemp().rglob(f"bucket/{space.project}/*")
        return {line for path in files if path.suffix != ".part" for line in path.read_bytes().split(b"\n")}

    eventually(lambda: written() == names, within=20)
    with refused("FAILED_PRECONDITION"):
        space.pull(subscription)


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


def test_what_does_not_fit_the_schema_of_a_topic_is_refused(space: Space) -> None:
    fields = [{"name": "id", "type": "string"}]
    definition = {"type": "record", "name": "Order", "fields": fields}
    newer = {**definition, "fields": [*fields, {"name": "count", "type": "int", "default": 0}]}
    schema = {"type_": "AVRO", "definition": json.dumps(definition)}
    made = space.api.create_schema({"parent": f"projects/{space.project}", "schema_id": "order", "schema": schema})
    topic = space.topic()
    subscription = space.subscription(topic)
    space.publish(topic, b"anything")
    settings = {"schema": made.name, "encoding": "JSON"}
    space.api.update_topic(
        {"topic": {"name": topic, "schema_settings": settings}, "update_mask": {"paths": ["schema_settings"]}}
    )
    for _ in range(8):  # whichever process takes it
        with refused("INVALID_ARGUMENT", "Invalid data in message: Message failed schema validation."):
            space.publish(topic, b"anything")
        space.publish(topic, b'{"id": "a"}')
    committed = space.api.commit_schema({"name": made.name, "schema": {**schema, "definition": json.dumps(newer)}})
    for _ in range(8):
        space.publish(topic, b'{"id": "b", "count": 1}')
    rolled = space.api.rollback_schema({"name": made.name, "revision_id": made.revision_id})
    large = json.dumps({"id": "c" * 100_000}).encode()
    with refused("INVALID_ARGUMENT", "Message failed schema validation."):
        space.publish(topic, large, b"anything")
    space.publish(topic, large)
    marks = Counter(
        attributes_of(one).get("googclient_schemarevisionid", "") for one in space.pull(subscription, 18, ack=True)
    )
    assert marks.pop("") == 1
    # Of those that one message fits, the newest: another process may know it a moment later.
    assert marks == Counter({made.revision_id: 8, committed.revision_id: 8, rolled.revision_id: 1})
    space.api.delete_schema({"name": made.name})
    assert space.api.get_topic({"topic": topic}).schema_settings.schema == "_deleted-schema_"


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


def test_each_message_is_stored_by_the_revisions_that_its_topic_has_while_these_change(space: Space) -> None:
    """Each message fits one revision and no other, so its mark and whether it is taken follow from the range."""
    name, revisions = space.path("schemas", "growing"), list[str]()
    for number in range(3):
        fields = [{"name": f"f{one}", "type": "int", "default": 0} for one in range(number + 1)]
        given = {"type_": "AVRO", "definition": json.dumps({"type": "record", "name": "R", "fields": fields})}
        if revisions:
            made = space.api.commit_schema({"name": name, "schema": given})
        else:
            parent = f"projects/{space.project}"
            made = space.api.create_schema({"parent": parent, "schema_id": "growing", "schema": given})
        revisions.append(made.revision_id)
    settings = {"schema": name, "encoding": "JSON"}
    topic = space.topic(schema_settings=settings)
    subscription = space.subscription(topic)
    taken: dict[str, int] = {}

    def publish(over: Event) -> Counter[str]:
        refusals: Counter[str] = Counter()
        while not over.is_set():
            for number in range(3):
                body = json.dumps({f"f{one}": 1 for one in range(number + 1)}).encode()
                try:
                    taken[space.publish(topic, body)[0]] = number
                except grpc.RpcError as error:
                    refusals[error.code().name] += 1
        return refusals

    over, mask = Event(), {"paths": ["schema_settings"]}
    with ThreadPoolExecutor() as pool:
        publishing = [pool.submit(publish, over) for _ in range(2)]
        try:
            for first, last in ((0, 0), (1, 2), (2, 2), (0, 1)):
                bounds = {"first_revision_id": revisions[first], "last_revision_id": revisions[last]}
                changed = {"name": topic, "schema_settings": {**settings, **bounds}}
                space.api.update_topic({"topic": changed, "update_mask": mask})
                for number in range(3):
                    body = json.dumps({f"f{one}": 2 for one in range(number + 1)}).encode()
                    with nullcontext() if first <= number <= last else refused("INVALID_ARGUMENT"):
                        taken[space.publish(topic, body)[0]] = number
            space.api.delete_schema({"name": name})
            with refused("NOT_FOUND", "Schema associated with topic deleted."):
                space.publish(topic, b'{"f0": 1}')
        finally:
            over.set()
        assert set().union(*(one.result() for one in publishing)) <= {"INVALID_ARGUMENT", "NOT_FOUND"}
    got = space.pull(subscription, len(taken), ack=True)
    marks = {one.message.message_id: one.message.attributes["googclient_schemarevisionid"] for one in got}
    assert marks == {identifier: revisions[number] for identifier, number in taken.items()}


def transform(code: str, name: str = "f") -> dict[str, Any]:
    return {"javascript_udf": {"function_name": name, "code": f"function {name}(message, metadata) {{ {code} }}"}}


def test_a_topic_changes_what_is_published_and_drops_what_its_function_drops(space: Space) -> None:
    code = "if (message.data === 'b') return null; if (message.data === 'bad') throw Error('no');"
    code += " message.data += '!'; message.attributes.key = String(metadata.ordering_key); return message;"
    topic = space.topic(message_transforms=[transform(code)])
    subscription = space.subscription(topic, enable_message_ordering=True)
    assert len(space.api.get_topic({"topic": topic}).message_transforms) == 1
    ids = space.publish(topic, b"a", b"b", b"c", key="k")
    assert len(set(ids)) == 3
    got = space.pull(subscription, 2, ack=True)
    assert [(one.message.data, dict(one.message.attributes)) for one in got] == [
        (b"a!", {"key": "k"}), (b"c!", {"key": "k"}),
    ]  # fmt: skip
    assert [one.message.message_id for one in got] == [ids[0], ids[2]]
    assert len(space.publish(topic, b"b", b"b")) == 2
    with refused("INVALID_ARGUMENT", "Error: no"):
        space.publish(topic, b"d", b"bad")
    for number in range(10):
        space.publish(topic, b"%d" % number, key="k")
    assert bodies(space.pull(subscription, 10, ack=True)) == [b"%d!" % number for number in range(10)]
    space.api.update_topic({"topic": {"name": topic}, "update_mask": {"paths": ["message_transforms"]}})
    space.publish(topic, b"plain")
    assert bodies(space.pull(subscription, ack=True)) == [b"plain"]
    with refused("INVALID_ARGUMENT", "javascript_udf.code"):
        space.topic("bad", message_transforms=[transform("return (")])


def test_a_subscription_changes_what_it_delivers_and_gives_up_what_it_cannot(space: Space) -> None:
    topic, letters = space.topic(), space.topic("letters")
    dead = space.subscription(letters, "dead")
    code = "if (message.data === 'drop') return null; if (message.data === 'bad') throw Error('no');"
    code += " return {data: message.data.toUpperCase(), attributes: {id: metadata.message_id}};"
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": 5}
    changed = space.subscription(topic, message_transforms=[transform(code)], dead_letter_policy=policy)
    same = space.subscription(topic, "same")
    ids = space.publish(topic, b"a", b"drop", b"b")
    stream = space.stream(changed)
    got = stream.wait(2)
    space.ack(changed, *got)
    assert sorted(stream.bodies) == [b"A", b"B"]
    assert {one.message.attributes["id"] for one in got} == {ids[0], ids[2]}
    stream.cancel()
    assert sorted(bodies(space.pull(same, 3, ack=True))) == [b"a", b"b", b"drop"]
    space.publish(topic, b"bad", b"c")
    assert bodies(space.pull(changed, 1, ack=True)) == [b"C"]
    space.stream(changed)
    assert bodies(space.pull(dead, 1, ack=True)) == [b"bad"]


def test_a_model_is_asked_by_a_service_account_and_its_answer_is_stored(
    space: Space, house: str, model: Endpoint
) -> None:
    account = "asker@p.example"
    asking = {"endpoint": MODEL, "unstructured_inference": {"parameters": {"depth": 2}}}
    topic = space.topic(message_transforms=[{"ai_inference": {**asking, "service_account_email": account}}])
    subscription = space.subscription(topic)
    space.publish(topic, b'{"text": "hi"}')
    headers, body = model.next()
    with urlopen(f"http://{house}/oauth2/v3/certs") as answer:
        keys = keys_of_set(answer.read())
    token = headers["authorization"].removeprefix("Bearer ")
    found = jwt.decode(token, keys[jwt.get_unverified_header(token)["kid"]].key, ["RS256"], audience=model.url)
    assert (found["iss"], found["email"], json.loads(body)) == (ISSUER, account, {"depth": 2, "text": "hi"})
    [data] = bodies(space.pull(subscription, ack=True))
    assert json.loads(data) == {"model_input": json.loads(body), "model_output": {"score": 0.5}}


def test_nothing_overtakes_a_message_of_its_key_that_cannot_be_transformed(space: Space) -> None:
    topic, letters = space.topic(), space.topic("letters")
    dead = space.subscription(letters, "dead")
    code = "if (message.data === 'bad') { let n = 0; while (n < 1e6) n++; throw Error('no'); } return message;"
    ordered = space.subscription(
        topic, enable_message_ordering=True, message_transforms=[transform(code)],
        dead_letter_policy={"dead_letter_topic": letters, "max_delivery_attempts": 5},
    )  # fmt: skip
    stream = space.stream(ordered)
    for body in (b"bad", b"a", b"b"):
        space.publish(topic, body, key="k")
    assert bodies(space.pull(dead, 1, ack=True)) == [b"bad"]
    stream.wait(2)
    assert stream.bodies == [b"a", b"b"]


def asked(space: Space, method: str, **fields: Any) -> Any:
    """What a method of the admin service answers."""
    path = methods.ADMIN[method]
    with Client(space.endpoint) as client:
        return client.call(f"Admin.{method}", path.request(**fields))


def test_rules_say_which_messages_come_and_what_their_copies_say(space: Space) -> None:
    topic, subscription = space.pair()
    space.publish(topic, b"before", attributes={"n": "1"})
    rules: list[dict[str, Any]] = [
        {"name": "big", "sql": "n > 10"},
        {"name": "odd", "sql": "n % 2 = 1"},
        {"name": "fresh", "sql": "replicated IS NULL", "action": "SET replicated = 1; SET next = n + 1"},
        {"name": "by", "correlation": {"properties": {"sys.Label": "x"}}, "action": "SET sys.Label = 'y'"},
    ]
    for rule in rules:
        asked(space, "CreateRule", subscription=subscription, rule=rule)
    asked(space, "DeleteRule", subscription=subscription, name="$Default")
    names = [one.name for one in asked(space, "ListRules", subscription=subscription).rules]
    assert names == ["big", "by", "fresh", "odd"]
    with pytest.raises(InvalidArgument, match="ends too early"):
        asked(space, "UpdateRule", subscription=subscription, rule={"name": "big", "sql": "n >"})
    space.publish(topic, b"twelve", attributes={"n": "12", "replicated": "1"})
    space.publish(topic, b"three", attributes={"n": "3"})
    space.publish(topic, b"two", attributes={"n": "2", "sys.Subject": "x", "replicated": "1"})
    found: list[Any] = []

    def all_came() -> bool:
        found.extend(space.pull(subscription, ack=True))
        return len(found) >= 5

    eventually(all_came)
    held = {(one.message.data, attributes_of(one).get("RuleName", "")): attributes_of(one) for one in found}
    plain = {(b"before", ""), (b"twelve", ""), (b"three", "")}
    assert set(held) == plain | {(b"three", "fresh"), (b"two", "by")}
    assert len(found) == len(held)
    assert held[b"three", "fresh"] == {"n": "3", "replicated": "1", "next": "4", "RuleName": "fresh"}
    assert held[b"two", "by"]["sys.Subject"] == "y"
    message = {"attributes": {"n": "4"}}
    trial = asked(space, "TestRule", subscription=subscription, message=message, explain=True)
    assert [dict(one.attributes) for one in trial.copies] == [
        {"n": "4", "replicated": "1", "next": "5", "RuleName": "fresh"}
    ]


def test_a_queue_has_one_subscription_and_is_suspended_in_either_direction(space: Space) -> None:
    queue, received = space.path("topics", "jobs"), space.path("subscriptions", "jobs")
    asked(space, "CreateQueue", topic={"name": queue})
    space.publish(queue, b"first")
    with refused("FAILED_PRECONDITION", "is a queue"):
        space.subscription(queue, "second")
    with refused("FAILED_PRECONDITION", "is a queue"):
        space.api.delete_subscription({"subscription": received})
    (out,) = space.pull(received)

    def suspend(*, suspended: bool) -> None:
        mask = {"paths": ["send_suspended"]}
        asked(space, "UpdateTopicOptions", options={"topic": queue, "send_suspended": suspended}, update_mask=mask)
        mask = {"paths": ["receive_suspended"]}
        options = {"subscription": received, "receive_suspended": suspended}
        asked(space, "UpdateSubscriptionOptions", options=options, update_mask=mask)

    suspend(suspended=True)
    with refused("FAILED_PRECONDITION", "suspended for sending"):
        space.publish(queue, b"refused")
    space.nack(received, out)

    def is_held() -> bool:
        """It is free again, and handed to nobody; a process of a cluster may know that a moment later."""
        got = space.peek(received)
        if got:
            space.nack(received, *got)
        return not got

    eventually(is_held)
    stream = space.stream(received)
    shown = asked(space, "GetQueue", topic=queue)
    assert shown.send_suspended
    assert shown.receive_suspended
    suspend(suspended=False)
    (again,) = stream.wait(1)
    assert again.message.data == b"first"
    stream.acknowledge(again)
    space.publish(queue, b"second")
    stream.wait(2)
    asked(space, "DeleteQueue", topic=queue)
    with refused("NOT_FOUND"):
        space.publish(queue, b"nobody receives this")


def test_a_message_of_an_id_that_was_published_is_dropped(space: Space) -> None:
    topic, subscription = space.pair()
    space.publish(topic, b"before", attributes={"sys.MessageId": "0"})
    mask = {"paths": ["duplicate_detection_window"]}
    options = {"topic": topic, "duplicate_detection_window": {"seconds": 600}}
    asked(space, "UpdateTopicOptions", options=options, update_mask=mask)
    assert asked(space, "GetTopicOptions", topic=topic).duplicate_detection_window.seconds == 600
    for seconds in (19, 7 * 86_400 + 1):
        options = {"topic": topic, "duplicate_detection_window": {"seconds": seconds}}
        with pytest.raises(InvalidArgument, match="duplicate_detection_window"):
            asked(space, "UpdateTopicOptions", options=options, update_mask=mask)
    with refused("INVALID_ARGUMENT", "sys.MessageId is longer"):
        space.publish(topic, b"", attributes={"sys.MessageId": "x" * 129})

    def publish(number: int) -> tuple[int, str]:
        one = number % 20
        attributes = {"sys.MessageId": f"id {one}"}
        return one, space.publish(topic, b"%d" % one, key=f"k{one % 3}" if one % 2 else "", attributes=attributes)[0]

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(publish, range(100)))
    assert len(found) == 20, "each id has one message"
    assert len({message for _, message in found}) == 20
    space.publish(topic, b"plain", b"plain")
    got = Counter(one.message.data for one in space.pull(subscription, 23, ack=True))
    assert got == Counter({b"before": 1, b"plain": 2} | {b"%d" % number: 1 for number in range(20)})


def test_messages_are_shown_without_being_delivered(space: Space) -> None:
    topic, subscription = space.pair()
    for number in range(6):
        space.publish(topic, b"%d" % number, attributes={"odd": str(number % 2)})
    got = space.pull(subscription, 6)
    space.ack(subscription, *(one for one in got if one.message.data < b"2"))

    def shown(method: str, **fields: Any) -> list[bytes]:
        """All pages of it; which of the chains of a cluster has which messages is none of the caller's business."""
        found, token = [], ""
        while True:
            answer = asked(space, method, page_size=2, page_token=token, **fields)
            assert not answer.unknown
            found += [one.message.data for one in answer.messages]
            token = answer.next_page_token
            if not token:
                return sorted(found)

    rest = [b"2", b"3", b"4", b"5"]
    eventually(lambda: shown("PeekSubscription", subscription=subscription) == rest)
    assert shown("PeekSubscription", subscription=subscription, filter='attributes.odd = "1"') == [b"3", b"5"]
    assert set(shown("PeekTopic", topic=topic)) >= set(rest)
    one = next(one for one in got if one.message.data == b"4")
    assert b"4" in shown("PeekTopic", topic=topic, message_id=one.message.message_id)
    receipt = asked(space, "GetReceipt", topic=topic, message_id=one.message.message_id)
    assert receipt.suffices
    assert sum(copy.state == admin.DiskCopy.HELD for copy in receipt.copies) >= receipt.needed
    space.ack(subscription, *(one for one in got if one.message.data >= b"2"))
    assert not shown("PeekSubscription", subscription=subscription)


def test_why_names_what_keeps_messages(space: Space) -> None:
    topic, subscription = space.pair()

    def causes() -> list[str]:
        with Client(space.endpoint) as client:
            facts = facts_of(client, subscription, subscription)
        assert not facts.unknown
        assert not facts.state.unknown
        return [one.cause for one in findings(facts)]

    assert causes() == ["NOBODY_CONNECTED", "NOTHING_PUBLISHED"]
    asked(
        space,
        "UpdateTopicOptions",
        options={"topic": topic, "send_suspended": True},
        update_mask={"paths": ["send_suspended"]},
    )
    eventually(lambda: "SEND_SUSPENDED" in causes())
    asked(
        space,
        "UpdateTopicOptions",
        options={"topic": topic, "send_suspended": False},
        update_mask={"paths": ["send_suspended"]},
    )
    eventually(lambda: "SEND_SUSPENDED" not in causes())
    space.publish(topic, b"one")
    eventually(lambda: causes() == ["NOBODY_CONNECTED"])
    got = space.pull(subscription)
    eventually(lambda: causes() == ["OUT_WITH_SUBSCRIBERS", "NOBODY_CONNECTED"])
    options = {"subscription": subscription, "receive_suspended": True}
    asked(space, "UpdateSubscriptionOptions", options=options, update_mask={"paths": ["receive_suspended"]})
    assert causes()[0] == "RECEIVE_SUSPENDED"
    space.ack(subscription, *got)
    options["receive_suspended"] = False
    asked(space, "UpdateSubscriptionOptions", options=options, update_mask={"paths": ["receive_suspended"]})
    eventually(lambda: causes() == ["NOBODY_CONNECTED"])
    asked(space, "DeleteRule", subscription=subscription, name="$Default")
    assert causes() == ["NOBODY_CONNECTED", "NO_RULES"]


def test_rules_do_not_wear_out_by_changes(space: Space) -> None:
    topic, subscription = space.pair()
    space.publish(topic, b"first")
    for number in range(300):
        rule: dict[str, Any] = {"name": "$Default", "sql": f"n = {number} OR n = 'each'"}
        if number % 7 == 0:
            rule["action"] = "SET x = 1"
        asked(space, "UpdateRule", subscription=subscription, rule=rule)
        if number % 100 == 50:
            space.publish(topic, f"of {number}".encode(), attributes={"n": str(number)})
    space.publish(topic, b"last", attributes={"n": "each"})
    found: set[bytes] = set()

    def all_came() -> bool:
        found.update(one.message.data for one in space.pull(subscription, ack=True))
        return len(found) >= 5

    eventually(all_came)
    assert found == {b"first", b"of 50", b"of 150", b"of 250", b"last"}


def test_what_is_forwarded_comes_in_order_once_and_four_times_at_most(space: Space) -> None:
    first, queue, dead = space.topic("hop"), space.topic("hop-archive"), space.topic("hop-dead")
    policy = {"dead_letter_topic": dead, "max_delivery_attempts": 5}
    onwards = space.subscription(first, "hop-onwards", enable_message_ordering=True, dead_letter_policy=policy)
    reader = space.subscription(queue, "hop-reader", enable_message_ordering=True)
    letters = space.subscription(dead, "hop-letters")

    def forward(subscription: str, topic: str) -> None:
        options = {"subscription": subscription, "forward_to": topic}
        asked(space, "UpdateSubscriptionOptions", options=options, update_mask={"paths": ["forward_to"]})

    with pytest.raises(NotFound):
        forward(onwards, f"{first}-not-there")
    with pytest.raises(InvalidArgument, match="forward_to is the topic"):
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
    eventually(lambda: asked(space, "GetSubscriptionState", subscription=onwards).backlog_messages == 0)
    state = asked(space, "GetSubscriptionState", subscription=onwards)
    assert (state.forward.topic, state.forward.forwarded, state.forward.held) == (queue, 20, 0)

    suspend = {"options": {"topic": queue, "send_suspended": True}, "update_mask": {"paths": ["send_suspended"]}}
    asked(space, "UpdateTopicOptions", **suspend)
    space.publish(first, b"later")

    def waits() -> bool:
        return "suspended" in asked(space, "GetSubscriptionState", subscription=onwards).forward.last_error

    eventually(waits)
    suspend["options"]["send_suspended"] = False
    asked(space, "UpdateTopicOptions", **suspend)
    assert bodies(space.pull(reader, 1, ack=True)) == [b"later"]

    back = space.subscription(queue, "hop-back", enable_message_ordering=True, dead_letter_policy=policy)
    forward(back, first)
    space.publish(first, b"round", key="k0")
    (letter,) = space.pull(letters, ack=True)
    assert letter.message.data == b"round"
    assert attributes_of(letter)["sys.DeadLetterReason"] == "MaxTransferHopCountExceeded"
    assert attributes_of(letter)["sys.ForwardHops"] == "4"
    assert bodies(space.pull(reader, 2, ack=True)) == [b"round", b"round"]


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
    asked(space, "CreateRule", subscription=onwards, rule={"name": "later", "sql": "later IS NOT NULL",
          "action": f"SET sys.ScheduledEnqueueTimeUtc = '{due}'"})  # fmt: skip
    space.publish(first, b'{"id": "c"}', attributes={"later": "yes"})
    options = {"subscription": onwards, "forward_to": strict}
    asked(space, "UpdateSubscriptionOptions", options=options, update_mask={"paths": ["forward_to"]})
    got = space.pull(reader, 4, within=40, ack=True)
    assert sorted(bodies(got)) == [b'{"id": "a"}', b'{"id": "b"}', b'{"id": "c"}', b'{"id": "c"}']
    assert {attributes_of(one)["googclient_schemarevisionid"] for one in got} == {made.revision_id}
    (later,) = (one for one in got if "RuleName" in attributes_of(one))
    assert later.message.publish_time >= datetime.fromisoformat(due)
    (letter,) = space.pull(letters, ack=True)
    assert letter.message.data == b"no order"
    assert attributes_of(letter)["sys.DeadLetterReason"] == "ForwardingRefused"
    assert "schema" in attributes_of(letter)["sys.DeadLetterErrorDescription"]
