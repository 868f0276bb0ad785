"""Where streams of RabbitMQ are read on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pika.spec import Basic, BasicProperties

from syncpoint.programs.bridge.bridge_file import BridgeFile, IncomingRule, OtherBroker
from syncpoint.programs.bridge.rabbit_source import RabbitSource

RULE = IncomingRule("events", stream="events", first=False)


class PlayedBridge:
    def came(self, *_: Any, **__: Any) -> None:
        """Nothing is stored."""


class PlayedChannel:
    is_open = True


def test_a_first_message_that_is_not_stored_is_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "positions.json"
    source = RabbitSource(BridgeFile(OtherBroker("rabbitmq", "h", 1, positions=path), (RULE,)))
    played: Any = PlayedBridge()
    source._bridge, source._channel = played, PlayedChannel()
    assert source._begin_at(RULE) == {"x-stream-offset": "next"}
    for tag, offset in ((1, 100), (2, 101)):
        deliver = Basic.Deliver("c", tag, False, "", "events")
        source._came(RULE, source._channel, deliver, BasicProperties(headers={"x-stream-offset": offset}), b"x")
    assert source._begin_at(RULE) == {"x-stream-offset": 100}
    source.acknowledge([("events", 100)])
    source.tick()
    assert json.loads(path.read_text()) == {"events": 101}
    assert list(tmp_path.iterdir()) == [path]
