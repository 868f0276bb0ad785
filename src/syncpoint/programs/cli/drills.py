"""`syncpoint drill ...`: a failure rehearsed, rolled back and certified.

Place: over `programs.disaster`; drills are kept by the server, their journals and certificates in a folder.
Promise: nothing fails before the guards were asked and the undoing is on disk.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.wording import lasting
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import as_dict, inform, print_answer, print_json
from syncpoint.programs.cli.settings import Settings, with_settings

if TYPE_CHECKING:
    from syncpoint.programs.disaster.drill_plan import DrillPlan


@click.group(cls=Group)
def drill() -> None:
    """Rehearse failures: made on purpose, rolled back, and certified by clients of their own."""


_OPTIONS = (
    click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)),
    click.option(
        "--kind",
        type=click.Choice(["kill", "hang", "pause-link", "move-home", "cut-network", "fill-disk"]),
        help="What fails, and how.",
    ),
    click.option("--cluster", help="Folder of a `cluster up`, with --process."),
    click.option("--process", help="Name of a process of --cluster."),
    click.option("--pid", help="Id of a process of this machine."),
    click.option("--restart", help="Command that starts what --pid was again; for kill."),
    click.option("--federation", help="File of a federation, with --flow, or --subscription and --site."),
    click.option("--flow", help="Flow whose link is paused."),
    click.option("--subscription", help="Subscription that moves."),
    click.option("--site", help="Site that it moves to."),
    click.option("--port", help="TCP port of this machine that no packet passes."),
    click.option("--folder", help="Folder of disks whose file system is filled."),
    click.option("--leave", help="Bytes that are left free in it [0]."),
    click.option("--for", "for_", help="How long the failure lasts [10s]."),
    click.option("--limit", help="Roll back after this time, whatever happens [120s]."),
    click.option("--topic", help="A real topic, in place of a shadow topic."),
)


def _planned(function: Callable[..., Any]) -> Callable[..., Any]:
    for one in reversed(_OPTIONS):
        function = one(function)
    return function


def _plan(settings: Settings, file: Path | None, given: dict[str, str | None]) -> DrillPlan:
    from syncpoint.base.model.yaml_text import load_yaml_file
    from syncpoint.programs.disaster.drill_plan import parse_plan

    try:
        keys = {} if file is None else load_yaml_file(file)
        if not isinstance(keys, dict):
            raise InvalidArgument(str(file), "must have one key and its value on each line")
        keys |= {key.rstrip("_"): value for key, value in given.items() if value is not None}
        if "topic" in keys:
            keys["topic"] = settings.name("topics", keys["topic"])
        return parse_plan(keys)
    except InvalidArgument as error:
        raise Problem(str(error), "`syncpoint docs disaster-recovery` has the keys.", exit_code=2) from error


@drill.command()
@_planned
@with_settings
def plan(settings: Settings, file: Path | None, **given: str | None) -> None:
    """Show what a drill would do, and whether the guards would let it; changes nothing.

    \b
    Example:
      syncpoint drill plan --kind kill --cluster dev --process publish-1
    """
    from syncpoint.programs.disaster.drill_driver import at_risk
    from syncpoint.programs.disaster.drill_failures import check_target

    made = _plan(settings, file, given)
    check_target(made)
    with settings.client() as client:
        reasons = at_risk(client)
    rows = [
        ["clients", f"publish to, and receive from, {made.topic or 'a shadow topic, deleted at the end'}"],
        ["failure", f"{made.kind} of {made.shown}, for {lasting(made.lasts_s)}"],
        ["rollback", f"by itself, after {lasting(made.limit_s)} at most, also when this program dies"],
        ["guards", "; ".join(reasons) or "nothing at risk, no alert pages"],
    ]
    shown = {"kind": made.kind, "target": dict(made.target), "for": made.lasts_s, "limit": made.limit_s}
    print_answer(settings.format, {**shown, "refused": reasons}, ["STEP", "WHAT"], rows)
    if reasons:
        raise Problem("The drill would be refused.", "`syncpoint at-risk` and `syncpoint alerts list` show why.")


@drill.command()
@_planned
@click.option("--id", "name", help="Name of the drill [drawn].")
@click.option("--state", type=click.Path(file_okay=False, path_type=Path), default="drill-state", show_default=True,
              help="Folder for journal and certificate.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_settings
def start(settings: Settings, file: Path | None, name: str | None, state: Path, yes: bool, **given: str | None) -> None:
    """Run a drill: make a failure, roll it back, and certify what clients saw.

    Refused while messages are at risk or an alert pages; stopped when one begins to. The certificate has the messages
    that were lost (RPO) and the longest time without a publish or a message (RTO), is kept by the server, and written
    to the --state folder as JSON and as a page. The exit code is 1 where messages were lost or the drill was stopped.

    \b
    Examples:
      syncpoint drill start --kind kill --cluster dev --process publish-1 --for 10s
      syncpoint drill start --kind hang --pid 4711 --for 5s --yes
      syncpoint drill start drill.yaml
    """
    from syncpoint.programs.disaster.drill_driver import DrillRun
    from syncpoint.programs.disaster.drill_failures import check_target

    made, ident = _plan(settings, file, given), name or f"d-{secrets.token_hex(4)}"
    check_target(made)
    if not yes:
        click.confirm(f"{made.kind} of {made.shown} for {lasting(made.lasts_s)}: go on?", abort=True)
    settings.called = True
    run = DrillRun(
        ident, f"projects/{settings.project}", made, lambda: settings.client(patience_s=0.0), state.absolute(), inform,
        lambda: _not_copied(made),
    )  # fmt: skip
    found = run.run()
    _written(state, found)
    if settings.format == "json":
        print_json(as_dict(found))
    else:
        click.echo((state / f"{ident}.md").read_text(encoding="utf-8"), nl=False)
    if found.reason:
        raise Problem(f"The drill {ident} was stopped: {found.reason}.", f"Its journal is {state / ident}.journal.")
    if found.certificate.lost:
        raise Problem(f"{found.certificate.lost:,} messages were lost.", f"The certificate is {state / ident}.md.")


def _not_copied(made: DrillPlan) -> int:
    """What the links of the plan's federation have not copied; -1: it names none, or one end does not answer."""
    if "federation" not in made.target:
        return -1
    from syncpoint.programs.federation.patterns.registry import links_of
    from syncpoint.programs.federation.servers import Servers
    from syncpoint.programs.federation.spec import load

    with Servers() as servers:
        flows, silent = servers.reported_flows(links_of(load(Path(made.target["federation"]))))
        lags = [one.lag for one in servers.progress_of(flows)]
    return -1 if silent or None in lags else sum(lag or 0 for lag in lags)


