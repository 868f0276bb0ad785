"""The manifest of an archive: written, read, and what it finds wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncpoint.base.model.errors import Code, FailedPrecondition, InvalidArgument, SyncpointError
from syncpoint.programs.federation import manifest as manifests
from syncpoint.programs.federation.archive import _parts, _waiting
from syncpoint.programs.federation.manifest import ArchivePart, Manifest, Stretch
from syncpoint.wire.protobuf.messages import pipeline


def made(folder: Path) -> Manifest:
    parts = []
    for number in (1, 2):
        path = folder / "parts" / f"{number:06}" / "rows.parquet"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"rows %d" % number * 1000)
        stretch = Stretch(7, number * 10 - 10, number * 10, 1, 2)
        parts.append(ArchivePart(number, 10, (stretch,), (manifests.file_of(folder, path),)))
    return Manifest("projects/p/topics/t", 3, "abc", ("data",), parts)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    assert manifests.load(tmp_path) is None
    written = made(tmp_path)
    written.save(tmp_path)
    found = manifests.load(tmp_path)
    assert found == written
    assert found is not None
    assert (found.rows, found.ends()) == (20, {7: 20})
    reported: list[int] = []
    manifests.verify(tmp_path, found, lambda part: reported.append(part.number))
    assert reported == [1, 2]


def test_a_file_that_changed_or_is_missing_is_found(tmp_path: Path) -> None:
    written = made(tmp_path)
    path = tmp_path / written.parts[1].files[0].path
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(SyncpointError, match="checksum") as caught:
        manifests.verify(tmp_path, written)
    assert caught.value.code is Code.DATA_LOSS
    path.unlink()
    with pytest.raises(FailedPrecondition, match="missing"):
        manifests.verify(tmp_path, written)


def test_what_is_no_manifest_of_ours(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(InvalidArgument, match="not a manifest"):
        manifests.load(tmp_path)
    (tmp_path / "manifest.json").write_text('{"version": 99}')
    with pytest.raises(InvalidArgument, match="version 99"):
        manifests.load(tmp_path)


def test_what_waits_is_cut_into_parts_in_order(tmp_path: Path) -> None:
    positions = pipeline.Positions(
        sources=[
            pipeline.SourcePosition(source=7, begin=5, end=25, epoch=1, chain=2),
            pipeline.SourcePosition(source=9, begin=0, end=4, epoch=1, chain=2),
        ]
    )
    waiting = _waiting(made(tmp_path), positions)
    assert waiting == [Stretch(7, 20, 25, 1, 2), Stretch(9, 0, 4, 1, 2)]
    assert list(_parts(waiting, 3)) == [
        (Stretch(7, 20, 23, 1, 2),),
        (Stretch(7, 23, 25, 1, 2), Stretch(9, 0, 1, 1, 2)),
        (Stretch(9, 1, 4, 1, 2),),
    ]


def test_messages_that_are_gone_are_not_passed_over(tmp_path: Path) -> None:
    positions = pipeline.Positions(sources=[pipeline.SourcePosition(source=7, begin=22, end=25)])
    with pytest.raises(FailedPrecondition, match="offsets 20 to 21 of source 7"):
        _waiting(made(tmp_path), positions)


def test_only_the_newest_source_of_each_chain_is_said_to_be_read(tmp_path: Path) -> None:
    """Those before it may be long gone at the server, and are not missed."""
    found = made(tmp_path)
    for number, stretch in enumerate((Stretch(8, 0, 5, 1, 2), Stretch(9, 0, 6, 1, 3), Stretch(4, 0, 9, 0, 2)), 3):
        found.parts.append(ArchivePart(number, 0, (stretch,), ()))
    assert found.ends() == {7: 20, 8: 5, 9: 6, 4: 9}
    assert found.reached() == {8: 5, 9: 6}
