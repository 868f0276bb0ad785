"""Recover: open the disks, decide, and only then change anything.

Place: called once by `Store.open`. The order is the safety argument:
1. `opening_disks`, `members`: read identities, marks and segments of all disks; refuse unless enough of the newest
fragment's members are here, by the ack rule that its header names;
2. `decide_tails`: find the tail of every log; refuse when something promised is on no disk;
3. `reserve`: reserve the next log counter on all disks, so that of two interrupted recoveries the later one has the
higher counter;
4. `load`, `seal_tails`: rewrite, seal and sync every unsealed tail on an acknowledging set; what other disks lack is
completed in the background.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.files import Files
from syncpoint.base.runtime.random import Random
from syncpoint.base.runtime.step_workers import one_by_one
from syncpoint.log.storage.errors import CopiesChanged
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.recovery.decide_tails import TailDecision
from syncpoint.log.storage.recovery.load import LoadedSegments
from syncpoint.log.storage.recovery.members import Members
from syncpoint.log.storage.recovery.opening_disks import OpeningDisks, Together
from syncpoint.log.storage.recovery.reserve import reserve
from syncpoint.log.storage.recovery.seal_tails import seal_tails
from syncpoint.log.storage.recovery.tidy import tidy
from syncpoint.log.storage.settings import OPENINGS_MAX, KnownStore, StorageSettings


class Recovery:
    """The steps of opening; `disks`, `members`, `decision`, `loaded` and `counter` are what they leave."""

    loaded: LoadedSegments
    counter: int

    def __init__(
        self,
        roots: Sequence[str],
        rule: AckRule,
        settings: StorageSettings,
        files: Files,
        random: Random,
        together: Together = one_by_one,
    ) -> None:
        self.disks = OpeningDisks(roots, rule, files, together)
        self.members = Members(self.disks, settings.accept_loss)
        self.decision = TailDecision(self.disks, self.members, settings.accept_loss)
        self._settings = settings
        self._random = random

    def run(self, known: KnownStore) -> None:
        """All steps. Raises `DisksMissing`, `StorageDamaged`, `ForeignDisk`, `Fenced`, `CounterTaken`."""
        disks = self.disks
        try:
            self._read(known.universe)
            self.decision.make(known.disks)
            self.counter = reserve(disks, self.members, self.decision, self._random, known)
            self._tidy()
            self._load()
            seal_tails(disks, self.loaded, self._random, self.counter)
            for disk in disks.good:
                disks.refuse_restarted(disk)
        except BaseException:
            disks.release()
            raise

    def look(self) -> None:
        """Read and decide as `run` does, and change nothing. Raises the same; giving the locks back is left to the
        caller.
        """
        self._read(None)
        self.decision.make(())
        self._load()

    def _read(self, universe: int | None) -> None:
        self.disks.read(universe, lambda: self._random.randrange(10**12, 10**13))

    def _load(self) -> None:
        self.loaded = LoadedSegments(self.disks, self._settings)
        self.loaded.load(self.decision)

    def _tidy(self) -> None:
        void = {copy.path for tail in self.decision.tails for copy in tail.void}
        for disk in self.disks.good:
            assert disk.scan is not None
            try:
                tidy(self.disks.files, disk.scan, self.disks.marks, void, self.disks.recovered.notes)
            except OSError as error:
                self.disks.fail(disk, error)


def recover(
    roots: Sequence[str], settings: StorageSettings, environment: Environment, together: Together, known: KnownStore
) -> Recovery:
    """Run a recovery; from its beginning again where a disk changed in the meantime, a few times. Raises as
    `Recovery.run`.

    Not with a counter that was handed in: the attempt that failed has used it up, and of two that seal with the same
    one the later could not be distinguished from the earlier.
    """
    rule = known.rule or AckRule.single(len(roots))
    left = 1 if known.counter is not None else OPENINGS_MAX
    changed: list[str] = []
    while True:
        left -= 1
        recovery = Recovery(roots, rule, settings, environment.files, environment.random, together)
        try:
            recovery.run(known)
        except CopiesChanged as error:
            if not left:
                raise
            changed.append(f"recovery was restarted: {error}")
            continue
        recovery.disks.recovered.notes[:0] = changed
        return recovery
