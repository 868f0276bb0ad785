"""`syncpoint analyze letters`: dead letters as a table, counted by cause, and as SQL asks.

Place: a command of the group in `analyze`; the work is `analytics.letter_table`, on a local Spark.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import syncpoint.programs.cli.analyze_records  # noqa: F401  # its commands are of the same group
from syncpoint.base.model.names import short_id
from syncpoint.programs.cli.analyze import APP, analyze, plain, since_option
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import inform, print_json, print_table, progress_bar, without_empty_columns
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.spark_session import local_spark, master_option, server_of

if TYPE_CHECKING:
    from syncpoint.programs.analytics.letter_table import LetterTable


@analyze.command()
@click.option(
    "--subscription", shell_complete=names("subscriptions"), metavar="SUB", help="Only letters from this subscription."
)
@click.option("--topic", shell_complete=names("topics"), metavar="TOPIC", help="Only letters in this topic.")
@click.option(
    "--letters",
    "waiting_for",
    shell_complete=names("subscriptions"),
    metavar="SUB",
    help="Only letters that this subscription of the dead-letter topic has not acknowledged.",
)
@since_option
@click.option("--sql", default="", metavar="QUERY", help="Run this query on the view `letters`, as in the example.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the letters, or the result of --sql, to FILE.parquet or FILE.csv.",
)
@master_option
@with_settings
def letters(
    settings: Settings,
    subscription: str | None,
    topic: str | None,
    waiting_for: str | None,
    since: str,
    sql: str,
    out: Path | None,
    master: str,
) -> None:
    """Count dead letters by subscription, reason and description, and query them by SQL.

    Reads all letters that the topic stores, including redriven letters; --letters limits this to unacknowledged
    letters. `syncpoint dead-letters` shows single letters and redrives them.

    \b
    Examples:
      syncpoint analyze letters --subscription billing
      syncpoint analyze letters --topic failed --sql "SELECT attributes['region'] AS region, count(*) AS letters
                                                      FROM letters GROUP BY 1 ORDER BY 2 DESC"
      syncpoint analyze letters --topic failed --out letters.parquet
    """
    from syncpoint.programs.analytics.letter_table import FORMATS, VIEW_COLUMNS, letter_table
    from syncpoint.programs.analytics.stored_messages import stored_topic

    if out is not None and out.suffix not in FORMATS:
        raise Problem(f"A table cannot be written as {out.name}.", f"Name a file that ends in {' or '.join(FORMATS)}.")
    source = settings.name("subscriptions", subscription) if subscription else ""
    waiting = settings.name("subscriptions", waiting_for) if waiting_for else ""
    dead = _topic_of_letters(settings, source, topic, waiting)
    stored = stored_topic(server_of(settings), dead)
    with local_spark(APP, master) as spark, progress_bar("counting", "tasks") as progress:
        from pyspark.errors import AnalysisException

        try:
            found = letter_table(
                spark, stored, progress, subscription=source, waiting_for=waiting, since=since, sql=sql, out=out
            )
        except AnalysisException as error:
            if not sql:
                raise
            raise Problem(
                f"--sql: {str(error).strip().splitlines()[0]}", f"The view `letters` has {', '.join(VIEW_COLUMNS)}."
            ) from None
    if settings.format == "json":
        print_json(plain(asdict(found)))
    elif sql:
        print_table(found.columns, [[_cell(value) for value in row] for row in found.rows])
        if found.more:
            inform(f"(there are more than these {len(found.rows):,} rows; --out writes all)")
    else:
        _print_causes(found)
    if out is not None:
        inform(f"written to {out}")


def _topic_of_letters(settings: Settings, source: str, topic: str | None, waiting: str) -> str:
    """The dead-letter topic that options name."""
    from syncpoint.wire.protobuf.messages import pubsub

    if topic:
        return settings.name("topics", topic)
    about = waiting or source
    if not about:
        raise click.UsageError("Give --subscription, --topic or --letters.")
    found = settings.call("Subscriber.GetSubscription", pubsub.GetSubscriptionRequest(subscription=about))
    dead = found.topic if waiting else found.dead_letter_policy.dead_letter_topic
    if not dead:
        raise Problem(f"[{source}] has no dead-letter topic.", "Give --topic or --letters.")
    return str(dead)


def _print_causes(found: LetterTable) -> None:
    rows = [
        [
            short_id(one.subscription) if one.subscription else "", one.reason or "(none)", f"{one.letters:,}",
            f"{one.first:%Y-%m-%d %H:%M:%S}", f"{one.last:%Y-%m-%d %H:%M:%S}", f"{one.bytes / 1e6:,.1f}",
            f"{one.largest:,}", str(one.attempts), f"{one.redriven:,}", one.example,
        ]
        for one in found.causes
    ]  # fmt: skip
    headings = ["SUBSCRIPTION", "REASON", "LETTERS", "FIRST", "LAST", "MB", "LARGEST", "ATTEMPTS", "REDRIVEN", "OLDEST"]
    print_table(*without_empty_columns(headings, rows))
    if found.descriptions:
        click.echo()
        print_table(
            ["REASON", "DESCRIPTION", "LETTERS", "EXAMPLE"],
            [[one.reason, one.description, f"{one.letters:,}", one.example] for one in found.descriptions],
        )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return str(plain(value))
