"""Messages as they were received, one by one or by the batch.

Place: between `reception` and the user. A batch is what one response of the server brought; its messages are made when
they are asked for, so that who handles whole batches pays for none.
Promise: the first of `ack` and `nack` counts, from whichever thread; what comes after it does nothing.
"""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, overload

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.client.client_errors import AcknowledgeError, AcknowledgeStatus
from syncpoint.client.client_future import ClientFuture


class LeaseChange(NamedTuple):
    """What is to become of messages of a batch. `indexes`: None for all; `seconds`: None to acknowledge, 0 to give
    back, else how long from now on the lease is.
    """

    batch: MessageBatch
    indexes: Sequence[int] | None
    seconds: int | None
    outcome: ClientFuture[AcknowledgeStatus] | None = None


class LeaseChanges(Protocol):
    """Takes changes, from any thread. `acked`: messages that were acknowledged one by one, for which nobody waits."""

    acked: deque[Message]
    waiting: deque[LeaseChange]

    def wake(self) -> None:
        """Something was appended."""
        ...


def changes_of(changes: LeaseChanges) -> list[LeaseChange]:
    """Take what was appended until now; of messages that were acknowledged one by one, those of a batch together."""
    acked, waiting = changes.acked, changes.waiting
    found: list[LeaseChange] = []
    batch: MessageBatch | None = None
    indexes: list[int] = []
    for message in [acked.popleft() for _ in range(len(acked))]:
        if message.batch is not batch:
            batch, indexes = message.batch, []
            found.append(LeaseChange(batch, indexes, None))
        indexes.append(message.index)
    found += [waiting.popleft() for _ in range(len(waiting))]
    return found


class MessageBatch(Sequence["Message"]):
    """Messages that came together. `origin`: the address they came from; `received_s`: when, by `time.monotonic`."""

    __slots__ = ("_changes", "_ids", "_messages", "_received", "done", "extended_s", "left", "origin", "received_s")

    def __init__(self, received: Any, origin: str, received_s: float, changes: LeaseChanges) -> None:
        self._received, self.origin, self.received_s, self._changes = received, origin, received_s, changes
        self.extended_s = received_s
        self.done = bytearray(len(received))
        self.left = len(received)
        self._ids: list[str] | None = None
        self._messages: list[Message] | None = None

    def __len__(self) -> int:
        return len(self.done)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self._all()[index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._all())

    @property
    def received(self) -> Sequence[Any]:
        """All of it, each as the `google.pubsub.v1.ReceivedMessage` that came."""
        found: Sequence[Any] = self._received
        return found

    @property
    def data(self) -> list[bytes]:
        """The data of all messages."""
        return [one.message.data for one in self._received]

    @property
    def ack_ids(self) -> list[str]:
        """The ack ids of all messages."""
        if self._ids is None:
            self._ids = [one.ack_id for one in self._received]
        return self._ids

    def ack(self) -> None:
        """Acknowledge those of its messages that were neither acknowledged nor given back."""
        self._change(None)

    def nack(self) -> None:
        """Give these back instead: they are delivered again."""
        self._change(0)

    def _change(self, seconds: int | None) -> None:
        done = self.done
        indexes = [at for at, one in enumerate(done) if not one] if any(done) else None
        if indexes == []:
            return
        done[:] = b"\x01" * len(done)
        self._changes.waiting.append(LeaseChange(self, indexes, seconds))
        self._changes.wake()

    def _all(self) -> list[Message]:
        if self._messages is None:
            changes = self._changes
            self._messages = [Message(one, self, at, changes) for at, one in enumerate(self._received)]
        return self._messages


class Message:
    """A message that was received, with the names of Google's client."""

    __slots__ = ("_changes", "_received", "batch", "index")

    def __init__(self, received: Any, batch: MessageBatch, index: int, changes: LeaseChanges) -> None:
        self._received, self.batch, self.index, self._changes = received, batch, index, changes

    def __repr__(self) -> str:
        return f"Message {{ id: {self.message_id}, data: {self.data[:50]!r}, attributes: {dict(self.attributes)} }}"

    @property
    def received(self) -> Any:
        """All of it, as the `google.pubsub.v1.ReceivedMessage` that came."""
        return self._received

    @property
    def data(self) -> bytes:
        """What was published."""
        found: bytes = self._received.message.data
        return found

    @property
    def attributes(self) -> Mapping[str, str]:
        """Names and texts that were published with it."""
        found: Mapping[str, str] = self._received.message.attributes
        return found

    @property
    def ordering_key(self) -> str:
        """Its ordering key; empty without one."""
        found: str = self._received.message.ordering_key
        return found

    @property
    def message_id(self) -> str:
        """The id that its publisher was given."""
        found: str = self._received.message.message_id
        return found

    @property
    def publish_time(self) -> datetime.datetime:
        """When it was published, in UTC."""
        found: datetime.datetime = self._received.message.publish_time.ToDatetime(datetime.UTC)
        return found

    @property
    def delivery_attempt(self) -> int | None:
        """How often it has been delivered, for subscriptions with a dead letter topic; None for others."""
        return self._received.delivery_attempt or None

    @property
    def ack_id(self) -> str:
        """The name of this delivery."""
        return self.batch.ack_ids[self.index]

    @property
    def size(self) -> int:
        """Bytes of it as it came."""
        found: int = self._received.message.ByteSize()
        return found

    def ack(self) -> None:
        """Acknowledge: it was handled. Returns at once; see `ack_with_response` for subscriptions that deliver exactly
        once.
        """
        done, index = self.batch.done, self.index
        if not done[index]:
            done[index] = 1
            self._changes.acked.append(self)
            self._changes.wake()

    def nack(self) -> None:
        """Give it back: it is delivered again."""
        self._finish(0, None)

    def ack_with_response(self) -> ClientFuture[AcknowledgeStatus]:
        """Acknowledge. The outcome is SUCCESS once that is on the server's disks, or an `AcknowledgeError`."""
        outcome: ClientFuture[AcknowledgeStatus] = ClientFuture()
        self._finish(None, outcome)
        return outcome

    def nack_with_response(self) -> ClientFuture[AcknowledgeStatus]:
        """Give it back, and learn whether it was still ours."""
        outcome: ClientFuture[AcknowledgeStatus] = ClientFuture()
        self._finish(0, outcome)
        return outcome

    def modify_ack_deadline(self, seconds: int) -> None:
        """Let its lease end this many seconds from now; leases are extended by themselves all the same."""
        if not 0 <= seconds <= 600:
            raise ValueError(f"seconds must be from 0 to 600, and are {seconds}")
        if seconds == 0:
            self.nack()
        elif not self.batch.done[self.index]:
            self._changes.waiting.append(LeaseChange(self.batch, (self.index,), seconds))
            self._changes.wake()

    def _finish(self, seconds: int | None, outcome: ClientFuture[AcknowledgeStatus] | None) -> None:
        done = self.batch.done
        if done[self.index]:
            if outcome is not None:
                before = FailedPrecondition("The message was acknowledged or given back before.")
                outcome.set_exception(AcknowledgeError(AcknowledgeStatus.FAILED_PRECONDITION, before))
            return
        done[self.index] = 1
        self._changes.waiting.append(LeaseChange(self.batch, (self.index,), seconds, outcome))
        self._changes.wake()
