"""Push subscriptions made by the official client: an HTTP server of this machine gets what is published."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.cloud import pubsub_v1

from syncpoint.testing.server_process import ServerProcess
from tests.kit.endpoint import Endpoint

pytestmark = pytest.mark.shows("push")

TOPIC, SUB = "projects/p/topics/orders", "projects/p/subscriptions/pushed"
WAIT_S = 30


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess(args=["--push-network", "loopback"]) as running:
        yield running


@pytest.fixture
def receiver() -> Iterator[Endpoint]:
    with Endpoint() as found:
        yield found


class Clients:
    def __init__(self, endpoint: str) -> None:
        def transport(kind: Any) -> Any:
            return kind(channel=grpc.insecure_channel(endpoint), credentials=None)

        self.publisher = pubsub_v1.PublisherClient(
            transport=transport(pubsub_v1.PublisherClient.get_transport_class("grpc"))
        )
        self.subscriber = pubsub_v1.SubscriberClient(
            transport=transport(pubsub_v1.SubscriberClient.get_transport_class("grpc"))
        )

    def publish(self, data: str, **attributes: str) -> None:
        self.publisher.publish(TOPIC, data.encode(), **attributes).result(WAIT_S)


@pytest.fixture
def clients(server: ServerProcess) -> Iterator[Clients]:
    found = Clients(server.endpoint)
    found.publisher.create_topic(name=TOPIC)
    yield found
    found.subscriber.delete_subscription(subscription=SUB)
    found.publisher.delete_topic(topic=TOPIC)


def test_what_is_published_is_pushed_until_the_endpoint_takes_it(clients: Clients, receiver: Endpoint) -> None:
    config = {"push_endpoint": receiver.url}
    made = clients.subscriber.create_subscription(name=SUB, topic=TOPIC, push_config=config)
    assert made.push_config.push_endpoint == receiver.url
    assert made.push_config.attributes == {"x-goog-version": "v1"}
    receiver.status = 500
    clients.publish("hello", a="1")
    headers, first = receiver.next()
    receiver.status = 204
    body = json.loads(first)
    assert headers["content-type"] == "application/json"
    assert body["subscription"] == SUB
    assert body["message"]["attributes"] == {"a": "1"}
    assert base64.b64decode(body["message"]["data"]) == b"hello"
    assert json.loads(receiver.next()[1])["message"]["messageId"] == body["message"]["messageId"]


def test_a_push_subscription_is_not_pulled_and_can_be_made_one_that_is(clients: Clients, receiver: Endpoint) -> None:
    clients.subscriber.create_subscription(name=SUB, topic=TOPIC, push_config={"push_endpoint": receiver.url})
    with pytest.raises(exceptions.FailedPrecondition, match="not supported for this subscription type"):
        clients.subscriber.pull(subscription=SUB, max_messages=1)
    first = pubsub_v1.types.StreamingPullRequest(subscription=SUB, stream_ack_deadline_seconds=10)
    with pytest.raises(exceptions.FailedPrecondition, match="is a push subscription"):
        next(iter(clients.subscriber.streaming_pull(requests=iter([first]))))
    clients.subscriber.modify_push_config(subscription=SUB, push_config={})
    clients.publish("pulled")
    [received] = clients.subscriber.pull(subscription=SUB, max_messages=1).received_messages
    assert received.message.data == b"pulled"
    clients.subscriber.modify_push_config(subscription=SUB, push_config={"push_endpoint": receiver.url})
    clients.subscriber.modify_ack_deadline(subscription=SUB, ack_ids=[received.ack_id], ack_deadline_seconds=0)
    assert receiver.next_data() == b"pulled"


def test_unwrapped_messages_carry_their_metadata_in_headers(clients: Clients, receiver: Endpoint) -> None:
    config = {"push_endpoint": receiver.url, "no_wrapper": {"write_metadata": True}}
    clients.subscriber.create_subscription(name=SUB, topic=TOPIC, push_config=config)
    clients.publish("raw", color="red", host="elsewhere")
    headers, body = receiver.next()
    assert body == b"raw"
    assert headers["x-goog-pubsub-subscription-name"] == SUB
    assert headers["x-goog-pubsub-message-id"]
    assert headers["color"] == "red"
    assert headers["host"] == receiver.url.removeprefix("http://").removesuffix("/push")


def test_addresses_inside_are_refused(clients: Clients, receiver: Endpoint) -> None:
    clients.subscriber.create_subscription(name=SUB, topic=TOPIC)
    for url in ("http://10.0.0.1/", "https://169.254.169.254/", "https://[::ffff:127.0.0.1]/", "http://e.example/"):
        with pytest.raises(exceptions.InvalidArgument, match="Invalid push endpoint given"):
            clients.subscriber.modify_push_config(subscription=SUB, push_config={"push_endpoint": url})


def test_pushing_goes_on_after_a_restart(server: ServerProcess, clients: Clients, receiver: Endpoint) -> None:
    receiver.status = 503
    clients.subscriber.create_subscription(name=SUB, topic=TOPIC, push_config={"push_endpoint": receiver.url})
    clients.publish("kept")
    assert receiver.next_data() == b"kept"
    server.restart(hard=True)
    receiver.status = 200
    while not receiver.requests.empty():
        receiver.requests.get()
    assert receiver.next_data() == b"kept"
