"""Publishes whose caller wants a receipt are answered, whatever becomes of that."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.front.api.receipted_publish import PROBLEM, ReceiptedPublish
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.calls import Unary

ANSWER = pubsub.PublishResponse(message_ids=["1"]).SerializeToString()


class FakeCall:
    """A call that remembers its answer and trailers."""

    def __init__(self) -> None:
        self.trailers: dict[bytes, bytes] = {}
        self.answer = b""

    def trail(self, name: bytes, value: bytes) -> None:
        self.trailers[name] = value

    def reply(self, message: bytes) -> None:
        self.answer = message


@pytest.mark.parametrize(
    ("error", "problem", "logged"),
    [(Unavailable("nobody can say"), b"UNAVAILABLE", 0), (ValueError("a state of a newer version"), b"INTERNAL", 1)],
)
def test_a_publish_is_answered_although_its_receipt_fails(
    error: Exception, problem: bytes, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    class FailingReceipts:
        async def get_receipt(self, request: Any) -> Any:
            raise error

    async def work() -> FakeCall:
        call = FakeCall()
        publish = Unary(lambda call, request: call.reply(ANSWER))
        variant = ReceiptedPublish(publish, FailingReceipts())  # type: ignore[arg-type]
        variant._handle(call, pubsub.PublishRequest(topic="t").SerializeToString())
        await variant._tasks.ended()
        return call

    with caplog.at_level(logging.ERROR):
        call = asyncio.run(work())
    assert (call.answer, call.trailers) == (ANSWER, {PROBLEM: problem})
    assert len(caplog.records) == logged
