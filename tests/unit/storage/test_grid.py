"""Clusters of disks: what may be lost, what is waited for, who is fenced, and what a disk brings back."""

from __future__ import annotations

import errno
from itertools import product

import pytest

from syncpoint.model.errors import Unavailable
from syncpoint.runtime.files import DiskFenced
from syncpoint.storage.errors import CopiesUnreachable, CounterTaken, DisksFailed, DisksMissing, Fenced
from syncpoint.storage.quorum import AckRule
from tests.kit.disks import World

GRID = AckRule.grid(3, 3)


def states(world: World) -> list[str]:
    return [disk.state for disk in world.store.status().disks]


def grid(seed: int = 5, **more: object) -> World:
    return World.opened(seed, rule=GRID, **more)


@pytest.mark.parametrize(("cluster", "first", "second"), list(product(range(3), (0, 2), (1,))))
def test_a_cluster_and_a_disk_of_each_other_may_fail(cluster: int, first: int, second: int) -> None:
    world = grid()
    others = [one for one in range(3) if one != cluster]
    lost = [cluster * 3, cluster * 3 + 1, cluster * 3 + 2, others[0] * 3 + first, others[1] * 3 + second]
    world.persist()
    for slot in lost:
        world.fail(slot)
    for _ in range(5):
        world.persist()
    assert not world.waiting
    assert not world.failures
    world.power_cut()
    for slot in lost:
        world.files.wipe(world.roots[slot])
        world.fail(slot)
    world.open()
    world.judge()


def test_one_disk_more_says_unknown() -> None:
    world = grid()
    for slot in (0, 1, 2, 3, 4):
        world.fail(slot)
    world.persist()
    assert isinstance(world.failures[0], DisksFailed)
    assert world.waiting
    world.files.faults.clear()
    world.kill()
    world.open()
    world.judge()


def test_acknowledgements_wait_for_a_second_cluster_and_are_given_when_it_is_back() -> None:
    world = grid()
    before = [disk.incarnation for disk in world.store.status().disks]
    world.lose_sight(0, 1, 2)
    world.persist()
    assert not world.waiting, "one cluster is not needed"
    world.lose_sight(3, 4, 5)
    world.persist()
    for _ in range(40):
        world.clock.advance(1.0)
        world.settle(20)  # whoever waits for a disk asks for it again and again
    assert len(world.waiting) == 1
    assert not world.failures, "waited for, not failed"
    assert states(world) == ["away"] * 6 + ["ok"] * 3
    world.regain(0, 1, 2, 3, 4, 5)
    world.settle()
    assert not world.waiting
    world.clock.advance(1.1)
    world.settle()
    assert [disk.incarnation for disk in world.store.status().disks] == before, "each came back as itself"
    assert states(world) == ["ok"] * 9
    assert not world.files.abandoned


def test_a_cluster_out_of_reach_for_long_is_given_up_and_heals() -> None:
    world = grid()
    world.persist()
    world.lose_sight(0, 1, 2)
    for _ in range(30):
        world.persist(0, 1, 4_000)
        world.clock.advance(1.0)
    assert states(world) == ["failed"] * 3 + ["ok"] * 6
    assert sorted(world.files.abandoned) == ["/d0", "/d1", "/d2"]
    world.regain(0, 1, 2)
    world.heal()
    assert states(world) == ["ok"] * 9
    assert world.store.status().under_replicated == 0
    world.lose_sight(3, 6)
    world.persist()
    assert not world.waiting
    world.kill()
    world.open()
    world.judge()


def test_all_out_of_reach_at_once_costs_no_disk() -> None:
    """The owner itself was cut off: nobody is given up, and all goes on where it stood."""
    world = grid()
    world.publish()
    world.lose_sight(*range(9))
    world.commit()
    for _ in range(60):
        world.clock.advance(1.0)
        world.settle(20)  # whoever waits for a disk asks for it again and again
    assert world.waiting
    assert states(world) == ["away"] * 9
    assert not world.files.abandoned
    world.regain(*range(9))
    world.settle()
    assert not world.waiting
    world.clock.advance(1.1)
    world.settle()
    assert states(world) == ["ok"] * 9


def test_on_one_node_two_hanging_disks_of_three_are_waited_for() -> None:
    world = World.opened(5, 3)
    world.lose_sight(1, 2)
    world.persist()
    for _ in range(40):
        world.clock.advance(1.0)
        world.settle(20)  # whoever waits for a disk asks for it again and again
    assert world.waiting
    assert not world.failures
    world.regain(2)
    world.settle()
    assert not world.waiting


