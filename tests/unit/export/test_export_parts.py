"""Names and contents of exported files."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import fastavro
import pytest

from syncpoint.export.contents import SchemaUnusable, TopicAvro, content_of
from syncpoint.export.object_names import bad_format, object_name
from syncpoint.push.pusher import Lent
from syncpoint.wire.messages import pubsub

WHEN = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
RECORD = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}


def lent(*data: bytes, key: str = "") -> list[Lent]:
    return [
        Lent(
            f"a{number}",
            pubsub.PubsubMessage(data=one, message_id=f"m{number}", attributes={"k": "v"}, ordering_key=key),
        )
        for number, one in enumerate(data)
    ]


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("", f"2026-03-04T05:06:07+00:00_{UUID}"),
        ("YYYY-MM-DD/hh_mm_ssZ", f"2026-03-04/05_06_07Z_{UUID}"),
        ("YY/MM/DD/hh/mm/ss/", f"26/03/04/05/06/07/{UUID}"),
        ("YYYY-MM-DDThh_mm_ss-", f"2026-03-04T05_06_07-{UUID}"),
    ],
)
def test_names(form: str, name: str) -> None:
    assert not form or bad_format(form) == ""
    assert object_name("p/", ".avro", form, WHEN, bytes(range(16))) == f"p/{name}.avro"


@pytest.mark.parametrize(
    "form", ["YY-YYYY-MM-DD-hh-mm-ss", "YYYY-MMM-DD-hh-mm-ss", "YYYY-MM-DD", "YYYY.MM.DD-hh-mm-ss", "YYYYMMDDThhTmmss"]
)
def test_formats_that_are_none(form: str) -> None:
    assert bad_format(form)


def test_text_and_avro() -> None:
    config, messages = pubsub.CloudStorageConfig(), lent(b"a", b"b", key="o")
    assert content_of(config, "s", messages) == (b"a\nb", frozenset())
    config.avro_config.SetInParent()
    data, _ = content_of(config, "s", messages)
    assert list(fastavro.reader(io.BytesIO(data))) == [{"data": b"a"}, {"data": b"b"}]
    config.avro_config.write_metadata = True
    data, _ = content_of(config, "s", messages)
    first = next(iter(fastavro.reader(io.BytesIO(data))))
    assert (first["subscription_name"], first["message_id"], first["publish_time"].year) == ("s", "m0", 1970)
    assert first["attributes"] == {"k": "v", "ordering_key": "o"}


def test_avro_by_the_schema_of_the_topic() -> None:
    config = pubsub.CloudStorageConfig()
    config.avro_config.use_topic_schema = True
    topic = TopicAvro(json.dumps(RECORD), False, lambda revision: None)
    data, unfit = content_of(config, "s", lent(b'{"n": 7}', b"{}", b"\xff"), topic)
    assert list(fastavro.reader(io.BytesIO(data))) == [{"n": 7}]
    assert unfit == {"m1", "m2"}
    config.avro_config.write_metadata = True
    data, unfit = content_of(config, "s", lent(b"\x0e", b"\x0e\x00"), TopicAvro(json.dumps(RECORD), True, topic.older))
    (found,) = fastavro.reader(io.BytesIO(data))
    assert (found["n"], found["message_id"], unfit) == (7, "m0", {"m1"})
    assert content_of(config, "s", lent(b"{}"), topic) == (b"", frozenset({"m0"}))
    for bad in ("int", {**RECORD, "fields": [{"name": "message_id", "type": "int"}]}):
        with pytest.raises(SchemaUnusable):
            content_of(config, "s", lent(b"7"), TopicAvro(json.dumps(bad), False, topic.older))
