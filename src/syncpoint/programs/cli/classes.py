"""`syncpoint cluster classes ...`: the durability classes of a running cluster, and how one is added.

Place: the operator's side of the command line; calls of syncpoint.admin.v1.Admin.
Promise: `add` returns when topics can use the class, and shows in the meantime which chains are missing.
"""

from __future__ import annotations

import time
from typing import Any

import click

from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import as_dict, inform, print_answer
from syncpoint.programs.cli.settings import Settings, with_settings

POLL_S, WAIT_S = 0.5, 60.0


@click.group(cls=Group)
def classes() -> None:
    """How often, where and how firmly messages are kept.

    A topic chooses one by `syncpoint topics update TOPIC --durability-class NAME`; without that it has `default`.
    """


@classes.command("list")
@with_settings
def list_all(settings: Settings) -> None:
    """List the durability classes.

    \b
    Example:
      syncpoint cluster classes list
    """
    from syncpoint.wire.protobuf.messages import admin

    found = settings.call("Admin.ListDurabilityClasses", admin.ListDurabilityClassesRequest()).durability_classes
    print_answer(
        settings.format,
        found,
        ["NAME", "DISKS", "DURABILITY", "PLACEMENT", "RACKS", "WITHIN", "OVER", "REGIONS"],
        [
            [
                one.name,
                f"{one.clusters} x {one.disks}",
                _durability(one),
                one.placement,
                str(one.racks_min),
                one.within,
                one.over,
                "several" if one.spans_regions else "one",
            ]
            for one in found
        ],
    )


@classes.command()
@click.argument("name")
@click.option("--clusters", type=click.IntRange(1), help="Failure domains (odd).")
@click.option("--disks", type=click.IntRange(1), help="Disks (an odd number) in each failure domain.")
@click.option("--durability", type=click.Choice(["sync", "async", "memory"]), help="When a message counts as stored.")
@click.option(
    "--placement", type=click.Choice(["enforce", "degrade", "any"]), help="What happens with too few racks or disks."
)
@click.option("--racks-min", type=click.IntRange(1), help="Racks that each acknowledging set of disks must span.")
@click.option(
    "--within", type=click.Choice(["majority", "all"]), help="How many disks of a failure domain must acknowledge."
)
@click.option("--over", type=click.Choice(["majority", "all"]), help="How many failure domains must acknowledge.")
@click.option("--spans-regions/--one-region", default=None, help="Whether failure domains may span several regions.")
@click.option("--validate-only", is_flag=True, help="Dry run: check whether it would be accepted.")
@click.option("--wait/--no-wait", default=True, help="Return once topics can use it (the default), or immediately.")
@with_settings
def add(
    settings: Settings,
    name: str,
    validate_only: bool,
    wait: bool,
    durability: str | None,
    **asked: Any,
) -> None:
    """Add a durability class to a running cluster. A class cannot be changed or deleted.

    Options that you leave out come from the class `default`. Every publish forwarder creates a chain for each class,
    which takes disk space, so use few classes.

    \b
    Examples:
      syncpoint cluster classes add telemetry --clusters 1 --durability async
      syncpoint topics create readings --durability-class telemetry
    """
    from syncpoint.wire.protobuf.messages import admin

    if durability is not None:
        asked["durability"] = durability.upper()
    wanted = admin.DurabilityClass(name=name, **{key: value for key, value in asked.items() if value is not None})
    request = admin.CreateDurabilityClassRequest(durability_class=wanted, validate_only=validate_only)
    with settings.client() as client:
        made = client.call("Admin.CreateDurabilityClass", request)
        if validate_only:
            inform("It would be accepted.")
        else:
            inform(f"Added durability class [{name}].")
            if wait:
                _wait(client, name)
    print_answer(settings.format, made)


def _wait(client: Any, name: str) -> None:
    """Until every publish forwarder has a chain of the class, and somebody has it open."""
    from syncpoint.wire.protobuf.messages import admin

    end, shown = time.monotonic() + WAIT_S, ""
    while True:
        members = client.call("Admin.ListMembers", admin.ListMembersRequest()).members
        chains = client.call("Admin.ListChains", admin.ListChainsRequest()).chains
        ready = {one.home for one in chains if one.durability_class == name and one.owner}
        missing = sorted(one.name for one in members if "publish-forwarder" in one.roles and one.name not in ready)
        if not missing:
            inform(f"Topics can use it: `syncpoint topics update TOPIC --durability-class {name}`.")
            return
        if time.monotonic() >= end:
            raise Problem(
                f"these have no chain for it yet: {', '.join(missing)}",
                "They keep trying; topics can use the other chains. `syncpoint cluster status` shows what is "
                "missing, and their logs show why.",
            )
        if shown != (shown := ", ".join(missing)):
            inform(f"Waiting for chains of {shown}")
        time.sleep(POLL_S)


def _durability(one: Any) -> str:
    return str(as_dict(one).get("durability", "")).lower()
