"""Which events of a process count that is seen for the first time; what probers and disks say about themselves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from syncpoint.watch.monitor.history_file import HistoryFile
from syncpoint.watch.monitor.monitor_core import YOUNG_S, MonitorCore, ProcessText
from syncpoint.watch.monitor.monitor_file import MonitorFile
from syncpoint.watch.monitor.monitor_settings import defaults
from tests.unit.watch.monitor.conftest import BEGIN_S, Watched

MESSAGES = "syncpoint_topic_messages_total"


def page(messages: int, uptime_s: float | None = None) -> bytes:
    text = f'# HELP {MESSAGES} x\n# TYPE {MESSAGES} counter\n{MESSAGES}{{topic="a"}} {messages}\n'
    if uptime_s is not None:
        uptime = "syncpoint_process_uptime_seconds"
        text += f"# HELP {uptime} x\n# TYPE {uptime} gauge\n{uptime} {uptime_s}\n"
    return text.encode()


class Pages:
    """A monitor over pages of workers, which may be restarted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.begin(BEGIN_S)

    def begin(self, now_s: float) -> None:
        self.file = MonitorFile(HistoryFile(self._path))
        names = count()
        self.core = MonitorCore(defaults(), self.file, lambda: f"a{next(names)}", now_s)

    def grown(self, after_s: float, **pages: bytes | None) -> float:
        """By how many messages all grew at a look."""
        self.core.look([ProcessText(name, {}, text) for name, text in pages.items()], BEGIN_S + after_s)
        return sum(self.core.latest.get(MESSAGES, {}).values())


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    made = Pages(tmp_path / "monitor.sqlite")
    yield made
    made.file.history.close()


def test_what_a_young_process_counted_before_the_first_look_counts(pages: Pages) -> None:
    assert pages.grown(1, one=page(11, 5.0), two=page(7, YOUNG_S + 1), three=page(3)) == 11
    assert pages.grown(11, one=page(12, 15.0), two=page(9, YOUNG_S + 11), three=page(3)) == 3


def test_a_young_process_that_did_not_answer_at_first_counts_from_its_beginning(pages: Pages) -> None:
    assert pages.grown(1, one=None) == 0
    assert pages.grown(11, one=page(11, 15.0)) == 11


def test_what_was_counted_in_an_earlier_life_of_the_monitor_does_not_count_again(pages: Pages) -> None:
    assert pages.grown(17, one=page(11, 5.0), two=page(20, 5.0)) == 31
    pages.file.history.close()
    pages.begin(BEGIN_S + 25)
    # The first one lived on; the second one began anew, between the looks, within the same ten seconds.
    assert pages.grown(27, one=page(13, 15.0), two=page(4, 8.0)) == 4


def test_a_process_that_is_not_listed_for_a_while_goes_on_from_where_it_was(pages: Pages) -> None:
    assert pages.grown(1, one=page(11, 5.0)) == 11
    assert pages.grown(11, two=page(0, 5.0)) == 0
    assert pages.grown(21, one=page(14, 25.0), two=page(0, 15.0)) == 3


def test_probers_page_for_the_endpoint_that_is_not_as_expected_and_a_disk_given_up_is_a_ticket() -> None:
    watched, firing = Watched(), list[tuple[str, tuple[tuple[str, str], ...], str]]()
    expected, failures = "syncpoint_prober_as_expected", "syncpoint_disk_failures_total"

    def look(seconds: float, bad: int, failed: int) -> None:
        watched.now_s += seconds
        text = f"# HELP {expected} x\n# TYPE {expected} gauge\n"
        text += f'{expected}{{prober="P1",endpoint="one",metric="success"}} {1 - bad}\n'
        text += f'{expected}{{prober="P2",endpoint="two",metric="success"}} 1\n'
        text += f"# HELP {failures} x\n# TYPE {failures} counter\n"
        text += f'{failures}{{chain="0",disk="/d1"}} {failed}\n'
        watched.core.look([ProcessText("p", {"process": "p"}, text.encode())], watched.now_s)
        firing[:] = [(one.rule, tuple(one.labels), one.severity) for one in watched.core.alerts(0)]

    look(10, 0, 3)
    look(10, 1, 3)
    assert firing == []
    look(80, 1, 3)
    assert firing == []
    look(10, 1, 4)
    assert sorted(firing) == [
        ("DiskGivenUp", (("process", "p"), ("chain", "0"), ("disk", "/d1")), "ticket"),
        ("ProberUnexpected", (("endpoint", "one"),), "page"),
    ]
    for _ in range(8):
        look(10, 0, 4)
    assert [rule for rule, *_ in firing] == ["DiskGivenUp"]
