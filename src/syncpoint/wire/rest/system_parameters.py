"""Google's system parameters: what a request sets for its answer in its query and head.

Place: read by `app` before anything else of a request.
Promise: reading never fails; what cannot be served is `problem`, for callers who may know it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from starlette.types import Scope

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.wire.rest.errors import bad_request

TIMEOUT_S_MAX: Final = 3600.0
QUERY_PARAMETERS_MAX: Final = 1000
NAMES: Final = frozenset(
    (
        "access_token", "alt", "callback", "fields", "key", "oauth_token", "prettyPrint", "quotaUser",
        "upload_protocol", "uploadType",
    )
)  # fmt: skip
"""Parameters of every method; they may have a `$` before them. What is not understood of them changes nothing."""
_OURS: Final = frozenset(
    (
        b"accept", b"accept-encoding", b"connection", b"content-encoding", b"content-length", b"content-type",
        b"expect", b"host", b"keep-alive", b"te", b"transfer-encoding", b"upgrade", b"x-http-method-override",
        b"x-server-timeout",
    )
)  # fmt: skip
"""Header fields that are about HTTP; the others are the metadata of the call."""
_FORM: Final = b"application/x-www-form-urlencoded"
_PROTOBUF: Final = (b"application/x-protobuf", b"application/protobuf")

Headers = Mapping[bytes, bytes]


class SystemParameters:
    """`query`: what of it is about the request itself. `fields`: a selection of fields, "" is all; `pretty`: in lines;
    `numbers`: enums as numbers; `legacy`: errors in the format before this one, too; `binary`: the answer is protobuf;
    `gzip`: it may be compressed.
    """

    def __init__(self, query: bytes, headers: Headers) -> None:
        self.fields = headers.get(b"x-goog-fieldmask", b"").decode("latin-1")
        self.pretty, self.numbers, self.legacy, self.binary = True, False, False, False
        self.gzip = _takes_gzip(headers.get(b"accept-encoding", b""))
        self.query: list[tuple[str, str]] = []
        self.problem: InvalidArgument | None = None
        self.add(query)

    def add(self, query: bytes) -> None:
        """Read a query, or a form that stands for one."""
        try:
            pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=QUERY_PARAMETERS_MAX)
        except ValueError:
            self.problem = bad_request("", f"The query has more than {QUERY_PARAMETERS_MAX} parameters.")
            return
        for name, value in pairs:
            plain = name.removeprefix("$")
            if plain in (".xgafv", "xgafv"):
                self.legacy = value == "1"
            elif plain not in NAMES:
                self.query.append((name, value))
            elif plain == "fields":
                self.fields = value
            elif plain == "prettyPrint":
                self.pretty = value.lower() != "false"
            elif plain == "alt":
                self._format(value)
            elif plain == "callback":
                self.problem = bad_request("callback", "The query parameter 'callback' is not supported.")

    def _format(self, value: str) -> None:
        kind, *options = value.lower().split(";")
        self.numbers, self.binary = "enum-encoding=int" in options, kind == "proto"
        if kind == "media":
            self.problem = bad_request("alt", "Media download is not supported for this method.")
        elif kind not in ("", "json", "proto"):
            text = f"Invalid value \"{value[:64]}\" for query parameter 'alt'. Use json or proto."
            self.problem = bad_request("alt", text)


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """The head of a request; fields that come again are joined."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        found[name] = found[name] + b"," + value if name in found else value
    return found


def metadata_of(headers: Headers) -> dict[bytes, bytes]:
    """What a method, and the gate before it, see of a head."""
    return {name: value for name, value in headers.items() if name not in _OURS}


def verb_of(scope: Scope, headers: Headers) -> str:
    """The verb that is meant: clients whose way lets only GET and POST through say it in a header field."""
    verb: str = scope["method"]
    if verb == "POST" and (said := headers.get(b"x-http-method-override")):
        return said.decode("latin-1").upper()
    return "GET" if verb == "HEAD" else verb


def is_form(headers: Headers) -> bool:
    """Whether the body is what would be the query, were it not too long for one."""
    return headers.get(b"content-type", b"").startswith(_FORM)


def is_protobuf(headers: Headers) -> bool:
    """Whether the body is protobuf."""
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower() in _PROTOBUF


def timeout_of(headers: Headers) -> float | None:
    """Seconds after which the caller does not wait any more."""
    try:
        seconds = float(headers.get(b"x-server-timeout", b""))
    except ValueError:
        return None
    return min(seconds, TIMEOUT_S_MAX) if math.isfinite(seconds) and seconds > 0 else None


def is_of_another_site(headers: Headers) -> bool:
    """Whether a browser sends this for a page from elsewhere: with a client certificate, or where callers are not
    identified, that page could do whatever the browser's user may.
    """
    origin = headers.get(b"origin")
    if origin is not None:
        return origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower()
    return headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin")


def _takes_gzip(accepted: bytes) -> bool:
    for one in accepted.lower().split(b","):
        name, *options = (part.strip() for part in one.split(b";"))
        if name in (b"gzip", b"x-gzip"):
            return not any(part.startswith(b"q=0") and not part.strip(b"q=0.") for part in options)
    return False
