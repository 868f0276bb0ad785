"""The schema_settings of topics: bound to the very schema they name when they are set.

Place: pure functions under `admin_handlers`, over the catalog.
Promise: a topic's schema is the one that had the name then: when it is deleted, the topic shows `_deleted-schema_` and
takes no messages, whatever is created under the name later. Bounds of a range are kept as the numbers of the revisions,
so deleting a revision moves no bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from syncpoint.base.model.errors import InvalidArgument, NotFound
from syncpoint.base.model.names import parse_schema
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Topic, TopicSchema
from syncpoint.catalog.schemas.stored import Schema, find_schema
from syncpoint.catalog.schemas.validators import encoding_of
from syncpoint.wire.protobuf.messages import pubsub

DELETED_SCHEMA: Final = "_deleted-schema_"
_FIELD: Final = "schema_settings"


def bound(catalog: Catalog, record: Topic, known: Topic | None = None, paths: Iterable[str] = ()) -> Topic:
    """The record with the schema that its configuration names. Raises `InvalidArgument` and `NotFound`.

    `known`: the topic as it is until now, of which an update with these `paths` changes something; what the update does
    not name is not looked up again.
    """
    if known is not None and not any(path.partition(".")[0] == _FIELD for path in paths):
        return replace(record, schema=known.schema)
    message = pubsub.Topic.FromString(record.config)
    if not message.HasField(_FIELD) or not message.schema_settings.ByteSize():
        return replace(record, schema=None)
    settings = message.schema_settings
    schema = find_schema(catalog, parse_schema(settings.schema))
    if schema is None:
        raise NotFound(settings.schema)
    named = known is None or not {_FIELD, f"{_FIELD}.schema"}.isdisjoint(paths)
    if known is not None and known.schema is not None and known.schema.uid != schema.uid and not named:
        raise NotFound(DELETED_SCHEMA)  # another one has its name now, which the update does not ask for
    encoding = encoding_of(settings.encoding)
    before, bounds = pubsub.SchemaSettings(), None
    if known is not None and known.schema is not None and known.schema.uid == schema.uid:
        before, bounds = pubsub.Topic.FromString(known.config).schema_settings, known.schema
    same_first = bounds is not None and before.first_revision_id == settings.first_revision_id
    same_last = bounds is not None and before.last_revision_id == settings.last_revision_id
    # A bound that stays may be of a revision that was deleted in the meantime.
    first = bounds.first if bounds is not None and same_first else _number(schema, settings.first_revision_id)
    last = bounds.last if bounds is not None and same_last else _number(schema, settings.last_revision_id)
    if first and last and first > last:
        raise InvalidArgument(_FIELD, "first_revision_id must not be newer than last_revision_id.")
    return replace(record, schema=TopicSchema(schema.name, schema.uid, int(encoding), first, last))


def shown(catalog: Catalog, record: Topic, message: pubsub.Topic) -> pubsub.Topic:
    """The message of a topic, with the name of a schema that is deleted replaced."""
    if record.schema is not None and _of(catalog, record.schema) is None:
        message.schema_settings.schema = DELETED_SCHEMA
    return message


def _of(catalog: Catalog, bounds: TopicSchema) -> Schema | None:
    schema = find_schema(catalog, bounds.name)
    return schema if schema is not None and schema.uid == bounds.uid else None


def _number(schema: Schema, identifier: str) -> int:
    if not identifier:
        return 0
    revision = schema.revision(identifier)
    if revision is None:
        raise NotFound(f"{schema.name}@{identifier}")
    return revision.number
