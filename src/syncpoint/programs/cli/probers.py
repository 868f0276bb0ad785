"""`syncpoint probers`: clients that try the service again and again, and say whether it does as it should.

Place: the outermost room; builds what `probers.prober_driver` needs from options.
Promise: with `--once` the exit code is 1 when anything is not as expected, or not known. Nothing but the public
interface of the servers is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.metrics_export import exporting, metrics_export_options
from syncpoint.programs.cli.output import inform, print_answer
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.values import SecondsType

if TYPE_CHECKING:
    from syncpoint.programs.probers.probe_run import ProbedEndpoint
    from syncpoint.programs.probers.prober_board import ProberBoard
    from syncpoint.programs.probers.prober_table import ProberSpec
    from syncpoint.programs.probers.push_receiver import PushReceiver

PROJECT: Final = "syncpoint-probers"
DEADLINE_S: Final = 10.0
INTERVAL_S: Final = 60.0


@click.group(cls=Group)
def probers() -> None:
    """Clients that try the service again and again, and say whether it does as it should."""


@probers.command("list")
@with_settings
def list_probers(settings: Settings) -> None:
    """Show the ten probers, their descriptions, and their three metrics with limits.

    \b
    Example:
      syncpoint probers list
    """
    from syncpoint.programs.probers.prober_table import PROBERS, Measure

    rows = [
        [
            one.name,
            one.title,
            ", ".join(one.planes),
            ", ".join(f"{step.name} {step.limit_s:g} s" for step in one.timed),
            one.actions,
        ]
        for one in PROBERS
    ]
    print_answer(
        settings.format,
        [
            {
                "name": one.name,
                "title": one.title,
                "planes": [str(plane) for plane in one.planes],
                "actions": one.actions,
                "metrics": [one.metric(measure) for measure in Measure],
                "limits": {step.name: step.limit_s for step in one.timed},
                "wrong": [str(kind) for kind in one.wrong],
            }
            for one in PROBERS
        ],
        ["PROBER", "TITLE", "PLANE", "LIMITS", "DOING"],
        rows,
    )


@probers.command()
@with_settings
@click.option(
    "--endpoint",
    "endpoints",
    multiple=True,
    metavar="HOST:PORT",
    help="A proxy or server to probe; may be repeated. [the common --endpoint]",
)
@click.option("--only", multiple=True, metavar="NAME", help="Only these probers: P1, P2, ...")
@click.option("--without", multiple=True, metavar="NAME", help="All probers except these.")
@click.option(
    "--once", is_flag=True, help="Run each prober once, print a table, and exit with 1 if a result is unexpected."
)
@click.option(
    "--interval",
    "interval_s",
    type=SecondsType(1.0),
    default=f"{INTERVAL_S:g}s",
    show_default=True,
    help="Interval between runs of a prober at an endpoint.",
)
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics, for Prometheus, and /probers.json here.")
@metrics_export_options
@click.option("--status", type=click.Path(dir_okay=False, path_type=Path), help="Also write this JSON to a file.")
@click.option("--push-listen", default="127.0.0.1:0", show_default=True, metavar="HOST:PORT", help="Where P7 listens.")
@click.option(
    "--push-url",
    default="",
    metavar="URL",
    help="URL of the push listener for servers. [http://HOST:PORT of --push-listen]",
)
@click.option(
    "--copy",
    "copy_to",
    metavar="HOST:PORT[/PROJECT]",
    help="Cluster where P10 waits for a federation's copies of the topic probe-p10-copied.",
)
@click.option(
    "--patience",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Multiply all duration limits by this.",
)
def run(
    settings: Settings,
    endpoints: tuple[str, ...],
    only: tuple[str, ...],
    without: tuple[str, ...],
    once: bool,
    interval_s: float,
    metrics: str | None,
    otlp_metrics: str,
    otlp_metrics_interval: float | None,
    status: Path | None,
    push_listen: str,
    push_url: str,
    copy_to: str | None,
    patience: float,
) -> None:
    """Run the probers at every endpoint, until Ctrl-C.

    Their resources are in a separate project, --project [syncpoint-probers]; --timeout is the deadline of a step [10].

    \b
    Examples:
      syncpoint probers run --once --endpoint 127.0.0.1:8085
      syncpoint probers run --endpoint proxy-1:8085 --endpoint proxy-2:8085 --metrics 127.0.0.1:9180
    """
    import logging

    from syncpoint.programs.probers.board_page import BoardPage
    from syncpoint.programs.probers.probe_run import ProbeSurroundings
    from syncpoint.programs.probers.prober_board import ProberBoard
    from syncpoint.programs.probers.prober_driver import ProberDriver

    chosen = _chosen(only, without)
    places = tuple(_place(settings, one) for one in dict.fromkeys(endpoints or settings.addresses))
    project = (settings.project_option or PROJECT).removeprefix("projects/")
    copy_address, _, copy_project = (copy_to or "").partition("/")
    board = ProberBoard(chosen, [one.address for one in places], patience)
    page = BoardPage(board, status)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.ERROR if once else logging.INFO)
    try:
        if metrics is not None:
            host, port = _address("--metrics", metrics)
            inform(f"metrics on http://{host}:{page.serve(host, port)}/metrics")
        push = _push_receiver(push_listen, push_url) if any(one.name == "P7" for one in chosen) else None
        around = ProbeSurroundings(
            project=project,
            endpoints=places,
            deadline_s=settings.timeout_option or DEADLINE_S,
            push=push,
            copy=_place(settings, copy_address) if copy_address else None,
            copy_project=copy_project or project,
            patience=patience,
        )
        driver = ProberDriver(chosen, around, board, on_change=page.renew)
        with exporting(otlp_metrics, otlp_metrics_interval, "probers", board.samples):
            if once:
                asyncio.run(driver.once())
            else:
                inform(f"running {counted(len(chosen), 'prober')} at {', '.join(one.address for one in places)}")
                asyncio.run(_until_ended(driver.forever(interval_s)))
        if push is not None:
            push.close()
    finally:
        page.close()
    if once:
        _report(settings, board)
    else:
        inform("stopped")


async def _until_ended(work: Any) -> None:
    """Until SIGTERM or Ctrl-C; what is under way deletes what it made."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _chosen(only: tuple[str, ...], without: tuple[str, ...]) -> list[ProberSpec]:
    from syncpoint.programs.probers.prober_table import BY_NAME, PROBERS

    given = {option: [one.upper() for one in names] for option, names in (("--only", only), ("--without", without))}
    for option, names in given.items():
        for one in names:
            if one not in BY_NAME:
                raise click.UsageError(f"{option}: unknown prober {one}; choose from {', '.join(BY_NAME)}.")
    chosen = [
        one for one in PROBERS if (not only or one.name in given["--only"]) and one.name not in given["--without"]
    ]
    if not chosen:
        raise click.UsageError("No probers left to run.")
    return chosen


