"""Publishing many messages: lines, batches, templates, rates, and what is reported where it ends early."""

import base64
import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import pytest

from syncpoint.programs.cli import topic_publishing
from syncpoint.wire.protobuf.messages import pubsub


class Reference(grpc.GenericRpcHandler):
    """A topic `orders`; `found`: the messages of each request that was answered."""

    def __init__(self):
        self.found = []

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.answer)

    def answer(self, data, context):
        request = pubsub.PublishRequest.FromString(data)
        if not request.topic.endswith("/orders"):
            context.abort(grpc.StatusCode.NOT_FOUND, "no such topic")
        if any(one.data == b"bad" for one in request.messages):
            at = [one.data for one in request.messages].index(b"bad")
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"messages[{at}]: refused")
        return self.publish(request).SerializeToString()

    def publish(self, request):
        self.found.append(list(request.messages))
        return pubsub.PublishResponse(message_ids=["1"] * len(request.messages))


@pytest.fixture
def published(server, run, monkeypatch):
    """The messages of each request that was answered; the first of two addresses is dead."""
    handler = Reference()
    server.answers["Publisher.Publish"] = handler.publish
    large = [("grpc.max_receive_message_length", -1)]
    made = grpc.server(ThreadPoolExecutor(2), handlers=(handler,), options=large)
    port = made.add_insecure_port("127.0.0.1:0")
    made.start()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = closed.getsockname()[1]
    monkeypatch.setenv("SYNCPOINT_ADDRESSES", f"127.0.0.1:{dead},127.0.0.1:{port}")
    yield handler.found
    made.stop(None)


def test_the_text_may_stand_behind_the_topic(published, run):
    assert run("topics", "publish", "orders", "hello {{n}}").exit_code == 0
    assert run("topics", "publish", "orders", "-", input=b"\xff").exit_code == 0
    assert [one.data for (one,) in published] == [b"hello {{n}}", b"\xff"], "as it is without --count"
    for words in (["a", "--message", "b"], ["a", "b"], [], ["a", "--rate", "3"], ["a", "--lines"],
                  ["--lines", "--json-lines"], ["--lines", "--count", "3"], ["-", "--count", "3"]):  # fmt: skip
        assert run("topics", "publish", "orders", *words).exit_code == 2, words


def test_lines_are_published_in_order_in_few_requests(published, run, tmp_path):
    text = b"".join(b"line %d\n" % number for number in range(2_500)) + b"\n  \n\xff\x00"
    result = run("topics", "publish", "orders", "--lines", "--attribute", "a=1", "--ordering-key", "k", input=text)
    assert result.exit_code == 0, result.output
    assert "Published 2,501 messages to topic [projects/p/topics/orders]" in result.stderr
    assert [len(one) for one in published] == [1_000, 1_000, 500, 1], "the last line may have no end"
    messages = [one for request in published for one in request]
    assert [one.data for one in messages] == [b"line %d" % number for number in range(2_500)] + [b"\xff\x00"]
    assert {(one.attributes["a"], one.ordering_key) for one in messages} == {("1", "k")}
    file = tmp_path / "lines"
    file.write_bytes(b"x" * 3_000_000 + b"\n" + b"y" * 3_000_000 + b"\n")
    answer = run("topics", "publish", "orders", "--lines", "--file", str(file), "--format", "json")
    assert json.loads(answer.stdout)["messages"] == 2
    assert [len(one) for one in published[4:]] == [1, 1], "both are too large for one request"


