"""`syncpoint trace`: what it prints of a path, and how it follows copies from server to server."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from syncpoint.base.model.identity import format_message_id
from syncpoint.programs.federation import servers as federation_servers
from syncpoint.wire.protobuf.messages import admin, pipeline, pubsub

UNIVERSE = 10**12
ID = format_message_id(UNIVERSE, 7, 5)
TOPIC = "projects/p/topics/orders"
FILE = f"""
version: 1
clusters: {{eu: {{endpoint: "127.0.0.1:1"}}, us: {{endpoint: "127.0.0.1:2"}}, ap: {{endpoint: "127.0.0.1:3"}}}}
tasks:
  one: {{pattern: replicate, from: {{cluster: eu, topic: {TOPIC}}}, to: {{cluster: us, topic: {TOPIC}}}}}
  two: {{pattern: replicate, from: {{cluster: us, topic: {TOPIC}}}, to: {{cluster: ap, topic: {TOPIC}}}}}
"""


def answers(kind: str, source: int, offset: int, *, recorded: bool = True) -> dict[str, Any]:
    """Of a server that stores the message there, and has one record of it."""
    record = {"kind": kind, "at": 3_000, "source": source, "subscription": "projects/p/subscriptions/billing",
              "runs": [[offset, 1]]}  # fmt: skip
    data = json.dumps({"topic": TOPIC, "writer": "node/1", "number": 1, "lost": 0, "records": [record]}).encode()

    def peek(request: Any) -> Any:
        if request.topic == TOPIC:
            message = pubsub.PubsubMessage(message_id=ID, publish_time={"seconds": 1000})
            return admin.PeekResponse(messages=[admin.PeekedMessage(message=message, source=source, offset=offset)])
        return admin.PeekResponse(messages=[admin.PeekedMessage(message=pubsub.PubsubMessage(data=data))])

    options = admin.TopicOptions(records_topic="projects/p/topics/records" if recorded else "")
    topics = pubsub.ListTopicsResponse(topics=[pubsub.Topic(name=TOPIC)])
    return {"Admin.PeekTopic": peek, "Admin.GetTopicOptions": options, "Publisher.ListTopics": topics}


def test_a_path_is_printed_and_found_without_its_topic(server: Any, run: Any, run_json: Any) -> None:
    server.answers |= answers("delivered", 7, 5)
    for words in (["trace", ID], ["trace", ID, "--topic", "orders"]):
        shown = run(*words).stdout
        assert "1970-01-01T00:00:00.003000Z" in shown
        assert "delivered" in shown
        assert "billing" in shown
    (path,) = run_json("trace", ID)["servers"]
    assert (path["source"], path["offset"], path["events"][0]["event"]) == (7, 5, "delivered")


def test_a_topic_that_is_not_recorded_says_how_to(server: Any, run: Any) -> None:
    server.answers |= answers("delivered", 7, 5, recorded=False)
    result = run("trace", ID, "--topic", "orders")
    assert result.exit_code == 1
    assert "--records-topic" in str(result.exception) + result.output


def test_copies_are_followed_over_all_servers_also_where_one_is_not_recorded(
    server: Any, run_json: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers |= answers("delivered", 7, 5)
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
    others = {
        "us": answers("filtered", 8, 2, recorded=False),
        "ap": answers("acknowledged", 9, 4),
        "eu": answers("", 7, 5),
    }
    mapped = {("us", 7, 5): (8, 2), ("ap", 8, 2): (9, 4)}

    def call(self: Any, cluster: Any, method: str, request: Any) -> Any:
        if method == "EpochWriter.MapOffsets":
            found = mapped.get((cluster.name, request.source, request.begin))
            answer = pipeline.MapOffsetsResponse()
            if found is not None:
                mapping = answer.mappings.add()
                getattr(mapping, "from").begin = request.begin
                mapping.to.add(topic=TOPIC, source=found[0], begin=found[1], end=found[1] + 1)
            return answer
        answered = others[cluster.name][method]
        return answered(request) if callable(answered) else answered

    monkeypatch.setattr(federation_servers.Servers, "call", call)
    monkeypatch.setattr(federation_servers.Servers, "topics", lambda self, cluster, project: [TOPIC])
    file = tmp_path / "federation.yaml"
    file.write_text(FILE, encoding="utf-8")
    paths = [
        SimpleNamespace(**one)
        for one in run_json("trace", ID, "--topic", "orders", "--federation", str(file))["servers"]
    ]
    assert [(one.server, one.source, one.offset) for one in paths] == [
        ("127.0.0.1:1", 7, 5), ("us", 8, 2), ("ap", 9, 4),
    ]  # fmt: skip
    assert "is not recorded" in paths[1].unknown[0]
    assert paths[2].events[0]["event"] == "acknowledged"
