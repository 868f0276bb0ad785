"""Bugs planted between publish forwarders and those who deliver, in the shipped modules as they are now.

Listed in `planted_bugs`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from syncpoint.broker.publish.commit.append import PublishCaller
from syncpoint.broker.publish.intake.envelope import PublishBatch
from syncpoint.broker.publish.intake.ingress import PublishIngress
from syncpoint.broker.subscribe.peers import Peer
from syncpoint.broker.subscribe.served_subscriptions import ServedSubscriptions
from syncpoint.broker.subscribe.step_guard import StepGuard
from syncpoint.testing.simulation.planted import LASTING, SEALING, SINGLE, planted, together
from syncpoint.testing.simulation.scaled import patched


@planted(LASTING, "subscribe forwarder parted", seed=11)
def rule_22() -> AbstractContextManager[None]:
    """A holder goes on lending although it has received nothing from the grant's giver for longer than that holds."""
    return together(
        patched(Peer, silent=lambda self, now: False),
        patched(ServedSubscriptions, doubt_unowned=lambda self, served, now: None),
    )


@planted(SINGLE, "steps of a subscribe forwarder fail", seed=0)
def an_exception_ends_the_clock() -> AbstractContextManager[None]:
    """One step that fails in a subscribe forwarder ends heartbeats, deadlines and redelivery of everything."""

    def bare(self: StepGuard, step: Callable[[], object], about: int = 0) -> None:
        step()

    return patched(StepGuard, run=bare)


@planted(SEALING, "disk slow", "hang", "takeover", seed=5)
def a_batch_goes_by_the_name_of_its_topic() -> AbstractContextManager[None]:
    """What was sealed for a topic that was deleted since is stored in the next one of that name."""
    right = PublishIngress.publish

    def by_name(self: PublishIngress, caller: PublishCaller, batch: PublishBatch) -> None:
        right(self, caller, batch._replace(topic=0))

    return patched(PublishIngress, publish=by_name)
