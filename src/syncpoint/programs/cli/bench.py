"""`syncpoint bench`: how much this machine and this server do together.

Place: under the root; calls `bench_load`. What it makes it deletes again, also when it is broken off.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any

import click

from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import inform, print_answer, print_table, progress_bar
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.values import SecondsType

if TYPE_CHECKING:
    from syncpoint.front.client.client import Client
    from syncpoint.programs.cli.bench_load import LoadResult

MESSAGES = 100_000
KEPT = 0.95  # of a rate that was wished for: below, it was not kept
BUSY = 0.9  # of a core: from here on this program may be what is measured


@click.group(cls=Group)
def bench() -> None:
    """Measure publishing and receiving against a running server, from this machine.

    \b
    Example:
      syncpoint bench pub --messages 1000000 --size 1000
      syncpoint bench pub --keep
      syncpoint bench sub --subscription NAME-THAT-PUB-PRINTED
    """


def _counts(command: Any) -> Any:
    for option in reversed((
        click.option("--messages", type=click.IntRange(1), help="Number of messages. [100000; unlimited with --for]"),
        click.option("--for", "seconds", type=SecondsType(0.1), help="Stop after this long."),
        click.option("--connections", default=1, show_default=True, type=click.IntRange(1, 1_000), help="Connections."),
    )):  # fmt: skip
        command = option(command)
    return command


@bench.command()
@click.option("--topic", shell_complete=names("topics"), help="Publish to this topic. [a temporary topic]")
@_counts
@click.option("--size", default=1_000, show_default=True, type=click.IntRange(1, 10_000_000), help="Bytes per message.")
@click.option("--batch", default=100, show_default=True, type=click.IntRange(1, 1_000), help="Messages per request.")
@click.option(
    "--window",
    default=4,
    show_default=True,
    type=click.IntRange(1, 1_000),
    help="Requests in flight on each connection.",
)
@click.option("--keys", default=0, show_default=True, type=click.IntRange(0, 100_000), help="Ordering keys.")
@click.option("--rate", default=0.0, type=click.FloatRange(0), help="Total messages per second. [as fast as possible]")
@click.option("--keep", is_flag=True, help="Keep the topic and subscription, for `bench sub`.")
@with_settings
def pub(
    settings: Settings, topic: str | None, keep: bool, messages: int | None, seconds: float | None, **chosen: Any
) -> None:
    """Publish messages as fast as the server answers; a message is counted once it is on disk.

    With --rate, latencies are measured from the time a request was due, so a slow server shows up.

    \b
    Examples:
      syncpoint bench pub --messages 1000000 --size 100 --connections 2
      syncpoint bench pub --for 60 --rate 5000 --batch 1
    """
    from syncpoint.programs.cli.bench_load import PublishLoad, publish

    with settings.client() as client, _place(settings, client, topic, keep=keep) as (name, made):
        load = PublishLoad(name, **_bounds(messages, seconds), **chosen)
        with progress_bar("published") as progress:
            result = asyncio.run(publish(settings.reach(), load, lambda done: progress(done, _total(load.messages))))
        _show(settings, result, "latency of a request" + (" from due time" if load.rate else ""))
        if result.messages < load.rate * result.seconds * KEPT:
            inform(f"The rate of {load.rate:,.0f}/s was not kept: try a larger --batch, --window or --connections.")
        if made and keep:
            inform(f"Kept topic {name} and subscription {made}; `syncpoint bench sub --subscription {made}`.")


@bench.command()
@click.option(
    "--subscription", shell_complete=names("subscriptions"), help="Receive from this subscription, and acknowledge."
)
@click.option("--topic", shell_complete=names("topics"), help="Receive what is published to this topic from now on.")
@_counts
@click.option(
    "--idle",
    default="5s",
    show_default=True,
    type=SecondsType(0.1),
    help="Stop after this long without a message.",
)
@with_settings
def sub(
    settings: Settings,
    subscription: str | None,
    topic: str | None,
    idle: float,
    messages: int | None,
    seconds: float | None,
    connections: int,
) -> None:
    """Receive and acknowledge messages as fast as possible.

    \b
    Examples:
      syncpoint bench sub --subscription billing --messages 1000000
      syncpoint bench sub --topic orders --idle 60      (on a temporary subscription)
    """
    from syncpoint.programs.cli.bench_load import ReceiveLoad, receive

    if (subscription is None) == (topic is None):
        raise click.UsageError("Give one of --subscription and --topic.")
    with settings.client() as client, _source(settings, client, subscription, topic) as name:
        load = ReceiveLoad(name, connections=connections, idle_s=idle, **_bounds(messages, seconds))
        with progress_bar("received") as progress:
            result = asyncio.run(receive(settings.reach(), load, lambda done: progress(done, _total(load.messages))))
        if not result.messages:
            raise Problem(
                f"no message arrived from {name} in {idle:g} s", "Publish first: `syncpoint bench pub --keep`."
            )
        _show(settings, result, "from publish to arrival")


def _bounds(messages: int | None, seconds: float | None) -> dict[str, Any]:
    """How many messages, and for how long: both, one of them, or the number of messages that is the default."""
    return {"messages": messages or (MESSAGES if seconds is None else inf), "seconds": seconds or inf}


def _total(messages: float) -> int | None:
    return None if messages == inf else int(messages)


@contextmanager
def _place(settings: Settings, client: Client, topic: str | None, *, keep: bool) -> Iterator[tuple[str, str]]:
    """The topic to publish to, and the subscription that was made to hold its messages, if any."""
    from syncpoint.wire.protobuf.messages import pubsub

    if topic is not None:
        yield settings.name("topics", topic), ""
        return
    short = f"bench-{secrets.token_hex(4)}"
    name, holder = settings.name("topics", short), settings.name("subscriptions", short)
    client.call("Publisher.CreateTopic", pubsub.Topic(name=name))
    try:
        client.call("Subscriber.CreateSubscription", pubsub.Subscription(name=holder, topic=name))
        yield name, holder
    except BaseException:
        keep = False
        raise
    finally:
        if not keep:
            client.call("Publisher.DeleteTopic", pubsub.DeleteTopicRequest(topic=name))
            client.call("Subscriber.DeleteSubscription", pubsub.DeleteSubscriptionRequest(subscription=holder))


@contextmanager
def _source(settings: Settings, client: Client, subscription: str | None, topic: str | None) -> Iterator[str]:
    """The subscription to receive from."""
    from syncpoint.wire.protobuf.messages import pubsub

    if subscription is not None:
        yield settings.name("subscriptions", subscription)
        return
    name = settings.name("subscriptions", f"bench-{secrets.token_hex(4)}")
    made = pubsub.Subscription(name=name, topic=settings.name("topics", topic or ""))
    client.call("Subscriber.CreateSubscription", made)
    try:
        yield name
    finally:
        client.call("Subscriber.DeleteSubscription", pubsub.DeleteSubscriptionRequest(subscription=name))


def _show(settings: Settings, result: LoadResult, latency: str) -> None:
    seconds = max(result.seconds, 1e-9)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    if print_answer(
        settings.format,
        {
            "messages": result.messages,
            "payloadBytes": result.payload_bytes,
            "seconds": round(result.seconds, 6),
            "messagesPerSecond": round(result.messages / seconds, 1),
            "payloadBytesPerSecond": round(result.payload_bytes / seconds, 1),
            "again": result.again,
            "ownCpuSeconds": round(result.cpu_s, 6),
            "latencySeconds": {name: round(result.latency_s(share), 6) for name, share in shares.items()},
        },
    ):
        return
    print_table(
        ["MESSAGES", "SECONDS", "MESSAGES/S", "MB/S", *(name.upper() for name in shares)],
        [[
            f"{result.messages:,}",
            f"{result.seconds:.2f}",
            f"{result.messages / seconds:,.0f}",
            f"{result.payload_bytes / seconds / 1e6:,.1f}",
            *(f"{result.latency_s(share) * 1000:.1f} ms" for share in shares.values()),
        ]],
    )  # fmt: skip
    inform(f"P50 to MAX: {latency}. This program used {result.cpu_s / seconds:.2f} of a core.")
    if result.again:
        inform(f"{result.again} calls were refused temporarily and retried.")
    if result.cpu_s / seconds > BUSY:
        inform("The client may be the bottleneck, not the server: run several clients, or raise --connections.")
