"""`syncpoint schemas ...`: create, list, describe, change and delete schemas, and try messages against them.

Place: the publisher's side of the command line; each command is one call of google.pubsub.v1.SchemaService.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import inform, print_answer, print_messages
from syncpoint.programs.cli.resources import Kind, ResourceGroup
from syncpoint.programs.cli.settings import Settings, with_settings

COLUMNS = [("NAME", "name"), ("TYPE", "type"), ("REVISION", "revisionId"), ("CREATED", "revisionCreateTime")]

_type = click.option(
    "--type",
    "kind",
    type=click.Choice(["avro", "protocol-buffer"], case_sensitive=False),
    required=True,
    help="The language of the definition.",
)
_definition = click.option("--definition", help="The definition itself.")
_definition_file = click.option(
    "--definition-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The file with the definition.",
)


@click.group(cls=ResourceGroup)
def schemas() -> None:
    """Manage schemas that messages must match."""


SCHEMA = Kind("schema", "SchemaService", "name", "order")
SCHEMA.add_list(schemas, COLUMNS)
SCHEMA.add_describe(schemas, "Show a schema, or a revision of it (SCHEMA@REVISION).")
SCHEMA.add_delete(schemas, "Delete one or more schemas. Topics that use them reject new messages.")


@schemas.command()
@click.argument("schema")
@_type
@_definition
@_definition_file
@with_settings
def create(settings: Settings, schema: str, kind: str, definition: str | None, definition_file: Path | None) -> None:
    """Create a schema.

    \b
    Example:
      syncpoint schemas create orders --type avro --definition-file orders.avsc
    """
    from syncpoint.wire.protobuf.messages import pubsub

    name = settings.name("schemas", schema)
    parent = name.rpartition("/schemas/")[0]
    given = _given(kind, definition, definition_file)
    given.name = name
    made = settings.call("SchemaService.CreateSchema", pubsub.CreateSchemaRequest(parent=parent, schema=given))
    inform(f"Created schema [{made.name}], revision {made.revision_id}.")
    print_answer(settings.format, made)


@schemas.command()
@click.argument("schema", shell_complete=names("schemas"))
@_type
@_definition
@_definition_file
@with_settings
def commit(settings: Settings, schema: str, kind: str, definition: str | None, definition_file: Path | None) -> None:
    """Add a revision, which must be compatible with the newest revision.

    \b
    Example:
      syncpoint schemas commit order --type avro --definition-file order.avsc
    """
    from syncpoint.wire.protobuf.messages import pubsub

    request = pubsub.CommitSchemaRequest(
        name=settings.name("schemas", schema), schema=_given(kind, definition, definition_file)
    )
    _changed(settings, "SchemaService.CommitSchema", request)


@schemas.command()
@click.argument("schema", shell_complete=names("schemas"))
@click.argument("revision", required=False)
@click.option("--revision-id", metavar="REVISION", help="The revision, as in gcloud; same as the argument.")
@with_settings
def rollback(settings: Settings, schema: str, revision: str | None, revision_id: str | None) -> None:
    """Add a revision with the definition of an older revision.

    \b
    Example:
      syncpoint schemas rollback order 5c2a7d1e
    """
    from syncpoint.wire.protobuf.messages import pubsub

    if (revision is None) == (revision_id is None):
        raise click.UsageError("name the revision once: REVISION or --revision-id")
    request = pubsub.RollbackSchemaRequest(name=settings.name("schemas", schema), revision_id=revision or revision_id)
    _changed(settings, "SchemaService.RollbackSchema", request)


@schemas.command("list-revisions")
@click.argument("schema", shell_complete=names("schemas"))
@with_settings
def list_revisions(settings: Settings, schema: str) -> None:
    """List the revisions of a schema, the newest first.

    \b
    Example:
      syncpoint schemas list-revisions order
    """
    from syncpoint.wire.protobuf.messages import pubsub

    request = pubsub.ListSchemaRevisionsRequest(name=settings.name("schemas", schema), view=pubsub.SchemaView.FULL)
    with settings.client() as client:
        found = list(client.pages("SchemaService.ListSchemaRevisions", request, "schemas"))
    print_messages(found, settings.format, COLUMNS)


@schemas.command("delete-revision")
@click.argument("schema", metavar="SCHEMA@REVISION")
@with_settings
def delete_revision(settings: Settings, schema: str) -> None:
    """Delete a revision; at least one must remain.

    \b
    Example:
      syncpoint schemas delete-revision order@5c2a7d1e
    """
    from syncpoint.wire.protobuf.messages import pubsub

    name = settings.name("schemas", schema)
    settings.call("SchemaService.DeleteSchemaRevision", pubsub.DeleteSchemaRevisionRequest(name=name))
    inform(f"Deleted revision [{name}].")


@schemas.command("validate-schema")
@_type
@_definition
@_definition_file
@with_settings
def validate_schema(settings: Settings, kind: str, definition: str | None, definition_file: Path | None) -> None:
    """Check whether a definition is valid.

    \b
    Example:
      syncpoint schemas validate-schema --type avro --definition-file order.avsc
    """
    from syncpoint.wire.protobuf.messages import pubsub

    given = _given(kind, definition, definition_file)
    request = pubsub.ValidateSchemaRequest(parent=f"projects/{settings.project}", schema=given)
    settings.call("SchemaService.ValidateSchema", request)
    inform("The definition is valid.")


@schemas.command("validate-message")
@click.argument("schema", required=False, shell_complete=names("schemas"))
@click.argument("text", required=False)
@click.option(
    "--schema-name", shell_complete=names("schemas"), help="SCHEMA as an option, as in gcloud; SCHEMA@REVISION, too."
)
@click.option(
    "--message-encoding", "encoding", type=click.Choice(["json", "binary"]), default="json", show_default=True
)
@click.option("--message", help="TEXT as an option, as in gcloud.")
@click.option("--message-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The message.")
@with_settings
def validate_message(
    settings: Settings,
    schema: str | None,
    text: str | None,
    schema_name: str | None,
    encoding: str,
    message: str | None,
    message_file: Path | None,
) -> None:
    """Check whether a message matches a schema.

    \b
    Example:
      syncpoint schemas validate-message orders '{"n": 1}'
    """
    from syncpoint.wire.protobuf.messages import pubsub

    if schema_name is not None:  # then the only argument is the message
        if text is not None:
            raise click.UsageError("Give the schema once: SCHEMA or --schema-name.")
        schema, text = schema_name, schema
    if schema is None:
        raise click.UsageError("Give the schema: SCHEMA or --schema-name.")
    if sum(one is not None for one in (text, message, message_file)) != 1:
        raise click.UsageError("Give one of TEXT, --message and --message-file.")
    data = message_file.read_bytes() if message_file is not None else (text or message or "").encode()
    request = pubsub.ValidateMessageRequest(
        parent=f"projects/{settings.project}",
        name=settings.name("schemas", schema),
        message=data,
        encoding=pubsub.Encoding.Value(encoding.upper()),
    )
    settings.call("SchemaService.ValidateMessage", request)
    inform("The message fits.")


def _given(kind: str, definition: str | None, file: Path | None) -> Any:
    from syncpoint.wire.protobuf.messages import pubsub

    if (definition is None) == (file is None):
        raise click.UsageError("Give either --definition or --definition-file.")
    text = file.read_text() if file is not None else definition
    return pubsub.Schema(type=kind.upper().replace("-", "_"), definition=text)


def _changed(settings: Settings, method: str, request: Any) -> None:
    made = settings.call(method, request)
    inform(f"Committed revision {made.revision_id} of schema [{made.name}].")
    print_answer(settings.format, made)
