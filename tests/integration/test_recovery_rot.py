"""Disks that lie: flipped bits, truncated, emptied, swapped and outdated files, found at the start or at a read.

A message is delivered as it was published or not at all; with good copies elsewhere it is always delivered.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time

import pytest

from syncpoint.testing.server_process import ServerFailed

pytestmark = pytest.mark.shows("disks")


def segments(disk):
    return sorted(disk.rglob("*.seg"))


def flip(file, count, chance, *, upto=None):
    """Change one bit each at `count` places of the part of a file that is in use."""
    data = bytearray(file.read_bytes())
    used = len(data.rstrip(b"\0")) if upto is None else upto
    for _ in range(count):
        data[chance.randrange(used)] ^= 1 << chance.randrange(8)
    file.write_bytes(bytes(data))


class Case:
    """Three disks with three hundred messages of 5 KB, a hundred of them acknowledged, and the server down."""

    def __init__(self, boot, enter, tmp_path):
        self.disks = [tmp_path / f"disk-{number}" for number in range(3)]
        self.server = boot(tmp_path / "data", disks=self.disks)
        self.enter = enter
        space = enter(self.server.endpoint)
        self.topic, self.subscription = space.pair(ack_deadline_seconds=600)
        self.sent = {}
        for start in range(0, 300, 50):
            data = [b"%05d" % number + bytes([number % 251]) * 5000 for number in range(start, start + 50)]
            self.sent.update(zip(space.publish(self.topic, *data), data, strict=True))
        acked = space.pull(self.subscription, 100, most=100)[:100]
        space.ack(self.subscription, *acked)
        self.left = dict(self.sent)
        for one in acked:
            self.left.pop(one.message.message_id)
        self.server.kill9()

    def receive(self, within=20):
        """What the started server delivers, including a message published now; all with their own bytes."""
        space = self.enter(self.server.endpoint)
        (barrier,) = space.publish(self.topic, b"barrier")
        got, end = {}, time.monotonic() + within
        while not {barrier, *self.left} <= got.keys() and time.monotonic() < end:
            fresh = space.pull_once(self.subscription, wait=2)
            got |= {one.message.message_id: one.message.data for one in fresh}
        got |= {one.message.message_id: one.message.data for one in space.peek(self.subscription)}
        assert got.pop(barrier) == b"barrier"
        assert got.items() <= self.sent.items(), "bytes were changed"
        return got


def starts(server, *words):
    """Start the server; False if it refused in good order, saying all these words."""
    try:
        server.start(timeout=40)
    except ServerFailed as refusal:
        text = str(refusal)
    else:
        return True
    assert "Traceback" not in text
    assert all(word in text for word in words), text
    return False


@pytest.fixture
def case(boot, enter, tmp_path):
    return Case(boot, enter, tmp_path)


@pytest.mark.parametrize("seed", range(3))
def test_flipped_bits_on_one_disk_cost_nothing(case, seed):
    chance = random.Random(seed)
    for file in segments(case.disks[seed]):
        flip(file, 5, chance)
    case.server.start()
    assert case.receive() == case.left


def test_flipped_bits_in_different_places_on_all_disks_never_give_wrong_bytes(case):
    chance = random.Random(7)
    for disk in case.disks:
        for file in segments(disk):
            flip(file, 1, chance)
    case.server.start()  # of everything two good copies are left
    assert case.receive() == case.left


@pytest.mark.parametrize("damage", ["truncate", "empty", "delete", "zeroes"])
def test_spoiled_segments_on_one_disk_cost_nothing(case, damage):
    for file in segments(case.disks[1]):
        size = file.stat().st_size
        if damage == "delete":
            file.unlink()
        else:
            with file.open("r+b") as handle:
                if damage == "zeroes":
                    handle.seek(5000)
                    handle.write(bytes(100_000))
                else:
                    handle.truncate(size // 1000 if damage == "truncate" else 0)
    case.server.start()
    assert case.receive() == case.left


def test_a_disk_set_back_to_an_old_backup_costs_nothing(boot, enter, tmp_path):
    disks = [tmp_path / f"disk-{number}" for number in range(3)]
    server = boot(tmp_path / "data", disks=disks)
    space = enter(server.endpoint)
    topic, subscription = space.pair(ack_deadline_seconds=600)
    sent = set(space.publish(topic, *[b"early" * 100] * 50))
    server.terminate()
    shutil.copytree(disks[0], tmp_path / "backup")
    server.start()
    space = enter(server.endpoint)
    sent |= set(space.publish(topic, *[b"late" * 100] * 50))
    acked = space.pull(subscription, 30, most=30)[:30]
    space.ack(subscription, *acked)
    server.kill9()
    shutil.rmtree(disks[0])
    shutil.move(tmp_path / "backup", disks[0])
    server.start()
    left = sent - {one.message.message_id for one in acked}
    got = enter(server.endpoint).pull(subscription, len(left), within=40, ack=True)
    assert {one.message.message_id for one in got} == left


def test_two_disks_may_change_places(case):
    first, second = case.disks[0], case.disks[1]
    spare = first.with_name("spare")
    first.rename(spare)
    second.rename(first)
    spare.rename(second)
    case.server.start()
    assert case.receive() == case.left


def test_the_disk_of_another_service_is_not_taken_for_ours(case, boot, enter, tmp_path):
    other = boot(tmp_path / "other")
    space = enter(other.endpoint)
    topic, subscription = space.pair()
    foreign = set(space.publish(topic, *[b"foreign"] * 20))
    other.terminate()
    shutil.rmtree(case.disks[2])
    (other_disk,) = [path.parent for path in (tmp_path / "other").rglob("disk.json")]
    shutil.copytree(other_disk, case.disks[2])
    assert not starts(case.server, "belong to different servers", str(case.disks[2]))
    other.start()
    got = enter(other.endpoint).pull(subscription, 20, within=30)
    assert {one.message.message_id for one in got} == foreign


def test_one_disk_of_three_alone_is_not_enough(case):
    """Two of three disks are gone: what the last one holds may not be everything, so the server must not pretend."""
    for disk in case.disks[:2]:
        shutil.rmtree(disk)
    assert not starts(case.server, "needs at least 2 of its 3 disks"), "it started as if nothing was lost"


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_disk_that_may_lack_confirmed_messages_is_not_enough_to_start(boot, enter, tmp_path, kept):
    """An old copy of one disk is all that is left: what was confirmed later is lost; only a person may accept that."""
    disks = [tmp_path / f"disk-{number}" for number in range(3)]
    server = boot(tmp_path / "data", disks=disks)
    space = enter(server.endpoint)
    topic, _ = space.pair()
    space.publish(topic, b"early")
    server.terminate()
    shutil.copytree(disks[kept], tmp_path / "backup")
    server.start()
    enter(server.endpoint).publish(topic, b"confirmed, and on the lost disks only")
    server.kill9()
    for disk in disks:
        shutil.rmtree(disk)
    shutil.move(tmp_path / "backup", disks[kept])
    assert not starts(server), "it started as if nothing was lost"


@pytest.mark.parametrize("database", ["garbage", "empty", "gone"])
def test_a_spoiled_database_is_rebuilt_or_named(case, database):
    folder = case.server.data
    for file in folder.glob("*sqlite*"):
        if database == "gone":
            file.unlink()
        else:
            file.write_bytes(b"" if database == "empty" else b"garbage " * 1000)
    if not starts(case.server, "sqlite"):
        for file in folder.glob("*sqlite*"):
            file.unlink()
        case.server.start()
    assert case.receive() == case.left


def test_flipped_bits_while_the_server_runs_are_healed_from_the_other_disks(case):
    case.server.start()
    chance = random.Random(3)
    for file in segments(case.disks[0])[:1]:
        flip(file, 3, chance, upto=200_000)
    case.server.restart()
    assert case.receive() == case.left


def test_a_single_disk_with_rot_in_the_middle_is_refused_until_the_loss_is_accepted(boot, enter, tmp_path):
    """One disk, no copies: what is rotten cannot be delivered, but nothing else may be lost or changed."""
    server = boot(tmp_path / "data")
    space = enter(server.endpoint)
    topic, subscription = space.pair(ack_deadline_seconds=600)
    sent = {}
    for number in range(60):
        data = b"%05d|" % number * 800
        sent[space.publish(topic, data)[0]] = data
    server.kill9()
    file = max((tmp_path / "data").rglob("*.seg"), key=lambda one: len(one.read_bytes().rstrip(b"\0")))
    content = bytearray(file.read_bytes())
    place = content.index(b"00020|" * 10) + 100
    content[place] ^= 0xFF
    file.write_bytes(bytes(content))
    assert not starts(server, "were acknowledged but are damaged", str(file))
    command = [sys.executable, "-m", "syncpoint.programs.cli", "log", "recover", "--data", str(tmp_path / "data")]
    subprocess.run([*command, "--accept-loss", "--yes"], check=True, capture_output=True, text=True)
    server.start()
    got = {one.message.message_id: one.message.data for one in enter(server.endpoint).pull(subscription, 59, within=40)}
    assert got == {given: data for given, data in sent.items() if data != b"00020|" * 800}, "all but the rotten one"
