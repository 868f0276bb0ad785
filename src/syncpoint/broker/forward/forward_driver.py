"""All subscriptions of a process that forward: the driver over `inner`, feeds and the publish path.

Place: one in every process that may push or export, on `inner.inner_driver`.
Promise: a subscription of ours is subscribed to while the topic that it forwards to exists and takes messages, and the
service's own identity, and whoever set it, may have the one published to the other. Until then its messages wait where
they are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from syncpoint.base.model.errors import (
    FailedPrecondition,
    InvalidArgument,
    PermissionDenied,
    suspended,
)
from syncpoint.broker.forward.forward_kind import TOO_MANY, ForwardKind
from syncpoint.broker.forward.forwarded_message import publish_request
from syncpoint.broker.inner.inner_consumer import GiveUp, InnerConsumer, Send, SendOutcome
from syncpoint.broker.inner.inner_driver import ConsumingProcess, Ended, InnerDriver, InnerSubscription
from syncpoint.broker.inner.pace import Pace, PaceLimits
from syncpoint.broker.subscribe.own_copies import OwnCopies
from syncpoint.catalog.metadata.records import Feature, Subscription
from syncpoint.wire.protobuf.messages import internal

LEASE_S = 20.0  # extended while a message is held; what a dead process held comes back after it
HELD_MAX = 32 << 20  # bytes of messages
HELD_TOTAL = 128 << 20  # of all subscriptions
HELD_LEAST = 1 << 20
PACE = PaceLimits(window_first=4, window_max=16)  # requests

Publish = Callable[[bytes], Awaitable[bytes]]
"""Takes a PublishRequest of a subscription that forwards. Raises `SyncpointError`."""
MakeLetter = Callable[[Subscription, internal.DeadLetterRequest], Awaitable[internal.DeadLetterResponse]]


@dataclass(frozen=True)
class ForwardingProcess:
    """By what a process forwards. `charge`: counts a request of so many bytes in the quota of a topic's project, or
    raises `ResourceExhausted`."""

    consuming: ConsumingProcess
    publish: Publish
    give_up: MakeLetter
    charge: Callable[[str, int], None] = lambda topic, size: None


@dataclass(frozen=True, slots=True)
class ForwardState:
    """What may be known of a subscription that is forwarded from here."""

    subscription: str
    target: str
    forwarded: int
    given_up: int
    kept: int
    held: int
    last_error: str


class ForwardDriver(InnerDriver[str, "ForwardedSubscription"]):
    """Run all forwarding subscriptions of a process."""

    feature = Feature.FORWARD

    def __init__(self, process: ForwardingProcess) -> None:
        super().__init__(process.consuming)
        self.forwarding, self.copies = process, OwnCopies()

    def config_of(self, record: Subscription) -> str | None:
        return None if record.detached else record.options.forward_to or None

    def new(self, record: Subscription, config: str) -> ForwardedSubscription:
        return ForwardedSubscription(self, record, config)

    def share(self) -> None:
        self.share_memory(HELD_TOTAL, HELD_LEAST, HELD_MAX)

    def state(self, incarnation: int) -> ForwardState | None:
        """How a subscription of ours is doing; None for one that is not forwarded from here."""
        one = self.ours.get(incarnation)
        return None if one is None else one.state()

    def totals(self) -> dict[str, int]:
        """Numbers for operators, over all subscriptions forwarded from here."""
        machines = [one.machine for one in self.ours.values()]
        return {
            "forwarding_subscriptions": len(machines),
            "forwarded_messages": sum(one.counts["acknowledged"] for one in machines),
            "forwards_given_up": sum(one.counts["given_up"] for one in machines),
            "forward_held": sum(one.held for one in machines),
        }


class ForwardedSubscription(InnerSubscription[str]):
    """One of them: its machine, and requests that are under way. Its `config` is the name of the target."""

    driver: ForwardDriver
    doing = "Forwarding"

    def __init__(self, driver: ForwardDriver, record: Subscription, config: str) -> None:
        pace = Pace(PACE, driver.process.random)
        machine = InnerConsumer(ForwardKind(self._among), pace, lease_s=LEASE_S, memory_max=HELD_MAX)
        super().__init__(driver, record, config, machine)
        self._kept = ("", 0.0)  # why a message waits, and until when that is reported

    def state(self) -> ForwardState:
        counts = self.machine.counts
        return ForwardState(
            self.record.name, self.config, counts["acknowledged"], counts["given_up"], counts["kept"],
            self.machine.held, self.last_error or self._why_kept(),
        )  # fmt: skip

    def _why_kept(self) -> str:
        """Why a message waits that could be neither forwarded nor given up, for as long as it may be tried again."""
        why, until = self._kept
        return why if self.driver.process.clock.monotonic() < until else ""

    @property
    def lease_s(self) -> float:
        return LEASE_S

    def free(self) -> Callable[[], int]:
        return lambda: self.machine.free

    def check(self, now: float) -> None:
        process = self.driver.process
        target = process.copy.catalog.topic(self.config)
        if target is None:
            raise FailedPrecondition(
                f"Messages wait because the topic {self.config}, which the subscription forwards to, does not exist."
            )
        if target.options.send_suspended:
            raise suspended(target.name, elsewhere=target.options.written_elsewhere)
        if refusal := process.refusal(self.record):
            raise PermissionDenied(refusal)

    def send(self, effect: Send) -> Coroutine[Any, Any, Ended]:
        return self._publish(publish_request(self.config, self.record, effect.lent, self._among()))

    def _among(self) -> int:
        """How many copies the service makes of each message, by all subscriptions of the topic."""
        return self.driver.copies.of(self.driver.process.copy.catalog, self.record.topic_incarnation)

    async def _publish(self, request: bytes) -> Ended:
        self.driver.forwarding.charge(self.config, len(request))
        try:
            await self.driver.forwarding.publish(request)
        except InvalidArgument as error:
            self.last_error = error.message
            return Ended(SendOutcome.REFUSED, error.message)
        self.last_error = ""
        return Ended(SendOutcome.STORED)

    async def give_up(self, effect: GiveUp) -> None:
        reason = effect.reason
        if reason is TOO_MANY:
            raise FailedPrecondition(f"A message waits ({reason.name}): {reason.description}")
        if self.record.dead_letter is None:
            raise FailedPrecondition(
                f"A message waits ({reason.name}): {reason.description} Set a dead-letter topic on the subscription, or"
                " clear its forwarding and receive the message."
            )
        asked = internal.DeadLetterRequest(
            subscription=self.record.name,
            ack_ids=[effect.lent.ack_id],
            reason=reason.name,
            description=reason.description,
        )
        answer = await self.driver.forwarding.give_up(self.record, asked)
        if answer.failed:
            raise FailedPrecondition(f"A message waits ({reason.name}): {answer.failed[0].reason}")
        self._kept = "", 0.0

    def keep(self, why: str) -> None:
        """Other forwards do not clear it."""
        rest_s = self.record.retry.max_s if self.record.retry is not None else 0.0
        self._kept = why, self.driver.process.clock.monotonic() + 2 * LEASE_S + rest_s
