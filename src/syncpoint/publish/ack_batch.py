"""Acknowledgements on their way to the log: collected in memory, then written as one entry of a group commit.

Place: used by `commit`. Ledgers hold them from the moment they come; until they are persisted, nobody may be asked to
read on behind them, since the next owner of the log may not know them.
"""

from collections import deque
from collections.abc import Iterable

from syncpoint.kernel.acks import AckSet
from syncpoint.model.delivery import Done
from syncpoint.publish.records import Acks


class AckBatch:
    """The acknowledgements of the next entry, what waits for it, and all that are not persisted yet."""

    def __init__(self) -> None:
        self.waiting: list[Acks] = []  # for the next entry
        self._done: list[Done] = []
        self._unpersisted: dict[tuple[int, int], deque[bytes]] = {}  # runs by (subscription, source)

    def __bool__(self) -> bool:
        """Whether the next entry has anything in it."""
        return bool(self.waiting)

    def add(self, entry: Acks, done: Done) -> None:
        """Write an acknowledgement with the next entry; `done` when that is persisted."""
        self._done.append(done)
        key = (entry.subscription, entry.source)
        unpersisted = self._unpersisted.get(key)
        if unpersisted is None:
            unpersisted = self._unpersisted[key] = deque()
        unpersisted.append(entry.runs)
        self.waiting.append(entry)

    def wait(self, done: Done) -> None:
        """Call `done` when the next entry is persisted."""
        self._done.append(done)

    def is_last(self, done: Done) -> bool:
        """Whether this one was added last, and is answered with the next entry."""
        return bool(self._done) and self._done[-1] is done

    def take(self) -> tuple[list[Acks], list[Done]]:
        """What the next entry holds, and what waits for it; another one begins."""
        taken = self.waiting, self._done
        self.waiting, self._done = [], []
        return taken

    def on_persisted(self, acks: Iterable[Acks]) -> None:
        """An entry is persisted. Entries come in the order in which they were taken."""
        for one in acks:
            key = (one.subscription, one.source)
            unpersisted = self._unpersisted[key]
            unpersisted.popleft()
            if not unpersisted:
                del self._unpersisted[key]

    def on_failed(self) -> list[Done]:
        """Remove and return what waits: the next entry is never written."""
        waiting, self._done = self._done, []
        return waiting

    def is_unpersisted(self, subscription: int, source: int) -> bool:
        """Whether anything acknowledged of a source is not persisted."""
        return (subscription, source) in self._unpersisted

    def all_unpersisted(self) -> dict[tuple[int, int], list[bytes]]:
        """Runs of all that is not persisted, by subscription and source."""
        return {key: list(runs) for key, runs in self._unpersisted.items()}

    def unpersisted(self, subscription: int, source: int) -> AckSet | None:
        """What was acknowledged and is not persisted: if this log is lost, it may have to be delivered again."""
        runs = self._unpersisted.get((subscription, source))
        if runs is None:
            return None
        acks = AckSet()
        for one in runs:
            acks.add_runs(one)
        return acks
