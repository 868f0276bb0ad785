"""Answers as bytes: JSON or protobuf, compressed if the caller takes that.

Place: the last thing `app` does with an answer; large ones in a thread.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from starlette.types import Send

from syncpoint.base.model.errors import SyncpointError
from syncpoint.wire.rest.errors import error_json, headers_for, status_of
from syncpoint.wire.rest.system_parameters import SystemParameters
from syncpoint.wire.rest.table import Route
from syncpoint.wire.rest.transcode import Selection, response_json, response_message, selected
from syncpoint.wire.transport.headers import pack_details

JSON: Final = b"application/json; charset=UTF-8"
PROTOBUF: Final = b"application/x-protobuf"
GZIP_BYTES_MIN: Final = 1400
"""A smaller answer is one packet either way."""
_NOTHING: Final[Mapping[str, str]] = {}


class Answer(NamedTuple):
    """`more`: header fields beside those that every answer has."""

    status: int
    body: bytes
    kind: bytes = JSON
    more: Mapping[str, str] = _NOTHING

    def fields(self) -> list[tuple[bytes, bytes]]:
        """Its header fields."""
        return [
            (b"content-type", self.kind),
            (b"content-length", b"%d" % len(self.body)),
            (b"x-content-type-options", b"nosniff"),
            (b"cache-control", b"private"),
            (b"vary", b"accept-encoding, origin"),
            *((name.encode(), value.encode("latin-1", "replace")) for name, value in self.more.items()),
        ]

    async def send(self, send: Send) -> None:
        """As ASGI has it."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.fields()})
        await send({"type": "http.response.body", "body": self.body})


def success(route: Route, data: bytes, wanted: SystemParameters, chosen: Selection) -> Answer:
    """The answer with a method's response."""
    if wanted.binary:
        return _compressed(Answer(200, response_message(route, data), PROTOBUF), wanted)
    content = selected(response_json(route, data, wanted.numbers), chosen)
    return _compressed(Answer(200, json_text(content, pretty=wanted.pretty)), wanted)


def refusal(error: SyncpointError, wanted: SystemParameters, status: int | None = None, **more: str) -> Answer:
    """The answer with an error. `status`: where HTTP has a finer one."""
    fields = {**headers_for(error), **more}
    if wanted.binary:
        return Answer(status or status_of(error), pack_details(error), PROTOBUF, fields)
    content = error_json(error, status=status, legacy=wanted.legacy)
    return Answer(status or status_of(error), json_text(content, pretty=wanted.pretty), JSON, fields)


def json_text(content: Any, *, pretty: bool = True) -> bytes:
    """JSON as bytes."""
    text = json.dumps(content, indent=2, ensure_ascii=False) if pretty else json.dumps(content, ensure_ascii=False)
    return text.encode("utf-8", "replace") + b"\n"


def _compressed(answer: Answer, wanted: SystemParameters) -> Answer:
    if not wanted.gzip or len(answer.body) < GZIP_BYTES_MIN:
        return answer
    fold = zlib.compressobj(1, zlib.DEFLATED, 31)
    body = fold.compress(answer.body) + fold.flush()
    return answer._replace(body=body, more={**answer.more, "content-encoding": "gzip"})
