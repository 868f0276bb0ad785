"""The rows of the table: what acts on messages on their way, each with what it makes of every message.

A feature says how topic and subscription are configured, what the publisher writes, which copies of a message arrive
in place of those that came to it, and where they arrive.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from syncpoint.base.model.identity import parse_message_id
from syncpoint.base.model.reserved import FORWARDED_FROM
from syncpoint.front.client.client import Client
from syncpoint.front.client.message_path import recorded_path
from syncpoint.testing.rigs.official import refused
from tests.integration.test_pipeline_reading import Reader
from tests.integration.test_pipeline_writing import Writer, frame
from tests.kit.crossings.cell import MESSAGE_BYTES, Cell, Sent, soon
from tests.kit.crossings.outlets import Bucket, Outlet, Pulled, Pushed

DEFAULT_RULE: Final = "$Default"
UNFIT: Final = b'{"n": "five"}'


class Feature:
    """What acts on messages; this one does nothing."""

    name = ""
    times = 1
    """How often each message is published."""

    def topic(self, cell: Cell) -> dict[str, Any]:
        """Fields of the topic."""
        return {}

    def topic_options(self, cell: Cell) -> dict[str, Any]:
        """Options of the topic that Google's API does not have."""
        return {}

    def subscription(self, cell: Cell) -> dict[str, Any]:
        """Fields of the subscription."""
        return {}

    def final(self, cell: Cell) -> dict[str, Any]:
        """Fields of the subscription from which messages arrive: the same one, or one behind a forward."""
        return {}

    def subscription_options(self, cell: Cell) -> dict[str, Any]:
        """Options of the subscription that Google's API does not have."""
        return {}

    def subscribed(self, cell: Cell) -> None:
        """The subscription was created, for the first time or again."""

    def outlets(self, cell: Cell) -> Sequence[Outlet]:
        """Where messages arrive, if it is this feature that says so."""
        return ()

    def message(self, cell: Cell, number: int, message: dict[str, Any], sent: Sent) -> None:
        """Add to a message before it is published."""

    def publishes(self, cell: Cell, message: dict[str, Any]) -> bool:
        """Whether it is this feature that publishes a message, in its own way."""
        return False

    def publish(self, cell: Cell, message: dict[str, Any], sent: Sent) -> None:
        """Publish such a message."""

    def copies(self, number: int, labels: list[str]) -> list[str]:
        """The labels of the copies that arrive, from those that would without this feature."""
        return labels

    def refuses(self, number: int) -> bool:
        """Whether a receiver gives this message back each time."""
        return False

    def judge(self, cell: Cell) -> None:
        """Look at what arrived with this feature's eyes."""


class Filter(Feature):
    name = "filter"

    def subscription(self, cell: Cell) -> dict[str, Any]:
        return {"filter": 'attributes.parity = "even"'}

    def message(self, cell: Cell, number: int, message: dict[str, Any], sent: Sent) -> None:
        message["attributes"]["parity"] = "odd" if number % 2 else "even"

    def copies(self, number: int, labels: list[str]) -> list[str]:
        return [] if number % 2 else labels


class Rules(Feature):
    """Two rules with actions, each of which makes a copy of every message."""

    name = "rules with actions"

    def subscribed(self, cell: Cell) -> None:
        for name in ("a", "b"):
            rule = {"name": name, "sql": "1=1", "action": f"SET by = '{name}'"}
            cell.asked("CreateRule", subscription=cell.subscription, rule=rule)
        cell.asked("DeleteRule", subscription=cell.subscription, name=DEFAULT_RULE)

    def copies(self, number: int, labels: list[str]) -> list[str]:
        return [name for _ in labels for name in ("a", "b")]

    def judge(self, cell: Cell) -> None:
        for one in cell.arrivals():
            if one.label in ("a", "b") and one.attributes:
                assert one.attributes["by"] == one.label, one


