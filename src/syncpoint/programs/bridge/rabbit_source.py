"""Queues and streams of RabbitMQ as the source of a bridge.

Place: in front of `incoming_bridge`; runs in the thread of `rabbit_link`.
Promises: a message of a queue is acknowledged once it is stored. A stream is read on from the first offset that was not
stored, by a file that is written each second; what was stored since then comes again with the same offset, by which a
topic with a duplicate window knows it. The last message that was stored is asked for, too: a stream that does not have
it was created again, and RabbitMQ would leave out all of its messages before that offset without a word.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pika.channel import Channel
from pika.spec import Basic, BasicProperties

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.runtime.file_content import replace_file
from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.programs.bridge.bridge_file import BridgeFile, IncomingRule
from syncpoint.programs.bridge.rabbit_link import RabbitLink
from syncpoint.programs.bridge.rabbit_shape import STREAM_OFFSET, foreign

if TYPE_CHECKING:
    from syncpoint.programs.bridge.incoming_bridge import IncomingBridge

FIRST_S: Final = 60.0  # until the last message that was stored of a stream has come again

log = logging.getLogger(__name__)


class StreamPositions:
    """For each stream the next offset, in a file."""

    def __init__(self, file: BridgeFile) -> None:
        """Raises `OSError` for a file that cannot be read, `FailedPrecondition` for one that is something else."""
        self._path = file.broker.positions
        self.next: dict[str, int] = {}
        if self._path is None or not self._path.exists():
            self._written: dict[str, int] = {}
            return
        try:
            self.next = {str(name): int(offset) for name, offset in json.loads(self._path.read_text()).items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise FailedPrecondition(
                f"{self._path} does not hold positions of streams: {error}. Without the file, streams begin anew"
            ) from error
        self._written = dict(self.next)

    def write(self) -> None:
        """Keep them. A crash leaves the old file or the new one. Raises `OSError`."""
        found = dict(self.next)
        if self._path is None or found == self._written:
            return
        replace_file(OsFiles(), str(self._path), json.dumps(found).encode())
        self._written = found


class RabbitSource:
    """Messages of the queues and streams of a file."""

    def __init__(self, file: BridgeFile, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises `OSError` for files that cannot be read."""
        self._clock, self._awaited = clock, dict[str, float]()  # by stream: when its first message is late
        self._rules = file.incoming
        self._prefetch = max(1, file.messages // len(file.incoming))
        self._link = RabbitLink(file.broker)
        self._positions = StreamPositions(file)
        self._bridge: IncomingBridge | None = None
        self._channel: Any = None  # pika's has no types
        self._tags: dict[Hashable, int] = {}  # of the present channel, by token
        self._seen: dict[str, int] = {}  # the greatest offset that came, of each stream
        self._connection = 0

    def begin(self, bridge: IncomingBridge) -> None:
        self._bridge = bridge
        self._link.opened, self._link.closed, self._link.on_end = self._opened, self._closed, bridge.end
        self._link.begin()

    def acknowledge(self, tokens: list[Hashable]) -> None:
        channel, tag = self._channel, 0
        for token in tokens:
            tag = max(tag, self._tags.pop(token, 0))
            if isinstance(token, tuple) and isinstance(token[0], str):
                self._positions.next[token[0]] = token[1] + 1
        if channel is not None and tag:
            self._link.call(partial(_ack, channel, tag))

    def drop_connection(self) -> None:
        self._link.drop()

    def tick(self) -> None:
        self._positions.write()
        with self._to.lock:
            for stream, late_at in self._awaited.items():
                if self._to.flow.full:  # this program itself takes nothing
                    self._awaited[stream] = self._clock() + FIRST_S
                elif self._clock() > late_at:
                    self._to.end(self._cut(stream))

    def _cut(self, stream: str) -> FailedPrecondition:
        return FailedPrecondition(
            f"The stream {stream!r} has nothing from offset {self._positions.next[stream] - 1} on, up to which it was"
            " read before: it was created again, or cut. To read it from its beginning, remove its name from the file"
            " of `positions`"
        )

    def close(self) -> None:
        self._link.close()
        self._positions.write()

    @property
    def _to(self) -> IncomingBridge:
        assert self._bridge is not None
        return self._bridge

    def _opened(self, channel: Channel) -> None:
        with self._to.lock:  # an acknowledgement belongs to the old channel, or to the new one
            self._channel = None
            self._tags.clear()
            self._connection += 1
        self._to.connected(_of_stream)
        with self._to.lock:
            self._channel = channel
        log.info("connected")
        channel.add_on_cancel_callback(self._cancelled)
        channel.basic_qos(prefetch_count=self._prefetch)
        for rule in self._rules:
            channel.basic_consume(rule.source, partial(self._came, rule), arguments=self._begin_at(rule))
            if self._positions.next.get(rule.stream, 0):
                with self._to.lock:
                    self._awaited[rule.stream] = self._clock() + FIRST_S

    def _begin_at(self, rule: IncomingRule) -> dict[str, Any]:
        if not rule.stream:
            return {}
        found = self._positions.next.get(rule.stream)
        return {STREAM_OFFSET: ("first" if rule.first else "next") if found is None else max(0, found - 1)}

    def _closed(self) -> None:
        with self._to.lock:
            self._awaited.clear()
        self._to.disconnected()

    def _cancelled(self, _: Any) -> None:
        log.warning("RabbitMQ has cancelled a consumer: its queue is gone, or has moved")
        self._link.drop()

    def _came(
        self, rule: IncomingRule, channel: Channel, method: Basic.Deliver, properties: BasicProperties, body: bytes
    ) -> None:
        if channel is not self._channel or not channel.is_open:
            return
        self._link.works()
        message = foreign(rule.source, method, properties, body)
        token: Hashable = (self._connection, method.delivery_tag)
        again = bool(method.redelivered)
        if rule.stream:
            offset = int(message.values["offset"])
            if rule.stream in self._awaited:
                with self._to.lock:
                    self._awaited.pop(rule.stream, None)
            expected = self._positions.next.get(rule.stream)
            if expected is not None and offset < expected:
                channel.basic_ack(method.delivery_tag)  # stored before
                return
            if expected is not None and rule.stream not in self._seen and offset > expected:
                log.warning("the stream %s no longer has the offsets from %d to %d", rule.stream, expected, offset - 1)
            self._positions.next.setdefault(
                rule.stream, offset
            )  # else `next` would begin after it, if it is not stored
            token, again = (rule.stream, offset), offset <= self._seen.get(rule.stream, -1)
            self._seen[rule.stream] = max(offset, self._seen.get(rule.stream, -1))
        self._tags[token] = method.delivery_tag
        self._to.came(token, b"", message, rule, again=again)


def _of_stream(token: Hashable) -> bool:
    return isinstance(token, tuple) and isinstance(token[0], str)


def _ack(channel: Channel, tag: int) -> None:
    if channel.is_open:
        channel.basic_ack(tag, multiple=True)
