"""bridge.yaml: what is read from it, and how mistakes are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.bridge.bridge_file import IncomingRule, OutgoingRule, load, parse

BASE = Path("/etc/bridge")
TO_MQTT = {"subscription": "s", "topic": "plant/{key}"}
TO_RABBIT = {"subscription": "s", "exchange": "e"}
RULE = {"filter": "plant/#", "topic": "plant"}


def content(rule: dict[str, Any] | None = None, **mqtt: Any) -> dict[str, Any]:
    return {"version": 1, "mqtt": {"broker": "127.0.0.1:1883", "client_id": "b1"} | mqtt, "in": [rule or RULE]}


def outgoing(kind: str, rule: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content().items() if key == "version"} | {
        kind: {"broker": "127.0.0.1:1", **({"client_id": "b1"} if kind == "mqtt" else {})},
        "out": [rule],
    }


def rabbit(rule: dict[str, Any], positions: str | None = "positions.json") -> dict[str, Any]:
    broker = {"broker": "127.0.0.1:5672"} | ({"positions": positions} if positions else {})
    return {"version": 1, "rabbitmq": broker, "in": [rule]}


def test_a_short_file_has_defaults() -> None:
    found = parse(content(), BASE)
    assert found.incoming == (IncomingRule("plant", filter="plant/#"),)
    assert (found.messages, found.bytes, found.drop_unfit) == (1000, 64 << 20, False)
    assert (found.broker.session_expiry_s, found.broker.keepalive_s, found.broker.tls) == (604_800, 30, False)


def test_every_key_is_read() -> None:
    tls = {"ca": "ca.pem", "cert": "c.pem", "key": "k.pem"}
    given = content(RULE | {"key": "{topic}", "id": "{property.id}", "qos": 0}, broker="mqtt.example:8883", tls=tls,
                    user="u", password_file="secret", session_expiry="1h", keepalive="10s")  # fmt: skip
    found = parse(given | {"limits": {"messages": 5, "bytes": 4096}, "unfit": "drop"}, BASE)
    assert found.incoming == (IncomingRule("plant", "{topic}", "{property.id}", "plant/#", 0),)
    assert (found.messages, found.bytes, found.drop_unfit) == (5, 4096, True)
    assert (found.broker.host, found.broker.port, found.broker.ca) == ("mqtt.example", 8883, BASE / "ca.pem")
    assert (found.broker.password_file, found.broker.session_expiry_s) == (BASE / "secret", 3600)


def test_streams_have_an_identity_of_their_own_and_queues_the_one_of_the_file() -> None:
    found = parse(rabbit({"topic": "t", "stream": "s", "from": "next"}), BASE)
    assert found.incoming == (IncomingRule("t", id="{queue}/{offset}", stream="s", first=False),)
    assert (found.broker.kind, found.broker.positions) == ("rabbitmq", BASE / "positions.json")
    queue = {"topic": "t", "queue": "q", "key": "{routing_key}", "id": "{message_id}"}
    assert parse(rabbit(queue), BASE).incoming == (IncomingRule("t", "{routing_key}", "{message_id}", queue="q"),)


def test_the_other_direction() -> None:
    assert parse(outgoing("rabbitmq", TO_RABBIT), BASE).outgoing == (OutgoingRule("s", "{key}", "e"),)
    given = TO_MQTT | {"qos": 2, "retain": True, "content_type": "text/plain", "expiry": "1h"}
    found = parse(outgoing("mqtt", given) | {"dead_letters": "letters"}, BASE)
    assert found.outgoing == (OutgoingRule("s", "plant/{key}", "", 2, True, "text/plain", 3_600_000),)
    assert found.dead_letters == "letters"


@pytest.mark.parametrize(
    ("given", "field", "text"),
    [
        (content(RULE | {"qos": 2}), "in.0.qos", "2 is not one of"),
        (content(RULE | {"filter": "plant/#/x"}), "in.0.filter", "whole level"),
        (content(RULE | {"filter": "plant+"}), "in.0.filter", "whole level"),
        (content(RULE | {"filter": "$share/group"}), "in.0.filter", "shared subscription"),
        (content(RULE | {"topic": "{property.x}"}), "in.0.topic", "{property.x} is not known"),
        (content(RULE | {"key": "{level}"}), "in.0.key", "{level} is not known"),
        (content(RULE | {"id": "{1"}), "in.0.id", "brace"),
        (content(user="u", password_file="f", broker="mqtt.example:1883"), "mqtt.tls", "in the clear"),
        (content(session_expiry="1ms"), "mqtt.session_expiry", "whole seconds"),
        (content(password_file="f"), "mqtt", "dependency"),
        (content(clientid="x"), "mqtt", "did you mean 'client_id'"),
        (content() | {"unfit": "drop", "dead_letters": "letters"}, "unfit", "without dead_letters"),
        (content() | {"out": []}, "out", "non-empty"),
        (content() | {"rabbitmq": {"broker": "a:1"}}, "the file", "one of mqtt and rabbitmq"),
        (outgoing("mqtt", TO_MQTT | {"topic": "a/#"}), "out.0.topic", "one MQTT topic"),
        (outgoing("mqtt", TO_MQTT | {"topic": "{property.a}"}), "out.0.topic", "{property.a} is not known"),
        (outgoing("mqtt", TO_MQTT | {"expiry": "10ms"}), "out.0.expiry", "whole seconds"),
        (outgoing("mqtt", TO_MQTT | {"exchange": "x"}), "out.0", "exchange"),
        (outgoing("rabbitmq", TO_RABBIT | {"routing_key": "{1}"}), "out.0.routing_key", "{1} is not known"),
        (rabbit({"topic": "t"}), "in.0", "a queue or a stream"),
        (rabbit({"topic": "t", "queue": "q", "from": "next"}), "in.0.from", "for streams"),
        (rabbit({"topic": "t", "queue": "q", "filter": "x"}), "in.0", "filter"),
        (rabbit({"topic": "t", "stream": "s"}, positions=None), "rabbitmq.positions", "needed for streams"),
    ],
)
def test_a_mistake_is_refused_with_its_place(given: Any, field: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text.replace("{", r"\{").replace("$", r"\$")) as caught:
        parse(given, BASE)
    assert field in str(caught.value)


def test_the_examples_are_read() -> None:
    files = sorted((Path(__file__).parents[4] / "examples" / "bridges").glob("*.yaml"))
    assert [one.broker.kind for one in map(load, files)] == ["mqtt", "rabbitmq", "rabbitmq"]
