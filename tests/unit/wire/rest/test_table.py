"""The table is that of the annotations: Google's 46 methods, and ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.wire.protobuf import methods
from syncpoint.wire.rest.discovery import discovery_document
from syncpoint.wire.rest.openapi import openapi_document
from syncpoint.wire.rest.table import SERVICES, Table

KINDS = ("topics", "subscriptions", "snapshots", "schemas")
POLICY = ("getIamPolicy", "setIamPolicy", "testIamPermissions")
GOOGLE = {
    *(f"pubsub.projects.{kind}.{name}" for kind in KINDS for name in ("create", "delete", "get", "list", *POLICY)),
    *(f"pubsub.projects.{kind}.patch" for kind in ("topics", "subscriptions", "snapshots")),
    *(f"pubsub.projects.topics.{name}" for name in ("publish", "snapshots.list", "subscriptions.list")),
    *(
        f"pubsub.projects.subscriptions.{name}"
        for name in ("acknowledge", "detach", "modifyAckDeadline", "modifyPushConfig", "pull", "seek")
    ),
    *(
        f"pubsub.projects.schemas.{name}"
        for name in ("commit", "deleteRevision", "listRevisions", "rollback", "validate", "validateMessage")
    ),
}


def listed(resource: dict[str, Any]) -> set[str]:
    found = {one["id"] for one in resource.get("methods", {}).values()}
    return found.union(*map(listed, resource.get("resources", {}).values()))


def test_the_discovery_document_has_the_methods_of_google() -> None:
    assert len(GOOGLE) == 46
    ours = {f"pubsub.projects.{name}" for name in POLICY}
    document = discovery_document(Table())
    assert listed(document) == GOOGLE | ours
    patch = document["resources"]["projects"]["resources"]["topics"]["methods"]["patch"]
    assert patch["path"] == "v1/{+name}"
    assert patch["parameters"]["name"]["pattern"] == "^projects/[^/]+/topics/[^/]+$"
    assert patch["request"] == {"$ref": "UpdateTopicRequest"}


def test_every_unary_method_has_a_route() -> None:
    every = {method for service in SERVICES for method in service if not method.is_streaming}
    assert {route.method for route in Table().routes} == every
    assert methods.SUBSCRIBER.StreamingPull not in every


def test_a_listener_describes_what_it_serves() -> None:
    table = Table({methods.PUBLISHER.Publish.encode()})
    assert [route.template for route in table.routes] == ["/v1/{topic=projects/*/topics/*}:publish"]
    assert table.find("GET", "/v1/projects/p/topics/t") is None


@pytest.mark.parametrize(
    "document", [openapi_document(Table()), discovery_document(Table())], ids=["openapi", "google"]
)
def test_documents_refer_to_what_they_hold(document: dict[str, Any]) -> None:
    schemas = document.get("components", document)["schemas"]

    def references(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(references, value))
        if not isinstance(value, dict):
            return set()
        own = {value["$ref"].rpartition("/")[2]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))

    found = references(json.loads(json.dumps(document)))
    assert found
    assert found <= set(schemas)


def test_operations_have_names_of_their_own() -> None:
    operations = [one["operationId"] for path in openapi_document(Table())["paths"].values() for one in path.values()]
    assert len(operations) == len(set(operations)) == len(Table().routes)


@pytest.mark.parametrize(
    ("verb", "path", "method", "variables"),
    [
        ("PUT", "/v1/projects/p/topics/t", methods.PUBLISHER.CreateTopic, {"name": "projects/p/topics/t"}),
        ("PATCH", "/v1/projects/p/topics/t", methods.PUBLISHER.UpdateTopic, {"topic.name": "projects/p/topics/t"}),
        ("POST", "/v1/projects/p/topics/a%2Bb:publish", methods.PUBLISHER.Publish, {"topic": "projects/p/topics/a+b"}),
        ("GET", "/v1/projects/p/topics", methods.PUBLISHER.ListTopics, {"project": "projects/p"}),
        ("GET", "/v1/projects/p/schemas/s@1a", methods.SCHEMAS.GetSchema, {"name": "projects/p/schemas/s@1a"}),
        ("POST", "/v1/projects/p/schemas:validate", methods.SCHEMAS.ValidateSchema, {"parent": "projects/p"}),
        ("GET", "/v1/projects/p:getIamPolicy", methods.IAM.GetIamPolicy, {"resource": "projects/p"}),
        ("DELETE", "/admin/v1/drains/region/eu", methods.ADMIN.Undrain, {"target": "region/eu"}),
        ("DELETE", "/iam/v1/serviceAccounts/a@b/keys/k", methods.ACCOUNTS.DeleteServiceAccountKey,
         {"email": "a@b", "id": "k"}),
    ],
)  # fmt: skip
def test_a_request_finds_its_method(verb: str, path: str, method: str, variables: dict[str, str]) -> None:
    found = Table().find(verb, path)
    assert found is not None
    assert (found[0].method, found[1]) == (method, variables)


@pytest.mark.parametrize(
    ("verb", "path"),
    [("POST", "/v1/projects/p/topics/t"), ("GET", "/v1/projects/p/topics/t/"), ("GET", "/v1/projects//topics/t"),
     ("GET", "/"), ("GET", "/v1/projects/p/topics/t:publish"), ("BREW", "/v1/projects/p/topics/t")],
)  # fmt: skip
def test_what_no_rule_says_is_nowhere(verb: str, path: str) -> None:
    assert Table().find(verb, path) is None


def test_what_may_be_done_at_a_path() -> None:
    assert Table().verbs("/v1/projects/p/topics/t") == ["DELETE", "GET", "PATCH", "PUT"]
    assert Table().verbs("/v1/projects/p/topics/t:publish") == ["POST"]
    assert Table().verbs("/v1/projects/p/things/t") == []


def test_a_path_must_be_text() -> None:
    with pytest.raises(InvalidArgument, match="not valid UTF-8"):
        Table().find("GET", "/v1/projects/%ff/topics/t")
