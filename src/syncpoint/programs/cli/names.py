"""Names that a shell offers when TAB is pressed: of topics and of all else that the server is asked for, and of a
cluster's processes, which stand in its file.

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


def _queues(client: Any, settings: Settings, ctx: click.Context) -> list[str]:
    from syncpoint.wire.protobuf.messages import admin

    asked = admin.ListQueuesRequest(project=f"projects/{settings.project}")
    return [one.topic.name.rpartition("/")[2] for one in client.call("Admin.ListQueues", asked).queues]


def _rules(client: Any, settings: Settings, ctx: click.Context) -> list[str]:
    from syncpoint.wire.protobuf.messages import admin

    asked = admin.ListRulesRequest(subscription=settings.name("subscriptions", ctx.params.get("subscription") or ""))
    return [one.name for one in client.call("Admin.ListRules", asked).rules]


def _cursors(client: Any, settings: Settings, ctx: click.Context) -> list[str]:
    from syncpoint.wire.protobuf.messages import pipeline

    topic = ctx.params.get("topic")
    place = {"topic": settings.name("topics", topic)} if topic else {"project": f"projects/{settings.project}"}
    asked = pipeline.ListCursorsRequest(**place)
    return [one.name for one in client.call("LogReader.ListCursors", asked).cursors]


def _accounts(client: Any, settings: Settings, ctx: click.Context) -> list[str]:
    from syncpoint.wire.protobuf.messages import accounts

    asked = accounts.ListServiceAccountsRequest(project=f"projects/{settings.project}")
    return [one.email for one in client.call("ServiceAccounts.ListServiceAccounts", asked).accounts]


_OTHERS: dict[str, Callable[[Any, Settings, click.Context], list[str]]] = {
    "queues": _queues,
    "rules": _rules,
    "cursors": _cursors,
    "accounts": _accounts,
}
_OF_SERVER = {
    "alerts": ("Alerts", "alerts", "alert"),
    "alert rules": ("Alerts", "alerts", "rule"),
    "constraints": ("Constraints", "constraints", "name"),
    "durability classes": ("DurabilityClasses", "durability_classes", "name"),
    "processes": ("Members", "members", "name"),
    "silences": ("Silences", "silences", "silence"),
    "tenants": ("Tenants", "tenants", "name"),
}
"""What a server has one list of: the method `Admin.List...`, the field of its answer, and what names an item."""


def others(what: str) -> Completer:
    """What completes a name of something else that a server lists: see `_OTHERS` and `_OF_SERVER`."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        settings = ctx.find_root().ensure_object(Settings)
        settings.timeout_option = ASK_S
        try:
            with settings.client(patience_s=0.0) as client:
                found = _OTHERS[what](client, settings, ctx) if what in _OTHERS else _of_server(client, what)
        except (SyncpointError, Problem, click.UsageError, OSError):
            return []
        given = ctx.params.get(parameter.name or "") or ()
        return [name for name in dict.fromkeys(found) if name.startswith(incomplete) and name not in given]

    return complete


def _of_server(client: Any, what: str) -> list[str]:
    from syncpoint.wire.protobuf.messages import admin

    method, field, key = _OF_SERVER[what]
    answer = client.call(f"Admin.List{method}", getattr(admin, f"List{method}Request")())
    return [getattr(one, key) for one in getattr(answer, field)]


def roles(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """What completes a role."""
    from syncpoint.catalog.access.roles import ROLES

    return [name for name in ROLES if name.startswith(incomplete)]


def permissions(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """What completes a permission."""
    from syncpoint.catalog.access.roles import ROLES

    return sorted({one for held in ROLES.values() for one in held if one.startswith(incomplete)})


def resources(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """What completes a resource with a policy: `topics/orders`, `project`, `server`."""
    collection, slash, begun = incomplete.partition("/")
    if slash:
        return [f"{collection}/{name}" for name in names(collection)(ctx, parameter, begun)]
    return [name for name in (*(f"{one}/" for one in _SERVICES), "project", "server") if name.startswith(incomplete)]


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
