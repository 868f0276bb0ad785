"""`syncpoint limits get|set`: the running server's flow control.

Place: the operator's side of the command line; calls of syncpoint.admin.v1.Admin.
Promise: `set` changes what is named and nothing else; 0 means no bound.
"""

from __future__ import annotations

from typing import Any

import click

from syncpoint.cli.output import print_message, print_table, said
from syncpoint.cli.settings import Settings, with_settings

SCOPES = {
    "system": "published and not yet stored, whole server",
    "topic": "the same, each topic",
    "subscriber": "outstanding at one subscriber",
}


@click.group()
def limits() -> None:
    """Read and change the server's flow control limits."""


@limits.command()
@with_settings
def get(settings: Settings) -> None:
    """Show the limits in force."""
    from syncpoint.wire.messages import admin

    with settings.client() as client:
        _print(client.call("Admin.GetLimits", admin.GetLimitsRequest()), settings.format)


@limits.command("set")
@click.argument("scope", type=click.Choice(list(SCOPES)))
@click.option("--messages", type=click.IntRange(min=0), metavar="N", help="Bound on messages; 0: none.")
@click.option("--bytes", "size", type=click.IntRange(min=0), metavar="N", help="Bound on bytes; 0: none.")
@click.option("--topic", metavar="TOPIC", help="With scope topic: an exception for this one.")
@click.option("--subscription", metavar="SUBSCRIPTION", help="With scope subscriber: an exception for this one.")
@click.option("--clear", is_flag=True, help="With --topic or --subscription: take the exception away.")
@with_settings
def set_limit(
    settings: Settings,
    scope: str,
    messages: int | None,
    size: int | None,
    topic: str | None,
    subscription: str | None,
    clear: bool,
) -> None:
    """Change a limit; it holds at once and over restarts.

    \b
    Examples:
      syncpoint limits set system --bytes 200000000
      syncpoint limits set topic --topic orders --messages 5000
      syncpoint limits set topic --topic orders --clear
    """
    from syncpoint.wire.messages import admin

    _check(scope, messages, size, topic, subscription, clear)
    with settings.client() as client:
        request = admin.UpdateLimitsRequest(limits=client.call("Admin.GetLimits", admin.GetLimitsRequest()))
        if topic or subscription:
            place = "topics" if topic else "subscriptions"
            name = settings.name(place, topic or subscription or "")
            exceptions = getattr(request.limits, place)
            if clear:
                if name in exceptions:
                    del exceptions[name]
            else:
                if name not in exceptions:  # what is not named stays as it was until now
                    exceptions[name].CopyFrom(getattr(request.limits, scope))
                _write(exceptions[name], messages, size)
        else:
            place = scope
            _write(getattr(request.limits, scope), messages, size)
        request.update_mask.paths.append(place)
        changed = client.call("Admin.UpdateLimits", request)
    said("Updated the limits.")
    _print(changed, settings.format)


def _check(
    scope: str, messages: int | None, size: int | None, topic: str | None, subscription: str | None, clear: bool
) -> None:
    if topic and scope != "topic":
        raise click.UsageError("--topic belongs to the scope topic.")
    if subscription and scope != "subscriber":
        raise click.UsageError("--subscription belongs to the scope subscriber.")
    if clear and not (topic or subscription):
        raise click.UsageError("--clear needs --topic or --subscription.")
    if clear != (messages is None and size is None):
        raise click.UsageError("Give --messages, --bytes or both; or --clear alone.")


def _write(limit: Any, messages: int | None, size: int | None) -> None:
    if messages is not None:
        limit.messages = messages
    if size is not None:
        limit.bytes = size


def _print(found: Any, form: str) -> None:
    if form == "json":
        print_message(found, "json")
        return
    rows = [_row(scope, getattr(found, scope), what) for scope, what in SCOPES.items()]
    rows += [_row("topic", limit, name) for name, limit in sorted(found.topics.items())]
    rows += [_row("subscriber", limit, name) for name, limit in sorted(found.subscriptions.items())]
    print_table(["SCOPE", "MESSAGES", "BYTES", "APPLIES TO"], rows)


def _row(scope: str, limit: Any, what: str) -> tuple[str, str, str, str]:
    return scope, _bound(limit.messages), _bound(limit.bytes), what


def _bound(number: int) -> str:
    return f"{number:,}" if number else "no bound"