def test_what_cannot_be_reached_is_not_lost() -> None:
    world = grid(cache_bytes=1)
    source = world.store.log_counter << 24
    for _ in range(80):
        world.persist(0, 1, 3_000)
    world.store.close()
    world.deliver()
    world.kill()
    world.open()
    world.lose_sight(*range(9))
    with pytest.raises(CopiesUnreachable):
        world.read_all(source)
    world.regain(8)
    assert len(world.read_all(source)) == 80, "one copy is enough"
    world.regain(*range(9))
    world.judge()
    assert not any(disk.damaged for disk in world.store.status().disks), "and none is taken for damaged"


# --------------------------------------------------------------------------------------------------------- opening


def test_opening_wants_a_read_set_and_changes_nothing_without() -> None:
    world = grid()
    for _ in range(5):
        world.persist()
    world.kill()
    world.lose_sight(0, 1, 2, 3)
    world.open()
    world.persist()
    world.judge()
    world.kill()
    world.regain(0, 1, 2, 3)
    before = [world.files.snapshot(root) for root in world.roots]
    world.lose_sight(0, 1, 3, 4)
    with pytest.raises(DisksMissing):
        world.open()
    assert [world.files.snapshot(root) for root in world.roots] == before
    world.regain(0, 1, 3, 4)
    world.lose_sight(5)
    world.open()  # 4, 7 and 8 are left of the five that the newest log was written on; the four that were away know it
    world.judge()
    world.regain(5)
    world.heal()
    assert states(world) == ["ok"] * 9


def test_a_majority_of_nine_is_not_enough_to_open() -> None:
    """All of a cluster, and a disk of each other: X may be on the four that are missing."""
    world = grid()
    world.lose_sight(0, 1, 2, 3, 6)
    world.persist()
    assert not world.waiting, "clusters 1 and 2 have it, on two disks each"
    world.kill()
    world.regain(*range(9))
    world.lose_sight(4, 5, 7, 8)
    with pytest.raises(DisksMissing):
        world.open()


def test_counters_may_be_handed_in() -> None:
    world = World(5, rule=GRID)
    assert world.open(counter=1_000).log_counter == 1_000
    world.persist()
    world.kill()
    with pytest.raises(CounterTaken, match="the disks know 1000"):
        world.open(counter=1_000)
    assert world.open(counter=5_000).log_counter == 5_000
    world.judge()
    assert world.store.sources() == [1_000 << 24]


def test_the_rule_has_to_fit_the_disks() -> None:
    world = World(5, rule=GRID)
    world.roots.pop()
    with pytest.raises(ValueError, match="9 disks, 8 are given"):
        world.open()


def test_another_rule_from_the_next_opening_on() -> None:
    """The old rule counts for what was written under it, the new one for what comes."""
    world = World.opened(5, 3)
    for _ in range(5):
        world.persist()
    world.kill()
    world.rule = AckRule((0, 0, 0), "all")
    world.open()
    world.judge()
    world.lose_sight(1)
    world.persist()
    assert world.waiting, "all have to hold it now"
    world.kill()
    world.regain(1)
    world.rule = AckRule.single(3)
    world.open()
    world.judge()


# --------------------------------------------------------------------------------------------------------- fencing


def fence(world: World, slot: int, operations: tuple[str, ...] = ()) -> None:
    root = world.roots[slot]

    def refuse(operation: str, path: str) -> None:
        if path.startswith(root + "/") and (not operations or operation in operations):
            raise DiskFenced(errno.ESTALE, "a higher epoch is known", path)

    world.files.faults.append(refuse)


@pytest.mark.parametrize("who", ["writer", "maintainer", "failed maintainer"])
def test_one_disk_that_knows_a_later_writer_ends_the_store(who: str) -> None:
    world = grid()
    world.persist()
    if who == "failed maintainer":
        world.fail(4)
        world.persist()
        world.files.faults.clear()
    fence(world, 4)
    if who == "writer":
        world.persist()
    else:
        world.clock.advance(1.1)
        world.run("syncpoint-keep-4")
        world.deliver()
    assert [type(one) for one in world.failures] == [Fenced]
    assert isinstance(world.store.failure, Fenced)
    waiting = len(world.waiting)
    with pytest.raises(Unavailable):
        world.publish()
    calls: list[str] = []

    def watch(operation: str, path: str) -> None:
        if operation not in ("close", "stat", "open", "pread"):
            calls.append(f"{operation} {path}")

    world.files.faults.append(watch)
    world.clock.advance(30)
    world.settle()
    world.store.close()
    world.deliver()
    assert not calls, "never written again"
    assert len(world.waiting) == waiting, "and nothing acknowledged"


