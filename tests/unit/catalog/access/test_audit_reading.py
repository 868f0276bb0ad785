"""Audit logs as they are read: the newest lines first, by what they say, over files that were put aside, in pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.catalog.access.audit import AuditLog
from syncpoint.catalog.access.audit_reading import AuditReading
from syncpoint.wire.protobuf.messages import internal

LINES = 300


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of LINES decisions in several files: every third was refused."""
    log = AuditLog(tmp_path / "audit.log", clock := ManualClock(), bytes_max=8000)
    for number in range(LINES):
        clock.advance(1.0)
        who = "user:eve@example.com" if number % 3 == 0 else "user:root@example.com"
        log.note(who, "127.0.0.1:5", "/p/DeleteTopic", "d", f"projects/p/topics/t{number}", number % 3 != 0, 7, "")
        log.flush()
    log.close()
    return tmp_path / "audit.log"


def asked(reading: AuditReading, **fields: Any) -> list[dict[str, Any]]:
    """All pages together."""
    found: list[dict[str, Any]] = []
    request = internal.AuditRequest(**fields)
    while True:
        answer = reading.read(request)
        found += map(json.loads, answer.lines)
        assert len(answer.lines) <= request.lines_max
        if not answer.next:
            return found
        assert not request.HasField("before") or answer.next < request.before
        request.before = answer.next


@pytest.mark.parametrize("read_max", [3, 50_000])
def test_pages_have_every_line_once_newest_first_over_all_files(path: Path, read_max: int) -> None:
    reading = AuditReading(path, read_max=read_max)
    assert len(reading.files()) > 3
    assert [one["n"] for one in asked(reading, lines_max=7)] == list(range(LINES, -1, -1))


def test_lines_are_chosen_by_what_they_say(path: Path) -> None:
    reading = AuditReading(path, read_max=20)
    refused = asked(reading, lines_max=50, outcome="refused", who="EVE", method="deletetopic")
    assert [one["resource"] for one in refused] == [f"projects/p/topics/t{n}" for n in range(LINES - 3, -1, -3)]
    assert asked(reading, lines_max=50, outcome="refused", who="root") == []
    (one,) = asked(reading, lines_max=50, resource="topics/t77")
    between = asked(reading, lines_max=50, since=one["time"], until=refused[0]["time"])
    assert {entry["time"] >= one["time"] for entry in between} == {True}
    assert [entry["n"] for entry in between] == list(range(refused[0]["n"] - 1, one["n"] - 1, -1))


def test_a_line_that_was_changed_is_named_and_a_line_being_written_is_not(path: Path) -> None:
    reading = AuditReading(path)
    answer = reading.read(internal.AuditRequest(verify=True))
    assert (answer.verified, answer.broken) == (LINES + 1, "")
    with path.open("ab") as file:
        file.write(b'{"n": 301, "ti')
    assert not reading.read(internal.AuditRequest(verify=True)).broken
    first = reading.files()[0]
    first.write_bytes(first.read_bytes().replace(b"topics/t3", b"topics/x3", 1))
    assert f"{first}, line" in reading.read(internal.AuditRequest(verify=True)).broken
    first.write_bytes(b"nonsense\n" + first.read_bytes())
    assert reading.read(internal.AuditRequest(before=2)).lines[-1] == b"nonsense"
    assert reading.read(internal.AuditRequest(verify=True)).broken
