"""Seeds of gateways that found something once: copies held until their site was the home, and what the proof lacked."""

from __future__ import annotations

import pytest

from syncpoint.testing.simulation.gateway_runs import run_gateways

SEEDS = (
    3481,  # the home hung, and acknowledged what its clients were told is unknown
    4019,  # the same, before the home was asked for the first time
    4061,  # both sites lost their disks within a second: nobody had the topic of letters any more
    4107,  # the home missed a probe
    4114,  # letters of a home that was away, and came back
)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_it_found_is_mended(seed: int) -> None:
    assert run_gateways(seed).violations == []
