"""Clusters of disks: what may be lost, what is waited for, who is fenced, and what a disk brings back."""

from __future__ import annotations

import errno
from itertools import product

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.runtime.files import DiskFenced
from syncpoint.log.storage.errors import CopiesUnreachable, CounterTaken, DisksFailed, DisksMissing, Fenced
from syncpoint.log.storage.quorum import AckRule
from tests.kit.disks import Harness

pytestmark = pytest.mark.shows("quorums")

GRID = AckRule.grid(3, 3)


def states(harness: Harness) -> list[str]:
    return harness.states


def grid(seed: int = 5, **more: object) -> Harness:
    return Harness.opened(seed, rule=GRID, **more)


@pytest.mark.parametrize(("cluster", "first", "second"), list(product(range(3), (0, 2), (1,))))
def test_a_cluster_and_a_disk_of_each_other_may_fail(cluster: int, first: int, second: int) -> None:
    harness = grid()
    others = [one for one in range(3) if one != cluster]
    lost = [cluster * 3, cluster * 3 + 1, cluster * 3 + 2, others[0] * 3 + first, others[1] * 3 + second]
    harness.persist()
    for slot in lost:
        harness.fail(slot)
    for _ in range(5):
        harness.persist()
    assert not harness.waiting
    assert not harness.failures
    harness.power_cut()
    for slot in lost:
        harness.files.wipe(harness.roots[slot])
        harness.fail(slot)
    harness.open()
    harness.judge()


def test_one_disk_more_says_unknown() -> None:
    harness = grid()
    for slot in (0, 1, 2, 3, 4):
        harness.fail(slot)
    harness.persist()
    assert isinstance(harness.failures[0], DisksFailed)
    assert harness.waiting
    harness.files.faults.clear()
    harness.kill()
    harness.open()
    harness.judge()


def test_acknowledgements_wait_for_a_second_cluster_and_are_given_when_it_is_back() -> None:
    harness = grid()
    before = [disk.incarnation for disk in harness.store.status().disks]
    harness.lose_sight(0, 1, 2)
    harness.persist()
    assert not harness.waiting, "one cluster is not needed"
    harness.lose_sight(3, 4, 5)
    harness.persist()
    for _ in range(40):
        harness.clock.advance(1.0)
        harness.quiesce(20)  # whoever waits for a disk asks for it again and again
    assert len(harness.waiting) == 1
    assert not harness.failures, "waited for, not failed"
    assert states(harness) == ["away"] * 6 + ["ok"] * 3
    harness.regain(0, 1, 2, 3, 4, 5)
    harness.quiesce()
    assert not harness.waiting
    harness.clock.advance(1.1)
    harness.quiesce()
    assert [disk.incarnation for disk in harness.store.status().disks] == before, "each came back as itself"
    assert states(harness) == ["ok"] * 9
    assert not harness.files.abandoned


def test_a_cluster_out_of_reach_for_long_is_given_up_and_heals() -> None:
    harness = grid()
    harness.persist()
    harness.lose_sight(0, 1, 2)
    for _ in range(30):
        harness.persist(0, 1, 4_000)
        harness.clock.advance(1.0)
    assert states(harness) == ["away"] * 3 + ["ok"] * 6
    assert sorted(harness.files.abandoned) == ["/d0", "/d1", "/d2"]
    harness.regain(0, 1, 2)
    harness.heal()
    assert states(harness) == ["ok"] * 9
    assert harness.store.status().under_replicated == 0
    harness.lose_sight(3, 6)
    harness.persist()
    assert not harness.waiting
    harness.kill()
    harness.open()
    harness.judge()


def test_all_out_of_reach_at_once_costs_no_disk() -> None:
    """The owner itself was cut off: nobody is given up, and all goes on where it stood."""
    harness = grid()
    harness.publish()
    harness.lose_sight(*range(9))
    harness.commit()
    for _ in range(60):
        harness.clock.advance(1.0)
        harness.quiesce(20)  # whoever waits for a disk asks for it again and again
    assert harness.waiting
    assert states(harness) == ["away"] * 9
    assert not harness.files.abandoned
    harness.regain(*range(9))
    harness.quiesce()
    assert not harness.waiting
    harness.clock.advance(1.1)
    harness.quiesce()
    assert states(harness) == ["ok"] * 9


