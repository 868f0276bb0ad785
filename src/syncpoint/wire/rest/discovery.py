"""Google's own description of a JSON interface, the discovery document, of what Pub/Sub's clients call.

Place: answered at /$discovery/rest?version=v1, where `googleapiclient.discovery.build(..., discoveryServiceUrl=...)`
looks for it; written from the table and the descriptors, as `openapi` is.
"""

from __future__ import annotations

import re
from typing import Any, Final

from google.protobuf.descriptor import Descriptor

from syncpoint.wire.rest.openapi import body_of, closure, properties_of, query_fields, schema_of
from syncpoint.wire.rest.table import Route, Table

_VARIABLE: Final = re.compile(r"\{([\w.]+)(?:=([^}]*))?\}")
_SHORT: Final = ("google.pubsub.v1.", "google.iam.v1.", "google.type.", "google.protobuf.")
_VERBS: Final = {"PUT": "create", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
_PARAMETERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "$.xgafv": ("V1 error format.", {"type": "string", "enum": ["1", "2"]}),
    "access_token": ("OAuth access token.", {"type": "string"}),
    "alt": ("Data format for response.", {"type": "string", "enum": ["json"], "default": "json"}),
    "fields": ("Selector specifying which fields to include in a partial response.", {"type": "string"}),
    "key": ("API key; not checked.", {"type": "string"}),
    "oauth_token": ("OAuth 2.0 token.", {"type": "string"}),
    "prettyPrint": ("Returns response with indentations and line breaks.", {"type": "boolean", "default": "true"}),
    "quotaUser": ("Available to use for quota purposes.", {"type": "string"}),
    "uploadType": ("Legacy upload protocol for media.", {"type": "string"}),
    "upload_protocol": ("Upload protocol for media.", {"type": "string"}),
}


def discovery_document(table: Table) -> dict[str, Any]:
    """The document of the routes of `google.*`. `rootUrl` and `baseUrl` are those of the request; see `app`."""
    resources: dict[str, Any] = {}
    messages: dict[str, Descriptor] = {}
    for route in table.routes:
        collections = _collections(route)
        if not route.method.startswith("/google.") or collections[:1] != ["projects"]:
            continue
        at: dict[str, Any] = {"resources": resources}
        for name in collections:
            at = at.setdefault("resources", {}).setdefault(name, {})
        name = route.action or _VERBS.get(route.verb) or ("get" if _names_one(route) else "list")
        at.setdefault("methods", {})[name] = _method(route, ".".join(["pubsub", *collections, name]))
        closure(route.method.descriptor.output_type, messages)
        closure(body_of(route) or route.method.descriptor.output_type, messages)
    return {
        "kind": "discovery#restDescription",
        "discoveryVersion": "v1",
        "id": "pubsub:v1",
        "name": "pubsub",
        "version": "v1",
        "title": "Cloud Pub/Sub API",
        "description": "The API of Google Cloud Pub/Sub, self-hosted.",
        "protocol": "rest",
        "rootUrl": "/",
        "baseUrl": "/",
        "servicePath": "",
        "batchPath": "batch",
        "parameters": {
            name: {"description": text, "location": "query", **schema} for name, (text, schema) in _PARAMETERS.items()
        },
        "schemas": {_short(one): {"id": _short(one), **properties_of(one, _reference)} for one in messages.values()},
        "resources": resources,
    }


def _short(descriptor: Descriptor) -> str:
    name: str = descriptor.full_name
    for prefix in _SHORT:
        name = name.removeprefix(prefix)
    return name.replace(".", "")


def _reference(descriptor: Descriptor) -> dict[str, Any]:
    return {"$ref": _short(descriptor)}


def _segments(route: Route) -> list[str]:
    path = _VARIABLE.sub(lambda match: match[2] or "*", route.template)
    return (path.rpartition(":")[0] if route.action else path).strip("/").split("/")[1:]


def _collections(route: Route) -> list[str]:
    return [segment for segment in _segments(route) if segment != "*"]


def _names_one(route: Route) -> bool:
    return _segments(route)[-1] == "*"


def _method(route: Route, name: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for variable, pattern in route.variables:
        parameters[variable.rpartition(".")[2]] = {
            "location": "path",
            "required": True,
            "type": "string",
            "pattern": "^" + pattern.replace("*", "[^/]+") + "$",
        }
    for parameter, field in query_fields(route):
        schema = schema_of(field, _reference)
        if schema.get("type") == "array":
            schema = {**schema["items"], "repeated": True}
        parameters[parameter] = {"location": "query", **schema}
    body = body_of(route)
    found: dict[str, Any] = {
        "id": name,
        "httpMethod": route.verb,
        "path": _VARIABLE.sub(lambda match: f"{{+{match[1].rpartition('.')[2]}}}", route.template).lstrip("/"),
        "flatPath": route.template.lstrip("/"),
        "parameters": parameters,
        "parameterOrder": [variable.rpartition(".")[2] for variable, _ in route.variables],
        "response": _reference(route.method.descriptor.output_type),
    }
    if body is not None:
        found["request"] = _reference(body)
    return found