class Order(Feature):
    name = "order"

    def subscription(self, cell: Cell) -> dict[str, Any]:
        return {"enable_message_ordering": True}

    def final(self, cell: Cell) -> dict[str, Any]:
        return {"enable_message_ordering": True}

    def message(self, cell: Cell, number: int, message: dict[str, Any], sent: Sent) -> None:
        message["ordering_key"] = self._key(cell, number)

    def _key(self, cell: Cell, number: int) -> str:
        return f"k{number // 2 % cell.variation.keys}"

    def judge(self, cell: Cell) -> None:
        """Each copy first arrives behind the first arrivals of its key's earlier messages, and so after each seek."""
        if not all(one.labelled for one in cell.outlets):
            return
        first: dict[tuple[str, str], int] = {}
        last: dict[tuple[str, str], int] = {}
        back: Counter[tuple[str, str]] = Counter()
        seen: set[tuple[str, int]] = set()
        for one in cell.arrivals():
            if one.label == "letter" or cell.sent[one.number].due or cell.sent[one.number].late:
                continue
            key = (one.label, self._key(cell, one.number))
            back[key] += one.number < last.get(key, -1)
            last[key] = one.number
            if (one.label, one.number) not in seen:
                seen.add((one.label, one.number))
                assert first.get(key, -1) < one.number, f"{one} came after {first[key]} of the same key"
                first[key] = one.number
        backwards = {key: count for key, count in back.items() if count > cell.again_at_most}
        assert cell.struck or not backwards, f"went back more often than it was reset (label, key: times): {backwards}"


class ExactlyOnce(Feature):
    name = "exactly once"

    def final(self, cell: Cell) -> dict[str, Any]:
        return {"enable_exactly_once_delivery": True}

    def judge(self, cell: Cell) -> None:
        """Whose acknowledgement was confirmed came again by seeks alone."""
        for outlet in cell.outlets:
            for copy, count in outlet.confirmed.items() if isinstance(outlet, Pulled) else ():
                assert count <= cell.sent[copy[0]].rounds, f"{copy} was confirmed {count} times"


class DeadLetters(Feature):
    """Every tenth message is given back until it is a dead letter, as long as its receiver is not `cured`."""

    name = "retry and dead letters"

    def __init__(self) -> None:
        self.cured = False

    def final(self, cell: Cell) -> dict[str, Any]:
        if cell.letters is None:
            self.dead = cell.new_topic("dead")
            cell.letters = Pulled(cell.space, cell.new_subscription(self.dead, "dead-letters"))
        backoff = {"minimum_backoff": {"nanos": 10_000_000}, "maximum_backoff": {"nanos": 50_000_000}}
        policy = {"dead_letter_topic": self.dead, "max_delivery_attempts": 5}
        return {"dead_letter_policy": policy, "retry_policy": backoff}

    def refuses(self, number: int) -> bool:
        return number % 10 == 6 and not self.cured


class TimeToLive(Feature):
    """Every fourth message has run out at once; the others live for an hour."""

    name = "time to live"

    def topic_options(self, cell: Cell) -> dict[str, Any]:
        return {"default_ttl": {"seconds": 3600}}

    def message(self, cell: Cell, number: int, message: dict[str, Any], sent: Sent) -> None:
        if number % 4 == 3:
            message["attributes"]["sys.TimeToLive"] = "0:0:0.001"
            sent.optional = True


class Schedules(Feature):
    """Every fifth message is published two seconds later."""

    name = "schedules"

    def message(self, cell: Cell, number: int, message: dict[str, Any], sent: Sent) -> None:
        if number % 5 == 4:
            message["attributes"]["sys.ScheduledEnqueueTimeUtc"], sent.due = soon(2.0)

    def judge(self, cell: Cell) -> None:
        for one in cell.arrivals():
            assert one.when >= cell.sent[one.number].due - 0.05, f"{one} came before {cell.sent[one.number].due}"


class Duplicates(Feature):
    """Each message is published twice with one id."""

    name = "duplicate detection"
    times = 2

    def topic_options(self, cell: Cell) -> dict[str, Any]:
        return {"duplicate_detection_window": {"seconds": 600}}

    def message(self, cell: Cell, number: int, message: dict[str, Any], sent: Sent) -> None:
        message["attributes"]["sys.MessageId"] = f"id-{number}"

    def judge(self, cell: Cell) -> None:
        """Both publishes were answered with one id; what is scheduled is judged when it is due."""
        if cell.has("pipeline write"):
            return
        for sent in cell.sent.values():
            assert sent.due or not sent.labels or len(set(sent.ids)) <= 1, f"{sent.ids} are the ids of one message"


