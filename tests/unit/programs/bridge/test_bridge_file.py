"""mqtt.yaml: what is read from it, and how mistakes are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.bridge.bridge_file import IncomingRule, parse

BASE = Path("/etc/bridge")
RULE = {"filter": "plant/#", "topic": "plant"}


def content(rule: dict[str, Any] | None = None, **mqtt: Any) -> dict[str, Any]:
    return {"version": 1, "mqtt": {"broker": "127.0.0.1:1883", "client_id": "b1"} | mqtt, "in": [rule or RULE]}


def test_a_short_file_has_defaults() -> None:
    found = parse(content(), BASE)
    assert found.rules == (IncomingRule("plant/#", "plant"),)
    assert (found.messages, found.bytes, found.drop_unfit) == (1000, 64 << 20, False)
    assert (found.broker.session_expiry_s, found.broker.keepalive_s, found.broker.tls) == (604_800, 30, False)


def test_every_key_is_read() -> None:
    tls = {"ca": "ca.pem", "cert": "c.pem", "key": "k.pem"}
    given = content(RULE | {"key": "{topic}", "id": "{property.id}", "qos": 0}, broker="mqtt.example:8883", tls=tls,
                    user="u", password_file="secret", session_expiry="1h", keepalive="10s")  # fmt: skip
    found = parse(given | {"limits": {"messages": 5, "bytes": 4096}, "unfit": "drop"}, BASE)
    assert found.rules == (IncomingRule("plant/#", "plant", "{topic}", "{property.id}", 0),)
    assert (found.messages, found.bytes, found.drop_unfit) == (5, 4096, True)
    assert (found.broker.host, found.broker.port, found.broker.ca) == ("mqtt.example", 8883, BASE / "ca.pem")
    assert (found.broker.password_file, found.broker.session_expiry_s) == (BASE / "secret", 3600)


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
    ],
)
def test_a_mistake_is_refused_with_its_place(given: Any, field: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text.replace("{", r"\{").replace("$", r"\$")) as caught:
        parse(given, BASE)
    assert field in str(caught.value)
