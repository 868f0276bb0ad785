"""`syncpoint subscriptions pull|ack|modify-message-ack-deadline|seek`: what is done with a subscription's messages.

Place: the end of a message's way to a person; each command is a call of google.pubsub.v1.Subscriber.
Promise: `pull --auto-ack` acknowledges only after the messages were printed, so an interrupted one loses nothing;
`--follow`, too.
"""

from __future__ import annotations

import math
import sys
import time
from datetime import datetime
from typing import Any

import click

from syncpoint.base.model.durations import written
from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import as_dict, dig, inform, print_answer, print_table, show, without_empty_columns
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.streaming import Interruption, Lines, data_text, follow, format_option
from syncpoint.programs.cli.values import SecondsType, TimeType, parse_list, put_time

COLUMNS = [
    ("MESSAGE_ID", "message.messageId"),
    ("ORDERING_KEY", "message.orderingKey"),
    ("ATTRIBUTES", "message.attributes"),
    ("PUBLISH_TIME", "message.publishTime"),
    ("DELIVERY_ATTEMPT", "deliveryAttempt"),
]

PULL_MAX = 1_000
WAIT_S_MIN = 0.1
"""A wait shorter than this is not worth a call."""

ack_ids_option = click.option(
    "--ack-ids", multiple=True, required=True, metavar="ID,...", help="An ACK_ID that `pull` printed."
)


@click.command()
@click.argument("subscription", shell_complete=names("subscriptions"))
@click.option(
    "--limit", type=click.IntRange(min=1), help="Maximum number of messages to receive [1; with --follow, any number]."
)
@click.option("--auto-ack", is_flag=True, help="Acknowledge the messages after printing them.")
@click.option("--wait", is_flag=True, help="Wait for a message; with --timeout, for LIMIT messages, at most that long.")
@click.option(
    "--follow",
    "following",
    is_flag=True,
    help="Print messages as they come, until Ctrl-C or, with --timeout, for that long. "
    "Without --auto-ack they are held until then, and returned.",
)
@with_settings
@format_option
def pull(settings: Settings, subscription: str, limit: int | None, auto_ack: bool, wait: bool, following: bool) -> None:
    """Receive messages of a subscription. Unacknowledged messages are redelivered after their deadline.

    \b
    Examples:
      syncpoint subscriptions pull billing --auto-ack --limit 10
      syncpoint subscriptions pull billing --wait --timeout 20
      syncpoint subscriptions pull billing --format json
      syncpoint subscriptions pull billing --follow --auto-ack --format lines
    """
    from syncpoint.wire.protobuf.messages import pubsub

    name = settings.name("subscriptions", subscription)
    if following:
        with Interruption() as interruption, settings.client() as client:
            # A wrong name, or no server, is reported here; later, connections that are lost are made anew.
            client.call("Subscriber.GetSubscription", pubsub.GetSubscriptionRequest(subscription=name))
            inform(f"Following subscription [{name}]; Ctrl-C ends it.")
            lines = Lines(settings.format, with_ack_ids=not auto_ack)
            follow(settings, name, interruption, lines, messages=limit or math.inf, acknowledge=auto_ack)
        return
    if (limit or 1) > PULL_MAX:
        raise click.BadParameter(f"at most {PULL_MAX:,} without --follow", param_hint="--limit")
    request = pubsub.PullRequest(subscription=name, max_messages=limit or 1, return_immediately=not wait)
    with settings.client() as client:
        if wait:
            received = _receive(client, request, settings.timeout_option)
        else:
            received = list(client.call("Subscriber.Pull", request).received_messages)
        _print(received, settings.format, with_ack_ids=not auto_ack)
        sys.stdout.flush()
        if auto_ack and received:
            ack_ids = [one.ack_id for one in received]
            client.call("Subscriber.Acknowledge", pubsub.AcknowledgeRequest(subscription=name, ack_ids=ack_ids))


