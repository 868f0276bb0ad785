"""An OpenAPI document of everything that is served over HTTP, written from the table and the descriptors.

Place: answered at /openapi.json; `discovery` serves the same in Google's own format. Nothing here is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from syncpoint.wire.rest.table import Route, Table

Reference = Callable[[Descriptor], dict[str, Any]]
"""How a document refers to the schema of a message."""

_NUMBERS: Final[dict[int, dict[str, Any]]] = {
    FieldDescriptor.TYPE_DOUBLE: {"type": "number", "format": "double"},
    FieldDescriptor.TYPE_FLOAT: {"type": "number", "format": "float"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "format": "byte"},
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    **{
        kind: {"type": "integer", "format": "int32"}
        for kind in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32)
    },
    **{
        kind: {"type": "integer", "format": "uint32"}
        for kind in (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32)
    },
    **{
        kind: {"type": "string", "format": "int64"}
        for kind in (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64)
    },
    **{
        kind: {"type": "string", "format": "uint64"}
        for kind in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)
    },
}
_WELL_KNOWN: Final[dict[str, dict[str, Any]]] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "google-datetime"},
    "google.protobuf.Duration": {"type": "string", "format": "google-duration"},
    "google.protobuf.FieldMask": {"type": "string", "format": "google-fieldmask"},
    "google.protobuf.Struct": {"type": "object", "additionalProperties": {}},
    "google.protobuf.Value": {},
    "google.protobuf.ListValue": {"type": "array", "items": {}},
    "google.protobuf.Any": {"type": "object", "additionalProperties": {}},
}
_QUERY_DEPTH_MAX: Final = 4
_VARIABLE: Final = re.compile(r"\{([\w.]+)(?:=([^}]*))?\}")


def schema_of(field: FieldDescriptor, reference: Reference) -> dict[str, Any]:
    """The JSON schema of a field."""
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": schema_of(entry.fields_by_name["value"], reference)}
    single = _single(field, reference)
    return {"type": "array", "items": single} if field.is_repeated else single


def _single(field: FieldDescriptor, reference: Reference) -> dict[str, Any]:
    if field.message_type is not None:
        known = _WELL_KNOWN.get(field.message_type.full_name)
        return dict(known) if known is not None else reference(field.message_type)
    if field.enum_type is not None:
        return {"type": "string", "enum": [value.name for value in field.enum_type.values]}
    return dict(_NUMBERS[field.type])


def properties_of(descriptor: Descriptor, reference: Reference) -> dict[str, Any]:
    """The JSON schema of a message."""
    fields = {field.json_name: schema_of(field, reference) for field in descriptor.fields}
    return {"type": "object", "properties": fields} if fields else {"type": "object"}


def closure(descriptor: Descriptor, found: dict[str, Descriptor]) -> None:
    """Add a message and every message it is made of to `found`, by full name."""
    if descriptor.full_name in found or descriptor.full_name in _WELL_KNOWN:
        return
    if descriptor.GetOptions().map_entry:
        of = descriptor.fields_by_name["value"].message_type
        if of is not None:
            closure(of, found)
        return
    found[descriptor.full_name] = descriptor
    for field in descriptor.fields:
        if field.message_type is not None:
            closure(field.message_type, found)


def query_fields(route: Route) -> list[tuple[str, FieldDescriptor]]:
    """The fields of a request that neither path nor body take, with their names in a query."""
    if route.body == "*":
        return []
    taken = {name for name, _ in route.variables} | {route.body}
    return list(_leaves(route.method.descriptor.input_type, "", "", taken, _QUERY_DEPTH_MAX))


def _leaves(
    descriptor: Descriptor, names: str, path: str, taken: set[str], depth: int
) -> Iterator[tuple[str, FieldDescriptor]]:
    for field in descriptor.fields:
        if path + field.name in taken:
            continue
        of = field.message_type
        if of is None or of.full_name in (
            "google.protobuf.Timestamp",
            "google.protobuf.Duration",
            "google.protobuf.FieldMask",
        ):
            yield names + field.json_name, field
        elif not field.is_repeated and depth and not of.full_name.startswith("google.protobuf."):
            yield from _leaves(of, f"{names}{field.json_name}.", f"{path}{field.name}.", taken, depth - 1)


def body_of(route: Route) -> Descriptor | None:
    """The message that the body of a request is."""
    if not route.body:
        return None
    request: Descriptor = route.method.descriptor.input_type
    return request if route.body == "*" else request.fields_by_name[route.body].message_type


# -- the document ------------------------------------------------------------------------------------------------------


def _reference(descriptor: Descriptor) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{descriptor.full_name}"}


def openapi_document(table: Table) -> dict[str, Any]:
    """OpenAPI 3.0.3 of a table."""
    paths: dict[str, dict[str, Any]] = {}
    messages: dict[str, Descriptor] = {}
    names: set[str] = set()
    for route in table.routes:
        closure(route.method.descriptor.output_type, messages)
        closure(body_of(route) or route.method.descriptor.output_type, messages)
        path, inside = _expanded(route)
        paths.setdefault(path, {})[route.verb.lower()] = _operation(route, inside, names)
    schemas = {name: properties_of(messages[name], _reference) for name in sorted(messages)}
    schemas["Error"] = {
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message", "status"],
                "properties": {
                    "code": {"type": "integer"},
                    "message": {"type": "string"},
                    "status": {"type": "string"},
                    "details": {"type": "array", "items": {"type": "object"}},
                },
            }
        },
        "required": ["error"],
    }
    return {
        "openapi": "3.0.3",
        "info": {"title": "Syncpoint", "version": "v1", "description": "The API of Google Cloud Pub/Sub, self-hosted."},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": schemas,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
        },
        "security": [{}, {"bearer": []}],
    }


def _operation(route: Route, inside: list[str], names: set[str]) -> dict[str, Any]:
    service, method = route.method.strip("/").split("/")
    name = f"{service.rpartition('.')[2]}.{method}"
    while name in names:
        name += "_"  # another way to the same method
    names.add(name)
    anything = {"type": "string", "minLength": 1}
    parameters = [{"name": one, "in": "path", "required": True, "schema": anything} for one in inside]
    parameters += [
        {"name": one, "in": "query", "schema": schema_of(field, _reference)} for one, field in query_fields(route)
    ]
    parameters.append({"name": "fields", "in": "query", "schema": {"type": "string"}})
    answer = _reference(route.method.descriptor.output_type)
    operation: dict[str, Any] = {
        "operationId": name,
        "tags": [service],
        "parameters": parameters,
        "responses": {
            "200": {"description": "OK", "content": {"application/json": {"schema": answer}}},
            "default": {
                "description": "An error",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    body = body_of(route)
    if body is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": _reference(body)}}}
    return operation


def _expanded(route: Route) -> tuple[str, list[str]]:
    """A template with a parameter for each segment: `/v1/projects/{projectsId}/topics`, and their names."""
    inside: list[str] = []

    def segments(match: re.Match[str]) -> str:
        found, before = [], ""
        for segment in (match[2] or "*").split("/"):
            if segment in ("*", "**"):
                name = f"{before}Id" if before else match[1].rpartition(".")[2]
                inside.append(name)
                found.append(f"{{{name}}}")
            else:
                found.append(segment)
            before = segment
        return "/".join(found)

    return _VARIABLE.sub(segments, route.template), inside
