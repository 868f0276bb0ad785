"""Messages on their way into a topic with a schema: each checked, and marked with the revision that it fits.

Place: called with the bytes of a PublishRequest before anything of it is stored or sealed, only where the topic has a
schema; other topics pay one comparison for a request.
Promise: a request in which one message fits no revision is refused as a whole. A message keeps all it was
sent with, unknown fields included; the three attributes follow it, and in protobuf a later entry of a map wins, so
nobody can claim another revision.
Revisions are tried from the newest to the oldest of the topic's range.
Leaves to the kernel: every rule about messages that marking does not touch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from google.protobuf.message import DecodeError

from syncpoint.metadata.catalog import Catalog
from syncpoint.metadata.records import Topic, TopicSchema
from syncpoint.model import varint
from syncpoint.model.errors import InvalidArgument, NotFound
from syncpoint.model.limits import MESSAGE_ATTRIBUTES_MAX, PUBLISH_MESSAGES_MAX, PUBLISH_REQUEST_BYTES_MAX
from syncpoint.schemas.errors import Mismatch
from syncpoint.schemas.stored import Schema, Validators, find_schema
from syncpoint.schemas.validators import Encoding, Validator
from syncpoint.wire.messages import pubsub

NAME: Final = "googclient_schemaname"
REVISION: Final = "googclient_schemarevisionid"
ENCODING: Final = "googclient_schemaencoding"
ATTRIBUTES_ADDED: Final = 3
"""To each message. They do not count among the attributes that a message may have."""
LETTER_ATTRIBUTES_ADDED: Final = 4
"""By which a dead letter says where it comes from, see `subscribe.dead_letter`."""
ROOM_BYTES: Final = PUBLISH_MESSAGES_MAX * 1024
"""What marking adds to a request at most."""


@lru_cache(1024)
def stamp(bounds: TopicSchema | None) -> int:
    """A number for the schema settings of a topic, by which whoever stores messages sees what whoever checked them went
    by. 0: no schema."""
    if bounds is None:
        return 0
    return int.from_bytes(blake2b(repr(tuple(bounds)).encode(), digest_size=8).digest()) or 1


class SchemaGate:
    """Checks requests against the schemas of a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self._validators = catalog, Validators(catalog)

    def marked(self, topic: Topic, request: bytes | memoryview) -> bytes | memoryview:
        """The request with every message checked and marked; as it came where the topic has no schema. Raises
        `InvalidArgument`, and `NotFound` when the schema is deleted.

        Marked, a request may be larger than others, and its messages may have more attributes and are never empty: what
        the kernel could not tell any more is refused here, in its words.
        """
        bounds = topic.schema
        if bounds is None:
            return request
        if len(request) > PUBLISH_REQUEST_BYTES_MAX:
            raise InvalidArgument("request", "request_size is too large")
        schema = find_schema(self._catalog, bounds.name)
        if schema is None or schema.uid != bounds.uid:
            raise NotFound(bounds.name, "Schema associated with topic deleted.")
        try:
            parsed = pubsub.PublishRequest.FromString(bytes(request))
        except DecodeError as bad:
            raise InvalidArgument("", f"the request is not a PublishRequest: {bad}") from None
        if not parsed.messages:
            raise InvalidArgument("messages", "No messages to publish")
        if len(parsed.messages) > PUBLISH_MESSAGES_MAX:
            raise InvalidArgument("messages", "Too many messages to publish")
        return self._marked(bounds, schema, parsed)

    def _marked(self, bounds: TopicSchema, schema: Schema, request: pubsub.PublishRequest) -> bytes:
        encoding = Encoding(bounds.encoding)
        choices = [
            (self._validators.of(schema.name, revision.id), _marks(schema.name, revision.id, encoding))
            for revision in schema.within(bounds)
        ]
        if not choices:
            raise NotFound(schema.name, "No revision of the schema is in the range of the topic.")
        pieces: list[bytes] = []
        for index, message in enumerate(request.messages):
            if not message.data and not message.attributes:
                raise InvalidArgument(f"messages[{index}]", "Some messages are empty")
            if len(message.attributes) > MESSAGE_ATTRIBUTES_MAX:
                raise InvalidArgument(f"messages[{index}].attributes", f"more than {MESSAGE_ATTRIBUTES_MAX} attributes")
            marks = _fitting(choices, message.data, encoding)
            if marks is None:
                # With one text, as the real service has it: what is wrong differs from revision to revision.
                error = InvalidArgument("", "Invalid data in message: Message failed schema validation.")
                error.field = f"messages[{index}].data"
                raise error
            body = message.SerializeToString() + marks
            pieces += (b"\x12", varint.encode(len(body)), body)
        del request.messages[:]
        return b"".join((request.SerializeToString(), *pieces))


def _fitting(choices: Sequence[tuple[Validator, bytes]], data: bytes, encoding: Encoding) -> bytes | None:
    """The marks of the first choice that data fits."""
    for validator, marks in choices:
        try:
            validator.check(data, encoding)
        except Mismatch:
            continue
        return marks
    return None


def _marks(name: str, revision: str, encoding: Encoding) -> bytes:
    """The attributes as entries of the map, field 2 of a PubsubMessage."""
    entries: list[bytes] = []
    for key, value in ((NAME, name), (REVISION, revision), (ENCODING, encoding.name)):
        entry = pubsub.PubsubMessage.AttributesEntry(key=key, value=value).SerializeToString()
        entries += (b"\x12", varint.encode(len(entry)), entry)
    return b"".join(entries)
