"""The list of planted bugs: each is a patch that takes one rule of the protocol out of shipped modules for a while.

Place: under the modules of bugs, each of which names the simulation in which it should show: a shape, and the faults
that the rule is about. `planted_bugs` looks for the first seed that catches one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace

from syncpoint.testing.simulation.chain_runs import run_chains
from syncpoint.testing.simulation.sim_runs import RunResult
from syncpoint.testing.simulation.simulated_jobs import PipelineShape
from syncpoint.testing.simulation.topology import Topology

Patch = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Planted:
    """One bug, and where it should show. `beyond`: more is destroyed than can be made good, so the right thing is to
    refuse. `seed`: the first one that notices it, as `tools/sim.py --planted` finds it.
    """

    patch: Patch
    shape: Topology | PipelineShape | str | None
    kinds: tuple[str, ...]
    beyond: bool
    seed: int
    run: Callable[..., RunResult]

    def life(self, seed: int) -> RunResult:
        """One seed of its simulation."""
        return self.run(seed, shape=self.shape, kinds=self.kinds, beyond=self.beyond)


PLANTED: dict[str, Planted] = {}

THREE = Topology(clusters=3, disks=1)
THREE_LASTING = Topology(clusters=3, disks=1, lasting=True)
RACKS = Topology(clusters=3, disks=1, racks=True)
ROLLING = Topology(clusters=1, disks=1, entries=6)
SINGLE = Topology(clusters=1, disks=1)
SMALL = Topology(clusters=1, disks=1, subscribers=2)
EMPTYING = Topology(clusters=1, disks=1, emptying=True)
LASTING = Topology(clusters=1, disks=1, subscribers=2, lasting=True, strict=True)
LASTING_TWO = replace(LASTING, chains=2)
HEAVY = Topology(clusters=3, disks=1, heavy=True)
STRICT_TWO = Topology(clusters=1, disks=1, chains=2, strict=True)
ABSENT = Topology(clusters=1, disks=1, subscribers=2, absent=True)
SEALING = Topology(clusters=1, disks=1, sealing=True)
SEEKING = Topology(clusters=1, disks=1, subscribers=2, seeking=True)
CRAMPED = Topology(clusters=1, disks=1, emptying=True, heavy=True, room=600_000)
STRICT = Topology(clusters=1, disks=1, subscribers=2, strict=True)
EXPIRING = Topology(clusters=1, disks=1, expiring=True)
SPREAD = Topology(clusters=3, disks=3, spread=True)


def planted(
    shape: Topology | PipelineShape | str | None,
    *kinds: str,
    seed: int,
    beyond: bool = False,
    run: Callable[..., RunResult] = run_chains,
) -> Callable[[Patch], Patch]:
    """Enter a patch in the list, under the name of its function."""

    def entered(patch: Patch) -> Patch:
        PLANTED[patch.__name__.replace("_", " ")] = Planted(patch, shape, kinds, beyond, seed, run)
        return patch

    return entered


@contextmanager
def together(*patches: AbstractContextManager[None]) -> Iterator[None]:
    """Several patches as one."""
    with ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        yield
