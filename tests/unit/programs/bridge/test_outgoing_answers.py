"""What an outgoing bridge does about the answers of a sink that is played, and about failures of its own threads."""

from __future__ import annotations

from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.client import ClientFuture
from syncpoint.programs.bridge.bridge_file import BridgeFile, OtherBroker, OutgoingRule
from syncpoint.programs.bridge.message_shape import BridgedMessage
from syncpoint.programs.bridge.outgoing_bridge import OutgoingBridge

RULE = OutgoingRule("billing", "{key}")
TOKEN = ("projects/p/subscriptions/billing", "1")


class PlayedMessage:
    data, attributes, ordering_key, message_id, delivery_attempt, size = b"x", dict[str, str](), "k", "1", None, 1

    def __init__(self) -> None:
        self.acks = 0

    def ack(self) -> None:
        self.acks += 1


class PlayedSink:
    def __init__(self) -> None:
        self.sent = 0

    def begin(self, bridge: OutgoingBridge) -> None:
        """No connection is made."""

    def prepare(self, message: BridgedMessage) -> None:
        """Nothing is sent beside the data."""

    def send(self, works: list[Any]) -> None:
        self.sent += len(works)


class PlayedPublisher:
    def __init__(self) -> None:
        self.outcomes: list[ClientFuture[str]] = []

    def publish(self, *_: Any, **__: str) -> ClientFuture[str]:
        self.outcomes.append(ClientFuture())
        return self.outcomes[-1]


class BrokenSubscriber:
    def batches(self, name: str) -> Any:
        raise ValueError("a bug")


@pytest.fixture
def played() -> tuple[Any, Any]:
    return PlayedSink(), PlayedPublisher()


def made(played: tuple[Any, Any], subscriber: Any = None) -> OutgoingBridge:
    file = BridgeFile(OtherBroker("rabbitmq", "h", 1), outgoing=(RULE,), dead_letters="letters")
    bridge = OutgoingBridge(file, "p", *played, subscriber)
    bridge.begin()
    bridge.connects = 1  # no thread receives
    bridge.connected(lambda _: False)
    return bridge


def test_a_message_that_has_two_answers_over_two_connections_is_finished_once(played: tuple[Any, Any]) -> None:
    sink, publisher = played
    bridge, message = made(played), PlayedMessage()
    bridge._take(RULE, TOKEN[0], message)  # type: ignore[arg-type]
    bridge.refused(TOKEN, "no queue")
    bridge.disconnected()
    bridge.connected(lambda _: False)
    bridge.again(TOKEN, "a queue is full")
    publisher.outcomes[0].set_result("id")
    assert message.acks == 1
    bridge.tick()
    bridge.confirmed([TOKEN])
    status = bridge.status()
    assert (sink.sent, message.acks, status["heldMessages"], status["deadLetters"]) == (3, 1, 0, 1)


def test_a_subscription_that_cannot_be_received_any_more_ends_the_bridge(played: tuple[Any, Any]) -> None:
    bridge = made(played, BrokenSubscriber())
    bridge._receive(RULE)
    assert bridge.over.is_set()
    with pytest.raises(FailedPrecondition, match="billing is received no more: ValueError"):
        raise bridge._error or AssertionError("no error")
