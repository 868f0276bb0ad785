"""The runbook: every move from every stage, what refuses it, and what is kept of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.programs.federation.failover import (
    AFTER,
    FROM,
    FailoverMove,
    FailoverStage,
    Observed,
    decide,
    load_stage,
    path_of,
    placed,
    save,
)
from syncpoint.programs.federation.patterns.active_passive import ActivePassive
from syncpoint.programs.federation.spec import FederatedCluster

pytestmark = pytest.mark.shows("edge")

FINE = {
    FailoverMove.FAILOVER: Observed(primary_answers=False, secondary_answers=True),
    FailoverMove.PUBLISHERS_BACK: Observed(primary_answers=True, secondary_answers=True),
    FailoverMove.CONSUMERS_BACK: Observed(primary_answers=True, secondary_answers=True, local_left=0),
}


@pytest.mark.parametrize("stage", FailoverStage)
@pytest.mark.parametrize("move", FailoverMove)
def test_only_the_next_move_is_made(stage: FailoverStage, move: FailoverMove) -> None:
    if stage is FROM[move]:
        assert decide(stage, move, FINE[move]) is AFTER[move]
    else:
        with pytest.raises(FailedPrecondition, match="is not the next step"):
            decide(stage, move, FINE[move], planned=True)


@pytest.mark.parametrize(
    ("move", "observed", "says"),
    [
        (FailoverMove.FAILOVER, Observed(True, True), "the primary answers"),
        (FailoverMove.FAILOVER, Observed(False, False), "failover is not possible"),
        (FailoverMove.PUBLISHERS_BACK, Observed(False, True), "does not answer yet"),
        (FailoverMove.CONSUMERS_BACK, Observed(False, True, 0), "consumers stay"),
        (FailoverMove.CONSUMERS_BACK, Observed(True, True, 3), "at least 3 messages"),
        (FailoverMove.CONSUMERS_BACK, Observed(True, False, None), "does not report how many"),
    ],
)
def test_what_was_observed_refuses_a_move(move: FailoverMove, observed: Observed, says: str) -> None:
    with pytest.raises(FailedPrecondition, match=says):
        decide(FROM[move], move, observed)


def test_a_planned_failover_leaves_a_primary_that_answers() -> None:
    assert (
        decide(FailoverStage.PRIMARY, FailoverMove.FAILOVER, Observed(True, True), planned=True)
        is FailoverStage.SECONDARY
    )
    with pytest.raises(FailedPrecondition, match="not possible"):
        decide(FailoverStage.PRIMARY, FailoverMove.FAILOVER, Observed(True, False), planned=True)


def test_what_was_decided_is_kept(tmp_path: Path) -> None:
    assert load_stage(tmp_path, "orders") is FailoverStage.PRIMARY
    places = []
    for stage in (FailoverStage.SECONDARY, FailoverStage.DRAINING, FailoverStage.PRIMARY):
        found = placed("orders", stage, "eu", "us", 1.0)
        save(tmp_path, found)
        assert load_stage(tmp_path, "orders") is stage
        places.append((found.publishers, found.consumers))
    assert places == [("us", "us"), ("eu", "us"), ("eu", "eu")]
    assert [path.name for path in path_of(tmp_path, "orders").parent.iterdir()] == ["orders.json"]
    path_of(tmp_path, "orders").write_text('{"stage": "somewhere"}')
    with pytest.raises(FailedPrecondition, match="does not record where"):
        load_stage(tmp_path, "orders")


@pytest.mark.parametrize(("ttl_s", "said"), [(120, "0:2:0"), (2, "0:0:2"), (0.4, "0:0:1"), (90_061, "1.1:1:1")])
def test_copies_live_twice_the_failover_time(ttl_s: float, said: str) -> None:
    cluster = FederatedCluster("a", "a:1")
    assert ActivePassive("t", cluster, cluster, "shop", ("*",), ttl_s).ttl == said
