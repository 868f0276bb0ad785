"""Lives of the small simulation in the shapes that are hard on delivery, with all faults that there are.

Place: beside `chain_runs`, whose own draw of shapes and faults stays as it is: a seed of it is the same life as before.
"""

from __future__ import annotations

from dataclasses import replace

from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.simulation.base import Trace
from syncpoint.testing.simulation.chain_runs import run_chains
from syncpoint.testing.simulation.faults import FAULTS
from syncpoint.testing.simulation.sim_runs import RunResult
from syncpoint.testing.simulation.topology import Topology

FURTHER = (
    "maintainers starved", "dies behind its disks", "subscribe forwarder falls silent", "island left behind",
    "steps of a subscribe forwarder fail",
)  # fmt: skip
"""Kinds of faults that `faults.FAULTS` does not have."""

ONE, THREE = Topology(clusters=1, disks=1), Topology(clusters=3, disks=1)
SHAPES = (
    replace(ONE, emptying=True),
    replace(THREE, emptying=True, subscribers=2),
    replace(ONE, lasting=True, strict=True, subscribers=2),
    replace(ONE, lasting=True, strict=True, subscribers=2, chains=2),
    replace(THREE, lasting=True, subscribers=3),
    replace(ONE, seeking=True, subscribers=2),
    replace(THREE, seeking=True, chains=2),
    replace(ONE, absent=True, subscribers=2),
    replace(ONE, absent=True, strict=True, subscribers=2, chains=2),
    replace(ONE, sealing=True, subscribers=2),
    replace(THREE, sealing=True, seeking=True),
    replace(ONE, strict=True, chains=2),
)
EXPIRING = (
    replace(ONE, expiring=True),
    replace(ONE, expiring=True, chains=2, subscribers=2),
    replace(THREE, expiring=True, subscribers=2, entries=6),
)
"""Of every tenth seed."""
LIES = "disk lies"  # not together with disks that are away: see `faults.AWAY`


def run_delivery(seed: int, *, trace: Trace | None = None) -> RunResult:
    """Run one seed."""
    random = SeededRandom(seed * 11 + 5)
    shape = SHAPES[random.randrange(0, len(SHAPES))]
    if seed % 10 == 9:
        shape = EXPIRING[seed // 10 % len(EXPIRING)]
    kinds = [kind for kind in FAULTS if random.random() < 0.15 and kind != LIES]
    kinds += [kind for kind in FURTHER if random.random() < 0.35]
    return run_chains(seed, shape=shape, kinds=tuple(kinds) or FURTHER, trace=trace)
