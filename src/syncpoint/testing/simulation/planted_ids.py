"""Bugs planted into the dropping of duplicates, noticed where ids are published again in a cluster (`repeated`), and
while keys move between chains (`repeated_keys`). See `planted_bugs`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

from syncpoint.broker.publish.facts.judged_batches import JudgedBatches
from syncpoint.broker.publish.facts.message_ids import MessageIds
from syncpoint.broker.publish.facts.source import MessagePlace
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.testing.simulation.planted import planted
from syncpoint.testing.simulation.planted_forwards import run
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.scheduled_runs import run_scheduled
from syncpoint.testing.simulation.topology import Topology

MOVING = Topology(clusters=1, disks=1, chains=2)


@planted(None, "crash", "restart", seed=3, run=run)
def who_takes_a_topic_does_not_ask_for_ids() -> AbstractContextManager[None]:
    """What other chains of the topic have dropped so far is stored again by the next one."""

    def take_ids(self: PublishForwarder, ids: bytes, batches: bytes = b"") -> None:
        """Leave them."""

    return patched(PublishForwarder, take_ids=take_ids)


@planted(None, "crash", "restart", seed=0, run=run)
def ids_end_with_the_process_that_took_them() -> AbstractContextManager[None]:
    """The opening of a log restores none."""
    return patched(MessageIds, recover=lambda self, found, unsure: None)


@planted(None, "crash", "disk slow", "disk server hung", "partition", seed=2, run=run)
def a_judged_batch_is_known_for_its_window_alone() -> AbstractContextManager[None]:
    """What is sent again later is stored again."""

    def find(self: JudgedBatches, sender: int, batch: int) -> list[MessagePlace | None]:
        return []

    return patched(JudgedBatches, find=find)


@planted(MOVING, "crash", "takeover", seed=7, run=partial(run_scheduled, repeating=True))
def judged_batches_stay_with_the_chain_that_took_them() -> AbstractContextManager[None]:
    """What is sent again to another chain of the topic, once its window is over, is stored again."""
    return patched(JudgedBatches, take=lambda self, body: False)
