"""A rolling restart waits for each process, and stops where one does not come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument, Unavailable
from syncpoint.programs.clusters.local import LocalCluster, Shape
from syncpoint.programs.clusters.rolling import chosen, restart


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    made = LocalCluster(tmp_path / "c")
    made.create(Shape(clusters=1, disks=1, forwarders=2, routers=1, proxies=2))
    return made


def test_names_and_roles(cluster: LocalCluster) -> None:
    everybody = list(cluster.settings().processes)
    assert chosen(cluster.settings(), []) == everybody
    assert chosen(cluster.settings(), ["proxy", "storage-c1", "proxy-1"]) == ["proxy-1", "proxy-2", "storage-c1"]
    for wrong in ("proxy-3", "etcd-1"):
        with pytest.raises(InvalidArgument, match="there are storage-c1"):
            chosen(cluster.settings(), ["proxy", wrong])


class Acted:
    """A cluster that only notes what is asked of it, and needs some looks to be well again."""

    def __init__(self, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, *, looks: int) -> None:
        self.log: list[str] = []
        self.looks, self.ill, self.now = looks, 0, 0.0
        monkeypatch.setattr(cluster, "stop", lambda name: self._note(f"stop {name}"))
        monkeypatch.setattr(cluster, "start", lambda name: self._note(f"start {name}", ill=True))

    def _note(self, what: str, *, ill: bool = False) -> None:
        assert not self.ill, f"{what} while not all is well"
        self.log.append(what)
        self.ill = self.looks if ill else 0

    def look(self, cluster: LocalCluster) -> dict[str, Any]:
        problems = ["proxy-9 is down"]  # that was so before
        if self.ill:
            self.ill -= 1
            problems.append("chain 1 is open nowhere")
        return {"problems": problems}

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_next_one_waits_until_all_is_as_it_was(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    acted, reported = Acted(cluster, monkeypatch, looks=3), list[str]()
    restart(cluster, ["a", "b"], reported.append, look=acted.look, clock=lambda: acted.now, sleep=acted.sleep)
    assert acted.log == ["stop a", "start a", "stop b", "start b"]
    assert [one.split(":")[0] for one in reported] == ["a", "b"]


def test_it_stops_where_one_does_not_come_back(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    acted = Acted(cluster, monkeypatch, looks=10**6)
    with pytest.raises(Unavailable, match="a runs again, and not all is as it was: chain 1 is open nowhere"):
        restart(cluster, ["a", "b"], print, look=acted.look, clock=lambda: acted.now, sleep=acted.sleep)
    assert acted.log == ["stop a", "start a"]
