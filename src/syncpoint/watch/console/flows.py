"""What a server knows of a federation: which flows come in, by the records of what was copied here, and what readers of
its own topics have not read yet, by their cursors.

Place: under a page of the console; asks the methods for data pipelines as the caller.
Promise: it is the servers' word, true whether the program that copies runs or not. What that program alone knows (that
it runs, that a user paused a flow) is not known here. What the caller may not ask is named in `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.message import Message
from starlette.requests import Request

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.watch.console.inner_calls import called
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.transport.calls import Methods

ANSWER_S: Final = 10.0


async def flows_of(served: Methods, request: Request, projects: Iterable[str]) -> dict[str, Any]:
    """`arriving`: one for each flow that is copied to here; `leaving`: one for each reader of a topic of `projects`."""
    unknown: list[str] = []

    async def ask(method: Method, asked: Message) -> Any:
        try:
            if method.encode() not in served:
                raise SyncpointError(Code.UNIMPLEMENTED, "This server does not support data pipelines.")
            return await called(served, method, asked, request, ANSWER_S)
        except SyncpointError as error:
            of = f" of {asked.project}" if isinstance(asked, pipeline.ListCursorsRequest) else ""
            unknown.append(f"{method.rpartition('/')[2]}{of}: {error}")
            return method.response()

    links = await ask(methods.EPOCH_WRITER.ListLinks, pipeline.ListLinksRequest())
    cursors: list[pipeline.Cursor] = []
    for project in projects:
        asked = pipeline.ListCursorsRequest(project=project)
        cursors += (await ask(methods.LOG_READER.ListCursors, asked)).cursors
    arriving = [
        {
            **_plain(one, "name sourceTopic rows bytes epochs duplicatesDropped gapsRefused committedAt"),
            "gaps": [_gap(part) for part in one.refused],
            "skipped": sum(part.end - part.begin for part in one.skipped),
            "sources": len({part.source for part in one.committed}),
        }
        for one in links.links
    ]
    leaving = [
        {
            **_plain(one, "name topic lagMessages lagBytes used"),
            "lost": sum(part.end - part.begin for part in one.lost),
        }
        for one in cursors
    ]
    return {"arriving": arriving, "leaving": leaving, "unknown": unknown}


def _plain(message: Message, names: str) -> dict[str, Any]:
    wanted = names.split()
    return {name: value for name, value in json_format.MessageToDict(message).items() if name in wanted}


def _gap(part: pipeline.SourceRange) -> str:
    return f"{part.source}: {part.begin}-{part.end - 1}"
