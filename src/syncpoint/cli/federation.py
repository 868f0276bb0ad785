"""`syncpoint federation`: messages move between servers, by a file.

Place: the outermost room; reads the file with `federation.spec`, asks the servers, runs the supervisor.
Promise: `validate` and `plan` start nothing; whatever is shown or logged says where secrets are, never what they are.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncpoint.cli.errors import EXIT_CODES, Problem
from syncpoint.cli.federation_backfill import backfill
from syncpoint.cli.federation_failover import failback, failover, standby
from syncpoint.cli.output import print_json, print_table, said
from syncpoint.cli.settings import Settings, with_settings
from syncpoint.model.counted import counted
from syncpoint.model.errors import Code, FailedPrecondition, InvalidArgument

if TYPE_CHECKING:
    from syncpoint.federation.flow_plan import FederationLink, Flow
    from syncpoint.federation.servers import Servers
    from syncpoint.federation.spec import Federation
    from syncpoint.federation.state import StateFolder

STOP_S = 60.0
WATCH_S = 1.0
LOSSES = ("DataLossError", "OUT_OF_RANGE")  # by which the job says that a source has deleted what was not copied


@click.group()
def federation() -> None:
    """Messages move between servers: replication and more, by a file, on Spark.

    \b
    A file that keeps the topics of one project in two servers:
      version: 1
      clusters:
        eu: {endpoint: "eu.example:8085"}
        us: {endpoint: "us.example:8085"}
      namespaces:
        shop: {clusters: [eu, us]}
    """


for _command in (standby, failover, failback, backfill):
    federation.add_command(_command)


def _file(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument(
        "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), default="federation.yaml"
    )(command)


def _load(file: Path) -> tuple[Federation, list[FederationLink]]:
    from syncpoint.federation.patterns.registry import links_of
    from syncpoint.federation.spec import load

    try:
        found = load(file)
        return found, links_of(found)
    except InvalidArgument as error:
        raise Problem(f"{file}: {error.message}", "docs/federation.md explains every key.") from error


@federation.command()
@_file
@with_settings
def validate(settings: Settings, file: Path) -> None:
    """Hold a file against the schema and against itself. Asks no server."""
    found, links = _load(file)
    said(f"{file} is valid: {counted(len(found.clusters), 'cluster')}, {counted(len(links), 'link')}.")


@federation.command()
@_file
@with_settings
def plan(settings: Settings, file: Path) -> None:
    """Show which links a file comes to, and which flows for the topics that exist now."""
    from syncpoint.federation.flow_plan import absent_topics
    from syncpoint.federation.servers import Servers

    _, links = _load(file)
    with Servers() as servers:
        servers.able(links)
        flows = servers.flows(links)
    absent = [f"{task}: {why}" for task, why in absent_topics(links, flows).items()]
    if settings.format == "json":
        shown = [_link_dict(link) for link in links], [_flow_dict(flow) for flow in flows]
        print_json({"links": shown[0], "flows": shown[1], "absent": absent})
        return
    print_table(
        ["LINK", "PATTERN", "FROM", "TO", "PROJECT", "TOPICS", "ORIGINS", "CHANGES"],
        [
            [
                link.name,
                link.pattern,
                link.source.name,
                link.target.name,
                link.source_project or link.target_project,
                _topics(link),
                _origins(link),
                _changes(link),
            ]
            for link in links
        ],
    )
    click.echo()
    print_table(["FLOW", "READS", "WRITES"], [[one.name, one.source_topic, one.target_topic] for one in flows])
    for one in absent:
        said(one)


@federation.command()
@_file
@click.option("--once", is_flag=True, help="Copy what is there, then end.")
@click.option("--quiet", is_flag=True, help="No table; only the log.")
@with_settings
def run(settings: Settings, file: Path, once: bool, quiet: bool) -> None:
    """Run the federation until Ctrl-C, SIGTERM or `federation stop`.

    Spark is started when messages wait, made larger and smaller as they do, and stopped when nothing comes
    (`runtime.idle`; `runtime.warm: true` keeps it).
    """
    from rich.console import Console
    from rich.live import Live

    from syncpoint.federation.flow_status import table
    from syncpoint.federation.metrics import Metrics
    from syncpoint.federation.sparks import make_spark
    from syncpoint.federation.state import StateFolder
    from syncpoint.federation.supervisor import Supervisor

    found, links = _load(file)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    state = StateFolder(found.runtime.state)
    spark = make_spark(file.resolve(), found.runtime, state)
    try:
        state.take()
    except FailedPrecondition as error:
        raise Problem(
            error.message,
            f"`syncpoint federation status {file}` shows how far it is, `syncpoint federation stop {file}` ends it.",
        ) from error
    metrics = None
    unable: dict[str, str] = {}
    try:
        if found.runtime.metrics:
            metrics = Metrics()
            host, _, port = found.runtime.metrics.rpartition(":")
            said(f"metrics on {host or '127.0.0.1'}:{metrics.serve(host, int(port))}")
        console = Console(stderr=True)
        supervisor = Supervisor(file.resolve(), found, links, spark, state, metrics=metrics)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: supervisor.stopping.set())
        said(f"running {counted(len(links), 'link')}; `syncpoint federation status {file}` shows them, Ctrl-C ends it")
        if quiet or not console.is_terminal:
            unable = supervisor.run(until_done=once)
        else:
            with Live(console=console, refresh_per_second=2) as live:
                supervisor.on_progress = lambda progress, shown: live.update(
                    table(progress, state.flows(), shown, console.width, file=file)
                )
                unable = supervisor.run(until_done=once)
    finally:
        state.release(unable)
    for line in supervisor.summary.lines(unable) if once else ():
        said(line)
    if once and unable:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in unable.items())
        raise Problem(f"Not everything could be copied: {reasons}", f"See {state.log('job')}.")
    said("stopped")


@federation.command()
@_file
@click.option("--watch", is_flag=True, help="Go on, once a second, until Ctrl-C.")
@with_settings
def status(settings: Settings, file: Path, watch: bool) -> None:
    """Show how far each flow is: what waits, what was copied, what was dropped or refused."""
    from rich.console import Console
    from rich.live import Live

    from syncpoint.federation.flow_plan import absent_topics
    from syncpoint.federation.flow_status import as_dict, table
    from syncpoint.federation.servers import Servers
    from syncpoint.federation.state import StateFolder
    from syncpoint.federation.streams.stream_reports import with_reports

    whole, links = _load(file)
    state = StateFolder(whole.runtime.state)
    console = Console(width=None if sys.stdout.isatty() else 200)
    with Servers() as servers:
        silent: dict[str, str] = {}
        absent: dict[str, str] = {}

        def look() -> tuple[list[Any], dict[str, Any], Any]:
            reported, unlisted = servers.reported_flows(links)
            paused, flows = state.paused(), state.flows()
            found = with_reports(servers.progress_of(reported), flows)
            progress = [dataclasses.replace(one, paused=one.flow.name in paused) for one in found]
            absent.clear()
            absent.update(absent_topics(links, reported, unlisted))
            silent.clear()
            silent.update(unlisted)
            for one in progress:
                silent.update(one.silent)
            return progress, flows, state.supervisor()

        if settings.format == "json":
            progress, flows, supervisor = look()
            running = supervisor is not None and bool(supervisor.job)
            print_json([as_dict(one, flows.get(one.flow.name), running, file) for one in progress])
            for task, why in absent.items():
                said(f"{task}: {why}")
        elif watch and console.is_terminal:
            with Live(console=console, refresh_per_second=2) as live:
                while True:
                    live.update(table(*look(), console.width, absent, file))
                    time.sleep(WATCH_S)
        else:
            console.print(table(*look(), console.width, absent, file))
            while watch:
                sys.stdout.flush()
                time.sleep(WATCH_S)
                console.print()
                console.print(table(*look(), console.width, absent, file))
    if silent:
        raise Problem(
            "; ".join(silent.values()),
            f"Flows of {', '.join(sorted(silent))} are not shown, or without what only it knows.",
            exit_code=EXIT_CODES[Code.UNAVAILABLE],
        )


@federation.command()
@_file
@with_settings
def stop(settings: Settings, file: Path) -> None:
    """End the federation that runs from this file, and wait until it has ended."""
    from syncpoint.federation.state import StateFolder

    found, _ = _load(file)
    state = StateFolder(found.runtime.state)
    running = state.supervisor()
    if running is None:
        raise Problem("Nobody runs it here.", f"`syncpoint federation run {file}` does.")
    os.kill(running.pid, signal.SIGTERM)
    end = time.monotonic() + STOP_S
    while state.supervisor() is not None:
        if time.monotonic() >= end:
            raise Problem(f"Process {running.pid} has not ended in {STOP_S:.0f} s.", f"See {state.log('job')}.")
        time.sleep(0.2)
    said("stopped")


@federation.command()
@click.argument("flow")
@_file
@with_settings
def pause(settings: Settings, flow: str, file: Path) -> None:
    """Let a FLOW copy nothing until `resume`; what is published in the meantime waits at the source."""
    from syncpoint.federation.flow_status import advised
    from syncpoint.federation.state import StateFolder

    whole, links = _load(file)
    _flow_named(links, flow, file)
    StateFolder(whole.runtime.state).pause(flow)
    said(f"{flow} is paused; {advised(f'resume {flow}', file)} lets it go on.")


@federation.command()
@click.argument("flow")
@_file
@with_settings
def resume(settings: Settings, flow: str, file: Path) -> None:
    """Let a FLOW that was paused go on where it is."""
    from syncpoint.federation.state import StateFolder

    whole, _ = _load(file)
    if not StateFolder(whole.runtime.state).resume(flow):
        raise Problem(f"{flow} is not paused.", f"`syncpoint federation status {file}` shows what is.")
    said(f"{flow} goes on.")


@federation.command("accept-gap")
@click.argument("flow")
@_file
@with_settings
def accept_gap(settings: Settings, flow: str, file: Path) -> None:
    """Let a FLOW go on behind messages that are gone. What is skipped is recorded, and counted for ever."""
    from syncpoint.federation.servers import Servers
    from syncpoint.federation.state import StateFolder
    from syncpoint.federation.streams.stream_ends import FileStream

    whole, links = _load(file)
    found = _flow_named(links, flow, file)
    if found.link.target.stream is not None or isinstance(found.link.source.stream, FileStream):
        raise Problem(f"{flow} has no gaps that could be accepted.", "`status` says what stops it, and what to do.")
    with Servers() as servers:
        lost = servers.lost(found)
        if lost:
            # The source cannot be read where the flow is: it begins anew behind, and the target records the gap.
            StateFolder(whole.runtime.state).accept(flow, "\n".join(map(str, lost)))
            gaps = lost
        else:
            gaps = _accept_at_target(servers, found, StateFolder(whole.runtime.state))
    skipped = [[str(one.source), str(one.begin), str(one.end - 1), f"{one.end - one.begin:,}"] for one in gaps]
    print_table(["SOURCE", "FROM", "TO", "MESSAGES SKIPPED"], skipped)


def _flow_named(links: list[FederationLink], name: str, file: Path) -> Flow:
    """The flow of this name. Raises `Problem`."""
    from syncpoint.federation.servers import Servers

    with Servers() as servers:
        found = next((one for one in servers.flows(links) if one.name == name), None)
    if found is None:
        raise Problem(f"There is no flow {name}.", f"`syncpoint federation plan {file}` lists them.")
    return found


def _accept_at_target(servers: Servers, flow: Flow, state: StateFolder) -> list[Any]:
    """Gaps that the target has skipped now. Where it has refused none, but the flow cannot read again what it was
    about to copy, the flow begins anew where its target is: a gap is found, and recorded, when it does.
    """
    from syncpoint.model.errors import SyncpointError

    try:
        return list(servers.accept_gap(flow).skipped)
    except SyncpointError as error:
        shown = state.flows().get(flow.name)
        if error.code is not Code.FAILED_PRECONDITION or shown is None or not any(one in shown.error for one in LOSSES):
            raise
        state.accept(flow.name, shown.error)
        said(f"{flow.name} begins anew where its target is.")
        return []


def _origins(link: FederationLink) -> str:
    if link.origins is None:
        return "all"
    return ", ".join(one or link.source.name for one in link.origins)


def _topics(link: FederationLink) -> str:
    found = ", ".join(link.topics)
    return f"{found} [{', '.join(map(str, link.partitions))}]" if link.partitions else found


def _changes(link: FederationLink) -> str:
    change = link.change
    parts = [f"rule {rule.filter or '1=1'}{f' -> {rule.action}' if rule.action else ''}" for rule in change.rules]
    parts += [f"where {change.where}"] if change.where else []
    parts += [f"{name} = {value}" for name, value in change.select.items()]
    parts += [change.python] if change.python else []
    return "; ".join([*parts, link.steps.summary] if link.steps else parts)


def _link_dict(link: FederationLink) -> dict[str, Any]:
    return {
        "name": link.name,
        "pattern": link.pattern,
        "source": {"cluster": link.source.name, "endpoint": link.source.endpoint, "project": link.source_project},
        "target": {"cluster": link.target.name, "endpoint": link.target.endpoint, "project": link.target_project},
        "topics": list(link.topics),
        "partitions": list(link.partitions),
        "origins": None if link.origins is None else [one or link.source.name for one in link.origins],
        "rules": [dataclasses.asdict(rule) for rule in link.change.rules],
        "where": link.change.where,
        "select": dict(link.change.select),
        "python": link.change.python,
        "steps": link.steps.summary,
    }


def _flow_dict(flow: Flow) -> dict[str, Any]:
    return {"name": flow.name, "link": flow.link.name, "reads": flow.source_topic, "writes": flow.target_topic}
