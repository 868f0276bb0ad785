"""Archives: written in parts, gone on with, held against their checksums, and published again as they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from syncpoint.base.model.errors import Code, FailedPrecondition, SyncpointError
from syncpoint.programs.cli.main import cli
from syncpoint.programs.federation import archive as archives
from syncpoint.programs.federation import manifest as manifests
from syncpoint.programs.federation.archive import archive, restore
from syncpoint.programs.federation.spec import FederatedCluster
from syncpoint.testing.rigs.log_oracle import Message, disordered
from tests.spark.federation_kit import PROJECT, Site, name_of, sites

pytestmark = pytest.mark.shows("archive")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Site]]:
    with sites("ab", tmp_path_factory.mktemp("archives")) as made:
        yield made


def reported(done: int, total: int) -> None:
    """Nobody looks."""


def cluster(site: Site) -> FederatedCluster:
    return FederatedCluster("server", site.server.endpoint)


def filled(pair: dict[str, Site], topic: str, count: int) -> str:
    name = pair["a"].topic(topic)
    pair["a"].publish(name, range(count), size=100)
    return name


def check_equal(published: list[Message], stored: list[Message]) -> None:
    wanted = {one.message_id: one.content for one in published}
    assert {one.message_id: one.content for one in stored} == wanted
    assert len(stored) == len(wanted)
    assert not disordered(published, stored)


def test_an_archive_grows_over_restarts_and_comes_back_equal(spark: Any, pair: dict[str, Site], tmp_path: Path) -> None:
    topic = filled(pair, "grows", 250)
    folder = tmp_path / "archive"
    assert archive(spark, cluster(pair["a"]), topic, folder, reported, rows_per_part=100).parts == 3
    pair["a"].publish(topic, range(250, 300), size=100)
    pair["a"].server.restart(hard=True)  # messages go to new sources from now on
    pair["a"].publish(topic, range(300, 350), size=100)
    added = archive(spark, cluster(pair["a"]), topic, folder, reported, rows_per_part=1000)
    assert (added.parts, added.rows) == (1, 100)
    assert archive(spark, cluster(pair["a"]), topic, folder, reported).rows == 0
    verified = CliRunner().invoke(cli, ["archive", "verify", str(folder)])
    assert verified.exit_code == 0, verified.output
    described = CliRunner().invoke(cli, ["archive", "describe", str(folder), "--format", "json"])
    assert '"rows": 350' in described.output

    pair["b"].topic("grows")
    assert restore(spark, cluster(pair["b"]), folder, name_of("grows"), reported).rows == 350
    check_equal(pair["a"].log(topic), pair["b"].log(name_of("grows")))
    restore(spark, cluster(pair["b"]), folder, name_of("grows"), reported)
    assert len(pair["b"].log(name_of("grows"))) == 350


def test_broken_off_it_goes_on_where_it_was(
    spark: Any, pair: dict[str, Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part that was being written when the process died is written again; those before it stay as they are."""
    topic = filled(pair, "broken", 300)
    folder = tmp_path / "archive"
    counted = manifests.file_of

    def dies(folder: Path, path: Path) -> Any:
        if "000003" in str(path):
            raise KeyboardInterrupt
        return counted(folder, path)

    monkeypatch.setattr(archives.manifests, "file_of", dies)
    with pytest.raises(KeyboardInterrupt):
        archive(spark, cluster(pair["a"]), topic, folder, reported, rows_per_part=100)
    monkeypatch.undo()
    first = manifests.load(folder)
    assert first is not None
    assert first.rows == 200
    assert archive(spark, cluster(pair["a"]), topic, folder, reported, rows_per_part=100).rows == 100
    second = manifests.load(folder)
    assert second is not None
    assert second.parts[:2] == first.parts
    pair["b"].topic("broken")
    restore(spark, cluster(pair["b"]), folder, name_of("broken"), reported)
    check_equal(pair["a"].log(topic), pair["b"].log(name_of("broken")))


def test_a_flipped_bit_is_found_before_anything_of_its_part_is_published(
    spark: Any, pair: dict[str, Site], tmp_path: Path
) -> None:
    topic = filled(pair, "spoiled", 100)
    folder = tmp_path / "archive"
    archive(spark, cluster(pair["a"]), topic, folder, reported)
    found = manifests.load(folder)
    assert found is not None
    path = folder / found.parts[0].files[0].path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    reported_by = CliRunner().invoke(cli, ["archive", "verify", str(folder)])
    assert reported_by.exit_code == 1
    assert str(path) in reported_by.output
    pair["b"].topic("spoiled")
    with pytest.raises(SyncpointError) as caught:
        restore(spark, cluster(pair["b"]), folder, name_of("spoiled"), reported)
    assert caught.value.code is Code.DATA_LOSS
    assert not pair["b"].log(name_of("spoiled"))


def test_a_folder_holds_one_topic(spark: Any, pair: dict[str, Site], tmp_path: Path) -> None:
    one, other = filled(pair, "one", 10), filled(pair, "other", 10)
    archive(spark, cluster(pair["a"]), one, tmp_path, reported)
    with pytest.raises(FailedPrecondition, match="holds another topic"):
        archive(spark, cluster(pair["a"]), other, tmp_path, reported)
    assert PROJECT in one
