"""The audit log: one chain over restarts, full files and torn lines; what was changed shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.catalog.access.audit import (
    ANONYMOUS_PER_MIN,
    CALLERS_MAX,
    PER_S,
    REFUSED_PER_MIN,
    AuditLog,
    Broken,
    in_order,
    lines,
    verify,
)
from syncpoint.programs.cli.main import cli

pytestmark = pytest.mark.shows("audit")

DELETE, PUBLISH = "pubsub.topics.delete", "pubsub.topics.publish"


def opened(folder: Path, clock: ManualClock | None = None, *, data: bool = False, bytes_max: int = 1 << 20) -> AuditLog:
    return AuditLog(folder / "audit.log", clock or ManualClock(), data=data, bytes_max=bytes_max)


def note(log: AuditLog, resource: str = "t", *, allowed: bool = True, permission: str = DELETE) -> None:
    log.note("user:ann@example.com", "127.0.0.1:1", "/x.Y/Z", permission, resource, allowed, 7, "")


def test_decisions_stand_in_one_chain_over_restarts(tmp_path: Path) -> None:
    for _ in range(3):
        log = opened(tmp_path)
        note(log)
        log.close()
    count, last = verify([log.path])
    assert count == 6, "each start is a line, too"
    entry = [line.entry for line in lines([log.path])][1]
    assert (entry["who"], entry["resource"], entry["allowed"], entry["policy"]) == (
        "user:ann@example.com",
        "t",
        True,
        7,
    )
    assert log.path.stat().st_mode & 0o077 == 0
    again = opened(tmp_path)
    assert [line.entry["before"] for line in lines([log.path])][-1] == last
    again.close()


def test_a_file_that_is_full_is_put_aside_and_the_chain_goes_on(tmp_path: Path) -> None:
    log = opened(tmp_path, bytes_max=600)
    for number in range(20):
        note(log, f"t{number}")
        log.flush()
    log.close()
    files = list(tmp_path.iterdir())
    assert len(files) > 3
    assert verify(in_order(files))[0] == 21
    with pytest.raises(Broken):
        verify([path for path in in_order(files) if path != in_order(files)[1]])
    opened(tmp_path, bytes_max=600).close()
    assert verify(in_order(tmp_path.iterdir()))[0] == 22


def test_what_was_not_written_whole_is_taken_away_at_the_next_start(tmp_path: Path) -> None:
    log = opened(tmp_path)
    note(log)
    log.close()
    with log.path.open("ab") as file:
        file.write(b'{"n":2,"ti')
    opened(tmp_path).close()
    assert verify([log.path])[0] == 3
    assert "10 bytes" in [line.entry for line in lines([log.path])][-1]["why"]


@pytest.mark.parametrize("spoil", ["change", "drop", "insert", "swap", "cut line"])
def test_a_log_that_was_changed_is_found_out(tmp_path: Path, spoil: str) -> None:
    log = opened(tmp_path)
    for number in range(5):
        note(log, f"t{number}", allowed=False)
    log.close()
    text = log.path.read_text().splitlines(keepends=True)
    match spoil:
        case "change":
            text[2] = text[2].replace('"allowed":false', '"allowed":true')
        case "drop":
            del text[2]
        case "insert":
            text.insert(2, text[2])
        case "swap":
            text[2], text[3] = text[3], text[2]
        case "cut line":
            text[-1] = text[-1][:-10]
    log.path.write_text("".join(text))
    with pytest.raises(Broken):
        verify([log.path])
    result = CliRunner().invoke(cli, ["audit", "verify", str(log.path)])
    assert result.exit_code == 1
    assert "was changed" in result.output


def test_a_log_that_was_cut_is_found_out_by_who_has_an_earlier_hash(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(3):
        note(log, f"t{number}", allowed=number != 1)
    log.close()
    _, last = verify([log.path])
    path = str(log.path)
    assert CliRunner().invoke(cli, ["audit", "verify", path, "--hash", last]).exit_code == 0
    denied = json.loads(CliRunner().invoke(cli, ["audit", "show", path, "--denied", "--format", "json"]).stdout)
    assert [one["resource"] for one in denied] == ["t1"]
    log.path.write_text("".join(log.path.read_text().splitlines(keepends=True)[:-1]))
    assert CliRunner().invoke(cli, ["audit", "verify", path]).exit_code == 0
    assert "lines are missing at the end" in CliRunner().invoke(cli, ["audit", "verify", path, "--hash", last]).output


def test_reading_and_publishing_are_noted_where_that_is_wanted_or_refused(tmp_path: Path) -> None:
    for data in (False, True):
        (tmp_path / str(data)).mkdir()
        log = opened(tmp_path / str(data), data=data)
        note(log, permission=PUBLISH)
        note(log, permission=PUBLISH, allowed=False)
        log.close()
        assert verify([log.path])[0] == (3 if data else 2)


def test_a_flood_is_counted(tmp_path: Path) -> None:
    clock = ManualClock()
    log = opened(tmp_path, clock)
    for _ in range(PER_S + 50):
        note(log, allowed=False)
    clock.advance(1)
    note(log, "last")
    log.close()
    assert verify([log.path])[0] == PER_S + 2
    assert [line.entry for line in lines([log.path])][-1]["left_out"] == 50


def refuse(log: AuditLog, who: str, resource: str = "t") -> None:
    log.note(who, "127.0.0.1:1", "/x.Y/Z", DELETE, resource, False, 7, "no")


def test_a_flood_of_refusals_hides_nobody_else(tmp_path: Path) -> None:
    clock = ManualClock()
    log = opened(tmp_path, clock)
    for second in range(2 * 60):
        clock.advance(1)
        for _ in range(100):
            refuse(log, "")
            refuse(log, "user:eve@example.com")
        refuse(log, "user:bob@example.com", f"hidden{second}")
    log.close()
    written = [line.entry for line in lines([log.path])]
    of = {who: sum(one.get("who") == who for one in written) for who in ("", "user:eve@example.com")}
    assert 0 < of[""] <= 3 * ANONYMOUS_PER_MIN
    assert of[""] < of["user:eve@example.com"] <= 3 * REFUSED_PER_MIN
    assert sum(one.get("who") == "user:bob@example.com" for one in written) == 2 * 60
    assert sum(one.get("left_out", 0) for one in written) > 0


def test_callers_beyond_those_counted_share_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncpoint.catalog.access.audit.CALLERS_MAX", 3)
    clock = ManualClock()
    log = opened(tmp_path, clock)
    for number in range(2 * REFUSED_PER_MIN):
        if number % (PER_S // 2) == 0:
            clock.advance(1)
        refuse(log, f"user:eve{number}@example.com")
    log.close()
    assert sum(line.entry.get("allowed") is False for line in lines([log.path])) <= REFUSED_PER_MIN + 3
    assert CALLERS_MAX > 3


def test_files_put_aside_are_removed_by_age_and_by_size(tmp_path: Path) -> None:
    clock = ManualClock()
    clock.advance(1e9)

    def sized(kept: int, days: int) -> AuditLog:
        return AuditLog(tmp_path / "audit.log", clock, bytes_max=600, kept_bytes_max=kept, kept_days=days)

    other = tmp_path / "audit.log.notes"
    other.write_text("of somebody else")
    log = sized(4_000, 1)
    for number in range(100):
        note(log, f"t{number}")
        log.flush()
        assert sum(path.stat().st_size for path in tmp_path.glob("audit.log*")) < 6_000
    log.close()
    kept = in_order(path for path in tmp_path.iterdir() if path != other)
    assert len(kept) > 2
    assert verify(kept)[0] < 100, "the chain of what is left is whole, and not all of it is left"
    clock.advance(2 * 86_400)
    sized(4_000, 1).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.log", "audit.log.notes"]
