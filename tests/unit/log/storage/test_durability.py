"""What each durability loses, under a kill, a power cut of everything, and a power cut of one cluster.

    durability            the process is killed        power cut everywhere             power cut of one cluster
    sync                  nothing                      nothing                          nothing
    async                 nothing                      what is younger than its sync    nothing
    memory, one node      what was not written yet     what is younger than its sync    -
    memory, a cluster     nothing                      what is younger than its sync    nothing

Whatever is lost lies above everything that was synced: a tail, and never a hole below it.
"""

from __future__ import annotations

import pytest

from syncpoint.base.runtime.random import SeededRandom
from syncpoint.log.storage.quorum import AckRule
from tests.kit.disks import Harness

pytestmark = pytest.mark.shows("durability")

GRID = AckRule.grid(3, 1)
WIDE = AckRule.grid(3, 3)
HOW = ["kill", "power cut"]


class Run:
    """A seeded life of one store, up to its death."""

    def __init__(self, seed: int, durability: str, disks: int, rule: AckRule | None) -> None:
        self.harness = Harness(seed, disks, rule, durability=durability, sync_interval_s=0.05)
        self.draw = SeededRandom(seed * 31 + disks)

    def live(self, steps: int) -> None:
        harness, draw = self.harness, self.draw
        for _ in range(steps):
            dice = draw.randrange(0, 100)
            if dice < 40:
                harness.publish(draw.randrange(0, 3), draw.randrange(1, 4), draw.randrange(1, 2_000))
            elif dice < 45:
                harness.note()
            elif dice < 60:
                harness.store.flush()
            elif dice < 80:
                names = sorted(harness.workers.steps)
                harness.run(names[draw.randrange(0, len(names))])
            elif dice < 95:
                harness.deliver()
            else:
                harness.clock.advance(draw.random() * 0.04)

    def reached(self) -> tuple[int, int, int]:
        """Log, what is synced, and what is written, on an acknowledging set."""
        log = self.harness.store._disks.log
        return log.counter, log.reached(synced=True), log.reached(synced=False)

    def reopen(self) -> None:
        self.harness.open()
        self.harness.judge()
        self.harness.accept_recovered()


def lives(durability: str, disks: int, rule: AckRule | None, how: str, lives: int = 3, seeds: int = 10) -> int:
    """Many deaths; returns how many acknowledged entries were allowed to be lost, where nothing else was.

    What was acknowledged and may not be lost is judged at every opening.
    """
    forgiven = judged = 0
    for seed in range(seeds):
        run = Run(seed, durability, disks, rule)
        run.harness.open()
        for _ in range(lives):
            run.live(150)
            log, synced, written = run.reached()
            if how == "kill":
                run.harness.kill()
                at_risk = run.harness.forgive(log, written) if durability == "memory" and rule is None else 0
            else:
                run.harness.power_cut()
                at_risk = run.harness.forgive(log, synced) if durability != "sync" else 0
            forgiven += at_risk
            judged += len(run.harness.acked) + len(run.harness.acked_facts)
            run.reopen()
    assert judged or forgiven, "nothing was promised"
    return forgiven


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("disks", "rule"), [(1, None), (3, None), (3, GRID), (9, WIDE)])
def test_sync_loses_nothing(disks: int, rule: AckRule | None, how: str) -> None:
    lives("sync", disks, rule, how, seeds=4)  # nothing is forgiven


@pytest.mark.parametrize(("durability", "how"), [("memory", "kill"), ("async", "power cut")])
def test_a_loss_that_is_not_forgiven_is_found(durability: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge that the tests of no loss rely on does find one, where there are some."""
    monkeypatch.setattr(Harness, "forgive", lambda *_: 0)
    with pytest.raises(AssertionError, match="reported persisted"):
        lives(durability, 1, None, how)


@pytest.mark.parametrize(("disks", "rule"), [(1, None), (3, None), (3, GRID), (9, WIDE)])
def test_async_loses_nothing_when_processes_die(disks: int, rule: AckRule | None) -> None:
    lives("async", disks, rule, "kill", seeds=4)  # nothing is forgiven


@pytest.mark.parametrize(("disks", "rule"), [(3, GRID), (9, WIDE)])
def test_memory_in_a_cluster_loses_nothing_when_processes_die(disks: int, rule: AckRule) -> None:
    lives("memory", disks, rule, "kill", seeds=4)  # nothing is forgiven


@pytest.mark.parametrize("disks", [1, 3])
def test_memory_on_one_node_loses_what_was_not_written(disks: int) -> None:
    assert lives("memory", disks, None, "kill") > 0


@pytest.mark.parametrize("durability", ["async", "memory"])
@pytest.mark.parametrize(("disks", "rule"), [(1, None), (3, None), (3, GRID), (9, WIDE)])
def test_a_power_cut_everywhere_loses_a_tail_that_was_not_synced(
    durability: str, disks: int, rule: AckRule | None
) -> None:
    assert lives(durability, disks, rule, "power cut", seeds=4) > 0, "the test would find a hole, and there are losses"


def unsynced_for(harness: Harness, seconds: float) -> int:
    """Entries acknowledged and unsynced after so long a pause."""
    harness.deliver()
    for _ in range(20):
        harness.clock.advance(seconds / 20)
        harness.quiesce()
    log = harness.store._disks.log
    return log.persisted - log.reached(synced=True)


@pytest.mark.parametrize("durability", ["async", "memory"])
def test_what_is_older_than_the_interval_is_synced(durability: str) -> None:
    run = Run(3, durability, 9, WIDE)
    run.harness.open()
    run.live(200)
    run.harness.store.flush()
    assert unsynced_for(run.harness, 0.2) == 0
    run.harness.power_cut()
    run.reopen()


@pytest.mark.parametrize("durability", ["async", "memory"])
def test_one_cluster_without_power_loses_nothing(durability: str) -> None:
    """Its disks do not know what they lost, so their names are set aside, as the server of the disks does."""
    for seed in range(8):
        run = Run(seed, durability, 9, WIDE)
        harness = run.harness
        harness.open()
        run.live(150)
        cluster = seed % 3
        roots = harness.roots[cluster * 3 : cluster * 3 + 3]
        harness.kill()  # the writer dies at the same moment; the other two clusters go on
        harness.files.power_cut(harness.random, roots)
        for root in roots:
            name = f"{root}/disk.json"
            if name in harness.files.paths(root):
                harness.files.rename(name, f"{name}.unclean")
                harness.files.sync_dir(root)
        run.reopen()
        harness.heal()
        assert harness.store.status().under_replicated == 0


def test_disks_that_do_not_know_what_they_lost_are_not_asked() -> None:
    """Rule 3, planted: were the names kept, two clusters without power would pass for a majority that knows of no X."""
    found = 0
    for seed in range(12):
        run = Run(seed, "async", 3, GRID)
        harness = run.harness
        harness.open()
        run.live(150)
        harness.kill()
        harness.files.power_cut(harness.random, harness.roots[:2])
        harness.lose_sight(2)
        try:
            run.reopen()
        except AssertionError:
            found += 1
    assert found, "nothing was lost in any of the schedules: they are too tame"
