"""What a server knows of a federation: which flows come in, by the records of what was copied here, and what readers of
its own topics have not read yet, by their cursors.

Place: under a page of the console; asks the methods for data pipelines as the caller.
Promise: it is the servers' word, true whether the program that copies runs or not. What that program alone knows (that
it runs, that a user paused a flow) is not known here. What the caller may not ask is named in `unknown`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.message import Message
from starlette.requests import Request

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.model.names import project_of
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.home_sites import PREFIX as HOMES
from syncpoint.catalog.metadata.home_sites import home_of
from syncpoint.watch.console.inner_calls import called
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.transport.calls import Methods

ANSWER_S: Final = 10.0


async def flows_of(served: Methods, catalog: Catalog, request: Request, projects: Sequence[str]) -> dict[str, Any]:
    """`arriving`: one for each flow that is copied to here; `leaving`: one for each reader of a topic of `projects`;
    `homes`: one for each subscription of those that one of several sites delivers.
    """
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
    homes = [_home(catalog, name, projects) for name in catalog.settings_named(HOMES)]
    found = {"arriving": arriving, "leaving": leaving, "homes": [one for one in homes if one is not None]}
    return {**found, "unknown": unknown}


def _home(catalog: Catalog, setting: str, projects: Sequence[str]) -> dict[str, Any] | None:
    """None: the subscription is gone, or is not among what is asked for."""
    number = int(setting.removeprefix(HOMES))
    record, home = catalog.subscription_by_incarnation(number), home_of(catalog, number)
    if record is None or home is None or project_of(record.name) not in projects:
        return None
    return {"subscription": record.name, "site": home.site, "home": home.home, "epoch": home.epoch}


def _plain(message: Message, names: str) -> dict[str, Any]:
    wanted = names.split()
    return {name: value for name, value in json_format.MessageToDict(message).items() if name in wanted}


def _gap(part: pipeline.SourceRange) -> str:
    return f"{part.source}: {part.begin}-{part.end - 1}"
