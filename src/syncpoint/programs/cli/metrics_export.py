"""`--otlp-metrics` of programs that run on: where they send their metrics, and how often.

Place: under every command that runs a server or a program; `watch.metrics.otlp_export` sends.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.values import SecondsType

if TYPE_CHECKING:
    from syncpoint.watch.metrics.family import Samples
    from syncpoint.watch.metrics.otlp_export import MetricsExportSettings

ADDRESS, INTERVAL = "--otlp-metrics", "--otlp-metrics-interval"


def metrics_export_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Both options, as the parameters `otlp_metrics` and `otlp_metrics_interval`."""
    command = click.option(INTERVAL, type=SecondsType(1.0), help=f"Time between exports; with {ADDRESS}. [60s]")(
        command
    )
    help_text = "Also send metrics to this OpenTelemetry collector."
    return click.option(ADDRESS, metavar="URL", default="", help=help_text)(command)


def metrics_export(otlp: str, interval_s: float | None) -> MetricsExportSettings:
    """Settings from both options. Raises `UsageError`."""
    from syncpoint.watch.metrics.otlp_export import checked_export

    try:
        return checked_export(otlp, interval_s, ADDRESS, INTERVAL)
    except InvalidArgument as error:
        raise click.UsageError(error.message) from error


@contextlib.contextmanager
def exporting(otlp: str, interval_s: float | None, program: str, samples: Callable[[], Samples]) -> Iterator[None]:
    """Export what `samples` returns, from a thread, for as long as this lasts. `program`: its name among those of this
    host, for the collector.
    """
    settings = metrics_export(otlp, interval_s)
    if not settings.otlp:
        yield
        return
    from syncpoint.watch.metrics.otlp_export import OtlpThread

    try:
        thread = OtlpThread(settings, samples, f"{socket.gethostname()}/{program}")
    except FailedPrecondition as error:
        raise Problem(f"{ADDRESS} cannot be used: {error.message}", "Install it, or leave the option out.") from error
    thread.start()
    try:
        yield
    finally:
        thread.stop()