def _place(settings: Settings, address: str) -> ProbedEndpoint:
    from syncpoint.programs.probers.probe_run import ProbedEndpoint

    client = dataclasses.replace(settings, endpoint_option=address).client()
    return ProbedEndpoint(address, client.target())


def _push_receiver(listen: str, url: str) -> PushReceiver:
    from syncpoint.programs.probers.push_receiver import PushReceiver

    host, port = _address("--push-listen", listen)
    try:
        return PushReceiver(host, port, url)
    except OSError as error:
        raise Problem(f"cannot listen on {listen}: {error.strerror}", "Give another --push-listen HOST:PORT.") from None


def _address(option: str, text: str) -> tuple[str, int]:
    """HOST:PORT, where the port may be 0."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise click.UsageError(f"{option}: {text!r} is not of the form HOST:PORT.")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _report(settings: Settings, board: ProberBoard) -> None:
    """The table of one round, and the exit code."""
    found = board.as_dict()
    headings = ["PROBER", "TITLE", "ENDPOINT", "SUCCESS", "DURATION", "CORRECTNESS", "REASON"]
    print_answer(settings.format, found, headings, [_row(one) for one in found["probers"]])
    bad = [f"{prober}.{one.measure} at {endpoint}" for prober, endpoint, one in board.unexpected]
    if not found["asExpected"]:
        raise Problem(f"failed: {', '.join(bad)}", "`syncpoint docs operations/probers` explains each metric.")
    inform(f"all passed: {counted(3 * len(board.entries), 'check')}")


def _row(entry: dict[str, Any]) -> list[str]:
    steps = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in entry["steps"].items())
    shown = {"success": "", "duration": steps, "correctness": "wrong"}
    cells = [_cell(one, shown[one["measure"]]) for one in entry["metrics"]]
    reasons = "; ".join(one["text"] for one in entry["metrics"] if one["verdict"] == "unexpected")
    return [entry["prober"], entry["title"], entry["endpoint"], *cells, reasons]


def _cell(metric: dict[str, Any], shown: str) -> str:
    mark = {"expected": "ok", "unexpected": "BAD", "unknown": "?"}[metric["verdict"]]
    if shown == "wrong":
        return mark if metric["value"] is None else f"{mark}: {metric['value']:.0f} wrong"
    return f"{mark}: {shown}" if shown else mark
