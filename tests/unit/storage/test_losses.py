"""Giving up what is lost: told before, written down, and never more than that."""

from __future__ import annotations

import json

import pytest

from syncpoint.model.identity import parse_message_id
from syncpoint.runtime.environment import Environment
from syncpoint.runtime.step_workers import ManualWorkers
from syncpoint.storage.disk.disk_identity import encode_marks, read_marks, write_marks
from syncpoint.storage.disk.losses import Losses, accept, arrange, assess
from syncpoint.storage.errors import DisksMissing, StorageDamaged
from syncpoint.storage.quorum import AckRule
from syncpoint.storage.segment import DATA_START
from tests.kit.disks import World

WHO = {"user": "anna", "host": "here"}


def look(world: World) -> Losses:
    roots, rule = arrange(world.roots, world.files)
    before = [world.files.snapshot(root) for root in world.roots]
    losses = assess(roots, rule, files=world.files, random=world.random)
    kept = [{path: data for path, data in one.items() if not path.endswith("/lock")} for one in before]
    now = [world.files.snapshot(root) for root in world.roots]
    assert [{p: d for p, d in one.items() if not p.endswith("/lock")} for one in now] == kept, "nothing is changed"
    return losses


def give_up(world: World, losses: Losses) -> list[str]:
    return accept(
        losses,
        Environment(world.clock, world.random, world.files, ManualWorkers),
        who=WHO,
        settings=world.settings,
    )


def at_risk(losses: Losses, world: World) -> dict[int, list[tuple[int, int | None]]]:
    """The ids taken apart again."""
    found: dict[int, list[tuple[int, int | None]]] = {}
    for one in losses.at_risk:
        for text in one["ids"]:
            first, _, last = text.replace(" and later", " to ").partition(" to ")
            begin = parse_message_id(first)
            assert (begin.universe, begin.source) == (world.universe, one["source"])
            end = None
            if text.endswith("later"):
                assert one["open"]
            else:
                end = parse_message_id(last or first).offset + 1
            found.setdefault(one["source"], []).append((begin.offset, end))
    return found


def test_healthy_disks_have_nothing_to_give_up() -> None:
    for disks in (1, 3):
        world = World.opened(5, disks)
        for _ in range(20):
            world.persist()
        world.kill()
        losses = look(world)
        assert not losses.any
        assert not losses.at_risk


def test_two_of_three_disks_are_gone_for_good() -> None:
    world = World.opened(5, 3)
    for topic in (0, 1):
        world.publish(topic, 3)
    world.commit()
    world.fail(2)  # it misses what follows
    source = world.store.log_counter << 24
    world.persist(0, 4)
    assert not world.waiting
    world.kill()
    world.files.wipe("/d0")
    world.files.wipe("/d1")
    with pytest.raises(DisksMissing):
        world.open()
    for root in ("/d0", "/d1"):
        world.files.mkdir(root)
    world.roots = ["/d2", "/d0", "/d1"]  # in whatever order they are named
    world.files.kill()
    losses = look(world)
    assert losses.disks == ["/d0", "/d1", "/d2"]
    assert len(losses.absent) == 2
    assert at_risk(losses, world) == {source: [(3, None)], source | 1: [(3, None)]}
    paths = give_up(world, losses)
    assert len(paths) == 3
    for path in paths:
        audit = json.loads(world.files.content(path))
        assert audit["state"] == "done"
        assert audit["user"] == "anna"
        assert audit["at_risk"] == losses.at_risk
        assert audit["problems"] == losses.problems
    world.files.kill()
    world.known = []
    store = world.open()
    assert store.log_counter > 10_000, "counters that the lost disks may know are not used again"
    assert {first for first, _, _ in world.read_all(source)} == {0}
    assert not store.recovered.lost, "what was given up is not told again"
    assert not look_again(world)


def look_again(world: World) -> bool:
    world.kill()
    return look(world).any


