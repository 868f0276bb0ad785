"""What both directions of a bridge have: its lock, its flow, its end, and what it shows of itself.

Place: under `incoming_bridge` and `outgoing_bridge`; run by `syncpoint bridge`. Threads of libraries and of our client
come here; `lock` is around what they share.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from syncpoint.base.model.errors import FailedPrecondition, SyncpointError
from syncpoint.client import MessageTooLargeError, PausedOrderingKeyError, Publisher
from syncpoint.programs.bridge.bridge_file import BridgeFile
from syncpoint.programs.bridge.bridge_flow import Arrival, BridgeFlow
from syncpoint.programs.bridge.message_shape import ShapedMessage, UnfitMessage, letter, topic_path
from syncpoint.watch.metrics.bridge_families import FAMILIES
from syncpoint.watch.metrics.family import Samples

STOP_S: Final = 10.0

log = logging.getLogger(__name__)


class BridgeState:
    """Runs from `run` until `stop`, or until it has an error."""

    def __init__(self, file: BridgeFile, project: str, publisher: Publisher, *, in_order: bool) -> None:
        """Raises `InvalidArgument` for a name that no topic can have."""
        self.file, self.project, self.publisher = file, project, publisher
        self.flow = BridgeFlow(file.messages, file.bytes, in_order=in_order)
        self.lock = threading.Condition()
        self.over = threading.Event()
        self.linked = False
        self.connects = self.lost_sessions = 0
        self.dropped = self.unmatched = self.lost = self.letters = 0
        self._stopping = False
        self._error: SyncpointError | None = None
        self._letters_topic = ""
        if file.dead_letters:
            try:
                self._letters_topic = topic_path(project, file.dead_letters)
            except UnfitMessage as error:
                raise FailedPrecondition(f"dead_letters: {error}") from error

    def run(self, watch: Callable[[], None], every_s: float = 1.0) -> None:
        """Run until `stop`; `watch` is called again and again. Raises `SyncpointError`."""
        self.begin()
        try:
            while not self.over.wait(every_s) and not self._stopping:
                self.tick()
                watch()
        finally:
            self.over.set()
            with self.lock:
                self.lock.notify_all()  # who waits for room
            self.finish_run()
        watch()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End `run` soon. A signal may call this, so that no lock is taken."""
        self._stopping = True

    def end(self, error: SyncpointError) -> None:
        """End `run` with an error; the first one counts."""
        self._error = self._error or error
        self.over.set()

    def begin(self) -> None:
        """Start what works in other threads."""
        raise NotImplementedError

    def tick(self) -> None:
        """Called each second."""

    def finish_run(self) -> None:
        """Acknowledge what is confirmed by now, and close what `begin` opened."""
        raise NotImplementedError

    def send(self, publisher: Publisher, one: ShapedMessage, answered: Callable[[BaseException | None], None]) -> None:
        """Publish. `answered` is called once, now or later, with why it failed."""
        try:
            outcome = publisher.publish(one.topic, one.data, one.key, **one.attributes)
        except (PausedOrderingKeyError, MessageTooLargeError, RuntimeError) as error:
            answered(error)
        else:
            outcome.add_done_callback(lambda done: answered(done.exception()))

    def send_letter(self, source: str, reason: str, data: bytes, attributes: dict[str, str],
                    stored: Callable[[], None], failed: Callable[[BaseException], None]) -> None:  # fmt: skip
        """Drop a message that its target cannot take, or store its dead letter, by the file. `stored`: it is dropped,
        now, or its letter is stored, later. Neither is called where the bridge ends.
        """
        text = f"a message of {source} is not taken: {reason}"
        if not self._letters_topic:
            if not self.file.drop_unfit:
                advice = "Correct its sender or the file, or give it `dead_letters` or `unfit: drop`"
                self.end(FailedPrecondition(f"{text}. {advice}"))
                return
            log.warning("dropped: %s", text)
            with self.lock:
                self.dropped += 1
            stored()
            return
        try:
            made = letter(self._letters_topic, source, reason, data, attributes)
        except UnfitMessage as error:
            self.end(FailedPrecondition(f"{text}; nor is its dead letter: {error}"))
            return

        def answered(error: BaseException | None) -> None:
            if error is not None:
                failed(error)
                return
            with self.lock:
                self.letters += 1
            stored()

        log.warning("a dead letter: %s", text)
        self.send(self.publisher, made, answered)

    def done_now(self, arrival: Arrival) -> None:
        """With the lock: the target has it."""
        self.flow.finish(arrival)
        self.lock.notify_all()

    def status(self) -> dict[str, Any]:
        """What is known now, for scripts."""
        with self.lock:
            flow = self.flow
            return {
                "connected": self.linked,
                "connects": self.connects,
                "lostSessions": self.lost_sessions,
                "heldMessages": flow.messages,
                "heldBytes": flow.bytes,
                "storedMessages": flow.stored - self.dropped - self.unmatched - self.letters,
                "failedMessages": flow.failed,
                "lostMessages": self.lost,
                "redeliveredMessages": flow.sent_again,
                "joinedMessages": flow.joined,
                "droppedMessages": self.dropped,
                "unmatchedMessages": self.unmatched,
                "deadLetters": self.letters,
            }

    as_dict = status

    def samples(self) -> Samples:
        """The status as metrics."""
        found = Samples(FAMILIES)
        for family, value in zip(FAMILIES, self.status().values(), strict=True):
            found.put(family.name, int(value))
        return found
