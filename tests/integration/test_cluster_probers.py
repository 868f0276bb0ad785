"""The probers through both proxies of a cluster; one proxy is killed: what needs it fires, failover does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncpoint.programs.probers.prober_table import METRICS, PROBERS, Measure
from tests.kit.clusters import Kit
from tests.kit.probing import held_probers

pytestmark = pytest.mark.shows("probers")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_killed_proxy_is_what_its_probers_miss_and_failover_passes_over(cluster: Kit, tmp_path: Path) -> None:
    alive, dead = cluster.proxies[:2]
    line = ("--interval", "1", "--timeout", "10", "--patience", "10")
    everything = {(metric, place): "expected" for metric in METRICS for place in (alive, dead)}
    with held_probers(tmp_path, [alive, dead], *line) as probers:
        probers.until(lambda found: dict(found) == everything, "all is well", 120.0)
        (victim,) = [one.name for one in cluster.local.states() if one.address == dead]
        cluster.local.kill(victim)
        missed = {(one.metric(Measure.SUCCESS), dead) for one in PROBERS if one.name != "P9"}
        missed.add(("P10.success", alive))  # its path to the other proxy

        def so(found: Any) -> bool:
            return {one for one, verdict in found.items() if verdict == "unexpected"} == missed and all(
                found["P9.success", place] == "expected" for place in (alive, dead)
            )

        probers.until(so, "one proxy is gone", 120.0)
        cluster.local.start(victim)
        probers.until(lambda found: dict(found) == everything, "it is back", 120.0)
        assert probers.end() == 0
