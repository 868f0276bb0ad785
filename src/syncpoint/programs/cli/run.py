"""`syncpoint run`: one process of a cluster, in the foreground.

Place: in front of `syncpoint.node.cluster`; it reads options and hands them over.
Promise: once others can call the process, one line `NAME ready on HOST:PORT` stands on standard output (a proxy also
has `syncpoint ready on HOST:PORT`, the address for clients). What ends it before it was stopped is the last line on
standard error: exit code 1 when it could not start, 3 when another process has taken its name.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from syncpoint.programs.cli import exposed
from syncpoint.programs.cli.cluster import file_option
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.output import inform

if TYPE_CHECKING:
    from syncpoint.node.cluster.settings import ClusterSettings, ProcessSettings


@click.command()
@click.argument("roles", nargs=-1, metavar="[ROLE]...")
@file_option
@click.option("--name", required=True, help="The name of this process in the file's `processes`.")
@click.option("--listen", help="HOST:PORT for other processes of the cluster [from the file].")
@click.option("--public", help="HOST:PORT for clients of a proxy [from the file].")
@click.option("--region", help="Region of this process [from the file].")
@click.option(
    "--require-disks",
    is_flag=True,
    help="Refuse a disk folder that is new, wiped or not mounted, at the start and later [from the file].",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow listening on a non-loopback address without TLS or, for a proxy, without authentication.",
)
@click.option(
    "--ready-file", type=click.Path(dir_okay=False, path_type=Path), help="A file to write once the process is ready."
)
def run(
    roles: tuple[str, ...],
    path: Path,
    name: str,
    listen: str | None,
    public: str | None,
    region: str | None,
    require_disks: bool,
    insecure: bool,
    ready_file: Path | None,
) -> None:
    """Run one process of a cluster until it is stopped (Ctrl-C or SIGTERM: it drains first).

    ROLE is one or more of storage, publish-forwarder, subscribe-forwarder, router, proxy [from the file].

    \b
    Examples:
      syncpoint run --config cluster.yaml --name storage-c1
      syncpoint run publish-forwarder subscribe-forwarder --config cluster.yaml --name worker-7 \\
        --listen 10.0.0.7:7000 --region eu
    """
    from dataclasses import replace

    from syncpoint.node.cluster.serve import run_process
    from syncpoint.node.cluster.settings import ROLES, load

    for role in roles:
        if role not in ROLES:
            raise click.UsageError(f"{role!r} is not a role; choose from {', '.join(ROLES)}.")
    settings = load(path)
    if name not in settings.processes:
        _stranger(settings, path, name, roles, region)
    process = settings.process(name, roles)
    if listen:
        process = replace(process, listen=listen)
    if public:
        process = replace(process, public=public)
    if region:
        process = replace(process, region=region)
    if require_disks:
        process = replace(process, require_disks=True)
    for text in exposures(settings, process, insecure=insecure or settings.insecure):
        inform(text)
    code = run_process(settings, process, ready_file)
    if code:
        raise SystemExit(code)  # the last line on standard error has the reason


def exposures(settings: ClusterSettings, process: ProcessSettings, *, insecure: bool) -> list[str]:
    """Warnings about listeners that anybody on the network may use. Raises `Problem` unless `insecure` allows them."""
    from syncpoint.wire.transport.network import split_address

    within = settings.tls is not None
    known = settings.tls is not None and settings.tls.client_certificates
    warnings = [
        exposed.warning(
            split_address(address)[0],
            tls=within,
            known=known,
            insecure=insecure,
            ways="Set `tls` in the cluster's file, or confirm with --insecure or `insecure: true` there.",
        )
        for address in {process.listen, process.disks_listen} - {""}
    ]
    if "proxy" in process.roles and process.public:
        warnings.append(
            exposed.warning(
                split_address(process.public)[0],
                tls=process.tls_cert is not None,
                known=settings.auth is not None or process.tls_client_ca is not None,
                insecure=insecure,
                ways="Give the proxy `tls_cert` and `tls_key` and the cluster's file `auth` (or the proxy "
                "`tls_client_ca`), or confirm with --insecure or `insecure: true` in the file.",
            )
        )
    return sorted(filter(None, warnings))


def _stranger(settings: ClusterSettings, path: Path, name: str, roles: tuple[str, ...], region: str | None) -> None:
    """Refuse a process that the file does not have if its options are incomplete."""
    if not roles:
        raise Problem(
            f"{path} has no process {name}; there are {', '.join(settings.processes)}",
            "Give the roles of a process that is not in the file: `syncpoint run --help`.",
            exit_code=2,
        )
    regions = sorted({one.region for one in settings.processes.values()})
    if region is None and regions and "local" not in regions:
        raise Problem(
            f"{path} has no process {name}: it needs --region ({', '.join(regions)})",
            "Without a region it would be alone in a new region without disks. Give its address with --listen.",
            exit_code=2,
        )
