"""Disks of which one more must not be lost: what the alert of messages at risk reads."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from syncpoint.cluster.control.failure_domains import FailureDomains, PlacedDisk, PlacedProcess
from syncpoint.watch.metrics.risk_families import RiskRoom, WatchedChain
from tests.kit.disks import Harness


def unborne(harness: Harness) -> int:
    """As the metric says."""
    disks = [PlacedDisk(root, root) for root in harness.roots]
    forwarder: Any = SimpleNamespace(store=harness.store)
    chain = WatchedChain(forwarder, harness.roots, FailureDomains(disks, [PlacedProcess("p")]), "p")
    return asyncio.run(RiskRoom._judged(chain, None)).unborne


@pytest.mark.parametrize("disks", [1, 3])
def test_with_all_its_disks_a_chain_bears_what_its_rule_says(disks: int) -> None:
    harness = Harness.opened(1, disks)
    harness.fill(20)
    harness.commit()
    assert unborne(harness) == 0


def test_with_one_of_three_away_none_of_the_others_must_be_lost() -> None:
    harness = Harness.opened(1, 3)
    harness.fill(20)
    harness.commit()
    fault = harness.fail(2)
    harness.persist()
    assert unborne(harness) == 2
    harness.files.faults.remove(fault)
    harness.heal()
    for _ in range(70):
        harness.persist()
    assert unborne(harness) == 0
