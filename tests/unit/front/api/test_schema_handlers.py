"""SchemaService, and the schema_settings of topics."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from syncpoint.base.model.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    SyncpointError,
)
from syncpoint.catalog.access.policy import Policies
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.catalog.schemas.errors import BadDefinition
from syncpoint.front.api.schema_handlers import SchemaService
from syncpoint.wire.protobuf.messages import iam, pubsub

from .conftest import FakeControlPlane, Service, run

pytestmark = pytest.mark.shows("schemas")

PARENT, NAME, TOPIC = "projects/p", "projects/p/schemas/orders", "projects/p/topics/orders"
BASIC, FULL = 1, 2


def record(*fields: str, default: bool = True) -> str:
    made = [{"name": one, "type": "int", **({"default": 0} if default else {})} for one in fields]
    return json.dumps({"type": "record", "name": "R", "fields": made})


def avro(*fields: str, name: str = "") -> pubsub.Schema:
    return pubsub.Schema(name=name, type=pubsub.Schema.AVRO, definition=record(*fields))


def compiled(text: str) -> bytes:
    """What protoc makes of `message NAME`, without protoc."""
    if not text.startswith("message "):
        raise BadDefinition("line 1: Expected top-level statement")
    files = descriptor_pb2.FileDescriptorSet()
    message = files.file.add(name="schema.proto").message_type.add(name=text.split()[1])
    message.field.add(name="a", number=1, type=9, label=1)
    return files.SerializeToString()


class Schemas:
    """Runs the coroutine methods of a SchemaService."""

    def __init__(self, plane: FakeControlPlane) -> None:
        self.compilations = 0

        def compiler(text: str) -> bytes:
            self.compilations += 1
            return compiled(text)

        async def blocking(work: Any) -> Any:
            return work()

        self.asynchronous = SchemaService(plane, compiler, blocking)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.asynchronous, name)

        def call(request: Any) -> Any:
            work: Coroutine[Any, Any, Any] = method(request)
            return run(work)

        return call

    def create(self, schema: pubsub.Schema | None = None, name: str = "orders") -> pubsub.Schema:
        return self.create_schema(pubsub.CreateSchemaRequest(parent=PARENT, schema_id=name, schema=schema or avro("x")))

    def commit(self, schema: pubsub.Schema) -> pubsub.Schema:
        return self.commit_schema(pubsub.CommitSchemaRequest(name=NAME, schema=schema))

    def get(self, name: str = NAME, view: int = 0) -> pubsub.Schema:
        return self.get_schema(pubsub.GetSchemaRequest(name=name, view=view))

    def revisions(self, **more: Any) -> list[str]:
        found = self.list_schema_revisions(pubsub.ListSchemaRevisionsRequest(name=NAME, **more))
        return [one.name.partition("@")[2] for one in found.schemas]


@pytest.fixture
def schemas(plane: FakeControlPlane) -> Schemas:
    return Schemas(plane)


def test_a_schema_is_created_and_got(schemas: Schemas) -> None:
    made = schemas.create()
    assert (made.name, made.type, made.definition) == (NAME, pubsub.Schema.AVRO, record("x"))
    assert len(made.revision_id) == 8
    assert int(made.revision_id, 16) >= 0
    assert made.HasField("revision_create_time")
    assert schemas.get() == made
    assert schemas.get(view=BASIC) == pubsub.Schema(name=NAME, type=pubsub.Schema.AVRO)
    assert schemas.get(f"{NAME}@{made.revision_id}").definition == made.definition
    with pytest.raises(AlreadyExists):
        schemas.create()
    for name in (f"{PARENT}/schemas/other", f"{NAME}@00000000"):
        with pytest.raises(NotFound, match="Resource not found"):
            schemas.get(name)


def test_the_id_may_be_in_the_name(schemas: Schemas) -> None:
    made = schemas.create_schema(pubsub.CreateSchemaRequest(parent=PARENT, schema=avro("x", name=NAME)))
    assert made.name == NAME
    for parent, name in (("projects/q", NAME), (PARENT, "orders"), (PARENT, ""), (PARENT, f"{NAME}@1")):
        with pytest.raises(InvalidArgument):
            schemas.create_schema(pubsub.CreateSchemaRequest(parent=parent, schema=avro("x", name=name)))


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (pubsub.Schema(definition=record("x")), "Invalid schema type"),
        (pubsub.Schema(type=9, definition=record("x")), "Invalid schema type"),  # type: ignore[arg-type]
        (pubsub.Schema(type=pubsub.Schema.AVRO), "empty"),
        (pubsub.Schema(type=pubsub.Schema.AVRO, definition="{"), "Invalid schema definition: it is not JSON"),
        (pubsub.Schema(type=pubsub.Schema.AVRO, definition='"' + "x" * 307_200 + '"'), "the maximum is 307200"),
        (pubsub.Schema(type=pubsub.Schema.PROTOCOL_BUFFER, definition="text"), "Expected top-level statement"),
        (
            pubsub.Schema(
                type=pubsub.Schema.AVRO,
                compiled_proto_schema=pubsub.CompiledProtoSchema(root_message="A", compiled_bytes=b"x"),
            ),
            "PROTOCOL_BUFFER",
        ),
    ],
)
def test_a_definition_that_is_refused(schemas: Schemas, schema: pubsub.Schema, says: str) -> None:
    for call in (
        lambda: schemas.create(schema),
        lambda: schemas.validate_schema(pubsub.ValidateSchemaRequest(parent=PARENT, schema=schema)),
    ):
        with pytest.raises(InvalidArgument, match=says):
            call()


def test_a_definition_of_the_largest_size(schemas: Schemas) -> None:
    text = record("x")
    schemas.create(pubsub.Schema(type=pubsub.Schema.AVRO, definition=text + " " * (300 * 1024 - len(text))))


def test_protocol_buffers_are_compiled_once_and_kept_compiled(schemas: Schemas) -> None:
    given = pubsub.Schema(type=pubsub.Schema.PROTOCOL_BUFFER, definition="message A")
    made = schemas.create(given)
    assert made.definition == "message A"
    assert not made.HasField("compiled_proto_schema")
    for encoding, message in ((1, b'{"a": "x"}'), (2, b"\x0a\1x")):
        schemas.validate_message(
            pubsub.ValidateMessageRequest(parent=PARENT, name=NAME, message=message, encoding=encoding)
        )
        schemas.validate_message(
            pubsub.ValidateMessageRequest(parent=PARENT, schema=given, message=message, encoding=encoding)
        )
    assert schemas.compilations == 1


def test_a_compiled_definition_is_given_back_as_it_came(schemas: Schemas) -> None:
    given = pubsub.Schema(
        type=pubsub.Schema.PROTOCOL_BUFFER,
        compiled_proto_schema=pubsub.CompiledProtoSchema(root_message="A", compiled_bytes=compiled("message A")),
    )
    assert schemas.create(given).compiled_proto_schema == given.compiled_proto_schema
    assert schemas.compilations == 0


def test_a_commit_adds_a_revision_that_goes_with_the_one_before(schemas: Schemas) -> None:
    first = schemas.create()
    second = schemas.commit(avro("x", "y"))
    assert second.revision_id != first.revision_id
    assert schemas.get() == second
    assert schemas.get(f"{NAME}@{first.revision_id}").definition == record("x")
    assert schemas.revisions() == [second.revision_id, first.revision_id]
    strict = pubsub.Schema(type=pubsub.Schema.AVRO, definition=record("z", default=False))
    with pytest.raises(InvalidArgument, match="not compatible with the previous revision: z: the field has no default"):
        schemas.commit(strict)
    with pytest.raises(InvalidArgument, match="the type of a schema cannot be changed"):
        schemas.commit(pubsub.Schema(type=pubsub.Schema.PROTOCOL_BUFFER, definition="message A"))
    with pytest.raises(NotFound):
        schemas.commit_schema(pubsub.CommitSchemaRequest(name=f"{PARENT}/schemas/other", schema=avro("x")))


def test_sites_that_got_the_same_definitions_have_the_same_revisions() -> None:
    def revisions(*, between: bool) -> list[str]:
        schemas = Schemas(FakeControlPlane())
        made = [schemas.create(), schemas.commit(avro("x", "y"))]
        made.append(schemas.rollback_schema(pubsub.RollbackSchemaRequest(name=NAME, revision_id=made[0].revision_id)))
        if between:
            schemas.delete_schema(pubsub.DeleteSchemaRequest(name=NAME))
            assert schemas.create(name="others").revision_id != made[0].revision_id
            assert schemas.create().revision_id == made[0].revision_id
        return [one.revision_id for one in made]

    assert revisions(between=False) == revisions(between=True)
    assert len(set(revisions(between=False))) == 3


def test_a_rollback_adds_a_revision_with_an_old_definition(schemas: Schemas) -> None:
    first = schemas.create()
    schemas.commit(avro("x", "y"))
    third = schemas.rollback_schema(pubsub.RollbackSchemaRequest(name=NAME, revision_id=first.revision_id))
    assert third.definition == first.definition
    assert schemas.revisions()[0] == third.revision_id
    assert len(schemas.revisions()) == 3
    for revision, error in (("", InvalidArgument), ("00000000", NotFound)):
        with pytest.raises(error):
            schemas.rollback_schema(pubsub.RollbackSchemaRequest(name=NAME, revision_id=revision))


def test_a_schema_has_twenty_revisions(schemas: Schemas) -> None:
    first = schemas.create()
    for _ in range(19):
        schemas.commit(avro("x"))
    with pytest.raises(ResourceExhausted):
        schemas.commit(avro("x"))
    with pytest.raises(ResourceExhausted):
        schemas.rollback_schema(pubsub.RollbackSchemaRequest(name=NAME, revision_id=first.revision_id))
    schemas.delete_schema_revision(pubsub.DeleteSchemaRevisionRequest(name=f"{NAME}@{first.revision_id}"))
    schemas.commit(avro("x"))


def test_revisions_are_deleted_up_to_the_last(schemas: Schemas) -> None:
    first, second = schemas.create(), schemas.commit(avro("x", "y"))
    with pytest.raises(InvalidArgument):
        schemas.delete_schema_revision(pubsub.DeleteSchemaRevisionRequest(name=NAME))
    left = schemas.delete_schema_revision(pubsub.DeleteSchemaRevisionRequest(name=f"{NAME}@{second.revision_id}"))
    assert left == first
    with pytest.raises(NotFound):
        schemas.get(f"{NAME}@{second.revision_id}")
    with pytest.raises(FailedPrecondition):
        schemas.delete_schema_revision(pubsub.DeleteSchemaRevisionRequest(name=f"{NAME}@{first.revision_id}"))


def test_a_deleted_schema_leaves_nothing(plane: FakeControlPlane, schemas: Schemas) -> None:
    schemas.create()
    schemas.commit(avro("x", "y"))
    setting, _ = Policies(plane.catalog).changed(
        NAME, iam.Policy(bindings=[iam.Binding(role="roles/pubsub.viewer", members=["user:a@b.c"])])
    )
    run(plane.commit([CatalogChange.put(setting)]))
    schemas.delete_schema(pubsub.DeleteSchemaRequest(name=NAME))
    assert plane.catalog.settings_named("") == []
    for call in (schemas.get, lambda: schemas.delete_schema(pubsub.DeleteSchemaRequest(name=NAME))):
        with pytest.raises(NotFound):
            call()


def test_lists_come_in_pages(schemas: Schemas) -> None:
    names = [f"schema-{index}" for index in range(5)]
    for name in reversed(names):
        schemas.create(name=name)
    schemas.create_schema(pubsub.CreateSchemaRequest(parent="projects/q", schema_id="other", schema=avro("x")))
    found: list[pubsub.Schema] = []
    token = ""
    while True:
        page = schemas.list_schemas(pubsub.ListSchemasRequest(parent=PARENT, page_size=2, page_token=token))
        assert len(page.schemas) <= 2
        found += page.schemas
        token = page.next_page_token
        if not token:
            break
    assert found == [pubsub.Schema(name=f"{PARENT}/schemas/{name}", type=pubsub.Schema.AVRO) for name in names]
    (full, *_) = schemas.list_schemas(pubsub.ListSchemasRequest(parent=PARENT, view=FULL)).schemas
    assert full.definition
    assert full.revision_id
    with pytest.raises(InvalidArgument):
        schemas.list_schemas(pubsub.ListSchemasRequest(parent=PARENT, page_token="x"))


def test_revisions_come_in_pages(schemas: Schemas) -> None:
    made = [schemas.create().revision_id, *(schemas.commit(avro("x")).revision_id for _ in range(4))]
    first = schemas.list_schema_revisions(pubsub.ListSchemaRevisionsRequest(name=NAME, page_size=3))
    assert not any(one.definition for one in first.schemas)
    rest = schemas.revisions(page_size=3, page_token=first.next_page_token, view=FULL)
    assert [one.name.partition("@")[2] for one in first.schemas] + rest == made[::-1]


def test_messages_are_tried(schemas: Schemas) -> None:
    revision = schemas.create().revision_id
    schemas.commit(avro("x", "y"))

    def attempt(message: bytes, encoding: int = 1, **spec: Any) -> None:
        schemas.validate_message(
            pubsub.ValidateMessageRequest(parent=PARENT, message=message, encoding=encoding, **spec)
        )

    attempt(b'{"x": 1, "y": 1}', name=NAME)
    attempt(b'{"x": 1}', name=f"{NAME}@{revision}")
    attempt(b"\2", 2, schema=avro("x"))
    with pytest.raises(InvalidArgument, match="Message failed schema validation"):
        attempt(b'{"x": 1}', name=NAME)
    with pytest.raises(InvalidArgument, match=r"Invalid schema encoding provided\."):
        attempt(b'{"x": 1}', 0, name=NAME)
    with pytest.raises(InvalidArgument, match="schema"):
        attempt(b"")
    with pytest.raises(NotFound):
        attempt(b"", name=f"{PARENT}/schemas/other")


# -- topics ------------------------------------------------------------------------------------------------------------


def settings(**more: Any) -> pubsub.SchemaSettings:
    return pubsub.SchemaSettings(**{"schema": NAME, "encoding": 1, **more})


def updated(service: Service, given: pubsub.SchemaSettings, *paths: str) -> pubsub.Topic:
    request = pubsub.UpdateTopicRequest(topic=pubsub.Topic(name=TOPIC, schema_settings=given))
    request.update_mask.paths.extend(paths)
    return service.update_topic(request)


def test_a_topic_is_bound_to_the_very_schema(plane: FakeControlPlane, schemas: Schemas, service: Service) -> None:
    first = schemas.create()
    given = settings(first_revision_id=first.revision_id)
    assert service.create_topic(pubsub.Topic(name=TOPIC, schema_settings=given)).schema_settings == given
    bound = plane.catalog.topic(TOPIC)
    assert bound is not None
    assert bound.schema is not None
    assert (bound.schema.name, bound.schema.encoding, bound.schema.first, bound.schema.last) == (NAME, 1, 1, 0)
    schemas.delete_schema(pubsub.DeleteSchemaRequest(name=NAME))
    schemas.create()
    shown = service.get_topic(pubsub.GetTopicRequest(topic=TOPIC))
    assert shown.schema_settings.schema == "_deleted-schema_"
    (listed,) = service.list_topics(pubsub.ListTopicsRequest(project=PARENT)).topics
    assert listed == shown
    # Other fields can be changed still, and the schema be named anew.
    service.update_topic(pubsub.UpdateTopicRequest(topic=pubsub.Topic(name=TOPIC), update_mask={"paths": ["labels"]}))
    assert updated(service, settings(), "schema_settings").schema_settings == settings()


def test_a_range_is_changed_bound_by_bound(plane: FakeControlPlane, schemas: Schemas, service: Service) -> None:
    ids = [schemas.create().revision_id, *(schemas.commit(avro("x")).revision_id for _ in range(2))]
    service.create_topic(pubsub.Topic(name=TOPIC, schema_settings=settings(first_revision_id=ids[1])))
    schemas.delete_schema_revision(pubsub.DeleteSchemaRevisionRequest(name=f"{NAME}@{ids[1]}"))
    shown = updated(service, settings(last_revision_id=ids[2]), "schema_settings.last_revision_id")
    assert shown.schema_settings == settings(first_revision_id=ids[1], last_revision_id=ids[2])
    bound = plane.catalog.topic(TOPIC)
    assert bound is not None
    assert bound.schema is not None
    assert (bound.schema.first, bound.schema.last) == (2, 3)
    with pytest.raises(InvalidArgument, match="newer"):
        updated(service, settings(last_revision_id=ids[0]), "schema_settings.last_revision_id")


def test_a_topic_can_be_without_a_schema_again(plane: FakeControlPlane, schemas: Schemas, service: Service) -> None:
    schemas.create()
    service.create_topic(pubsub.Topic(name=TOPIC, schema_settings=settings()))
    request = pubsub.UpdateTopicRequest(topic=pubsub.Topic(name=TOPIC))
    request.update_mask.paths.append("schema_settings")
    assert not service.update_topic(request).HasField("schema_settings")
    found = plane.catalog.topic(TOPIC)
    assert found is not None
    assert found.schema is None


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (settings(schema=f"{PARENT}/schemas/other"), NotFound),
        (settings(schema="orders"), InvalidArgument),
        (settings(encoding=0), InvalidArgument),
        (settings(first_revision_id="00000000"), NotFound),
        (settings(schema=""), InvalidArgument),
    ],
)
def test_settings_that_are_refused(
    schemas: Schemas, service: Service, given: pubsub.SchemaSettings, error: type[SyncpointError]
) -> None:
    schemas.create()
    with pytest.raises(error):
        service.create_topic(pubsub.Topic(name=TOPIC, schema_settings=given))
