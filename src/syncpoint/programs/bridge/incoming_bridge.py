"""Messages of another broker into topics: a source in front of a publisher.

Place: run by `syncpoint bridge`. The source has a thread, the publisher another one; both come here. Where too much is
under way the source's thread waits, which holds up its broker.
Promises: those of `bridge_flow`. A publish that fails ends the source's connection, so that the broker sends all that
was not acknowledged again, in order. A topic that refuses a message gets the ones after it one by one, so that it is
known which of them it refuses; that one ends the bridge, or is dropped, or becomes a dead letter, by the file's rules.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Final, Protocol

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.client import MessageTooLargeError, PausedOrderingKeyError, Publisher
from syncpoint.programs.bridge.bridge_file import BridgeFile, IncomingRule
from syncpoint.programs.bridge.bridge_flow import Arrival
from syncpoint.programs.bridge.bridge_state import STOP_S, BridgeState
from syncpoint.programs.bridge.key_lanes import KeyLanes, QueuedWork
from syncpoint.programs.bridge.message_shape import ForeignMessage, ShapedMessage, UnfitMessage, shaped

ENTRY_BYTES: Final = 1024  # beside the data of a message under way

log = logging.getLogger(__name__)
TakenMessage = tuple[Arrival, ForeignMessage, ShapedMessage]


class BridgeSource(Protocol):
    """Where messages come from. All may be called by any thread."""

    def begin(self, bridge: IncomingBridge) -> None:
        """Connect, and again after each end of a connection."""

    def acknowledge(self, tokens: list[Hashable]) -> None:
        """Messages of the present connection are stored."""

    def drop_connection(self) -> None:
        """Let what was not acknowledged come again."""

    def tick(self) -> None:
        """Called each second."""

    def close(self) -> None:
        """Send what is still to be sent, and end."""


class IncomingBridge(BridgeState):
    """Takes messages of a source into topics."""

    def __init__(
        self,
        file: BridgeFile,
        project: str,
        source: BridgeSource,
        publisher: Publisher,
        careful: Callable[[], Publisher],
    ) -> None:
        """`careful` makes a publisher whose requests have one message each."""
        super().__init__(file, project, publisher, in_order=True)
        self._source, self._make_careful = source, careful
        self._paused: set[tuple[str, str]] = set()  # topics and keys to be resumed
        self._choosy: set[str] = set()  # topics that have refused a message
        self._lanes: KeyLanes[TakenMessage] = KeyLanes()
        self._careful: Publisher | None = None
        self._dropping = False  # the connection ends: what still comes over it would overtake what comes again

    def begin(self) -> None:
        self._source.begin(self)

    def tick(self) -> None:
        self._source.tick()

    def finish_run(self) -> None:
        for one in (self.publisher, self._careful):
            if one is not None:
                one.stop(STOP_S)  # what is stored by now is acknowledged
        self._source.close()

    # -- the source's thread -----------------------------------------------------------------------------------------

    def connected(self, keeps: Callable[[Hashable], bool], *, lost_session: bool = False) -> None:
        """The source is there; `keeps`: see `BridgeFlow.connect`."""
        self._resume()
        with self.lock:
            self.flow.connect(keeps)
            self._dropping = False
            self.linked = True
            self.connects += 1
            self.lost_sessions += lost_session

    def disconnected(self) -> None:
        """The source is gone; it comes again."""
        with self.lock:
            self.linked = False
            self.flow.disconnect()

    def came(
        self, token: Hashable | None, digest: bytes, message: ForeignMessage, rule: IncomingRule | None, *, again: bool
    ) -> None:
        """A message has come. `rule`: None if the file has none for it."""
        with self.lock:
            while self.flow.full and not self.over.is_set():
                self.lock.wait(1.0)
            if self.over.is_set():
                return  # not acknowledged: it is sent again
            arrival = self.flow.arrive(token, digest, len(message.data) + ENTRY_BYTES, again=again)
            if arrival is None:
                self._acknowledge()
                return
            if self._dropping:
                self.flow.fail(arrival)
                self.lost += token is None
                return
        if rule is None:
            with self.lock:
                self.unmatched += 1
            self._finish(arrival)
            return
        try:
            one = shaped(message, rule, self.project)
        except UnfitMessage as error:
            self._unfit(message, str(error), lambda: self._finish(arrival), lambda: self._fail([arrival]))
        else:
            self._publish((arrival, message, one))

    def _resume(self) -> None:
        """Resume keys that were paused by a failed message, once none of their messages is under way."""
        with self.lock:
            paused = bool(self._paused)
        if paused:
            self.publisher.flush()
            with self.lock:
                keys, self._paused = self._paused, set()
            for topic, key in keys:
                self.publisher.resume_publish(topic, key)

    def _publish(self, taken: TakenMessage) -> None:
        one = taken[2]
        with self.lock:
            choosy = one.topic in self._choosy
            if choosy:
                self._lanes.offer(QueuedWork(taken[0], (one.topic, one.key) if one.key else None, taken))
        if choosy:
            self._publish_carefully()
            return

        def answered(error: BaseException | None) -> None:
            if error is None:
                self._finish(taken[0])
            else:
                self._failed(taken, error)

        self.send(self.publisher, one, answered)

    # -- any thread --------------------------------------------------------------------------------------------------

    def _finish(self, arrival: Arrival) -> None:
        with self.lock:
            self.done_now(arrival)
            self._acknowledge()

    def _acknowledge(self) -> None:
        tokens = self.flow.acknowledge()
        if tokens:
            self._source.acknowledge(tokens)

    def _failed(self, taken: TakenMessage, error: BaseException) -> None:
        arrival, _, one = taken
        with self.lock:
            if one.key:
                self._paused.add((one.topic, one.key))
            if refused(error):
                self._choosy.add(one.topic)
            self._dropping = True
        if not isinstance(error, PausedOrderingKeyError):
            log.warning("a message for %s is not stored, and asked for again: %s", one.topic, error)
        self._fail([arrival])

    def _fail(self, arrivals: list[Arrival]) -> None:
        """Have these sent again by the source, with all that came after them."""
        with self.lock:
            self._dropping = True
            for one in arrivals:
                self.flow.fail(one)
                self.lost += one.token is None
            self.lock.notify_all()
        if not self.over.is_set():
            self._source.drop_connection()

    def _unfit(
        self,
        message: ForeignMessage,
        reason: str,
        stored: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        def not_stored(error: BaseException) -> None:
            log.warning("a dead letter is not stored, and its message is asked for again: %s", error)
            failed()

        self.send_letter(message.where, reason, message.data, message.attributes, stored, not_stored)

    # -- topics that have refused a message --------------------------------------------------------------------------

    def _publish_carefully(self) -> None:
        with self.lock:
            if self._careful is None:
                self._careful = self._make_careful()
            careful, due = self._careful, self._lanes.due()
        for work in due:
            self.send(careful, work.value[2], lambda error, work=work: self._answered(careful, work, error))  # type: ignore[misc]

    def _answered(self, careful: Publisher, work: QueuedWork[TakenMessage], error: BaseException | None) -> None:
        _, message, one = work.value
        if error is None:
            self._passed(work)
            return
        if one.key:
            careful.resume_publish(one.topic, one.key)
        if refused(error):
            reason = f"{one.topic} refuses it: {error}"
            self._unfit(message, reason, lambda: self._passed(work), lambda: self._give_up(work))
            return
        log.warning("a message for %s is not stored, and asked for again: %s", one.topic, error)
        self._give_up(work)

    def _give_up(self, work: QueuedWork[TakenMessage]) -> None:
        with self.lock:
            later = self._lanes.give_up(work.lane) if work.lane is not None else []
            self._lanes.done(work.token)
        self._fail([one.value[0] for one in (work, *later)])

    def _passed(self, work: QueuedWork[TakenMessage]) -> None:
        with self.lock:
            self._lanes.done(work.token)
        self._finish(work.value[0])
        self._publish_carefully()


def refused(error: BaseException) -> bool:
    """Whether the server will never take the message."""
    if isinstance(error, MessageTooLargeError):
        return True
    return isinstance(error, SyncpointError) and error.code is Code.INVALID_ARGUMENT
