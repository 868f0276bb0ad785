"""Payloads as people read them: what fits a schema of Avro or Protocol Buffers, decoded by that schema.

Place: behind a page of the console; the browser itself shows JSON, text and bytes.
Promise: a payload that does not fit is said not to, with why; it never costs the others their answer.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

from syncpoint.metadata.catalog import Catalog
from syncpoint.model.errors import InvalidArgument, NotFound
from syncpoint.schemas.errors import BadDefinition, Mismatch
from syncpoint.schemas.stored import definition, find_schema
from syncpoint.schemas.validators import decoded

PAYLOADS_MAX: Final = 100
PAYLOAD_BYTES_MAX: Final = 1024 * 1024


def decoded_payloads(catalog: Catalog, name: str, revision: str, payloads: list[str]) -> list[dict[str, str]]:
    """Of each payload (base64) `json`, or `error`. `name`: projects/P/schemas/S. Raises `SyncpointError`."""
    if len(payloads) > PAYLOADS_MAX:
        raise InvalidArgument("payloads", f"At most {PAYLOADS_MAX} payloads are decoded at once.")
    schema = find_schema(catalog, name)
    if schema is None or schema.revision(revision) is None:
        raise NotFound(f"{name}@{revision}")
    by, compiled = definition(catalog, name, revision)
    return [_one(by, compiled, payload) for payload in payloads]


def _one(schema: Any, compiled: bytes, payload: str) -> dict[str, str]:
    try:
        data = base64.b64decode(payload, validate=True)
        if len(data) > PAYLOAD_BYTES_MAX:
            return {"error": f"It has more than {PAYLOAD_BYTES_MAX} bytes."}
        return {"json": json.dumps(decoded(schema, compiled, data), indent=2, ensure_ascii=False, default=_plain)}
    except binascii.Error:
        return {"error": "It is no base64."}
    except (Mismatch, BadDefinition) as error:
        return {"error": f"It does not fit the schema: {error}."}


def _plain(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, (bytes, bytearray)) else str(value)
