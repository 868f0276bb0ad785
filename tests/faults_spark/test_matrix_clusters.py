"""The fault matrix between two clusters: `make faults-spark FAULTS=--clusters`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from syncpoint.testing.rigs.etcd import why_not
from tests.faults_spark.clusters_kit import AWAY_S, COUNT, ClusterCase, ClusterSite, cluster_sites
from tests.faults_spark.faults_kit import Driver

pytestmark = [pytest.mark.timeout(900), pytest.mark.clusters]

Make = Callable[[], ClusterCase]
Record = Callable[..., None]
HOWS = ("SIGKILL", "pause")
AT = {
    "stage": "in the middle of a stage",
    "staged": "behind a whole stage",
    "decide": "before the decision",
    "decided": "behind the decision",
    "place": "between two turns that store what was decided",
    "done": "before the epoch is written to be done",
    "answer": "before the commit is answered",
}


@pytest.fixture(scope="module")
def pair(folder: Path) -> Iterator[dict[str, ClusterSite]]:
    if why_not():
        pytest.skip("etcd is not installed (Debian: apt-get install etcd-server)")
    with cluster_sites(folder) as made:
        yield made


@pytest.fixture
def copied(
    driver: Driver, pair: dict[str, ClusterSite], folder: Path, request: pytest.FixtureRequest
) -> Iterator[Make]:
    def make() -> ClusterCase:
        driver.do("1")
        name = re.sub("[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
        return ClusterCase(name, driver, pair["a"], pair["b"], folder)

    yield make
    driver.release()
    for one in pair.values():
        one.release()
        one.local.up()


def finish(one: ClusterCase, record: Record, what: str) -> None:
    again = one.over()
    verdict = one.verdict()
    record(what, one.begun, verdict, f"started again {again} time(s)" if again else "")
    assert verdict.exact
    assert verdict.stored == COUNT


@pytest.mark.parametrize("point", AT)
@pytest.mark.parametrize("how", HOWS)
def test_home(how: str, point: str, copied: Make, pair: dict[str, ClusterSite], record: Record) -> None:
    one = copied()
    pair["b"].hold(point)
    one.begin()
    pair["b"].strike(how, pair["b"].reached(point))
    finish(one, record, f"{how} of the home's owner {AT[point]}")


@pytest.mark.parametrize("how", HOWS)
def test_home_behind_a_commit(
    how: str, copied: Make, driver: Driver, pair: dict[str, ClusterSite], record: Record
) -> None:
    one = copied()
    held = driver.hold("committed")
    pair["b"].hold("answer")
    one.begin()
    owner = pair["b"].reached("answer")
    pair["b"].release()
    driver.reached("committed")
    pair["b"].strike(how, owner)
    held.unlink()
    finish(one, record, f"{how} of the home's owner between the commit and Spark's checkpoint")


@pytest.mark.parametrize("how", HOWS)
def test_read_chain(how: str, copied: Make, pair: dict[str, ClusterSite], record: Record) -> None:
    one = copied()
    pair["a"].hold("read")
    one.begin()
    pair["a"].strike(how, pair["a"].reached("read"))
    finish(one, record, f"{how} of the owner of a chain that is read")


@pytest.mark.parametrize("name", ["a", "b"])
def test_proxies(name: str, copied: Make, pair: dict[str, ClusterSite], record: Record) -> None:
    one, site = copied(), pair[name]
    point = {"a": "read", "b": "stage"}[name]
    site.hold(point)
    one.begin()
    site.reached(point)
    for number in range(1, len(site.proxies) + 1):
        site.local.kill(f"proxy-{number}")
        site.local.start(f"proxy-{number}")
    site.release()
    what = {
        "a": "the only proxy of the source while it is read",
        "b": "the proxies of the target in turn, in a stage",
    }
    finish(one, record, f"SIGKILL of {what[name]}")


@pytest.mark.parametrize("how", HOWS)
def test_etcd_leader(how: str, copied: Make, pair: dict[str, ClusterSite], record: Record) -> None:
    one, site = copied(), pair["b"]
    site.hold("decide")
    one.begin()
    owner, leader = site.reached("decide"), site.leader()
    if how == "SIGKILL":
        site.local.kill(leader)
    else:
        site.local.pause(leader)
    site.local.kill(owner)  # its chains go to another one while etcd has no leader
    site.release()
    time.sleep(AWAY_S)
    if how == "SIGKILL":
        site.local.start(leader)
    else:
        site.local.resume(leader)
    site.local.start(owner)
    finish(one, record, f"{how} of etcd's leader, and SIGKILL of the home's owner before the decision")


def test_both_clusters(copied: Make, driver: Driver, pair: dict[str, ClusterSite], record: Record) -> None:
    """Everything of one cluster, then everything of the other, etcd, too."""
    one = copied()
    one.driver.do("query = None")
    for name, point in (("b", "commit"), ("a", "staged"), ("b", "committed")):
        held = driver.hold(point)
        if not driver.do("query is not None and query.isActive"):
            one.begin()
        driver.reached(point)
        pair[name].restart_all()
        held.unlink()
    finish(one, record, "SIGKILL of all of the target, of all of the source, and of all of the target again")
