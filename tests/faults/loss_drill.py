"""A drill of losses on this machine: a zone with a storage cluster and its forwarders is killed at twice the load.

Usage: python -m tests.faults.loss_drill. Official clients publish and receive, twice as much from a moment on, then
the zone is killed; the busy share that was foretold of those that are left is held against the one they have. It
prints what came of it as a row of a table; the program ends with 1 when that is not as it is to be. It takes a minute
or two.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from syncpoint.node.cluster.local import Shape
from syncpoint.testing.official import eventually
from syncpoint.wire.messages import admin
from tests.kit.clusters import Kit
from tests.kit.customers import Customers

RATE = 60.0  # messages a second; then twice as many
CALM_S = 20.0
VICTIMS = ("storage-c1", "publish-forwarder-1", "subscribe-forwarder-1")


def in_zones(folder: Path) -> Kit:
    """Three zones of one storage cluster and one forwarder of each kind; proxies and routers are in the latter two."""
    shape = Shape(clusters=3, disks=1, forwarders=3, routers=2, proxies=2)
    kit = Kit(folder, shape)
    path = kit.local.settings_path
    content = yaml.safe_load(path.read_text())
    for name, process in content["processes"].items():
        number = int(name[-1])
        process["zone"] = f"z{number if name.startswith(('storage', 'publish', 'subscribe')) else 1 + number}"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return kit.up()


def lose(kit: Kit) -> None:
    """SIGKILL for all of the zone z1."""
    for name in VICTIMS:
        kit.local.kill(name)


def rows(kit: Kit, zone: str) -> dict[str, Any]:
    """What is said about losing a zone, by role."""
    found = kit.admin("GetHeadroom", admin.GetHeadroomRequest()).rows
    return {one.role: one for one in found if one.domain == f"zone {zone}"}


def headroom() -> tuple[bool, str]:
    """Twice the load, and a zone less."""
    with tempfile.TemporaryDirectory() as folder:
        kit = in_zones(Path(folder) / "c")
        every: list[Customers] = []
        try:
            every.append(Customers(kit.proxies, topics=9, rate=RATE).start())
            time.sleep(CALM_S)
            once = rows(kit, "z1")
            every.append(Customers(kit.proxies, topics=9, rate=RATE).start())
            time.sleep(CALM_S)
            twice = rows(kit, "z1")
            lose(kit)
            killed = time.monotonic()
            eventually(lambda: len(kit.members()) == len(kit.local.states()) - 1 - len(VICTIMS), 60)
            time.sleep(CALM_S)
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
    well = not failed and all(left[role].busy <= 0.8 for role in twice)
    text = (
        f"{sent:,} messages, all received, {len(failed)} errors at programs, longest publish {longest:.1f} s; {figures}"
    )
    return well, text + (f"; {failed[0]}" if failed else "")


PARTS: dict[str, Callable[[], tuple[bool, str]]] = {"headroom": headroom}


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
