"""Giving up what is lost: reported before, written down, and never more than that."""

from __future__ import annotations

import json

import pytest

from syncpoint.base.model.identity import parse_message_id
from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.step_workers import ManualWorkers
from syncpoint.log.storage.disk.disk_identity import encode_marks, read_marks, write_marks
from syncpoint.log.storage.disk.losses import Losses, accept, arrange, assess
from syncpoint.log.storage.errors import DisksMissing, StorageDamaged
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.segment import DATA_START
from tests.kit.disks import Harness

pytestmark = pytest.mark.shows("loss-accepted")

WHO = {"user": "anna", "host": "here"}


def look(harness: Harness) -> Losses:
    roots, rule = arrange(harness.roots, harness.files)
    before = [harness.files.snapshot(root) for root in harness.roots]
    losses = assess(roots, rule, files=harness.files, random=harness.random)
    kept = [{path: data for path, data in one.items() if not path.endswith("/lock")} for one in before]
    now = [harness.files.snapshot(root) for root in harness.roots]
    assert [{p: d for p, d in one.items() if not p.endswith("/lock")} for one in now] == kept, "nothing is changed"
    return losses


def give_up(harness: Harness, losses: Losses) -> list[str]:
    return accept(
        losses,
        Environment(harness.clock, harness.random, harness.files, ManualWorkers),
        who=WHO,
        settings=harness.settings,
    )


def at_risk(losses: Losses, harness: Harness) -> dict[int, list[tuple[int, int | None]]]:
    """The ids taken apart again."""
    found: dict[int, list[tuple[int, int | None]]] = {}
    for one in losses.at_risk:
        for text in one["ids"]:
            first, _, last = text.replace(" and later", " to ").partition(" to ")
            begin = parse_message_id(first)
            assert (begin.universe, begin.source) == (harness.universe, one["source"])
            end = None
            if text.endswith("later"):
                assert one["open"]
            else:
                end = parse_message_id(last or first).offset + 1
            found.setdefault(one["source"], []).append((begin.offset, end))
    return found


def test_healthy_disks_have_nothing_to_give_up() -> None:
    for disks in (1, 3):
        harness = Harness.opened(5, disks)
        for _ in range(20):
            harness.persist()
        harness.kill()
        losses = look(harness)
        assert not losses.any
        assert not losses.at_risk


def test_two_of_three_disks_are_gone_for_good() -> None:
    harness = Harness.opened(5, 3)
    for topic in (0, 1):
        harness.publish(topic, 3)
    harness.commit()
    harness.fail(2)  # it misses what follows
    source = harness.store.log_counter << 24
    harness.persist(0, 4)
    assert not harness.waiting
    harness.kill()
    harness.files.wipe("/d0")
    harness.files.wipe("/d1")
    with pytest.raises(DisksMissing):
        harness.open()
    for root in ("/d0", "/d1"):
        harness.files.mkdir(root)
    harness.roots = ["/d2", "/d0", "/d1"]  # in whatever order they are named
    harness.files.kill()
    losses = look(harness)
    assert losses.disks == ["/d0", "/d1", "/d2"]
    assert len(losses.absent) == 2
    assert at_risk(losses, harness) == {source: [(3, None)], source | 1: [(3, None)]}
    paths = give_up(harness, losses)
    assert len(paths) == 3
    for path in paths:
        audit = json.loads(harness.files.content(path))
        assert audit["state"] == "done"
        assert audit["user"] == "anna"
        assert audit["at_risk"] == losses.at_risk
        assert audit["problems"] == losses.problems
    harness.files.kill()
    harness.known = []
    store = harness.open()
    assert store.log_counter > 10_000, "counters that the lost disks may know are not used again"
    assert {first for first, _, _ in harness.read_all(source)} == {0}
    assert not store.recovered.lost, "what was given up is not reported again"
    assert not look_again(harness)


def look_again(harness: Harness) -> bool:
    harness.kill()
    return look(harness).any


def test_a_damaged_entry_and_a_lost_segment_name_their_messages() -> None:
    harness = Harness.opened(5, 1)
    source = harness.store.log_counter << 24
    for _ in range(100):
        harness.persist(0, 2, 3_000)
    logs = sorted(path for path in harness.files.paths("/d0/logs") if path.endswith(".seg"))
    harness.kill()
    assert len(logs) > 2
    harness.files.unlink(logs[0])
    harness.files.flip(logs[-1], DATA_START + 200)
    with pytest.raises(StorageDamaged):
        harness.open()
    harness.files.kill()
    losses = look(harness)
    assert len(losses.problems) == 2
    first, second = at_risk(losses, harness)[source]
    assert first[0] == 0
    assert second[1] == second[0] + 2
    give_up(harness, losses)
    harness.files.kill()
    harness.open()
    left = [one for one, _, _ in harness.read_all(source)] if harness.store.bounds(source) else []
    gaps = set(range(0, 200, 2)) - set(left)
    reported = {offset for begin, end in (first, second) for offset in range(begin, end, 2)}
    assert gaps == reported, "what is gone was notified, and nothing else"


