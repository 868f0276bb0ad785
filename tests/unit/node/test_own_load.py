"""What a process reports of its calls and of the disks of its chains: the bad alone, counted since the last report."""

from __future__ import annotations

import pytest

from syncpoint.base.model.errors import Code
from syncpoint.base.model.histogram import Histogram
from syncpoint.node.own_load import DiskLooks, ObservedDisk, OwnCalls
from syncpoint.wire.transport.calls import Streaming, Unary


def test_calls_that_failed_by_the_fault_of_the_process_are_reported_with_all_that_ended_since() -> None:
    publish, ping = Unary(lambda call, request: None), Unary(lambda call, request: None)
    stream = Streaming(lambda call: None)
    calls = OwnCalls(lambda: [{b"/a.Publisher/Publish": publish, b"/i.Process/Ping": ping, b"/a.S/Pull": stream}])
    for code in (Code.OK, Code.NOT_FOUND, Code.UNAVAILABLE, Code.INTERNAL):
        for method in (publish, ping, stream):
            method.counts.ended(code, 0.0)
    assert calls.take() == {"failed_calls": [2, 4]}
    publish.counts.ended(Code.OK, 0.0)
    assert calls.take() == {}, "no news"
    publish.counts.ended(Code.DEADLINE_EXCEEDED, 0.0)
    assert calls.take() == {"failed_calls": [1, 1]}


def noted(*seconds: float) -> Histogram:
    found = Histogram()
    for one in seconds:
        found.note(one)
    return found


@pytest.mark.parametrize(
    ("seconds", "reported"),
    [
        ([0.002] * 50, {}),
        ([0.3] * 4, {}),
        ([0.3] * 5, {"disks": {"s1": [0.5, 0]}}),
        ([0.002] * 200 + [0.3], {}),
        ([0.002] * 50 + [0.3], {"disks": {"s1": [0.5, 0]}}),
        ([2.0], {"disks": {"s1": [2.5, 0]}}),
        ([700.0], {"disks": {"s1": [600.0, 0]}}),
    ],
)
def test_of_a_disk_is_reported_how_long_99_in_100_syncs_took(seconds: list[float], reported: dict[str, object]) -> None:
    looks, sync = DiskLooks(), noted(*seconds)
    assert looks.take([ObservedDisk(1, "s1", sync, failing=False)]) == reported
    assert looks.take([ObservedDisk(1, "s1", sync, failing=False)]) == {}, "nothing since"


def test_the_worst_disk_of_a_process_speaks_for_it() -> None:
    disks = [
        ObservedDisk(1, "s1", noted(*[0.3] * 5), failing=False),
        ObservedDisk(2, "s1", noted(), failing=True),
        ObservedDisk(3, "s2", noted(*[0.001] * 9), failing=False),
    ]
    assert DiskLooks().take(disks) == {"disks": {"s1": [0.5, 1]}}
