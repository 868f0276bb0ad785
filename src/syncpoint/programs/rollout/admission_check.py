"""Whether a rollout may begin: the tests of just this version passed, and the environments match the manifest.

Place: asked once, before anything is changed, and by `syncpoint rollout plan`.
Promise: a result that is missing, cannot be read, or is of another commit is no result. Every reason is named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from syncpoint.programs.rollout.parity import Reports, differences
from syncpoint.programs.rollout.rollout_file import ENVIRONMENTS, PRODUCTION, STAGING, TEST, Release
from syncpoint.programs.rollout.rollout_plan import RolloutPlan

HOW_TO_TEST = "run all tests on this commit with `make test RESULT=FILE`"


def untested(path: Path, release: Release) -> list[str]:
    """Why the tests of a release do not count as passed. The file is what `tools/test_parts.py --result` writes."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        version, commit, outcome = (str(found[key]) for key in ("version", "commit", "outcome"))
        changed, parts = bool(found["changed"]), {str(name): str(how) for name, how in found["parts"].items()}
        whole = bool(found["whole"])
    except FileNotFoundError:
        return [f"tests: {path} does not exist: {HOW_TO_TEST}"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return [f"tests: {path} is not a test result ({type(error).__name__}: {error}): {HOW_TO_TEST}"]
    problems = []
    if version != release.version:
        problems.append(f"tests: {path} is for version {version}, not {release.version}")
    if not (commit.startswith(release.commit) or (commit and release.commit.startswith(commit))):
        problems.append(f"tests: {path} is for commit {commit[:12] or 'unknown'}, not {release.commit[:12]}")
    if changed:
        problems.append(f"tests: {path} is for a tree with uncommitted changes")
    if not whole:
        problems.append(f"tests: {path} covers only some of the tests: {HOW_TO_TEST}")
    failed = sorted(name for name, how in parts.items() if how != "passed")
    if failed or outcome != "passed" or not parts:
        problems.append(f"tests: {outcome}{': ' + ', '.join(failed) if failed else ''}")
    return problems


def refusals(
    plan: RolloutPlan, reports: Mapping[str, Reports], problems: Mapping[str, Sequence[str]], *, tested: bool = True
) -> list[str]:
    """Why the rollout may not begin; none: it may. `tested`: ask for the tests, too."""
    manifest = plan.manifest
    found = untested(manifest.result, manifest.release) if tested else []
    for name in ENVIRONMENTS:
        found += [f"{name} is unhealthy: {problem}" for problem in problems[name]]
        before = plan.before(name)
        for process, one in reports[name].items():
            if one is None or (one.version, one.source) == (before.version, before.source):
                continue
            if one.version != before.version:
                what = f"version {one.version or 'unknown'}; `before` has {before.version}"
            else:
                what = f"a different cluster.yaml than `before` ({one.source or 'unknown'}, not {before.source})"
            found.append(f"{name}: {process} runs {what}")
    found += differences(STAGING, reports[STAGING], PRODUCTION, reports[PRODUCTION])
    test = differences(
        TEST, reports[TEST], STAGING, reports[STAGING], may_differ=manifest.environments[TEST].may_differ
    )
    return [*found, *(one for one in test if one not in found)]
