"""`syncpoint federation`: messages move between servers, by a file.

Place: the outermost room; reads the file with `federation.spec`, asks the servers, runs the supervisor.
Promise: `validate` starts nothing; output and logs show where secrets are stored, never their values.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import click

from syncpoint.base.model.errors import Code, FailedPrecondition
from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.errors import EXIT_CODES, Problem
from syncpoint.programs.cli.federation_acks import acks
from syncpoint.programs.cli.federation_backfill import backfill
from syncpoint.programs.cli.federation_failover import failback, failover, standby
from syncpoint.programs.cli.federation_file import file_argument, load_file
from syncpoint.programs.cli.federation_flows import accept_gap, pause, resume
from syncpoint.programs.cli.federation_home import home
from syncpoint.programs.cli.federation_keys import keys
from syncpoint.programs.cli.federation_plan import plan
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.metrics_export import exporting, metrics_export_options
from syncpoint.programs.cli.output import inform, print_drawn, print_json
from syncpoint.programs.cli.settings import Settings, with_settings

STOP_S = 60.0
WATCH_S = 1.0


@click.group(cls=Group)
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


for _command in (plan, acks, home, keys, pause, resume, accept_gap, standby, failover, failback, backfill):
    federation.add_command(_command)


@federation.command()
@file_argument
@with_settings
def validate(settings: Settings, file: Path) -> None:
    """Check a file against the schema and for consistency, without contacting a server.

    \b
    Example:
      syncpoint federation validate federation.yaml
    """
    found, links = load_file(file, conditions=True)
    inform(f"{file} is valid: {counted(len(found.clusters), 'cluster')}, {counted(len(links), 'link')}.")


@federation.command()
@file_argument
@click.option("--once", is_flag=True, help="Copy what exists now, then exit.")
@click.option("--quiet", is_flag=True, help="Print no table, only the log.")
@metrics_export_options
@with_settings
def run(
    settings: Settings, file: Path, once: bool, quiet: bool, otlp_metrics: str, otlp_metrics_interval: float | None
) -> None:
    """Run the federation until Ctrl-C, SIGTERM or `federation stop`.

    Spark is started when messages wait, scales with the backlog, and is stopped when idle (`runtime.idle`;
    `runtime.warm: true` keeps it).

    \b
    Examples:
      syncpoint federation run federation.yaml
      syncpoint federation run federation.yaml --once
    """
    from rich.console import Console
    from rich.live import Live

    from syncpoint.programs.disaster.class_duties import ClassThreads
    from syncpoint.programs.federation.acks.ack_rounds import AckThread, as_dicts
    from syncpoint.programs.federation.flow_status import table
    from syncpoint.programs.federation.metrics import Metrics
    from syncpoint.programs.federation.owned_keys.key_watch import KeyWatch
    from syncpoint.programs.federation.shared_run import SharedFederations, SharedRun
    from syncpoint.programs.federation.sparks import make_spark
    from syncpoint.programs.federation.state import StateFolder
    from syncpoint.programs.federation.supervisor import Supervisor

    found, links = load_file(file)
    if once and found.runtime.shared:
        raise Problem(
            "--once cannot be used with `runtime.shared`: another program may run the federation.",
            "Leave `shared` out of the file, or run it without --once.",
        )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    state = StateFolder(found.runtime.state)
    spark = make_spark(file.resolve(), found.runtime, state)
    try:
        state.take()
    except FailedPrecondition as error:
        raise Problem(
            error.message,
            f"`syncpoint federation status {file}` shows its progress, `syncpoint federation stop {file}` stops it.",
        ) from error
    metrics = Metrics()
    unable: dict[str, str] = {}
    lines: list[str] = []
    stopping = threading.Event()
    console = Console(stderr=True)

    def say_takeovers(records: list[dict[str, Any]]) -> None:
        state.say_takeovers(records)
        metrics.put_takeovers(records)

    def work(to_end: threading.Event) -> None:
        """Run it until that is set."""
        supervisor = Supervisor(file.resolve(), found, links, spark, state, metrics=metrics, stopping=to_end)
        exchange = AckThread(
            links,
            lambda states: state.say_acks(as_dicts(states)),
            last_round=once,
            watching=lambda servers: KeyWatch(links, servers, state.takeovers, say_takeovers),
        )
        classes = ClassThreads(links)
        exchange.start()
        if not once:
            classes.start()
        inform(
            f"running {counted(len(links), 'link')}; `syncpoint federation status {file}` shows them, Ctrl-C stops it"
        )
        try:
            if quiet or not console.is_terminal:
                failed = supervisor.run(until_done=once)
            else:
                with Live(console=console, refresh_per_second=2) as live:
                    supervisor.on_progress = lambda progress, shown: live.update(
                        table(progress, state.flows(), shown, console.width, file=file)
                    )
                    failed = supervisor.run(until_done=once)
            unable.update(failed)
            lines.extend(supervisor.summary.lines(unable) if once else ())
        finally:
            classes.stop()
            exchange.stop()

    try:
        if found.runtime.metrics:
            host, _, port = found.runtime.metrics.rpartition(":")
            inform(f"metrics on {host or '127.0.0.1'}:{metrics.serve(host, int(port))}")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        with exporting(otlp_metrics, otlp_metrics_interval, f"federation/{file.stem}", lambda: metrics.samples):
            if found.runtime.shared:
                SharedRun(SharedFederations(found), state, file.resolve(), stopping).run(work)
            else:
                work(stopping)
    finally:
        state.release(unable)
    for line in lines:
        inform(line)
    if once and unable:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in unable.items())
        raise Problem(f"Not everything could be copied: {reasons}", f"See {state.log('job')}.")
    inform("stopped")


@federation.command()
@file_argument
@click.option("--watch", is_flag=True, help="Refresh every second, until Ctrl-C.")
@with_settings
def status(settings: Settings, file: Path, watch: bool) -> None:
    """Show each flow's progress: messages waiting, copied, dropped and refused.

    \b
    Example:
      syncpoint federation status federation.yaml --watch
    """
    from rich.console import Console
    from rich.live import Live

    from syncpoint.programs.federation.flow_plan import absent_topics
    from syncpoint.programs.federation.flow_status import as_dict, table
    from syncpoint.programs.federation.servers import Servers
    from syncpoint.programs.federation.state import StateFolder
    from syncpoint.programs.federation.streams.stream_reports import with_reports

    whole, links = load_file(file)
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
                inform(f"{task}: {why}")
        elif watch and console.is_terminal:
            with Live(console=console, refresh_per_second=2) as live:
                while True:
                    live.update(table(*look(), console.width, absent, file))
                    time.sleep(WATCH_S)
        else:
            print_drawn(table(*look(), console.width, absent, file), console.width)
            while watch:
                sys.stdout.flush()
                time.sleep(WATCH_S)
                click.echo()
                print_drawn(table(*look(), console.width, absent, file), console.width)
    if silent:
        raise Problem(
            "; ".join(silent.values()),
            f"Flows of {', '.join(sorted(silent))} are missing or incomplete.",
            exit_code=EXIT_CODES[Code.UNAVAILABLE],
        )


@federation.command()
@file_argument
@with_settings
def stop(settings: Settings, file: Path) -> None:
    """Stop the federation that runs from this file, and wait until it has stopped.

    \b
    Example:
      syncpoint federation stop federation.yaml
    """
    from syncpoint.programs.federation.state import StateFolder

    found, _ = load_file(file)
    state = StateFolder(found.runtime.state)
    running = state.supervisor()
    if running is None:
        raise Problem("It is not running here.", f"Start it with `syncpoint federation run {file}`.")
    os.kill(running.pid, signal.SIGTERM)
    end = time.monotonic() + STOP_S
    while state.supervisor() is not None:
        if time.monotonic() >= end:
            raise Problem(f"Process {running.pid} has not stopped in {STOP_S:.0f} s.", f"See {state.log('job')}.")
        time.sleep(0.2)
    inform("stopped")