def _written(state: Path, found: Any) -> None:
    import json

    from syncpoint.programs.disaster.drill_page import certificate_page

    (state / f"{found.drill}.json").write_text(json.dumps(as_dict(found), indent=2) + "\n", encoding="utf-8")
    (state / f"{found.drill}.md").write_text(certificate_page(found), encoding="utf-8")


@drill.command()
@click.argument("name", metavar="DRILL")
@with_settings
def status(settings: Settings, name: str) -> None:
    """Show a drill, and its certificate once it has ended.

    \b
    Example:
      syncpoint drill status d-1a2b3c4d
    """
    from syncpoint.programs.disaster.drill_page import certificate_page
    from syncpoint.wire.protobuf.messages import admin

    request = admin.GetDrillRequest(project=f"projects/{settings.project}", drill=name)
    found = settings.call("Admin.GetDrill", request)
    if print_answer(settings.format, found):
        return
    if found.state == admin.Drill.RUNNING:
        inform(f"{found.kind} of {found.target} since {found.start_time.ToJsonString()}.")
    else:
        click.echo(certificate_page(found), nl=False)


@drill.command()
@click.argument("name", metavar="DRILL")
@with_settings
def abort(settings: Settings, name: str) -> None:
    """Stop a running drill; it rolls back at once.

    \b
    Example:
      syncpoint drill abort d-1a2b3c4d
    """
    from syncpoint.wire.protobuf.messages import admin

    request = admin.AbortDrillRequest(project=f"projects/{settings.project}", drill=name)
    found = settings.call("Admin.AbortDrill", request)
    inform(f"The drill [{name}] rolls back.")
    print_answer(settings.format, found)


@drill.command("list")
@with_settings
def list_all(settings: Settings) -> None:
    """List the drills of the project, the latest first.

    \b
    Example:
      syncpoint drill list
    """
    from syncpoint.programs.disaster.drill_page import rto_ms
    from syncpoint.wire.protobuf.messages import admin

    request = admin.ListDrillsRequest(project=f"projects/{settings.project}")
    found = settings.call("Admin.ListDrills", request)
    rows = []
    for one in found.drills:
        certified = one.HasField("certificate")
        rows.append(
            [
                one.drill,
                one.kind,
                one.target,
                admin.Drill.State.Name(one.state).lower(),
                one.start_time.ToJsonString(),
                f"{one.certificate.lost:,} messages" if certified else "",
                lasting(rto_ms(one.certificate) / 1000) if certified else "",
            ]
        )
    print_answer(settings.format, found, ["DRILL", "KIND", "TARGET", "STATE", "STARTED", "RPO", "RTO"], rows)
