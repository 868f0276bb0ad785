"""The blocking client: against a server of the reference implementation of gRPC, and its patience."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from syncpoint.base.model.errors import Code, InvalidArgument, NotFound, SyncpointError, Unavailable
from syncpoint.front.client.client import Client, parse_endpoint
from syncpoint.wire.protobuf.messages import pubsub

TOPICS = [f"projects/p/topics/t{number}" for number in range(5)]


class Reference(grpc.GenericRpcHandler):
    """Lists topics two at a time, and knows no single one."""

    def service(self, details):
        if details.method == "/google.pubsub.v1.Publisher/ListTopics":
            return grpc.unary_unary_rpc_method_handler(self.list_topics)
        return grpc.unary_unary_rpc_method_handler(self.get_topic)

    def list_topics(self, data, context):
        begin = int(pubsub.ListTopicsRequest.FromString(data).page_token or "0")
        page = pubsub.ListTopicsResponse(topics=[pubsub.Topic(name=name) for name in TOPICS[begin : begin + 2]])
        page.next_page_token = str(begin + 2) if begin + 2 < len(TOPICS) else ""
        return page.SerializeToString()

    def get_topic(self, data, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "no such töpic")


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2), handlers=(Reference(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()


def test_pages_are_followed(endpoint):
    with Client(endpoint) as client:
        found = client.pages("Publisher.ListTopics", pubsub.ListTopicsRequest(project="projects/p"), "topics")
        assert [topic.name for topic in found] == TOPICS


def test_a_refusal_is_raised_as_it_was_sent(endpoint):
    with Client(endpoint) as client, pytest.raises(SyncpointError) as caught:
        client.call("Publisher.GetTopic", pubsub.GetTopicRequest(topic="t"))
    assert (caught.value.code, caught.value.message) == (Code.NOT_FOUND, "no such töpic")


def test_an_address_that_cannot_be_reached_is_left_for_the_next_one_at_once(endpoint):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"127.0.0.1:{closed.getsockname()[1]}"
    request = pubsub.ListTopicsRequest(project="projects/p")
    with Client(f"{dead}, {endpoint}", patience_s=0) as client:
        assert client.call("Publisher.ListTopics", request).topics
        assert client.choice.present == endpoint
        assert len([one for one in client.call_each("Publisher.ListTopics", [request] * 5) if one.topics]) == 5
    with Client(f"{dead},{dead.replace('127.0.0.1', 'localhost')}", patience_s=0) as client, pytest.raises(Unavailable):
        client.call("Publisher.ListTopics", request)


class Moody:
    """A channel that fails in a given way before it answers."""

    def __init__(self, *failures: SyncpointError) -> None:
        self.failures = list(failures)
        self.calls = 0
        self.closed = False
        self.metadata: tuple[tuple[bytes, bytes], ...] = ()

    async def unary(
        self,
        path: str,
        message: bytes,
        *,
        metadata: Iterable[tuple[bytes, bytes]] = (),
        timeout: float | None = None,
    ) -> bytes:
        self.calls += 1
        self.metadata = tuple(metadata)
        if self.failures:
            raise self.failures.pop(0)
        answer: bytes = pubsub.Topic(name="t").SerializeToString()
        return answer

    async def close(self) -> None:
        self.closed = True


def test_unavailable_is_tried_again():
    channel = Moody(Unavailable("restarting"), Unavailable("restarting"))
    with Client("unused:1", channel=channel) as client:
        assert client.call("Publisher.GetTopic", pubsub.GetTopicRequest(topic="t")).name == "t"
    assert channel.calls == 3
    assert channel.closed


def test_patience_has_an_end():
    channel = Moody(*[Unavailable("gone")] * 1000)
    with Client("unused:1", channel=channel, patience_s=0.25) as client, pytest.raises(Unavailable):
        client.call("Publisher.GetTopic", pubsub.GetTopicRequest(topic="t"))
    assert 2 <= channel.calls <= 5


def test_other_failures_are_not_tried_again():
    channel = Moody(NotFound("t"))
    reported = ((b"authorization", b"Bearer x"),)
    with Client("unused:1", channel=channel, metadata=reported) as client, pytest.raises(NotFound):
        client.call("Publisher.GetTopic", pubsub.GetTopicRequest(topic="t"))
    assert (channel.calls, channel.metadata) == (1, reported)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:9000", "localhost", 9000),
        ("localhost", "localhost", 8085),
        ("http://10.0.0.1:1/", "10.0.0.1", 1),
        ("[::1]:7", "::1", 7),
        ("[::1]", "::1", 8085),
    ],
)
def test_endpoints(text, host, port):
    assert parse_endpoint(text) == (host, port)


@pytest.mark.parametrize("text", ["", ":1", "host:", "host:x", "host:0", "host:65536"])
def test_what_is_no_endpoint(text):
    with pytest.raises(InvalidArgument, match="HOST:PORT"):
        parse_endpoint(text)


def test_each_request_has_its_own_answer(endpoint):
    with Client(endpoint, patience_s=0.0) as client:
        lists = [pubsub.ListTopicsRequest(page_token=str(begin)) for begin in range(5)]
        answers = client.call_each("Publisher.ListTopics", lists)
        assert [[topic.name for topic in one.topics] for one in answers] == [TOPICS[n : n + 2] for n in range(5)]
        (refused,) = client.call_each("Publisher.GetTopic", [pubsub.GetTopicRequest(topic="t")])
        assert isinstance(refused, NotFound)
