"""What a flow's source is reported: blocks where nothing changes, columns where something does, bounds of a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_pubsub.options import READ, WRITE, Options
from pyspark_pubsub.schema import source_schema
from syncpoint.programs.federation.flow_options import reading, writing
from syncpoint.programs.federation.flow_plan import FederationLink, Flow
from syncpoint.programs.federation.spec import FederatedCluster, FieldChange, Runtime
from syncpoint.programs.federation.transform import CARRIED


def flow(change: FieldChange) -> Flow:
    link = FederationLink(
        "l", "replicate", FederatedCluster("a", "a:1"), FederatedCluster("b", "b:1"), "p", "p", change=change
    )
    return Flow("l.t", link, "projects/p/topics/t", "projects/p/topics/t")


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        (FieldChange(), ("source", "block")),
        (FieldChange(start="latest", loss="accept"), ("source", "block")),
        (FieldChange(where="true"), CARRIED),
        (FieldChange(select={"data": "upper(data)"}), CARRIED),
        (FieldChange(python="m:f"), CARRIED),
    ],
)
def test_only_what_changes_is_read_by_row(change: FieldChange, columns: tuple[str, ...], tmp_path: Path) -> None:
    link, runtime = flow(change).link, Runtime(tmp_path, max_rows=7, max_bytes=1000)
    options = Options(reading(link, runtime, tmp_path / "flows.json"), READ)
    assert tuple(source_schema(options["columns"]).fieldNames()) == columns
    assert (options["maxRowsPerTrigger"], options["maxBytesPerTrigger"]) == (7, 1000)
    assert options["failOnDataLoss"] == (change.loss == "fail")
    shared = Options(reading(link, runtime, "flows.json", shared=True), READ)
    assert tuple(source_schema(shared["columns"]).fieldNames()) == (*columns, "flow")
    written = Options(writing(link, "flows.json", tmp_path), WRITE)
    assert (written["flows"], written["via"], written["here"]) == ("flows.json", "a", "b")
