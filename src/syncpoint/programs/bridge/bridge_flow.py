"""What a bridge has under way: the machine that decides what is acknowledged to where it came from, and when.

Place: under `incoming_bridge` and `outgoing_bridge`, which hold a lock around it. No clock, no network.
Promises: a message is acknowledged only after its target has confirmed it; with `in_order`, in the order in which
messages came, as MQTT 5 asks. What comes again while it is under way joins that, and is not handed on twice: its token
is given to no other message before it was acknowledged.
Leaves to the id of a message: what comes again after an acknowledgement that did not arrive, or after the end of this
program. A token alone is no id of a message; brokers use them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Arrival:
    """One message under way. `token`: how it is acknowledged; None for those which nobody acknowledges."""

    token: Hashable | None
    digest: bytes
    size: int
    done: bool = False


class BridgeFlow:
    """All messages under way of one bridge."""

    def __init__(self, messages_max: int, bytes_max: int, *, in_order: bool = True) -> None:
        self._messages_max, self._bytes_max, self._in_order = messages_max, bytes_max, in_order
        self.messages = self.bytes = 0  # under way
        self.stored = self.joined = self.sent_again = self.failed = 0
        self.connected = False
        self._order: deque[Arrival] = deque()  # not acknowledged on this connection, as they came
        self._unacknowledged: dict[Hashable, Arrival] = {}

    @property
    def full(self) -> bool:
        """Whether no more may be taken now. One message is always taken, however large."""
        return self.messages >= self._messages_max or (self.messages > 0 and self.bytes >= self._bytes_max)

    def connect(self, keeps: Callable[[Hashable], bool]) -> None:
        """The source is there. `keeps`: whether a token of an earlier connection still means the same message."""
        for token in [one for one in self._unacknowledged if not keeps(one)]:
            del self._unacknowledged[token]
        self._order.clear()
        self.connected = True

    def disconnect(self) -> None:
        """The source is gone; what was not acknowledged comes again."""
        self.connected = False

    def arrive(self, token: Hashable | None, digest: bytes, size: int, *, again: bool) -> Arrival | None:
        """A message has come, to be handed on; None if it is under way or done already."""
        self.sent_again += again
        known = self._unacknowledged.get(token)
        if again and known is not None and known.digest == digest:
            self.joined += 1
            if self._in_order:
                self._order.append(known)
            return None
        arrival = Arrival(token, digest, size)
        self.messages += 1
        self.bytes += size
        if token is not None:
            self._unacknowledged[token] = arrival
            if self._in_order:
                self._order.append(arrival)
        return arrival

    def knows(self, token: Hashable) -> bool:
        """Whether a message with this token is under way."""
        return token in self._unacknowledged

    def finish(self, arrival: Arrival) -> None:
        """The target has the message, or it was dropped on purpose."""
        self._leave(arrival)
        arrival.done = True
        self.stored += 1
        if not self._in_order:
            self._order.append(arrival)

    def fail(self, arrival: Arrival) -> None:
        """The target has not taken the message: nothing after it is acknowledged until it has come again."""
        self._leave(arrival)
        self.failed += 1
        if self._unacknowledged.get(arrival.token) is arrival:
            del self._unacknowledged[arrival.token]

    def acknowledge(self) -> list[Hashable]:
        """The tokens to acknowledge now, in this order."""
        found: list[Hashable] = []
        while self.connected and self._order and self._order[0].done:
            arrival = self._order.popleft()
            if self._unacknowledged.get(arrival.token) is arrival:
                del self._unacknowledged[arrival.token]
                found.append(arrival.token)
        return found

    def _leave(self, arrival: Arrival) -> None:
        self.messages -= 1
        self.bytes -= arrival.size
