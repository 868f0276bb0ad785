"""For each of the thirty metrics of the probers, a fault that makes it, and no other one, be not as expected.

`FAULTS` is the table; `docs/operations/probers.md` shows it. Each entry makes a new fault, of a relay between the
prober and the server, or of pushes on their way to the prober. `PATIENCE` is what the probers run with whose duration
is to fire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from syncpoint.base.model.errors import Code
from syncpoint.programs.probers.prober_table import BY_NAME
from syncpoint.wire.protobuf.methods import PUBLISHER, SUBSCRIBER, Method
from tests.kit.relay import PushFault, RelayFault

PATIENCE = 1.0
TIMEOUT_S = 15.0  # of a step: longer than any delay here


class NamedFault(NamedTuple):
    """A fault in words, and how to make one."""

    words: str
    make: Callable[[], RelayFault | PushFault]


def late_s(prober: str, step: str) -> float:
    """A delay that is longer than a step may take."""
    limit_s = next(one.limit_s for one in BY_NAME[prober].timed if one.name == step)
    return limit_s * PATIENCE + 1.0


def at(prober: str, method: Method, **more: Any) -> Callable[[], RelayFault]:
    """A fault of the calls of one prober."""
    return lambda: RelayFault(method, rf"/probe-{prober.lower()}(?!\d)", **more)


def delivered_late(prober: str, step: str) -> Callable[[], RelayFault]:
    """The first response of a stream is held up, and with it those behind it."""

    def make() -> RelayFault:
        held = iter([late_s(prober, step)])
        return at(prober, SUBSCRIBER.StreamingPull, answer=lambda response: next(held, None))()

    return make


def after(seconds: float) -> Callable[[Any], float]:
    """Hold up a message."""
    return lambda message: seconds


def dropped(response: Any) -> None:
    """Take all messages out of a response."""
    del response.received_messages[:]


def doubled(response: Any) -> None:
    """Deliver everything twice."""
    response.received_messages.extend(list(response.received_messages))


def garbled(response: Any) -> None:
    """Change a byte of each message."""
    for one in response.received_messages:
        one.message.data = one.message.data[:-1] + bytes([one.message.data[-1] ^ 1])


def same_ids(response: Any) -> None:
    """Give all messages one id."""
    response.message_ids[:] = [response.message_ids[0]] * len(response.message_ids)


def other_labels(response: Any) -> None:
    """Describe a topic as it never was."""
    response.labels["state"] = "other"


def swapped(request: Any) -> None:
    """Store the first two messages of each key in each other's place."""
    for message in request.messages:
        number = int(message.attributes["n"])
        if number % 5 < 2:
            other = number + 1 - 2 * (number % 5)
            message.attributes["n"] = str(other)
            message.data = message.data.replace(b" %d " % number, b" %d " % other)


def lease_shortened(request: Any) -> None:
    """End at once the deadlines that are set."""
    request.ack_deadline_seconds = 0


def redelivered_late() -> RelayFault:
    """The second delivery of P5's first message, which it nacks, is held up."""
    came = 0

    def answer(response: Any) -> float | None:
        nonlocal came
        before = came
        came += sum(one.message.attributes["n"] == "0" for one in response.received_messages)
        return late_s("P5", "nacked") if before < 2 <= came else None

    return at("P5", SUBSCRIBER.Pull, answer=answer)()


_P, _S = PUBLISHER, SUBSCRIBER

