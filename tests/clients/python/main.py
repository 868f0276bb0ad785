"""An official Python client of any 2.x against a running Syncpoint: one JSON line per scenario on stdout.

PUBSUB_EMULATOR_HOST names the server; with PUBSUB_TRANSPORT=rest the generated clients call it over REST. A line
{"ask": "restart"} asks the driver to kill and restart the server, {"ask": "rolling"} to restart all its processes in
turn; it answers with a line on stdin when the server is back. PUBLISH_PAUSE_MS bounds the pauses between attempts to
publish. What a version does not have yet is skipped.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import threading
import time
import traceback
from typing import Any

import grpc
from google.api_core import exceptions, retry
from google.cloud import pubsub_v1
from google.pubsub_v1.services.publisher import PublisherClient
from space import PROJECT, REST, SECONDS, Skip, Space, needs, over_rest, refused, streams, want

OUTAGE_SECONDS = 240
"""For scenarios in which the server goes away: the clients' own pauses between attempts grow to 60 s."""
DEFINITION = '{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}'
CODE = "function up(message, metadata) { message.data = message.data.toUpperCase(); return message; }"


def topics(s: Space) -> None:
    name = s.topic(labels={"team": "a"})
    want(s.publisher.get_topic(request={"topic": name}).labels["team"] == "a", "label lost")
    refused(exceptions.AlreadyExists, s.topic)
    storage = {"allowed_persistence_regions": []}
    wished = {"name": name, "labels": {"team": "b"}, "message_storage_policy": storage}
    changed = s.publisher.update_topic(request={"topic": wished, "update_mask": {"paths": ["labels"]}})
    want(changed.labels["team"] == "b", changed)
    project = {"project": f"projects/{PROJECT}", "page_size": 1}
    want(name in [one.name for one in s.publisher.list_topics(request=project)], "not listed")
    s.publisher.delete_topic(request={"topic": name})
    refused(exceptions.NotFound, lambda: s.publisher.get_topic(request={"topic": name}))


def subscriptions(s: Space) -> None:
    topic, name = s.pair()
    want(s.subscriber.get_subscription(request={"subscription": name}).topic == topic, "topic lost")
    wished = {"name": name, "ack_deadline_seconds": 42, "labels": {"a": "b"}}
    mask = {"paths": ["ack_deadline_seconds", "labels"]}
    changed = s.subscriber.update_subscription(request={"subscription": wished, "update_mask": mask})
    want(changed.ack_deadline_seconds == 42 and changed.labels["a"] == "b", changed)
    project = {"project": f"projects/{PROJECT}"}
    want(name in [one.name for one in s.subscriber.list_subscriptions(request=project)], "not listed")
    want(list(s.publisher.list_topic_subscriptions(request={"topic": topic})) == [name], "not listed at its topic")
    s.subscriber.delete_subscription(request={"subscription": name})
    refused(exceptions.NotFound, lambda: s.subscriber.get_subscription(request={"subscription": name}))


def publish(s: Space) -> None:
    topic, sub = s.pair(enable_message_ordering=True)
    client = pubsub_v1.PublisherClient(publisher_options=pubsub_v1.types.PublisherOptions(enable_message_ordering=True))
    sent = [str(number).encode() for number in range(20)]
    futures = [client.publish(topic, data, ordering_key="k", n=data.decode(), é="ü") for data in sent]
    ids = [future.result(SECONDS) for future in futures]
    got: list[Any] = []

    def each(message: Any) -> bool:
        got.append((message.message_id, message.data, dict(message.attributes), message.ordering_key))
        message.ack()
        return len(got) >= len(sent)

    s.receive(sub, each)
    expected = [(i, data, {"n": data.decode(), "é": "ü"}, "k") for i, data in zip(ids, sent, strict=True)]
    want(got[: len(sent)] == expected, got)


def pull(s: Space) -> None:
    topic, sub = s.pair()
    s.bodies(topic, "a", "b", "c")
    want({one.message.data for one in s.pull(sub, 3)} == {b"a", b"b", b"c"}, "other messages")