def _receive(client: Any, request: Any, wait_s: float | None) -> list[Any]:
    """Pull until something comes (`wait_s` None), or until there are as many as were asked for or `wait_s` seconds have
    passed: one answer of a server may hold fewer than wait.
    """
    if wait_s is None:
        answer = client.call("Subscriber.Pull", request)
        while not answer.received_messages:
            answer = client.call("Subscriber.Pull", request)
        return list(answer.received_messages)
    end = time.monotonic() + wait_s
    wanted = request.max_messages
    held = _HeldMessages(client, request.subscription)
    held.add(client.call("Subscriber.Pull", request, timeout_s=wait_s))
    bound = math.inf
    # The server answers a little before a call's time is over; what is left is spent on another call.
    while len(held.messages) < wanted and (left := end - time.monotonic()) > WAIT_S_MIN:
        request.max_messages = wanted - len(held.messages)
        try:
            bound = held.keep()
            held.add(client.call("Subscriber.Pull", request, timeout_s=min(left, bound)))
        except SyncpointError as error:
            if error.code is Code.DEADLINE_EXCEEDED and bound < left:
                continue
            if error.code is not Code.DEADLINE_EXCEEDED and not held.messages:
                raise  # what was received is leased by now: it is shown first
            break
    return list(held.messages.values())


class _HeldMessages:
    """What was received while more is waited for. Its deadlines are extended, so that it is delivered to nobody else,
    and uses up no attempts, before it is shown; should it come again all the same, its newest ack id counts.
    """

    def __init__(self, client: Any, subscription: str) -> None:
        self._client, self._subscription = client, subscription
        self.messages: dict[str, Any] = {}
        self._deadline_s = 0
        self._fresh_at = 0.0  # no deadline began before

    def add(self, answer: Any) -> None:
        if not self.messages:
            self._fresh_at = time.monotonic()
        for one in answer.received_messages:
            self.messages[one.message.message_id] = one

    def keep(self) -> float:
        """Extend the deadlines where a quarter has passed. Returns for how long nobody need do it again: until then
        another quarter is left. Raises `SyncpointError`.
        """
        from syncpoint.wire.protobuf.messages import pubsub

        if not self.messages:
            return math.inf
        if not self._deadline_s:
            about = pubsub.GetSubscriptionRequest(subscription=self._subscription)
            self._deadline_s = self._client.call("Subscriber.GetSubscription", about).ack_deadline_seconds
        now = time.monotonic()
        if now - self._fresh_at >= self._deadline_s / 4:
            request = pubsub.ModifyAckDeadlineRequest(
                subscription=self._subscription,
                ack_ids=[one.ack_id for one in self.messages.values()],
                ack_deadline_seconds=self._deadline_s,
            )
            self._client.call("Subscriber.ModifyAckDeadline", request)
            self._fresh_at = now
        return self._deadline_s / 2


@click.command()
@click.argument("subscription", shell_complete=names("subscriptions"))
@ack_ids_option
@with_settings
def ack(settings: Settings, subscription: str, ack_ids: tuple[str, ...]) -> None:
    """Acknowledge messages, so that they are not redelivered.

    \b
    Example:
      syncpoint subscriptions ack billing --ack-ids ID-1,ID-2
    """
    from syncpoint.wire.protobuf.messages import pubsub

    name, ids = settings.name("subscriptions", subscription), parse_list(ack_ids)
    settings.call("Subscriber.Acknowledge", pubsub.AcknowledgeRequest(subscription=name, ack_ids=ids))
    inform(f"Acknowledged {counted(len(ids), 'message')} of subscription [{name}].")


@click.command("modify-message-ack-deadline")
@click.argument("subscription", shell_complete=names("subscriptions"))
@ack_ids_option
@click.option(
    "--ack-deadline",
    required=True,
    type=SecondsType(whole=True),
    help="The new deadline, from now; 0 returns the message immediately.",
)
@with_settings
def modify_ack_deadline(settings: Settings, subscription: str, ack_ids: tuple[str, ...], ack_deadline: int) -> None:
    """Extend the deadline of messages, or return them (0 seconds).

    \b
    Examples:
      syncpoint subscriptions modify-message-ack-deadline billing --ack-ids ID-1,ID-2 --ack-deadline 5m
      syncpoint subscriptions modify-message-ack-deadline billing --ack-ids ID-1 --ack-deadline 0
    """
    from syncpoint.wire.protobuf.messages import pubsub

    name, ids = settings.name("subscriptions", subscription), parse_list(ack_ids)
    request = pubsub.ModifyAckDeadlineRequest(subscription=name, ack_ids=ids, ack_deadline_seconds=ack_deadline)
    settings.call("Subscriber.ModifyAckDeadline", request)
    inform(f"Set the deadline of {counted(len(ids), 'message')} of subscription [{name}] to {written(ack_deadline)}.")


