"""Traces of the official client, on one node, with workers and in a cluster: one tree from the publisher to the
acknowledgement, as a collector receives it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from email.message import Message

import pytest
from google.cloud import pubsub_v1
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from syncpoint.testing.rigs import official
from syncpoint.testing.server_process import ServerProcess
from tests.kit.in_threads import HttpThread
from tests.kit.otlp_receiver import OtlpReceiver, attributes_of

pytestmark = pytest.mark.shows("traces")

START_S = 180.0
SERVERS = ("publish orders", "persist orders", "deliver billing", "ack billing")


@pytest.fixture(scope="module")
def client_spans() -> Iterator[InMemorySpanExporter]:
    """This process is a traced program; what the official client makes of it."""
    provider, kept = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    trace.set_tracer_provider(provider)
    yield kept
    provider.shutdown()


def ids(trace_id: bytes, span_id: bytes) -> tuple[int, int]:
    """As the SDK has them."""
    return int.from_bytes(trace_id), int.from_bytes(span_id)


def publish_and_receive(endpoint: str, messages: int, *, traced: bool = True) -> None:
    """With the official client: publish, receive, acknowledge."""
    api = official.Api(endpoint)
    topic, subscription = "projects/shop/topics/orders", "projects/shop/subscriptions/billing"
    api.create_topic({"name": topic})
    api.create_subscription({"name": subscription, "topic": topic})
    with official.emulator_host(endpoint):
        options = pubsub_v1.types.PublisherOptions(enable_open_telemetry_tracing=traced)
        publisher = pubsub_v1.PublisherClient(publisher_options=options)
        reading = pubsub_v1.types.SubscriberOptions(enable_open_telemetry_tracing=traced)
        subscriber = pubsub_v1.SubscriberClient(subscriber_options=reading)
    for number in range(messages):
        publisher.publish(topic, b"%d" % number).result(90)
    publisher.stop()
    left, over = [messages], threading.Event()

    def take(message: pubsub_v1.subscriber.message.Message) -> None:
        message.ack()
        left[0] -= 1
        if not left[0]:
            over.set()

    future = subscriber.subscribe(subscription, take)
    assert over.wait(100)
    future.cancel()
    future.result(90)
    subscriber.close()
    api.close()


@pytest.mark.parametrize("more", [(), ("--workers", "2")], ids=["node", "workers"])
def test_a_message_is_one_tree_from_the_publisher_to_the_acknowledgement(more, client_spans):
    with OtlpReceiver() as collector:
        client_spans.clear()
        with ServerProcess(args=["--otlp", collector.url, *more]).start(START_S) as server:
            publish_and_receive(server.endpoint, 3)
            server.terminate()  # what is left is exported
        ours = [span for _, span in collector.soon(*SERVERS)]
        assert len(ours) == 4 * 3, sorted(span.name for span in ours)
        assert len({span.span_id for span in ours}) == len(ours), "no id twice"
        began = {(one.context.trace_id, one.context.span_id): one.name for one in client_spans.get_finished_spans()}
        names = began | {ids(span.trace_id, span.span_id): span.name for span in ours}
        for span in ours:
            above = {"publish orders": "orders create", "persist orders": "publish orders"}
            above |= {"deliver billing": "publish orders", "ack billing": "deliver billing"}
            assert names[ids(span.trace_id, span.parent_span_id)] == above[span.name], "in the same trace"
            assert span.start_time_unix_nano <= span.end_time_unix_nano
            assert attributes_of(span.attributes)["messaging.system"] == "gcp_pubsub"
        persisted = next(attributes_of(span.attributes) for span in ours if span.name == "persist orders")
        assert persisted["messaging.destination.name"] == "orders"
        assert persisted["syncpoint.disks"]
        said: dict[str, set[str]] = {name: set() for name in SERVERS}
        for span in ours:
            said[span.name].add(attributes_of(span.attributes).get("messaging.message.id", ""))
        assert len(said["publish orders"]) == 3
        assert said["publish orders"] == said["deliver billing"] == said["ack billing"]


def test_what_nobody_traces_begins_a_trace_as_often_as_the_ratio_says():
    with OtlpReceiver() as collector:
        with ServerProcess(args=["--otlp", collector.url, "--trace-ratio", "1"]).start(START_S) as server:
            publish_and_receive(server.endpoint, 2, traced=False)
            server.terminate()
        assert [span.name for _, span in collector.soon("publish orders")] == ["publish orders"] * 2
        assert len({span.trace_id for _, span in collector.spans()}) == 2
        with ServerProcess(args=["--otlp", collector.url]).start(START_S) as server:
            publish_and_receive(server.endpoint, 2, traced=False)
            server.terminate()
        assert len(collector.spans()) == 2, "without a ratio what nobody traces is not"


def test_each_push_has_a_span_and_its_endpoint_the_context(client_spans):
    """The endpoint refuses the first push and takes the second one."""
    came: list[str] = []

    def answer(path: str, headers: Message, body: bytes) -> tuple[int, bytes]:
        came.append(headers["traceparent"])
        return (500 if len(came) == 1 else 204), b""

    with OtlpReceiver() as collector, HttpThread(answer) as endpoint:
        client_spans.clear()
        with ServerProcess(args=["--otlp", collector.url, "--push-network", "loopback"]).start(START_S) as server:
            topic, subscription = "projects/shop/topics/orders", "projects/shop/subscriptions/hook"
            api = official.Api(server.endpoint)
            api.create_topic({"name": topic})
            pushed = {"push_endpoint": endpoint.url}
            api.create_subscription({"name": subscription, "topic": topic, "push_config": pushed})
            api.close()
            with official.emulator_host(server.endpoint):
                options = pubsub_v1.types.PublisherOptions(enable_open_telemetry_tracing=True)
                publisher = pubsub_v1.PublisherClient(publisher_options=options)
            publisher.publish(topic, b"pushed").result(90)
            publisher.stop()
            official.eventually(lambda: len(came) == 2 or None)
            server.terminate()
        spans = {span.name: span for _, span in collector.soon("publish orders", "push hook")}
        pushes = [span for _, span in collector.spans() if span.name == "push hook"]
        assert [attributes_of(one.attributes)["http.response.status_code"] for one in pushes] == [500, 204]
        assert [one.status.message for one in pushes] == ["the endpoint answered 500", ""]
        assert {one.parent_span_id for one in pushes} == {spans["publish orders"].span_id}
        assert came == [f"00-{one.trace_id.hex()}-{one.span_id.hex()}-01" for one in pushes]