def streaming_pull(s: Space) -> None:
    topic, sub = s.pair()
    sent = [str(number) for number in range(200)]
    s.bodies(topic, *sent)
    lock, seen, counts = threading.Lock(), set(), [0, 0]

    def each(message: Any) -> bool:
        with lock:
            counts[0] += 1
            counts[1] = max(counts)
        time.sleep(0.005)
        with lock:
            counts[0] -= 1
            seen.add(message.data.decode())
        message.ack()
        return len(seen) == len(sent)

    s.receive(sub, each, flow_control=pubsub_v1.types.FlowControl(max_messages=5))
    want(counts[1] <= 5, f"{counts[1]} at once")


def ack(s: Space) -> None:
    topic, sub = s.pair()
    s.bodies(topic, "a", "b")
    s.ack(sub, s.pull(sub, 2))
    time.sleep(11)
    want(not s.pull_once(sub, 2), "acknowledged messages came again")


def nack(s: Space) -> None:
    topic, sub = s.pair()
    s.bodies(topic, "a")
    times: list[Any] = []

    def each(message: Any) -> bool:
        times.append(message)
        if len(times) < 3:
            message.nack()
            return False
        message.ack()
        return True

    s.receive(sub, each)


def modack(s: Space) -> None:
    topic, sub = s.pair()
    s.bodies(topic, "a")
    (first,) = s.pull(sub, 1)
    s.deadline(sub, first, 60)
    time.sleep(11)
    want(not s.pull_once(sub, 2), "came again although its deadline was extended")
    s.deadline(sub, first, 0)
    s.ack(sub, s.pull(sub, 1))


def exactly_once(s: Space) -> None:
    needs("Subscription", "enable_exactly_once_delivery")
    topic, sub = s.pair(enable_exactly_once_delivery=True)
    s.bodies(topic, "a", "b", "c")
    confirmed: list[Any] = []

    def each(message: Any) -> bool:
        confirmed.append(message.ack_with_response().result(30))
        return len(confirmed) == 3

    s.receive(sub, each)
    want({one.name for one in confirmed} == {"SUCCESS"}, confirmed)
    s.bodies(topic, "d")
    old = s.pull(sub, 1)
    s.deadline(sub, old[0], 0)
    s.ack(sub, s.pull(sub, 1))
    refused(exceptions.InvalidArgument, lambda: s.ack(sub, old))


