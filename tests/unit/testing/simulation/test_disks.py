"""Who counts as an intruder at a simulated disk, and who only learns again what became of a command."""

from __future__ import annotations

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.log.diskserver.protocol import CREATE, WRITE, DiskOp, Hello, Request, Status
from syncpoint.testing.simulation.planted_protocol import no_epoch_check
from syncpoint.testing.simulation.simulated_disks import DiskFarm, SimDiskServer


def server() -> SimDiskServer:
    return DiskFarm(SeededRandom(1), ManualClock(), lambda one, other: False).serve("server", ("d",))


def hello(epoch: int) -> Hello:
    return Hello("d", 1, epoch, epoch, "sync", 1, 1)


def request(op: DiskOp, seq: int, path: str = "") -> Request:
    return Request(op, 1, path=path, flags=CREATE | WRITE, seq=seq, epoch=1)


def test_what_was_executed_before_the_claim_may_be_confirmed_again_and_nothing_is_executed() -> None:
    disk = server()
    channel = disk.hello(hello(1))
    assert disk.run(channel, 1, request(DiskOp.OPEN, 1, "file")).status == Status.OK
    synced = disk.run(channel, 1, request(DiskOp.FDATASYNC, 2))
    assert synced.status == Status.OK
    disk.hello(hello(2))
    before = disk.service.syncs
    assert disk.run(channel, 1, request(DiskOp.FDATASYNC, 2)) == synced
    assert disk.run(channel, 1, request(DiskOp.FDATASYNC, 3)).status == Status.FENCED
    assert (disk.service.syncs, disk.farm.intruders) == (before, [])


def test_what_is_executed_after_the_claim_is_an_intrusion() -> None:
    with no_epoch_check():
        disk = server()
        channel = disk.hello(hello(1))
        disk.run(channel, 1, request(DiskOp.OPEN, 1, "file"))
        disk.hello(hello(2))
        disk.run(channel, 1, request(DiskOp.OPEN, 2, "file"))
        assert len(disk.farm.intruders) == 1
