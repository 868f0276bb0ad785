"""Openings that fail half-way or find few disks: what they leave behind never keeps a later one from what is stored."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from unittest.mock import patch

import pytest

from syncpoint.runtime.environment import Environment
from syncpoint.runtime.file_content import write_all
from syncpoint.runtime.files import DiskUnreachable
from syncpoint.runtime.step_workers import _Manual
from syncpoint.storage.errors import CopiesChanged, DisksMissing, StorageDamaged
from syncpoint.storage.quorum import AckRule
from syncpoint.storage.segment import NOBODY, PAGE, SegmentHeader, encode_front
from syncpoint.storage.settings import KnownStore
from syncpoint.storage.store import Store
from tests.kit.disks import World

GRID = AckRule.grid(3, 3)
THREE = AckRule.single(3)
both = pytest.mark.parametrize(("rule", "slots"), [(THREE, (1, 2)), (GRID, (3, 4, 5, 6, 7, 8))], ids=["3", "3x3"])


def stored(rule: AckRule, **more: object) -> World:
    """A world with acknowledged batches and facts, its owner killed."""
    world = World(1, len(rule), rule, **more)
    world.open()
    for number in range(20):
        world.publish(number % 2)
        world.note()
    world.commit()
    assert not world.waiting
    world.kill()
    return world


def paths(world: World) -> list[str]:
    return [path for root in world.roots for path in world.files.paths(root)]


def unreachable(world: World, slots: tuple[int, ...], when: Callable[[str, str], bool]) -> None:
    """From the first call for which `when` holds, these disks do not answer."""
    roots = [world.roots[slot] for slot in slots]
    begun = [False]

    def fault(operation: str, path: str) -> None:
        begun[0] = begun[0] or when(operation, path)
        if begun[0] and any(path == root or path.startswith(root + "/") for root in roots):
            raise DiskUnreachable(errno.ETIMEDOUT, "it does not answer", path)

    world.files.faults.append(fault)


@both
@pytest.mark.parametrize("where", ["/pool", "logs/0000000002"])
def test_disks_that_leave_before_or_while_a_log_begins(rule: AckRule, slots: tuple[int, ...], where: str) -> None:
    world = stored(rule)
    unreachable(world, slots, lambda operation, path: where in path)
    with pytest.raises(DisksMissing, match="cannot be begun"):
        world.open()
    if where == "/pool":
        assert not any("logs/0000000002" in path for path in paths(world)), "no header of it is durable"
    world.kill()
    world.open()
    world.judge()


@both
def test_a_header_whose_own_members_could_never_acknowledge_is_left_aside(
    rule: AckRule, slots: tuple[int, ...]
) -> None:
    """As an older version left it behind: a log begun by too few disks, the others unknown to it."""
    world = stored(rule)
    mine = bytes.fromhex(world.known[0])
    members = tuple(NOBODY if slot in slots else bytes.fromhex(world.known[slot]) for slot in range(len(rule)))
    header = SegmentHeader(world.universe, 7, 1, 99, 1, mine, members, rule)
    assert not header.could_acknowledge
    path = "/d0/logs/0000000007/00000001.seg"
    world.files.mkdir(path.rpartition("/")[0])
    handle = world.files.open(path, create=True)
    write_all(world.files, handle, [encode_front(header)], 0)
    world.files.close(handle)
    world.open()
    world.judge()
    assert world.store.log_counter == 8, "its number is taken all the same"


def test_a_domain_away_when_a_log_begins_may_be_followed_by_one_lost_for_good() -> None:
    world = stored(GRID)
    world.lose_sight(0, 1, 2)
    world.open()
    for _ in range(10):
        world.publish()
        world.note()
    world.commit()
    assert not world.waiting
    world.kill()
    world.regain(0, 1, 2)
    for slot in (3, 4, 5):
        world.files.wipe(world.roots[slot])
    world.open()
    assert not any("old state" in note for note in world.store.recovered.notes), (
        "it did not take part, it forgot nothing"
    )
    world.judge()
    world.settle_facts()
    world.persist()
    world.power_cut()
    world.lose_sight(6, 7, 8)
    world.open()  # the domain that was away then, and the one that is new
    world.judge()


def test_a_disk_away_for_two_logs_is_known_to_the_second_as_well() -> None:
    world = stored(THREE)
    for _ in range(2):
        world.lose_sight(2)
        world.open()
        world.publish()
        world.note()
        world.commit()
        assert not world.waiting
        world.kill()
    world.regain(2)
    world.lose_sight(1)
    world.open()
    world.judge()


def test_of_two_halves_that_never_met_only_one_opens() -> None:
    """Who was away counts as one of those told of the next log, by its name: a new disk in its place does not."""
    world = stored(THREE)
    world.lose_sight(2)
    world.open()
    world.persist()
    world.kill()
    world.regain(2)
    world.files.wipe("/d2")
    world.lose_sight(1)
    with pytest.raises(DisksMissing):
        world.open()
    world.regain(1)
    world.open()
    world.judge()


def test_a_disk_put_back_in_time_is_found_out_although_it_was_away_later() -> None:
    world = stored(THREE)
    old = world.files.snapshot("/d2")
    world.open()
    world.persist()
    world.kill()
    world.lose_sight(2)
    world.open()
    world.persist()
    world.kill()
    world.regain(2)
    world.files.restore("/d2", old)
    world.open()
    assert any("old state" in note for note in world.store.recovered.notes)
    world.judge()


# ------------------------------------------------------------------------------------------------ what must be there


def hanging(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner closes while the calls of its writers do not return; everything else is written."""
    stop = _Manual.stop

    def hangs(self: _Manual, timeout_s: float) -> bool:
        return False if self._name.startswith("syncpoint-write-") else stop(self, timeout_s)

    with monkeypatch.context() as patched:
        patched.setattr(_Manual, "stop", hangs)
        world.store.close(0.1)
    world.kill()


