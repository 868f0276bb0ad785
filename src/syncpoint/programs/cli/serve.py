"""`syncpoint serve`: run a server in the foreground.

Place: in front of `syncpoint.node`; this module reads options and hands them over, nothing more.
Promise: once the server can be called, one line `syncpoint ready on HOST:PORT` stands on standard output.
"""

from __future__ import annotations

import os
import shutil
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncpoint.base.model.wording import counted
from syncpoint.log.storage.layout import DISK_FILE
from syncpoint.log.storage.settings import PREWRITE_AHEAD_BYTES, StorageSettings
from syncpoint.programs.cli import exposed
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.metrics_export import metrics_export, metrics_export_options
from syncpoint.programs.cli.offered import KEY_FILE, Offered, offered_options
from syncpoint.programs.cli.output import inform
from syncpoint.programs.cli.settings import ENDPOINT_DEFAULT

if TYPE_CHECKING:
    from syncpoint.base.tracing.tracer import TracingSettings


def default_data() -> Path:
    """The data folder when none is given: $SYNCPOINT_DATA, else the user's data folder."""
    chosen = os.environ.get("SYNCPOINT_DATA")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(home) / "syncpoint"


LOOPBACK = "loopback"
"""The network of --push-network that is this machine."""

folder = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all.")
@click.option(
    "--port", default=8085, show_default=True, type=click.IntRange(0, 65_535), help="The port; 0 picks a free one."
)
@click.option("--data", type=folder, help="Folder for all data of the server [SYNCPOINT_DATA, or your data folder].")
@click.option(
    "--dev",
    is_flag=True,
    help="For development: keep no data unless --data is given, and push to this machine, also over http.",
)
@click.option("--region", default="", metavar="NAME", help="The server's region, for topics with --allowed-region.")
@click.option("--disk", "disks", multiple=True, type=folder, help="Folder on a disk; give 1, 3, 5... [DATA/disk-1].")
@click.option(
    "--durability",
    type=click.Choice(["sync", "async", "memory"]),
    default="sync",
    show_default=True,
    help="When a message counts as stored: synced to a majority of disks, written to it, or held in memory.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    help="Processes that share the port and the disks, for machines with many cores [as last time, or 1].",
)
@click.option(
    "--require-disks",
    is_flag=True,
    help="Refuse a disk folder that is new, wiped or not mounted, instead of filling it from the others: at the "
    "start nothing is written; a disk lost while the server runs stays failed until it returns.",
)
@click.option("--tls-cert", type=KEY_FILE, help="Certificate chain (PEM); serves TLS.")
@click.option("--tls-key", type=KEY_FILE, help="The certificate's private key (PEM).")
@click.option(
    "--tls-client-ca",
    type=KEY_FILE,
    help="Require client certificates signed by this authority (PEM); with --tls-cert.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Serve /metrics here without authentication; on the client port it requires credentials.",
)
@metrics_export_options
@click.option(
    "--monitor",
    type=KEY_FILE,
    help="File with service objectives and the receivers of alerts (`syncpoint docs operations/alerts`).",
)
@click.option(
    "--otlp", metavar="URL", default="", help="Send spans of traced messages to this OpenTelemetry collector."
)
@click.option(
    "--trace-ratio",
    type=float,
    default=0.0,
    help="Share of untraced publishes to trace; with --otlp. [0]",
)
@offered_options
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow listening on a non-loopback address without TLS, or without authentication.",
)
def serve(
    host: str,
    port: int,
    data: Path | None,
    dev: bool,
    region: str,
    disks: tuple[Path, ...],
    durability: str,
    workers: int | None,
    require_disks: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    insecure: bool,
    metrics: str | None,
    otlp_metrics: str,
    otlp_metrics_interval: float | None,
    monitor: Path | None,
    otlp: str,
    trace_ratio: float,
    **asked: Any,
) -> None:
    """Run a server until Ctrl-C or SIGTERM, which shut it down gracefully.

    \b
    Examples:
      syncpoint serve
      syncpoint serve --dev
      syncpoint serve --port 9000 --data /srv/syncpoint
      syncpoint serve --disk /mnt/a/sp --disk /mnt/b/sp --disk /mnt/c/sp
      syncpoint serve --workers 8
      syncpoint serve --host 0.0.0.0 --tls-cert s.pem --tls-key s.key --auth auth.yaml
    """
    if disks and len(disks) % 2 == 0:
        raise click.UsageError(
            f"{len(disks)} disks have no better majority than one fewer; give an odd number of --disk folders."
        )
    if len({disk.resolve() for disk in disks}) != len(disks):
        raise click.UsageError("Each --disk must be a different folder.")
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key must be given together.")
    if tls_client_ca and not tls_cert:
        raise click.UsageError("--tls-client-ca needs --tls-cert and --tls-key.")
    if tls_client_ca and (reason := no_authority(tls_client_ca)):
        raise Problem(f"cannot use --tls-client-ca {tls_client_ca}: {reason}", "It must hold certificates in PEM form.")
    if tls_cert and tls_key and (reason := unusable(tls_cert, tls_key)):
        raise Problem(
            f"cannot serve TLS with {tls_cert} and {tls_key}: {reason}",
            "Both must be in PEM form, and the key, without a password, must be that of the first certificate.",
        )
    if metrics is not None:
        no_address(metrics)
    if dev and disks and data is None:
        raise click.UsageError("--dev keeps its data in one temporary folder: leave --disk out, or give --data.")
    if dev and LOOPBACK not in asked["push_networks"]:
        asked["push_networks"] += (LOOPBACK,)
    offered = Offered.of(**asked)
    warning = exposed.warning(
        host,
        tls=tls_cert is not None,
        known=offered.auth is not None or tls_client_ca is not None,
        insecure=insecure,
        ways="Give --tls-cert, --tls-key and --auth (or --tls-client-ca), or confirm with --insecure.",
    )

    from syncpoint.node.note import noted_workers
    from syncpoint.node.serve import PORT_TAKEN, run
    from syncpoint.node.settings import ServeSettings

    temporary = _temporary() if dev and data is None else None
    data = data or temporary or default_data()
    before = noted_workers(data)
    workers = workers or before
    workers = workers if before or (workers and workers > 1) else 0
    if region and workers:
        raise click.UsageError("--region needs a server of one process: leave --workers out.")
    settings = ServeSettings(
        host=host,
        port=port,
        region=region,
        data=data,
        disks=disks,
        durability=durability,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        workers=workers,
        metrics=metrics or "",
        metrics_export=metrics_export(otlp_metrics, otlp_metrics_interval),
        monitor=monitor,
        tracing=_tracing(otlp, trace_ratio),
        **offered._asdict(),
        storage=StorageSettings(require_disks=require_disks, prewrite_ahead_bytes=PREWRITE_AHEAD_BYTES),
    )
    new = new_disks(settings.disk_folders, refuse=require_disks)
    crew = f", {counted(workers, 'worker')}" if workers else ""

    def announce(endpoint: str) -> None:
        inform(f"Serving {data.absolute()}, durability {durability}{crew}; Ctrl-C stops it.")
        if temporary is not None:
            inform("This folder is deleted when the server stops; --data FOLDER keeps its messages.")
        for disk in new:  # not before it is known that the others suffice
            inform(f"Disk {disk} is new: copying data from the others.")
        if warning:
            inform(warning)
        if tls_cert is None and offered.auth is None:  # clients speak plain text to what PUBSUB_EMULATOR_HOST names
            where = "" if endpoint == ENDPOINT_DEFAULT else f" --endpoint {endpoint}"
            inform(f'In another terminal: eval "$(syncpoint env-init --project demo{where})"')

    failed = run(settings, announce)  # it has printed the reason
    if failed == PORT_TAKEN:
        raise Problem(
            "the server did not start",
            f"Choose another --port (0 picks a free port), or use the server that runs there: `syncpoint doctor "
            f"--port {port}` "
            "reports what it is.",
        )
    if failed:
        raise Problem("the server did not start", "See the error above.")


