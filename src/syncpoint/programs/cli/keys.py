"""`syncpoint keys`: the keys that message data is sealed with, for the operator of a cluster.

Place: over `proxy.key_admin`, on the cluster's metadata and the key file that `cluster.yaml` names; no proxy need run.
Promise: no key is ever printed, wrapped or not. Key-encryption keys are named by an id, the beginning of their SHA-256.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from syncpoint.base.model.wording import counted, utc_text
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import inform, print_answer, print_table
from syncpoint.programs.cli.settings import Settings, with_settings

if TYPE_CHECKING:
    from syncpoint.catalog.metadata.store_client import SharedStore
    from syncpoint.front.proxy.data_keys import TopicKeys
    from syncpoint.front.proxy.key_admin import KeyInfo

_T = TypeVar("_T")

config_option = click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The cluster's file.",
)


@click.group(cls=Group)
def keys() -> None:
    """Look after the keys that message data is sealed with."""


def _with_keys(path: Path, act: Callable[[SharedStore, TopicKeys], Awaitable[_T]]) -> _T:
    """Do something with the cluster's keys."""
    from syncpoint.catalog.metadata.contract import StoreError
    from syncpoint.front.proxy.data_keys import KeyRing, TopicKeys
    from syncpoint.node.cluster.cluster_environment import ClusterEnvironment
    from syncpoint.node.cluster.settings import load
    from syncpoint.node.cluster.tls import operator_tls

    settings = load(path)
    if settings.sealing_key_file is None:
        raise Problem(f"{path} has no `sealing: {{key_file: ...}}`", "Message data of this cluster is not sealed.")
    try:
        ring = KeyRing.load(settings.sealing_key_file)
    except OSError as error:
        raise Problem(
            f"{settings.sealing_key_file} cannot be read: {error.strerror}",
            "Run this where a proxy runs, as a user who may read the key file.",
        ) from None

    async def run() -> _T:
        environment = ClusterEnvironment.of(operator_tls(settings) if settings.metadata else None)
        store = await environment.metadata(settings)
        try:
            return await act(store, TopicKeys(store, ring, environment.clock, environment.random))
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except StoreError as error:
        raise Problem(
            f"the metadata store does not answer: {error}", "The changes made so far remain; run it again."
        ) from error


@keys.command("list")
@config_option
@with_settings
def list_all(settings: Settings, path: Path) -> None:
    """List the data keys of every topic, and which lines of the key file are still needed.

    \b
    Example:
      syncpoint keys list --config cluster.yaml
    """
    from syncpoint.front.proxy.key_admin import listed, needed, topics_now

    async def look(store: SharedStore, keys: TopicKeys) -> tuple[list[KeyInfo], dict[int, str], list[str]]:
        return await listed(store), await topics_now(store), keys.ring.ids

    found, names, ids = _with_keys(path, look)
    uses = needed(found)
    topics = _by_topic(found, names)
    lines: list[dict[str, Any]] = [
        {"line": number, "id": one, "wraps": number == 1, "dataKeys": uses[one]} for number, one in enumerate(ids, 1)
    ]
    missing: list[dict[str, Any]] = [{"id": one, "dataKeys": uses[one]} for one in sorted(uses.keys() - set(ids))]
    if not print_answer(settings.format, {"topics": topics, "keyFile": lines, "missing": missing}):
        rows = [
            [one["topic"], str(one["dataKeys"]), str(one["current"] or ""), one["since"], ", ".join(one["wrappedBy"])]
            for one in topics
        ]
        print_table(["TOPIC", "DATA KEYS", "CURRENT", "SINCE", "WRAPPED BY"], rows)
        click.echo()
        print_table(
            ["KEY FILE", "ID", "DATA KEYS", ""],
            [[f"line {one['line']}", one["id"], str(one["dataKeys"]), _use(one)] for one in lines],
        )
    if missing:
        raise Problem(
            f"{counted(sum(one['dataKeys'] for one in missing), 'data key')} cannot be opened with this key file: "
            f"{', '.join(one['id'] for one in missing)} {'is' if len(missing) == 1 else 'are'} not in it",
            "Restore the line with that key in every proxy's key file: without it messages cannot be read.",
        )


def _by_topic(found: Sequence[KeyInfo], names: dict[int, str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for topic in sorted({one.topic for one in found}, key=lambda topic: names.get(topic, f"~{topic}")):
        mine = [one for one in found if one.topic == topic]
        current = next((one for one in mine if one.current), None)
        since = utc_text(current.created_ns // 1000, "seconds") if current else ""
        rows.append(
            {
                "topic": names.get(topic, f"(deleted: {topic})"),
                "dataKeys": len(mine),
                "current": current.number if current else None,
                "since": since,
                "wrappedBy": sorted({one.kek for one in mine}),
            }
        )
    return rows


def _use(line: dict[str, Any]) -> str:
    if line["wraps"]:
        return "wraps new data keys"
    return "opens older ones" if line["dataKeys"] else "not needed: may be removed"


@keys.command()
@config_option
@click.argument("topic", nargs=-1)
@with_settings
def rotate(settings: Settings, path: Path, topic: tuple[str, ...]) -> None:
    """Seal new messages with a new data key, for each TOPIC or every topic that has a data key.

    Proxies use it within a minute. Older messages keep their key and stay readable.

    \b
    Examples:
      syncpoint keys rotate --config cluster.yaml
      syncpoint keys rotate --config cluster.yaml orders --project shop
    """
    from syncpoint.front.proxy import key_admin

    wanted = [settings.name("topics", given) for given in topic]

    async def act(store: SharedStore, keys: TopicKeys) -> int:
        names = await key_admin.topics_now(store)
        if not wanted:
            having = {one.topic for one in await key_admin.listed(store)}
            return await key_admin.rotate(keys, sorted(having & names.keys()))
        numbers = {name: number for number, name in names.items()}
        unknown = [name for name in wanted if name not in numbers]
        if unknown:
            raise Problem(
                f"there is no topic {', '.join(unknown)}", "No key was changed; `syncpoint topics list` shows them.", 3
            )
        return await key_admin.rotate(keys, [numbers[name] for name in wanted])

    inform(f"{counted(_with_keys(path, act), 'topic')} will be sealed with a new data key within a minute.")


@keys.command()
@config_option
def rewrap(path: Path) -> None:
    """Wrap every data key under the first line of the key file, so that the other lines can be removed.

    Messages are not changed. Add that line to every proxy's key file first. Keys of deleted topics without stored
    messages are removed.

    \b
    Example:
      syncpoint keys rewrap --config cluster.yaml
    """
    from syncpoint.front.proxy import key_admin

    async def act(store: SharedStore, keys: TopicKeys) -> tuple[int, int, int, str]:
        removed = await key_admin.remove_gone(store)
        changed = await keys.rewrap()
        left = key_admin.needed(await key_admin.listed(store))
        return removed, changed, left.total() - left[keys.ring.current], keys.ring.current

    removed, changed, left, current = _with_keys(path, act)
    if removed:
        inform(f"{counted(removed, 'key')} of deleted topics removed.")
    inform(f"{counted(changed, 'data key')} rewrapped under {current}.")
    if left:
        raise Problem(
            f"{counted(left, 'data key')} were created or changed under another line during the run",
            "Make sure that the newest line comes first in every proxy's key file, then run this again.",
        )
    inform("All other lines can be removed from every proxy's key file.")