@pytest.mark.parametrize("rule", [THREE, GRID], ids=["3", "3x3"])
def test_segments_that_are_full_in_memory_only_are_not_listed(rule: AckRule, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1, len(rule), rule, segment_entries_max=20)
    world.open()
    world.fill(15)
    world.commit()
    world.fill(60)
    hanging(world, monkeypatch)
    world.open()
    world.judge()


def test_what_one_disk_sealed_is_settled_before_it_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World.opened(1, 3, segment_entries_max=20, scrub_bytes_s=0)
    world.fill(5)
    world.commit()
    world.fill(40)
    for _ in range(10):
        world.run("syncpoint-write-0")
    hanging(world, monkeypatch)
    world.open()
    world.judge()
    world.settle_facts()
    assert len(world.acked) > 20, "what one disk had is kept"
    world.kill()
    world.files.wipe("/d0")
    world.open()
    world.judge()


def test_of_what_may_be_on_an_absent_disk_nobody_says_that_it_is_lost() -> None:
    world = stored(THREE, segment_entries_max=10)
    world.open()
    world.settle()
    world.store.close()
    world.deliver()
    world.kill()
    held = [path for path in paths(world) if path.endswith("0000000001/00000002.seg")]
    assert len(held) == 3
    for path in held[1:]:
        world.files.unlink(path)
    world.lose_sight(0)
    with pytest.raises(DisksMissing, match=r"segment 2 of log 1 is on no disk, as far as .* /d0"):
        world.open()
    world.kill()
    world.regain(0)
    world.open()
    world.judge()
    world.kill()
    for path in held:
        with suppress(FileNotFoundError):
            world.files.unlink(path)
    with pytest.raises(StorageDamaged, match="segment 2 of log 1 is on no disk"):
        world.open()


@pytest.mark.parametrize("when", ["marks", "trailer"])
def test_a_tail_that_changes_between_scan_and_seal_is_decided_anew(when: str) -> None:
    """On one disk only and not synced; its machine stops once it was read, or once the first copy is sealed."""
    world = World.opened(1, 3)
    for _ in range(10):
        world.note()
    world.commit()
    for _ in range(10):
        world.note()
    world.store.flush()
    for _ in range(3):
        world.run("syncpoint-write-0")
    world.kill()
    path = "/d0/logs/0000000001/00000001.seg"
    done: list[str] = []

    def lose_unsynced(operation: str, at: str) -> None:
        begins = operation == "rename" and "/d0/marks" in at
        if when == "trailer":
            begins = operation == "open" and at.startswith("/d1/logs/0000000001") and "tmp" in at
        if begins and not done:
            done.append(at)
            content = bytes(world.files.content(path))
            for offset in range(content.rfind(b"fact 13 "), content.rfind(b"fact 16 ")):
                world.files.flip(path, offset, 0x5A)

    world.files.faults.append(lose_unsynced)
    world.open()
    assert done
    assert any("decided anew" in note for note in world.store.recovered.notes)
    world.judge()
    world.settle_facts()
    world.kill()
    for _ in range(2):
        world.open()
        world.judge()
        world.settle_facts()
        world.kill()


@pytest.mark.parametrize("counter", [None, 7])
def test_deciding_anew_ends(counter: int | None) -> None:
    """A disk that changes in every opening; with a counter that was handed in there is one opening only."""
    world = stored(THREE)
    reserved: list[str] = []

    def change(operation: str, at: str) -> None:
        if operation == "listdir" and at == "/d1/logs":  # the scan
            reserved.append(at)
        if operation == "open" and at == "/d1/disk.json" and len(reserved) > world.files.restarted.get("/d1", 0):
            world.files.restarted["/d1"] = len(reserved)

    world.files.faults.append(change)
    with pytest.raises(CopiesChanged, match="restarted"):
        world.open(counter=counter)
    assert len(reserved) == (1 if counter else 5)
    world.kill()
    world.files.faults.clear()
    world.open()
    world.judge()


