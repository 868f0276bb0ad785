"""Three disks, one of which is lost, spoiled or full while clients work: nothing is lost, publishing goes on, it heals.

A disk is a folder. Where a disk has to be full or read-only it is a small file system of its own, which needs root.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
import time

import pytest

from syncpoint.testing.rigs.official import bodies, eventually

pytestmark = pytest.mark.shows("disks")


@contextlib.contextmanager
def small_disk(folder, megabytes, kind="ext4"):
    """A file system of its own at `folder`: ext4 in a file, or tmpfs (fast, so that it is full in a moment)."""
    folder.mkdir(parents=True)
    if kind == "tmpfs":
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], check=True)
    else:
        image = folder.with_suffix(".img")
        with image.open("wb") as file:
            file.truncate(megabytes * 1024 * 1024)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def make_read_only(folder):
    """As ext4 does by itself when its journal fails: read-only from now on, also for files that are open."""
    subprocess.run(["mount", "-o", "remount,abort", folder], check=True)


def make_dead(folder):
    """Every access to the file system is an I/O error from now on."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.ioctl(handle, 0x8004587D, struct.pack("I", 2))  # FS_IOC_SHUTDOWN, without flushing the journal
    finally:
        os.close(handle)


def can_mount():
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


needs_mount = pytest.mark.skipif(not can_mount(), reason="making a small file system needs root")


def publish_all(space, topic, count, size=1000, each=50):
    """Publish `count` messages in batches; every one must be confirmed. Returns id -> body."""
    kept = {}
    for start in range(0, count, each):
        data = [b"%08d" % number + b"x" * size for number in range(start, min(start + each, count))]
        kept.update(zip(space.publish(topic, *data), data, strict=True))
    return kept


def receive_all(space, subscription, expected, within=60):
    """Receive until everything expected came; each with its bytes."""
    got = {}
    end = time.monotonic() + within
    while not expected.keys() <= got.keys():
        assert time.monotonic() < end, f"{len(expected.keys() - got.keys())} of {len(expected)} never came"
        fresh = space.pull_once(subscription, wait=3)
        if fresh:
            got |= {one.message.message_id: one.message.data for one in fresh}
            space.ack(subscription, *fresh)
    assert {one: got[one] for one in expected} == expected


def trio(tmp_path):
    return [tmp_path / f"disk-{number}" for number in range(3)]


def test_a_disk_deleted_while_publishing_loses_nothing(boot, enter, tmp_path):
    disks = trio(tmp_path)
    server = boot(tmp_path / "data", disks=disks)
    space = enter(server.endpoint)
    topic, subscription = space.pair()
    expected = publish_all(space, topic, 500)
    shutil.rmtree(disks[0])
    expected |= publish_all(space, topic, 500)
    server.restart(hard=True)
    receive_all(enter(server.endpoint), subscription, expected)


