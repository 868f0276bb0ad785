"""Openings that fail half-way or find few disks: what they leave behind never keeps a later one from what is stored."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from unittest.mock import patch

import pytest

from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.file_content import write_all
from syncpoint.base.runtime.files import DiskUnreachable
from syncpoint.base.runtime.step_workers import _Manual
from syncpoint.log.storage.errors import CopiesChanged, DisksMissing, StorageDamaged
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.segment import NOBODY, PAGE, SegmentHeader, encode_front
from syncpoint.log.storage.settings import KnownStore
from syncpoint.log.storage.store import Store
from tests.kit.disks import Harness

pytestmark = pytest.mark.shows("openings")

GRID = AckRule.grid(3, 3)
THREE = AckRule.single(3)
both = pytest.mark.parametrize(("rule", "slots"), [(THREE, (1, 2)), (GRID, (3, 4, 5, 6, 7, 8))], ids=["3", "3x3"])


def stored(rule: AckRule, **more: object) -> Harness:
    """A harness with acknowledged batches and facts, its owner killed."""
    harness = Harness(1, len(rule), rule, **more)
    harness.open()
    for number in range(20):
        harness.publish(number % 2)
        harness.note()
    harness.commit()
    assert not harness.waiting
    harness.kill()
    return harness


def paths(harness: Harness) -> list[str]:
    return [path for root in harness.roots for path in harness.files.paths(root)]


def unreachable(harness: Harness, slots: tuple[int, ...], when: Callable[[str, str], bool]) -> None:
    """From the first call for which `when` holds, these disks do not answer."""
    roots = [harness.roots[slot] for slot in slots]
    begun = [False]

    def fault(operation: str, path: str) -> None:
        begun[0] = begun[0] or when(operation, path)
        if begun[0] and any(path == root or path.startswith(root + "/") for root in roots):
            raise DiskUnreachable(errno.ETIMEDOUT, "it does not answer", path)

    harness.files.faults.append(fault)


@both
def test_a_counter_that_an_opening_reserved_and_never_used_is_nobody_elses(
    rule: AckRule, slots: tuple[int, ...]
) -> None:
    harness = stored(rule)
    unreachable(harness, slots, lambda operation, path: "/pool" in path)
    with pytest.raises(DisksMissing, match="too few disks can start"):
        harness.open()
    harness.kill()
    assert harness.open().log_counter == 3


@both
@pytest.mark.parametrize("where", ["/pool", "logs/0000000002"])
def test_disks_that_leave_before_or_while_a_log_begins(rule: AckRule, slots: tuple[int, ...], where: str) -> None:
    harness = stored(rule)
    unreachable(harness, slots, lambda operation, path: where in path)
    with pytest.raises(DisksMissing, match="too few disks can start"):
        harness.open()
    if where == "/pool":
        assert not any("logs/0000000002" in path for path in paths(harness)), "no header of it is durable"
    harness.kill()
    harness.open()
    harness.judge()


@both
def test_a_header_whose_own_members_could_never_acknowledge_is_left_aside(
    rule: AckRule, slots: tuple[int, ...]
) -> None:
    """As an older version left it behind: a log begun by too few disks, the others unknown to it."""
    harness = stored(rule)
    mine = bytes.fromhex(harness.known[0])
    members = tuple(NOBODY if slot in slots else bytes.fromhex(harness.known[slot]) for slot in range(len(rule)))
    header = SegmentHeader(harness.universe, 7, 1, 99, 1, mine, members, rule)
    assert not header.could_acknowledge
    path = "/d0/logs/0000000007/00000001.seg"
    harness.files.mkdir(path.rpartition("/")[0])
    handle = harness.files.open(path, create=True)
    write_all(harness.files, handle, [encode_front(header)], 0)
    harness.files.close(handle)
    harness.open()
    harness.judge()
    assert harness.store.log_counter == 8, "its number is taken all the same"


def test_a_domain_away_when_a_log_begins_may_be_followed_by_one_lost_for_good() -> None:
    harness = stored(GRID)
    harness.lose_sight(0, 1, 2)
    harness.open()
    for _ in range(10):
        harness.publish()
        harness.note()
    harness.commit()
    assert not harness.waiting
    harness.kill()
    harness.regain(0, 1, 2)
    for slot in (3, 4, 5):
        harness.files.wipe(harness.roots[slot])
    harness.open()
    assert not any("an old copy was" in note for note in harness.store.recovered.notes), (
        "it did not take part, it forgot nothing"
    )
    harness.judge()
    harness.accept_recovered()
    harness.persist()
    harness.power_cut()
    harness.lose_sight(6, 7, 8)
    harness.open()  # the domain that was away then, and the one that is new
    harness.judge()


def test_a_disk_away_for_two_logs_is_known_to_the_second_as_well() -> None:
    harness = stored(THREE)
    for _ in range(2):
        harness.lose_sight(2)
        harness.open()
        harness.publish()
        harness.note()
        harness.commit()
        assert not harness.waiting
        harness.kill()
    harness.regain(2)
    harness.lose_sight(1)
    harness.open()
    harness.judge()


def test_of_two_halves_that_never_met_only_one_opens() -> None:
    """Who was away counts as one of those notified of the next log, by its name: a new disk in its place does not."""
    harness = stored(THREE)
    harness.lose_sight(2)
    harness.open()
    harness.persist()
    harness.kill()
    harness.regain(2)
    harness.files.wipe("/d2")
    harness.lose_sight(1)
    with pytest.raises(DisksMissing):
        harness.open()
    harness.regain(1)
    harness.open()
    harness.judge()


def test_a_disk_put_back_in_time_is_found_out_although_it_was_away_later() -> None:
    harness = stored(THREE)
    old = harness.files.snapshot("/d2")
    harness.open()
    harness.persist()
    harness.kill()
    harness.lose_sight(2)
    harness.open()
    harness.persist()
    harness.kill()
    harness.regain(2)
    harness.files.restore("/d2", old)
    harness.open()
    assert any("an old copy was" in note for note in harness.store.recovered.notes)
    harness.judge()


# ------------------------------------------------------------------------------------------------ what must be there


def hanging(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner closes while the calls of its writers do not return; everything else is written."""
    stop = _Manual.stop

    def hangs(self: _Manual, timeout_s: float) -> bool:
        return False if self._name.startswith("syncpoint-write-") else stop(self, timeout_s)

    with monkeypatch.context() as patched:
        patched.setattr(_Manual, "stop", hangs)
        harness.store.close(0.1)
    harness.kill()


