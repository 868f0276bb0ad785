"""Where a stream is read on, and what is made of one that does not have what was read of it before."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pika.spec import Basic, BasicProperties

from syncpoint.base.model.errors import SyncpointError
from syncpoint.programs.bridge.bridge_file import BridgeFile, IncomingRule, OtherBroker
from syncpoint.programs.bridge.incoming_bridge import IncomingBridge
from syncpoint.programs.bridge.rabbit_source import FIRST_S, RabbitSource
from tests.unit.programs.bridge.test_incoming_bridge import PlayedPublisher

RULE = IncomingRule("orders", stream="events", id="{queue}/{offset}")


class PlayedChannel:
    """Delivers what a test gives, to the one consumer."""

    is_open = True

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self.begins_at: Any = None
        self.tags = 0

    def add_on_cancel_callback(self, _: Any) -> None:
        """No consumer is cancelled."""

    def basic_qos(self, prefetch_count: int) -> None:
        """All comes at once."""

    def basic_consume(self, _: str, came: Callable[..., None], arguments: dict[str, Any]) -> None:
        self.came, self.begins_at = came, arguments["x-stream-offset"]

    def basic_ack(self, tag: int, multiple: bool = False) -> None:
        assert not multiple
        self.acknowledged.append(tag)

    def deliver(self, *offsets: int) -> None:
        for offset in offsets:
            self.tags += 1
            method = Basic.Deliver(delivery_tag=self.tags, exchange="", routing_key="events")
            self.came(self, method, BasicProperties(headers={"x-stream-offset": offset}), b"%d" % offset)


class Read:
    """A bridge that has read a stream up to offset 99, or nothing of it yet."""

    def __init__(self, folder: Path, rule: IncomingRule = RULE, *, anew: bool = False) -> None:
        self.now = 0.0
        self.positions = folder / "positions.json"
        if not anew:
            self.positions.write_text(json.dumps({"events": 100}))
        file = BridgeFile(OtherBroker("rabbitmq", "h", 1, positions=self.positions), (rule,), messages=4)
        self.source, self.publisher, self.channel = (
            RabbitSource(file, lambda: self.now),
            PlayedPublisher(),
            PlayedChannel(),
        )
        played: Any = (self.source, self.publisher, PlayedPublisher)
        self.bridge = IncomingBridge(file, "p", *played)
        self.source._bridge = self.bridge
        self.source._opened(self.channel)

    def wait(self, seconds: float) -> SyncpointError | None:
        self.now += seconds
        self.source.tick()
        return self.bridge._error


def test_a_first_message_that_is_not_stored_is_asked_for_again(tmp_path: Path) -> None:
    read = Read(tmp_path, IncomingRule("events", stream="events", first=False), anew=True)
    assert read.channel.begins_at == "next"
    read.channel.deliver(100, 101)
    read.source._closed()
    read.source._opened(read.channel)
    assert read.channel.begins_at == 99
    read.channel.deliver(99, 100)
    read.source.acknowledge([("events", 100)])
    assert read.wait(0) is None
    assert json.loads(read.positions.read_text()) == {"events": 101}
    assert list(tmp_path.iterdir()) == [read.positions]


def test_a_stream_is_read_on_after_the_last_message_that_was_stored(tmp_path: Path) -> None:
    read = Read(tmp_path)
    assert read.channel.begins_at == 99
    read.channel.deliver(99, 100)
    assert [data for _, data, _ in read.publisher.asked] == [b"100"]
    assert read.channel.acknowledged == [1], "what was stored before takes no room among what is under way"
    assert read.wait(10 * FIRST_S) is None


def test_a_stream_without_what_was_read_of_it_ends_the_bridge(tmp_path: Path) -> None:
    read = Read(tmp_path)
    assert read.wait(FIRST_S - 1) is None
    error = read.wait(2)
    assert error is not None
    assert "'events' has nothing from offset 99 on" in error.message


@pytest.mark.parametrize("full", [True, False])
def test_a_bridge_that_takes_nothing_or_is_not_connected_waits_for_no_stream(*, full: bool, tmp_path: Path) -> None:
    read = Read(tmp_path)
    if full:
        read.bridge.flow.messages = 4
        assert read.wait(FIRST_S + 1) is None
        read.bridge.flow.messages = 0
        assert read.wait(FIRST_S - 1) is None
        assert read.wait(2) is not None
    else:
        read.source._closed()
        assert read.wait(FIRST_S + 1) is None
