"""What a process writes to its log when the same goes wrong again and again."""

from __future__ import annotations

import logging

import pytest

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.catalog.metadata.contract import StoreUnavailable
from syncpoint.node.cluster.logs import BURST, Bounded


class Lines:
    """Loggers over one handler with the filter."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lines: list[str] = []
        self.filter = Bounded(self.clock)

    def log(self, name: str, level: int, text: str, *args: object) -> None:
        record = logging.LogRecord(name, level, "f", 1, text, args, None)
        if self.filter.filter(record):
            self.lines.append(record.getMessage())


@pytest.fixture
def lines() -> Lines:
    return Lines()


def test_lost_metadata_are_reported_once_and_then_once_a_minute_with_a_count(lines: Lines) -> None:
    for _ in range(600):  # an hour, ten times a minute each
        lines.clock.advance(6)
        lines.log("syncpoint.catalog.metadata.etcd_client", logging.INFO, "etcd: left %s for %s", "a", "b")
        lines.log("syncpoint.catalog.metadata.etcd_streams", logging.INFO, "a watch goes on elsewhere: %s", "no")
        lines.log(
            "syncpoint.cluster.control.membership", logging.INFO, "cannot register yet: %s", StoreUnavailable("no")
        )
        lines.log(
            "syncpoint.cluster.control.plane",
            logging.INFO,
            "nothing is changed: %s",
            "The metadata store does not answer",
        )
    assert len(lines.lines) <= 61
    assert lines.lines[0] == "etcd: left a for b"
    assert lines.lines[1].endswith("(39 more lines about the metadata in the 60 s before)")


def test_what_cannot_be_understood_of_the_metadata_is_reported(lines: Lines) -> None:
    for _ in range(5):
        lines.log("syncpoint.catalog.metadata.etcd_client", logging.INFO, "etcd: left")
        lines.log("syncpoint.catalog.metadata.catalog_replica", logging.ERROR, "the catalog cannot be understood")
    assert lines.lines.count("the catalog cannot be understood") == 5


def test_other_lines_are_bounded_each_by_itself(lines: Lines) -> None:
    for number in range(1000):
        lines.log("syncpoint.broker.publish.chain.host", logging.ERROR, "a step failed: %d", number)
    lines.log("syncpoint.broker.publish.chain.host", logging.WARNING, "something else")
    assert len(lines.lines) == BURST + 1
    lines.clock.advance(61)
    lines.log("syncpoint.broker.publish.chain.host", logging.ERROR, "a step failed: %d", 7)
    assert lines.lines[-1] == "a step failed: 7 (980 more lines like this in the 61 s before)"


def test_a_line_now_and_then_is_always_reported(lines: Lines) -> None:
    for _ in range(100):
        lines.clock.advance(61)
        lines.log("a", logging.INFO, "the metadata are away")
        lines.log("b", logging.INFO, "hello")
    assert len(lines.lines) == 200
