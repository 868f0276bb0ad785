"""`syncpoint tail TOPIC`: what is published to a topic, as it comes.

Place: under the root; a subscription of its own, which is deleted at the end. Where the program is killed before, the
server deletes it once nobody has used it for a day.
Promise: nobody else's messages are touched, and nothing that is published after the start is left out.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from syncpoint.base.model.errors import NotFound, SyncpointError
from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import inform
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.streaming import Interruption, Lines, follow, format_option, write_out
from syncpoint.programs.cli.values import TimeType, put_time

DAY_S = 86_400
LAST_MAX = 1_000
SPAN_MAX = 10_000
"""Offsets that are read at once, where few messages match a filter."""


@click.command()
@click.argument("topic", shell_complete=names("topics"))
@click.option(
    "--from",
    "since",
    type=TimeType(ago=True),
    help="Begin with messages published since: 10m, or 2026-11-21T03:00:00Z.",
)
@click.option("--last", type=click.IntRange(1, LAST_MAX), help="Begin with this many messages that are stored.")
@click.option(
    "--filter", "--message-filter", "message_filter", default="", metavar="FILTER",
    help="Only messages whose attributes match, as in `subscriptions create --message-filter`.",
)  # fmt: skip
@click.option("--sql", metavar="SQL", help="Only messages that a rule selects, as in `rules create --filter`.")
@click.option("--count", type=click.IntRange(min=1), help="End after this many messages.")
@with_settings
@format_option
def tail(
    settings: Settings,
    topic: str,
    since: datetime | None,
    last: int | None,
    message_filter: str,
    sql: str | None,
    count: int | None,
) -> None:
    """Print what is published to a topic from now on, until Ctrl-C, for --count messages or for --timeout seconds.
    Subscribers get all messages all the same.

    --from and --last show what is stored: all messages of a topic with a retention, else those that a subscription
    still needs.

    \b
    Examples:
      syncpoint tail orders
      syncpoint tail orders --last 10 --filter 'attributes.region = "eu"'
      syncpoint tail orders --from 1h --sql "total > 100" --format json
      syncpoint tail orders --count 1 --format lines | jq .
    """
    from syncpoint.wire.protobuf.messages import admin, pubsub

    if since is not None and last is not None:
        raise click.UsageError("Give --from or --last, not both.")
    if sql is not None and message_filter:
        raise click.UsageError("Give --filter or --sql, not both.")
    source, name = settings.name("topics", topic), settings.name("subscriptions", f"tail-{secrets.token_hex(4)}")
    selects = _selecting(sql)
    made = pubsub.Subscription(name=name, topic=source, filter=message_filter)
    made.expiration_policy.ttl.seconds = made.message_retention_duration.seconds = _kept_s(since)
    with Interruption() as interruption, settings.client() as client:
        client.call("Subscriber.CreateSubscription", made)
        try:
            if sql is not None:
                _select(client, name, sql)
            shown: list[Any] = []
            if since is not None:
                request = pubsub.SeekRequest(subscription=name)
                put_time(request.time, since)
                client.call("Subscriber.Seek", request)
            elif last is not None:
                peek = admin.PeekTopicRequest(topic=source, filter=message_filter, page_size=1_000)
                shown = _last(client, peek, last, selects)[: count or LAST_MAX]
            inform(f"Tailing topic [{source}]; Ctrl-C ends it.")
            lines = Lines(settings.format, with_ack_ids=False)
            asyncio.run(write_out(b"".join(lines.of(pubsub.ReceivedMessage(message=one)) for one in shown)))
            left = math.inf if count is None else count - len(shown)
            if left:
                skip = {one.message_id for one in shown}
                follow(settings, name, interruption, lines, messages=left, skip=skip)
        except KeyboardInterrupt:
            pass
        finally:
            _delete(client, name)


def _kept_s(since: datetime | None) -> int:
    """How long the subscription keeps messages, and lives unused: a day more than what is wished for."""
    age = timedelta() if since is None else max(datetime.now(UTC) - since, timedelta())
    return min(DAY_S + math.ceil(age.total_seconds()), 31 * DAY_S)


def _delete(client: Any, name: str) -> None:
    from syncpoint.wire.protobuf.messages import pubsub

    try:
        client.call("Subscriber.DeleteSubscription", pubsub.DeleteSubscriptionRequest(subscription=name))
    except NotFound:
        return
    except SyncpointError as error:
        inform(f"Subscription [{name}] is left, and expires unless it is deleted before: {error.message}")


def _select(client: Any, subscription: str, sql: str) -> None:
    """Let the subscription's messages, also those that wait already, be selected by this rule alone."""
    from syncpoint.wire.protobuf.messages import admin

    every = admin.RuleScope.Value("ALL_MESSAGES")
    rule = admin.Rule(name="tail", sql=sql)
    client.call("Admin.CreateRule", admin.CreateRuleRequest(subscription=subscription, rule=rule, scope=every))
    client.call("Admin.DeleteRule", admin.DeleteRuleRequest(subscription=subscription, name="$Default", scope=every))


def _selecting(sql: str | None) -> Callable[[Any], bool]:
    """Whether a rule selects a message. Raises `SyncpointError` where it is not one."""
    if sql is None:
        return lambda message: True
    from syncpoint.front.api.rule_admin import checked, tried
    from syncpoint.wire.protobuf.messages import admin

    rule = checked(admin.Rule(name="tail", sql=sql))
    return lambda message: bool(tried([rule], message, {}, explain=False).selected)


def _last(client: Any, peek: Any, count: int, selects: Callable[[Any], bool]) -> list[Any]:
    """The newest stored messages that match, oldest first. Each source is read from its end, in ever larger spans."""
    from syncpoint.wire.protobuf.messages import admin

    found: list[Any] = []
    for source in client.call("Admin.GetTopicState", admin.GetTopicStateRequest(topic=peek.topic)).sources:
        end, span, newest = source.next_offset, count, list[Any]()
        while end > source.first_offset and len(newest) < count:
            begin = max(source.first_offset, end - span)
            newest = [one for one in _span(client, peek, source.source, begin, end) if selects(one)] + newest
            end, span = begin, min(8 * span, SPAN_MAX)
        found += newest
    return sorted(found, key=lambda one: one.publish_time.ToNanoseconds())[-count:]


def _span(client: Any, peek: Any, source: int, begin: int, end: int) -> Iterator[Any]:
    """Messages of a source from `begin` to before `end`."""
    from syncpoint.base.model.identity import UNIVERSE_MIN, format_message_id

    peek.message_id, peek.page_token = format_message_id(UNIVERSE_MIN, source, begin), ""  # of any universe
    for one in client.pages("Admin.PeekTopic", peek, "messages"):
        if one.offset >= end:
            return
        yield one.message
