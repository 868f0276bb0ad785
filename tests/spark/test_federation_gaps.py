"""Messages that are gone before they were copied stop their flow, until somebody accepts that, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from syncpoint.programs.cli.main import cli
from tests.spark.federation_kit import Site, awaited, name_of, running_job, sites

TOPIC = name_of("forgets")
FLOW = "copy.forgets"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[dict[str, Site]]:
    with sites("ab", tmp_path) as made:
        yield made


def content(pair: dict[str, Site]) -> dict[str, Any]:
    return {
        "version": 1,
        "clusters": {name: {"endpoint": site.server.endpoint} for name, site in pair.items()},
        "tasks": {"copy": {"pattern": "replicate", "from": {"cluster": "a", "topic": TOPIC}, "to": {"cluster": "b"}}},
    }


def forget(source: Site) -> None:
    """The cursor is deleted by hand, and with it goes what only the cursor kept."""
    deleted = CliRunner().invoke(
        cli, ["cursors", "delete", FLOW, "--topic", TOPIC, "--endpoint", source.server.endpoint], prog_name="syncpoint"
    )
    assert deleted.exit_code == 0, deleted.output
    (before,) = source.oracle.positions(TOPIC).sources
    source.publish(TOPIC, range(20, 30))
    source.server.restart(hard=True)  # its segments are closed then, and can be deleted
    awaited(
        lambda: all(one.source != before.source for one in source.oracle.positions(TOPIC).sources), "the source deleted"
    )


def test_a_gap_stops_a_flow_until_it_is_accepted(spark: Any, pair: dict[str, Site], tmp_path: Path) -> None:
    source, target = pair["a"], pair["b"]
    source.api.create_topic({"name": TOPIC})  # which keeps nothing but what somebody has not read
    source.publish(TOPIC, range(20))
    file = tmp_path / "federation.yaml"
    file.write_text(yaml.safe_dump(content(pair)))

    def copied() -> int:
        return len(target.log(TOPIC)) if any(one.name == TOPIC for one in topics()) else 0

    def topics() -> Any:
        return target.api.list_topics({"project": "projects/fed"}).topics

    with running_job(spark, content(pair), tmp_path):
        awaited(lambda: copied() == 20, "the first twenty")
    forget(source)
    source.publish(TOPIC, range(30, 35))
    with running_job(spark, content(pair), tmp_path) as running:
        awaited(lambda: running.state.flows().get(FLOW) and running.state.flows()[FLOW].state == "failed", "a stop")
        assert copied() == 20
        reported = running.state.flows()[FLOW].error
        assert "DataLossError" in reported
        status = CliRunner().invoke(cli, ["federation", "status", str(file)], prog_name="syncpoint")
        assert FLOW in status.output
        accepted = CliRunner().invoke(cli, ["federation", "accept-gap", FLOW, str(file)], prog_name="syncpoint")
        assert accepted.exit_code == 0, accepted.output
        awaited(lambda: copied() == 25, f"what came after the gap; {running.state.flows()}")
    assert [one.data for one in target.log(TOPIC)][-1] == b"a-34"
