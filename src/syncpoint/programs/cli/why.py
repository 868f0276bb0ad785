"""`syncpoint why`: why a subscriber gets nothing, and what to do.

Place: calls of the public and the admin interface that look at one subscription; `cli.findings` draws conclusions.
Promise: nothing is delivered, leased or changed. What may not be asked is named.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict
from typing import Any

import click

from syncpoint.base.model.errors import SyncpointError
from syncpoint.front.client.findings import DELETED_TOPIC, HISTORY, Facts, counted_in, findings, history_asked
from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import inform, print_answer
from syncpoint.programs.cli.settings import Settings, with_settings


@click.command()
@click.argument("subscription", shell_complete=names("subscriptions"))
@with_settings
def why(settings: Settings, subscription: str) -> None:
    """Explain why a subscriber gets nothing or not everything: causes with remedies, most likely first.

    \b
    Example:
      syncpoint why billing
    """
    name = settings.name("subscriptions", subscription)
    with settings.client() as client:
        facts = facts_of(client, name, subscription)
    found = findings(facts)
    if print_answer(
        settings.format, {"subscription": name, "findings": [asdict(one) for one in found], "unknown": facts.unknown}
    ):
        return
    for number, one in enumerate(found, 1):
        click.echo(f"{number}. {one.cause}: {one.text}")
        if one.advice:
            click.echo(f"   {one.advice}")
    for missing in facts.unknown:
        inform(f"Unknown: {missing}")


def facts_of(client: Any, name: str, typed: str) -> Facts:
    """Ask for what can be known of a subscription."""
    from syncpoint.wire.protobuf.messages import admin, pubsub

    config = client.call("Subscriber.GetSubscription", pubsub.GetSubscriptionRequest(subscription=name))
    state = client.call("Admin.GetSubscriptionState", admin.GetSubscriptionStateRequest(subscription=name))
    facts = Facts(typed, config, state)
    if not config.detached and config.topic != DELETED_TOPIC:
        rules = _asked(client, "ListRules", admin.ListRulesRequest(subscription=name), facts)
        facts.rules = None if rules is None else len(rules.rules)
        options = _asked(client, "GetTopicOptions", admin.GetTopicOptionsRequest(topic=config.topic), facts)
        facts.send_suspended = None if options is None else options.send_suspended
        for fact, family in HISTORY.items():
            with contextlib.suppress(SyncpointError):  # not everybody keeps history, or may read it
                asked = history_asked(name, family, int(time.time()))
                setattr(facts, fact, counted_in(client.call("Admin.QueryHistory", asked)))
    return facts


def _asked(client: Any, method: str, request: Any, facts: Facts) -> Any:
    """The answer; None where it is refused, which then stands among what is not known."""
    try:
        return client.call(f"Admin.{method}", request)
    except SyncpointError as error:
        facts.unknown.append(f"{method}: {error}")
        return None
