"""Keyed firing: messages with ordering keys that are due, where other chains may take their keys.

Place: beside `firing`, on clusters and with workers; on one node, which has every key itself, `firing` publishes them.
Promise: of a key one request is under way, with its messages in the order in which they are due. Before they are tried
it is persisted that they leave: from then on nobody cancels them, whoever owns the chain next, and they are tried until
they are published. The chain of the key knows them by their scheduled ids for an hour, however often they are tried,
also when its keys have moved in between (`message_ids`). What cannot be published now is tried again in a while, and
holds up nothing but what follows it in its key.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial

from syncpoint.base.kernel import frames
from syncpoint.base.model import varint
from syncpoint.base.model.errors import NotFound, SyncpointError
from syncpoint.base.model.identity import parse_message_id
from syncpoint.base.runtime.tasks import Tasks, complete
from syncpoint.broker.publish.facts.scheduled import Scheduled
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.wire.protobuf.messages import pubsub

log = logging.getLogger(__name__)
AGAIN_S = 1.0
REQUEST_MESSAGES, REQUEST_BYTES = 500, 1 << 20
MESSAGES_MAX, BYTES_MAX = 5_000, 32 << 20  # held in memory; beyond it nothing more is read that is due
ONE_KEY = b"duplicates"  # of all messages without a key where duplicates are dropped
TOPIC_PART = 5  # share of one topic: others continue while its keys cannot be published

PublishByKey = Callable[[int, bytes, bytes], Awaitable[bytes]]
"""(topic, key, PublishRequest): publish messages that were scheduled where the key's messages are taken now; returns
the PublishResponse. Raises `SyncpointError`; they may be published then."""


class _DueOfKey:
    """What is due of one key, in order; each message framed."""

    __slots__ = ("not_before", "under_way", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[Scheduled, bytes]] = deque()
        self.under_way = False
        self.not_before = 0.0


class KeyedFiring:
    """Publish due messages with ordering keys, in order. `fired` counts messages."""

    def __init__(self, publish: PublishForwarder, publish_by_key: PublishByKey) -> None:
        self._publish, self._publish_by_key = publish, publish_by_key
        self._lines: dict[tuple[int, bytes], _DueOfKey] = {}  # by topic and key
        self._places: set[tuple[int, int]] = set()  # of all that are held
        self._nbytes = 0
        self._of_topic: dict[int, tuple[int, int]] = {}  # messages and bytes that are held
        self._tasks = Tasks()
        self.fired = 0

    @property
    def places(self) -> Collection[tuple[int, int]]:
        """Source and offset of each message that is held."""
        return self._places

    @property
    def full(self) -> bool:
        """Whether nothing more should be read."""
        return len(self._places) >= MESSAGES_MAX or self._nbytes >= BYTES_MAX

    def is_full_of(self, topic: int) -> bool:
        """Whether one topic holds its whole share, so that no more of it should be read."""
        messages, nbytes = self._of_topic.get(topic, (0, 0))
        return messages * TOPIC_PART >= MESSAGES_MAX or nbytes * TOPIC_PART >= BYTES_MAX

    def takes(self, one: Scheduled, framed: bytes) -> bool:
        """Hold a message that is due, if it has an ordering key or its topic drops duplicates: one chain knows them."""
        topic = self._publish.catalog.topic_by_incarnation(one.topic)
        key = key_of(framed) or (ONE_KEY if topic is not None and topic.options.duplicate_window_s else b"")
        if key:
            self._lines.setdefault((one.topic, key), _DueOfKey()).waiting.append((one, framed))
            self._places.add((one.source, one.offset))
            self._count(one.topic, 1, len(framed))
        return bool(key)

    def go_on(self) -> None:
        """Publish what may be published now."""
        now = self._publish.clock.monotonic()
        for (topic, key), line in list(self._lines.items()):
            if not line.under_way and line.not_before <= now:
                line.under_way = True
                self._tasks.start(self._run(topic, key, line))

    def close(self) -> None:
        """Publish nothing more from here. What is under way may be published all the same."""
        self._tasks.cancel()
        self._lines.clear()

    async def _run(self, topic: int, key: bytes, line: _DueOfKey) -> None:
        """Publish what is there of a key, request by request."""
        try:
            while messages := self._next_of(line):
                await self._fire(topic, key, messages)
                self._let_go(line, len(messages))
        except SyncpointError as error:
            log.info("messages of a key that are due wait: %s", error)
            line.not_before = self._publish.clock.monotonic() + AGAIN_S
        except Exception:
            log.exception("messages of a key that are due wait")
            line.not_before = self._publish.clock.monotonic() + AGAIN_S
        finally:
            line.under_way = False
            if not line.waiting:
                self._lines.pop((topic, key), None)

    def _next_of(self, line: _DueOfKey) -> list[tuple[Scheduled, bytes]]:
        """What comes next, as far as one request goes. What does not wait any more is let go of, once it is first."""
        while line.waiting and not self._waits(line.waiting[0][0]):
            self._let_go(line, 1)
        found: list[tuple[Scheduled, bytes]] = []
        nbytes = 0
        for one, framed in line.waiting:
            nbytes += len(framed)
            too_much = len(found) >= REQUEST_MESSAGES or nbytes > REQUEST_BYTES
            if (found and too_much) or not self._waits(one):
                break
            found.append((one, framed))
        return found

    def _waits(self, one: Scheduled) -> bool:
        return self._publish.scheduled.find(one.source, one.offset) is one

    def _let_go(self, line: _DueOfKey, count: int) -> None:
        for _ in range(count):
            one, framed = line.waiting.popleft()
            self._places.discard((one.source, one.offset))
            self._count(one.topic, -1, -len(framed))

    def _count(self, topic: int, count: int, nbytes: int) -> None:
        self._nbytes += nbytes
        messages, before = self._of_topic.get(topic, (0, 0))
        self._of_topic[topic] = messages + count, before + nbytes
        if not messages + count:
            del self._of_topic[topic]

    async def _fire(self, topic: int, key: bytes, messages: Sequence[tuple[Scheduled, bytes]]) -> None:
        """Return once they are published, and it is written down."""
        publish, scheduled = self._publish, self._publish.scheduled
        record = publish.catalog.topic_by_incarnation(topic)
        if record is None:
            raise NotFound("", "Its topic is not known here.")
        persisted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        scheduled.leave((one for one, _ in messages), partial(complete, persisted))
        await persisted
        request = b"".join((field_of(1, record.name.encode()), *(field_of(2, framed[4:]) for _, framed in messages)))
        answer = pubsub.PublishResponse.FromString(await self._publish_by_key(topic, key, request))
        places = [parse_message_id(one) for one in answer.message_ids]
        scheduled.left([one for one, _ in messages], places)
        self.fired += len(messages)


def key_of(framed: bytes) -> bytes:
    """The ordering key of one framed message; b"": it has none."""
    _, (key,) = frames.describe(framed)
    return bytes(key)


def field_of(number: int, value: bytes) -> bytes:
    """A field of a protobuf message that has a length."""
    return varint.encode(number << 3 | 2) + varint.encode(len(value)) + value
