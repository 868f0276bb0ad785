"""What is on its way from an MQTT broker into topics: the machine that decides what is acknowledged, and when.

Place: under `mqtt_driver`, which holds a lock around it. No clock, no network.
Promises: a message is acknowledged to the broker only after it is stored, and in the order in which messages arrived,
as MQTT 5 asks. What the broker sends again over a new connection while the first publish is under way is not published
twice: the broker gives its packet id to no other message before it was acknowledged.
Leaves to the id of a message: what is sent again after an acknowledgement that did not arrive, or after the end of this
program. A packet id alone is no id of a message; the broker uses it again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class MqttArrival:
    """One message under way. `packet`: its packet id, 0 for those of QoS 0, which nobody acknowledges."""

    packet: int
    digest: bytes
    size: int
    done: bool = False


class IncomingFlow:
    """All messages under way of one session."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max, self._bytes_max = messages_max, bytes_max
        self.messages = self.bytes = 0  # under way
        self.stored = self.joined = self.sent_again = self.failed = 0
        self.connects = self.lost_sessions = 0
        self.connected = False
        self._order: deque[MqttArrival] = deque()  # not acknowledged on this connection, as they came
        self._unacknowledged: dict[int, MqttArrival] = {}  # of this session, by packet id

    @property
    def full(self) -> bool:
        """Whether no more may be taken now. One message is always taken, however large."""
        return self.messages >= self._messages_max or (self.messages > 0 and self.bytes >= self._bytes_max)

    def connect(self, session_kept: bool) -> None:
        """The broker has taken the connection. `session_kept`: it knows what it had sent before."""
        if not session_kept:
            self._unacknowledged.clear()
            self.lost_sessions += self.connects > 0
        self._order.clear()
        self.connects += 1
        self.connected = True

    def disconnect(self) -> None:
        """The connection is gone; what was not acknowledged comes again."""
        self.connected = False

    def arrive(self, packet: int, digest: bytes, size: int, *, again: bool) -> MqttArrival | None:
        """A message has come; it is to be published. None: its publish is under way, or done, since before."""
        self.sent_again += again
        if packet:
            known = self._unacknowledged.get(packet)
            if again and known is not None and known.digest == digest:
                self.joined += 1
                self._order.append(known)
                return None
        arrival = MqttArrival(packet, digest, size)
        self.messages += 1
        self.bytes += size
        if packet:
            self._unacknowledged[packet] = arrival
            self._order.append(arrival)
        return arrival

    def finish(self, arrival: MqttArrival) -> None:
        """The message is stored, or was dropped on purpose."""
        self._leave(arrival)
        arrival.done = True
        self.stored += 1

    def fail(self, arrival: MqttArrival) -> None:
        """The message was not stored: nothing after it is acknowledged until it has come again."""
        self._leave(arrival)
        self.failed += 1
        if self._unacknowledged.get(arrival.packet) is arrival:
            del self._unacknowledged[arrival.packet]

    def acknowledge(self) -> list[int]:
        """The packet ids to acknowledge now, in this order."""
        found: list[int] = []
        while self.connected and self._order and self._order[0].done:
            arrival = self._order.popleft()
            if self._unacknowledged.get(arrival.packet) is arrival:
                del self._unacknowledged[arrival.packet]
                found.append(arrival.packet)
        return found

    def _leave(self, arrival: MqttArrival) -> None:
        self.messages -= 1
        self.bytes -= arrival.size
