"""`syncpoint projects ...`: the class of disaster recovery of a project, what it buys, and whether it is kept.

Place: beside `tenants`; calls of syncpoint.admin.v1.Admin, and with a federation's file questions to all its servers.
Promise: what is declared stands beside what is; what this caller may not see is reported as such.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.model.names import short_id
from syncpoint.base.model.wording import lasting
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.federation_file import load_file
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import inform, print_answer, print_table
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.values import DurationType

if TYPE_CHECKING:
    from syncpoint.programs.disaster.project_reconciliation import ReconciliationOutcome

CLASSES = ("local", "geo", "geo-acks", "dual", "billing")


@click.group(cls=Group)
def projects() -> None:
    """Declare a project's class of disaster recovery, and check that it is kept."""


_TENANT = click.option("--tenant", default="", help="The tenant of the project, if you own that and not the server.")
_FEDERATION = click.option(
    "--federation",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The file of the federation that copies the project.",
)


@projects.command()
@with_settings
def classes(settings: Settings) -> None:
    """Show what each class does, buys and costs.

    \b
    Example:
      syncpoint projects classes
    """
    from syncpoint.wire.protobuf.messages import admin

    found = settings.call("Admin.ListDisasterClasses", admin.ListDisasterClassesRequest())
    rows = [[one.name, one.does, one.buys, one.costs] for one in found.classes]
    print_answer(settings.format, found, ["CLASS", "DOES", "BUYS", "COSTS"], rows)


@projects.command("set-class")
@click.argument("resource")
@click.argument("name", metavar="CLASS", type=click.Choice([*CLASSES, "none"]))
@click.option(
    "--writer",
    type=click.Choice(["here", "elsewhere", "recovering"]),
    help="With billing: which site takes publishes [here].",
)
@_TENANT
@with_settings
def set_class(settings: Settings, resource: str, name: str, writer: str | None, tenant: str) -> None:
    """Declare the CLASS of a project; of a tenant (tenants/NAME) or the installation (server) for projects without one.

    `none` takes a declaration back. With billing, topics get delivery records, and one site writes: at a site with
    `--writer elsewhere` publishes are refused, at the others links are; `recovering` takes both, to bring what a lost
    site had left.

    \b
    Examples:
      syncpoint projects set-class shop geo-acks
      syncpoint projects set-class shop billing --writer elsewhere
      syncpoint projects set-class tenants/acme geo
    """
    from syncpoint.wire.protobuf.messages import admin

    whole = resource if "/" in resource or resource == "server" else f"projects/{resource}"
    request = admin.SetDisasterClassRequest(resource=whole, tenant=tenant)
    if name != "none":
        request.disaster_class.name, request.disaster_class.writer = name, writer or ""
    elif writer:
        raise click.UsageError("--writer needs the class billing.")
    found = settings.call("Admin.SetDisasterClass", request)
    inform(f"[{whole}] has the class {found.name}." if found.name else f"[{whole}] declares no class.")
    print_answer(settings.format, found)


@projects.command()
@click.argument("shown", metavar="PROJECT")
@_TENANT
@_FEDERATION
@with_settings
def describe(settings: Settings, shown: str, tenant: str, file: Path | None) -> None:
    """Show the class of a PROJECT, and declared beside actual.

    \b
    Examples:
      syncpoint projects describe shop
      syncpoint projects describe shop --federation federation.yaml
    """
    from syncpoint.wire.protobuf.messages import admin

    name = _full(shown)
    with settings.client() as client:
        found = client.call("Admin.GetProject", admin.GetProjectRequest(project=name, tenant=tenant))
        copies = _copies_here(client, name) if file is None else _copies_of(file, name)
    if not print_answer(settings.format, {"project": found, "copies": copies}):
        _print_described(found, copies)


def _print_described(found: Any, copies: list[dict[str, str]]) -> None:
    one, terms = found.disaster_class, found.terms
    writer = f", publishes: {one.writer}" if one.writer else ""
    kept = ", ".join(map(short_id, found.records_topics))
    others = found.topics - sum(name.startswith(f"{found.project}/") for name in found.records_topics)
    records = f"{found.recorded_topics} of {others} topics{f', in {kept}' if kept else ''}"
    homes = ", ".join(f"{short_id(home.subscription)} at {home.home}" for home in found.homes)
    print_table(
        ["", "DECLARED", "ACTUAL"],
        [
            ["class", f"{one.name}{writer}", f"from the {one.source}"],
            ["does", terms.does, _actual_copies(copies)],
            ["buys", terms.buys, ""],
            ["costs", terms.costs, ""],
            ["delivery records", "all topics" if one.name == "billing" else "", records],
            ["homes", "", homes or "every site delivers"],
            ["last drill", "", _drilled(found)],
            ["reconciliation", "each day" if one.name == "billing" else "", _reconciled(found)],
        ],
    )
    if copies:
        click.echo()
        print_table(
            ["COPY", "LAG", "LAST", "ACKNOWLEDGEMENTS"],
            [[one["name"], one["lag"], one["last"], one["acks"]] for one in copies],
        )
    for line in found.lacking:
        inform(line)


def _actual_copies(copies: list[dict[str, str]]) -> str:
    if not copies:
        return "no link is known here"
    return f"{len(copies)} copies" if len(copies) > 1 else "1 copy"


def _drilled(found: Any) -> str:
    if not found.HasField("last_drill"):
        return "none"
    last = found.last_drill
    if not last.HasField("certificate"):
        return f"{last.drill}: {last.reason or 'running'}"
    rto = max(last.certificate.publish_gap_ms, last.certificate.receive_gap_ms) / 1000
    return f"{last.drill}, {last.kind}: {last.certificate.lost:,} lost, {lasting(rto)} without messages"


