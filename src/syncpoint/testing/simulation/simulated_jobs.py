"""What simulated jobs need of their simulation, whatever serves them: one node (`simulated_node`) or a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from syncpoint.base.runtime.random import Random
from syncpoint.testing.simulation.api_clients import ApiClients
from syncpoint.testing.simulation.pipeline_history import PipelineHistory

LINK, PLAIN, ALONE = "link", "plain", "alone"
QUERIES = ((LINK,), (PLAIN,), (ALONE,), (LINK, PLAIN), (LINK, ALONE), (PLAIN, ALONE))


@dataclass(frozen=True)
class PipelineShape:
    """`queries`: a replication with a link, a plain copy, a subscription read alone. `small`: an epoch takes many
    pieces and turns. `kept`: the topic that is read keeps everything, so that a seek brings all of it back. `pulled`:
    there are clients beside, who pull and acknowledge over Google's API.
    """

    disks: int = 1
    queries: tuple[str, ...] = (LINK,)
    small: bool = True
    kept: bool = False
    pulled: bool = False

    @staticmethod
    def draw(random: Random) -> PipelineShape:
        """One or two queries: more only take longer."""
        return PipelineShape(
            disks=3 if random.random() < 0.3 else 1,
            queries=QUERIES[random.randrange(0, len(QUERIES))],
            small=random.random() < 0.7,
            kept=random.random() < 0.4,
            pulled=random.random() < 0.3,
        )


class SimulatedJobs(ApiClients):
    """Base of simulations that run jobs."""

    shape: PipelineShape
    pipelines: PipelineHistory
    on_commit: Callable[[], None] | None  # called when a commit is about to be asked for

    def of_jobs(self, shape: PipelineShape) -> None:
        """To be called when the simulation is made."""
        self.shape = shape
        self.pipelines = PipelineHistory(self.history.stamp, self.coverage)
        self.on_commit = None
