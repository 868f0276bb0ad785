"""Rows for a topic with a schema: checked against the revision they name, before any of them is stored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.catalog.metadata.records import CatalogChange, TopicSchema
from syncpoint.catalog.schemas import publishing, stored
from syncpoint.wire.protobuf.messages import pipeline, pubsub
from tests.kit.epochs import ONE, TWO, Harness, frame

pytestmark = pytest.mark.shows("spark")
SCHEMA = "projects/p/schemas/s"
MARKS = {publishing.NAME: SCHEMA, publishing.REVISION: "r1", publishing.ENCODING: "JSON"}
FITS, SHORT = b'{"n": 1}', b"{}"


@pytest.fixture
def checked() -> Iterator[Harness]:
    """Topic ONE has a schema with two revisions, of which it allows the first."""
    harness = Harness()
    harness.subscribe(1, "one", 11)
    harness.subscribe(2, "two", 12)
    topic = harness.publish.catalog.topic(ONE)
    assert topic is not None
    text = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
    schema = stored.Schema(SCHEMA, 7, pubsub.Schema.AVRO, (), 0).with_revision("r1", 1).with_revision("r2", 2)
    definition = pubsub.Schema(type=pubsub.Schema.AVRO, definition=text)
    settings = [schema.setting(), *(stored.definition_setting(SCHEMA, one, definition, b"") for one in ("r1", "r2"))]
    bound = replace(topic, schema=TopicSchema(SCHEMA, 7, 1, last=1))
    harness.change(*map(CatalogChange.put, settings), CatalogChange.put(bound))
    yield harness
    harness.close()


def marked(*rows: tuple[bytes, dict[str, str]]) -> pipeline.StageFrame:
    return frame(ONE, data=[data for data, _ in rows], attributes=[marks for _, marks in rows])


def test_rows_that_fit_the_revision_they_name_are_taken(checked: Harness) -> None:
    frames = marked((FITS, MARKS), (FITS, MARKS)), frame(TWO, data=[b"any"]), marked((FITS, MARKS | {"k": "v"}))
    checked.stage("a", 0, 0, "x", *frames)
    checked.commit_epoch("a", 0, (0, "x"))
    assert checked.data(1) == [FITS] * 3
    assert checked.data(2) == [b"any"]
    assert dict(checked.stored(1)[2].attributes) == MARKS | {"k": "v"}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ((FITS, {}), "must name a revision of projects/p/schemas/s"),
        ((FITS, MARKS | {publishing.NAME: "projects/p/schemas/other"}), "must name a revision of projects/p/schemas/s"),
        ((FITS, MARKS | {publishing.REVISION: "r2"}), "names the revision r2, which the topic does not allow"),
        ((FITS, MARKS | {publishing.ENCODING: "BINARY"}), "must be encoded as JSON"),
        ((SHORT, MARKS), "does not match revision r1 of projects/p/schemas/s: the record R lacks the field n"),
    ],
)
def test_a_row_that_does_not_fit_refuses_its_stage(checked: Harness, row: Any, says: str) -> None:
    with pytest.raises(SyncpointError, match=r"frame 1: rows\[1\]: " + re.escape(says)) as refused:
        checked.stage("a", 0, 0, "x", marked((FITS, MARKS)), marked((FITS, MARKS), row), marked((FITS, MARKS)))
    assert refused.value.code is Code.INVALID_ARGUMENT
    checked.rest()
    assert checked.writer.area.bytes == 0
    assert not checked.writer.state.stages


def test_a_schema_that_changes_while_rows_are_checked_stages_nothing(checked: Harness) -> None:
    """The check itself takes the schema away, as another caller may while a large frame is checked elsewhere."""
    schemas = checked.writer._schemas
    check = schemas.check

    async def changing(topic: Any, pieces: Any) -> None:
        await check(topic, pieces)
        change = checked.publish.catalog.assign([CatalogChange.put(replace(topic, schema=None))])
        checked.publish.catalog.apply(change[0])

    schemas.check = changing  # type: ignore[method-assign]
    with pytest.raises(SyncpointError, match="were changed since") as refused:
        checked.stage("a", 0, 0, "x", marked((FITS, MARKS)))
    assert refused.value.code is Code.FAILED_PRECONDITION
    assert not checked.writer.state.stages


def test_an_epoch_is_committed_by_the_settings_its_rows_were_checked_by(checked: Harness) -> None:
    """Rows staged for a topic that gets another schema, or its first one, are refused once, and taken when they are
    staged again; those of a topic that lost its schema are taken.
    """
    other = checked.publish.catalog.topic(TWO)
    bound = checked.publish.catalog.topic(ONE)
    assert other is not None
    assert bound is not None
    checked.stage("a", 0, 0, "x", marked((FITS, MARKS)))
    checked.change(CatalogChange.put(replace(bound, schema=TopicSchema(SCHEMA, 7, 1))))  # allows both revisions
    with pytest.raises(SyncpointError, match="were changed since") as refused:
        checked.commit_epoch("a", 0, (0, "x"))
    assert refused.value.code is Code.FAILED_PRECONDITION
    assert checked.data(1) == []
    checked.stage("a", 0, 0, "y", marked((FITS, MARKS)))
    checked.commit_epoch("a", 0, (0, "y"))
    assert checked.data(1) == [FITS]
    assert checked.commit_epoch("a", 0, (0, "y")).repeated_epoch

    checked.stage("a", 1, 0, "x", frame(TWO, data=[b"any"]))
    checked.change(CatalogChange.put(replace(other, schema=TopicSchema(SCHEMA, 7, 1))))
    with pytest.raises(SyncpointError, match="were changed since"):
        checked.commit_epoch("a", 1, (0, "x"))
    checked.change(CatalogChange.put(other))
    checked.commit_epoch("a", 1, (0, "x"))
    assert checked.data(2) == [b"any"]


def test_after_a_restart_rows_are_checked_again(checked: Harness) -> None:
    checked.stage("a", 0, 0, "x", marked((FITS, MARKS)))
    checked.restart()
    with pytest.raises(SyncpointError, match="were changed since"):
        checked.commit_epoch("a", 0, (0, "x"))
    checked.stage("a", 0, 0, "y", marked((FITS, MARKS)))
    checked.commit_epoch("a", 0, (0, "y"))
    assert checked.data(1) == [FITS]


def test_sealed_rows_and_those_of_a_deleted_schema_are_refused(checked: Harness) -> None:
    sealed = marked((FITS, MARKS))
    sealed.topic_incarnation = 1
    with pytest.raises(SyncpointError, match="its data is sealed") as refused:
        checked.stage("a", 0, 0, "x", sealed)
    assert refused.value.code is Code.FAILED_PRECONDITION
    schema = stored.find_schema(checked.publish.catalog, SCHEMA)
    assert schema is not None
    checked.change(*stored.deletion(schema))
    with pytest.raises(SyncpointError, match="deleted") as refused:
        checked.stage("a", 0, 0, "y", marked((FITS, MARKS)))
    assert refused.value.code is Code.NOT_FOUND
