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

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from syncpoint.base.model import varint
from syncpoint.base.model.errors import (
    InvalidArgument,
    NotFound,
    SyncpointError,
    not_a,
)
from syncpoint.base.model.limits import MESSAGE_ATTRIBUTES_MAX, PUBLISH_MESSAGES_MAX
from syncpoint.base.model.names import project_of
from syncpoint.base.model.publish_rules import TOO_MANY_ATTRIBUTES, check_messages, check_size
from syncpoint.base.runtime.child_processes import Apart, at_once
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Topic, TopicSchema
from syncpoint.catalog.schemas.errors import Mismatch
from syncpoint.catalog.schemas.limits import (
    BINARY_BYTES_AT_ONCE,
    BUSY_BYTES_AT_ONCE,
    CHECKED_BYTES_MAX,
    DEFINITION_BYTES_AT_ONCE,
    JSON_BYTES_AT_ONCE,
)
from syncpoint.catalog.schemas.stored import definition_value, find_schema, validator_of
from syncpoint.catalog.schemas.validators import Encoding, Validator
from syncpoint.wire.protobuf.messages import pubsub

NAME: Final = "googclient_schemaname"
REVISION: Final = "googclient_schemarevisionid"
ENCODING: Final = "googclient_schemaencoding"
ATTRIBUTES_ADDED: Final = 3
"""To each message. They do not count among the attributes that a message may have."""
OWN_ATTRIBUTES_ADDED: Final = 15
"""With which the service itself states where a message comes from: of a dead letter, see `subscribe.dead_letter`, of
one that was published again, made by a rule or forwarded, and under which id it was scheduled."""
TOO_LARGE_TO_READ: Final = "the data takes too much memory once it is decoded"
PROBLEM_CHARS_MAX: Final = 500  # of a reason; protobuf quotes what it was given
ROOM_BYTES: Final = PUBLISH_MESSAGES_MAX * 1024
"""What marking adds to a request at most."""


class TriedRevision(NamedTuple):
    """A revision that messages may fit: its definition as it is stored, and the attributes of messages that do."""

    definition: bytes
    marks: bytes


class SchemaGate:
    """Checks requests against the schemas of a catalog; large ones `apart`."""

    def __init__(self, catalog: Catalog, apart: Apart = at_once) -> None:
        self._catalog, self.apart = catalog, apart
        self.checked = self.refused = 0  # requests

    def is_large(self, topic: Topic, request: bytes | memoryview) -> bool:
        """Whether checking a request would hold the event loop for long."""
        if topic.schema is None:
            return False
        if self.apart.busy and len(request) > BUSY_BYTES_AT_ONCE:
            return True
        return is_large(len(request), [one.definition for one in self._choices(topic.schema)], topic.schema.encoding)

    def marked(self, topic: Topic, request: bytes | memoryview) -> bytes | memoryview:
        """The request with every message checked and marked; as it came where the topic has no schema. Raises
        `InvalidArgument`, and `NotFound` when the schema is deleted.
        """
        if topic.schema is None:
            return request
        self.checked += 1
        try:
            check_size(request)
            choices = self._choices(topic.schema)
            with self.apart.here(project_of(topic.name)):
                return mark(bytes(request), choices, topic.schema.encoding)
        except SyncpointError:
            self.refused += 1
            raise

    async def marked_apart(self, topic: Topic, request: bytes) -> bytes:
        """Check a request against the topic's schema and mark its messages; another process checks a large request.

        Raises `InvalidArgument`, `NotFound` if the schema was deleted, or `Unavailable`.
        """
        bounds = topic.schema
        if bounds is None:
            return request
        self.checked += 1
        try:
            check_size(request)
            choices = self._choices(bounds)
            project = project_of(topic.name)
            if self.is_large(topic, request):
                return await self.apart(partial(mark, request, choices, bounds.encoding), project)
            with self.apart.here(project):
                return mark(request, choices, bounds.encoding)
        except SyncpointError:
            self.refused += 1
            raise

    def _choices(self, bounds: TopicSchema) -> list[TriedRevision]:
        """The newest first."""
        return [
            TriedRevision(definition, _marks(bounds.name, revision, Encoding(bounds.encoding)))
            for revision, definition in revisions_of(self._catalog, bounds).items()
        ]