def _reconciled(found: Any) -> str:
    if not found.HasField("last_reconciliation"):
        return "never"
    last = found.last_reconciliation
    age = lasting(max(0.0, time.time() - last.time.seconds))
    what = f"{last.findings_total:,} messages amiss" if last.findings_total else "all adds up"
    return f"{age} ago: {what}{', not everything is known' if last.unknown else ''}"


def _copies_here(client: Any, project: str) -> list[dict[str, str]]:
    """What this site knows of the flows that leave it: their cursors."""
    from syncpoint.wire.protobuf.messages import pipeline

    try:
        cursors = client.call("LogReader.ListCursors", pipeline.ListCursorsRequest(project=project)).cursors
    except SyncpointError as error:
        if error.code is not Code.PERMISSION_DENIED:
            raise
        inform("Copies are not shown: that takes syncpoint.topics.listCursors on the project.")
        return []
    return [
        {
            "name": one.name,
            "lag": f"{one.lag_messages:,} messages",
            "last": f"{lasting(max(0.0, time.time() - one.used.seconds))} ago",
            "acks": "see --federation",
        }
        for one in cursors
    ]


def _copies_of(file: Path, project: str) -> list[dict[str, str]]:
    """Progress of each flow of a file, by both of its ends, and of the exchange of acknowledgements."""
    from syncpoint.programs.federation.servers import Servers
    from syncpoint.programs.federation.state import StateFolder

    found, links = load_file(file)
    rounds: dict[str, float] = {}
    for one in StateFolder(found.runtime.state).acks():
        rounds[one["flow"]] = min(one["at"], rounds.get(one["flow"], one["at"]))
    links = [link for link in links if f"projects/{link.source_project}" == project]
    with Servers() as servers:
        flows, silent = servers.reported_flows(links)
        progress = servers.progress_of(flows)
    now, shown = time.time(), []
    for flow in progress:
        at = rounds.get(flow.flow.name)
        acks = "not exchanged" if at is None else f"{lasting(max(0.0, now - at))} ago" if at else "never yet"
        lag = "unknown" if flow.lag is None else f"{flow.lag:,} messages"
        last = f"{lasting(max(0.0, now - flow.committed_at))} ago" if flow.committed_at else "never"
        shown.append({"name": flow.flow.name, "lag": lag, "last": flow.error or last, "acks": acks})
    for name, why in silent.items():
        shown.append({"name": name, "lag": "unknown", "last": why, "acks": ""})
    return shown


@projects.command()
@click.argument("shown", metavar="PROJECT")
@_FEDERATION
@click.option("--since", type=DurationType(), default="25h", show_default=True, help="Judge what was published since.")
@click.option("--grace", type=DurationType(), default="60s", show_default=True, help="Leave out what is newer.")
@click.option("--every", type=DurationType(), help="Repeat at this interval, until Ctrl-C.")
@with_settings
def reconcile(
    settings: Settings,
    shown: str,
    file: Path | None,
    since: tuple[int, int],
    grace: tuple[int, int],
    every: tuple[int, int] | None,
) -> None:
    """Check that what was published, copied, delivered and acknowledged in a PROJECT adds up, and report it.

    Compares logs with delivery records, and with --federation what each flow has copied; needs no Spark. The exit code
    is 1, and each message is named with its hop, where something does not add up. The server keeps the outcome for
    `projects describe` and its metrics.

    \b
    Examples:
      syncpoint projects reconcile shop
      syncpoint projects reconcile shop --federation federation.yaml --every 24h
    """
    while True:
        try:
            found = _reconcile_once(settings, _full(shown), file, _seconds(since), _seconds(grace))
        except SyncpointError as error:
            if every is None:
                raise
            inform(f"{shown} was not reconciled; the next try is in {lasting(_seconds(every))}. {error}")
        if every is None:
            break
        time.sleep(_seconds(every))
    if found.total:
        raise Problem(
            f"{found.total:,} messages of {shown} do not add up.",
            "`syncpoint trace MESSAGE_ID` shows the path of one; `syncpoint analyze deliveries` reads each message.",
        )


def _reconcile_once(
    settings: Settings, name: str, file: Path | None, since_s: float, grace_s: float
) -> ReconciliationOutcome:
    from syncpoint.programs.disaster.project_reconciliation import reconcile as reconciled
    from syncpoint.programs.disaster.project_reconciliation import sentence
    from syncpoint.programs.disaster.reconciled_topic import Window
    from syncpoint.programs.federation.servers import Servers

    now_us = int(time.time() * 1e6)
    window = Window(now_us - int(since_s * 1e6), now_us - int(grace_s * 1e6))
    with settings.client() as client, Servers() as servers:
        found = reconciled(client.call, servers, [] if file is None else load_file(file)[1], name, window)
    if not print_answer(settings.format, found.message):
        if found.findings:
            print_table(
                ["HOP", "KIND", "MESSAGE ID", "TOPIC", "SUBSCRIPTION"],
                [[*one[:3], short_id(one.topic), one.subscription.rpartition("/")[2]] for one in found.findings],
            )
        for line in found.unknown:
            inform(f"Unknown: {line}")
        inform(sentence(short_id(name), found))
    return found


def _full(project: str) -> str:
    return project if project.startswith("projects/") else f"projects/{project}"


def _seconds(given: tuple[int, int]) -> float:
    return given[0] + given[1] / 1e9
