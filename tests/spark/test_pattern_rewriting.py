"""What Python does to messages on Spark: formats and keys of `normalise`, and the label of a flow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from examples.federation import play
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.spec import load
from syncpoint.programs.federation.steps.labelling import Label
from syncpoint.programs.federation.steps.payload_keys import KeyringPlace
from syncpoint.programs.federation.transform import prepared
from tests.spark.test_pattern_steps import SCHEMA

pytestmark = pytest.mark.shows("patterns")


def test_an_example_is_normalised_and_encrypted_anew(spark: SparkSession, tmp_path: Path) -> None:
    file = play.prepare("normalise", tmp_path, dict.fromkeys(("eu", "us"), "127.0.0.1:1"))
    (link,) = links_of(load(file))
    lines = play.lines(tmp_path / "input.jsonl")
    rows = [
        (f"m{n}", 1, n, None, play.data_of(line), line["attributes"], line["key"], "", [])
        for n, line in enumerate(lines)
    ]
    (flow,) = link.flows([lines[0]["topic"]])
    frame = prepared(spark.createDataFrame(rows, SCHEMA).coalesce(1), flow.link, flow)
    frame = Label("region", "eu").apply(frame)
    found: list[Any] = sorted(frame.collect(), key=lambda row: row.offset)
    partner = KeyringPlace(file=str(tmp_path / "partner.keys.json")).load()
    opened = [partner.decrypt(bytes(row.data), row.attributes) for row in found[:4]]
    assert opened == [b'{"id":7,"total":19.5,"currency":"CHF"}'] * 4
    assert [row.attributes["sys.DeadLetterReason"] for row in found[4:]] == ["NormalisationFailed", "DecryptionFailed"]
    assert [row.topic.endswith("-invalid") for row in found] == [False] * 4 + [True] * 2
    assert [bytes(row.data) for row in found[4:]] == [play.data_of(line) for line in lines[4:]]
    assert {row.attributes["region"] for row in found} == {"eu"}
