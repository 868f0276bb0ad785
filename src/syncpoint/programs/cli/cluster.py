"""`syncpoint cluster`: a whole cluster on this machine, and what its operator does to it.

Place: over `programs.clusters.local`, which starts and signals processes, and syncpoint.admin.v1 of a running proxy.
Promise: `up` returns when every proxy can be called and prints `ready on HOST:PORT` for each; `down` ends all
processes.
"""

from __future__ import annotations

import importlib
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncpoint.base.model.errors import FailedPrecondition, SyncpointError
from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group, with_examples
from syncpoint.programs.cli.names import processes
from syncpoint.programs.cli.offered import Offered, offered_options
from syncpoint.programs.cli.output import inform, print_answer, print_table, without_empty_columns

if TYPE_CHECKING:
    from syncpoint.programs.clusters.local import LocalCluster
    from syncpoint.programs.clusters.looking import Cluster

folder_option = click.option(
    "--dir",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The cluster's folder: settings, disks, logs.",
)
format_option = click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")

file_option = click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The cluster's file.",
)

WATCH_S = 2.0

_PLACE = (
    click.option(
        "--config", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The cluster's file."
    ),
    click.option(
        "--dir",
        "folder",
        type=click.Path(file_okay=False, path_type=Path),
        help="The folder of cluster.yaml, or of a cluster that `cluster up` started.",
    ),
    click.option("--metadata", metavar="HOST:PORT,...", help="The cluster's etcd, if its file is not available."),
    click.option("--metadata-user", default="", help="User of the etcd of --metadata; needs --metadata-password-file."),
    click.option(
        "--metadata-password-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="File with the password of --metadata-user.",
    ),
)


def place_options(command: Callable[..., None]) -> Callable[..., None]:
    """Which cluster: by its file, by the folder of its file, or by its etcd."""
    for option in reversed(_PLACE):
        command = option(command)
    return command


def cluster_at(
    path: Path | None,
    folder: Path | None,
    metadata: str | None,
    metadata_user: str = "",
    metadata_password_file: Path | None = None,
) -> Cluster:
    """The cluster that the options of `place_options` name."""
    from syncpoint.programs.clusters.looking import Cluster

    if sum(one is not None for one in (path, folder, metadata)) != 1:
        raise click.UsageError("Name the cluster by one of --config FILE, --dir FOLDER and --metadata HOST:PORT,...")
    if bool(metadata_user) != (metadata_password_file is not None) or (metadata_user and metadata is None):
        raise click.UsageError("--metadata-user and --metadata-password-file go together, with --metadata.")
    if metadata is not None:
        addresses = tuple(one.strip() for one in metadata.split(",") if one.strip())
        return Cluster.of_metadata(addresses, metadata_user, metadata_password_file)
    return Cluster.of_file(path or _local(folder or Path()).settings_path)


_SHAPE = (
    click.option("--clusters", default=3, show_default=True, help="Failure domains (N, odd) in each region."),
    click.option("--disks", default=3, show_default=True, help="Disks (M, odd) in each failure domain."),
    click.option(
        "--forwarders", default=3, show_default=True, help="Publish forwarders, and as many subscribe forwarders."
    ),
    click.option("--routers", default=2, show_default=True, help="Routers in each region."),
    click.option("--proxies", default=2, show_default=True, help="Proxies in each region."),
    click.option("--regions", default=1, show_default=True, help="Regions."),
    click.option("--etcd", default=1, show_default=True, help="Members of etcd (odd); three in production."),
    click.option("--durability", type=click.Choice(["sync", "async", "memory"]), default="sync", show_default=True),
)


def shape_options(command: Callable[..., None]) -> Callable[..., None]:
    """How many of what a new cluster has."""
    for option in reversed(_SHAPE):
        command = option(command)
    return command


# Commands that live in modules of their own: name -> (module, attribute).
MORE = {
    "backup": ("cluster_metadata", "backup"),
    "restore": ("cluster_metadata", "restore"),
    "import": ("cluster_metadata", "import_folder"),
    "finalize": ("cluster_metadata", "finalize"),
    "orphans": ("orphans", "orphans"),
    "classes": ("classes", "classes"),
    "targets": ("cluster_targets", "targets"),
    "restart": ("cluster_restart", "restart"),
    "drain": ("drain", "drain"),
    "undrain": ("drain", "undrain"),
}


