"""The bytes of a file: lines of text, or Avro.

Place: pure, under the driver; runs in a thread, since a file may have 32 MiB.
Promise: a message that does not fit the topic's schema is named, and the file is made of the others.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import fastavro

from syncpoint.push.pusher import Lent
from syncpoint.wire.messages import pubsub

METADATA = [
    {"name": "subscription_name", "type": "string"},
    {"name": "message_id", "type": "string"},
    {"name": "publish_time", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "attributes", "type": {"type": "map", "values": "string"}},
]
_DATA = {"name": "data", "type": "bytes"}
_SPACE = "com.google.pubsub"
_BARE = fastavro.parse_schema({"type": "record", "name": "PubsubMessage", "namespace": _SPACE, "fields": [_DATA]})
_WHOLE = fastavro.parse_schema(
    {"type": "record", "name": "PubsubMessageWithMetadata", "namespace": _SPACE, "fields": [*METADATA, _DATA]}
)


class SchemaUnusable(ValueError):
    """No file can be written by a topic's schema."""


@dataclass(frozen=True)
class TopicAvro:
    """The Avro definition that files are written by, and how the messages are encoded. `older`: the definition of a
    revision by its id; None where there is none."""

    definition: str
    binary: bool
    older: Callable[[str], str | None]
    parsed: dict[str, Any] = field(default_factory=dict)  # by definition

    def schema(self, whole: bool) -> Any:
        """What a file is written by; `whole`: with metadata. Raises `SchemaUnusable`."""
        plain = json.loads(self.definition)
        if not whole:
            return fastavro.parse_schema(plain)
        if not isinstance(plain, dict) or plain.get("type") != "record":
            raise SchemaUnusable("with write_metadata the topic's schema must be a record")
        fields = [*METADATA, *plain["fields"]]
        if len({one["name"] for one in fields}) != len(fields):
            raise SchemaUnusable("the topic's schema has a field with the name of one of the metadata")
        return fastavro.parse_schema({**plain, "fields": fields})

    def read(self, message: pubsub.PubsubMessage) -> Any:
        """The value of a message. Raises anything for one that does not fit."""
        definition = self.older(message.attributes.get("googclient_schemarevisionid", "")) or self.definition
        written, wanted = self._parsed(definition), self._parsed(self.definition)
        if self.binary:
            source = io.BytesIO(message.data)
            value = fastavro.schemaless_reader(source, written, wanted)
            if source.read(1):
                raise ValueError("bytes behind the value")
            return value
        (value,) = fastavro.json_reader(io.StringIO(message.data.decode()), written, wanted)
        return value

    def _parsed(self, definition: str) -> Any:
        found = self.parsed.get(definition)
        if found is None:
            found = self.parsed[definition] = fastavro.parse_schema(json.loads(definition))
        return found


def content_of(
    config: pubsub.CloudStorageConfig, subscription: str, lent: Sequence[Lent], topic: TopicAvro | None = None
) -> tuple[bytes, frozenset[str]]:
    """A whole file, and the ids of messages that are not in it because they do not fit; empty where none fits. Raises
    `SchemaUnusable`."""
    if config.WhichOneof("output_format") != "avro_config":
        return b"\n".join(one.message.data for one in lent), frozenset()
    whole = config.avro_config.write_metadata
    out = io.BytesIO()
    if topic is None:
        records = [_record(subscription, one, whole, {"data": one.message.data}) for one in lent]
        fastavro.writer(out, _WHOLE if whole else _BARE, records)
        return out.getvalue(), frozenset()
    schema, records, unfit = topic.schema(whole), [], set()
    for one in lent:
        try:
            value = topic.read(one.message)
            record = _record(subscription, one, whole, value) if whole else value
            fastavro.schemaless_writer(io.BytesIO(), schema, record)
        except Exception:  # fastavro raises many kinds for what does not fit
            unfit.add(one.message.message_id)
        else:
            records.append(record)
    fastavro.writer(out, schema, records)
    return (out.getvalue() if records else b""), frozenset(unfit)


def _record(subscription: str, one: Lent, whole: bool, value: dict[str, Any]) -> dict[str, Any]:
    if not whole:
        return value
    message = one.message
    attributes = dict(message.attributes)
    if message.ordering_key:
        attributes["ordering_key"] = message.ordering_key
    return {
        "subscription_name": subscription,
        "message_id": message.message_id,
        "publish_time": message.publish_time.ToMicroseconds(),
        "attributes": attributes,
        **value,
    }
