"""What programs that share a federation tell each other, and what of it a state folder takes."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument
from syncpoint.programs.federation import failover
from syncpoint.programs.federation.failover import FailoverPlaces
from syncpoint.programs.federation.shared_run import SharedFederations, SharedRun, read_state, state_of, take
from syncpoint.programs.federation.spec import parse
from syncpoint.programs.federation.state import StateFolder

pytestmark = pytest.mark.shows("federation")

PLACES = {"task": "orders", "stage": "secondary", "publishers": "us", "consumers": "us", "changed_at": 1.5}
SHARED: dict[str, Any] = {
    "version": 1,
    "clusters": {"a": {"endpoint": "a:1"}},
    "tasks": {},
    "runtime": {"shared": "projects/shop/federations/main"},
}


def test_a_folder_says_what_was_decided_elsewhere(tmp_path: Path) -> None:
    here, there = StateFolder(tmp_path / "here"), StateFolder(tmp_path / "there")
    here.pause("shop.a-b.x")
    here.pause("shop.a-b.y")
    failover.save(here.path, FailoverPlaces(**PLACES))
    there.pause("shop.a-b.z")
    take(there, read_state(json.dumps(state_of(here))))
    assert there.paused() == {"shop.a-b.x", "shop.a-b.y"}
    assert failover.load_places(there.path, "orders") == FailoverPlaces(**PLACES)
    assert state_of(there) == state_of(here)
    take(there, read_state(""))
    assert there.paused() == frozenset()


@pytest.mark.parametrize(
    "state",
    [
        {"paused": ["../../etc/passwd"]},
        {"paused": ["..", "."]},
        {"paused": ".hidden"},
        {"failover": {"orders": {**PLACES, "task": "../x"}}},
        {"failover": {"orders": {**PLACES, "stage": "moon"}}},
        {"failover": {"orders": {}}},
        [],
        "no JSON",
    ],
)
def test_a_state_that_names_no_flow_is_refused(state: Any) -> None:
    text = state if isinstance(state, str) else json.dumps(state)
    with pytest.raises(FailedPrecondition, match="cannot be read"):
        read_state(text)


def test_files_are_not_shared(tmp_path: Path) -> None:
    assert parse(SHARED, tmp_path).runtime.shared == "projects/shop/federations/main"
    with pytest.raises(InvalidArgument, match="only the state folder has how far"):
        parse({**SHARED, "streams": {"inbox": {"files": {"path": "in", "format": "text"}}}}, tmp_path)
    with pytest.raises(InvalidArgument, match="projects/PROJECT/federations/NAME"):
        parse({**SHARED, "runtime": {"shared": "main"}}, tmp_path)


def test_two_programs_of_one_host_name_and_process_number_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As containers at two sites: one that took the other for itself would take its term away."""
    monkeypatch.setattr("socket.gethostname", lambda: "federation-0")
    federation = parse(SHARED, tmp_path)
    runs = [
        SharedRun(SharedFederations(federation), StateFolder(tmp_path), tmp_path / "f.yaml", threading.Event())
        for _ in range(2)
    ]
    assert len({one.term.name for one in runs}) == 2
    assert all(one.term.name.startswith("federation-0-") for one in runs)
