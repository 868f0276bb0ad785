"""What workers are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.model.errors import FailedPrecondition
from syncpoint.node.note import WORKERS_NOTE, noted_workers
from syncpoint.node.settings import ServeSettings
from syncpoint.node.workers.plan import Plan, plan_of
from syncpoint.storage.settings import StorageSettings

NAMES = st.text("abc-/ é", min_size=1, max_size=8)


@given(
    workers=st.integers(1, 200),
    disks=st.lists(NAMES, min_size=1, max_size=5, unique=True),
    tls=st.none() | NAMES,
    durability=st.sampled_from(["sync", "async", "memory"]),
)
def test_a_plan_survives_the_command_line(workers: int, disks: list[str], tls: str | None, durability: str) -> None:
    cert = None if tls is None else Path(tls)
    settings = ServeSettings(
        workers=workers, disks=tuple(map(Path, disks)), durability=durability, tls_cert=cert, tls_key=cert
    )
    plan = plan_of(settings, "127.0.0.1:1", 8085)
    assert Plan.decode(plan.encode()) == plan
    assert [path.is_absolute() for path in plan.disks.values()] == [True] * len(disks)


def test_workers_are_processes_of_one_cluster() -> None:
    plan = plan_of(ServeSettings(workers=3, disks=(Path("a"), Path("b"), Path("c"))), "127.0.0.1:1", 8085)
    settings = plan.settings()
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
    plan = Plan.decode(plan_of(settings, "127.0.0.1:1", 8085).encode())
    assert (plan.require_disks, plan.settings().storage.require_disks) == (required, required)


def test_the_note_of_a_folder(tmp_path: Path) -> None:
    assert noted_workers(tmp_path) == 0
    (tmp_path / WORKERS_NOTE).write_text('{"workers": 4}')
    assert noted_workers(tmp_path) == 4
    (tmp_path / WORKERS_NOTE).write_text("?")
    with pytest.raises(FailedPrecondition, match="--workers"):
        noted_workers(tmp_path)