class Forward(Feature):
    """Messages are forwarded to another topic, and arrive at its subscription."""

    name = "forward"

    def subscription_options(self, cell: Cell) -> dict[str, Any]:
        if not cell.last:
            self.target = cell.new_topic("target")
            fields = {"ack_deadline_seconds": 60, "retain_acked_messages": True, **cell.finals()}
            cell.last = cell.new_subscription(self.target, "last", **fields)
        return {"forward_to": self.target}

    def judge(self, cell: Cell) -> None:
        """A copy is known where it is forwarded to by how it was lent: it is stored there once, also if it was sent
        again. Two of one message come from a source that has it twice.
        """
        for outlet in cell.outlets:
            stored: dict[str, set[str]] = {}
            for one in outlet.arrivals():
                if name := one.attributes.get(FORWARDED_FROM):
                    stored.setdefault(name, set()).add(one.message_id)
            twice = {name: ids for name, ids in stored.items() if len(ids) > 1}
            assert not twice, f"forwarded twice (as it was lent: ids): {twice}"


class Push(Feature):
    """Messages are pushed to an endpoint."""

    name = "push"

    def __init__(self) -> None:
        self.endpoint: Pushed | None = None

    def final(self, cell: Cell) -> dict[str, Any]:
        if self.endpoint is None:
            self.endpoint = Pushed(cell.refuses)
        return {"push_config": {"push_endpoint": self.endpoint.url}}

    def outlets(self, cell: Cell) -> Sequence[Outlet]:
        assert self.endpoint is not None
        return [self.endpoint]


def archive(prefix: str) -> dict[str, Any]:
    """Where an export writes: each message of a crossing fills a file, so that none waits for others."""
    return {"bucket": "archive", "filename_prefix": prefix, "max_bytes": MESSAGE_BYTES}


class Export(Feature):
    """Messages are written to files of a bucket."""

    name = "export"

    def final(self, cell: Cell) -> dict[str, Any]:
        return {"cloud_storage_config": archive(f"{cell.space.project}/")}

    def subscribed(self, cell: Cell) -> None:
        def active() -> bool:
            name = cell.last or cell.subscription
            return bool(cell.call("get_subscription", subscription=name).state == 1)

        cell.until(active, "the export is active")

    def outlets(self, cell: Cell) -> Sequence[Outlet]:
        return [Bucket(cell.folder / cell.space.project)]


class PipelineRead(Feature):
    """A pipeline reads the topic as a log, whatever subscriptions do, and what it has read once always again."""

    name = "pipeline read"

    def __init__(self) -> None:
        self.read: dict[tuple[int, int, int], list[int]] = {}

    def judge(self, cell: Cell) -> None:
        reader = Reader(cell.space.endpoint, cell.topic)

        def numbers(source: int, start: int, end: int) -> list[int]:
            rows = cell.insist(lambda: reader.read(source, start, end, "data"))
            return [int(json.loads(row["data"])["n"]) for row in rows]

        try:
            for piece, before in self.read.items():
                assert numbers(*piece) == before, f"{piece} was read again, and differs"
            sources = cell.insist(reader.positions).sources
            pieces = {(one.source, one.start, one.end): numbers(one.source, one.start, one.end) for one in sources}
        finally:
            reader.channel.close()
        self.read |= pieces
        found = Counter(number for piece in pieces.values() for number in piece)
        published = {number for number, sent in cell.sent.items() if sent.ids and sent.stored}
        assert found.keys() >= published, f"not in the log: {sorted(published - found.keys())}"
        assert found.keys() <= cell.sent.keys()
        once = cell.has("duplicate detection") or cell.has("pipeline write")
        twice = {
            number: count
            for number, count in found.items()
            if not cell.sent[number].late and count > (1 if once else max(cell.sent[number].attempts, 1))
        }
        assert not twice, f"too often in the log (number: times): {twice}"


class PipelineWrite(Feature):
    """Messages are published by a pipeline, one epoch each, committed twice as after a lost answer."""

    name = "pipeline write"

    def __init__(self) -> None:
        self.writer: Writer | None = None

    def publishes(self, cell: Cell, message: dict[str, Any]) -> bool:
        return True

    def publish(self, cell: Cell, message: dict[str, Any], sent: Sent) -> None:
        if self.writer is None:
            self.writer, self.epoch = Writer(cell.space.endpoint, f"q-{cell.space.project}"), 0
        writer, columns = (
            self.writer,
            {
                "data": [message["data"]],
                "attributes": [sorted(message["attributes"].items())],
                "ordering_key": [message.get("ordering_key", "")],
            },
        )

        def commit() -> None:
            writer.stage("run", self.epoch, 0, "t", frame(cell.topic, **columns))
            for _ in range(2):
                writer.commit("run", self.epoch, (0, "t"))

        cell.insist(commit)
        self.epoch += 1
        sent.attempts += 1
        sent.ids.append("by a pipeline")


