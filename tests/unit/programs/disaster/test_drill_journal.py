"""Journals of drills: what is left to undo, and the watcher that undoes it when the drill is killed or hangs."""

import os
import signal
import subprocess
import sys

import pytest

from syncpoint.base.model.errors import FailedPrecondition, Unavailable
from syncpoint.programs.disaster import drill_journal
from syncpoint.programs.disaster.drill_journal import DrillJournal, signal_process, started_at
from syncpoint.programs.disaster.outside_prober import Stopwatch
from syncpoint.testing.rigs.official import eventually

pytestmark = pytest.mark.shows("drills")


def test_what_is_left_is_undone_latest_first_and_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(drill_journal, "RETRY_S", 0.0)
    journal, undone = DrillJournal(tmp_path / "x" / "one.journal"), []
    assert journal.left() == []
    for what in ("topic", "subscription", "continue"):
        journal.note(what, name=what)
    with journal.path.open("a") as file:
        file.write('{"what": "res')  # cut by the death of the drill
    tries = iter([Unavailable("not yet"), None])

    def undo(entry):
        if entry["what"] == "continue" and (error := next(tries, None)) is not None:
            raise error
        undone.append(entry["what"])

    assert journal.roll_back(undo) == []
    assert undone == ["continue", "subscription", "topic"]


def test_what_cannot_be_undone_is_named_and_the_rest_is_undone(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(drill_journal, "RETRY_S", 0.0)
    journal, undone = DrillJournal(tmp_path / "one.journal"), []
    journal.note("topic")
    journal.note("continue")

    def undo(entry):
        if entry["what"] == "continue":
            raise FailedPrecondition("it is gone")
        undone.append(entry["what"])

    assert journal.roll_back(undo) == ["continue: FAILED_PRECONDITION: it is gone"]
    assert undone == ["topic"]
    assert [one["what"] for one in journal.left()] == ["continue"]


PROGRAM = """
import sys, time
from pathlib import Path
from syncpoint.programs.disaster.drill_journal import DrillJournal, watch
journal = DrillJournal(Path(sys.argv[1]))
watch(journal, float(sys.argv[2]), lambda entry: Path(sys.argv[1] + ".undone").write_text(entry["what"]))
journal.note("continue")
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("limit", "how"), [("60", signal.SIGKILL), ("1", signal.SIGSTOP)])
def test_the_watcher_undoes_when_the_drill_is_killed_or_its_time_is_over(tmp_path, limit, how) -> None:
    path = tmp_path / "one.journal"
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), limit], stdout=subprocess.PIPE)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        program.send_signal(how)
        eventually(lambda: (tmp_path / "one.journal.undone").exists() or None)
        eventually(lambda: DrillJournal(path).left() == [] or None)
    finally:
        program.kill()
        program.communicate()


def test_no_signal_goes_to_another_process_of_the_same_number() -> None:
    me = os.getpid()
    with pytest.raises(FailedPrecondition, match="is another one by now"):
        signal_process(me, started_at(me) + 1, signal.SIGKILL)
    signal_process(me, started_at(me), signal.SIGCONT)
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert started_at(gone.pid) == 0


def test_a_stopwatch_has_the_longest_gap_since_it_was_set() -> None:
    watch = Stopwatch(0.0)
    for now in (1.0, 5.0, 5.5):
        watch.note(now)
    assert watch.longest == 4.0
    watch.restart(6.0)
    watch.note(7.5)
    assert watch.longest == 1.5
    assert watch.went_on_after(7.0)
    assert not watch.went_on_after(7.5)
    watch.end(17.5)
    assert watch.longest == 10.0, "what never goes on again is a gap, too"
