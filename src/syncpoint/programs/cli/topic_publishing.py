"""`syncpoint topics publish`: one message, lines of a file or pipe, or copies made from a template.

Place: under `topics`; one message is a call, many are batches of `syncpoint.client`, one after the other, so that they
keep their order. Promises: what is read from a pipe is published as it comes; where that ends early, the first line
that is not published is named. UNAVAILABLE is tried again, so a message may be stored twice, as with every client.
"""

from __future__ import annotations

import base64
import difflib
import json
import logging
import random
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from syncpoint.base.model.limits import PUBLISH_REQUEST_BYTES_MAX
from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import inform, print_answer, progress_bar
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.values import DurationType, TimeType, parse_pairs

if TYPE_CHECKING:
    from syncpoint.client import BulkPublishError, OutgoingMessage

BATCH_MESSAGES = 1_000
CHUNK_BYTES = 1 << 18
PACED_S = 0.1
"""With a rate, a request has what is due in this time."""
PATIENCE_S = (2.0, 30.0)
"""How long a call that failed is made again: at one address, and where there are several."""

TEMPLATES: dict[str, Callable[[int], str]] = {
    "n": str,
    "time": lambda n: datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    "uuid": lambda n: str(uuid.uuid4()),
    "random": lambda n: str(random.randrange(1_000_000)),
}
_TEMPLATE = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")

_STANDARD = str.maketrans("-_", "+/")

Numbered = tuple[int, "OutgoingMessage"]
"""A message, and the number of its line, from 1."""
Reader = Callable[[int, bytes, "OutgoingMessage"], "OutgoingMessage"]
"""What makes a message of a line, its number and what is common to all messages."""


@click.command()
@click.argument("topic", shell_complete=names("topics"))
@click.argument("text", required=False)
@click.option("--message", metavar="TEXT", help="The data, as TEXT; `-` reads it from standard input.")
@click.option("--lines", is_flag=True, help="Publish each line of standard input as a message; skips empty lines.")
@click.option(
    "--json-lines",
    is_flag=True,
    help='As --lines, for messages in JSON: {"data": "aGVsbG8=", "attributes": {"a": "1"}, "orderingKey": "k"}. '
    "Takes what `tail --format json` prints.",
)
@click.option("--file", type=click.File("rb"), help="Read lines from this file.")
@click.option("--count", type=click.IntRange(min=1), help="Publish this many messages, and replace {{n}} and so on.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Messages per second, at most.")
@click.option("--attribute", "attributes", multiple=True, metavar="KEY=VALUE,...", help="Attributes of the message.")
@click.option(
    "--ordering-key", default="", metavar="KEY", help="Ordering key; messages with the same key are delivered in order."
)
@click.option("--ttl", type=DurationType(), help="The message's time to live; sets sys.TimeToLive.")
@click.option(
    "--at",
    type=TimeType(),
    help="Publish at this time, such as 2026-11-21T03:00:00Z; sets sys.ScheduledEnqueueTimeUtc.",
)
@click.option("--in", "after", type=DurationType(), help="Publish after this delay.")
@with_settings
def publish(
    settings: Settings,
    topic: str,
    text: str | None,
    message: str | None,
    lines: bool,
    json_lines: bool,
    file: BinaryIO | None,
    count: int | None,
    rate: float | None,
    attributes: tuple[str, ...],
    ordering_key: str,
    **when: Any,
) -> None:
    """Publish a message and print its id, or many and print their number.

    The id is printed once the message is stored. With the id you can cancel a scheduled message: see `syncpoint
    scheduled`.

    With --count, in the text, in values of attributes and in the ordering key, {{n}} is the number of the message from
    1, {{time}} the time, {{uuid}} a new UUID and {{random}} a number below 1,000,000; each is the same throughout a
    message.

    \b
    Examples:
      syncpoint topics publish orders '{"id": 1}' --attribute region=eu,kind=new
      syncpoint topics publish orders --message - <order.json
      syncpoint topics publish orders reminder --in 5m
      syncpoint topics publish orders 'order {{n}}' --count 1000 --rate 50 --ordering-key 'customer-{{random}}'
      tail -f app.log | syncpoint topics publish logs --lines
      syncpoint tail orders --last 100 --count 100 --format json | syncpoint topics publish copies --json-lines
    """
    if text is not None and message is not None:
        raise click.UsageError("Give the message once: TEXT or --message.")
    text = message if text is None else text
    pairs = parse_pairs(attributes, "--attribute") | _times(**when)
    name = settings.name("topics", topic)
    if lines or json_lines:
        from syncpoint.client import OutgoingMessage

        if lines and json_lines:
            raise click.UsageError("Give --lines or --json-lines, not both.")
        if text is not None or count is not None:
            raise click.UsageError("With --lines and --json-lines, data are read: give neither TEXT nor --count.")
        common = OutgoingMessage(b"", ordering_key, pairs)
        read: Reader = _from_json if json_lines else _from_line
        source = _messages(file or sys.stdin.buffer, read, common)
        _publish_all(settings, name, source, rate, "line")
        return
    if file is not None:
        raise click.UsageError("--file needs --lines or --json-lines; `--message - <FILE` publishes it as one message.")
    if text is None and not pairs:
        raise click.UsageError("Give the message as TEXT or --message, or --attribute, or both.")
    if count is not None:
        given = [text or "", ordering_key, *pairs.values()]
        _check_templates(given)
        if text == "-":
            raise click.UsageError("With --count, give the data as TEXT.")
        made = ((number, _made(number, text or "", pairs, ordering_key)) for number in range(1, count + 1))
        _publish_all(settings, name, [made], rate, "message", count)
        return
    if rate is not None:
        raise click.UsageError("--rate needs --count, --lines or --json-lines.")
    from syncpoint.wire.protobuf.messages import pubsub

    data = sys.stdin.buffer.read() if text == "-" else (text or "").encode()
    one = pubsub.PubsubMessage(data=data, attributes=pairs, ordering_key=ordering_key)
    answer = settings.call("Publisher.Publish", pubsub.PublishRequest(topic=name, messages=[one]))
    print_answer(settings.format, answer, ["MESSAGE_ID"], [[text] for text in answer.message_ids])


