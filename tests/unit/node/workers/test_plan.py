"""What workers are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.log.storage.settings import StorageSettings
from syncpoint.node.note import WORKERS_NOTE, noted_workers
from syncpoint.node.settings import ServeSettings
from syncpoint.node.workers.plan import Plan


def test_workers_are_processes_of_one_cluster() -> None:
    made = Plan(ServeSettings(workers=3, disks=(Path("a"), Path("b"), Path("c"))), "127.0.0.1:1", "127.0.0.1:8085")
    plan = Plan.decode(made.encode().decode())
    assert plan == made
    assert all(path.is_absolute() for path in plan.disks.values())
    settings = plan.cluster()
    assert settings.classes["default"].disks == 3
    assert settings.metadata == "127.0.0.1:1"
    first, last = plan.process(1), plan.process(3)
    assert (first.name, last.name) == ("worker-1", "worker-3")
    assert "router" in first.roles
    assert "router" not in last.roles
    assert {"publish-forwarder", "subscribe-forwarder", "proxy"} <= set(last.roles)
    assert first.public == last.public == "127.0.0.1:8085"


@pytest.mark.parametrize("required", [False, True])
def test_workers_know_whether_disks_are_required(required: bool) -> None:
    settings = ServeSettings(workers=2, disks=(Path("a"),), storage=StorageSettings(require_disks=required))
    assert Plan(settings, "127.0.0.1:1", "127.0.0.1:8085").cluster().storage.require_disks is required


def test_the_note_of_a_folder(tmp_path: Path) -> None:
    assert noted_workers(tmp_path) == 0
    (tmp_path / WORKERS_NOTE).write_text('{"workers": 4}')
    assert noted_workers(tmp_path) == 4
    (tmp_path / WORKERS_NOTE).write_text("?")
    with pytest.raises(FailedPrecondition, match="--workers"):
        noted_workers(tmp_path)
