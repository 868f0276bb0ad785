"""A loss is accepted where it was found: at the target, or by a flow that cannot read again what it was to copy."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.programs.cli.federation_flows import _accept_at_target
from syncpoint.programs.federation.state import FlowState, StateFolder

FLOW: Any = SimpleNamespace(name="copy.orders")


def refusing(flow: Any) -> Any:
    raise FailedPrecondition("Link copy.orders has has no gap to accept since its last commit.")


def test_what_the_target_has_skipped_is_reported(tmp_path: Path) -> None:
    servers: Any = SimpleNamespace(accept_gap=lambda flow: SimpleNamespace(skipped=["a gap"]))
    assert _accept_at_target(servers, FLOW, StateFolder(tmp_path)) == ["a gap"]


@pytest.mark.parametrize("error", ["pyspark_pubsub.errors.DataLossError: gone", "OUT_OF_RANGE: Kafka has deleted"])
def test_a_flow_whose_batch_can_not_be_read_again_begins_anew(tmp_path: Path, error: str) -> None:
    state, servers = StateFolder(tmp_path), SimpleNamespace(accept_gap=refusing)
    state.say_flows({FLOW.name: FlowState("failed", error)})
    assert _accept_at_target(servers, FLOW, state) == []  # type: ignore[arg-type]
    assert state.accepted(FLOW.name)


@pytest.mark.parametrize("flows", [{}, {FLOW.name: FlowState("failed", "UNAVAILABLE: nobody answers")}])
def test_without_a_loss_there_is_nothing_to_accept(tmp_path: Path, flows: dict[str, FlowState]) -> None:
    state, servers = StateFolder(tmp_path), SimpleNamespace(accept_gap=refusing)
    state.say_flows(flows)
    with pytest.raises(FailedPrecondition, match="has no gap to accept"):
        _accept_at_target(servers, FLOW, state)  # type: ignore[arg-type]
    assert not state.accepted(FLOW.name)
