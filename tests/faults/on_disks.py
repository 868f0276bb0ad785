"""Scenarios of disks: what reading, writing and syncing say."""

from __future__ import annotations

from tests.faults.stage import Stage, scenario


def disk_of(stage: Stage, storage: str) -> str:
    return f"/{storage.removeprefix('storage-')}-d{stage.chance.randint(1, 3)}/"


@scenario("write-errors")
def _(stage: Stage) -> None:
    """writes to one disk of each cluster give EIO"""
    for storage, faults in stage.net.faults.items():
        faults.set(f"write {disk_of(stage, storage)} 3 -1 eio")
    stage.flowing()
    stage.wait()


@scenario("one-sync-error")
def _(stage: Stage) -> None:
    """one sync gives EIO and all later ones pretend that nothing was"""
    for storage, faults in stage.net.faults.items():
        faults.set(f"sync {disk_of(stage, storage)} 5 1 eio")
    stage.flowing()
    stage.wait(0.7)


@scenario("full-disks")
def _(stage: Stage) -> None:
    """one cluster's disks are full, and one disk of another"""
    first, second = stage.chance.sample(stage.kit.names("storage"), 2)
    stage.net.faults[first].set("write /disks/ 0 -1 enospc", "allocate /disks/ 0 -1 enospc")
    stage.net.faults[second].set(f"write {disk_of(stage, second)} 0 -1 enospc")
    stage.flowing()
    stage.wait()


@scenario("slow-disks")
def _(stage: Stage) -> None:
    """every sync of one cluster takes 400 ms, of one disk of another 3 s"""
    first, second = stage.chance.sample(stage.kit.names("storage"), 2)
    stage.net.faults[first].set("sync /disks/ 0 -1 slow 400")
    stage.net.faults[second].set(f"sync {disk_of(stage, second)} 0 -1 slow 3000")
    stage.flowing()
    stage.wait()


@scenario("lying-disk-and-crash")
def _(stage: Stage) -> None:
    """one disk of each cluster lies about syncing; owners and a storage process are killed"""
    for storage, faults in stage.net.faults.items():
        faults.set(f"sync {disk_of(stage, storage)} 0 -1 lie")
    stage.wait(0.3)
    for name in (stage.owner(), stage.one("storage")):
        stage.kit.local.kill(name)
        stage.wait(0.2)
    stage.flowing()


@scenario("torn-writes")
def _(stage: Stage) -> None:
    """a storage process dies in the middle of a write, another one at a sync"""
    first, second = stage.chance.sample(stage.kit.names("storage"), 2)
    stage.net.faults[first].set(f"write /disks/ {stage.chance.randint(5, 60)} 1 torn")
    stage.wait(0.4)
    stage.net.faults[first].set()
    if stage.kit.local.state(first).state == "down":
        stage.kit.local.start(first)
    stage.net.faults[second].set(f"sync /disks/ {stage.chance.randint(5, 60)} 1 die")
    stage.wait(0.4)
