"""`syncpoint cluster orphans`: messages whose topics were lost with the metadata; adopt them, or delete them.

Place: over `programs.clusters.orphans`; the cluster runs.
Promise: nothing is deleted without a question or `--yes`, and what was decided, by whom, is listed for good.
"""

from __future__ import annotations

import asyncio
import getpass
import platform
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.cluster import folder_option, format_option
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import inform, print_answer, print_table

if TYPE_CHECKING:
    from syncpoint.programs.clusters.orphans import Found, Orphans

_T = TypeVar("_T")


@click.group(cls=Group)
def orphans() -> None:
    """Messages of topics that a restore of older metadata has made unknown. They are kept until you decide."""


def _with_orphans(folder: Path, act: Callable[[Orphans], Awaitable[_T]]) -> _T:
    from syncpoint.base.model.errors import SyncpointError
    from syncpoint.catalog.metadata.contract import StoreError
    from syncpoint.cluster.control.peer_channels import PeerChannels
    from syncpoint.node.cluster.cluster_environment import ClusterEnvironment
    from syncpoint.node.cluster.tls import operator_tls
    from syncpoint.programs.clusters.local import LocalCluster
    from syncpoint.programs.clusters.orphans import Orphans

    settings = LocalCluster(folder).settings()

    async def run() -> _T:
        environment = ClusterEnvironment.of(operator_tls(settings))
        store, peers = await environment.metadata(settings), PeerChannels(environment.network)
        found = Orphans(store, peers, environment.clock)
        try:
            await found.start()
            return await act(found)
        finally:
            await found.close()
            await peers.close()
            await store.close()

    try:
        return asyncio.run(run())
    except StoreError as error:
        raise Problem(
            f"the metadata store does not answer: {error}", "`syncpoint cluster status` shows running processes."
        ) from error
    except SyncpointError as error:
        raise Problem(
            f"nothing was changed: {error.message}", f"`syncpoint cluster orphans list --dir {folder}` shows them."
        ) from error


@orphans.command("list")
@folder_option
@format_option
def list_orphans(folder: Path, form: str) -> None:
    """List orphaned topics, and decisions on earlier ones.

    \b
    Example:
      syncpoint cluster orphans list --dir /tmp/demo
    """
    found = _with_orphans(folder, lambda orphans: orphans.found())
    if not print_answer(form, _values(found)):
        print_table(
            ["TOPIC NUMBER", "CHAINS", "SOURCES", "MESSAGES"],
            [
                [str(one.topic), ", ".join(map(str, one.chains)), f"{one.sources:,}", f"{one.messages:,}"]
                for one in found.orphans
            ],
        )
        if found.decisions:
            click.echo()
            print_table(
                ["TOPIC NUMBER", "DECIDED", "AS", "MESSAGES", "BY", "AT"],
                [
                    [
                        str(one.topic),
                        one.what,
                        one.name,
                        f"{one.messages:,}",
                        f"{one.user}@{one.host}",
                        _time(one.time_ns),
                    ]
                    for one in found.decisions
                ],
            )
    if found.unheard:
        inform(f"No process reports {counted(len(found.unheard), 'chain')}: {', '.join(map(str, found.unheard))}.")


@orphans.command()
@folder_option
@click.argument("number", type=click.IntRange(min=1))
@click.option("--as", "topic", required=True, help="Full name of the new topic.")
@click.option("--subscription", required=True, help="Full name of a new subscription to all stored messages.")
@click.option("--ordered", is_flag=True, help="The subscription delivers the messages of each ordering key in order.")
def adopt(folder: Path, number: int, topic: str, subscription: str, ordered: bool) -> None:
    """Restore NUMBER as a topic, with a subscription that starts at its first message.

    Messages older than 31 days then expire.

    \b
    Example:
      syncpoint cluster orphans adopt --dir /tmp/demo 4711 --as projects/p/topics/orders \\
        --subscription projects/p/subscriptions/orders-found
    """
    confirmed = _with_orphans(
        folder, lambda orphans: orphans.adopt(number, topic, subscription, _me(), ordered=ordered)
    )
    inform(f"{number} is now {topic}; {subscription} has all its stored messages.")
    if not confirmed:
        inform("Not every chain has confirmed; chains that are not open now will apply it when they open.")


@orphans.command()
@folder_option
@click.argument("number", type=click.IntRange(min=1))
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def delete(folder: Path, number: int, yes: bool) -> None:
    """Delete the messages of NUMBER. The audit trail records who did it.

    \b
    Example:
      syncpoint cluster orphans delete --dir /tmp/demo 4711
    """
    if not yes:
        click.confirm(f"Delete all messages of the lost topic {number}?", abort=True)
    gone = _with_orphans(folder, lambda orphans: orphans.delete(number, _me()))
    inform(f"{counted(gone.messages, 'message')} of {number} are being deleted.")


def _me() -> Any:
    from syncpoint.programs.clusters.orphans import Who

    return Who(getpass.getuser(), platform.node())


def _values(found: Found) -> dict[str, Any]:
    return {
        "orphans": [one._asdict() for one in found.orphans],
        "decisions": [one._asdict() for one in found.decisions],
        "unheard": found.unheard,
    }


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 10**9, UTC).isoformat()
