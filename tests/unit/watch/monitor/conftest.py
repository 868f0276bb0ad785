"""A monitor without waiting, over texts that a test writes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from syncpoint.base.model.histogram import Histogram
from syncpoint.watch.metrics.exposition import written
from syncpoint.watch.metrics.family import Samples
from syncpoint.watch.metrics.family_table import FAMILIES
from syncpoint.watch.monitor.alert_machine import Notification
from syncpoint.watch.monitor.history_file import HistoryFile
from syncpoint.watch.monitor.monitor_core import MonitorCore, ProcessText
from syncpoint.watch.monitor.monitor_file import MonitorFile
from syncpoint.watch.monitor.monitor_settings import MonitorSettings, defaults

BEGIN_S = 1_790_000_000.0 // 600 * 600


class Watched:
    """A process that a test plays, and the monitor over it. `now_s` is the clock."""

    def __init__(self, settings: MonitorSettings | None = None, path: str = ":memory:") -> None:
        self.now_s = BEGIN_S
        self.settings = settings or defaults()
        self.numbers: dict[tuple[str, tuple[str, ...]], float] = {}
        self.histograms: dict[tuple[str, tuple[str, ...]], Histogram] = {}
        self._path, self._names = path, count(1)
        self.file = MonitorFile(HistoryFile(path))
        self.core = MonitorCore(self.settings, self.file, lambda: f"a{next(self._names)}", self.now_s)

    def restart(self) -> None:
        """The monitor's process is killed, and started again."""
        self.file.history.close()
        self.file = MonitorFile(HistoryFile(self._path))
        self.core = MonitorCore(self.settings, self.file, lambda: f"a{next(self._names)}", self.now_s)

    def add(self, family: str, number: float, *labels: str) -> None:
        self.numbers[family, labels] = self.numbers.get((family, labels), 0) + number

    def put(self, family: str, number: float, *labels: str) -> None:
        self.numbers[family, labels] = number

    def note(self, family: str, seconds: float, times: int, *labels: str) -> None:
        self.histograms.setdefault((family, labels), Histogram()).note(seconds, times)

    def text(self) -> bytes:
        samples = Samples(FAMILIES)
        for (family, labels), number in self.numbers.items():
            samples.put(family, number, *labels)
        for (family, labels), histogram in self.histograms.items():
            samples.put_histogram(family, histogram, *labels)
        return written(samples)

    def look(self, seconds: float = 10.0, *, silent: bool = False) -> list[Notification]:
        self.now_s += seconds
        text = None if silent else self.text()
        return self.core.look([ProcessText("node", {}, text, True)], self.now_s)


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    yield made
    made.file.history.close()
