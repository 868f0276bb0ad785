"""Schemas: what each command asks of the server, and what it prints."""

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.wire.protobuf.messages import pubsub, well_known

NAME = "projects/p/schemas/orders"
MADE = pubsub.Schema(name=NAME, type=pubsub.Schema.AVRO, definition='"int"', revision_id="0a0b0c0d")


def test_create_reads_the_definition_from_a_file(server, run, tmp_path):
    server.answers["SchemaService.CreateSchema"] = MADE
    file = tmp_path / "orders.avsc"
    file.write_text('"int"')
    result = run("schemas", "create", "orders", "--type", "avro", "--definition-file", str(file))
    request = server.request("SchemaService.CreateSchema")
    assert (request.parent, request.schema) == (
        "projects/p",
        pubsub.Schema(name=NAME, type=pubsub.Schema.AVRO, definition='"int"'),
    )
    assert result.stderr == f"Created schema [{NAME}], revision 0a0b0c0d.\n"


@pytest.mark.parametrize("words", [(), ("--definition", "x", "--definition-file", __file__)])
def test_a_definition_is_given_once(run, words):
    result = run("schemas", "create", "orders", "--type", "avro", *words)
    assert result.exit_code == 2
    assert "--definition-file" in result.stderr


def test_commit_and_rollback_report_the_revision(server, run):
    server.answers["SchemaService.CommitSchema"] = server.answers["SchemaService.RollbackSchema"] = MADE
    words = "--type", "protocol-buffer", "--definition", "message A {}"
    for result in (run("schemas", "commit", "orders", *words), run("schemas", "rollback", "orders", "0000000a")):
        assert result.stderr == f"Committed revision 0a0b0c0d of schema [{NAME}].\n"
    assert server.request("SchemaService.CommitSchema").schema == pubsub.Schema(
        type=pubsub.Schema.PROTOCOL_BUFFER, definition="message A {}"
    )
    assert server.request("SchemaService.RollbackSchema").revision_id == "0000000a"


def test_a_revision_to_go_back_to_is_named_once_as_an_argument_or_as_gcloud_does(server, run):
    server.answers["SchemaService.RollbackSchema"] = MADE
    assert run("schemas", "rollback", "orders", "--revision-id", "0000000b").exit_code == 0
    assert server.request("SchemaService.RollbackSchema").revision_id == "0000000b"
    for words in ((), ("0000000a", "--revision-id", "0000000b")):
        assert "--revision-id" in run("schemas", "rollback", "orders", *words).stderr


def test_lists_show_revisions(server, run_json):
    server.answers["SchemaService.ListSchemas"] = pubsub.ListSchemasResponse(schemas=[MADE])
    server.answers["SchemaService.ListSchemaRevisions"] = pubsub.ListSchemaRevisionsResponse(schemas=[MADE])
    for words in (("list",), ("list-revisions", "orders")):
        (found,) = run_json("schemas", *words)
        assert found["revisionId"] == "0a0b0c0d"
    assert server.request("SchemaService.ListSchemas").parent == "projects/p"
    assert server.request("SchemaService.ListSchemaRevisions").name == NAME


def test_a_revision_is_named_with_its_schema(server, run, run_json):
    server.answers["SchemaService.GetSchema"] = MADE
    server.answers["SchemaService.DeleteSchemaRevision"] = MADE
    server.answers["SchemaService.DeleteSchema"] = well_known.Empty()
    assert run_json("schemas", "describe", "orders@0a0b0c0d")["definition"] == '"int"'
    run("schemas", "delete-revision", "orders@0a0b0c0d")
    run("schemas", "delete", "orders")
    assert [request.name for _, request in server.calls] == [f"{NAME}@0a0b0c0d", f"{NAME}@0a0b0c0d", NAME]


def test_messages_and_definitions_are_tried(server, run):
    server.answers["SchemaService.ValidateSchema"] = pubsub.ValidateSchemaResponse()
    server.answers["SchemaService.ValidateMessage"] = InvalidArgument("", "Message failed schema validation.")
    assert run("schemas", "validate-schema", "--type", "avro", "--definition", '"int"').exit_code == 0
    words = "--schema-name", "orders", "--message-encoding", "json", "--message", "x"
    result = run("schemas", "validate-message", *words)
    assert result.exit_code == 1
    assert "Message failed schema validation." in result.stderr
    request = server.request("SchemaService.ValidateMessage")
    assert (request.name, request.message, request.encoding) == (NAME, b"x", pubsub.Encoding.JSON)
    for words in (["orders", "x"], ["--schema-name", "orders", "x"], ["orders", "--message", "x"]):
        server.calls.clear()
        assert run("schemas", "validate-message", *words).exit_code == 1
        assert server.request("SchemaService.ValidateMessage") == request
    for words in ([], ["orders"], ["orders", "x", "--schema-name", "y"], ["orders", "x", "--message", "y"]):
        assert run("schemas", "validate-message", *words).exit_code == 2


def test_a_topic_is_created_with_a_schema(server, run):
    server.answers["Publisher.CreateTopic"] = lambda request: request
    words = "--schema", "orders", "--message-encoding", "binary", "--first-revision-id", "0000000a"
    run("topics", "create", "orders", *words)
    assert server.request("Publisher.CreateTopic").schema_settings == pubsub.SchemaSettings(
        schema=NAME, encoding=pubsub.Encoding.BINARY, first_revision_id="0000000a"
    )
    assert run("topics", "create", "orders", "--message-encoding", "json").exit_code == 2


def test_the_schema_of_a_topic_is_changed_field_by_field(server, run):
    server.answers["Publisher.UpdateTopic"] = lambda request: request.topic

    def changed(*words):
        assert run("topics", "update", "orders", *words).exit_code == 0
        _, request = server.calls[-1]
        return request.topic.schema_settings, list(request.update_mask.paths)

    assert changed("--schema", "orders", "--message-encoding", "json") == (
        pubsub.SchemaSettings(schema=NAME, encoding=pubsub.Encoding.JSON),
        ["schema_settings.schema", "schema_settings.encoding"],
    )
    assert changed("--first-revision-id", "0000000a", "--last-revision-id", "") == (
        pubsub.SchemaSettings(first_revision_id="0000000a"),
        ["schema_settings.first_revision_id", "schema_settings.last_revision_id"],
    )
    assert changed("--clear-schema-settings") == (pubsub.SchemaSettings(), ["schema_settings"])
    assert run("topics", "update", "orders", "--clear-schema-settings", "--schema", "x").exit_code == 2
