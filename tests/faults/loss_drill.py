"""A drill of losses on this machine: a zone with a storage cluster and its forwarders is killed for good.

Usage: python -m tests.faults.loss_drill [headroom|zone]...; without words, both. `headroom`: official clients publish
and receive, twice as much from a moment on, then the zone is killed; those that are left take all of it, and are no
busier than was foretold of them. `zone`: what `syncpoint at-risk --zone` foretells of each topic is held against what
comes after all its processes got SIGKILL and its disks were emptied. Each prints what came of it as a row of a table;
the program ends with 1 when one was not as it is to be. It takes some minutes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import yaml

from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf.messages import admin
from tests.integration.conftest import Space
from tests.integration.test_at_risk import foretold, of_topic, place, published, taken
from tests.kit.clusters import Kit
from tests.kit.customers import Customers

RATE = 60.0  # messages a second; then twice as many
CALM_S = 20.0
ENOUGH = 0.85  # of the load that is asked for
NOISE = 0.1  # of busy shares measured on a machine that does other things
ROLES = ("storage-c", "publish-forwarder-", "subscribe-forwarder-")
MANY, DONE = 60, 20  # messages of a topic, and how many of them are acknowledged


def in_zones(folder: Path) -> Kit:
    """Three zones of one storage cluster and one forwarder of each kind; proxies and routers are in another one."""
    shape = Shape(clusters=3, disks=1, forwarders=3, routers=2, proxies=2)
    kit = Kit(folder, shape, {"classes": {"single": {"clusters": 1, "disks": 1}}})
    path = kit.local.settings_path
    content = yaml.safe_load(path.read_text())
    for name, process in content["processes"].items():
        process["zone"] = f"z{name[-1] if name.startswith(ROLES) else 4}"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return kit.up()


def lose(kit: Kit, number: str, *, wipe: bool) -> set[str]:
    """SIGKILL for all of a zone; its disk is emptied where that is asked for. Returns who it was."""
    victims = {role + number for role in ROLES}
    for name in victims:
        kit.local.kill(name)
    for path in kit.local.folder.glob(f"disks/c{number}-*/*") if wipe else ():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return victims


def rows(kit: Kit, zone: str) -> dict[str, Any]:
    """What is said about losing a zone, by role."""
    found = kit.admin("GetHeadroom", admin.GetHeadroomRequest()).rows
    return {one.role: one for one in found if one.domain == f"zone {zone}"}


def headroom() -> tuple[bool, str]:
    """Twice the load, and a zone less."""
    with tempfile.TemporaryDirectory() as folder:
        kit = in_zones(Path(folder) / "c")
        every: list[Customers] = []

        def rate() -> float:
            """Messages a second that programs publish in a calm time from now on."""
            before, begun = sum(len(one.sent) for one in every), time.monotonic()
            time.sleep(CALM_S)
            return (sum(len(one.sent) for one in every) - before) / (time.monotonic() - begun)

        try:
            every.append(Customers(kit.proxies, topics=9, rate=RATE).start())
            rates = [rate()]
            once = rows(kit, "z1")
            every.append(Customers(kit.proxies, topics=9, rate=RATE).start())
            rates.append(rate())
            twice = rows(kit, "z1")
            victims = lose(kit, "1", wipe=False)
            killed = time.monotonic()
            eventually(lambda: len(kit.members()) == len(kit.local.states()) - 1 - len(victims), 60)
            rates.append(rate())
            left = rows(kit, "z2")
            for one in every:
                one.end(120.0)
            failed = [text for one in every for text in one.failed()]
            longest = max(took for one in every for took in one.times((killed, killed + CALM_S))[0])
            sent = sum(len(one.sent) for one in every)
        finally:
            for one in every:
                one.close()
            kit.down()
    figures = "; ".join(
        f"{role} {once[role].busy:.0%} busy, {twice[role].busy:.0%} at twice the load, {twice[role].busy_after:.0%} "
        f"foretold without the zone, {left[role].busy:.0%} then"
        for role in sorted(twice)
    )
    taken = rates[1] >= ENOUGH * 2 * rates[0] and rates[2] >= ENOUGH * rates[1]
    foretold_well = all(left[role].busy <= min(0.8, row.busy_after + NOISE) for role, row in twice.items())
    well = not failed and taken and foretold_well
    text = (
        f"{sent:,} messages ({rates[0]:.0f} a second, {rates[1]:.0f}, {rates[2]:.0f} without the zone), all received, "
        f"{len(failed)} errors at programs, longest publish {longest:.1f} s; {figures}"
    )
    return well, text + (f"; {failed[0]}" if failed else "")


def zone() -> tuple[bool, str]:
    """Foretold and brought about, topic by topic."""
    with tempfile.TemporaryDirectory() as folder:
        kit = in_zones(Path(folder) / "c")
        space = Space(kit.proxies[0])
        try:
            stored, needed, names = {}, {}, {}
            for count in range(10):
                klass = "default" if count < 4 else "single"
                topic = space.path("topics", f"{klass}-{count}")
                create(kit.proxies[0], topic, klass)
                subscription = space.subscription(topic, f"{klass}-{count}", ack_deadline_seconds=600)
                names[topic] = subscription
                stored[topic] = published(space, topic, MANY)
                done = taken(space, subscription, DONE)
                space.ack(subscription, *done.values())
                needed[topic] = stored[topic] - done.keys()
            last = b"the last topic alone: 5e0c77"
            stored_at = space.publish(topic, last)[0]
            needed[topic].add(place(stored_at))
            number = kit.disks_holding(last)[0].name[1]  # of the storage cluster that has it
            found = foretold(kit.proxies[0], zones=[f"z{number}"])
            assert not found.unknown, found.unknown
            (failure,) = found.failures
            victims = lose(kit, number, wipe=True)
            owners = {one.name for one in kit.local.states()} - victims
            whole = [one.number for one in kit.chains() if "single" not in one.name]
            eventually(
                lambda: {one.owner in owners for one in kit.chains() if one.number in whole} == {True}, 60, "adopted"
            )
            right, foretold = 0, [0, 0, 0]  # lost, unavailable, twice
            for topic, subscription in names.items():
                lost, unavailable, twice = of_topic(failure, topic)
                foretold = [sum(pair) for pair in zip(foretold, map(len, (lost, unavailable, twice)), strict=True)]
                got, refused = came(space, subscription)
                expected = (needed[topic] - lost - unavailable) | twice
                right += got == expected
                print(
                    f"  {topic.rpartition('/')[2]}: {len(needed[topic])} needed; foretold: {len(lost)} lost, "
                    f"{len(unavailable)} unavailable, {len(twice)} twice; {len(got)} came"
                    f"{f', {refused} more from the memory of a forwarder, not to be acknowledged' if refused else ''}"
                    f"{'' if got == expected else f', and {len(expected)} were to come'}"
                )
        finally:
            space.close()
            kit.down()
    text = (
        f"foretold {foretold[0]} lost, {foretold[1]} unavailable, {foretold[2]} twice; {right} of {len(names)} topics"
        " as foretold"
    )
    return right == len(names) and foretold[0] > 0, text


def came(space: Space, subscription: str) -> tuple[set[Any], int]:
    """What came and could be acknowledged; and how many came that could not, because their chain is gone: a forwarder
    that lives had read them before."""
    found: set[Any] = set()
    refused = silent = 0
    while silent < 2:
        fresh = space.pull_once(subscription, 1000, wait=2)
        silent = 0 if fresh else silent + 1
        try:
            if fresh:
                space.ack(subscription, *fresh)
        except grpc.RpcError:
            refused += len(fresh)
        else:
            found |= {place(one.message.message_id) for one in fresh}
    return found, refused


def create(endpoint: str, topic: str, klass: str) -> None:
    """A topic of a durability class."""
    command = [sys.executable, "-m", "syncpoint.programs.cli", "topics", "create", topic, "--endpoint", endpoint]
    more = [] if klass == "default" else ["--durability-class", klass]
    subprocess.run([*command, *more], check=True, capture_output=True, timeout=60)


PARTS: dict[str, Callable[[], tuple[bool, str]]] = {"headroom": headroom, "zone": zone}


def main(words: list[str]) -> int:
    """See the module."""
    well = True
    for word in words or list(PARTS):
        as_it_is_to_be, text = PARTS[word]()
        well = well and as_it_is_to_be
        print(f"| {word} | {'as it is to be' if as_it_is_to_be else 'NOT as it is to be'} | {text} |", flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