class _Group(Group):
    """Commands of other modules are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *MORE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in MORE:
            module, attribute = MORE[cmd_name]
            found: click.Command = getattr(importlib.import_module(f"syncpoint.programs.cli.{module}"), attribute)
            return found
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Group)
def cluster() -> None:
    """Run and manage a cluster on this machine."""


def _local(folder: Path) -> LocalCluster:
    from syncpoint.programs.clusters.local import LocalCluster

    return LocalCluster(folder)


@cluster.command()
@folder_option
@shape_options
@click.option("--tls-ca", help="PEM file of the certificate authority: enables TLS between the processes, and to etcd.")
@click.option(
    "--tls-certificate", help="PEM file of a process's certificate; {name} stands for its name, or for etcd-1."
)
@click.option("--tls-key", help="PEM file of its key; {name} stands for its name.")
@offered_options
def up(folder: Path, tls_ca: str | None, tls_certificate: str | None, tls_key: str | None, **asked: Any) -> None:
    """Start a cluster of real processes on loopback, with a real etcd.

    If the folder already has a cluster, that cluster is started again; the other options apply to a new cluster, which
    keeps them in its cluster.yaml.

    \b
    Examples:
      syncpoint cluster up --dir /tmp/demo --clusters 3 --disks 3
      syncpoint cluster up --dir /tmp/e --push-network loopback --bucket archive=/tmp/archive --auth auth.yaml
      syncpoint cluster up --dir /tmp/t --tls-ca ca.pem --tls-certificate '{name}.pem' --tls-key '{name}.key'
    """
    from syncpoint.programs.clusters.local import Shape

    tls = {"ca": tls_ca, "certificate": tls_certificate, "key": tls_key}
    if any(tls.values()) and not all(tls.values()):
        raise click.UsageError("TLS between processes needs all of --tls-ca, --tls-certificate and --tls-key.")
    numbers = {one.name: asked.pop(one.name) for one in fields(Shape)}
    offered = Offered.of(**asked)
    made = _local(folder)
    made.etcd_program()
    paths = {key: str(Path(path).absolute()) for key, path in tls.items() if path}
    further = offered.as_settings() | ({"tls": paths} if paths else {})
    if made.settings_path.exists():
        _same_shape(made, numbers)
        _same_settings(made, further)
    made.create(Shape(**numbers), further | ({"metadata": {"ca_file": paths["ca"]}} if paths else {}))
    starting = [one.name for one in made.states() if one.state == "down"]
    if starting:
        inform(
            f"Starting {counted(len(starting), 'process', 'es')} in {made.folder}; their output is in its logs folder."
        )
    else:
        inform(f"All processes of {made.folder} are already running.")
    try:
        proxies = made.up()
    except SyncpointError as error:
        left = sum(one.state != "down" for one in made.states())
        raise Problem(
            error.message,
            f"{counted(left, 'process', 'es')} of the cluster running. Correct this and start it again, or stop them: "
            f"`syncpoint cluster down --dir {folder}`, with --remove to delete the cluster as well.",
        ) from error
    for address in proxies:
        click.echo(f"ready on {address}")
    if made.settings().auth is not None:
        inform("Clients need credentials: `syncpoint --credentials FILE ...`, or SYNCPOINT_CREDENTIALS.")
    if proxies and not paths:
        inform(f'In this terminal: eval "$(syncpoint env-init --project demo --endpoint {proxies[0]})"')
    inform(f"`syncpoint cluster status --dir {folder}` shows it, `syncpoint cluster down --dir {folder}` stops it.")


def _same_shape(made: LocalCluster, numbers: dict[str, Any]) -> None:
    """Refuse numbers that a cluster which is there already does not have."""
    ctx, there = click.get_current_context(), made.shape()
    given = [
        name
        for name in numbers
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        and there is not None
        and there.get(name) != numbers[name]
    ]
    if given:
        has = ", ".join(f"--{name} {there[name]}" for name in given if there)
        raise Problem(
            f"{made.folder} already has a cluster, with {has}",
            "Omit the numbers to start that cluster, choose another --dir, or delete it with all its messages: "
            f"`syncpoint cluster down --dir {made.folder} --remove`.",
            exit_code=2,
        )


def _same_settings(made: LocalCluster, asked: dict[str, Any]) -> None:
    """Refuse settings that a cluster which is there already does not have."""

    from syncpoint.base.model.yaml_text import load_yaml

    there = load_yaml(made.settings_path.read_text())
    differ = [key for key, value in asked.items() if there.get(key) != value]
    if differ:
        raise Problem(
            f"{made.folder} already has a cluster, with a different `{'`, `'.join(differ)}` in its file",
            f"Change {made.settings_path}; then `syncpoint cluster restart --dir {made.folder}` has processes read it.",
            exit_code=2,
        )


@cluster.command()
@folder_option
@click.option("--remove", is_flag=True, help="Delete the folder, with all messages.")
def down(folder: Path, remove: bool) -> None:
    """Stop all processes that `cluster up` started.

    \b
    Example:
      syncpoint cluster down --dir my-cluster
    """
    made = _local(folder)
    if made.settings_path.exists() and made.shape() is None and not (made.folder / "pids").exists():
        raise Problem(
            f"no process of {made.settings_path} was started by `syncpoint cluster up`",
            "Nothing was stopped. Use the supervisor of its processes to stop them.",
        )
    ended = made.down(remove=remove)
    inform(f"Stopped {counted(len(ended), 'process', 'es')}." if ended else "No process was running.")
    if remove:
        inform(f"Removed {made.folder}.")


@cluster.command()
@place_options
@format_option
@click.option("--watch", is_flag=True, help="Refresh every two seconds, until Ctrl-C.")
def status(form: str, watch: bool, **place: Any) -> None:
    """Show the processes and their state, the owner of each chain, and problems; exit code 1 if there are any.

    Works from any machine that can reach the cluster's etcd and processes.

    \b
    Examples:
      syncpoint cluster status --config cluster.yaml
      syncpoint cluster status --metadata 10.0.0.1:2379,10.0.0.2:2379
      syncpoint cluster status --dir /tmp/demo --watch
    """
    made = cluster_at(**place)
    if not watch:
        click.get_current_context().exit(_show(made.describe(), form))
    while True:
        view = made.describe()
        if form == "table" and sys.stdout.isatty():
            click.clear()
        _show(view, form)
        time.sleep(WATCH_S)


def _show(view: dict[str, Any], form: str) -> int:
    """Print what was found; 1 when something is wrong."""
    if print_answer(form, view):
        return 1 if view["problems"] else 0
    fields = ("name", "state", "pid", "address", "region", "version", "doing")
    headings = ["PROCESS", "STATE", "PID", "ADDRESS", "REGION", "VERSION", "DOING"]
    rows = [[str(one.get(field) or "") for field in fields] for one in view["processes"]]
    print_table(*without_empty_columns(headings, rows))
    if view["chains"]:
        click.echo()
        print_table(
            ["CHAIN", "CLASS", "REGION", "HOME", "OWNER", "EPOCH", "PERSISTED", "DISKS OK", "UNDER-REPLICATED"],
            [
                [
                    str(c["number"]),
                    c["class"],
                    c["region"],
                    c["home"],
                    c["owner"] or "(nobody)",
                    str(c["epoch"]),
                    c["persisted"],
                    c["disks"],
                    c["under_replicated"],
                ]
                for c in view["chains"]
            ],
        )
    click.echo()
    for problem in view["problems"]:
        click.echo(f"problem: {problem}")
    if not view["problems"]:
        click.echo("All is well.")
    return 1 if view["problems"] else 0


def _one(name: str, text: str, done: str, act: Callable[[LocalCluster, str], None]) -> None:
    """A command that does one thing to one process, and reports it; `{its}` in `done` names that process to another."""

    @cluster.command(name, help=with_examples(text, f"cluster {name} --dir my-cluster storage-c2"))
    @folder_option
    @click.argument("process", shell_complete=processes(etcd=True))
    def command(folder: Path, process: str) -> None:
        made = _local(folder)
        try:
            act(made, process)
        except FailedPrecondition as error:
            start = f"`syncpoint cluster start --dir {folder} {process}` starts it." if name != "start" else ""
            raise Problem(error.message, start) from error
        inform(f"{process} {done.format(its=f'--dir {shlex.quote(str(folder))} {process}')}.")


_one(
    "kill",
    "Kill one process, as a crash would (SIGKILL).",
    "was killed; `syncpoint cluster start {its}` starts it again",
    lambda made, name: made.kill(name),
)
_one(
    "stop",
    "Stop one process gracefully: it drains first.",
    "has stopped; `syncpoint cluster start {its}` starts it again",
    lambda made, name: made.stop(name),
)
_one(
    "pause",
    "Pause one process, like a hung machine (SIGSTOP).",
    "is paused; `syncpoint cluster resume {its}` resumes it",
    lambda made, name: made.pause(name),
)
_one("resume", "Resume a paused process.", "is running again", lambda made, name: made.resume(name))
_one("start", "Start one process again and wait until it is ready.", "is ready", lambda made, name: made.start(name))