def revisions_of(catalog: Catalog, bounds: TopicSchema) -> dict[str, bytes]:
    """The definitions that a topic allows, as they are stored, by their revision; the newest first. Raises `NotFound`
    when the schema is deleted.
    """
    schema = find_schema(catalog, bounds.name)
    if schema is None or schema.uid != bounds.uid:
        raise NotFound(bounds.name, "Schema associated with topic deleted.")
    found = {one.id: definition_value(catalog, schema.name, one.id) for one in schema.within(bounds)}
    if not found:
        raise NotFound(
            schema.name,
            f"The schema has no revision in the topic's range (resource={schema.name}). Change first_revision_id and"
            " last_revision_id in the topic's schema_settings.",
        )
    return found


def is_large(size: int, definitions: Collection[bytes], encoding: int) -> bool:
    """Whether checking that number of bytes, by each of these revisions, would hold the event loop for long."""
    bound = JSON_BYTES_AT_ONCE if encoding == Encoding.JSON else BINARY_BYTES_AT_ONCE
    return size * len(definitions) > bound or any(len(one) > DEFINITION_BYTES_AT_ONCE for one in definitions)


def mark(request: bytes, choices: Sequence[TriedRevision], encoding: int) -> bytes:
    """The request with every message checked and marked. Raises `InvalidArgument`.

    Marked, a request may be larger than others, and its messages may have more attributes and are never empty: what the
    kernel could no longer refuse is refused here, in its words.
    """
    try:
        parsed = pubsub.PublishRequest.FromString(request)
    except DecodeError:
        raise not_a("PublishRequest") from None
    check_messages(parsed.messages)
    tried = [(validator_of(one.definition), one.marks) for one in choices]
    left = CHECKED_BYTES_MAX
    pieces: list[bytes] = []
    for index, message in enumerate(parsed.messages):
        if len(message.attributes) > MESSAGE_ATTRIBUTES_MAX:
            raise InvalidArgument(f"messages[{index}].attributes", TOO_MANY_ATTRIBUTES)
        marks: bytes | None = None
        newest = ""
        for validator, marks_of in tried:
            left -= len(message.data)
            if left < 0:
                raise InvalidArgument(
                    "messages",
                    "too large to be checked against every schema revision that the topic allows. Publish fewer"
                    " messages"
                    " per request.",
                )
            if not (problem := _problem(validator, message.data, encoding)):
                marks = marks_of
                break
            newest = newest or problem
        if marks is None:
            # The first sentence is that of the real service; what is wrong differs from revision to revision.
            error = InvalidArgument(
                "",
                "Invalid data in message: Message failed schema validation."
                f" messages[{index}] does not match the newest schema revision that the topic allows: {newest}.",
            )
            error.field = f"messages[{index}].data"
            raise error
        body = message.SerializeToString() + marks
        pieces += (b"\x12", varint.encode(len(body)), body)
    del parsed.messages[:]
    return b"".join((parsed.SerializeToString(), *pieces))


def check_definition(value: bytes) -> None:
    """Raise `InvalidArgument` for a definition, as it would be stored, that is not legal."""
    validator_of(value)


def check_follows(value: bytes, older: bytes) -> None:
    """Raise `InvalidArgument` for a definition that may not be the revision after another one."""
    validator_of(value).check_follows(validator_of(older))


def check_fits(value: bytes, data: bytes, encoding: int) -> None:
    """Raise `Mismatch` for a message that does not fit a definition."""
    try:
        validator_of(value).check(data, Encoding(encoding))
    except MemoryError:
        raise Mismatch(TOO_LARGE_TO_READ) from None


def _problem(validator: Validator, data: bytes, encoding: int) -> str:
    """Why a message does not match a revision; "" if it does."""
    try:
        validator.check(data, Encoding(encoding))
    except Mismatch as error:
        return str(error)[:PROBLEM_CHARS_MAX].rstrip(".") or "no reason is known"
    except MemoryError:
        return TOO_LARGE_TO_READ
    return ""


def _marks(name: str, revision: str, encoding: Encoding) -> bytes:
    """The attributes as entries of the map, field 2 of a PubsubMessage."""
    entries: list[bytes] = []
    for key, value in ((NAME, name), (REVISION, revision), (ENCODING, encoding.name)):
        entry = pubsub.PubsubMessage.AttributesEntry(key=key, value=value).SerializeToString()
        entries += (b"\x12", varint.encode(len(entry)), entry)
    return b"".join(entries)
