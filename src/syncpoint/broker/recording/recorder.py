"""The recorder: what happens to batches of a recorded topic's messages, collected for its records topic.

Place: one in every process that has publish or subscribe forwarders, which note what they do; `recorder_driver`
publishes what is collected. A topic is recorded where its option `records_topic` names another one.
Promise: what is noted is published in order, in messages that are numbered per writer and topic; one whose outcome is
unknown is published again under its number. What does not fit in memory is not kept, and counted in the next message:
readers know what they do not know. Where no topic is recorded, `topics` is empty, and nobody asks for more than that.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from syncpoint.base.model.errors import InvalidArgument, NotFound, PermissionDenied, SyncpointError, Unavailable
from syncpoint.base.model.identity import OFFSET_END
from syncpoint.base.model.lanes import LANE_SIZE, place_in
from syncpoint.catalog.metadata.catalog import Catalog, CatalogCopy, listening
from syncpoint.catalog.metadata.records import CatalogChange, ChangeOp, Topic
from syncpoint.wire.protobuf.messages import pubsub

log = logging.getLogger(__name__)
Runs = Sequence[tuple[int, int]]
"""Offsets: where each run begins, and how long it is."""

EVERY_OFFSET: Final = [(0, OFFSET_END)]

RECORDS_MAX: Final = 2_000
"""Records of one message,"""
RUNS_MAX: Final = 2_000
"""and runs of one record: what is longer becomes several."""
MESSAGE_RUNS_MAX: Final = 100_000
"""Runs of one message, so that it stays far below the bytes that a publish takes."""
HELD_MAX: Final = 50_000
"""Records of one topic that wait to be published,"""
HELD_RUNS_MAX: Final = 500_000
"""and runs of them: some 60 MB. Later ones are counted, and not kept."""

TOPIC: Final = "topic"
WRITER: Final = "writer"
"""Attributes of each message of a records topic: the recorded topic, and who has written it."""


class NumberedRecords(NamedTuple):
    """A message for the records topic `target` of a recorded topic; `records`: how many it has; `request`: the
    PublishRequest that carries it.
    """

    topic: int
    target: str
    records: int
    request: bytes


class TopicRecords:
    """What is collected of one topic."""

    __slots__ = ("ended", "held", "lost", "name", "number", "runs", "sending", "target")

    def __init__(self, name: str, target: str, number: int) -> None:
        self.name, self.target, self.number = name, target, number
        self.held: list[dict[str, Any]] = []
        self.runs = 0  # of what is held
        self.sending: NumberedRecords | None = None
        self.lost = 0
        self.ended = False


class Recorder:
    """Record deliveries and publish the records.

    `writer`: identifies this run of this process. `on_noted()`: called once when records wait until `due`.
    `on_added(topic)`: recording of a topic begins. `refusal(topic)`: the reason that its records must not be published,
    or "". Counts `records_published` and `records_lost` over all topics.
    """

    def __init__(self, writer: str, time_ns: Callable[[], int]) -> None:
        self.writer = writer
        self.topics: dict[int, TopicRecords] = {}  # by incarnation
        self.records_published = self.records_lost = 0
        self.on_noted: Callable[[], None] = lambda: None
        self.on_added: Callable[[int], None] = lambda topic: None
        self.refusal: Callable[[Topic], str] = lambda topic: ""
        self._time_ns = time_ns
        self._catalog = Catalog()
        self._noted = False
        self._numbers: dict[int, int] = {}  # of messages about topics that are not recorded any more

    def follow(self, copy: CatalogCopy) -> None:
        """Record the topics that say so, now and whenever that changes."""
        self._catalog = copy.catalog
        for topic in self._catalog.topics():
            self._take(topic)
        copy.on_change.append(listening(self._changed, Topic))

    def _changed(self, change: CatalogChange) -> None:
        assert isinstance(change.record, Topic)
        if change.op is ChangeOp.DELETE:
            self.topics.pop(change.record.incarnation, None)
            self._numbers.pop(change.record.incarnation, None)
        else:
            self._take(change.record)

    def _take(self, topic: Topic) -> None:
        target, known = topic.options.records_topic, self.topics.get(topic.incarnation)
        if not target:
            if known is not None:
                # The skipped number shows that what follows, and what was held, is not known.
                self._numbers[topic.incarnation] = self.topics.pop(topic.incarnation).number + 1
        elif known is not None:
            known.target = target
        else:
            number = self._numbers.pop(topic.incarnation, 0)
            self.topics[topic.incarnation] = TopicRecords(topic.name, target, number)
            self.on_added(topic.incarnation)

    # -- what is noted -----------------------------------------------------------------------------------------------

    def note(self, topic: int, kind: str, source: int, runs: Runs, subscription: str = "", **more: int | str) -> None:
        """Something happened to messages of a source just now. Offsets may be places of one lane."""
        found = self.topics.get(topic)
        if found is None or not runs:
            return
        record: dict[str, Any] = {"kind": kind, "at": self._time_ns() // 1000, "source": source}
        if subscription:
            record["subscription"] = subscription
        record |= more
        if any(begin >= LANE_SIZE for begin, _ in runs):
            for lane, part in _by_lane(runs).items():
                self._hold(found, {**record, "lane": lane}, part)
        else:
            self._hold(found, record, runs)
        if not self._noted:
            self._noted = True
            self.on_noted()

    def _hold(self, topic: TopicRecords, record: dict[str, Any], runs: Runs) -> None:
        for at in range(0, len(runs), RUNS_MAX):
            if len(topic.held) >= HELD_MAX or topic.runs >= HELD_RUNS_MAX:
                if not topic.lost:
                    log.warning("%s: delivery records are lost, since %s does not take them", topic.name, topic.target)
                topic.lost += 1
                self.records_lost += 1
            else:
                part = runs[at : at + RUNS_MAX]
                topic.held.append({**record, "runs": part})
                topic.runs += len(part)

    def note_of(self, subscription: int, kind: str, source: int, runs: Callable[[], Runs], **more: int | str) -> None:
        """Note records for a subscription's topic; `runs` is called only if the topic is recorded."""
        record = self._catalog.subscription_by_incarnation(subscription)
        if record is not None and record.topic_incarnation in self.topics:
            self.note(record.topic_incarnation, kind, source, runs(), record.name, **more)

    # -- what is published -------------------------------------------------------------------------------------------

    def due(self) -> Iterable[NumberedRecords]:
        """What is to be published now: one message of each topic at a time. Each is answered by `published`."""
        self._noted = False
        for incarnation, topic in self.topics.items():
            if topic.sending is None and (topic.held or topic.ended):
                topic.number += 1
                count = _fitting(topic.held)
                records, topic.held = topic.held[:count], topic.held[count:]
                topic.runs -= sum(len(one["runs"]) for one in records)
                ended, topic.ended = topic.ended and not topic.held, topic.ended and bool(topic.held)
                request = self._request(topic, records, ended=ended)
                topic.sending = NumberedRecords(incarnation, topic.target, len(records), request)
                yield topic.sending

    def check(self, sent: NumberedRecords) -> None:
        """Raises `PermissionDenied` while a message may not be published, and `Unavailable` where it was made for
        another records topic than the one that its topic names now: see `retargeted`."""
        topic = self._catalog.topic_by_incarnation(sent.topic)
        if topic is None or topic.options.records_topic != sent.target:
            raise Unavailable(f"these records do not go to {sent.target} any more")
        if refusal := self.refusal(topic):
            raise PermissionDenied(refusal)

    def retargeted(self, sent: NumberedRecords) -> NumberedRecords:
        """The message to publish again in place of one that was not published: for where records go now."""
        topic = self.topics.get(sent.topic)
        if topic is None or topic.sending is not sent or topic.target == sent.target:
            return sent
        request = pubsub.PublishRequest.FromString(sent.request)
        request.topic = topic.target
        topic.sending = sent._replace(target=topic.target, request=request.SerializeToString())
        return topic.sending

    def published(self, sent: NumberedRecords, error: SyncpointError | None) -> bool:
        """What became of a message. Whether it has to be published again."""
        topic = self.topics.get(sent.topic)
        if topic is None or topic.sending is not sent:
            return False
        if error is not None and not isinstance(error, NotFound | InvalidArgument):
            return True
        if error is not None:
            # There is no such topic, or it never takes this: readers see by the next number that some are gone.
            log.warning("%s: delivery records have nowhere to go: %s", topic.name, error)
            self.records_lost += sent.records
        else:
            self.records_published += sent.records
        topic.sending = None
        if topic.held or topic.ended:
            self._noted = True
            self.on_noted()
        return False

    def waiting(self) -> int:
        """How many records are not known to be published."""
        topics = self.topics.values()
        return sum(len(one.held) + (0 if one.sending is None else one.sending.records) for one in topics)

    def end(self) -> bool:
        """This process ends in order: the last message of each topic states so. Whether there is any."""
        for topic in self.topics.values():
            topic.ended = bool(topic.number or topic.held)
        return any(topic.ended for topic in self.topics.values())

    def _request(self, topic: TopicRecords, records: list[dict[str, Any]], *, ended: bool) -> bytes:
        content: dict[str, Any] = {
            TOPIC: topic.name, WRITER: self.writer, "number": topic.number, "lost": topic.lost, "records": records
        }  # fmt: skip
        if ended:
            content["ended"] = True
        data = json.dumps(content, separators=(",", ":")).encode()
        message = pubsub.PubsubMessage(data=data, attributes={TOPIC: topic.name, WRITER: self.writer})
        return bytes(pubsub.PublishRequest(topic=topic.target, messages=[message]).SerializeToString())


def _fitting(records: Sequence[dict[str, Any]]) -> int:
    """How many of these make one message, of at least one."""
    runs = 0
    for count, record in enumerate(records[:RECORDS_MAX]):
        runs += len(record["runs"])
        if count and runs > MESSAGE_RUNS_MAX:
            return count
    return min(len(records), RECORDS_MAX)


NOTHING_RECORDED: Final = Recorder("", lambda: 0)
"""Of a forwarder whose process records nothing."""


def _by_lane(runs: Runs) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for begin, length in runs:
        lane, offset = place_in(begin)
        found.setdefault(lane, []).append((offset, length))
    return found


def runs_of(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Offsets in their order as runs."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and offset == sum(found[-1]):
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((offset, 1))
    return found