def test_on_one_node_two_hanging_disks_of_three_are_waited_for() -> None:
    harness = Harness.opened(5, 3)
    harness.lose_sight(1, 2)
    harness.persist()
    for _ in range(40):
        harness.clock.advance(1.0)
        harness.quiesce(20)  # whoever waits for a disk asks for it again and again
    assert harness.waiting
    assert not harness.failures
    harness.regain(2)
    harness.quiesce()
    assert not harness.waiting


def test_what_cannot_be_reached_is_not_lost() -> None:
    harness = grid(cache_bytes=1)
    source = harness.store.log_counter << 24
    for _ in range(80):
        harness.persist(0, 1, 3_000)
    harness.store.close()
    harness.deliver()
    harness.kill()
    harness.open()
    harness.lose_sight(*range(9))
    with pytest.raises(CopiesUnreachable):
        harness.read_all(source)
    harness.regain(8)
    assert len(harness.read_all(source)) == 80, "one copy is enough"
    harness.regain(*range(9))
    harness.judge()
    assert not any(disk.damaged for disk in harness.store.status().disks), "and none is taken for damaged"


# --------------------------------------------------------------------------------------------------------- opening


def test_opening_wants_a_read_set_and_changes_nothing_without() -> None:
    harness = grid()
    for _ in range(5):
        harness.persist()
    harness.kill()
    harness.lose_sight(0, 1, 2, 3)
    harness.open()
    harness.persist()
    harness.judge()
    harness.kill()
    harness.regain(0, 1, 2, 3)
    before = [harness.files.snapshot(root) for root in harness.roots]
    harness.lose_sight(0, 1, 3, 4)
    with pytest.raises(DisksMissing):
        harness.open()
    assert [harness.files.snapshot(root) for root in harness.roots] == before
    harness.regain(0, 1, 3, 4)
    harness.lose_sight(5)
    # 4, 7 and 8 are left of the five that the newest log was written on; the four that were away know it
    harness.open()
    harness.judge()
    harness.regain(5)
    harness.heal()
    assert states(harness) == ["ok"] * 9


def test_a_majority_of_nine_is_not_enough_to_open() -> None:
    """All of a cluster, and a disk of each other: X may be on the four that are missing."""
    harness = grid()
    harness.lose_sight(0, 1, 2, 3, 6)
    harness.persist()
    assert not harness.waiting, "clusters 1 and 2 have it, on two disks each"
    harness.kill()
    harness.regain(*range(9))
    harness.lose_sight(4, 5, 7, 8)
    with pytest.raises(DisksMissing):
        harness.open()


def test_counters_may_be_handed_in() -> None:
    harness = Harness(5, rule=GRID)
    assert harness.open(counter=1_000).log_counter == 1_000
    harness.persist()
    harness.kill()
    with pytest.raises(CounterTaken, match="not above 1000, the highest on the disks"):
        harness.open(counter=1_000)
    assert harness.open(counter=5_000).log_counter == 5_000
    harness.judge()
    assert harness.store.sources() == [1_000 << 24]


def test_the_rule_has_to_fit_the_disks() -> None:
    harness = Harness(5, rule=GRID)
    harness.roots.pop()
    with pytest.raises(ValueError, match="9 disks, but 8 are given"):
        harness.open()


def test_another_rule_from_the_next_opening_on() -> None:
    """The old rule counts for what was written under it, the new one for what comes."""
    harness = Harness.opened(5, 3)
    for _ in range(5):
        harness.persist()
    harness.kill()
    harness.rule = AckRule((0, 0, 0), "all")
    harness.open()
    harness.judge()
    harness.lose_sight(1)
    harness.persist()
    assert harness.waiting, "all have to hold it now"
    harness.kill()
    harness.regain(1)
    harness.rule = AckRule.single(3)
    harness.open()
    harness.judge()


