"""Restarting one process by the operator's command."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.programs.rollout.fleet import Fleet
from syncpoint.programs.rollout.operated import OperatedEnvironment
from syncpoint.programs.rollout.rollout_file import parse
from syncpoint.programs.rollout.rollout_plan import RolloutPlan
from tests.kit.rollout_plans import COMMIT, content, write_clusters

SHOW = "import json, sys; open('given.json', 'w').write(json.dumps(sys.argv[1:]))"
WORDS = ["{process}", "{roles}", "{host}", "{version}", "{program}", "{settings}"]


def made(folder: Path, *command: str) -> tuple[RolloutPlan, OperatedEnvironment]:
    write_clusters(folder)
    found: dict[str, Any] = content(
        release={"version": "2.0", "commit": COMMIT, "program": ["/opt/2.0"], "settings": {"storage": {"hung_s": 12}}}
    )
    found["environments"]["production"]["restart"] = list(command)
    manifest = parse(found, folder)
    plan = RolloutPlan(manifest, {name: Fleet(one) for name, one in manifest.environments.items()})
    return plan, OperatedEnvironment(plan.fleets["production"], 20.0)


def test_the_command_is_given_everything_and_the_file_is_there(tmp_path: Path) -> None:
    plan, operated = made(tmp_path, sys.executable, "-c", SHOW, *WORDS)
    assigned = plan.release("production", plan.steps[-1])
    assert not assigned.settings.exists()
    asyncio.run(operated.restart("proxy-2", assigned))
    given = json.loads((tmp_path / "production" / "given.json").read_text())
    assert given == ["proxy-2", "proxy", "127.0.0.1", "2.0", "/opt/2.0", str(assigned.settings)]
    assert assigned.settings.exists()


def test_a_command_that_fails_says_what_it_printed(tmp_path: Path) -> None:
    plan, operated = made(tmp_path, sys.executable, "-c", "print('no such host'); raise SystemExit(7)")
    with pytest.raises(Unavailable, match=r"proxy-2 could not be restarted.*exited with code 7: no such host"):
        asyncio.run(operated.restart("proxy-2", plan.before("production")))
    plan, operated = made(tmp_path, str(tmp_path / "nothing"))
    with pytest.raises(Unavailable, match="No such file"):
        asyncio.run(operated.restart("proxy-2", plan.before("production")))


def test_a_local_process_that_was_never_started_here_is_left_alone(tmp_path: Path) -> None:
    plan, _ = made(tmp_path, "true")
    operated = OperatedEnvironment(plan.fleets["staging"], 20.0)
    with pytest.raises(Unavailable, match="did not start it"):
        asyncio.run(operated.restart("proxy-1", plan.before("staging")))


def test_of_processes_that_are_not_there_nothing_is_known(tmp_path: Path) -> None:
    _, operated = made(tmp_path, "true")
    counters = asyncio.run(operated.counters())
    assert set(counters.values()) == {None}
    assert len(counters) == 13
