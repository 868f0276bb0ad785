"""rollout.yaml, the plan it makes, and what refuses a rollout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from syncpoint.base.model.errors import InvalidArgument, NotFound
from syncpoint.node.cluster.settings import load as load_cluster
from syncpoint.programs.rollout.admission_check import refusals, untested
from syncpoint.programs.rollout.parity import ProcessReport, differences
from syncpoint.programs.rollout.rollout_file import ENVIRONMENTS, Release, load, parse
from tests.kit.rollout_plans import COMMIT, FakeEnvironment, content, planned, write_clusters

EXAMPLE = Path(__file__).parents[4] / "examples" / "rollout" / "rollout.yaml"


def test_the_example_is_read() -> None:
    manifest = load(EXAMPLE)
    assert [one.share for one in manifest.stages] == [0.25, 0.5, 1]
    assert manifest.environments["production"].restart


@pytest.mark.parametrize(
    ("change", "place", "words"),
    [
        ({"speed": 1}, "rollout.yaml", "'speed' was unexpected"),
        ({"release": {"version": "2.0"}}, "release", "'commit' is a required property"),
        ({"release": {"version": "2.0", "commit": "main"}}, "release.commit", "does not match"),
        ({"soak": {"watch": "two days"}}, "soak.watch", "does not match"),
        ({"stages": [{"share": 0.5}]}, "stages", "end with 1"),
        ({"stages": [{"share": 1}, {"share": 0.5}]}, "stages", "must increase"),
        ({"canary": {"share": 1.5}}, "canary.share", "1.5"),
    ],
)
def test_a_mistake_is_refused_with_its_place(change: dict[str, Any], place: str, words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse(content(**change), Path("/"))
    assert place in caught.value.message
    assert words in caught.value.message


def test_a_placeholder_that_stands_for_nothing_is_refused() -> None:
    environments = content()["environments"]
    environments["production"]["restart"] = ["ssh", "{machine}"]
    with pytest.raises(InvalidArgument, match="machine"):
        parse(content(environments=environments), Path("/"))


def test_two_environments_cannot_be_one_cluster() -> None:
    environments = content()["environments"]
    environments["staging"] = environments["production"]
    with pytest.raises(InvalidArgument, match="the same"):
        parse(content(environments=environments), Path("/"))


def test_steps_grow_and_processes_come_in_the_order_of_roles(tmp_path: Path) -> None:
    plan = planned(tmp_path, count=4)
    assert [one.name for one in plan.steps] == ["test", "staging", "soak", "canary", "stage 50%", "stage 100%"]
    before: dict[str, frozenset[str]] = {}
    for step in plan.steps:
        assert all(names <= step.released[name] for name, names in before.items())
        before = dict(step.released)
    assert before == {name: frozenset(fleet.processes) for name, fleet in plan.fleets.items()}
    half = plan.steps[-2].released["production"]
    assert half == {"storage-1", "taker-4", "giver-4", "proxy-4", "taker-1", "giver-1", "proxy-1"}
    assert plan.in_order("production")[:2] == ["storage-1", "taker-1"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"canary": {"processes": ["proxy-9"]}}, "not a production process"),
        ({"canary": {"processes": ["storage-1"]}}, "no storage is left to compare with"),
        ({"canary": {"processes": ["proxy-1"], "share": 0.1}}, "affects only forwarders"),
        ({"release": {"version": "1.0", "commit": COMMIT}}, "already runs"),
        ({"release": {"version": "1.0", "commit": COMMIT, "settings": {"storage": {"hung": 1}}}}, "hung"),
    ],
)
def test_what_the_environments_do_not_allow_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        planned(tmp_path, **change)


def test_a_process_without_metrics_is_refused(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    path = tmp_path / "production" / "cluster.yaml"
    found = yaml.safe_load(path.read_text())
    del found["processes"]["proxy-1"]["metrics"]
    path.write_text(yaml.safe_dump(found))
    with pytest.raises(InvalidArgument, match="process proxy-1 has no key `metrics`"):
        type(plan.fleets["production"])(plan.manifest.environments["production"])
    path.unlink()
    with pytest.raises(NotFound, match=r"environments.production.cluster"):
        type(plan.fleets["production"])(plan.manifest.environments["production"])


def test_settings_are_laid_over_the_file_and_known_by_their_content(tmp_path: Path) -> None:
    plan = planned(tmp_path, release={"version": "1.0", "commit": COMMIT, "settings": {"storage": {"hung_s": 12}}})
    plan.fleets["staging"].write()
    assigned = plan.release("staging", plan.steps[1])
    assert assigned.settings.parent == tmp_path / "staging"
    made = load_cluster(assigned.settings)
    assert made.source == assigned.source
    assert made.source in assigned.settings.name
    assert (made.storage.hung_s, made.name) == (12, "staging")
    assert plan.before("staging").source == load_cluster(tmp_path / "staging" / "cluster.yaml").source


def report(role: str, version: str = "1.0", **given: Any) -> ProcessReport:
    return ProcessReport(role, (role,), version, "source", given or {"auth": True})


def test_environments_are_compared_by_what_their_processes_report() -> None:
    ours = {"p1": report("proxy"), "p2": report("proxy"), "s": report("storage")}
    assert differences("staging", ours, "production", {"p": report("proxy"), "s": report("storage")}) == []
    found = differences("staging", ours, "production", {"p": report("proxy", "1.1"), "r": report("router")})
    assert found == [
        "proxy: version is 1.0 in staging and 1.1 in production",
        "router: runs in production but not in staging",
        "storage: runs in staging but not in production",
    ]
    mixed = {"p": report("proxy", auth=False), "q": report("proxy", auth=True)}
    assert "auth is True in staging and False (proxy), True (proxy) in production" in "".join(
        differences("staging", ours, "production", mixed)
    )
    test, staging = {"p": report("proxy", new={"flag": 1})}, {"p": report("proxy", new={})}
    allowed = differences("test", test, "staging", staging, may_differ=["new"])
    assert allowed == []


def test_who_says_nothing_is_a_difference() -> None:
    one = {"p": report("proxy")}
    assert differences("staging", {"p": None}, "production", one)[0] == (
        "staging: p does not answer, so its version is unknown"
    )
    silent = {"p": ProcessReport("p", ("proxy",), "0.9", "")}
    assert "does not report its settings" in differences("staging", one, "production", silent)[0]


RESULT = {"version": "2.0", "commit": COMMIT + "aa", "changed": False, "whole": True, "outcome": "passed"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"version": "1.9"}, "is for version 1.9, not 2.0"),
        ({"commit": "f" * 40}, "is for commit ffffffffffff"),
        ({"commit": ""}, "is for commit unknown"),
        ({"changed": True}, "uncommitted changes"),
        ({"whole": False}, "covers only some of the tests"),
        ({"outcome": "failed"}, "tests: failed"),
        ({"parts": {"unit": "passed", "integration": "failed"}}, "integration"),
        ({"parts": {}}, "tests: passed"),
        ({"parts": None}, "is not a test result"),
    ],
)
def test_only_a_result_of_just_this_version_counts(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**RESULT, "parts": {"unit": "passed"}, **change}))
    found = " ".join(untested(path, Release("2.0", COMMIT)))
    assert words in found
    assert bool(found) == bool(words)


def test_no_result_is_none(tmp_path: Path) -> None:
    assert "does not exist" in untested(tmp_path / "none.json", Release("2.0", COMMIT))[0]
    (tmp_path / "result.json").write_text("passed")
    assert "is not a test result" in untested(tmp_path / "result.json", Release("2.0", COMMIT))[0]


def test_a_rollout_begins_only_where_all_is_as_the_manifest_says(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    (tmp_path / "result.json").write_text(json.dumps({**RESULT, "parts": {"unit": "passed"}}))
    made = {name: FakeEnvironment(plan, name) for name in ENVIRONMENTS}

    def refused() -> str:
        return "\n".join(
            refusals(plan, {k: one.reports() for k, one in made.items()}, {k: one.problems for k, one in made.items()})
        )

    assert refused() == ""
    made["production"].problems = ["proxy-1 is down"]
    assert refused() == "production is unhealthy: proxy-1 is down"
    made["production"].problems = []
    made["production"].running["proxy-1"] = plan.release("production", plan.steps[-1])
    assert "production: proxy-1 runs version 2.0; `before` has 1.0" in refused()
    made["production"].running["proxy-1"] = plan.before("staging")
    assert "production: proxy-1 runs a different cluster.yaml than `before`" in refused()
    made["production"].running["proxy-1"] = plan.before("production")
    made["test"].given = {"1.0": {"unreleased": True}}
    assert "unreleased is True in test and missing in staging" in refused()
    write_clusters(tmp_path)
