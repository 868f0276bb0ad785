"""Four servers in a ring and in a chain: each has the union, once; `federation run --once` ends when all is there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from syncpoint.programs.federation.sparks import python_env
from syncpoint.testing.rigs.log_oracle import LogComparison, disordered
from tests.spark.federation_kit import name_of, sites

pytestmark = pytest.mark.timeout(900)

CLUSTERS = ["a", "b", "c", "d"]


def test_a_ring_and_a_chain_of_four(tmp_path: Path, record: Callable[..., None]) -> None:
    begun = time.monotonic()
    with sites("abcd", tmp_path) as made:
        for project in ("ring", "line"):
            for number, site in enumerate(made.values()):
                topic = site.topic("travels", f"fed-{project}")
                site.publish(topic, range(1000 * number, 1000 * number + 50))
        content = {
            "version": 1,
            "clusters": {name: {"endpoint": site.server.endpoint} for name, site in made.items()},
            "namespaces": {
                "fed-ring": {"clusters": CLUSTERS, "links": "ring"},
                "fed-line": {"clusters": CLUSTERS, "links": "chain"},
            },
            "runtime": {"master": "local[2]", "state": "state"},
        }
        file = tmp_path / "federation.yaml"
        file.write_text(yaml.safe_dump(content))
        command = [sys.executable, "-m", "syncpoint.programs.cli", "federation", "run", str(file), "--once", "--quiet"]
        env = os.environ | {"PYTHONPATH": python_env()["PYTHONPATH"]}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        for project, what in (("ring", "a ring of four"), ("line", "a chain of four")):
            topic = name_of("travels", f"fed-{project}")
            logs = {name: site.log(topic) for name, site in made.items()}
            originals = [one for log in logs.values() for one in log if not one.origin]
            wanted = {one.message_id: one for one in originals}
            assert len(wanted) == 200
            for name, log in logs.items():
                found = {one.message_id for one in log}
                twice = len(log) - len(found)
                changed = sum(wanted[one.message_id].content != one.content for one in log)
                verdict = LogComparison(
                    200, len(log), 200 - len(found), twice, changed, 0, len(disordered(originals, log))
                )
                record(f"{what}, at {name}", begun, verdict, "the union of all")
                assert verdict.exact, (project, name)
                assert all(one.visited[:1] == (one.origin,) and name not in one.visited for one in log if one.origin)