def test_what_tail_prints_is_published_again(published, run):
    lines = [
        {
            "message": {
                "data": "aGk",
                "attributes": {"a": "1"},
                "messageId": "17",
                "publishTime": "2026-11-22T11:00:35Z",
            }
        },
        {"data": "aG8=", "orderingKey": "k"},
        {"attributes": {"b": "2"}},
    ]
    text = "\n".join(map(json.dumps, lines)) + "\n"
    assert run("topics", "publish", "orders", "--json-lines", "--attribute", "c=3", input=text).exit_code == 0
    first, third, second = sorted((one for request in published for one in request), key=lambda one: one.ordering_key)
    assert (first.data, dict(first.attributes)) == (b"hi", {"a": "1", "c": "3"})
    assert (first.message_id, first.HasField("publish_time")) == ("", False)
    assert (second.data, second.ordering_key, dict(third.attributes)) == (b"ho", "k", {"b": "2", "c": "3"})
    assert len(published) == 2, "a request has messages of one key"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nope", "Expecting value"),
        ("[1]", "not an object"),
        ('{"dat": ""}', 'no field named "dat"'),
        ('{"data": "?"}', "data"),
    ],
)
def test_a_line_that_is_no_message_is_named(published, run, line, reason):
    good = json.dumps({"data": base64.b64encode(b"x").decode()})
    result = run("topics", "publish", "orders", "--json-lines", input=f"{good}\n\n{line}\n")
    assert result.exit_code == 1
    assert "error: line 3 is not a message in JSON: " in result.stderr
    assert reason in result.stderr
    assert "Published 0 messages; line 1 is the first that is not published." in result.stderr


def test_what_is_refused_is_named_by_its_line(published, run, monkeypatch):
    text = "".join(f"{number}\n" for number in range(1, 1_500)) + "bad\n" + "x\n" * 1_000
    result = run("topics", "publish", "orders", "--lines", input=text)
    assert result.exit_code == 1
    assert "messages[499] is line 1,500." in result.stderr
    assert "Published 1,000 messages; line 1,001 is the first that is not published." in result.stderr
    assert len(published) == 1, "and nothing after them is tried"
    assert run("topics", "publish", "others", "--lines", input="a\n").exit_code == 3
    monkeypatch.setenv("SYNCPOINT_ADDRESSES", os.environ["SYNCPOINT_ADDRESSES"].partition(",")[0])
    result = run("topics", "publish", "orders", "--lines", input="a\n")
    assert result.exit_code == 5
    assert "Published 0 messages; line 1 is the first that is not published." in result.stderr
    assert "Trying" not in result.stderr


def test_a_line_has_a_bound(published, run, monkeypatch):
    monkeypatch.setattr(topic_publishing, "PUBLISH_REQUEST_BYTES_MAX", 10)
    result = run("topics", "publish", "orders", "--lines", input="a\n" + "x" * 11)
    assert result.exit_code == 1
    assert "line 2 is too long" in result.stderr
    line = json.dumps({"data": base64.b64encode(b"x" * 5).decode()})  # 20 bytes of JSON
    assert run("topics", "publish", "orders", "--json-lines", input=line).exit_code == 0
    assert "line 1 is too long" in run("topics", "publish", "orders", "--json-lines", input=f" {line}").stderr


def test_templates_make_messages(published, run):
    words = ["{{n}} {{uuid}} { {{ random }} }}", "--attribute", "id={{uuid}},at={{time}}", "--ordering-key", "k{{n}}"]
    assert run("topics", "publish", "orders", *words, "--count", "3").exit_code == 0
    first, second, third = sorted((one for request in published for one in request), key=lambda one: one.data[:1])
    number, unique, *rest = first.data.decode().split()
    assert (number, rest[0], rest[2]) == ("1", "{", "}}")
    assert 0 <= int(rest[1]) < 1_000_000
    assert first.attributes["id"] == unique != second.attributes["id"]
    assert first.attributes["at"].endswith("Z")
    assert [one.ordering_key for one in (first, second, third)] == ["k1", "k2", "k3"]
    result = run("topics", "publish", "orders", "a", "--attribute", "b={{tim}}", "--count", "3")
    assert result.exit_code == 2
    assert "{{tim}} is unknown. Did you mean {{time}}?" in result.stderr
    assert "{{n}}, {{time}}, {{uuid}}, {{random}}" in result.stderr


def test_a_rate_spreads_requests(published, run, monkeypatch):
    now, slept = [100.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(topic_publishing, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    assert run("topics", "publish", "orders", "x", "--count", "100", "--rate", "200").exit_code == 0
    assert [len(one) for one in published] == [20] * 5
    assert sum(slept) == pytest.approx(0.4)