@pytest.mark.parametrize("lost", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_any_one_disk_may_be_lost_while_the_server_is_down(boot, enter, tmp_path, lost):
    disks = trio(tmp_path)
    server = boot(tmp_path / "data", disks=disks)
    space = enter(server.endpoint)
    topic, subscription = space.pair(ack_deadline_seconds=600)
    expected = publish_all(space, topic, 300)
    acked = space.pull(subscription, 100, most=100)
    space.ack(subscription, *acked)
    for one in acked:
        expected.pop(one.message.message_id)
    server.kill9()
    shutil.rmtree(disks[lost])
    server.start()
    space = enter(server.endpoint)
    receive_all(space, subscription, expected)
    assert not space.peek(subscription)


def used(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_a_lost_disk_is_filled_up_again_so_that_another_one_may_go(boot, enter, tmp_path):
    """The replaced disk must hold a copy of everything before the next one fails."""
    disks = trio(tmp_path)
    server = boot(tmp_path / "data", disks=disks)
    space = enter(server.endpoint)
    topic, subscription = space.pair()
    expected = publish_all(space, topic, 500, size=5000)
    server.kill9()
    shutil.rmtree(disks[0])
    server.start()
    expected |= publish_all(enter(server.endpoint), topic, 100)
    eventually(lambda: healed(server), within=60, what="all disks are whole again")
    server.kill9()
    shutil.rmtree(disks[1])
    server.start()
    receive_all(enter(server.endpoint), subscription, expected)


def rows(server):
    """What `syncpoint disks list` says."""
    shown = subprocess.run(
        [sys.executable, "-m", "syncpoint.programs.cli", "disks", "list", "--format", "json"],
        capture_output=True,
        text=True,
        check=False,  # it fails when a disk does
        env=os.environ | {"PUBSUB_EMULATOR_HOST": server.endpoint},
    )
    return json.loads(shown.stdout)["disks"]


def states(server):
    return {row["path"]: row["state"] for row in rows(server)}


def healed(server):
    """Three good disks, all at the same position."""
    seen = rows(server)
    return len(seen) == 3 and {row["state"] for row in seen} == {"OK"} and len({row["position"] for row in seen}) == 1


@needs_mount
@pytest.mark.parametrize("spoil", [make_read_only, make_dead])
@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.long), 2])
def test_a_disk_that_fails_under_load_loses_nothing(boot, enter, tmp_path, spoil, number):
    disks = trio(tmp_path)
    with small_disk(disks[number], 512):
        server = boot(tmp_path / "data", disks=disks)
        space = enter(server.endpoint)
        topic, subscription = space.pair()
        expected = publish_all(space, topic, 300)
        spoil(disks[number])
        expected |= publish_all(space, topic, 2000, size=20_000)
        eventually(lambda: states(server)[str(disks[number])] != "OK", what="the failure is shown")
        receive_all(space, subscription, expected)
        expected = publish_all(space, topic, 100)
        server.kill9()
    server.start()  # the file system is unmounted: an empty folder is what is left of the disk
    space = enter(server.endpoint)
    receive_all(space, subscription, expected)
    eventually(lambda: healed(server), within=60, what="all disks are whole again")


@needs_mount
def test_a_full_disk_loses_nothing_and_publishing_goes_on(boot, enter, tmp_path):
    disks = trio(tmp_path)
    with small_disk(disks[2], 160):
        server = boot(tmp_path / "data", disks=disks)
        space = enter(server.endpoint)
        topic, subscription = space.pair()
        expected = publish_all(space, topic, 4000, size=60_000, each=100)
        receive_all(space, subscription, expected, within=90)
        server.restart(hard=True)
        space = enter(server.endpoint)
        ids = space.publish(topic, b"after")
        assert [one.message.message_id for one in space.pull(subscription, within=30)] == ids
        server.terminate()


@needs_mount
@pytest.mark.parametrize("kind", ["ext4", pytest.param("tmpfs", marks=pytest.mark.long)])
def test_when_all_disks_are_full_publishing_is_refused_acks_work_and_it_resumes(boot, enter, tmp_path, kind):
    with contextlib.ExitStack() as stack:
        disks = [stack.enter_context(small_disk(folder, 400, kind)) for folder in trio(tmp_path)]
        server = boot(tmp_path / "data", disks=disks)
        space = enter(server.endpoint)
        topic, subscription = space.pair(ack_deadline_seconds=600)
        expected, refusal = {}, None
        body = b"x" * 1_000_000
        for _ in range(1000):
            try:
                ids = space.publish(topic, *[body] * 5)
            except Exception as error:
                refusal = error
                break
            expected.update(dict.fromkeys(ids, body))
        assert refusal is not None, "a gigabyte does not fit on 384 MB"
        assert refusal.code().name in ("RESOURCE_EXHAUSTED", "UNAVAILABLE"), refusal
        receive_all(space, subscription, expected, within=90)
        eventually(lambda: resumed(space, topic), within=60, what="publishing resumes by itself")
        server.terminate()


def fill_up(folder):
    """Somebody else takes the file system to the last byte."""
    size = 1 << 20
    with (folder / "others").open("ab", buffering=0) as file:
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2