# --------------------------------------------------------------------------------------------------------- fencing


def fence(harness: Harness, slot: int, operations: tuple[str, ...] = ()) -> None:
    root = harness.roots[slot]

    def refuse(operation: str, path: str) -> None:
        if path.startswith(root + "/") and (not operations or operation in operations):
            raise DiskFenced(errno.ESTALE, "a higher epoch is known", path)

    harness.files.faults.append(refuse)


@pytest.mark.parametrize("who", ["writer", "maintainer", "failed maintainer"])
def test_one_disk_that_knows_a_later_writer_ends_the_store(who: str) -> None:
    harness = grid()
    harness.persist()
    if who == "failed maintainer":
        harness.fail(4)
        harness.persist()
        harness.files.faults.clear()
    fence(harness, 4)
    if who == "writer":
        harness.persist()
    else:
        harness.clock.advance(1.1)
        harness.run("syncpoint-keep-4")
        harness.deliver()
    assert [type(one) for one in harness.failures] == [Fenced]
    assert isinstance(harness.store.failure, Fenced)
    waiting = len(harness.waiting)
    with pytest.raises(Unavailable):
        harness.publish()
    calls: list[str] = []

    def watch(operation: str, path: str) -> None:
        if operation not in ("close", "stat", "open", "pread"):
            calls.append(f"{operation} {path}")

    harness.files.faults.append(watch)
    harness.clock.advance(30)
    harness.quiesce()
    harness.store.close()
    harness.deliver()
    assert not calls, "never written again"
    assert len(harness.waiting) == waiting, "and nothing acknowledged"


@pytest.mark.parametrize("operations", [(), ("pwritev",), ("rename",)])
def test_opening_says_so_at_once(operations: tuple[str, ...]) -> None:
    harness = grid()
    harness.persist()
    harness.kill()
    fence(harness, 8, operations)
    with pytest.raises(Fenced, match="/d8"):
        harness.open()


# ---------------------------------------------------------------------------------------------------- coming back


def sealed(harness: Harness, slot: int) -> dict[str, bytes]:
    """Files of sealed segments, by path."""
    paths = {
        segment.copies[slot].path for segment in harness.store.catalog if slot in segment.copies and segment.sealed_by
    }
    return {path: harness.files.content(path) for path in paths}


def with_history() -> Harness:
    harness = Harness.opened(5, 3)
    for _ in range(150):
        harness.persist(0, 1, 3_000)
    return harness


def test_what_is_whole_is_kept_and_not_copied_again() -> None:
    harness = with_history()
    before = sealed(harness, 1)
    fault = harness.fail(1, errno.EIO, ("pwritev",))
    for _ in range(60):
        harness.persist(0, 1, 3_000)
    harness.files.faults.remove(fault)
    harness.heal()
    assert states(harness) == ["ok"] * 3
    after = sealed(harness, 1)
    assert len(before) > 3
    assert before.items() <= after.items(), "the very same bytes, with the headers of the incarnation that wrote them"
    harness.kill()
    harness.fail(0)
    harness.open()
    harness.judge()


def test_of_another_folder_nothing_is_believed() -> None:
    harness = with_history()
    before = sealed(harness, 1)
    fault = harness.fail(1)
    harness.persist()
    harness.files.faults.remove(fault)
    other = harness.files.snapshot("/d0")
    harness.files.restore("/d1", {path.replace("/d0/", "/d1/"): data for path, data in other.items()})
    harness.heal()
    assert states(harness) == ["ok"] * 3
    after = sealed(harness, 1)
    assert not before.items() & after.items()
    harness.kill()
    harness.fail(0)
    harness.open()
    harness.judge()


