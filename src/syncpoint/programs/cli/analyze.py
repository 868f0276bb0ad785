"""`syncpoint analyze`: what a topic's log shows about its messages.

Place: the outermost room; the work is `analytics`, on a local Spark.
Promise: nothing is delivered, acknowledged or changed at any server. `--format json` has all that the tables show, and
what they leave out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.federation_file import file_argument
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import inform, print_answer, print_fields, print_table, progress_bar
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.spark_session import local_spark, master_option, server_of
from syncpoint.programs.cli.values import parse_pairs

if TYPE_CHECKING:
    from syncpoint.programs.analytics.back_test import Selected
    from syncpoint.programs.analytics.reconciliation import Reconciliation
    from syncpoint.programs.analytics.rule_test import CandidateRule, RuleOutcome
    from syncpoint.programs.analytics.topic_profile import TopicProfile
    from syncpoint.programs.federation.flow_plan import Flow

APP = "syncpoint analyze"

since_option = click.option(
    "--since", default="", metavar="TIME", help="Only messages published at or after this time: 2026-01-31T12:00:00Z."
)
plot_option = click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a chart to this .svg, .png or .pdf file (needs matplotlib).",
)


@click.group(cls=Group)
def analyze() -> None:
    """Work out what a topic's stored messages show: on Spark, from the log, without consuming any.

    \b
    Examples:
      syncpoint analyze profile orders
      syncpoint analyze backtest orders --filter 'attributes.kind = "refund"' --against billing
      syncpoint analyze reconcile federation.yaml
      syncpoint analyze deliveries orders
    """


@analyze.command()
@click.argument("topic", shell_complete=names("topics"))
@since_option
@plot_option
@master_option
@with_settings
def profile(settings: Settings, topic: str, since: str, plot: Path | None, master: str) -> None:
    """Describe TOPIC: rate, sizes, keys and their skew, attributes, and how payloads change.

    Counts are exact; percentiles and distinct counts are estimates; JSON fields come from a sample of at most 20,000
    messages.

    \b
    Examples:
      syncpoint analyze profile orders
      syncpoint analyze profile orders --since 2026-01-31T12:00:00Z --plot orders.svg
    """
    from syncpoint.programs.analytics.stored_messages import stored_topic
    from syncpoint.programs.analytics.topic_profile import topic_profile

    settings.called = True  # by the work, through clients of its own
    draw = plotter(plot)
    stored = stored_topic(server_of(settings), settings.name("topics", topic))
    with local_spark(APP, master) as spark, progress_bar("profiling", "tasks") as progress:
        found = topic_profile(spark, stored, progress, since=since)
    if not print_answer(settings.format, plain(asdict(found))):
        _print_profile(found)
    if draw is not None:
        draw("profile", found)


@analyze.command()
@click.argument("topic", shell_complete=names("topics"))
@click.option("--filter", "filter_text", default="", metavar="EXPRESSION", help="A filter, as on a subscription.")
@click.option("--sql", multiple=True, metavar="SQL", help="The SQL filter of a rule; may be repeated.")
@click.option(
    "--correlation", multiple=True, metavar="NAME=VALUE,...", help="The correlation filter of a rule; may be repeated."
)
@click.option(
    "--action",
    multiple=True,
    metavar="SQL",
    help="The action of the rule at this position (--sql rules first, then --correlation); '' for no action.",
)
@click.option(
    "--against", metavar="SUBSCRIPTION", help="Show where the result differs from this subscription's filter and rules."
)
@since_option
@plot_option
@master_option
@with_settings
def backtest(
    settings: Settings,
    topic: str,
    filter_text: str,
    sql: tuple[str, ...],
    correlation: tuple[str, ...],
    action: tuple[str, ...],
    against: str | None,
    since: str,
    plot: Path | None,
    master: str,
) -> None:
    """Show which stored messages of TOPIC a filter or rules would have selected, and the result of their actions.

    The server evaluates the filter, as for a subscription; Spark evaluates the rules, as the server would. A message is
    selected if at least one rule matches and the filter, if given, matches too.

    \b
    Example:
      syncpoint analyze backtest orders --sql "amount > 100" --action "SET large = 1" --sql "region = 'eu'"
    """
    from syncpoint.programs.analytics.back_test import back_test
    from syncpoint.programs.analytics.rule_test import CandidateRule, check_rules
    from syncpoint.programs.analytics.stored_messages import stored_topic
    from syncpoint.wire.protobuf.messages import admin, pubsub

    draw = plotter(plot)
    equal = [parse_pairs((text,), "--correlation") for text in correlation]
    filters = [{"sql": text} for text in sql] + [{"correlation": pairs} for pairs in equal]
    if not filter_text and not filters:
        raise click.UsageError("Give at least one of --filter, --sql and --correlation.")
    if len(action) > len(filters):
        raise click.UsageError("Each --action needs a matching --sql or --correlation; 1=1 selects all.")
    actions = [*action, *[""] * (len(filters) - len(action))]
    rules = tuple(
        CandidateRule(f"rule {number}" if len(filters) > 1 else "rule", action=actions[number - 1], **one)
        for number, one in enumerate(filters, 1)
    )
    check_rules(rules)
    other, other_rules = None, tuple[CandidateRule, ...]()
    if against:
        name = settings.name("subscriptions", against)
        with settings.client() as client:
            request = pubsub.GetSubscriptionRequest(subscription=name)
            other = client.call("Subscriber.GetSubscription", request).filter
            listed = client.call("Admin.ListRules", admin.ListRulesRequest(subscription=name)).rules
        other_rules = _rules_of(listed)
    settings.called = True
    stored = stored_topic(server_of(settings), settings.name("topics", topic))
    with local_spark(APP, master) as spark, progress_bar("testing", "tasks") as progress:
        found = back_test(
            spark, stored, filter_text, progress, rules=rules, against=other, against_rules=other_rules, since=since
        )
    if not print_answer(settings.format, plain(asdict(found))):
        inform(f"{found.topic}: {' and '.join(filter(None, [found.filter, ' or '.join(one.text for one in rules)]))}")
        parts: list[tuple[str, Selected | None]] = [
            ("stored", found.all),
            ("selected", found.selected),
            ("rejected", found.rejected),
            (f"gained relative to {against}", found.gained),
            (f"lost relative to {against}", found.lost),
        ]
        print_table(
            ["MESSAGES", "COUNT", "SHARE", "MB", "OLDEST"],
            [
                [
                    what,
                    f"{one.messages:,}",
                    _share(one.messages, found.all.messages),
                    f"{one.bytes / 1e6:,.1f}",
                    ", ".join(one.samples[:3]),
                ]
                for what, one in parts
                if one is not None
            ],
        )
        _print_outcomes(found.rules)
    if draw is not None:
        draw("backtest", found)


def _rules_of(listed: Any) -> tuple[CandidateRule, ...]:
    """The rules of a subscription; none where they select all."""
    from syncpoint.catalog.metadata.stored_options import parameter_of
    from syncpoint.programs.analytics.rule_test import CandidateRule

    if not listed:  # it gets nothing
        return (CandidateRule("(none)", "1=0"),)
    rules = [
        CandidateRule(
            one.name,
            one.sql,
            one.action,
            {name: parameter_of(value) for name, value in one.parameters.items()},
            dict(one.correlation.properties),
        )
        for one in listed
    ]
    return () if any(one.text in ("", "1=1") and not one.action for one in rules) else tuple(rules)


def _print_outcomes(rules: tuple[RuleOutcome, ...]) -> None:
    if not rules:
        return
    click.echo()
    print_table(
        ["RULE", "FILTER", "ACTION", "SELECTED", "FAILED"],
        [[one.name, one.sql, one.action, f"{one.selected:,}", f"{one.failed:,}"] for one in rules],
    )
    for one in rules:
        if one.copies:
            click.echo()
            print_table(
                [f"COPIES BY {one.name.upper()}", "CHANGED"],
                [[copy.message_id, _changes(copy.before, copy.after)] for copy in one.copies],
            )


def _changes(before: dict[str, str], after: dict[str, str]) -> str:
    changed = [f"{name}={text}" for name, text in sorted(after.items()) if before.get(name) != text]
    return ", ".join([*changed, *(f"{name} removed" for name in sorted(before.keys() - after.keys()))]) or "nothing"


@analyze.command()
@file_argument
@click.argument("flows", nargs=-1, metavar="[FLOW]...")
@master_option
@with_settings
def reconcile(settings: Settings, file: Path, flows: tuple[str, ...], master: str) -> None:
    """Check that the flows of FILE have copied each message exactly once and unaltered.

    Reads both logs and computes the expected content of the target. Exit code 1 if a message is missing, duplicated,
    altered, or should have been filtered out; the output names each such message. Give the topics a retention: messages
    that either side no longer stores cannot be compared.

    \b
    Example:
      syncpoint analyze reconcile federation.yaml
    """
    from syncpoint.programs.analytics.reconciliation import reconcile as work
    from syncpoint.programs.federation.patterns.registry import links_of
    from syncpoint.programs.federation.servers import Servers
    from syncpoint.programs.federation.spec import load

    settings.called = True
    federation = load(file)
    with Servers() as servers:
        every = servers.flows(links_of(federation))
    apart = {flow.name: why for flow in every if (why := _why_apart(flow))}
    known = {flow.name: flow for flow in every if flow.name not in apart}
    if named := [name for name in flows if name in apart]:
        raise Problem(f"{named[0]} {apart[named[0]]}.", "This flow cannot be compared; others can.")
    for name, why in apart.items() if not flows else ():
        click.echo(f"Not compared: {name} {why}.", err=True)
    unknown = [name for name in flows if name not in known]
    if unknown:
        raise Problem(
            f"{file} defines no flow {unknown[0]}.", f"`syncpoint federation plan {file}` lists them.", exit_code=3
        )
    results: list[Reconciliation] = []
    with local_spark(APP, master) as spark:
        for name in flows or sorted(known):
            with progress_bar(name, "tasks") as progress:
                results.append(work(spark, known[name], progress))
    if not print_answer(settings.format, [plain(asdict(one)) for one in results]):
        _print_reconciled(results)
    bad = [one for one in results if not one.clean]
    if bad:
        raise Problem(
            f"{counted(len(bad), 'flow')} of {len(results)} did not copy exactly.",
            "`--format json` names up to 1,000 messages of each kind.",
        )


def _why_apart(flow: Flow) -> str:
    """Why a flow cannot be reconciled; "": it can."""
    if flow.link.streams:
        return "has a stream at one end, which has no log to compare"
    return "" if flow.link.steps.repeatable else "encrypts data, so copies differ from the originals"


def _print_reconciled(results: list[Reconciliation]) -> None:
    from syncpoint.programs.analytics.reconciliation import KINDS

    print_table(
        [
            "FLOW",
            "EXPECTED",
            "RIGHT",
            *(kind.upper() for kind in KINDS),
            "WAITING",
            "SKIPPED",
            "DELETED AT TARGET",
            "DELETED AT SOURCE",
        ],
        [
            [
                one.flow,
                *(
                    f"{number:,}"
                    for number in (
                        one.expected,
                        one.right,
                        *(one.counts[kind] for kind in KINDS),
                        one.waiting,
                        one.skipped,
                        one.gone_at_target,
                        one.gone_at_source,
                    )
                ),
            ]
            for one in results
        ],
    )
    named = [anomaly for one in results for anomaly in one.anomalies]
    if named:
        click.echo()
        print_table(["KIND", "MESSAGE ID", "FLOW"], [[one.kind, one.message_id, one.hop] for one in named[:50]])


def _print_profile(found: TopicProfile) -> None:
    sizes, keys = found.sizes, found.keys
    print_fields(
        {
            "topic": found.topic,
            "messages": f"{found.messages:,}",
            "published": f"{_shown(found.first)} to {_shown(found.last)}" if found.messages else "",
            "data": f"{sizes.total / 1e6:,.1f} MB",
            "size": f"{sizes.least:,} to {sizes.most:,} bytes; p50 {sizes.p50:,}, p95 {sizes.p95:,}, p99 {sizes.p99:,}",
            "keys": f"{keys.distinct:,}, of {_share(keys.messages, found.messages)} of the messages",
            "json": f"{_share(found.payloads.objects, found.payloads.sampled)} of {found.payloads.sampled:,} sampled",
        }
    )
    tables: list[tuple[list[str], list[list[str]]]] = [
        (
            ["BUSIEST KEYS", "MESSAGES", "SHARE"],
            [[one.value, f"{one.messages:,}", _share(one.messages, found.messages)] for one in keys.top],
        ),
        (
            ["ATTRIBUTE", "IN", "DISTINCT", "LONGEST", "MOST FREQUENT"],
            [
                [
                    one.name,
                    _share(one.messages, found.messages),
                    f"{one.distinct:,}",
                    f"{one.longest:,}",
                    ", ".join(f"{top.value} ({_share(top.messages, one.messages)})" for top in one.top),
                ]
                for one in found.attributes
            ],
        ),
        (
            ["SCHEMA REVISION", "MESSAGES", "FIRST", "LAST"],
            [[one.revision, f"{one.messages:,}", _shown(one.first), _shown(one.last)] for one in found.revisions],
        ),
        (
            ["JSON FIELD", "IN", "TYPES", "DRIFT"],
            [
                [
                    one.path,
                    _share(one.messages, found.payloads.objects),
                    ", ".join(sorted(one.types)),
                    ", ".join(one.changes),
                ]
                for one in found.payloads.fields
            ],
        ),
    ]
    for headings, rows in tables:
        if rows:
            click.echo()
            print_table(headings, rows)


def plotter(plot: Path | None) -> Callable[[str, Any], None] | None:
    """Draws what an analysis has found into a file; refuses one it cannot draw before any work is done."""
    if plot is None:
        return None
    if plot.suffix not in (".svg", ".png", ".pdf"):
        raise Problem(f"A plot cannot be written as {plot.name}.", "Name a file that ends in .svg, .png or .pdf.")
    from syncpoint.programs.analytics import plots

    def draw(what: str, found: Any) -> None:
        plots.PLOTS[what](found, plot)
        inform(f"chart written to {plot}")

    return draw


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _shown(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def plain(value: Any) -> Any:
    """What JSON has words for."""
    if isinstance(value, dict):
        return {name: plain(content) for name, content in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
