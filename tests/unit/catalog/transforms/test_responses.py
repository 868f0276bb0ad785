"""What is left of a response, and what is said about the rest of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.catalog.metadata.records import Subscription
from syncpoint.catalog.transforms import responses
from syncpoint.catalog.transforms.errors import NotTried, SandboxUnavailable, TransformError
from syncpoint.catalog.transforms.message_transforms import Outcome
from syncpoint.catalog.transforms.responses import transformed_response
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub
from tests.kit.transforming import PlayedTransformer

NAME = "projects/p/subscriptions/s"


class Played(PlayedTransformer):
    """Drops and fails as the data of a message says."""

    def __init__(self, away: Exception | None = None) -> None:
        self.away = away

    async def play(self, transforms: Any, messages: Any) -> list[Outcome]:
        if self.away:
            raise self.away
        outcomes: dict[bytes, Outcome] = {b"drop": None, b"fail": TransformError("no"), b"late": NotTried("no")}
        return [outcomes.get(one.data, one) for one in messages]


def response(*messages: tuple[bytes, str]) -> bytes:
    received = [
        pubsub.ReceivedMessage(ack_id=str(number), message=pubsub.PubsubMessage(data=data, ordering_key=key))
        for number, (data, key) in enumerate(messages)
    ]
    kind = pubsub.StreamingPullResponse(received_messages=received)
    kind.subscription_properties.message_ordering_enabled = True
    return kind.SerializeToString()


@pytest.mark.parametrize(("ordered", "left_ids"), [(True, "045"), (False, "0345")])
def test_a_key_waits_behind_a_message_that_failed_where_keys_are_ordered(ordered: bool, left_ids: str) -> None:
    """Nothing is said about what waits: it is taken back with the one that failed, and it did not fail itself."""
    record = Subscription(1, NAME, 1, "projects/p/topics/t", ordered=ordered)
    whole = response((b"a", "k"), (b"fail", "k"), (b"drop", "l"), (b"b", "k"), (b"c", "l"), (b"d", ""))
    found = asyncio.run(transformed_response(Played(), record, pubsub.StreamingPullResponse, whole))
    left = pubsub.StreamingPullResponse.FromString(*found.responses)
    assert (found.dropped, found.failed, found.untried, found.messages) == (("2",), ("1",), (), 6)
    assert [one.ack_id for one in left.received_messages] == list(left_ids)
    assert left.subscription_properties.message_ordering_enabled
    (ack_path, _, ack), (refuse_path, _, refusal) = found.requests(NAME)
    assert (ack_path, refuse_path) == (methods.SUBSCRIBER.Acknowledge, methods.SUBSCRIBER.ModifyAckDeadline)
    assert pubsub.AcknowledgeRequest.FromString(ack).ack_ids == ["2"]
    asked = pubsub.ModifyAckDeadlineRequest.FromString(refusal)
    assert (asked.subscription, list(asked.ack_ids), asked.ack_deadline_seconds) == (NAME, ["1"], 0)
    turn = internal.TurnRequest.FromString(found.turn())
    assert (turn.done, list(turn.dropped), list(turn.failed), list(turn.untried)) == (True, ["2"], ["1"], [])


@pytest.mark.parametrize(
    ("away", "failed", "untried"),
    [(SandboxUnavailable("no process"), (), ("0",)), (RuntimeError("nobody expected this"), ("0",), ())],
)
def test_without_a_process_for_functions_nothing_is_delivered_and_nothing_lost(
    monkeypatch: pytest.MonkeyPatch, away: Exception, failed: tuple[str, ...], untried: tuple[str, ...]
) -> None:
    monkeypatch.setattr(responses, "PAUSE_S", 0.0)
    record = Subscription(1, NAME, 1, "projects/p/topics/t")
    found = asyncio.run(transformed_response(Played(away), record, pubsub.StreamingPullResponse, response((b"a", ""))))
    assert (found.dropped, found.failed, found.untried) == ((), failed, untried)


def test_what_was_not_tried_is_given_back_and_counts_as_no_delivery() -> None:
    record = Subscription(1, NAME, 1, "projects/p/topics/t", ordered=True)
    whole = response((b"a", "k"), (b"late", "k"), (b"b", "k"), (b"c", "l"))
    found = asyncio.run(transformed_response(Played(), record, pubsub.StreamingPullResponse, whole))
    assert (found.dropped, found.failed, found.untried) == ((), (), ("1",))
    ((path, _, request),) = found.requests(NAME)
    assert path == methods.DELIVERIES.TakeBack
    assert internal.TakeBackRequest.FromString(request).ack_ids == ["1"]


class Grown(PlayedTransformer):
    """Makes every message large."""

    def __init__(self) -> None:
        pass

    async def play(self, transforms: Any, messages: Any) -> list[Outcome]:
        return [pubsub.PubsubMessage(data=one.data * 400_000, ordering_key=one.ordering_key) for one in messages]


def test_a_stream_is_sent_in_several_responses_what_transforms_made_too_large_for_one() -> None:
    record = Subscription(1, NAME, 1, "projects/p/topics/t", ordered=True)
    whole = response(*[(b"x", "k")] * 3, (b"x" * 20, ""), (b"x", ""))
    found = asyncio.run(transformed_response(Grown(), record, pubsub.StreamingPullResponse, whole))
    parts = [pubsub.StreamingPullResponse.FromString(one) for one in found.responses]
    assert [[one.ack_id for one in part.received_messages] for part in parts] == [["0", "1"], ["2"], ["3"], ["4"]]
    assert all(part.subscription_properties.message_ordering_enabled for part in parts)
    assert (found.untried, found.messages) == ((), 5)


def test_a_pull_is_answered_with_as_much_as_a_response_takes_and_the_rest_is_given_back() -> None:
    record = Subscription(1, NAME, 1, "projects/p/topics/t", ordered=True)
    whole = response(*[(b"x", "k")] * 4, (b"", ""), (b"x", ""))
    found = asyncio.run(transformed_response(Grown(), record, pubsub.PullResponse, whole))
    (answer,) = found.responses
    assert [one.ack_id for one in pubsub.PullResponse.FromString(answer).received_messages] == ["0", "1", "4"]
    assert found.untried == ("2", "5"), "3 comes back with 2"
    (first,) = asyncio.run(
        transformed_response(Grown(), record, pubsub.PullResponse, response((b"x" * 20, "")))
    ).responses
    assert len(pubsub.PullResponse.FromString(first).received_messages) == 1