def test_a_damaged_entry_and_a_lost_segment_name_their_messages() -> None:
    world = World.opened(5, 1)
    source = world.store.log_counter << 24
    for _ in range(100):
        world.persist(0, 2, 3_000)
    logs = sorted(path for path in world.files.paths("/d0/logs") if path.endswith(".seg"))
    world.kill()
    assert len(logs) > 2
    world.files.unlink(logs[0])
    world.files.flip(logs[-1], DATA_START + 200)
    with pytest.raises(StorageDamaged):
        world.open()
    world.files.kill()
    losses = look(world)
    assert len(losses.problems) == 2
    first, second = at_risk(losses, world)[source]
    assert first[0] == 0
    assert second[1] == second[0] + 2
    give_up(world, losses)
    world.files.kill()
    world.open()
    left = [one for one, _, _ in world.read_all(source)] if world.store.bounds(source) else []
    gaps = set(range(0, 200, 2)) - set(left)
    told = {offset for begin, end in (first, second) for offset in range(begin, end, 2)}
    assert gaps == told, "what is gone was told, and nothing else"


def test_where_all_have_to_hear_of_a_new_log_a_lost_disk_has_to_be_given_up() -> None:
    """Nothing is lost, but the disk that is gone would be enough to read the old log, were it to come back alone."""
    world = World(5, rule=AckRule((0, 0, 0), "all"))
    world.open()
    world.persist()
    world.kill()
    world.files.wipe("/d1")
    world.files.mkdir("/d1")
    with pytest.raises(DisksMissing, match="can be read"):
        world.open()
    world.files.kill()
    losses = look(world)
    assert len(losses.problems) == 1
    assert not losses.at_risk
    give_up(world, losses)
    world.files.kill()
    world.open()
    world.judge()


def test_disks_are_put_into_their_slots() -> None:
    world = World.opened(5, rule=AckRule.grid(3, 1))
    world.persist()
    world.kill()
    roots = list(world.roots)
    assert arrange(roots[::-1], world.files) == (roots, AckRule.grid(3, 1))
    world.files.wipe("/d1")
    world.files.mkdir("/d1")
    assert arrange(["/d1", "/d2", "/d0"], world.files)[0] == roots
    with pytest.raises(ValueError, match="an empty folder in the place"):
        arrange(["/d1", "/d2"], world.files)
    assert arrange(["/d1"], world.files) == (["/d1"], AckRule.single(1))


def test_without_a_disk_that_takes_the_audit_file_nothing_is_given_up() -> None:
    world = World.opened(5, 1)
    world.persist()
    world.stop()
    world.files.unlink("/d0/logs/0000000001/00000001.seg")
    losses = look(world)
    fault = world.fail(0, 30, ("mkdir",))
    with pytest.raises(Exception, match="no disk takes the audit file"):
        give_up(world, losses)
    world.files.faults.remove(fault)
    with pytest.raises(StorageDamaged):
        world.open()


@pytest.mark.parametrize("disks", [1, 3])
def test_sealed_segments_with_holes_are_opened_once_the_loss_is_accepted(disks: int) -> None:
    """What the seal promises is on no disk: a batch, all of a source, a fact that replay needs."""
    world = World.opened(5, disks)
    source = world.store.log_counter << 24
    for _ in range(10):
        world.publish(0, 2)
        world.note()
    last = world.publish(1, 3)
    world.commit()
    assert not world.waiting
    world.stop()
    paths = [f"{root}/logs/0000000001/00000001.seg" for root in world.roots]
    holes = [world.appended[source, 6][1], world.appended[last][1], sorted(world.facts)[4]]
    for path in paths:
        content = bytes(world.files.content(path))
        for hole in holes:
            world.files.flip(path, content.index(hole) + 3)
    world.open()
    with pytest.raises(StorageDamaged):
        list(world.store.replay())
    world.kill()
    losses = look(world)
    assert losses.any
    assert at_risk(losses, world) == {source: [(6, 8)], source | 1: [(0, 3)]}
    give_up(world, losses)
    world.files.kill()
    for key in ((source, 6), last):
        del world.acked[key]
    world.acked_facts.discard(holes[2])
    world.open()
    world.judge()
    assert not look_again(world)


def test_segments_that_the_marks_list_and_that_never_were_are_given_up() -> None:
    world = World.opened(5, 3)
    world.persist()
    assert not world.waiting
    world.stop()
    for root in world.roots:
        marks = read_marks(world.files, root)
        assert marks is not None
        marks.live = {1: [(1, 3)], 5: [(1, 2)]}
        marks.version += 1
        write_marks(world.files, root, encode_marks(marks))
    with pytest.raises(StorageDamaged, match="segment 2 of log 5"):
        world.open()
    world.files.kill()
    losses = look(world)
    assert len(losses.problems) == 4
    give_up(world, losses)
    world.files.kill()
    world.open()
    world.judge()
    assert not look_again(world)