def _temporary() -> Path:
    """A new folder that is deleted when the command ends."""
    made = Path(tempfile.mkdtemp(prefix="syncpoint-dev-"))
    click.get_current_context().call_on_close(lambda: shutil.rmtree(made, ignore_errors=True))
    return made


def _tracing(otlp: str, ratio: float) -> TracingSettings:
    from syncpoint.base.model.errors import InvalidArgument
    from syncpoint.base.tracing.tracer import checked_tracing

    try:
        return checked_tracing(otlp, ratio, "--otlp", "--trace-ratio")
    except InvalidArgument as error:
        raise click.UsageError(error.message) from error


def no_address(metrics: str) -> None:
    """Refuse what is not HOST:PORT."""
    from syncpoint.wire.transport.network import split_address

    try:
        split_address(metrics)
    except ValueError as error:
        raise click.UsageError(f"--metrics {metrics}: {error}") from error


def no_authority(path: Path) -> str:
    """Why clients' certificates cannot be held against a file; empty when they can."""
    try:
        ssl.create_default_context(cafile=path)
    except (ssl.SSLError, OSError) as error:
        return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
    return ""


def new_disks(disks: Sequence[Path], *, refuse: bool) -> list[Path]:
    """Disks among others that hold nothing of a server. Raises `Problem` with `refuse`; nothing was written then."""
    new = [disk for disk in disks if not any((disk / name).exists() for name in (DISK_FILE, "chains"))]
    if refuse and new:
        named = ", ".join(map(str, new))
        one = len(new) == 1
        what = f"disk {named} holds no {DISK_FILE}: it is" if one else f"disks {named} hold no {DISK_FILE}: each is"
        raise Problem(
            f"{what} new, was wiped, or is not mounted",
            f"Mount the missing disk. To accept {'it' if one else 'them'} as new, start once without --require-disks: "
            "data are then copied from the others, if these suffice.",
        )
    return new if len(new) < len(disks) else []


def unusable(cert: Path, key: Path) -> str:
    """Why TLS cannot be served with a certificate and a key; empty when it can."""

    def no_password() -> str:  # else OpenSSL asks at the terminal
        raise ValueError("the key has a password")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
    return ""