@click.command()
@click.argument("subscription", shell_complete=names("subscriptions"))
@click.option("--time", "moment", type=TimeType(), help="2026-11-21T03:00:00Z, -10m (ten minutes ago), or now.")
@click.option(
    "--snapshot",
    shell_complete=names("snapshots"),
    metavar="SNAPSHOT",
    help="Restore the acknowledgement state of this snapshot.",
)
@click.option("--dry-run", is_flag=True, help="Dry run: count the messages that would be redelivered.")
@with_settings
def seek(settings: Settings, subscription: str, moment: datetime | None, snapshot: str | None, dry_run: bool) -> None:
    """Move a subscription back (or forward) to a time or a snapshot.

    Messages published before the time count as acknowledged, messages after it as unacknowledged; acknowledged messages
    are redelivered only if they are still stored (--retain-acked-messages, or the topic's retention).

    With --dry-run the exit code is 2 if some information is missing.

    \b
    Examples:
      syncpoint subscriptions seek billing --time -1h --dry-run
      syncpoint subscriptions seek billing --time -1h
      syncpoint subscriptions seek billing --snapshot before-deploy
    """
    from syncpoint.wire.protobuf.messages import admin, pubsub

    if (moment is None) == (snapshot is None):
        raise click.UsageError("Give either --time or --snapshot.")
    name = settings.name("subscriptions", subscription)
    request = admin.PreviewSeekRequest(subscription=name) if dry_run else pubsub.SeekRequest(subscription=name)
    if moment is not None:
        put_time(request.time, moment)
        target = f"time {moment.isoformat()}"
    else:
        request.snapshot = settings.name("snapshots", snapshot or "")
        target = f"snapshot [{request.snapshot}]"
    with settings.client() as client:
        if not dry_run:
            client.call("Subscriber.Seek", request)
            inform(f"Moved subscription [{name}] to {target}.")
            return
        found = client.call("Admin.PreviewSeek", request)
    if not print_answer(settings.format, found):
        _print_preview(found, f"subscription [{name}] to {target}")
    for one in found.unknown:
        inform(f"Unknown, there may be more: {one}.")
    if found.unknown:
        raise click.exceptions.Exit(2)


def _print_preview(found: Any, what: str) -> None:
    least = "at least " if found.unknown else ""
    waiting, back, gone = found.backlog_messages, found.returning_messages, found.acknowledged_messages
    inform(f"Nothing was moved. Moving {what} now would have these effects:")
    inform(f"  {least}{counted(back, 'acknowledged message')} would be redelivered,")
    inform(f"  {least}{gone:,} of {waiting:,} unacknowledged now would count as acknowledged,")
    inform(f"  {least}{counted(waiting + back - gone, 'message')} would then be unacknowledged.")


def _print(received: Any, form: str, with_ack_ids: bool) -> None:
    if form == "lines":
        lines = Lines(form, with_ack_ids=with_ack_ids)
        click.echo(b"".join(lines.of(one) for one in received), nl=False)
        return
    if print_answer(form, received):
        return
    headings = ["DATA", *[heading for heading, _ in COLUMNS], "ACK_ID"]
    rows = []
    for one in received:
        value = as_dict(one)
        row = [data_text(one.message.data), *[show(dig(value, path)) for _, path in COLUMNS]]
        rows.append([*row, one.ack_id if with_ack_ids else ""])
    # What is acknowledged does not come again: all of it is shown.
    print_table(*without_empty_columns(headings, rows), whole=not with_ack_ids)
