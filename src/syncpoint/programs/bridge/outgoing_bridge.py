"""Messages of subscriptions to another broker: our subscriber in front of a sink.

Place: run by `syncpoint bridge`. Each subscription has a thread, the sink has one, and answers to dead letters come in
the publisher's; all come here.
Promises: a message is acknowledged to its subscription only after the other broker has confirmed it, or its dead letter
is stored. One message of a key at a time is on its way, so that what is sent again does not overtake. What is delivered
again in the meantime is not sent twice. At the end, what is not confirmed is given back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from syncpoint.base.model.errors import FailedPrecondition, SyncpointError
from syncpoint.client import Publisher, Subscriber
from syncpoint.client.received_messages import Message
from syncpoint.programs.bridge.bridge_file import BridgeFile, OutgoingRule
from syncpoint.programs.bridge.bridge_flow import Arrival
from syncpoint.programs.bridge.bridge_state import STOP_S, BridgeState
from syncpoint.programs.bridge.key_lanes import KeyLanes, QueuedWork
from syncpoint.programs.bridge.message_shape import BridgedMessage, UnfitMessage, outgoing

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BridgedWork:
    """A message under way. `prepared`: what the sink has made of it."""

    arrival: Arrival
    message: BridgedMessage
    prepared: Any


class BridgeSink(Protocol):
    """Where messages go. All may be called by any thread."""

    def begin(self, bridge: OutgoingBridge) -> None:
        """Connect, and again after each end of a connection."""

    def prepare(self, message: BridgedMessage) -> Any:
        """What is sent beside the data. Called after the first connection. Raises `UnfitMessage`."""

    def send(self, works: list[QueuedWork[BridgedWork]]) -> None:
        """Send them, in this order. Called with the bridge's lock, while connected."""

    def close(self) -> None:
        """End."""


class OutgoingBridge(BridgeState):
    """Takes messages of subscriptions to a sink."""

    def __init__(
        self, file: BridgeFile, project: str, sink: BridgeSink, publisher: Publisher, subscriber: Subscriber
    ) -> None:
        """`publisher` is for dead letters."""
        super().__init__(file, project, publisher, in_order=False)
        self._sink, self._subscriber = sink, subscriber
        self._lanes: KeyLanes[BridgedWork] = KeyLanes()
        self._refusals: list[Callable[[], None]] = []  # whose letters were not stored, to be tried again
        self._messages: dict[Hashable, Message] = {}  # to be acknowledged, by token

    def begin(self) -> None:
        with self.lock:
            self.flow.connect(lambda _: True)
        self._sink.begin(self)

    def tick(self) -> None:
        with self.lock:
            self._lanes.retry()
            self._pump()
            refusals, self._refusals = self._refusals, []
        for refuse in refusals:
            refuse()

    def finish_run(self) -> None:
        with self.lock:
            self.lock.wait_for(lambda: not self.flow.messages or not self.linked, STOP_S)
            for one in self._messages.values():
                one.nack()
            self._messages.clear()
        self._sink.close()
        self.publisher.stop(STOP_S)
        self._subscriber.close()

    # -- the threads of subscriptions --------------------------------------------------------------------------------

    def _receive(self, rule: OutgoingRule) -> None:
        name = rule.subscription
        if not name.startswith("projects/"):
            name = f"projects/{self.project}/subscriptions/{name}"
        try:
            for batch in self._subscriber.batches(name):
                for message in batch:
                    self._take(rule, name, message)
        except SyncpointError as error:
            self.end(error)
        except Exception as error:
            if not self.over.is_set():  # else the subscriber is closed
                log.exception("%s is received no more", name)
                self.end(FailedPrecondition(f"{name} is received no more: {error!r}"))

    def _take(self, rule: OutgoingRule, subscription: str, message: Message) -> None:
        token = (subscription, message.message_id)
        with self.lock:
            while self.flow.full and not self.over.is_set() and not self.flow.knows(token):
                self.lock.wait(1.0)
            if self.over.is_set():
                message.nack()
                return
            again = self.flow.knows(token) or (message.delivery_attempt or 1) > 1
            arrival = self.flow.arrive(token, b"", message.size, again=again)
            self._messages[token] = message
            if arrival is None:
                return  # with another lease
        data, attributes, key = message.data, dict(message.attributes), message.ordering_key
        try:
            made = outgoing(data, key, message.message_id, attributes, rule, self.file.broker.kind)
            sent = BridgedWork(arrival, made, self._sink.prepare(made))
        except UnfitMessage as error:
            self._refuse(arrival, subscription, str(error), data, attributes)
            return
        with self.lock:
            self._lanes.offer(QueuedWork(token, (subscription, key) if key else None, sent))
            self._pump()

    # -- the sink ----------------------------------------------------------------------------------------------------

    def connected(self, keeps: Callable[[BridgedMessage], bool], *, lost_session: bool = False) -> None:
        """The other broker is there. `keeps`: whether the sink itself sends a message on that it was given before."""
        with self.lock:
            self.linked = True
            self.connects += 1
            self.lost_sessions += lost_session
            self._lanes.reconnect(lambda sent: keeps(sent.message))
            self._pump()
            first = self.connects == 1
        for rule in self.file.outgoing if first else ():
            threading.Thread(target=self._receive, args=(rule,), name="bridge-receiver", daemon=True).start()

    def disconnected(self) -> None:
        """The other broker is gone; it comes again."""
        with self.lock:
            self.linked = False
            self.lock.notify_all()

    def confirmed(self, tokens: Iterable[Hashable]) -> None:
        """The other broker has these."""
        with self.lock:
            for token in tokens:
                work = self._lanes.done(token)
                if work is not None:
                    self._finish(work.value.arrival)
            self._pump()

    def again(self, token: Hashable, reason: str) -> None:
        """The other broker did not take it, but may do so later."""
        with self.lock:
            if self._lanes.out(token) is not None:
                self._lanes.again(token)
                self.flow.failed += 1
        log.warning("a message is not taken, and sent again: %s", reason)

    def refused(self, token: Hashable, reason: str) -> None:
        """The other broker will not take it."""
        with self.lock:
            work = self._lanes.out(token)
        if work is not None:
            made = work.value.message
            attributes = {**made.given, **made.headers}
            self._refuse(work.value.arrival, made.rule.subscription, reason, made.data, attributes)

    def _refuse(
        self, arrival: Arrival, subscription: str, reason: str, data: bytes, attributes: dict[str, str]
    ) -> None:
        def stored() -> None:
            with self.lock:
                self._lanes.done(arrival.token)
                self._finish(arrival)
                self._pump()

        def failed(error: BaseException) -> None:
            log.warning("a dead letter is not stored, and is sent again: %s", error)
            with self.lock:
                self.flow.failed += 1
                self._refusals.append(lambda: self._refuse(arrival, subscription, reason, data, attributes))

        self.send_letter(subscription, reason, data, attributes, stored, failed)

    # -- with the lock -----------------------------------------------------------------------------------------------

    def _finish(self, arrival: Arrival) -> None:
        if arrival.done:  # sent again over another connection, it has had another answer
            return
        self.done_now(arrival)
        for token in self.flow.acknowledge():
            message = self._messages.pop(token, None)
            if message is not None:
                message.ack()

    def _pump(self) -> None:
        if self.linked and (due := self._lanes.due()):
            self._sink.send(due)
