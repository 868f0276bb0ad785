"""Log lines of a process, bounded: what repeats is reported once, then once a minute with how often.

Place: a filter of the handler that `serve` installs. While the metadata are away dozens of tasks try again several
times a second, each with a line of its own; all of these are one subject. Of any other line twenty a minute are passed
on.
Promise: nothing at ERROR or above that concerns the metadata is held back, and whatever is held back is counted in the
next line of its kind.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from syncpoint.base.runtime.clock import Clock, SystemClock
from syncpoint.catalog.metadata.contract import StoreError

WINDOW_S = 60.0
BURST = 20
SUBJECTS_MAX = 1_000


class _Subject:
    """Lines that are alike."""

    __slots__ = ("held", "passed", "since")

    def __init__(self, now: float) -> None:
        self.since, self.passed, self.held = now, 0, 0


class Bounded(logging.Filter):
    """Limit the log lines of a process by subject."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or SystemClock()
        self._subjects: OrderedDict[tuple[str, str], _Subject] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written. Lines may come from several threads: a count that is one off does no harm."""
        about_metadata = record.levelno < logging.ERROR and _is_about_metadata(record)
        key = ("metadata", "") if about_metadata else (record.name, str(record.msg))
        now = self._clock.monotonic()
        subject = self._subjects.get(key)
        if subject is None:
            subject = self._subjects[key] = _Subject(now)
            if len(self._subjects) > SUBJECTS_MAX:
                self._subjects.popitem(last=False)
        if now >= subject.since + WINDOW_S:
            held, past_s = subject.held, now - subject.since
            subject.since, subject.passed, subject.held = now, 0, 0
            if held:
                kind = "lines about the metadata" if about_metadata else "lines like this"
                record.msg = f"{record.getMessage()} ({held} more {kind} in the {past_s:.0f} s before)"
                record.args = ()
        if subject.passed < (1 if about_metadata else BURST):
            subject.passed += 1
            return True
        subject.held += 1
        return False


def _is_about_metadata(record: logging.LogRecord) -> bool:
    if record.name.startswith("syncpoint.catalog.metadata"):
        return True
    args = record.args if isinstance(record.args, tuple) else ()
    if any(isinstance(one, StoreError) for one in args):
        return True
    text = record.getMessage().lower()
    return "metadata" in text or "etcd" in text
