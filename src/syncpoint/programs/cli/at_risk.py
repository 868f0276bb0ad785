"""`syncpoint at-risk`: what would be lost, unavailable or delivered twice if something vanished now.

Place: one call of syncpoint.admin.v1. The exit code is 1 where a failure that is shown would lose messages.
"""

from __future__ import annotations

from typing import Any

import click

from syncpoint.programs.cli.output import as_dict, inform, print_json, print_table
from syncpoint.programs.cli.settings import Settings, with_settings


@click.command(name="at-risk")
@click.option("--disk", "disks", multiple=True, help="A disk, as `syncpoint disks list` names it.")
@click.option("--process", "processes", multiple=True, help="A process that is killed; its disks survive.")
@click.option("--cluster", "clusters", multiple=True, help="A storage cluster, with its disks and processes.")
@click.option("--zone", "zones", multiple=True, help="A zone, with its disks and processes.")
@click.option("--region", "regions", multiple=True, help="A region, with its disks and processes.")
@click.option("--ranges-max", default=100, show_default=True, help="Show at most this many offset ranges per topic.")
@with_settings
def at_risk(settings: Settings, ranges_max: int, **named: tuple[str, ...]) -> None:
    """Show which acknowledged messages would be lost, unavailable or delivered twice if something failed now.

    Without options: the loss of each disk, process, storage cluster, zone and region by itself, worst first. With
    options, which may be repeated: the loss of everything named, at once, by topic.

    \b
    lost         needed by somebody, and on no disk any more
    unavailable  not lost, and not delivered before what vanished is back
    twice        delivered already, and delivered again

    The exit code is 1 if a failure shown would lose messages, 2 if some information is missing.

    \b
    Example:
      syncpoint at-risk
      syncpoint at-risk --disk /disks/a --disk /disks/b
    """
    from syncpoint.wire.protobuf.messages import admin

    found = settings.call("Admin.GetAtRisk", admin.GetAtRiskRequest(ranges_max=ranges_max, **named))
    if settings.format == "json":
        print_json(as_dict(found))
    elif any(named.values()):
        _print_one(found.failures[0])
    else:
        rows = []
        for one in found.failures:
            counts = (one.lost, one.unavailable, one.twice)
            rows.append([_what(one), *(str(count.messages) for count in counts), _why(one)])
        print_table(["FAILURE OF", "LOST", "UNAVAILABLE", "TWICE", "WHY"], rows)
    for one in found.unknown:
        inform(f"Unknown, more may be at risk: {one}.")
    if any(one.lost.messages for one in found.failures):
        raise click.exceptions.Exit(1)
    if found.unknown:
        raise click.exceptions.Exit(2)


def _what(failure: Any) -> str:
    kind = type(failure).Kind.Name(failure.kind).lower()
    return failure.name if kind == "several" else f"{kind} {failure.name}"


def _why(failure: Any) -> str:
    stopped = list(failure.stopped)
    return stopped[0] + (f" (and {len(stopped) - 1} more)" if len(stopped) > 1 else "") if stopped else ""


def _print_one(failure: Any) -> None:
    rows = []
    for topic in failure.topics:
        for word, count in (("lost", topic.lost), ("unavailable", topic.unavailable), ("twice", topic.twice)):
            if not count.messages:
                continue
            oldest = count.oldest_publish_time.ToJsonString() if count.HasField("oldest_publish_time") else ""
            rows.append([topic.topic, word, str(count.messages), str(count.bytes or ""), oldest, _ranges(count)])
    if rows:
        print_table(["TOPIC", "OUTCOME", "MESSAGES", "BYTES", "OLDEST", "SOURCE:OFFSETS"], rows)
    else:
        inform("Nothing would be lost, unavailable or delivered twice.")
    for one in failure.stopped:
        inform(f"Service interrupted: {one}.")
    if failure.facts:
        inform(f"Also, {failure.facts} changes to topics, subscriptions and similar would be lost.")


def _ranges(count: Any) -> str:
    shown = [f"{one.source}:{one.first_offset}-{one.last_offset}" for one in list(count.ranges)[:3]]
    more = count.ranges_total - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
