"""Receivers that move: each message once by id, none lost by time whatever the clocks differ, skips counted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import Unavailable
from syncpoint.front.client.switching_receiver import (
    ReceivingPlace,
    SeenMessages,
    SeenUntil,
    SwitchingReceiver,
    received,
)
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("edge")

BASE_S = 1_000_000.0


@given(numbers=st.lists(st.integers(0, 30), max_size=80), restart=st.integers(0, 80))
def test_by_id_each_is_handled_once_over_restarts(numbers: list[int], restart: int) -> None:
    seen, handled = SeenMessages(), []
    for at, number in enumerate(numbers):
        if at == restart:
            seen = SeenMessages.loaded(json.loads(json.dumps(seen.saved())))
        if seen.is_new(f"m{number}", BASE_S + number):
            handled.append(number)
            seen.handled(f"m{number}", BASE_S + number)
    assert sorted(handled) == sorted(set(numbers))
    assert seen.skipped == len(numbers) - len(handled)


def test_ids_are_forgotten_when_much_newer_messages_come() -> None:
    seen = SeenMessages(keep_s=60)
    for second in range(1000):
        seen.handled(f"m{second}", BASE_S + second)
    assert not seen.is_new("m950", BASE_S + 950)
    assert len(seen.saved()["ids"]) <= 61


@given(
    handled=st.lists(st.floats(0, 100), min_size=1, max_size=20),
    later=st.lists(st.floats(0, 200), max_size=20),
    skew=st.floats(-5, 5),
)
def test_by_time_nothing_new_is_skipped_whatever_the_clocks(
    handled: list[float], later: list[float], skew: float
) -> None:
    """`later` were published after all that was handled, by a publisher whose clock is off by `skew`."""
    seen = SeenUntil(skew_s=5.0)
    for one in handled:
        seen.handled("", BASE_S + one)
    seen.moved()
    newest = max(handled)
    assert all(seen.is_new("", BASE_S + newest + one + skew + 1e-6) for one in later)
    again = [one for one in handled if seen.is_new("", BASE_S + one)]
    assert all(one >= newest - 5.001 for one in again)
    assert seen.skipped == len(handled) - len(again)


class Pretended:
    """A server with one subscription; what is acknowledged does not come again."""

    def __init__(self, *messages: tuple[str, float, dict[str, str]]) -> None:
        self.waiting = {
            f"ack-{number}": pubsub.PubsubMessage(
                message_id=name, publish_time={"seconds": int(at)}, attributes=attributes
            )
            for number, (name, at, attributes) in enumerate(messages)
        }
        self.down = False

    def call(self, method: str, request: Any) -> Any:
        if self.down:
            raise Unavailable("down")
        if method == "Subscriber.Acknowledge":
            for ack_id in request.ack_ids:
                self.waiting.pop(ack_id, None)
            return pubsub.PullResponse()
        answer = pubsub.PullResponse()
        for ack_id, message in list(self.waiting.items())[: request.max_messages]:
            answer.received_messages.add(ack_id=ack_id, message=message)
        return answer

    def close(self) -> None:
        pass


def test_a_move_skips_what_was_handled_and_a_move_back_too() -> None:
    eu = Pretended(("1", BASE_S, {}), ("2", BASE_S + 1, {}), ("3", BASE_S + 2, {"sys.MessageId": "order-3"}))
    us = Pretended(
        ("1", BASE_S, {}), ("9", BASE_S + 2, {"sys.MessageId": "order-3"}), ("2", BASE_S + 1, {}), ("4", BASE_S + 3, {})
    )
    servers: dict[str, Any] = {"eu:1": eu, "us:1": us}
    places = {"eu": ReceivingPlace("eu:1", "s"), "us": ReceivingPlace("us:1", "s")}
    here = "eu"
    handled = []

    def handle(receiver: SwitchingReceiver, most: int = 100) -> None:
        found = receiver.receive(most)
        handled.extend(one.identity for one in found)
        receiver.done(found)

    with SwitchingReceiver(places, lambda: here, connect=servers.__getitem__) as receiver:
        handle(receiver, 2)
        eu.down = True
        with pytest.raises(Unavailable):
            receiver.receive()
        here = "us"
        handle(receiver)
        assert receiver.seen.skipped == 2  # 1 and 2, copies of what was handled
        assert not us.waiting
        eu.down, here = False, "eu"
        handle(receiver)
        assert receiver.seen.skipped == 3  # 3, handled over there under its publisher's id
    assert handled == ["1", "2", "order-3", "4"]
    assert receiver.moves == 2


def test_what_could_not_be_acknowledged_is_skipped_when_it_comes_again() -> None:
    eu = Pretended(("1", BASE_S, {}))
    receiver = SwitchingReceiver(
        {"eu": ReceivingPlace("eu:1", "s")},
        lambda: "eu",
        connect=lambda _: eu,  # type: ignore[arg-type, return-value]
    )
    found = receiver.receive()
    eu.down = True
    with pytest.raises(Unavailable):
        receiver.done(found)
    eu.down = False
    assert receiver.receive() == []
    assert not eu.waiting
    assert received(pubsub.ReceivedMessage(ack_id="a", message={"message_id": "5"})).identity == "5"
