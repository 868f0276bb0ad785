"""`syncpoint analyze deliveries` and `syncpoint analyze slis`: what a topic's delivery records show.

Place: commands of the group in `analyze`; the work is `analytics`, on a local Spark.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from syncpoint.base.model.names import short_id
from syncpoint.programs.cli.analyze import APP, analyze, plain, plot_option, plotter
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import inform, print_answer, print_table, progress_bar
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.spark_session import local_spark, master_option, server_of
from syncpoint.programs.cli.values import DurationType

if TYPE_CHECKING:
    from pathlib import Path

    from syncpoint.programs.analytics.delivery_reconciliation import DeliveryReconciliation


@analyze.command()
@click.argument("topic", shell_complete=names("topics"))
@click.option(
    "--grace", type=DurationType(), default="60s", show_default=True,
    help="How late a message may arrive and still count as in order.",
)  # fmt: skip
@master_option
@with_settings
def deliveries(settings: Settings, topic: str, grace: tuple[int, int], master: str) -> None:
    """Check that each message of TOPIC was stored, delivered and acknowledged correctly.

    The topic must be recorded (`syncpoint topics update TOPIC --records-topic RECORDS`). Compares its log and its
    records message by message. Exit code 1 if a message was lost, duplicated, never delivered, delivered after its
    acknowledgement, or similar; the output names each such message and the hop.

    \b
    Example:
      syncpoint analyze deliveries orders --grace 5m
    """
    from syncpoint.programs.analytics.delivery_reconciliation import reconcile_deliveries
    from syncpoint.programs.analytics.recorded_topic import recorded_topic

    settings.called = True  # by the work, through clients of its own
    recorded = recorded_topic(server_of(settings), settings.name("topics", topic))
    with local_spark(APP, master) as spark, progress_bar("reconciling", "tasks") as progress:
        found = reconcile_deliveries(spark, recorded, progress, grace_s=grace[0] + grace[1] / 1e9)
    if not print_answer(settings.format, plain(asdict(found))):
        _print_reconciled(found)
    if not found.clean:
        raise Problem(
            f"{sum(found.counts.values()):,} messages of {short_id(found.topic)} have problems.",
            "`--format json` names up to 1,000 of each kind; `syncpoint trace MESSAGE_ID` shows the path of one.",
        )


def _print_reconciled(found: DeliveryReconciliation) -> None:
    print_table(
        ["TOPIC", "STORED", "RECORDED", *(kind.upper() for kind, number in found.counts.items() if number), "UNKNOWN",
         "GONE"],
        [[short_id(found.topic), *(f"{number:,}" for number in (
            found.stored, found.recorded, *(one for one in found.counts.values() if one), found.unknown, found.gone))]],
    )  # fmt: skip
    click.echo()
    print_table(
        ["SUBSCRIPTION", "DELIVERED", "ACKNOWLEDGED", "EXCLUDED", "WAITING"],
        [
            [short_id(one.subscription), f"{one.delivered:,}", f"{one.acknowledged:,}", f"{one.over:,}",
             f"{one.waiting:,}"]
            for one in found.subscriptions
        ],
    )  # fmt: skip
    if found.anomalies:
        click.echo()
        print_table(
            ["KIND", "HOP", "MESSAGE ID", "SUBSCRIPTION"],
            [[one.kind, one.hop, one.message_id, one.subscription.rpartition("/")[2]] for one in found.anomalies[:50]],
        )
    for gap in found.gaps:
        inform(f"Unknown: {gap.sentence}.")


@analyze.command()
@click.argument("topic", shell_complete=names("topics"))
@click.option(
    "--target",
    type=DurationType(),
    default="1s",
    show_default=True,
    help="Deliveries within this time count as on time.",
)
@plot_option
@master_option
@with_settings
def slis(settings: Settings, topic: str, target: tuple[int, int], plot: Path | None, master: str) -> None:
    """Show the latency of TOPIC's messages and the share on time, by subscription and day.

    A subscription's latency is from the publish to the first delivery; the topic's is from the publish until the
    message is persisted. The topic must be recorded (`syncpoint topics update TOPIC --records-topic RECORDS`).

    \b
    Example:
      syncpoint analyze slis orders --target 500ms --plot orders.png
    """
    from syncpoint.programs.analytics.delivery_slis import delivery_slis
    from syncpoint.programs.analytics.recorded_topic import recorded_topic

    settings.called = True
    draw = plotter(plot)
    recorded = recorded_topic(server_of(settings), settings.name("topics", topic))
    with local_spark(APP, master) as spark, progress_bar("measuring", "tasks") as progress:
        found = delivery_slis(spark, recorded, progress, target_s=target[0] + target[1] / 1e9)
    print_answer(settings.format, plain(asdict(found)),
        ["DAY", "SUBSCRIPTION", "MESSAGES", "P50", "P95", "P99", "MAX", f"WITHIN {found.target_ms / 1000:g} S",
         "AGAIN", "ACKNOWLEDGED", "AFTER", "DEAD LETTERS"],
        [
            [
                one.day, one.subscription.rpartition("/")[2] or "(persisted)", f"{one.messages:,}",
                *(f"{ms:,.1f} ms" for ms in (one.p50_ms, one.p95_ms, one.p99_ms, one.max_ms)),
                f"{one.within:.3%}",
                *((f"{one.again:,}", f"{one.acknowledged:,}",
                   "" if one.acknowledged_ms is None else f"{one.acknowledged_ms:,.1f} ms",
                   f"{one.dead_lettered:,}") if one.subscription else ("", "", "", "")),
            ]
            for one in found.rows
        ],
    )  # fmt: skip
    if draw is not None:
        draw("slis", found)