def test_where_all_have_to_learn_of_a_new_log_a_lost_disk_has_to_be_given_up() -> None:
    """Nothing is lost, but the disk that is gone would be enough to read the old log, were it to come back alone."""
    harness = Harness(5, rule=AckRule((0, 0, 0), "all"))
    harness.open()
    harness.persist()
    harness.kill()
    harness.files.wipe("/d1")
    harness.files.mkdir("/d1")
    with pytest.raises(DisksMissing, match="can be read"):
        harness.open()
    harness.files.kill()
    losses = look(harness)
    assert len(losses.problems) == 1
    assert not losses.at_risk
    give_up(harness, losses)
    harness.files.kill()
    harness.open()
    harness.judge()


def test_disks_are_put_into_their_slots() -> None:
    harness = Harness.opened(5, rule=AckRule.grid(3, 1))
    harness.persist()
    harness.kill()
    roots = list(harness.roots)
    assert arrange(roots[::-1], harness.files) == (roots, AckRule.grid(3, 1))
    harness.files.wipe("/d1")
    harness.files.mkdir("/d1")
    assert arrange(["/d1", "/d2", "/d0"], harness.files)[0] == roots
    with pytest.raises(ValueError, match="give an empty folder"):
        arrange(["/d1", "/d2"], harness.files)
    assert arrange(["/d1"], harness.files) == (["/d1"], AckRule.single(1))


def test_without_a_disk_that_takes_the_audit_file_nothing_is_given_up() -> None:
    harness = Harness.opened(5, 1)
    harness.persist()
    harness.stop()
    harness.files.unlink("/d0/logs/0000000001/00000001.seg")
    losses = look(harness)
    fault = harness.fail(0, 30, ("mkdir",))
    with pytest.raises(Exception, match="the audit file cannot be written"):
        give_up(harness, losses)
    harness.files.faults.remove(fault)
    with pytest.raises(StorageDamaged):
        harness.open()


@pytest.mark.parametrize("disks", [1, 3])
def test_sealed_segments_with_holes_are_opened_once_the_loss_is_accepted(disks: int) -> None:
    """What the seal promises is on no disk: a batch, all of a source, a fact that replay needs."""
    harness = Harness.opened(5, disks)
    source = harness.store.log_counter << 24
    for _ in range(10):
        harness.publish(0, 2)
        harness.note()
    last = harness.publish(1, 3)
    harness.commit()
    assert not harness.waiting
    harness.stop()
    paths = [f"{root}/logs/0000000001/00000001.seg" for root in harness.roots]
    holes = [harness.appended[source, 6][1], harness.appended[last][1], sorted(harness.facts)[4]]
    for path in paths:
        content = bytes(harness.files.content(path))
        for hole in holes:
            harness.files.flip(path, content.index(hole) + 3)
    harness.open()
    with pytest.raises(StorageDamaged):
        list(harness.store.replay())
    harness.kill()
    losses = look(harness)
    assert losses.any
    assert at_risk(losses, harness) == {source: [(6, 8)], source | 1: [(0, 3)]}
    give_up(harness, losses)
    harness.files.kill()
    for key in ((source, 6), last):
        del harness.acked[key]
    harness.acked_facts.discard(holes[2])
    harness.open()
    harness.judge()
    assert not look_again(harness)


def test_segments_that_the_marks_list_and_that_never_were_are_given_up() -> None:
    harness = Harness.opened(5, 3)
    harness.persist()
    assert not harness.waiting
    harness.stop()
    for root in harness.roots:
        marks = read_marks(harness.files, root)
        assert marks is not None
        marks.live = {1: [(1, 3)], 5: [(1, 2)]}
        marks.version += 1
        write_marks(harness.files, root, encode_marks(marks))
    with pytest.raises(StorageDamaged, match="segment 2 of log 5"):
        harness.open()
    harness.files.kill()
    losses = look(harness)
    assert len(losses.problems) == 4
    give_up(harness, losses)
    harness.files.kill()
    harness.open()
    harness.judge()
    assert not look_again(harness)
