"""Names that a shell offers when TAB is pressed: of topics, subscriptions, snapshots and schemas, for which the server
is asked, and of a cluster's processes, which stand in its file.

Place: below the arguments of commands. Promise: where no server answers within `ASK_S`, or no file can be read,
nothing is offered or printed: a shell has no place for it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import click

from syncpoint.base.model.errors import SyncpointError
from syncpoint.programs.cli.advice import resource_of
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.settings import Settings

ASK_S = 1.0
OFFERED_MAX = 500

_SERVICES = {
    "topics": "Publisher",
    "subscriptions": "Subscriber",
    "snapshots": "Subscriber",
    "schemas": "SchemaService",
}

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def listing(client: Any, settings: Settings, collection: str) -> Iterator[Any]:
    """All resources of a collection in the project, page by page."""
    from syncpoint.wire.protobuf.messages import pubsub

    method, project = f"List{collection.capitalize()}", f"projects/{settings.project}"
    if collection == "schemas":
        request: Any = pubsub.ListSchemasRequest(parent=project, view=pubsub.SchemaView.FULL)
    else:
        request = getattr(pubsub, method + "Request")(project=project)
    found: Iterator[Any] = client.pages(f"{_SERVICES[collection]}.{method}", request, collection)
    return found


def meant(settings: Settings, message: str) -> str:
    """The name, short, of what exists and is most like what a refusal did not find; empty when nothing is, and when the
    server does not tell in time. A name in another project's list is not looked for.
    """
    about = resource_of(message)
    if about is None or not settings.called:
        return ""
    project, collection, given = about
    asked = replace(settings, project_option=project, timeout_option=ASK_S)
    found = [name.rpartition("/")[2] for name in _known(asked, collection)]
    return next(iter(difflib.get_close_matches(given, found, 1)), "")


def _known(settings: Settings, collection: str) -> list[str]:
    """Full names of a collection; none where no server answers, or lets nobody look."""
    try:
        with settings.client(patience_s=0.0) as client:
            return [one.name for one in islice(listing(client, settings, collection), OFFERED_MAX)]
    except (SyncpointError, Problem, click.UsageError, OSError):
        return []


def names(collection: str) -> Completer:
    """What completes a name of a collection, short or in full as it was begun."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        settings = ctx.find_root().ensure_object(Settings)
        settings.timeout_option = ASK_S
        found = _known(settings, collection)
        if not incomplete.startswith("projects/"):
            found = [name.rpartition("/")[2] for name in found]
        return [name for name in found if name.startswith(incomplete)]

    return complete


def processes(*, etcd: bool = False) -> Completer:
    """What completes the name of a process of the cluster that --dir or --config names, each once. `etcd`: members of
    the etcd that `cluster up` started, too.
    """

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        from syncpoint.node.cluster.settings import load
        from syncpoint.programs.clusters.local import LocalCluster

        path, local = ctx.params.get("path"), LocalCluster(ctx.params.get("folder") or Path())
        try:
            found = [one.name for one in local.states()] if etcd else list(load(path or local.settings_path).processes)
        except (SyncpointError, OSError):
            return []
        given = ctx.params.get(parameter.name or "") or ()
        return [name for name in found if name.startswith(incomplete) and name not in given]

    return complete
