"""Payloads as people read them: what fits a schema of Avro or Protocol Buffers, decoded by that schema.

Place: under a page of the console; the browser itself shows JSON, text and bytes. Both functions are run apart where
they are given much.
Promise: a payload that does not fit gets an error with the reason; it never costs the others their answer. An answer
has `ANSWER_BYTES_MAX`, and a payload that would not fit into it is reported as too large.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

from syncpoint.base.model.errors import InvalidArgument, NotFound
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.schemas.errors import BadDefinition, Mismatch
from syncpoint.catalog.schemas.stored import definition_of, definition_value, find_schema
from syncpoint.catalog.schemas.validators import decoded
from syncpoint.wire.rest.rendering import json_text

PAYLOADS_MAX: Final = 100
PAYLOAD_BYTES_MAX: Final = 1024 * 1024
ANSWER_BYTES_MAX: Final = 8 << 20


def asked(body: bytes) -> dict[str, Any]:
    """What the body of a request asks for. Raises `InvalidArgument`."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidArgument("", "The request body is not JSON.") from None
    kinds = {"schema": str, "revision": str, "payloads": list}
    for name, kind in kinds.items():
        if not isinstance(found, dict) or not isinstance(found.get(name), kind):
            raise InvalidArgument(name, f"{name} must be of type {kind.__name__}.")
    if len(found["payloads"]) > PAYLOADS_MAX:
        raise InvalidArgument("payloads", f"At most {PAYLOADS_MAX} payloads can be decoded in one request.")
    if not all(isinstance(one, str) for one in found["payloads"]):
        raise InvalidArgument("payloads", "Each payload must be a base64 string.")
    return {name: found[name] for name in kinds}


def definition_asked(catalog: Catalog, name: str, revision: str) -> bytes:
    """The definition to decode by, as it is stored. `name`: projects/P/schemas/S. Raises `NotFound`."""
    schema = find_schema(catalog, name)
    if schema is None or schema.revision(revision) is None:
        raise NotFound(f"{name}@{revision}")
    return definition_value(catalog, name, revision)


def decoded_payloads(value: bytes, payloads: list[str]) -> bytes:
    """The answer as JSON: `payloads`, of each (base64) `json`, or `error`. `value`: of `definition_asked`."""
    schema, compiled = definition_of(value)
    found, left = list[dict[str, str]](), ANSWER_BYTES_MAX
    for payload in payloads:
        one = (
            _one(schema, compiled, payload) if left > 0 else {"error": "The response is full. Request fewer payloads."}
        )
        size = len(one.get("json", ""))
        if size > left:
            one = {"error": f"Decoded, it has {size} characters, more than a response can hold."}
        else:
            left -= size
        found.append(one)
    return json_text({"payloads": found}, pretty=False)


def _one(schema: Any, compiled: bytes, payload: str) -> dict[str, str]:
    try:
        data = base64.b64decode(payload, validate=True)
        if len(data) > PAYLOAD_BYTES_MAX:
            return {"error": f"It has more than {PAYLOAD_BYTES_MAX} bytes."}
        return {"json": json.dumps(decoded(schema, compiled, data), indent=2, ensure_ascii=False, default=_plain)}
    except binascii.Error:
        return {"error": "It is not base64."}
    except (Mismatch, BadDefinition) as error:
        return {"error": f"It does not match the schema: {error}."}


def _plain(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, (bytes, bytearray)) else str(value)