FAULTS: dict[str, NamedFault] = {
    "P1.success": NamedFault(
        "CreateSubscription is refused: INTERNAL", at("P1", _S.CreateSubscription, error=Code.INTERNAL)
    ),
    "P1.duration": NamedFault(
        "CreateSubscription is answered late",
        at("P1", _S.CreateSubscription, answer=after(late_s("P1", "create"))),
    ),
    "P1.correctness": NamedFault(
        "the message is taken out of the response", at("P1", _S.StreamingPull, answer=dropped)
    ),
    "P2.success": NamedFault(
        "the seventh Publish is refused: RESOURCE_EXHAUSTED",
        at("P2", _P.Publish, error=Code.RESOURCE_EXHAUSTED, skip=6, times=1),
    ),
    "P2.duration": NamedFault(
        "the third Publish is answered late",
        at("P2", _P.Publish, answer=after(late_s("P2", "publish")), skip=2, times=1),
    ),
    "P2.correctness": NamedFault("all messages of a request get one id", at("P2", _P.Publish, answer=same_ids)),
    "P3.success": NamedFault(
        "StreamingPull is refused: PERMISSION_DENIED", at("P3", _S.StreamingPull, error=Code.PERMISSION_DENIED)
    ),
    "P3.duration": NamedFault("responses are held up on the stream", delivered_late("P3", "receive")),
    "P3.correctness": NamedFault("each message is delivered twice", at("P3", _S.StreamingPull, answer=doubled)),
    "P4.success": NamedFault("Acknowledge is refused: UNAVAILABLE", at("P4", _S.Acknowledge, error=Code.UNAVAILABLE)),
    "P4.duration": NamedFault(
        "Acknowledge is answered late", at("P4", _S.Acknowledge, answer=after(late_s("P4", "acknowledge")))
    ),
    "P4.correctness": NamedFault(
        "the acknowledgement is answered and forgotten", at("P4", _S.Acknowledge, swallow=True)
    ),
    "P5.success": NamedFault(
        "ModifyAckDeadline is refused: ABORTED", at("P5", _S.ModifyAckDeadline, error=Code.ABORTED)
    ),
    "P5.duration": NamedFault("the redelivery behind a nack is held up", redelivered_late),
    "P5.correctness": NamedFault(
        "the deadline ends at once instead of after 2 s", at("P5", _S.ModifyAckDeadline, request=lease_shortened)
    ),
    "P6.success": NamedFault(
        "a Publish in the middle of a key is refused: INTERNAL",
        at("P6", _P.Publish, error=Code.INTERNAL, skip=7, times=1),
    ),
    "P6.duration": NamedFault("responses are held up on the stream", delivered_late("P6", "receive")),
    "P6.correctness": NamedFault(
        "two messages of a key are stored in turned order", at("P6", _P.Publish, request=swapped)
    ),
    "P7.success": NamedFault(
        "CreateSubscription is refused: UNAUTHENTICATED",
        at("P7", _S.CreateSubscription, error=Code.UNAUTHENTICATED),
    ),
    "P7.duration": NamedFault("pushes are held up", lambda: PushFault(delay_s=late_s("P7", "push"))),
    "P7.correctness": NamedFault("each push comes twice", lambda: PushFault(times=2)),
    "P8.success": NamedFault(
        "UpdateSubscription is refused: INTERNAL", at("P8", _S.UpdateSubscription, error=Code.INTERNAL)
    ),
    "P8.duration": NamedFault(
        "DeleteTopic is answered late", at("P8", _P.DeleteTopic, answer=after(late_s("P8", "call")))
    ),
    "P8.correctness": NamedFault("GetTopic shows other labels", at("P8", _P.GetTopic, answer=other_labels)),
    "P9.success": NamedFault("Pull is refused: INTERNAL", at("P9", _S.Pull, error=Code.INTERNAL)),
    "P9.duration": NamedFault(
        "the nack at the next endpoint is answered late",
        at("P9", _S.ModifyAckDeadline, answer=after(late_s("P9", "failover"))),
    ),
    "P9.correctness": NamedFault("a byte of each message is changed", at("P9", _S.Pull, answer=garbled)),
    "P10.success": NamedFault(
        "the third Publish is refused: UNAVAILABLE", at("P10", _P.Publish, error=Code.UNAVAILABLE, skip=2, times=1)
    ),
    "P10.duration": NamedFault(
        "the third Publish reaches the server late",
        at("P10", _P.Publish, request=after(late_s("P10", "path")), skip=2, times=1),
    ),
    "P10.correctness": NamedFault("one path delivers nothing", at("P10", _S.StreamingPull, answer=dropped, times=1)),
}
