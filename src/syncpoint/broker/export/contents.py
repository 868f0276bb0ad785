"""The bytes of a file: lines of text, or Avro.

Place: pure, under the driver; runs in a thread, since a piece may have many MiB.
Promise: a message that does not fit the topic's schema is named, and the file is made of the others.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import fastavro

from syncpoint.broker.inner.lent import Lent
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.wire.protobuf.messages import pubsub

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
    revision by its id; None where there is none. Raises `ValueError` for one whose fields the file would not have."""

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
            raise SchemaUnusable("write_metadata needs a topic schema that is a record")
        fields = [*METADATA, *plain["fields"]]
        if len({one["name"] for one in fields}) != len(fields):
            raise SchemaUnusable("the topic's schema has a field with the name of a metadata field")
        return fastavro.parse_schema({**plain, "fields": fields})

    def read(self, message: pubsub.PubsubMessage) -> Any:
        """The value of a message. Raises anything for one that does not fit."""
        definition = self.older(message.attributes.get("googclient_schemarevisionid", "")) or self.definition
        written, wanted = self._parsed(definition), self._parsed(self.definition)
        if self.binary:
            source = io.BytesIO(message.data)
            value = fastavro.schemaless_reader(source, written, wanted)
            if source.read(1):
                raise ValueError("extra bytes after the value")
            return value
        line = json.dumps(json.loads(message.data))  # fastavro reads a value from one line, a message may have several
        (value,) = fastavro.json_reader(io.StringIO(line), written, wanted)
        return value

    def _parsed(self, definition: str) -> Any:
        found = self.parsed.get(definition)
        if found is None:
            found = self.parsed[definition] = fastavro.parse_schema(json.loads(definition))
        return found


class Contents:
    """The bytes of one file, piece by piece. `topic`: by whose schema it is written; None: by none."""

    def __init__(self, config: pubsub.CloudStorageConfig, subscription: str, topic: TopicAvro | None = None) -> None:
        self._subscription, self._topic = subscription, topic
        self._avro = config.WhichOneof("output_format") == "avro_config"
        self._whole = config.avro_config.write_metadata
        self._begun = False
        self._out = io.BytesIO()
        self._writer: Any = None
        self._parsed: Any = None

    def piece(self, lent: Sequence[Lent]) -> tuple[bytes, frozenset[CopyId]]:
        """The next bytes, and the copies that are not in them because they do not fit. Raises
        `SchemaUnusable`."""
        if not self._avro:
            data = b"\n".join(one.message.data for one in lent)
            data, self._begun = (b"\n" + data if self._begun and lent else data), self._begun or bool(lent)
            return data, frozenset()
        unfit = set()
        for one in lent:
            try:
                self._write(one)
            except SchemaUnusable:
                raise
            except Exception:  # fastavro raises many kinds for what does not fit
                unfit.add(one.copy)
        if self._writer is not None:
            self._writer.flush()
        data = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return data, frozenset(unfit)

    def _write(self, one: Lent) -> None:
        if self._topic is None:
            record, schema = {"data": one.message.data}, _WHOLE if self._whole else _BARE
        else:
            schema = self._schema(self._topic)
            record = self._topic.read(one.message)
        if self._whole:
            record = {**_metadata(self._subscription, one.message), **record}
        if self._topic is not None:
            fastavro.schemaless_writer(io.BytesIO(), schema, record)  # a record that fails half-way would spoil a block
        if self._writer is None:
            self._writer = fastavro.write.Writer(self._out, schema)
        self._writer.write(record)

    def _schema(self, topic: TopicAvro) -> Any:
        if self._parsed is None:
            self._parsed = topic.schema(self._whole)
        return self._parsed


def _metadata(subscription: str, message: pubsub.PubsubMessage) -> dict[str, Any]:
    attributes = dict(message.attributes)
    if message.ordering_key:
        attributes["ordering_key"] = message.ordering_key
    return {
        "subscription_name": subscription,
        "message_id": message.message_id,
        "publish_time": message.publish_time.ToMicroseconds(),
        "attributes": attributes,
    }
