"""The path of one message through a server, read from its topic's delivery records, and through regions.

Place: under `syncpoint trace`; the records are ordinary messages of the topic's records topic, read by peeking.
Promise: what the records do not contain is not made up: their gaps (`recording.record_gaps`) are reported as unknown.
Nothing is consumed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from syncpoint.base.model.errors import FailedPrecondition, NotFound
from syncpoint.base.model.identity import UNIVERSE_MIN, format_message_id, parse_message_id
from syncpoint.base.model.names import short_id
from syncpoint.broker.recording.record_gaps import gaps_of, of_content
from syncpoint.broker.recording.record_kinds import DEAD_LETTERED, DELIVERED, FOUND, PLACED, PUBLISHED, RETURNED
from syncpoint.wire.protobuf.messages import admin, pubsub

PAGE: Final = 1000
MARGIN_S: Final = 600
"""Records are looked for from this long before the publish time on: clocks differ, and one may have been wrong."""


@dataclass(frozen=True, slots=True)
class PathEvent:
    """Something that happened to a message. `at_us`: microseconds since 1970, by the clock of `writer`. Of a dead
    letter `to` and `message_id` say where it is, and under which id.
    """

    at_us: int
    event: str
    subscription: str
    writer: str
    detail: str
    to: str = ""
    message_id: str = ""


@dataclass(slots=True)
class RecordedPath:
    """What is known of a message at one server. `events`: by time; `unknown`: what is not known, in words."""

    server: str
    topic: str
    source: int
    offset: int
    events: list[PathEvent] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


Call = Callable[[str, Any], Any]
"""Calls `Service.Method` with a request. Raises `SyncpointError`."""


def stored_at(call: Call, topic: str, source: int, offset: int) -> Any | None:
    """The PubsubMessage that is stored there, None: none is (any more)."""
    place = format_message_id(UNIVERSE_MIN, source, offset)  # whatever its id: copies have that of the original
    found = call("Admin.PeekTopic", admin.PeekTopicRequest(topic=topic, message_id=place, page_size=1)).messages
    return found[0].message if found and (found[0].source, found[0].offset) == (source, offset) else None


def recorded_path(call: Call, server: str, topic: str, source: int, offset: int) -> RecordedPath:
    """What the records of a topic say of one of its messages. Raises `FailedPrecondition` where it has none, and
    `SyncpointError`.
    """
    target = call("Admin.GetTopicOptions", admin.GetTopicOptionsRequest(topic=topic)).records_topic
    if not target:
        raise FailedPrecondition(
            f"{topic} is not recorded; from now on it is with"
            f" `syncpoint topics update {short_id(topic)} --records-topic RECORDS`, a topic with a message retention."
        )
    stored = stored_at(call, topic, source, offset)
    asked = admin.PeekTopicRequest(topic=target, filter=f"attributes.topic = {json.dumps(topic)}", page_size=PAGE)
    if stored is not None:
        asked.start_time.seconds = max(0, stored.publish_time.seconds - MARGIN_S)
    path = RecordedPath(server, topic, source, offset)
    contents = list(record_messages(call, asked, path.unknown))
    path.events = sorted(events_of(contents, source, offset), key=lambda one: one.at_us)
    gaps = gaps_of(map(of_content, contents), whole=stored is None)
    path.unknown += [f"{gap.sentence[:1].upper()}{gap.sentence[1:]}." for gap in gaps]
    return path


def record_messages(
    call: Call, request: Any, unknown: list[str], universe: int | None = None
) -> Iterator[dict[str, Any]]:
    """Contents of the messages of a records topic, each once; what cannot be shown is added to `unknown`. `universe`:
    only those that this installation wrote, and not copies of what another one did.
    """
    seen: set[tuple[str, int]] = set()
    more = True
    while more:
        answer = call("Admin.PeekTopic", request)
        for one in answer.messages:
            if universe is not None and parse_message_id(one.message.message_id)[0] != universe:
                continue
            content = json.loads(one.message.data)
            key = content["writer"], content["number"]
            if key not in seen:
                seen.add(key)
                yield content
        unknown += [one for one in answer.unknown if one not in unknown]
        request.page_token, more = answer.next_page_token, bool(answer.next_page_token)


def events_of(contents: Iterable[dict[str, Any]], source: int, offset: int) -> Iterator[PathEvent]:
    """What records say of one message."""
    for content in contents:
        for record in content["records"]:
            if record["source"] == source and any(begin <= offset < begin + length for begin, length in record["runs"]):
                yield from _events(record, content["writer"])


def _events(record: dict[str, Any], writer: str) -> Iterator[PathEvent]:
    at_us, kind, subscription = record["at"], record["kind"], record.get("subscription", "")
    lane = f"copy of lane {record['lane']}" if "lane" in record else ""
    if kind == PUBLISHED:
        count = sum(length for _, length in record["runs"])
        yield PathEvent(record["published"], PUBLISHED, "", writer, f"in a batch of {count}")
        took_ms = (at_us - record["published"]) / 1000
        yield PathEvent(at_us, "persisted", "", writer, f"in log {record['log']}, after {took_ms:.1f} ms")
        return
    words = {
        FOUND: ("found stored", f"when log {record.get('log')} was opened, or recording began"),
        PLACED: ("counts as acknowledged", "by the subscription's beginning, a seek, or what was found in the log"),
        RETURNED: ("came back", record.get("why", "")),
        DEAD_LETTERED: (DEAD_LETTERED, f"to {record.get('to')} as {record.get('message_id')}: {record.get('why')}"),
        DELIVERED: (DELIVERED, f"attempt {record['attempt']}" if "attempt" in record else ""),
    }
    event, detail = words.get(kind, (kind, ""))
    generation = f"after seek {record['generation']}" if record.get("generation") else ""
    detail = ", ".join(one for one in (detail, lane, generation) if one)
    yield PathEvent(at_us, event, subscription, writer, detail, record.get("to", ""), record.get("message_id", ""))


def letters_of(call: Call, path: RecordedPath) -> Iterator[RecordedPath]:
    """The paths of the dead letters that became of a message, and of theirs. Raises `SyncpointError`."""
    waiting, seen = [path], set[tuple[str, str]]()
    while waiting:
        for event in waiting.pop(0).events:
            if not event.message_id or (event.to, event.message_id) in seen:
                continue
            seen.add((event.to, event.message_id))
            place = parse_message_id(event.message_id)[1:]
            try:
                letter = recorded_path(call, path.server, event.to, *place)
            except FailedPrecondition as error:  # its topic is not recorded
                letter = RecordedPath(path.server, event.to, *place, unknown=[error.message])
            yield letter
            waiting.append(letter)


def topics_of(call: Call, project: str, message_id: str) -> list[str]:
    """Topics of a project in which a message is stored under this id, which is its own. Raises `NotFound`: in none."""
    _, source, offset = parse_message_id(message_id)
    request = pubsub.ListTopicsRequest(project=f"projects/{project}", page_size=1000)
    found: list[str] = []
    more = True
    while more:
        answer = call("Publisher.ListTopics", request)
        for topic in answer.topics:
            stored = stored_at(call, topic.name, source, offset)
            if stored is not None and stored.message_id == message_id:
                found.append(topic.name)
        request.page_token, more = answer.next_page_token, bool(answer.next_page_token)
    if not found:
        raise NotFound(message_id, f"No topic of the project {project} stores the message {message_id} (any more).")
    return found