class Records(Feature):
    """What becomes of each message is recorded in another topic."""

    name = "records"

    def __init__(self) -> None:
        self.first, self.name_of = 0, "records"

    def topic_options(self, cell: Cell) -> dict[str, Any]:
        return {"records_topic": cell.new_topic(self.name_of, message_retention_duration={"seconds": 3600})}

    def judge(self, cell: Cell) -> None:
        """The records of three messages that arrived say so, of those from the `first` one on."""
        known = [
            sent
            for number, sent in cell.sent.items()
            if number >= self.first and sent.wanted and not sent.due and sent.ids[0].isdigit()
        ]

        def recorded() -> bool:
            with Client(cell.space.endpoint, timeout_s=20.0, patience_s=60.0) as client:
                for sent in known[:: max(len(known) // 3, 1)]:
                    path = recorded_path(client.call, "here", cell.topic, *parse_message_id(sent.ids[0])[1:])
                    events = Counter(one.event for one in path.events)
                    gone = events["acknowledged"] + events["counts as acknowledged"] + events["filtered"]
                    if not (events["published"] or events["found stored"]) or not gone:
                        return False
            return True

        cell.until(recorded, "the records say that messages were published and acknowledged")


class Transforms(Feature):
    """A function of the topic adds an attribute to each message and drops every eleventh."""

    name = "transforms"

    def topic(self, cell: Cell) -> dict[str, Any]:
        code = "function f(message, metadata) { if (message.attributes.drop) return null;"
        code += " message.attributes.seen = 'yes'; return message; }"
        return {"message_transforms": [{"javascript_udf": {"function_name": "f", "code": code}}]}

    def message(self, cell: Cell, number: int, message: dict[str, Any], sent: Sent) -> None:
        if number % 11 == 10:
            message["attributes"]["drop"], sent.stored = "yes", False

    def copies(self, number: int, labels: list[str]) -> list[str]:
        return [] if number % 11 == 10 else labels

    def judge(self, cell: Cell) -> None:
        for one in cell.arrivals():
            assert not one.attributes or one.attributes.get("seen") == "yes", one


class Schemas(Feature):
    """The topic has a schema; every tenth message does not fit it and is refused."""

    name = "schemas"

    def topic(self, cell: Cell) -> dict[str, Any]:
        fields = [{"name": "n", "type": "int"}]
        definition = json.dumps({"type": "record", "name": "Number", "fields": fields})
        schema = {"type_": "AVRO", "definition": definition}
        request = {"parent": f"projects/{cell.space.project}", "schema_id": "number", "schema": schema}
        made = cell.space.api.create_schema(request)
        marks = {"schemaname": made.name, "schemarevisionid": made.revision_id, "schemaencoding": "JSON"}
        self.marks = {f"googclient_{name}": value for name, value in marks.items()}
        return {"schema_settings": {"schema": made.name, "encoding": "JSON"}}

    def message(self, cell: Cell, number: int, message: dict[str, Any], sent: Sent) -> None:
        if number % 10 == 5:
            message["data"] = UNFIT
        elif cell.has("pipeline write"):
            message["attributes"].update(self.marks)  # rows name the revision that they fit

    def publishes(self, cell: Cell, message: dict[str, Any]) -> bool:
        return bool(message["data"] == UNFIT)

    def publish(self, cell: Cell, message: dict[str, Any], sent: Sent) -> None:
        with refused("INVALID_ARGUMENT"):
            cell.send([(message, sent)])


ROWS: Final[tuple[type[Feature], ...]] = (
    Schemas, Filter, Rules, Order, ExactlyOnce, DeadLetters, TimeToLive, Schedules, Duplicates, Forward, Push, Export,
    PipelineRead, PipelineWrite, Records, Transforms,
)  # fmt: skip
"""Every row, in the order in which features shape a message."""

BY_NAME: Final = {one.name: one for one in ROWS}