def _times(ttl: tuple[int, int] | None, at: datetime | None, after: tuple[int, int] | None) -> dict[str, str]:
    """The attributes that say how long a message lives, and when it is published."""
    if at is not None and after is not None:
        raise click.UsageError("Give --at or --in, not both.")
    found = {}
    if ttl is not None:
        minutes, seconds = divmod(ttl[0], 60)
        found["sys.TimeToLive"] = (
            f"{minutes // 1440}.{minutes // 60 % 24:02}:{minutes % 60:02}:{seconds:02}.{ttl[1] // 100:07}"
        )
    if after is not None:
        at = datetime.now(UTC) + timedelta(seconds=after[0], microseconds=after[1] // 1000)
    if at is not None:
        found["sys.ScheduledEnqueueTimeUtc"] = at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return found


def _check_templates(texts: Iterable[str]) -> None:
    for text in texts:
        for name in _TEMPLATE.findall(text):
            if name not in TEMPLATES:
                close = difflib.get_close_matches(name, TEMPLATES, 1)
                hint = f"Did you mean {{{{{close[0]}}}}}? " if close else ""
                known = ", ".join(f"{{{{{one}}}}}" for one in TEMPLATES)
                raise click.UsageError(f"{{{{{name}}}}} is unknown. {hint}With --count there are {known}.")


def _made(number: int, text: str, pairs: dict[str, str], ordering_key: str) -> OutgoingMessage:
    """The message of this number."""
    from syncpoint.client import OutgoingMessage

    values: dict[str, str] = {}

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name not in values:
            values[name] = TEMPLATES[name](number)
        return values[name]

    data, key = _TEMPLATE.sub(value, text), _TEMPLATE.sub(value, ordering_key)
    return OutgoingMessage(data.encode(), key, {name: _TEMPLATE.sub(value, one) for name, one in pairs.items()})


def _messages(file: BinaryIO, read: Reader, common: OutgoingMessage) -> Iterator[list[Numbered]]:
    """The messages of a file's lines that are not empty: those together that are there at once."""
    number, rest = 0, b""
    longest = PUBLISH_REQUEST_BYTES_MAX * (2 if read is _from_json else 1)  # base64 makes data longer
    while chunk := file.read1(CHUNK_BYTES):  # type: ignore[attr-defined]  # files that are opened and standard input
        *lines, rest = (rest + chunk).split(b"\n")
        yield [(at, read(at, line, common)) for at, line in enumerate(lines, number + 1) if line.strip()]
        number += len(lines)
        if len(rest) > longest:
            raise Problem(f"line {number + 1:,} is too long: a message has at most {PUBLISH_REQUEST_BYTES_MAX:,} bytes")
    if rest.strip():
        yield [(number + 1, read(number + 1, rest, common))]


def _from_line(number: int, line: bytes, common: OutgoingMessage) -> OutgoingMessage:
    return replace(common, data=line)


def _from_json(number: int, line: bytes, common: OutgoingMessage) -> OutgoingMessage:
    """A PubsubMessage as JSON has it, or a received one that holds it. Raises `Problem`."""
    from google.protobuf.json_format import ParseDict, ParseError

    from syncpoint.wire.protobuf.messages import pubsub

    message = pubsub.PubsubMessage()
    try:
        value = json.loads(line)
        if isinstance(value, dict) and "message" in value:
            value = value["message"]
        if not isinstance(value, dict):
            raise ValueError("not an object")
        ParseDict(value, message)
        data = str(value.get("data", "")).translate(_STANDARD)  # which ParseDict takes for base64 whatever it is
        base64.b64decode(data + "=" * (-len(data) % 4), validate=True)
    except (ValueError, ParseError) as error:
        raise Problem(
            f"line {number:,} is not a message in JSON: {str(error).partition(chr(10))[0]}",
            'Write {"data": "aGVsbG8="}, with the data in base64; --lines publishes each line as it is.',
        ) from None
    key = common.ordering_key or message.ordering_key
    return replace(common, data=message.data, ordering_key=key, attributes={**message.attributes, **common.attributes})


def _first_failed(failed: BulkPublishError, batch: Sequence[Numbered], word: str) -> int:
    """The number of the first message that is not stored. Says which one the server's words are about."""
    left = batch[failed.ids.index(None) :]
    request = [number for number, one in left if one.ordering_key == left[0][1].ordering_key]
    about = re.search(r"\bmessages\[(\d+)\]", str(failed.error))
    if about is not None and int(about[1]) < len(request):
        inform(f"{about[0]} is {word} {request[int(about[1])]:,}.")
    return left[0][0]


def _publish_all(
    settings: Settings,
    topic: str,
    groups: Iterable[Iterable[Numbered]],
    rate: float | None,
    word: str,
    total: int | None = None,
) -> None:
    """Publish one batch after the other. `word`: what messages are numbered by."""
    from syncpoint.client import BatchSettings, BulkPublishError, ClientRetry, MessageTooLargeError, Publisher
    from syncpoint.client.bulk_pieces import chunks

    most = BATCH_MESSAGES if rate is None else min(BATCH_MESSAGES, max(1, int(rate * PACED_S)))
    seconds_max = settings.timeout_option or 60.0
    publisher = Publisher(
        **settings.reach(),
        batch_settings=BatchSettings(max_messages=BATCH_MESSAGES, max_latency=0),
        retry=ClientRetry(timeout=seconds_max, deadline=min(PATIENCE_S[len(settings.addresses) > 1], seconds_max)),
    )
    logging.getLogger("syncpoint.client").addHandler(logging.NullHandler())  # what lasts is reported here
    done, first_left = 0, 1
    begun = due = time.monotonic()
    try:
        with progress_bar("published") as progress:
            for batch in (batch for group in groups for batch in chunks(group, most)):
                if rate is not None:
                    due = max(due, time.monotonic())
                    time.sleep(max(0.0, due - time.monotonic()))
                    due += len(batch) / rate
                first_left = batch[0][0]
                try:
                    publisher.publish_many(topic, [one for _, one in batch])
                except BulkPublishError as failed:
                    done += sum(one is not None for one in failed.ids)
                    first_left = _first_failed(failed, batch, word)
                    raise failed.error from None
                except MessageTooLargeError as error:
                    raise Problem(f"{word} {first_left:,}, or one soon after it, is {error}") from None
                done += len(batch)
                progress(done, total)
                first_left = batch[-1][0] + 1
    except BaseException:
        inform(f"Published {counted(done, 'message')}; {word} {first_left:,} is the first that is not published.")
        raise
    finally:
        publisher.stop(0)  # nothing waits, unless somebody broke it off
    seconds = time.monotonic() - begun
    inform(f"Published {counted(done, 'message')} to topic [{topic}] in {seconds:.1f} s.")
    print_answer(settings.format, {"messages": done, "seconds": round(seconds, 3)})
