"""All subscriptions of a process that forward: the driver over `forwarding`, feeds and the publish path.

Place: one in every process that may push or export, on `push.inner_driver`.
Promise: a subscription of ours is subscribed to while the topic that it forwards to exists and takes messages, and the
service's own identity may read the one and publish to the other. Until then its messages wait where they are.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from syncpoint.forward.forwarded_message import publish_request
from syncpoint.forward.forwarding import HELD_MAX, Forward, Forwarding, GiveUp
from syncpoint.metadata.records import Subscription, Topic
from syncpoint.model.errors import (
    FailedPrecondition,
    Internal,
    InvalidArgument,
    PermissionDenied,
    SyncpointError,
    suspended,
)
from syncpoint.model.names import FORWARDING_REFUSED, READING_REFUSED
from syncpoint.push.inner_driver import ConsumingProcess, InnerDriver, InnerSubscription
from syncpoint.push.pace import Pace, PaceLimits
from syncpoint.wire.messages import internal

LEASE_S = 20.0  # extended while a message is held; what a dead process held comes back after it
HELD_TOTAL = 128 << 20  # of all subscriptions
HELD_LEAST = 1 << 20
PACE = PaceLimits(window_first=4, window_max=16)  # requests

log = logging.getLogger(__name__)

Publish = Callable[[bytes], Awaitable[bytes]]
"""Takes a PublishRequest of a subscription that forwards. Raises `SyncpointError`."""
MakeLetter = Callable[[Subscription, internal.DeadLetterRequest], Awaitable[internal.DeadLetterResponse]]


@dataclass(frozen=True)
class ForwardingProcess:
    """By what a process forwards. `may_publish`: whether the service's own identity may, to a topic."""

    consuming: ConsumingProcess
    publish: Publish
    give_up: MakeLetter
    may_publish: Callable[[Topic], bool] = lambda topic: True


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
    """See the module."""

    def __init__(self, process: ForwardingProcess) -> None:
        super().__init__(process.consuming)
        self.forwarding = process

    def config_of(self, record: Subscription) -> str | None:
        return None if record.detached else record.options.forward_to or None

    def new(self, record: Subscription, config: str) -> ForwardedSubscription:
        return ForwardedSubscription(self, record, config)

    def share(self) -> None:
        busy = sum(one.machine.held > 0 for one in self.ours.values())
        for one in self.ours.values():
            one.machine.held_max = max(HELD_LEAST, min(HELD_MAX, HELD_TOTAL // max(1, busy)))

    def state(self, incarnation: int) -> ForwardState | None:
        """How a subscription of ours is doing; None for one that is not forwarded from here."""
        one = self.ours.get(incarnation)
        return None if one is None else one.state()

    def totals(self) -> dict[str, int]:
        """Numbers for operators, over all subscriptions forwarded from here."""
        machines = [one.machine for one in self.ours.values()]
        return {
            "forwarding_subscriptions": len(machines),
            "forwarded_messages": sum(one.counts["forwarded"] for one in machines),
            "forwards_given_up": sum(one.counts["given_up"] for one in machines),
            "forward_held": sum(one.held for one in machines),
        }


class ForwardedSubscription(InnerSubscription[str, Forwarding]):
    """One of them: its machine, and requests that are under way. Its `config` is the name of the target."""

    driver: ForwardDriver

    def __init__(self, driver: ForwardDriver, record: Subscription, config: str) -> None:
        super().__init__(driver, record, config, Forwarding(Pace(PACE, driver.process.random), lease_s=LEASE_S))
        self._kept = ("", 0.0)  # why a message waits, and until when that is said

    def state(self) -> ForwardState:
        counts = self.machine.counts
        return ForwardState(
            self.record.name, self.config, counts["forwarded"], counts["given_up"], counts["kept"], self.machine.held,
            self.last_error or self._why_kept(),
        )  # fmt: skip

    def _why_kept(self) -> str:
        """Why a message waits that could be neither forwarded nor given up, for as long as it may be tried again."""
        why, until = self._kept
        return why if self.driver.process.clock.monotonic() < until else ""

    @property
    def lease_s(self) -> float:
        return LEASE_S

    def new_machine(self) -> Forwarding:
        old = self.machine
        new = Forwarding(old.pace, lease_s=LEASE_S, held_max=old.held_max)
        new.counts = old.counts
        return new

    def free(self) -> Callable[[], int]:
        return lambda: self.machine.free

    def check(self, now: float) -> None:
        process = self.driver.process
        target = process.copy.catalog.topic(self.config)
        if target is None:
            raise FailedPrecondition(f"Its messages wait: {self.config}, which it forwards to, does not exist.")
        if target.options.send_suspended:
            raise suspended(target.name)
        if not process.may_consume(self.record):
            raise PermissionDenied(READING_REFUSED)
        if not self.driver.forwarding.may_publish(target):
            raise PermissionDenied(FORWARDING_REFUSED)

    def begin(self, effect: Forward | GiveUp) -> Coroutine[Any, Any, None]:
        if isinstance(effect, GiveUp):
            return self._give_up(self.machine, effect)
        return self._forward(self.machine, effect, publish_request(self.config, self.record, effect.lent))

    async def _forward(self, machine: Forwarding, effect: Forward, request: bytes) -> None:
        error: SyncpointError | None = FailedPrecondition("The process ends.")
        try:
            await self.driver.forwarding.publish(request)
            error = None
        except SyncpointError as refusal:
            error = refusal
        except Exception as failure:
            log.exception("%s: messages were not forwarded", self.record.name)
            error = Internal(f"Forwarding failed: {type(failure).__name__}; the server's log has the reason.")
        finally:  # also when the process ends: who does not know that they are persisted does not acknowledge
            self.under_way -= 1
            now = self.driver.process.clock.monotonic()
            if error is None:
                self.last_error = ""
                self.perform(machine.forwarded(effect.number, now))
            elif isinstance(error, InvalidArgument):
                self.last_error = error.message
                self.perform(machine.refused(effect.number, error.message, now))
            else:
                self.last_error = error.message
                self.perform(machine.failed(effect.number, now))

    async def _give_up(self, machine: Forwarding, effect: GiveUp) -> None:
        asked = internal.DeadLetterRequest(
            subscription=self.record.name,
            ack_ids=[effect.lent.ack_id],
            reason=effect.reason.name,
            description=effect.reason.description,
        )
        kept = True
        try:
            if self.record.dead_letter is None:
                raise FailedPrecondition(
                    f"A message waits ({effect.reason.name}): {effect.reason.description} Give the subscription a"
                    " dead-letter topic, or receive the message without forwarding."
                )
            answer = await self.driver.forwarding.give_up(self.record, asked)
            if answer.failed:
                raise FailedPrecondition(f"A message waits ({effect.reason.name}): {answer.failed[0].reason}")
            kept = False
            self._kept = "", 0.0
        except SyncpointError as error:
            self._keep(error.message)
        except Exception as failure:
            log.exception("%s: a message was not given up", self.record.name)
            self._keep(type(failure).__name__)
        finally:
            self.under_way -= 1
            self.perform(machine.given_up(effect.number, self.driver.process.clock.monotonic(), kept=kept))

    def _keep(self, why: str) -> None:
        """A message waits. What is forwarded besides says nothing of it."""
        rest_s = self.record.retry.max_s if self.record.retry is not None else 0.0
        self._kept = why, self.driver.process.clock.monotonic() + 2 * LEASE_S + rest_s
