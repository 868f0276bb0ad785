"""Taking over a node's folder, broken off at any file and given again."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.node.note import CLUSTER_NOTE, ClusterNote, write_note
from syncpoint.programs.clusters.import_folder import import_folder


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    """One whose import has been registered; files have yet to be moved."""
    data = tmp_path / "data"
    (data / "disk-1").mkdir(parents=True)
    (tmp_path / "target").mkdir()
    made = SimpleNamespace(folder=tmp_path / "cluster", importing=tmp_path / "importing", states=list)
    made.importing.write_text(str(data))
    note = ClusterNote(str(made.folder), 3, [[str(data / "disk-1"), str(tmp_path / "target")]])
    write_note(data, CLUSTER_NOTE, note._asdict())
    return made


@pytest.mark.parametrize("marked", [True, False])
def test_after_its_last_move_it_ends_well(cluster: Any, tmp_path: Path, marked: bool) -> None:
    if not marked:
        cluster.importing.unlink()
    for _ in range(2):
        assert import_folder(cluster, tmp_path / "data", []) is None
        assert not cluster.importing.exists()


def test_another_cluster_cannot_end_it(cluster: Any, tmp_path: Path) -> None:
    cluster.folder = tmp_path / "other"
    with pytest.raises(FailedPrecondition, match="is of the cluster in"):
        import_folder(cluster, tmp_path / "data", [])
    assert cluster.importing.exists()