@pytest.mark.parametrize("rule", [THREE, GRID], ids=["3", "3x3"])
def test_segments_that_are_full_in_memory_only_are_not_listed(rule: AckRule, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(1, len(rule), rule, segment_entries_max=20)
    harness.open()
    harness.fill(15)
    harness.commit()
    harness.fill(60)
    hanging(harness, monkeypatch)
    harness.open()
    harness.judge()


def test_what_one_disk_sealed_is_sealed_for_good_before_it_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness.opened(1, 3, segment_entries_max=20, scrub_bytes_s=0)
    harness.fill(5)
    harness.commit()
    harness.fill(40)
    for _ in range(10):
        harness.run("syncpoint-write-0")
    hanging(harness, monkeypatch)
    harness.open()
    harness.judge()
    harness.accept_recovered()
    assert len(harness.acked) > 20, "what one disk had is kept"
    harness.kill()
    harness.files.wipe("/d0")
    harness.open()
    harness.judge()


def test_of_what_may_be_on_an_absent_disk_nobody_says_that_it_is_lost() -> None:
    harness = stored(THREE, segment_entries_max=10)
    harness.open()
    harness.quiesce()
    harness.store.close()
    harness.deliver()
    harness.kill()
    held = [path for path in paths(harness) if path.endswith("0000000001/00000002.seg")]
    assert len(held) == 3
    for path in held[1:]:
        harness.files.unlink(path)
    harness.lose_sight(0)
    with pytest.raises(
        DisksMissing, match=r"segment 2 of log 1 is missing on every disk. Disks that may have it are missing: .*/d0"
    ):
        harness.open()
    harness.kill()
    harness.regain(0)
    harness.open()
    harness.judge()
    harness.kill()
    for path in held:
        with suppress(FileNotFoundError):
            harness.files.unlink(path)
    with pytest.raises(StorageDamaged, match="segment 2 of log 1 is missing on every disk"):
        harness.open()


@pytest.mark.parametrize("when", ["marks", "trailer"])
def test_a_tail_that_changes_between_scan_and_seal_is_decided_anew(when: str) -> None:
    """On one disk only and not synced; its machine stops once it was read, or once the first copy is sealed."""
    harness = Harness.opened(1, 3)
    for _ in range(10):
        harness.note()
    harness.commit()
    for _ in range(10):
        harness.note()
    harness.store.flush()
    for _ in range(3):
        harness.run("syncpoint-write-0")
    harness.kill()
    path = "/d0/logs/0000000001/00000001.seg"
    done: list[str] = []

    def lose_unsynced(operation: str, at: str) -> None:
        begins = operation == "rename" and "/d0/marks" in at
        if when == "trailer":
            begins = operation == "open" and at.startswith("/d1/logs/0000000001") and "tmp" in at
        if begins and not done:
            done.append(at)
            content = bytes(harness.files.content(path))
            for offset in range(content.rfind(b"fact 13 "), content.rfind(b"fact 16 ")):
                harness.files.flip(path, offset, 0x5A)

    harness.files.faults.append(lose_unsynced)
    harness.open()
    assert done
    assert any("recovery was restarted" in note for note in harness.store.recovered.notes)
    harness.judge()
    harness.accept_recovered()
    harness.kill()
    for _ in range(2):
        harness.open()
        harness.judge()
        harness.accept_recovered()
        harness.kill()


@pytest.mark.parametrize("counter", [None, 7])
def test_deciding_anew_ends(counter: int | None) -> None:
    """A disk that changes in every opening; with a counter that was handed in there is one opening only."""
    harness = stored(THREE)
    reserved: list[str] = []

    def change(operation: str, at: str) -> None:
        if operation == "listdir" and at == "/d1/logs":  # the scan
            reserved.append(at)
        if operation == "open" and at == "/d1/disk.json" and len(reserved) > harness.files.restarted.get("/d1", 0):
            harness.files.restarted["/d1"] = len(reserved)

    harness.files.faults.append(change)
    with pytest.raises(CopiesChanged, match="restarted"):
        harness.open(counter=counter)
    assert len(reserved) == (1 if counter else 5)
    harness.kill()
    harness.files.faults.clear()
    harness.open()
    harness.judge()


@pytest.mark.parametrize("when", ["reserved", "completed"])
def test_a_machine_that_restarts_while_its_disk_is_opened_does_not_get_the_old_name_back(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have lost what was not synced, and its server took the name from it."""
    harness = stored(THREE, durability="async")
    old = harness.known[0]
    calls = {"reserved": ("open", "/d0/disk.json"), "completed": ("open", "/d0/logs/0000000001/00000001.seg")}
    seen: list[str] = []

    def restart(operation: str, at: str) -> None:
        if (operation, at) != calls[when] or harness.files.restarted:
            return
        seen.append(at)
        if len(seen) == (2 if when == "reserved" else 3):  # at first it is scanned
            harness.files.restarted["/d0"] = 1
            harness.files.rename("/d0/disk.json", "/d0/disk.json.unclean")

    harness.files.faults.append(restart)
    monkeypatch.setattr(harness.files, "anchor", lambda root, name: None)  # that is for the server to do
    harness.open()
    assert harness.files.restarted, "the schedule is not the one that is meant"
    assert harness.known[0] != old
    assert harness.store.recovered.disks[0] not in ("", old)
    assert old.encode() not in harness.files.content("/d0/disk.json")
    harness.judge()


def test_a_segment_of_which_a_crash_left_only_the_header_is_opened() -> None:
    harness = Harness.opened(1, 1)
    harness.note()
    harness.commit()
    harness.store.close()
    harness.open()
    harness.kill()
    path = "/d0/logs/0000000002/00000001.seg"
    handle = harness.files.open(path)
    harness.files.truncate(handle, 2 * PAGE)  # its length reached the disk no further
    harness.files.close(handle)
    harness.open()
    harness.judge()
    harness.accept_recovered()


def test_a_log_begins_on_all_disks_at_once() -> None:
    """Each of them waits for its disk several times: one after the other nine take long."""
    harness = Harness(1, 3, THREE)
    together = threading.Barrier(3, timeout=30.0)
    asked = harness.files.sync_dir

    def sync_dir(path: str) -> None:
        if path.endswith("logs/0000000001"):
            together.wait()  # raises where the others are not under way, too
        asked(path)

    listed = harness.files.listdir
    waited: set[str] = set()

    def listdir(path: str) -> list[str]:
        if path.endswith("/pool") and path not in waited:
            waited.add(path)
            together.wait()
        return listed(path)

    with patch.object(harness.files, "sync_dir", sync_dir), patch.object(harness.files, "listdir", listdir):
        store = Store.open(
            harness.roots,
            harness.settings,
            Environment(harness.clock, harness.random, harness.files, notify=harness.inbox.append),
            KnownStore(rule=THREE),
        )
    assert all(store.recovered.disks)
    store.close()


@pytest.mark.parametrize("noticed", ["out of reach", "still written"])
def test_a_failed_disk_keeps_its_name_until_the_others_are_seen_to_do_without_it(noticed: str) -> None:
    """Another disk is destroyed before anybody knows of the failure: the failed one is needed to read the log."""
    harness = stored(THREE)
    harness.open()
    names = list(harness.known)
    harness.persist()
    fault = harness.fail(0)
    harness.publish()
    harness.files.wipe(harness.roots[1])
    if noticed == "out of reach":
        harness.lose_sight(1, 2)
    harness.quiesce()
    assert not harness.store._disks.maintainers[0].ok
    harness.files.faults.remove(fault)
    for _ in range(5):
        harness.clock.advance(1.1)
        harness.quiesce()
    assert bool(harness.failures) == (noticed == "still written"), "the log goes on until a disk is known to be lost"
    harness.kill()
    harness.regain(1, 2)
    harness.open()
    harness.judge()
    assert (harness.known[0], harness.known[2]) == (names[0], names[2])
    assert harness.known[1] != names[1]


def test_a_failed_disk_comes_back_once_the_others_answer() -> None:
    harness = stored(THREE)
    harness.open()
    names = list(harness.known)
    fault = harness.fail(0)
    harness.publish()
    harness.quiesce()
    harness.files.faults.remove(fault)
    harness.lose_sight(1)
    for _ in range(5):
        harness.clock.advance(1.1)
        harness.quiesce()
    assert not harness.store._disks.maintainers[0].ok
    harness.regain(1)
    harness.heal()
    disks = harness.store.status().disks
    assert [disk.state for disk in disks] == ["ok", "ok", "ok"]
    assert [disk.incarnation for disk in disks][1:] == names[1:]
    assert disks[0].incarnation != names[0]
    harness.kill()
    harness.open()
    harness.judge()


def test_what_a_disk_had_behind_the_end_of_a_log_is_void_after_the_end_was_deleted() -> None:
    """The last segment says where the log ended; its tombstone says so when it is gone and earlier ones are not."""
    harness = Harness.opened(1, 3, segment_entries_max=10, scrub_bytes_s=0)
    harness.fill(15)
    harness.commit()
    harness.fill(40)
    for _ in range(10):
        harness.run("syncpoint-write-1")
    harness.kill()
    harness.lose_sight(1)
    harness.open()
    end = harness.store.recovered.logs[1]
    assert end < 50, "nobody else had what only this disk has"
    for _ in range(10):
        harness.store.collect(lambda source, first, count, time_ns: first < 10)
        harness.quiesce()
    left = [segment for segment in harness.store.catalog if segment.log == 1]
    assert left
    assert max(segment.last_position for segment in left) < end, "the last one is deleted, an earlier one is not"
    harness.kill()
    harness.regain(1)
    harness.open()
    assert harness.store.recovered.logs[1] < end
    harness.quiesce()
    assert not any("logs/0000000001" in path and not path.endswith("00000001.seg") for path in paths(harness))