@needs_mount
@pytest.mark.parametrize("when", ["seconds after the start", pytest.param("later", marks=pytest.mark.long)])
def test_without_one_free_byte_acks_free_room_and_a_restart_works(boot, enter, tmp_path, when):
    with small_disk(tmp_path / "disk", 500, "tmpfs") as disk:
        server = boot(tmp_path / "data", disks=[disk])
        space = enter(server.endpoint)
        topic, subscription = space.pair(ack_deadline_seconds=600)
        expected = publish_all(space, topic, 200, size=1_000_000, each=5)
        if when == "later":
            time.sleep(10)  # spares are made in the meantime
        fill_up(disk)
        receive_all(space, subscription, dict(list(expected.items())[:100]), within=60)
        fill_up(disk)
        server.restart(hard=True)
        space = enter(server.endpoint)
        kept = {one: body for one, body in expected.items() if one not in list(expected)[:100]}
        fill_up(disk)
        receive_all(space, subscription, kept, within=60)
        (disk / "others").unlink()
        eventually(lambda: resumed(space, topic), within=60, what="publishing resumes by itself")
        server.terminate()


def resumed(space, topic):
    try:
        return space.publish(topic, b"again")
    except Exception as error:
        assert error.code().name in ("RESOURCE_EXHAUSTED", "UNAVAILABLE")  # noqa: PT017
        return None


@pytest.mark.long
def test_disk_usage_falls_after_acknowledgement(boot, enter, tmp_path):
    """Deletion is asynchronous: the space comes back some time after the acks, all but a few segments kept ready."""
    server = boot(tmp_path / "data")
    space = enter(server.endpoint)
    topic, subscription = space.pair()
    for _ in range(12):
        receive_all(space, subscription, publish_all(space, topic, 400, size=100_000, each=50))
    assert used(tmp_path / "data") > 0
    eventually(lambda: used(tmp_path / "data") < 400_000_000, within=90, what="480 MB of dead messages are deleted")


@pytest.mark.long
def test_two_servers_exchange_messages_and_no_id_is_given_twice(boot, enter):
    first, second = boot(), boot()
    spaces = [enter(first.endpoint), enter(second.endpoint)]
    pairs = [space.pair() for space in spaces]
    ids = [set(), set()]
    for _ in range(20):
        for index, (space, (topic, _)) in enumerate(zip(spaces, pairs, strict=True)):
            ids[index] |= set(space.publish(topic, b"born at %d" % index, b"again"))
    for index in (0, 1):  # everything born at one is published at the other as well
        here, there = spaces[index], spaces[1 - index]
        got = here.pull(pairs[index][1], 40, ack=True)
        ids[1 - index] |= set(there.publish(pairs[1 - index][0], *bodies(got[:40])))
    assert len(ids[0]) >= 80
    assert len(ids[1]) >= 80
    assert not ids[0] & ids[1]
    first.restart(hard=True)
    after = enter(first.endpoint).publish(pairs[0][0], b"after a crash")
    assert not set(after) & (ids[0] | ids[1])


def test_folders_of_another_server_under_a_running_one_stay_as_they_are(boot, enter, tmp_path):
    """A restore to the wrong place: the old server stops, whatever it was about to repair."""

    def content(folder):
        return {
            path.relative_to(folder): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != "lock"
        }

    theirs = boot(tmp_path / "their-data", disks=[tmp_path / f"their-{number}" for number in range(3)])
    space = enter(theirs.endpoint)
    publish_all(space, space.pair()[0], 2000)
    theirs.terminate()
    disks = trio(tmp_path)
    ours = boot(tmp_path / "data", disks=disks)
    space = enter(ours.endpoint)
    publish_all(space, space.pair()[0], 1000)
    for number, disk in enumerate(disks):
        disk.rename(disk.with_suffix(".away"))
        shutil.copytree(tmp_path / f"their-{number}", disk)
    before = [content(disk) for disk in disks]
    eventually(lambda: "too few working disks" in ours.logs(), what="the disks are noticed to be gone")
    ours.kill9()
    assert [content(disk) for disk in disks] == before
