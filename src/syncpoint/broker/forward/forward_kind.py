"""What is forwarded together: messages of one ordering key, or of none, as many as a publish may have.

Place: the `ConsumerKind` of subscriptions that forward, under `forward_driver`.
Promise: a message that was forwarded `HOPS_MAX` times before, or that the target refuses alone, is given up. One of
which too many copies would be made is given up for `TOO_MANY`, of which no letter is made: that would be one more.
"""

from __future__ import annotations

from collections.abc import Callable

from syncpoint.broker.forward.forwarded_message import HOPS_MAX, hops_of
from syncpoint.broker.inner.inner_consumer import MESSAGE_BYTES, ConsumerKind, HeldBatch, InnerConsumer
from syncpoint.broker.subscribe import own_copies
from syncpoint.broker.subscribe.shared_state import Reason
from syncpoint.wire.protobuf.messages import pubsub

REQUEST_MESSAGES_MAX = 1_000
REQUEST_BYTES = 1 << 20  # of messages; one that is larger goes alone
AHEAD_MAX = 4_000  # messages that are held
REFUSED = "ForwardingRefused"
TOO_FAR = Reason(
    "MaxTransferHopCountExceeded",
    f"The message was already forwarded {HOPS_MAX} times, the maximum; subscriptions may forward in a circle.",
)


TOO_MANY = Reason("MaxForwardCopiesExceeded", f"{own_copies.TOO_MANY[0].upper()}{own_copies.TOO_MANY[1:]}")


class ForwardKind(ConsumerKind):
    """Batch messages for forwarding.

    `among`: the number of copies that the service makes of each message of the topic.
    """

    counts_failures = False
    refusal = REFUSED

    def __init__(self, among: Callable[[], int] = lambda: 1) -> None:
        self._among = among

    def takes(self, batch: HeldBatch, nbytes: int) -> bool:
        """Within the bounds of a request."""
        return len(batch) < REQUEST_MESSAGES_MAX and batch.memory + nbytes + MESSAGE_BYTES <= REQUEST_BYTES

    def reason(self, message: pubsub.PubsubMessage) -> Reason | None:
        """Whether it went too far, or there are too many of it."""
        if hops_of(message) >= HOPS_MAX:
            return TOO_FAR
        left = own_copies.share(message.attributes, self._among())
        return TOO_MANY if left is not None and left < 0 else None

    def room(self, machine: InnerConsumer) -> int:
        """All that memory is there for."""
        return AHEAD_MAX if machine.free else 0
