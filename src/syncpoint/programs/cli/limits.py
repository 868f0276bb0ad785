"""`syncpoint limits get|set|reset`: the running server's flow control.

Place: the operator's side of the command line; calls of syncpoint.admin.v1.Admin.
Promise: `set` changes only what is named, and prints the previous value; what concerns every topic or subscriber has
to be asked for by --default. 0 means no bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import inform, print_answer, print_table
from syncpoint.programs.cli.settings import Settings, with_settings

SCOPES = {
    "system": "published and not yet stored, whole server",
    "topic": "published and not yet stored, each topic",
    "subscriber": "outstanding at one subscriber",
}


@click.group(cls=Group)
def limits() -> None:
    """Read and change the server's flow control limits."""


@limits.command()
@with_settings
def get(settings: Settings) -> None:
    """Show the limits in force.

    \b
    Example:
      syncpoint limits get
    """
    from syncpoint.wire.protobuf.messages import admin

    _print(settings.call("Admin.GetLimits", admin.GetLimitsRequest()), settings.format)


_SCOPE = click.argument("scope", type=click.Choice(list(SCOPES)))
_TOPIC = click.option("--topic", metavar="TOPIC", help="With scope topic: an exception for this topic.")
_SUBSCRIPTION = click.option(
    "--subscription", metavar="SUBSCRIPTION", help="With scope subscriber: an exception for this subscription."
)
_DEFAULT = click.option(
    "--default",
    "everywhere",
    is_flag=True,
    help="With scope topic or subscriber: the default for all without an exception.",
)


@limits.command("set")
@_SCOPE
@click.option(
    "--messages", type=click.IntRange(min=0), metavar="N", help="Maximum number of messages; 0 means unlimited."
)
@click.option(
    "--bytes", "size", type=click.IntRange(min=0), metavar="N", help="Maximum number of bytes; 0 means unlimited."
)
@_TOPIC
@_SUBSCRIPTION
@_DEFAULT
@with_settings
def set_limit(
    settings: Settings,
    scope: str,
    messages: int | None,
    size: int | None,
    topic: str | None,
    subscription: str | None,
    everywhere: bool,
) -> None:
    """Change a limit, immediately and across restarts. `limits reset` restores the default.

    \b
    Examples:
      syncpoint limits set system --bytes 200000000
      syncpoint limits set topic --topic orders --messages 5000
      syncpoint limits set topic --default --messages 100000
    """
    name = _meant(settings, scope, topic, subscription, everywhere)
    if messages is None and size is None:
        raise click.UsageError("Give --messages, --bytes or both.")

    def change(limits: Any) -> None:
        limit = getattr(limits, scope)
        if name:
            exceptions = _exceptions(limits, scope)
            if name not in exceptions:  # what is not named stays as it was until now
                exceptions[name].CopyFrom(limit)
            limit = exceptions[name]
        _write(limit, messages, size)

    _change(settings, scope, name, change)


@limits.command()
@_SCOPE
@_TOPIC
@_SUBSCRIPTION
@_DEFAULT
@with_settings
def reset(settings: Settings, scope: str, topic: str | None, subscription: str | None, everywhere: bool) -> None:
    """Remove an exception, or set a limit to a new server's value.

    \b
    Examples:
      syncpoint limits reset topic --topic orders
      syncpoint limits reset topic --default
    """
    from syncpoint.base.model.flow import FlowLimits

    name = _meant(settings, scope, topic, subscription, everywhere)
    first = getattr(FlowLimits(), scope)

    def change(limits: Any) -> None:
        if name:
            exceptions = _exceptions(limits, scope)
            if name in exceptions:
                del exceptions[name]
        else:
            _write(getattr(limits, scope), first.messages, first.bytes)

    _change(settings, scope, name, change)


def _meant(settings: Settings, scope: str, topic: str | None, subscription: str | None, everywhere: bool) -> str:
    """The full name of what an exception is for; empty for a limit itself, which has to be asked for by name."""
    if topic and scope != "topic":
        raise click.UsageError("--topic requires the scope topic.")
    if subscription and scope != "subscriber":
        raise click.UsageError("--subscription requires the scope subscriber.")
    if scope == "system":
        return ""
    option = "--topic" if scope == "topic" else "--subscription"
    if bool(topic or subscription) == everywhere:
        raise click.UsageError(f"Give {option} NAME, or --default for every {scope} without an exception.")
    return "" if everywhere else settings.name(f"{option[2:]}s", topic or subscription or "")


def _exceptions(limits: Any, scope: str) -> Any:
    return limits.topics if scope == "topic" else limits.subscriptions


def _change(settings: Settings, scope: str, name: str, change: Callable[[Any], None]) -> None:
    """Let the server have the changed limits, and say what was before."""
    from syncpoint.wire.protobuf.messages import admin

    with settings.client() as client:
        request = admin.UpdateLimitsRequest(limits=client.call("Admin.GetLimits", admin.GetLimitsRequest()))
        before = _bounds(request.limits, scope, name)
        change(request.limits)
        place = scope if not name else "topics" if scope == "topic" else "subscriptions"
        request.update_mask.paths.append(place)
        changed = client.call("Admin.UpdateLimits", request)
    inform(f"{name or f'Limit {scope}'}: {_bounds(changed, scope, name)}; it was {before}.")
    _print(changed, settings.format)


def _bounds(limits: Any, scope: str, name: str) -> str:
    exceptions = _exceptions(limits, scope)
    limit = exceptions[name] if name and name in exceptions else getattr(limits, scope)
    return f"messages {_bound(limit.messages)}, bytes {_bound(limit.bytes)}"


def _write(limit: Any, messages: int | None, size: int | None) -> None:
    if messages is not None:
        limit.messages = messages
    if size is not None:
        limit.bytes = size


def _print(found: Any, form: str) -> None:
    if print_answer(form, found):
        return
    rows = [_row(scope, getattr(found, scope), what) for scope, what in SCOPES.items()]
    rows += [_row("topic", limit, name) for name, limit in sorted(found.topics.items())]
    rows += [_row("subscriber", limit, name) for name, limit in sorted(found.subscriptions.items())]
    print_table(["SCOPE", "MESSAGES", "BYTES", "APPLIES TO"], rows)


def _row(scope: str, limit: Any, what: str) -> tuple[str, str, str, str]:
    return scope, _bound(limit.messages), _bound(limit.bytes), what


def _bound(number: int) -> str:
    return f"{number:,}" if number else "unlimited"
