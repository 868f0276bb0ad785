"""`syncpoint top`: what a server, its workers or a cluster does right now, in the terminal.

Place: the operator's side of the command line; `/metrics` of each process is read, and nothing else is asked.
Promise: where standard output is no terminal, or with `--once`, one look is printed and that is all. The terminal is
left as it was found, however the program ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.output import inform, print_answer
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.top_screen import TopView, arranged, cell, drawn, pressed, shown_panels
from syncpoint.programs.cli.values import SecondsType

if TYPE_CHECKING:
    from syncpoint.programs.cli.top_figures import TopFigures
    from syncpoint.programs.cli.top_readings import MetricsAddress, MetricsReading

PANEL = click.Choice(["processes", "topics", "subscriptions", "disks"])
ANSWER_S = 5.0
KEY_S = 0.2  # how often a paused screen looks for the terminal's size


@click.command()
@click.option(
    "--config",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A cluster's file; includes every process that has the key `metrics`.",
)
@click.option("--dir", "folder", type=click.Path(file_okay=False, path_type=Path), help="The folder of `cluster up`.")
@click.option("--metrics", "addresses", multiple=True, metavar="HOST:PORT", help="A port for metrics; may be repeated.")
@click.option("--once", is_flag=True, help="Print once and exit.")
@click.option(
    "--interval", default="2s", show_default=True, type=SecondsType(1.0, 3_600.0), help="Time between refreshes."
)
@click.option("--panel", type=PANEL, help="Show only these.")
@click.option("--filter", "wanted", default="", help="Show only rows whose name contains this.")
@with_settings
def top(
    settings: Settings,
    path: Path | None,
    folder: Path | None,
    addresses: tuple[str, ...],
    once: bool,
    interval: float,
    panel: str | None,
    wanted: str,
) -> None:
    """Show current rates, backlogs, latencies, disks and processes.

    By default, reads the server at --endpoint with all its workers; of a cluster, all its processes. Rates are averages
    between two readings; a server refreshes its metrics once a second.

    \b
    Examples:
      syncpoint top
      syncpoint top --config cluster.yaml --panel subscriptions
      syncpoint top --once --format json
    """
    if sum((path is not None, folder is not None, bool(addresses))) > 1:
        raise click.UsageError("Give one of --config, --dir and --metrics.")
    if settings.format == "json" and not once:
        raise click.UsageError("--format json needs --once.")
    places, where = metrics_places(settings, path, folder, addresses)
    view = TopView(panel=panel or "", filter=wanted, interval_s=interval)
    if once or not (sys.stdout.isatty() and sys.stdin.isatty()):
        _print_once(settings, places, where, view)
    else:
        with contextlib.suppress(KeyboardInterrupt):
            _watch(places, where, view)


def metrics_places(
    settings: Settings, path: Path | None, folder: Path | None, addresses: Sequence[str]
) -> tuple[list[MetricsAddress], str]:
    """Whom to ask, and what they are called together."""
    from syncpoint.programs.cli.top_readings import MetricsAddress

    if addresses:
        return [MetricsAddress(one) for one in addresses], f"{', '.join(addresses)} alone"
    if path is None and folder is None:
        client = settings.client()
        return _at_endpoint(MetricsAddress(settings.addresses[0], "", client.tls, _shown(client)))
    from syncpoint.node.cluster.settings import load
    from syncpoint.programs.cli.cluster_targets import target

    file = path or (folder or Path()) / "cluster.yaml"
    if not file.exists():
        raise Problem(f"{file} does not exist", "Name the folder of `syncpoint cluster up --dir`.")
    made = load(file)
    found = [MetricsAddress(target(one)["targets"][0], one.name) for one in made.processes.values() if one.metrics]
    if not found:
        raise Problem(
            f"no process in {file} has the key `metrics`",
            'Give each process an address there, such as metrics: "10.0.1.1:9100", and start it again.',
        )
    silent = [one.name for one in made.processes.values() if not one.metrics]
    if silent:
        inform(f"Without the key `metrics`, and left out: {', '.join(silent)}")
    return found, f"cluster {made.name}"


def _at_endpoint(place: MetricsAddress) -> tuple[list[MetricsAddress], str]:
    """A proxy of a cluster shows all processes; another server itself, with all its workers."""
    from syncpoint.programs.cli.top_readings import text_of
    from syncpoint.watch.metrics.scraped_page import CLUSTER_PATH

    whole = replace(place, path=CLUSTER_PATH)
    if isinstance(text_of(whole, ANSWER_S), bytes):
        return [whole], f"{place.address}, all processes of its cluster"
    return [place], f"{place.address}, this server with its workers"


def _shown(client: Any) -> Callable[[], Mapping[str, str]]:
    return lambda: {name.decode(): value.decode() for name, value in client.shown()}


def _read(places: Sequence[MetricsAddress]) -> MetricsReading:
    from syncpoint.programs.cli.top_readings import read

    reading = read(places, ANSWER_S)
    if len(reading.silent) == len(places):
        name, why = next(iter(reading.silent.items()))
        raise Problem(
            f"no metrics at {name}: {why}",
            "Is it running? `syncpoint doctor` checks that address. With access control the caller needs "
            "syncpoint.server.get; a `serve --metrics` port requires no permission.",
            exit_code=5,
        )
    return reading


def _moved(before: MetricsReading, after: MetricsReading) -> TopFigures:
    from syncpoint.programs.cli.top_figures import figures
    from syncpoint.programs.cli.top_readings import Movement

    return figures(Movement(before, after), after.silent)


def _print_once(settings: Settings, places: Sequence[MetricsAddress], where: str, view: TopView) -> None:
    before = _read(places)
    time.sleep(view.interval_s)
    found = _moved(before, _read(places))
    if print_answer(settings.format, found.as_json()):
        return
    from syncpoint.programs.cli.output import print_table
    from syncpoint.programs.cli.top_figures import TOTALS

    inform(f"{where}, over {found.seconds:.1f} s")
    print_table(["FIGURE", "VALUE"], [[one.heading, cell(one, found.totals[one.key])] for one in TOTALS])
    for panel in shown_panels(found, view):
        rows = [[cell(*pair) for pair in zip(panel.columns, row, strict=True)] for row in arranged(panel, view)]
        if rows:
            click.echo()
            print_table([column.heading for column in panel.columns], rows)
    for name, why in found.silent.items():
        inform(f"{name} does not answer: {why}")


def _watch(places: Sequence[MetricsAddress], where: str, view: TopView) -> None:
    """Until somebody ends it. A look that fails altogether is shown, and tried again."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    reading = _read(places)
    found: TopFigures | None = None
    trouble = ""
    due_s = time.monotonic() + 1.0  # the first figures soon; then as wished
    with _keys() as key_within, Live(console=console, screen=True, auto_refresh=False) as live:
        while not view.over:
            heading = f"{where}  {trouble}" if trouble else where
            live.update(drawn(found, view, heading, console.width, console.height), refresh=True)
            for key in key_within(KEY_S if view.paused else max(due_s - time.monotonic(), 0.0)):
                view = pressed(view, key)
            due_s = min(due_s, time.monotonic() + view.interval_s)
            if view.paused or view.over or time.monotonic() < due_s:
                continue
            due_s = time.monotonic() + view.interval_s
            try:
                last, trouble = reading, ""
                reading = _read(places)
                found = _moved(last, reading)
            except Problem as problem:
                trouble = problem.message


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Keys of the terminal one by one, without echo: a function that returns those that come within seconds."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def within(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        if not ready:
            return ""
        typed = os.read(descriptor, 1_024).decode(errors="ignore")
        return "" if typed.startswith("\x1b") and len(typed) > 1 else typed  # arrows and the like mean nothing

    try:
        yield within
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
