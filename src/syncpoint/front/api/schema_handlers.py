"""google.pubsub.v1.SchemaService.

Place: beside the other administrative methods, over the catalog, in which schemas and their revisions are settings.
Promise: between the check and the change nothing is awaited; a change that loses against another process is checked
anew. A definition of Protocol Buffers is compiled beside the event loop, a few at a time; what is large is checked
`apart`.
Leaves to `syncpoint.catalog.schemas`: what is a legal definition, what follows another, and what fits it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Final

from google.protobuf.message import Message

from syncpoint.base.model.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from syncpoint.base.model.names import parse_project, parse_schema, project_of, resource_name
from syncpoint.base.runtime.child_processes import Apart, at_once, worked
from syncpoint.base.runtime.project_turns import ProjectTurns
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.catalog.schemas import stored
from syncpoint.catalog.schemas.compiler import compile_proto
from syncpoint.catalog.schemas.errors import BadDefinition, Mismatch
from syncpoint.catalog.schemas.limits import JSON_BYTES_AT_ONCE, REVISIONS_MAX, SCHEMAS_PER_PROJECT_MAX
from syncpoint.catalog.schemas.publishing import check_definition, check_fits, check_follows
from syncpoint.catalog.schemas.stored import Revision, Schema, find_schema
from syncpoint.catalog.schemas.validators import (
    check_shape,
    encoding_of,
    invalid_definition,
    needs_compiler,
)
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api import pages
from syncpoint.front.api.catalog_retries import checked_again
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub, well_known
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods

_COMPILING_MAX: Final = 2
_MESSAGE_BYTES_MAX: Final = 10_000_000
_COMPILED_KNOWN_MAX: Final = 32

Blocking = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]


class SchemaService:
    """The methods on messages; `methods()` serves them on bytes. `blocking` runs what takes a while beside the loop."""

    def __init__(
        self,
        control: ControlPlane,
        compiler: Callable[[str], bytes] = compile_proto,
        blocking: Blocking = asyncio.to_thread,
        apart: Apart = at_once,
    ) -> None:
        self._control, self._catalog = control, control.catalog
        self._compiler, self._blocking, self._apart = compiler, blocking, apart
        self._compiling = ProjectTurns(_COMPILING_MAX)
        self._compiled: dict[str, bytes] = {}  # newest last: a request that another process was faster than comes again

    # -- schemas -----------------------------------------------------------------------------------------------------

    async def create_schema(self, request: pubsub.CreateSchemaRequest) -> pubsub.Schema:
        """CreateSchema. The id is in the request, or the last part of the schema's name."""
        project = parse_project(request.parent)
        name = request.schema.name
        if request.schema_id or not name:
            name = resource_name(project, "schemas", request.schema_id)
        if project_of(parse_schema(name)) != project:
            raise InvalidArgument("schema.name", f"must be in {project}")
        compiled = await self._checked(project, request.schema)
        if find_schema(self._catalog, name) is not None:
            raise AlreadyExists(name)
        if len(stored.schemas_in(self._catalog, project)) >= SCHEMAS_PER_PROJECT_MAX:
            raise ResourceExhausted(
                f"{project} already has {SCHEMAS_PER_PROJECT_MAX} schemas, the maximum. Delete one first."
            )
        uid = int.from_bytes(self._control.random.token(8)) or 1
        made = Schema(name, uid, request.schema.type, (), 0)
        return await self._add(made, request.schema, compiled)

    async def get_schema(self, request: pubsub.GetSchemaRequest) -> pubsub.Schema:
        """GetSchema: of the newest revision, or of the one that `name@revision` names. With no view: all fields."""
        schema, revision = self._named(request.name)
        return self._message(schema, revision or schema.newest, request.view or _FULL, request.name)

    async def list_schemas(self, request: pubsub.ListSchemasRequest) -> pubsub.ListSchemasResponse:
        """ListSchemas: the newest revision of each. With no view: names and types."""
        listing = f"schemas of {parse_project(request.parent)}"
        page = pages.asked(request.page_size, request.page_token, listing)
        names = stored.schemas_in(self._catalog, request.parent)
        rest = names if page.after is None else names[bisect_right(names, page.after) :]
        found = pages.gathered((self._listed(self._schema(one), request.view) for one in rest), page, _bytes_of)
        shown, token = pages.cut(found, page, listing, lambda one: one.name, _bytes_of)
        return pubsub.ListSchemasResponse(schemas=shown, next_page_token=token)

    async def list_schema_revisions(
        self, request: pubsub.ListSchemaRevisionsRequest
    ) -> pubsub.ListSchemaRevisionsResponse:
        """ListSchemaRevisions, the newest first. With no view: types, and names, which hold the revisions."""
        schema = self._schema(parse_schema(request.name))
        listing = f"revisions of {schema.name}"
        page = pages.asked(request.page_size, request.page_token, listing)
        below = int(page.after) if page.after is not None else schema.last_number + 1
        rest = (one for one in reversed(schema.revisions) if one.number < below)
        listed = ((one, self._listed(schema, request.view, one)) for one in rest)
        found = pages.gathered(listed, page, lambda one: _bytes_of(one[1]))
        shown, token = pages.cut(found, page, listing, lambda one: str(one[0].number), lambda one: _bytes_of(one[1]))
        return pubsub.ListSchemaRevisionsResponse(schemas=[one for _, one in shown], next_page_token=token)

    async def commit_schema(self, request: pubsub.CommitSchemaRequest) -> pubsub.Schema:
        """CommitSchema: a new revision, which must go together with the newest one."""
        name = parse_schema(request.name)
        if request.schema.name and request.schema.name != name:
            raise InvalidArgument("schema.name", f"must be empty or {name}")
        compiled = await self._checked(project_of(name), request.schema)
        made = stored.definition_setting(name, "", request.schema, compiled).value
        compared = None
        while (schema := self._with_room(name)).newest.id != compared:  # it may have got another one in the meantime
            compared = schema.newest.id
            older = stored.definition_value(self._catalog, name, compared)
            work = partial(check_follows, made, older)
            await self._run(project_of(name), len(made) + len(older), work)
        return await self._add(schema, request.schema, compiled)

    async def rollback_schema(self, request: pubsub.RollbackSchemaRequest) -> pubsub.Schema:
        """RollbackSchema: a new revision with the definition of an older one."""
        name = parse_schema(request.name)
        if not request.revision_id:
            raise InvalidArgument(
                "", "Schema revision ID must be specified: name it as SCHEMA@REVISION_ID or set revision_id."
            )
        schema = self._schema(name)
        self._revision(schema, request.revision_id)
        schema = self._with_room(name)
        return await self._add(schema, *stored.definition(self._catalog, name, request.revision_id))

    async def delete_schema_revision(self, request: pubsub.DeleteSchemaRevisionRequest) -> pubsub.Schema:
        """DeleteSchemaRevision: any but the only one. Returns the schema as it is then."""
        name, _, identifier = request.name.partition("@")
        schema = self._schema(parse_schema(name))
        identifier = identifier or request.revision_id
        if not identifier:
            raise InvalidArgument(
                "", "Schema revision ID must be specified: name it as SCHEMA@REVISION_ID or set revision_id."
            )
        self._revision(schema, identifier)
        if len(schema.revisions) == 1:
            raise FailedPrecondition(
                f"The only revision of a schema cannot be deleted (resource={request.name}). Delete the schema instead."
            )
        left = schema.without(identifier)
        await self._control.commit(stored.revision_deletion(schema, identifier))
        return self._message(left, left.newest, _FULL, name)

    async def delete_schema(self, request: pubsub.DeleteSchemaRequest) -> well_known.Empty:
        """DeleteSchema. Topics that use it take no messages any more."""
        schema = self._schema(parse_schema(request.name))
        await self._control.commit(stored.deletion(schema))
        return well_known.Empty()

    # -- trying ------------------------------------------------------------------------------------------------------

    async def validate_schema(self, request: pubsub.ValidateSchemaRequest) -> pubsub.ValidateSchemaResponse:
        """ValidateSchema."""
        await self._checked(parse_project(request.parent), request.schema)
        return pubsub.ValidateSchemaResponse()

    async def validate_message(self, request: pubsub.ValidateMessageRequest) -> pubsub.ValidateMessageResponse:
        """ValidateMessage: against a schema that there is, or one in the request."""
        project = parse_project(request.parent)
        encoding = encoding_of(request.encoding)
        if len(request.message) > _MESSAGE_BYTES_MAX:
            raise InvalidArgument("message", f"must not be larger than {_MESSAGE_BYTES_MAX} bytes")
        match request.WhichOneof("schema_spec"):
            case "name":
                schema, revision = self._named(request.name)
                made = stored.definition_value(self._catalog, schema.name, (revision or schema.newest).id)
            case "schema":
                compiled = await self._checked(project, request.schema)
                made = stored.definition_setting("", "", request.schema, compiled).value
            case _:
                raise InvalidArgument("", "Either schema or name must be set.")
        try:
            work = partial(check_fits, made, request.message, encoding)
            await self._run(project, len(made) + len(request.message), work)
        except Mismatch as error:
            raise InvalidArgument("", f"Invalid schema message: Message failed schema validation: {error}.") from None
        return pubsub.ValidateMessageResponse()

    # -- shared ------------------------------------------------------------------------------------------------------

    def methods(self) -> Methods:
        """The method table of this service."""
        ours = methods.SCHEMAS
        table: dict[methods.Method, Callable[[Any], Awaitable[Message]]] = {
            ours.CreateSchema: self.create_schema,
            ours.GetSchema: self.get_schema,
            ours.ListSchemas: self.list_schemas,
            ours.ListSchemaRevisions: self.list_schema_revisions,
            ours.CommitSchema: self.commit_schema,
            ours.RollbackSchema: self.rollback_schema,
            ours.DeleteSchemaRevision: self.delete_schema_revision,
            ours.DeleteSchema: self.delete_schema,
            ours.ValidateSchema: self.validate_schema,
            ours.ValidateMessage: self.validate_message,
        }
        return served({path: checked_again(self._control, one) for path, one in table.items()}, fair=True)

    def _schema(self, name: str) -> Schema:
        found = find_schema(self._catalog, name)
        if found is None:
            raise NotFound(name)
        return found

    def _revision(self, schema: Schema, identifier: str) -> Revision:
        found = schema.revision(identifier)
        if found is None:
            raise NotFound(f"{schema.name}@{identifier}")
        return found

    def _named(self, name: str) -> tuple[Schema, Revision | None]:
        """Resolve `name` or `name@revision`. Raises `NotFound`."""
        plain, at, identifier = name.partition("@")
        schema = self._schema(parse_schema(plain))
        return schema, self._revision(schema, identifier) if at else None

    def _with_room(self, name: str) -> Schema:
        schema = self._schema(name)
        if len(schema.revisions) >= REVISIONS_MAX:
            raise ResourceExhausted(f"{name} already has {REVISIONS_MAX} revisions, the maximum. Delete one first.")
        return schema

    async def _checked(self, project: str, schema: pubsub.Schema) -> bytes:
        """What a definition in a request was compiled to; b"" where that is not needed. Raises `InvalidArgument`."""
        check_shape(schema)
        compiled = await self._compile(project, schema.definition) if needs_compiler(schema) else b""
        made = stored.definition_setting("", "", schema, compiled).value
        await self._run(project, len(made), partial(check_definition, made))
        return compiled

    async def _run(self, project: str, size: int, work: Callable[[], None]) -> None:
        """Here where it takes a moment, by another process where it may take longer."""
        await worked(self._apart, project, work, large=size > JSON_BYTES_AT_ONCE)

    async def _compile(self, project: str, text: str) -> bytes:
        compiled = self._compiled.pop(text, None)
        if compiled is None:
            async with self._compiling.turn(project):
                try:
                    compiled = bytes(await self._blocking(lambda: self._compiler(text)))
                except BadDefinition as error:
                    raise invalid_definition(error) from None
            if len(self._compiled) >= _COMPILED_KNOWN_MAX:
                del self._compiled[next(iter(self._compiled))]
        self._compiled[text] = compiled
        return compiled

    async def _add(self, schema: Schema, given: pubsub.Schema, compiled: bytes) -> pubsub.Schema:
        """Give the schema its next revision."""
        identifier = revision_id(schema, given)
        made = schema.with_revision(identifier, self._control.clock.time_ns())
        changes: Sequence[CatalogChange] = (
            CatalogChange.put(made.setting()),
            CatalogChange.put(stored.definition_setting(made.name, identifier, given, compiled)),
        )
        await self._control.commit(changes)
        return self._message(made, made.newest, _FULL, made.name)

    def _listed(self, schema: Schema, view: int, revision: Revision | None = None) -> pubsub.Schema:
        name = schema.name if revision is None else f"{schema.name}@{revision.id}"
        return self._message(schema, revision or schema.newest, view or _BASIC, name)

    def _message(self, schema: Schema, revision: Revision, view: int, name: str) -> pubsub.Schema:
        if view not in (_BASIC, _FULL):
            raise InvalidArgument("view", "must be BASIC or FULL")
        if view == _BASIC:
            return pubsub.Schema(name=name, type=pubsub.Schema.Type.Name(schema.type))
        made, _ = stored.definition(self._catalog, schema.name, revision.id)
        made.name, made.revision_id = name, revision.id
        made.revision_create_time.FromNanoseconds(revision.created_ns)
        return made


def revision_id(schema: Schema, given: pubsub.Schema) -> str:
    """What the next revision is called: sites that were asked for the same revisions have the same names for them. A
    definition that comes back, as in a rollback, has another one for as long as the schema has the first.
    """
    for again in range(REVISIONS_MAX + 1):
        text = f"{schema.name}\0{given.type}\0{again}\0{given.definition}".encode()
        identifier = blake2b(text, digest_size=4).hexdigest()
        if schema.revision(identifier) is None:
            return identifier
    raise AssertionError("more revisions than there may be")


def _bytes_of(schema: pubsub.Schema) -> int:
    return schema.ByteSize()


_BASIC: Final = pubsub.SchemaView.BASIC
_FULL: Final = pubsub.SchemaView.FULL