@pytest.mark.parametrize("when", ["reserved", "settled"])
def test_a_machine_that_restarts_while_its_disk_is_opened_does_not_get_the_old_name_back(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have lost what was not synced, and its server took the name from it."""
    world = stored(THREE, durability="async")
    old = world.known[0]
    calls = {"reserved": ("open", "/d0/disk.json"), "settled": ("open", "/d0/logs/0000000001/00000001.seg")}
    seen: list[str] = []

    def restart(operation: str, at: str) -> None:
        if (operation, at) != calls[when] or world.files.restarted:
            return
        seen.append(at)
        if len(seen) == (2 if when == "reserved" else 3):  # at first it is scanned
            world.files.restarted["/d0"] = 1
            world.files.rename("/d0/disk.json", "/d0/disk.json.unclean")

    world.files.faults.append(restart)
    monkeypatch.setattr(world.files, "anchor", lambda root, name: None)  # that is for the server to do
    world.open()
    assert world.files.restarted, "the schedule is not the one that is meant"
    assert world.known[0] != old
    assert world.store.recovered.disks[0] not in ("", old)
    assert old.encode() not in world.files.content("/d0/disk.json")
    world.judge()


def test_a_segment_of_which_a_crash_left_only_the_header_is_opened() -> None:
    world = World.opened(1, 1)
    world.note()
    world.commit()
    world.store.close()
    world.open()
    world.kill()
    path = "/d0/logs/0000000002/00000001.seg"
    handle = world.files.open(path)
    world.files.truncate(handle, 2 * PAGE)  # its length reached the disk no further
    world.files.close(handle)
    world.open()
    world.judge()
    world.settle_facts()


def test_a_log_begins_on_all_disks_at_once() -> None:
    """Each of them waits for its disk several times: one after the other nine take long."""
    world = World(1, 3, THREE)
    together = threading.Barrier(3, timeout=30.0)
    asked = world.files.sync_dir

    def sync_dir(path: str) -> None:
        if path.endswith("logs/0000000001"):
            together.wait()  # raises where the others are not under way, too
        asked(path)

    listed = world.files.listdir
    waited: set[str] = set()

    def listdir(path: str) -> list[str]:
        if path.endswith("/pool") and path not in waited:
            waited.add(path)
            together.wait()
        return listed(path)

    with patch.object(world.files, "sync_dir", sync_dir), patch.object(world.files, "listdir", listdir):
        store = Store.open(
            world.roots,
            world.settings,
            Environment(world.clock, world.random, world.files, notify=world.inbox.append),
            KnownStore(rule=THREE),
        )
    assert all(store.recovered.disks)
    store.close()


@pytest.mark.parametrize("noticed", ["out of reach", "still written"])
def test_a_failed_disk_keeps_its_name_until_the_others_are_seen_to_do_without_it(noticed: str) -> None:
    """Another disk is destroyed before anybody knows of the failure: the failed one is needed to read the log."""
    world = stored(THREE)
    world.open()
    names = list(world.known)
    world.persist()
    fault = world.fail(0)
    world.publish()
    world.files.wipe(world.roots[1])
    if noticed == "out of reach":
        world.lose_sight(1, 2)
    world.settle()
    assert not world.store._disks.maintainers[0].ok
    world.files.faults.remove(fault)
    for _ in range(5):
        world.clock.advance(1.1)
        world.settle()
    assert bool(world.failures) == (noticed == "still written"), "the log goes on until a disk is known to be lost"
    world.kill()
    world.regain(1, 2)
    world.open()
    world.judge()
    assert (world.known[0], world.known[2]) == (names[0], names[2])
    assert world.known[1] != names[1]


def test_a_failed_disk_comes_back_once_the_others_answer() -> None:
    world = stored(THREE)
    world.open()
    names = list(world.known)
    fault = world.fail(0)
    world.publish()
    world.settle()
    world.files.faults.remove(fault)
    world.lose_sight(1)
    for _ in range(5):
        world.clock.advance(1.1)
        world.settle()
    assert not world.store._disks.maintainers[0].ok
    world.regain(1)
    world.heal()
    disks = world.store.status().disks
    assert [disk.state for disk in disks] == ["ok", "ok", "ok"]
    assert [disk.incarnation for disk in disks][1:] == names[1:]
    assert disks[0].incarnation != names[0]
    world.kill()
    world.open()
    world.judge()


def test_what_a_disk_had_behind_the_end_of_a_log_is_void_after_the_end_was_deleted() -> None:
    """The last segment says where the log ended; its tombstone says so when it is gone and earlier ones are not."""
    world = World.opened(1, 3, segment_entries_max=10, scrub_bytes_s=0)
    world.fill(15)
    world.commit()
    world.fill(40)
    for _ in range(10):
        world.run("syncpoint-write-1")
    world.kill()
    world.lose_sight(1)
    world.open()
    end = world.store.recovered.logs[1]
    assert end < 50, "nobody else had what only this disk has"
    for _ in range(10):
        world.store.collect(lambda source, first, count, time_ns: first < 10)
        world.settle()
    left = [segment for segment in world.store.catalog if segment.log == 1]
    assert left
    assert max(segment.last_position for segment in left) < end, "the last one is deleted, an earlier one is not"
    world.kill()
    world.regain(1)
    world.open()
    assert world.store.recovered.logs[1] < end
    world.settle()
    assert not any("logs/0000000001" in path and not path.endswith("00000001.seg") for path in paths(world))
