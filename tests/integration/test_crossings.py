"""What acts on messages and what happens to them, crossed, judged by a ledger of ids, in all three houses.

The crossings are those of `tests/kit/crossings/table.py`. Those of one column run at once, each in a project of its
own. SYNCPOINT_CROSSINGS_SEED tries other sizes, keys and times.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.integration.test_recovery_disks import small_disk
from tests.kit.crossings.events import HARD, QUIET
from tests.kit.crossings.features import BY_NAME
from tests.kit.crossings.house import FAKE_CLOCK, House, house
from tests.kit.crossings.run import cell_of, groups_of, run
from tests.kit.crossings.table import (
    HOUSES_OF,
    REFUSED,
    SHORT,
    TRIPLES,
    Crossing,
    blow_of,
    columns_of,
    pairs_of,
    struck_by,
)
from tests.kit.houses import KINDS

pytestmark = pytest.mark.shows("crossings")

SEED = int(os.environ.get("SYNCPOINT_CROSSINGS_SEED", "0"))
SLOW = pytest.mark.timeout(900)  # many cells, each with the patience of its own


@pytest.fixture(scope="module", params=KINDS)
def crossed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One of the three houses; each is started once."""
    with house(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


def judge(made: House, crossings: list[Crossing]) -> None:
    wrong = [one for group in groups_of(made.kind, crossings) for one in run(made, group, SEED)]
    assert not wrong, "\n".join(wrong)


@SLOW
@pytest.mark.long
@pytest.mark.parametrize("column", QUIET)
def test_a_column(crossed: House, column: str) -> None:
    judge(crossed, columns_of(column))


@SLOW
@pytest.mark.long
@pytest.mark.parametrize("row", BY_NAME)
def test_a_row_with_the_others(crossed: House, row: str) -> None:
    judge(crossed, pairs_of(row))


@SLOW
def test_what_once_failed(crossed: House) -> None:
    judge(crossed, list(SHORT))


@pytest.mark.parametrize("pair", REFUSED, ids=" x ".join)
def test_what_is_refused(crossed: House, pair: tuple[str, str]) -> None:
    cell = cell_of(crossed, Crossing(pair))

    def configure_and_publish() -> None:
        cell.open()
        cell.publish()

    try:
        with pytest.raises(grpc.RpcError) as caught:
            configure_and_publish()
        assert caught.value.code().name == REFUSED[pair]
    finally:
        cell.close()


def needs(blow: str, kind: str) -> None:
    """Skip what cannot be tried here."""
    if blow == "clock jump" and not FAKE_CLOCK.exists():
        pytest.skip("faketime is not installed (Debian: apt-get install faketime)")
    if blow and kind not in HOUSES_OF[blow]:
        pytest.skip(f"only in {', '.join(HOUSES_OF[blow])}")


@SLOW
@pytest.mark.long
@pytest.mark.parametrize("blow", [one for one in HARD if one != "full disk"])
def test_a_blow(crossed: House, blow: str) -> None:
    needs(blow, crossed.kind)
    judge(crossed, struck_by(blow))


@SLOW
@pytest.mark.long
@pytest.mark.parametrize("blow", dict.fromkeys(one.blow for one in TRIPLES))
def test_triples(crossed: House, blow: str) -> None:
    chosen = [one for one in TRIPLES if blow_of(one, crossed.kind) == blow]
    needs(blow, crossed.kind)
    judge(crossed, chosen)


@SLOW
@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system is mounted, which needs root")
def test_a_full_disk(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(small_disk(tmp_path / "disk", 500, "tmpfs"))
        judge(stack.enter_context(house("node", tmp_path, disk)), struck_by("full disk"))