def dead_letter(s: Space) -> None:
    dead = s.topic("dead")
    dead_sub = s.sub(dead, "dead")
    topic, sub = s.pair(dead_letter_policy={"dead_letter_topic": dead, "max_delivery_attempts": 5})
    s.bodies(topic, "poison")
    attempts: list[int] = []

    def each(message: Any) -> bool:
        attempts.append(message.delivery_attempt)
        message.nack()
        return len(attempts) >= 5

    s.receive(sub, each)
    want(attempts == [1, 2, 3, 4, 5], attempts)
    (got,) = s.pull(dead_sub, 1)
    want(got.message.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5", got)


def filters(s: Space) -> None:
    topic, sub = s.pair(filter='attributes.colour = "red"')
    for body, colour in ((b"1", "blue"), (b"2", "red")):
        s.send(topic, body, colour=colour)
    want([one.message.data for one in s.pull(sub, 1)] == [b"2"], "other messages")


def snapshot_seek(s: Space) -> None:
    topic, sub = s.pair()
    s.bodies(topic, "a", "b")
    snapshot = s.name("snapshots", "snap")
    made = s.subscriber.create_snapshot(request={"name": snapshot, "subscription": sub})
    want(made.topic == topic, made)
    s.ack(sub, s.pull(sub, 2))
    s.subscriber.seek(request={"subscription": sub, "snapshot": snapshot})
    s.ack(sub, s.pull(sub, 2))
    s.subscriber.delete_snapshot(request={"snapshot": snapshot})


def made_schema(s: Space) -> tuple[Any, Any]:
    """The client of schemas, and a schema."""
    service = getattr(pubsub_v1, "SchemaServiceClient", None)
    if service is None:
        raise Skip("the client has no SchemaServiceClient")
    client = over_rest(service) if REST else service()
    body = {"type_": "AVRO", "definition": DEFINITION}
    request = {"parent": f"projects/{PROJECT}", "schema_id": f"{s.prefix}-schema", "schema": body}
    return client, client.create_schema(request=request)


def schema(s: Space) -> None:
    _, made = made_schema(s)
    topic = s.topic(schema_settings={"schema": made.name, "encoding": "JSON"})
    sub = s.sub(topic)
    s.bodies(topic, '{"n":1}')
    attributes = dict(s.pull(sub, 1)[0].message.attributes)
    want(attributes["googclient_schemaencoding"] == "JSON", attributes)
    want(attributes["googclient_schemarevisionid"] == made.revision_id, attributes)
    refused(exceptions.InvalidArgument, lambda: s.bodies(topic, '{"n":"x"}'))


def iam(s: Space) -> None:
    topic = s.topic()
    policy = s.publisher.get_iam_policy(request={"resource": topic})
    policy.bindings.add(role="roles/pubsub.viewer", members=["user:a@example.com"])
    made = s.publisher.set_iam_policy(request={"resource": topic, "policy": policy})
    want(list(made.bindings) == list(policy.bindings) and made.etag, made)
    asked = ["pubsub.topics.publish", "pubsub.topics.get"]
    tested = s.publisher.test_iam_permissions(request={"resource": topic, "permissions": asked})
    want(sorted(tested.permissions) == sorted(asked), tested)


def push_config(s: Space) -> None:
    _, sub = s.pair()

    def endpoint() -> str:
        return s.subscriber.get_subscription(request={"subscription": sub}).push_config.push_endpoint

    for url in ("https://push.example.com/x", ""):
        push = {"push_endpoint": url}
        s.subscriber.modify_push_config(request={"subscription": sub, "push_config": push})
        want(endpoint() == url, endpoint())


def transforms(s: Space) -> None:
    needs("Topic", "message_transforms")
    udf = {"function_name": "up", "code": CODE}
    topic = s.topic(message_transforms=[{"javascript_udf": udf}])
    sub = s.sub(topic)
    (read,) = s.publisher.get_topic(request={"topic": topic}).message_transforms
    want(read.javascript_udf.code == CODE, read)
    s.bodies(topic, "quiet")
    want(s.pull(sub, 1)[0].message.data == b"QUIET", "not transformed")


def schema_revisions(s: Space) -> None:
    client, made = made_schema(s)
    wider = DEFINITION.replace("]}", ',{"name":"t","type":"string","default":""}]}')
    body = {"name": made.name, "type_": "AVRO", "definition": wider}
    second = client.commit_schema(request={"name": made.name, "schema": body})
    want(second.revision_id != made.revision_id, second)
    parent = f"projects/{PROJECT}"
    message = {"message": b'{"n":1,"t":"x"}', "encoding": "JSON"}
    client.validate_message(request={"parent": parent, "name": made.name, **message})
    full = {"name": made.name, "view": "FULL"}
    listed = [one.revision_id for one in client.list_schema_revisions(request=full)]
    want(listed == [second.revision_id, made.revision_id], listed)
    third = client.rollback_schema(request={"name": made.name, "revision_id": made.revision_id})
    want(third.definition == DEFINITION and third.revision_id not in listed, third)
    wrong = {"parent": parent, "schema": {"type_": "AVRO", "definition": "{"}}
    refused(exceptions.InvalidArgument, lambda: client.validate_schema(request=wrong))
    client.delete_schema_revision(request={"name": f"{made.name}@{second.revision_id}"})
    listed = [one.revision_id for one in client.list_schema_revisions(request=full)]
    want(listed == [third.revision_id, made.revision_id], listed)


def push_create(s: Space) -> None:
    token = {"service_account_email": "pusher@example.iam.gserviceaccount.com", "audience": "us"}
    push = {"push_endpoint": "https://push.example.com/x", "attributes": {"x-goog-version": "v1"}, "oidc_token": token}
    _, sub = s.pair(push_config=push)
    read = s.subscriber.get_subscription(request={"subscription": sub}).push_config
    want(read.push_endpoint == push["push_endpoint"] and read.attributes["x-goog-version"] == "v1", read)
    want(read.oidc_token.service_account_email == token["service_account_email"], read)
    want(read.oidc_token.audience == "us", read)
    refused(exceptions.FailedPrecondition, lambda: s.pull_once(sub, 2))


def detach(s: Space) -> None:
    topic, sub = s.pair()
    s.publisher.detach_subscription(request={"subscription": sub})
    want(s.subscriber.get_subscription(request={"subscription": sub}).detached, "not detached")
    want(not list(s.publisher.list_topic_subscriptions(request={"topic": topic})), "still listed at its topic")
    refused(exceptions.FailedPrecondition, lambda: s.pull_once(sub, 2))


def ordering_resume(s: Space) -> None:
    """After a refused message the client holds its ordering key back until it is told to go on."""
    streams()
    topic, sub = s.pair(enable_message_ordering=True)
    client = pubsub_v1.PublisherClient(publisher_options=pubsub_v1.types.PublisherOptions(enable_message_ordering=True))
    client.publish(topic, b"0", ordering_key="k").result(SECONDS)
    bad = client.publish(topic, b"1", ordering_key="k", **{"n" * 257: "too long a name"})
    refused(exceptions.InvalidArgument, lambda: bad.result(SECONDS))
    try:
        client.publish(topic, b"2", ordering_key="k").result(SECONDS)
    except Exception as error:
        want("resume" in str(error).lower() or "Paused" in type(error).__name__, repr(error))
    else:
        raise AssertionError("the key was not paused")
    client.resume_publish(topic, "k")
    client.publish(topic, b"3", ordering_key="k").result(SECONDS)
    want([one.message.data for one in s.pull(sub, 2)] == [b"0", b"3"], "other messages")


def seek_time(s: Space) -> None:
    topic, sub = s.pair(retain_acked_messages=True)
    start = datetime.datetime.now(datetime.UTC)
    s.bodies(topic, "a", "b")
    s.ack(sub, s.pull(sub, 2))
    s.subscriber.seek(request={"subscription": sub, "time": start})
    s.ack(sub, s.pull(sub, 2))


def compression(s: Space) -> None:
    streams()
    topic, sub = s.pair()
    channel = grpc.insecure_channel(os.environ["PUBSUB_EMULATOR_HOST"], compression=grpc.Compression.Gzip)
    client = PublisherClient(transport=PublisherClient.get_transport_class("grpc")(channel=channel))
    body = b"x" * 50_000
    client.publish(request={"topic": topic, "messages": [{"data": body}]}, timeout=SECONDS)
    want(s.pull(sub, 1)[0].message.data == body, "another message")
    channel.close()


def tracing(s: Space) -> None:
    streams()
    if "enable_open_telemetry_tracing" not in pubsub_v1.types.PublisherOptions._fields:
        raise Skip("the client has no tracing")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    trace.set_tracer_provider(TracerProvider())
    topic, sub = s.pair()
    options = pubsub_v1.types.PublisherOptions(enable_open_telemetry_tracing=True)
    pubsub_v1.PublisherClient(publisher_options=options).publish(topic, b"traced").result(SECONDS)
    attributes = dict(s.pull(sub, 1)[0].message.attributes)
    want(list(attributes) == ["googclient_traceparent"], attributes)


def cancel(s: Space) -> None:
    """What a stream held back for flow control comes to others at once when it is closed."""
    streams()
    topic, sub = s.pair(ack_deadline_seconds=600)
    s.bodies(topic, *(str(number) for number in range(50)))
    held: list[Any] = []
    enough = threading.Event()

    def callback(message: Any) -> None:
        held.append(message)
        if len(held) >= 5:
            enough.set()

    future = s.subscriber.subscribe(sub, callback=callback, flow_control=pubsub_v1.types.FlowControl(max_messages=5))
    want(enough.wait(SECONDS), f"{len(held)} came")
    future.cancel()
    s.ack(sub, s.pull(sub, 45))


def idle(s: Space) -> None:
    """A stream on which nothing happens for longer than its keep-alive periods is still served."""
    streams()
    topic, sub = s.pair()
    came = threading.Event()

    def callback(message: Any) -> None:
        message.ack()
        came.set()

    future = s.subscriber.subscribe(sub, callback=callback)
    time.sleep(45)
    want(not future.done(), "the stream ended")
    s.bodies(topic, "a")
    want(came.wait(SECONDS), "nothing came")
    future.cancel()


def restart(s: Space) -> None:
    """The server is killed and restarted while a subscriber and a publisher are at work; nothing may be lost."""
    flow(s, "restart")


def rolling(s: Space) -> None:
    """All processes of the server are restarted in turn in the meantime."""
    flow(s, "rolling")


def flow(s: Space, what: str) -> None:
    """Publish and receive until the driver has done what it is asked for; everything published is received."""
    streams()
    s.end = time.monotonic() + OUTAGE_SECONDS
    topic, sub = s.pair()
    seen: set[str] = set()

    def callback(message: Any) -> None:
        seen.add(message.data.decode())
        message.ack()

    future = s.subscriber.subscribe(sub, callback=callback)
    publisher = s.publisher
    if pause := float(os.environ.get("PUBLISH_PAUSE_MS", 0)) / 1000:
        patient = retry.Retry(initial=0.1, maximum=pause, multiplier=2, timeout=OUTAGE_SECONDS)
        publisher = pubsub_v1.PublisherClient(publisher_options=pubsub_v1.types.PublisherOptions(retry=patient))
    published = [publisher.publish(topic, b"0")]
    published[0].result(SECONDS)
    print(json.dumps({"ask": what}), flush=True)
    answered = threading.Thread(target=sys.stdin.readline, daemon=True)
    answered.start()
    after = 0
    while after < 100:
        published.append(publisher.publish(topic, str(len(published)).encode()))
        after += not answered.is_alive()
        time.sleep(0.02)
    for confirmed, one in enumerate(published):
        try:
            one.result(max(0.1, s.end - time.monotonic()))
        except Exception as error:
            raise AssertionError(f"{confirmed} of {len(published)} confirmed, {len(seen)} received") from error
    while len(seen) < len(published):
        want(not future.done(), f"the stream ended after {len(seen)}: {future.exception() if future.done() else None}")
        want(time.monotonic() < s.end, f"{len(seen)} of {len(published)} came")
        time.sleep(0.02)
    future.cancel()


SCENARIOS = {
    "topics": topics, "subscriptions": subscriptions, "publish": publish, "pull": pull,
    "streaming_pull": streaming_pull, "ack": ack, "nack": nack, "modack": modack, "exactly_once": exactly_once,
    "dead_letter": dead_letter, "filter": filters, "snapshot_seek": snapshot_seek, "schema": schema, "iam": iam,
    "push_config": push_config, "transforms": transforms, "schema_revisions": schema_revisions,
    "push_create": push_create, "detach": detach, "ordering_resume": ordering_resume, "seek_time": seek_time,
    "compression": compression, "tracing": tracing, "cancel": cancel, "idle": idle, "restart": restart,
    "rolling": rolling,
}  # fmt: skip


def main() -> None:
    space = Space()
    asked = [name for name in os.environ.get("SCENARIOS", "").split(",") if name]
    for name in asked or SCENARIOS:
        space.prefix, space.end = name, time.monotonic() + SECONDS
        result, detail = "pass", ""
        try:
            SCENARIOS[name](space)
        except Skip as reason:
            result, detail = "skip", str(reason)
        except Exception as error:
            traceback.print_exc()
            result, detail = "fail", f"{type(error).__name__}: {error}"
        print(json.dumps({"scenario": name, "result": result, "detail": detail}), flush=True)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