@pytest.mark.parametrize("operations", [(), ("pwritev",), ("rename",)])
def test_opening_says_so_at_once(operations: tuple[str, ...]) -> None:
    world = grid()
    world.persist()
    world.kill()
    fence(world, 8, operations)
    with pytest.raises(Fenced, match="/d8"):
        world.open()


# ---------------------------------------------------------------------------------------------------- coming back


def sealed(world: World, slot: int) -> dict[str, bytes]:
    """Files of sealed segments, by path."""
    paths = {
        segment.copies[slot].path for segment in world.store.catalog if slot in segment.copies and segment.sealed_by
    }
    return {path: world.files.content(path) for path in paths}


def with_history() -> World:
    world = World.opened(5, 3)
    for _ in range(150):
        world.persist(0, 1, 3_000)
    return world


def test_what_is_whole_is_kept_and_not_copied_again() -> None:
    world = with_history()
    before = sealed(world, 1)
    fault = world.fail(1, errno.EIO, ("pwritev",))
    for _ in range(60):
        world.persist(0, 1, 3_000)
    world.files.faults.remove(fault)
    world.heal()
    assert states(world) == ["ok"] * 3
    after = sealed(world, 1)
    assert len(before) > 3
    assert before.items() <= after.items(), "the very same bytes, with the headers of the incarnation that wrote them"
    world.kill()
    world.fail(0)
    world.open()
    world.judge()


def test_of_another_folder_nothing_is_believed() -> None:
    world = with_history()
    before = sealed(world, 1)
    fault = world.fail(1)
    world.persist()
    world.files.faults.remove(fault)
    other = world.files.snapshot("/d0")
    world.files.restore("/d1", {path.replace("/d0/", "/d1/"): data for path, data in other.items()})
    world.heal()
    assert states(world) == ["ok"] * 3
    after = sealed(world, 1)
    assert not before.items() & after.items()
    world.kill()
    world.fail(0)
    world.open()
    world.judge()


@pytest.mark.parametrize("place", ["header", "trailer"])
def test_a_copy_whose_ends_are_damaged_is_made_anew(place: str) -> None:
    world = with_history()
    before = sealed(world, 1)
    path = min(before)
    fault = world.fail(1, errno.EIO, ("pwritev",))
    world.persist()
    world.files.flip(path, 20 if place == "header" else len(before[path]) - 20)
    world.files.faults.remove(fault)
    world.heal()
    assert states(world) == ["ok"] * 3
    after = sealed(world, 1)
    assert after[path] != before[path]
    assert {name: data for name, data in before.items() if name != path}.items() <= after.items()
    assert not world.files.paths("/d1/quarantine")


def test_what_was_deleted_meanwhile_goes() -> None:
    world = with_history()
    fault = world.fail(1, errno.EIO, ("pwritev",))
    world.persist()
    world.dead.update(world.acked)
    for _ in range(20):
        world.store.collect(world.live)
        world.settle()
    world.files.faults.remove(fault)
    world.heal()
    assert states(world) == ["ok"] * 3
    assert len(sealed(world, 1)) == len(sealed(world, 0)) <= 1
    logs = [path.replace("/d1/", "/d0/") for path in world.files.paths("/d1/logs")]
    assert logs == world.files.paths("/d0/logs")
    assert not world.files.paths("/d1/quarantine")


def test_a_disk_absent_at_opening_keeps_what_it_has() -> None:
    world = with_history()
    before = sealed(world, 1)
    world.kill()
    world.lose_sight(1)
    world.open()
    world.regain(1)
    world.heal()
    assert states(world) == ["ok"] * 3
    assert before.items() <= sealed(world, 1).items()


def test_a_new_incarnation_does_not_pass_for_the_old_one_by_what_it_kept() -> None:
    """Its name is lost; the segments it kept name the old incarnation, which was a member of what is missing here."""
    world = with_history()
    fault = world.fail(1, errno.EIO, ("pwritev",))
    world.persist()
    world.files.faults.remove(fault)
    world.clock.advance(1.1)
    for slot in (0, 2):
        world.run(f"syncpoint-keep-{slot}")  # they answer
    world.run("syncpoint-keep-1")  # back under a new name; nothing is written yet
    world.kill()
    world.files.wipe("/d0")
    handle = world.files.open("/d1/disk.json")
    world.files.truncate(handle, 0)
    world.files.fdatasync(handle)
    world.files.close(handle)
    with pytest.raises(DisksMissing):
        world.open()
