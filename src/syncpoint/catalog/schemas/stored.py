"""Schemas and their revisions as they stand in the catalog.

Place: settings of the catalog, changed by `api.schema_handlers`, read by `publishing` for every request to a topic with
a schema. A schema is one setting, each of its revisions another: 20 definitions of the largest size would be too much
for one value of a metadata store.
Promise: revisions are numbered in the order in which they came, and numbers are never used twice, so a range stays what
it was when one of its ends is deleted. A schema that is created under the name of a deleted one has another `uid`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Setting, TopicSchema
from syncpoint.catalog.schemas.validators import Validator
from syncpoint.wire.protobuf.messages import catalog as _stored
from syncpoint.wire.protobuf.messages import pubsub

PREFIX: Final = "schema:"
_REVISIONS: Final = "schema-revision:"
_VALIDATORS_MAX: Final = 200


class Revision(NamedTuple):
    """`id`: 8 hexadecimal digits, as users see it."""

    id: str
    number: int
    created_ns: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema without its definitions. `revisions`: the newest last, at least one; `last_number`: of the newest there
    has been."""

    name: str
    uid: int
    type: int
    revisions: tuple[Revision, ...]
    last_number: int

    @property
    def newest(self) -> Revision:
        return self.revisions[-1]

    def revision(self, identifier: str) -> Revision | None:
        """By its id."""
        return next((one for one in self.revisions if one.id == identifier), None)

    def within(self, bounds: TopicSchema) -> list[Revision]:
        """The revisions that a topic's messages may fit, the newest first."""
        last = bounds.last or self.last_number
        return [one for one in reversed(self.revisions) if bounds.first <= one.number <= last]

    def with_revision(self, identifier: str, now_ns: int) -> Schema:
        """With one more revision, the newest."""
        number = self.last_number + 1
        return replace(self, revisions=(*self.revisions, Revision(identifier, number, now_ns)), last_number=number)

    def without(self, identifier: str) -> Schema:
        """With one revision less."""
        return replace(self, revisions=tuple(one for one in self.revisions if one.id != identifier))

    def setting(self) -> Setting:
        """As it is stored."""
        made = _stored.Schema(uid=self.uid, type=self.type, last_number=self.last_number)
        for one in self.revisions:
            made.revisions.add(id=one.id, number=one.number, created_ns=one.created_ns)
        return Setting(PREFIX + self.name, made.SerializeToString())


def find_schema(catalog: Catalog, name: str) -> Schema | None:
    """The schema that has this full name now."""
    value = catalog.setting(PREFIX + name)
    return None if value is None else _read(name, value)


def schema_of_setting(setting: Setting) -> Schema | None:
    """The schema that is stored so; None when it is a setting of something else."""
    if not setting.name.startswith(PREFIX):
        return None
    return _read(setting.name.removeprefix(PREFIX), setting.value)


def schemas_in(catalog: Catalog, project: str) -> list[str]:
    """The names of all schemas of projects/P, in order."""
    return [found.removeprefix(PREFIX) for found in catalog.settings_named(f"{PREFIX}{project}/schemas/")]


def definition_setting(name: str, revision: str, schema: pubsub.Schema, compiled: bytes) -> Setting:
    """A definition as it is stored. `compiled`: the FileDescriptorSet of one that had to be compiled."""
    kept = pubsub.Schema()
    kept.CopyFrom(schema)
    for field in ("name", "revision_id", "revision_create_time"):
        kept.ClearField(field)
    value = _stored.SchemaDefinition(schema=kept.SerializeToString(), compiled=compiled)
    return Setting(_definition_name(name, revision), value.SerializeToString())


def definition(catalog: Catalog, name: str, revision: str) -> tuple[pubsub.Schema, bytes]:
    """The Schema of a revision that is there, without name, revision id and time, and what it was compiled to."""
    return definition_of(definition_value(catalog, name, revision))


def definition_of(value: bytes) -> tuple[pubsub.Schema, bytes]:
    """The Schema and its compiled form in a value of `definition_value`."""
    found = _stored.SchemaDefinition.FromString(value)
    return pubsub.Schema.FromString(found.schema), found.compiled


def deletion(schema: Schema) -> list[CatalogChange]:
    """What removes a schema with all its revisions."""
    settings = [schema.setting(), *(Setting(_definition_name(schema.name, one.id)) for one in schema.revisions)]
    return [CatalogChange.delete(setting) for setting in settings]


def revision_deletion(schema: Schema, identifier: str) -> list[CatalogChange]:
    """What removes one revision of several."""
    return [
        CatalogChange.put(schema.without(identifier).setting()),
        CatalogChange.delete(Setting(_definition_name(schema.name, identifier))),
    ]


@lru_cache(_VALIDATORS_MAX)
def validator_of(value: bytes) -> Validator:
    """Return the validator of a stored definition, cached by its bytes."""
    found = _stored.SchemaDefinition.FromString(value)
    return Validator(pubsub.Schema.FromString(found.schema), found.compiled)


def definition_value(catalog: Catalog, name: str, revision: str) -> bytes:
    """A revision's definition as it is stored."""
    return catalog.setting(_definition_name(name, revision)) or b""


def _definition_name(name: str, revision: str) -> str:
    return f"{_REVISIONS}{name}@{revision}"


def _read(name: str, value: bytes) -> Schema:
    found = _stored.Schema.FromString(value)
    revisions = tuple(Revision(one.id, one.number, one.created_ns) for one in found.revisions)
    return Schema(name, found.uid, found.type, revisions, found.last_number)
