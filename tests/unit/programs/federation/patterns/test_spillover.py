"""Tasks of the pattern spillover: both directions, and what is wrong with a task, by place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.federation.flow_options import reading, writing
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.spec import Runtime, parse

T = "projects/factory/topics/"


def links(folder: Path, **keys: Any) -> list[Any]:
    task = {"pattern": "spillover", "between": ["a", "b"], "project": "factory", "queues": ["jobs"], **keys}
    clusters = {name: {"endpoint": f"{name}:1"} for name in "ab"}
    return links_of(parse({"version": 1, "clusters": clusters, "tasks": {"one": task}}, folder))


def test_dead_letters_go_to_the_other_queue_in_both_directions(tmp_path: Path) -> None:
    found = links(tmp_path, queues=["jobs", "mail"], auxiliary="{queue}-twice")
    flows = [flow for link in found for flow in link.flows([T + one for one in ("jobs", "jobs-dead", "mail-dead")])]
    assert [(one.name, one.link.target.name, one.source_topic, one.target_topic) for one in flows] == [
        ("one.a.jobs.jobs-dead", "b", T + "jobs-dead", T + "jobs"),
        ("one.b.jobs.jobs-dead", "a", T + "jobs-dead", T + "jobs"),
        ("one.a.mail.mail-dead", "b", T + "mail-dead", T + "mail"),
        ("one.b.mail.mail-dead", "a", T + "mail-dead", T + "mail"),
    ]
    assert all(
        "notVisited" not in reading(one.link, Runtime(tmp_path), "flows.json") for one in flows
    )  # what failed at both goes back
    assert all("here" not in writing(one.link, "flows.json", tmp_path) for one in flows)
    assert found[0].steps.topics == (T + "jobs-twice",)
    assert found[0].steps.summary == (
        "to factory/jobs-twice where attributes['replicated'] IS NOT NULL; replicated = 1"
    )


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ({"between": ["a", "a"]}, "between"),
        ({"between": ["a", "c"]}, "between"),
        ({"queues": []}, "queues"),
        ({"dead_letters": "dead"}, "dead_letters"),
        ({"auxiliary": "{queue}-dead"}, "auxiliary"),
        ({"auxiliary": "{queue}/x"}, "auxiliary"),
        ({"dead_letters": "{queue}"}, "auxiliary"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, keys: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        links(tmp_path, **keys)
    assert caught.value.field.startswith(f"tasks.one.{place}")
