"""`syncpoint dead-letters list|show|redrive` and `syncpoint subscriptions dead-letter`.

Place: letters are found, selected and published again by the server; each command is calls of syncpoint.admin.v1, page
by page.
Promise: a redrive that is broken off has acknowledged no letter that was not published again; it goes on when it is
begun again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.dead_letter_redrives import Redrive
from syncpoint.programs.cli.deliveries import ack_ids_option
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import (
    as_dict,
    dig,
    inform,
    print_answer,
    print_fields,
    print_json,
    print_table,
    show,
    without_empty_columns,
)
from syncpoint.programs.cli.resources import ResourceGroup
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.streaming import data_text
from syncpoint.programs.cli.values import TimeType, parse_list, parse_pairs, put_time

COLUMNS = [
    ("REASON", "reason"),
    ("DESCRIPTION", "description"),
    ("SUBSCRIPTION", "source"),
    ("ATTEMPTS", "deliveryAttempts"),
    ("REDRIVES", "redrives"),
    ("LETTER_ID", "message.messageId"),
    ("TIME", "message.publishTime"),
]
PAGE = 100
LETTER_ATTRIBUTES = ("CloudPubSubDeadLetterSource", "sys.DeadLetter", "sys.ForwardHops")
SHOWN = 20  # changes that a dry run shows


@click.group("dead-letters", cls=ResourceGroup)
def dead_letters() -> None:
    """Look at messages that subscriptions gave up, and publish them again."""


def _selection(command: Any) -> Any:
    for option in reversed((
        click.option(
            "--subscription",
            shell_complete=names("subscriptions"),
            metavar="SUB",
            help="Only letters from this subscription.",
        ),
        click.option("--topic", shell_complete=names("topics"), metavar="TOPIC", help="Only letters in this topic."),
        click.option(
            "--letters",
            shell_complete=names("subscriptions"),
            metavar="SUB",
            help="The dead-letter topic's subscription that holds them; required if it has several.",
        ),
        click.option("--reason", default="", metavar="TEXT", help="Only letters with this reason."),
        click.option("--attribute", multiple=True, metavar="KEY=VALUE,...", help="Only letters with these attributes."),
        click.option("--filter", "sql", default="", metavar="SQL", help="Only letters that this SQL filter selects."),
        click.option("--since", type=TimeType(), help="Only letters since this time: 2026-11-21T03:00:00Z, or -10m."),
    )):  # fmt: skip
        command = option(command)
    return command


@dead_letters.command("list")
@_selection
@click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(min=1), help="Maximum number of letters to show."
)
@click.option(
    "--group-by",
    multiple=True,
    metavar="reason|description|subscription|ATTRIBUTE",
    help="Count letters grouped by this field; may be repeated.",
)
@with_settings
def list_letters(settings: Settings, limit: int, group_by: tuple[str, ...], **chosen: Any) -> None:
    """Show waiting dead letters, without delivering or acknowledging them.

    \b
    Examples:
      syncpoint dead-letters list --subscription billing
      syncpoint dead-letters list --subscription billing --group-by reason --group-by description
      syncpoint dead-letters list --topic failed --filter "sys.DeadLetterErrorDescription LIKE '%divides%'"
    """
    with settings.client() as client:
        selection = _selected(settings, client, **chosen)
        if group_by:
            groups = Counter(tuple(_group(one, name) for name in group_by) for one in _letters(client, selection))
            rows = [[*(one or "(none)" for one in group), str(number)] for group, number in groups.most_common()]
            print_answer(
                settings.format,
                [dict(zip(group_by, group, strict=True)) | {"letters": n} for group, n in groups.most_common()],
                [*(name.upper() for name in group_by), "LETTERS"],
                rows,
            )
            return
        found: list[Any] = []
        for one in _letters(client, selection):
            if len(found) == limit:
                inform(f"(there are more; --limit is {limit})")
                break
            found.append(one)
    rows = [[data_text(one.message.data), *[show(dig(as_dict(one), path)) for _, path in COLUMNS]] for one in found]
    print_answer(settings.format, found, *without_empty_columns(["DATA", *[heading for heading, _ in COLUMNS]], rows))


@dead_letters.command("show")
@click.argument("letter_id")
@_selection
@with_settings
def show_letter(settings: Settings, letter_id: str, **chosen: Any) -> None:
    """Show one dead letter in full, by the id that `list` shows.

    \b
    Example:
      syncpoint dead-letters show 776984988569816777216000000000000 --subscription billing
    """
    with settings.client() as client:
        selection = _selected(settings, client, **chosen)
        selection.message_ids.append(letter_id)
        found = next(_letters(client, selection), None)
    if found is None:
        raise Problem(f"Letter not found in [{selection.subscription}]: {letter_id}", exit_code=3)
    value = as_dict(found)
    if print_answer(settings.format, value):
        return
    value["message"]["data"] = data_text(found.message.data)
    print_fields(value)


@dead_letters.command()
@_selection
@click.option("--letter-id", multiple=True, metavar="ID,...", help="Only these letters.")
@click.option(
    "--to-topic",
    shell_complete=names("topics"),
    metavar="TOPIC",
    help="Publish to this topic; the default is the topic of --subscription.",
)
@click.option(
    "--action",
    default="",
    metavar="SQL",
    help="Change attributes, as a rule's action: SET region = 'eu'; REMOVE draft.",
)
@click.option(
    "--data-from",
    "data_file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Replace the data of the letter of --letter-id by FILE (-: standard input).",
)
@click.option(
    "--map",
    "command",
    default="",
    metavar="COMMAND",
    help="Replace each letter's data by the output of COMMAND, which runs here, without a shell, with the data on "
    "standard input.",
)
@click.option("--dry-run", is_flag=True, help="Dry run: show which letters would be published, and what would change.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="Maximum letters per second.")
@with_settings
def redrive(
    settings: Settings,
    letter_id: tuple[str, ...],
    to_topic: str | None,
    action: str,
    data_file: Path | None,
    command: str,
    dry_run: bool,
    rate: float | None,
    **chosen: Any,
) -> None:
    """Publish dead letters to their topic of origin again, and acknowledge each letter once its copy is persisted.

    All subscriptions of the topic receive them. Letters that arrive during the redrive are left alone. After an
    interruption, run it again to continue; letters in flight at that moment may be published twice.

    \b
    Examples:
      syncpoint dead-letters redrive --subscription billing --reason MaxDeliveryCountExceeded --dry-run
      syncpoint dead-letters redrive --subscription billing --attribute region=eu --rate 50
      syncpoint dead-letters redrive --subscription billing --filter "parts = 0" --action "SET parts = 1" --dry-run
      syncpoint dead-letters redrive --subscription billing --map "jq -c .amount=(.amount|tonumber)" --dry-run
    """
    from syncpoint.wire.protobuf.messages import admin

    request = admin.RedriveDeadLettersRequest(dry_run=dry_run, action=action)
    request.page_size = PAGE if rate is None else max(1, min(PAGE, int(rate)))
    if to_topic:
        request.topic = settings.name("topics", to_topic)
    elif not chosen["subscription"]:
        raise click.UsageError("Give --subscription, to publish to its topic, or --to-topic.")
    if data_file and (command or len(parse_list(letter_id)) != 1):
        raise click.UsageError("--data-from applies to one letter: give --letter-id, and no --map.")
    reasons: Counter[str] = Counter()
    changes: list[tuple[str, str]] = []
    redriven = 0
    with settings.client() as client:
        request.selection.CopyFrom(_selected(settings, client, **chosen))
        request.selection.message_ids.extend(parse_list(letter_id))
        if data_file:
            with click.open_file(str(data_file), "rb") as file:
                request.data[parse_list(letter_id)[0]] = file.read()
        work = Redrive(client, request, rate)
        for answer in work.mapped(command) if command else work.plain():
            reasons.update(one.reason or "(none)" for one in answer.letters)
            redriven += answer.redriven
            changes += [
                (letter.message.message_id, _changed(letter.message, one))
                for letter, one in zip(answer.letters, answer.published, strict=False)
            ]
    failures, topic = work.failures, work.topic
    if settings.format == "json":
        print_json(
            {"topic": topic, "letters": dict(reasons), "redriven": redriven, "failures": failures}
            | ({"changes": [dict(zip(("letterId", "changed"), one, strict=True)) for one in changes]} if action else {})
            | ({"data": [one.as_json() for one in work.edits]} if command and dry_run else {})
        )
    elif dry_run:
        print_table(["REASON", "LETTERS"], [[reason, str(number)] for reason, number in reasons.most_common()])
        if action:
            click.echo()
            print_table(["LETTER_ID", "CHANGED"], changes[:SHOWN])
        if command:
            click.echo()
            rows = [[one.letter_id, data_text(one.before), data_text(one.after)] for one in work.edits[:SHOWN]]
            print_table(["LETTER_ID", "DATA", "NEW DATA"], rows)
        inform(f"Would redrive {counted(reasons.total(), 'letter')} to [{topic}].")
    else:
        inform(f"Redrove {counted(redriven, 'letter')} to [{topic}].")
    if failures:
        raise Problem(
            "; ".join(failures) + "\nLetters that were not published still wait: run the command again to continue."
        )


@click.command("dead-letter")
@click.argument("subscription", shell_complete=names("subscriptions"))
@ack_ids_option
@click.option("--reason", required=True, metavar="TEXT", help="The reason, in a word.")
@click.option("--description", default="", metavar="TEXT", help="A longer description of the reason.")
@with_settings
def dead_letter(settings: Settings, subscription: str, ack_ids: tuple[str, ...], reason: str, description: str) -> None:
    """Move received messages that cannot be processed to the dead-letter topic.

    \b
    Example:
      syncpoint subscriptions dead-letter billing --ack-ids ID --reason NoSuchCustomer --description "customer 7"
    """
    from syncpoint.wire.protobuf.messages import admin

    request = admin.DeadLetterMessagesRequest(
        subscription=settings.name("subscriptions", subscription),
        ack_ids=parse_list(ack_ids),
        reason=reason,
        description=description,
    )
    answer = settings.call("Admin.DeadLetterMessages", request)
    inform(
        f"Moved {counted(answer.moved, 'message')} of subscription [{request.subscription}] to its dead-letter topic."
    )
    print_answer(settings.format, answer)
    if answer.failures:
        raise Problem("\n".join(f"{one.ack_id}: {one.reason}" for one in answer.failures))


def _selected(
    settings: Settings,
    client: Any,
    *,
    subscription: str | None,
    topic: str | None,
    letters: str | None,
    reason: str,
    attribute: tuple[str, ...],
    sql: str,
    since: datetime | None,
) -> Any:
    from syncpoint.wire.protobuf.messages import admin

    source = settings.name("subscriptions", subscription) if subscription else ""
    parts = [f"({sql})"] if sql else []
    parts += [f"{_bracketed(name)} = {_quoted(value)}" for name, value in parse_pairs(attribute, "--attribute").items()]
    selection = admin.DeadLetterSelection(source=source, reason=reason, filter=" AND ".join(parts))
    if since is not None:
        put_time(selection.start_time, since)
    if letters:
        selection.subscription = settings.name("subscriptions", letters)
    else:
        selection.subscription = _only_subscription(client, settings, source, topic)
    return selection


def _only_subscription(client: Any, settings: Settings, source: str, topic: str | None) -> str:
    """The one subscription of the dead-letter topic."""
    from syncpoint.wire.protobuf.messages import pubsub

    if topic:
        name = settings.name("topics", topic)
    elif source:
        about = pubsub.GetSubscriptionRequest(subscription=source)
        name = client.call("Subscriber.GetSubscription", about).dead_letter_policy.dead_letter_topic
        if not name:
            raise Problem(f"[{source}] has no dead-letter topic: give --topic or --letters.")
    else:
        raise click.UsageError("Give --subscription, --topic or --letters.")
    request = pubsub.ListTopicSubscriptionsRequest(topic=name, page_size=100)
    found = list(client.call("Publisher.ListTopicSubscriptions", request).subscriptions)
    if not found:
        raise Problem(f"[{name}] has no subscription, so nothing keeps its letters: create one.")
    if len(found) > 1:
        raise Problem(f"[{name}] has several subscriptions; choose with --letters: {', '.join(sorted(found))}")
    return str(found[0])


def _letters(client: Any, selection: Any) -> Iterator[Any]:
    from syncpoint.wire.protobuf.messages import admin

    request = admin.ListDeadLettersRequest(selection=selection, page_size=1000)
    unknown: dict[str, None] = {}
    more = True
    while more:
        answer = client.call("Admin.ListDeadLetters", request)
        unknown |= dict.fromkeys(answer.unknown)
        yield from answer.letters
        request.page_token, more = answer.next_page_token, bool(answer.next_page_token)
    for one in unknown:
        inform(f"Not shown: {one}")


def _group(letter: Any, name: str) -> str:
    """What a letter is counted by."""
    if name == "reason":
        return str(letter.reason)
    if name == "description":
        return str(letter.description)
    if name == "subscription":
        return str(letter.source)
    return str(letter.message.attributes.get(name, ""))


def _changed(letter: Any, published: Any) -> str:
    """What an action changes of a letter's attributes, beside those that a letter has."""
    if not published.attributes:
        return "the action failed"
    before, after = letter.attributes, published.attributes
    changed = [
        f"{key}={after[key]}"
        for key in sorted(after)
        if not key.startswith("sys.Redr") and before.get(key) != after[key]
    ]
    gone = [key for key in sorted(before) if key not in after and not key.startswith(LETTER_ATTRIBUTES)]
    return ", ".join([*changed, *(f"{key} removed" for key in gone)]) or "nothing"


def _bracketed(name: str) -> str:
    return name if name.lower().startswith("sys.") else f"[{name.replace(']', ']]')}]"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