@pytest.mark.parametrize("place", ["header", "trailer"])
def test_a_copy_whose_ends_are_damaged_is_made_anew(place: str) -> None:
    harness = with_history()
    before = sealed(harness, 1)
    path = min(before)
    fault = harness.fail(1, errno.EIO, ("pwritev",))
    harness.persist()
    harness.files.flip(path, 20 if place == "header" else len(before[path]) - 20)
    harness.files.faults.remove(fault)
    harness.heal()
    assert states(harness) == ["ok"] * 3
    after = sealed(harness, 1)
    assert after[path] != before[path]
    assert {name: data for name, data in before.items() if name != path}.items() <= after.items()
    assert not harness.files.paths("/d1/quarantine")


def test_what_was_deleted_meanwhile_goes() -> None:
    harness = with_history()
    fault = harness.fail(1, errno.EIO, ("pwritev",))
    harness.persist()
    harness.dead.update(harness.acked)
    for _ in range(20):
        harness.store.collect(harness.live)
        harness.quiesce()
    harness.files.faults.remove(fault)
    harness.heal()
    assert states(harness) == ["ok"] * 3
    assert len(sealed(harness, 1)) == len(sealed(harness, 0)) <= 1
    logs = [path.replace("/d1/", "/d0/") for path in harness.files.paths("/d1/logs")]
    assert logs == harness.files.paths("/d0/logs")
    assert not harness.files.paths("/d1/quarantine")


def test_a_disk_absent_at_opening_keeps_what_it_has() -> None:
    harness = with_history()
    before = sealed(harness, 1)
    harness.kill()
    harness.lose_sight(1)
    harness.open()
    harness.regain(1)
    harness.heal()
    assert states(harness) == ["ok"] * 3
    assert before.items() <= sealed(harness, 1).items()


def test_a_new_incarnation_does_not_pass_for_the_old_one_by_what_it_kept() -> None:
    """Its name is lost; the segments it kept name the old incarnation, which was a member of what is missing here."""
    harness = with_history()
    fault = harness.fail(1, errno.EIO, ("pwritev",))
    harness.persist()
    harness.files.faults.remove(fault)
    harness.clock.advance(1.1)
    for slot in (0, 2):
        harness.run(f"syncpoint-keep-{slot}")  # they answer
    harness.run("syncpoint-keep-1")  # back under a new name; nothing is written yet
    harness.kill()
    harness.files.wipe("/d0")
    handle = harness.files.open("/d1/disk.json")
    harness.files.truncate(handle, 0)
    harness.files.fdatasync(handle)
    harness.files.close(handle)
    with pytest.raises(DisksMissing):
        harness.open()


@pytest.mark.parametrize("back", ["whole", "at once", "emptied", "never"])
def test_a_cluster_that_hangs_as_another_is_back_is_left_behind_by_the_next_opening(back: str) -> None:
    """One was given up, and can be used again when the second one stands still: with the third it is enough, but only
    for a new opening, since the second one must learn of new names. Nothing ends while the third is alone.
    """
    harness = grid()
    harness.persist()
    harness.lose_sight(0, 1, 2)
    for _ in range(20):
        harness.persist()
        harness.clock.advance(1.0)
    assert harness.states == ["away"] * 3 + ["ok"] * 6
    harness.lose_sight(3, 4, 5)
    for _ in range(0 if back == "at once" else 10):  # nobody has noticed yet: the first one gives up its name
        harness.clock.advance(1.1)
        harness.quiesce(20)
    for slot in (0, 1) if back == "emptied" else ():
        harness.files.wipe(harness.roots[slot])
    if back != "never":
        harness.regain(0, 1, 2)
    harness.persist()
    for _ in range(40):
        harness.clock.advance(1.0)
        harness.quiesce(20)
    assert harness.waiting
    if back == "never":
        assert not harness.failures
        harness.regain(3, 4, 5)
        harness.quiesce()
        assert not harness.waiting
        return
    assert isinstance(harness.failures[0], DisksFailed)
    harness.stop()
    harness.open()
    harness.judge()
    harness.persist()
    assert not harness.waiting
    harness.regain(3, 4, 5)
    harness.heal()
    assert harness.states == ["ok"] * 9
    harness.kill()
    harness.open()
    harness.judge()
