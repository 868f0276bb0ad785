"""`syncpoint doctor`: examines the machine, the disks and the server, with advice for each problem.

Place: beside a server, before it is started or while it runs; it measures disks with files of its own, which it
removes. Promise: exit code 1 when something would keep a server from running or its promises from holding, 0 with
warnings. What is examined stands in `syncpoint.programs.cli.examinations`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from syncpoint.base.model.wording import counted
from syncpoint.programs.cli import examinations, spark_examinations
from syncpoint.programs.cli.examinations import Finding
from syncpoint.programs.cli.output import print_answer, print_table
from syncpoint.programs.cli.serve import default_data, unusable
from syncpoint.programs.cli.settings import Settings, with_settings

anywhere = click.Path(path_type=Path)
COLOURS = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@click.command()
@with_settings
@click.option("--host", default="127.0.0.1", show_default=True, help="Address the server listens on.")
@click.option("--port", default=8085, show_default=True, type=click.IntRange(0, 65_535), help="Its port.")
@click.option("--data", type=anywhere, help="Its data folder [SYNCPOINT_DATA, or your data folder].")
@click.option("--disk", "disks", multiple=True, type=anywhere, help="Its disks, as given to serve.")
@click.option("--durability", type=click.Choice(["sync", "async", "memory"]), default="sync", show_default=True)
@click.option("--tls-cert", type=anywhere, help="Its certificate chain (PEM).")
@click.option("--tls-key", type=anywhere, help="The certificate's private key (PEM).")
@click.option("--tls-client-ca", type=anywhere, help="The authority of client certificates (PEM).")
@click.option("--spark", is_flag=True, help="Also check what Spark jobs need: Java, PySpark, its Python.")
def doctor(
    settings: Settings,
    host: str,
    port: int,
    data: Path | None,
    disks: tuple[Path, ...],
    durability: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    spark: bool,
) -> None:
    """Check whether this machine is suited to run a server, and how fast its disks are.

    Give the same options as for `syncpoint serve`. If --endpoint, PUBSUB_EMULATOR_HOST or the configuration names a
    server, that server is checked, unless --host or --port is given.

    \b
    Example:
      syncpoint doctor --disk /mnt/a/sp --disk /mnt/b/sp --disk /mnt/c/sp
    """
    data = data or default_data()
    if tls_cert and not unusable(tls_cert, tls_key or tls_cert) and settings.tls_ca is None:
        settings.tls_ca = str(tls_cert)  # the server's own word, if it signed itself
    found: list[Finding] = [
        examinations.python_version(),
        examinations.kernel(),
        examinations.event_loop(),
        examinations.open_files(),
        examinations.writable("data folder", data),
    ]
    for disk in disks or (data / "disk-1",):
        found += examinations.disk(disk)
    found += examinations.disk_set(disks)
    found.append(examinations.durability(durability))
    found += examinations.tls(tls_cert, tls_key, tls_client_ca)
    if spark:
        found += spark_examinations.spark()
    asked = [click.get_current_context().get_parameter_source(name) for name in ("host", "port")]
    shown = settings.endpoint_source
    if shown and click.core.ParameterSource.COMMANDLINE not in asked:
        found += examinations.endpoint(settings, shown)
    elif port:
        found += examinations.port(settings, host, port)

    if not print_answer(
        settings.format, [{"what": f.what, "state": f.state, "found": f.found, "advice": f.advice} for f in found]
    ):
        _print(found)
    if any(finding.state == "problem" for finding in found):
        sys.exit(1)


def _print(found: list[Finding]) -> None:
    from rich.text import Text

    rows = []
    for finding in found:
        shown = finding.found + (f"\n→ {finding.advice}" if finding.advice else "")
        rows.append((finding.what, Text(finding.state, style=COLOURS[finding.state]), shown))
    print_table(["EXAMINED", "STATE", "FOUND"], rows, fold=True)
    problems = sum(finding.state == "problem" for finding in found)
    warnings = sum(finding.state == "warning" for finding in found)
    shown = ", ".join(counted(n, of) for n, of in ((problems, "problem"), (warnings, "warning")) if n)
    click.echo(f"\n{shown}." if shown else "\nAll is well.")
