"""Names and contents of exported files."""

from __future__ import annotations

import io
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import fsspec
import pytest

from syncpoint.broker.export.bucket_files import UNFINISHED, BucketFile, object_path, put_whole, remove_left
from syncpoint.broker.export.contents import Contents, SchemaUnusable, TopicAvro
from syncpoint.broker.export.object_names import bad_format, object_name
from syncpoint.broker.inner.lent import Lent
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.wire.protobuf.messages import pubsub

WHEN = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
RECORD = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}


def lent(*data: bytes, key: str = "") -> list[Lent]:
    return [
        Lent(
            f"a{number}",
            CopyId(1, number, 0),
            pubsub.PubsubMessage(data=one, message_id=f"m{number}", attributes={"k": "v"}, ordering_key=key),
        )
        for number, one in enumerate(data)
    ]


def content_of(
    config: pubsub.CloudStorageConfig, subscription: str, messages: list[Lent], topic: TopicAvro | None = None
) -> tuple[bytes, frozenset[CopyId]]:
    return Contents(config, subscription, topic).piece(messages)


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
    assert unfit == {CopyId(1, 1, 0), CopyId(1, 2, 0)}
    data, unfit = content_of(config, "s", lent(b'{\n  "n": 7\n}\n'), topic)
    assert (list(fastavro.reader(io.BytesIO(data))), unfit) == ([{"n": 7}], frozenset()), "over several lines"
    config.avro_config.write_metadata = True
    data, unfit = content_of(config, "s", lent(b"\x0e", b"\x0e\x00"), TopicAvro(json.dumps(RECORD), True, topic.older))
    (found,) = fastavro.reader(io.BytesIO(data))
    assert (found["n"], found["message_id"], unfit) == (7, "m0", {CopyId(1, 1, 0)})
    assert content_of(config, "s", lent(b"{}"), topic) == (b"", frozenset({CopyId(1, 0, 0)}))
    for bad in ("int", {**RECORD, "fields": [{"name": "message_id", "type": "int"}]}):
        with pytest.raises(SchemaUnusable):
            content_of(config, "s", lent(b"7"), TopicAvro(json.dumps(bad), False, topic.older))


@pytest.mark.parametrize("avro", [False, True])
def test_pieces_of_a_file_are_the_file(avro: bool) -> None:
    config = pubsub.CloudStorageConfig()
    if avro:
        config.avro_config.SetInParent()
    contents = Contents(config, "s")
    data = b"".join(contents.piece(lent(*part))[0] for part in ([b"a", b"b"], [], [b""], [b"c"]))
    if avro:
        assert [one["data"] for one in fastavro.reader(io.BytesIO(data))] == [b"a", b"b", b"", b"c"]
    else:
        assert data == b"a\nb\n\nc"


def test_a_file_has_its_name_when_it_is_whole(tmp_path: Path) -> None:
    system = fsspec.filesystem("file")
    for written in (True, False):
        file = BucketFile(lambda: (system, str(tmp_path)), "x/.././name", Contents(pubsub.CloudStorageConfig(), "s"))
        file.add(lent(b"a"), last=False)
        (unfinished,) = (tmp_path / UNFINISHED).iterdir()
        assert [path.name for path in tmp_path.iterdir()] == [UNFINISHED]
        if written:
            file.add(lent(b"b"), last=True)
            assert (tmp_path / "x" / "%2E%2E" / "%2E" / "name").read_bytes() == b"a\nb"
            shutil.rmtree(tmp_path / "x")
        else:
            file.discard()
        assert not unfinished.exists()


class KeptBack(io.BytesIO):
    """A file on a full disk: what it has kept in memory cannot be written, and is lost when it is closed."""

    def close(self) -> None:
        if not self.closed:
            super().close()
            raise OSError(28, "No space left on device")


def test_what_a_full_disk_did_not_take_is_discarded(tmp_path: Path) -> None:
    system = fsspec.filesystem("file")
    file = BucketFile(lambda: (system, str(tmp_path)), "name", Contents(pubsub.CloudStorageConfig(), "s"))
    file.add(lent(b"a"), last=False)
    file._open.close()
    file._open = KeptBack()
    with pytest.raises(OSError):
        file.discard()
    assert list((tmp_path / UNFINISHED).iterdir()) == []


@pytest.mark.parametrize("name", [f"{UNFINISHED}/x", f"{UNFINISHED}/a/x", "/.syncpoint-check//x"])
def test_no_object_lies_where_unfinished_files_do(tmp_path: Path, name: str) -> None:
    system = fsspec.filesystem("file")
    put_whole(system, str(tmp_path), name, b"stays")
    assert remove_left(system, str(tmp_path), 1e12) == 0
    put_whole(system, str(tmp_path), ".syncpoint-check", b".")
    (path,) = tmp_path.rglob("x")
    assert path.read_bytes() == b"stays"


def test_no_two_objects_have_one_name_for_what_looks_like_a_version() -> None:
    found = {object_path("far/below", object_name("a?versionId=", "", "", WHEN, bytes([n] * 16))) for n in range(3)}
    assert len({one.partition("?versionId=")[0] for one in found}) == 3


def test_new_folders_are_synced_with_those_that_hold_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = set()

    def sync(descriptor: int, real: Any = os.fsync) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    put_whole(fsspec.filesystem("file"), str(tmp_path), "a/b/c", b"x")
    assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")} <= synced


def test_what_a_crash_left_is_removed_when_nobody_writes_to_it_any_more(tmp_path: Path) -> None:
    system = fsspec.filesystem("file")
    put_whole(system, str(tmp_path), "stays", b"")
    for name, age in (("old", 10), ("new", 0)):
        path = tmp_path / UNFINISHED / name
        path.write_bytes(b"")
        os.utime(path, (1_000 - age, 1_000 - age))
    assert remove_left(system, str(tmp_path), 995) == 1
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["new", "stays"]


def test_of_unfinished_uploads_only_old_ones_of_ours_are_aborted() -> None:
    aborted: list[str] = []
    keys = {f"far/a_{UUID}": 990, f"far/new_{UUID}": 999, "far/theirs": 990, f"elsewhere/{UUID}": 990}

    class Store:
        protocol = "s3"

        def list_multipart_uploads(self, bucket: str) -> list[dict[str, object]]:
            found = {key: datetime.fromtimestamp(begun, UTC) for key, begun in keys.items()}
            return [{"Key": key, "Initiated": begun, "UploadId": "u"} for key, begun in found.items()]

        def call_s3(self, method: str, **what: str) -> None:
            aborted.append(what["Key"])

    assert remove_left(Store(), "bucket/far", 995) == 1
    assert aborted == [f"far/a_{UUID}"]
