"""Random schedules of appends, commits, crashes and disk faults, judged after every opening."""

from __future__ import annotations

import errno

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.log.storage.quorum import AckRule
from tests.kit.disks import Harness

pytestmark = pytest.mark.shows("quorums")


class Died(BaseException):
    """The process ended in the middle of a call."""


class DieAt:
    """A fault: the nth call from now on is the last one."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def __call__(self, operation: str, path: str) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise Died


class Schedule:
    """One seeded run. `bad`: slots with a fault not healed yet; the others can always acknowledge."""

    def __init__(self, seed: int, disks: int, rule: AckRule | None = None, **settings: object) -> None:
        self.harness = Harness(seed, disks, rule, **settings)
        self.draw = SeededRandom(seed * 7919 + disks)
        self.rule = self.harness.rule
        self.disks = disks = len(self.rule)
        self.bad: set[int] = set()
        self.backup: dict[int, dict[str, bytes]] = {}
        self.log: list[str] = []

    def run(self, steps: int) -> None:
        harness = self.harness
        harness.open()
        for _ in range(steps):
            self.step()
        self.reopen("power cut")
        self.repair()
        self.reopen("kill")

    def step(self) -> None:
        harness, draw = self.harness, self.draw
        if harness.failures or harness.store.failure is not None:
            self.say("quorum lost")
            assert self.disks == 1, harness.failures
            self.reopen("kill")
            return
        dice = draw.randrange(0, 1000)
        try:
            if dice < 330:
                harness.publish(draw.randrange(0, 4), draw.randrange(1, 5), draw.randrange(1, 3000))
            elif dice < 400:
                harness.note(draw.randrange(1, 200))
            elif dice < 520:
                harness.store.flush()
            elif dice < 800:
                names = sorted(harness.workers.steps)
                harness.run(names[draw.randrange(0, len(names))])
            elif dice < 920:
                harness.deliver()
            elif dice < 940:
                harness.clock.advance(draw.random() * 0.5)
            elif dice < 950:
                harness.take_checkpoint()
            elif dice < 970:
                for key in sorted(harness.acked):
                    if draw.random() < 0.3:
                        harness.dead.add(key)
                harness.store.collect(harness.live)
            elif dice < 975:
                harness.commit()
            elif dice < 985:
                self.reopen(("power cut", "kill", "close")[draw.randrange(0, 3)])
            elif dice < 988:
                harness.files.faults.append(DieAt(draw.randrange(0, 60)))
            elif dice < 991:
                self.repair()
            elif dice < 993:
                self.part()
            elif dice < 995:
                harness.regain(*harness.away)
            else:
                self.hurt()
        except Died:
            self.reopen(("power cut", "kill")[draw.randrange(0, 2)])
        except Unavailable:
            assert harness.failures or harness.store.failure is not None

    def say(self, text: str) -> None:
        self.log.append(text)

    def hurt(self) -> None:
        """Do something to a disk, if the faults stay a minority."""
        harness, draw = self.harness, self.draw
        slot = draw.randrange(0, self.disks)
        if not self.suffice(self.bad | self.gone() | set(harness.away) | {slot}):
            return
        self.bad.add(slot)
        root = harness.roots[slot]
        what = draw.randrange(0, 8)
        self.say(f"hurt {slot} {what}")
        if what == 0:
            harness.fail(slot, errno.EIO, ("pwritev",), draw.randrange(0, 5))
        elif what == 1:
            harness.fail(slot, errno.EIO, ("fdatasync",), draw.randrange(0, 5))
        elif what == 2:
            harness.fail(slot, errno.EROFS, (), draw.randrange(0, 9))
        elif what == 3:
            harness.files.wipe(root)
        elif what == 4:
            self.flip(root)
        elif what == 5:
            harness.files.lying.add(root)
        elif what == 6:
            harness.files.capacity[root] = 1
        elif what == 7:
            if slot in self.backup:
                harness.files.kill()
                harness.files.capacity.clear()
                harness.files.restore(root, self.backup[slot])
                self.reopen("kill")
            else:
                self.backup[slot] = harness.files.snapshot(root)

    def suffice(self, without: set[int]) -> bool:
        return self.rule.can_acknowledge([slot for slot in range(self.disks) if slot not in without])

    def gone(self) -> set[int]:
        """Disks that failed, and those that are no members yet of all that is written."""
        log = self.harness.store._disks.log
        failed = {maintainer.slot for maintainer in self.harness.store._disks.maintainers if not maintainer.ok}
        return failed.union(*({s for s, w in enumerate(one.writers) if w is None or not w.ok} for one in log.fragments))

    def part(self) -> None:
        """Any number of disks gets out of reach; acknowledgements may have to wait, and nothing fails for it."""
        if self.disks > 1:
            away = {self.draw.randrange(0, self.disks) for _ in range(self.draw.randrange(1, self.disks))}
            if self.draw.random() < 0.5:
                cluster = self.rule.clusters[min(away)]
                away |= {slot for slot in range(self.disks) if self.rule.clusters[slot] == cluster}
            if self.bad and not self.suffice(self.bad | away | self.gone() | set(self.harness.away)):
                return
            self.say(f"away {sorted(away)}")
            self.harness.lose_sight(*sorted(away))

    def flip(self, root: str) -> None:
        for _ in range(self.draw.randrange(1, 6)):
            paths = self.harness.files.paths(root)
            if paths:
                path = paths[self.draw.randrange(0, len(paths))]
                size = len(self.harness.files.content(path))
                if size:
                    self.harness.files.flip(path, self.draw.randrange(0, size), 1 << self.draw.randrange(0, 8))

    def repair(self) -> None:
        """The operator mends what is broken; the store must then become whole by itself."""
        harness = self.harness
        harness.regain(*harness.away)
        harness.files.faults.clear()
        harness.files.capacity.clear()
        if harness.files.lying:
            self.reopen("power cut")
            harness.files.lying.clear()
            return
        if harness.store.failure is not None:
            return
        rounds = [maintainer.scrubber.rounds for maintainer in harness.store._disks.maintainers]
        for _ in range(30):
            harness.heal(2)
            if all(
                k.scrubber.rounds > before + 1
                for k, before in zip(harness.store._disks.maintainers, rounds, strict=True)
            ):
                break
        harness.heal(20)
        if harness.store.failure is not None:
            return
        status = harness.store.status()
        assert all(disk.state == "ok" for disk in status.disks), status
        assert status.under_replicated == 0, status
        self.say("whole")
        self.bad.clear()

    def reopen(self, how: str) -> None:
        harness = self.harness
        self.say(how)
        if not self.suffice(self.bad | set(harness.away) | self.gone()):
            harness.regain(*harness.away)
        if how == "close":
            harness.store.close()
            harness.deliver()
            harness.kill()
        elif how == "kill":
            harness.kill()
        else:
            harness.power_cut()
        faults = [slot for slot in self.bad if self.draw.random() < 0.5]
        for slot in faults:
            if self.draw.random() < 0.3:
                harness.fail(slot, errno.EIO)
        while True:
            try:
                if self.draw.random() < 0.4:
                    harness.files.faults.append(DieAt(self.draw.randrange(0, 150)))
                harness.open()
                harness.files.faults = [fault for fault in harness.files.faults if not isinstance(fault, DieAt)]
                break
            except Died:
                self.say("died while opening")
                if self.draw.random() < 0.5:
                    harness.power_cut()
                else:
                    harness.kill()
        harness.judge()
        harness.accept_recovered()


GRID_OF_RACKS = AckRule((0, 0, 0, 1, 1, 1, 2, 2, 2), racks=(0, 0, 1, 1, 1, 0, 2, 2, 2), racks_min=2)


@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("rule", "seeds", "steps"),
    [
        (AckRule.single(1), 12, 600),
        (AckRule.single(3), 14, 700),
        (AckRule.single(5), 8, 700),
        (AckRule.grid(3, 1), 8, 700),
        (AckRule.grid(3, 3), 7, 900),
        (AckRule((0, 1, 2), racks=(0, 0, 1), racks_min=2), 6, 700),
        (GRID_OF_RACKS, 4, 900),
        (AckRule((0, 0, 0, 1, 1, 1, 2, 2, 2), within="all"), 4, 900),
    ],
)
def test_nothing_persisted_is_lost(rule: AckRule, seeds: int, steps: int, half: int) -> None:
    for seed in range(half, seeds, 2):
        schedule = Schedule(seed, len(rule), rule, prewrite_ahead_bytes=seed // 2 % 2 * 131_072)
        try:
            schedule.run(steps)
        except BaseException as error:
            error.add_note(f"seed {seed}, {rule}: {schedule.log}")
            raise
