"""All push subscriptions of a process: the driver over `inner`, feeds and the HTTP client.

Place: one in every process that may push, on `inner_driver`.
Promise: a push subscription of ours is subscribed to while it names an endpoint that may be pushed to, the service's
own identity may read it, and whoever named the endpoint may still name it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from syncpoint.base.model.errors import PermissionDenied
from syncpoint.base.model.histogram import Histogram
from syncpoint.broker.inner.inner_consumer import InnerConsumer, Send, SendOutcome
from syncpoint.broker.inner.inner_driver import ConsumingProcess, Ended, InnerDriver, InnerSubscription
from syncpoint.broker.inner.lent import Lent
from syncpoint.broker.inner.pace import BACKOFF_FIRST_S, BACKOFF_MAX_S, Pace, PaceLimits
from syncpoint.broker.push.addresses import Vetting
from syncpoint.broker.push.http_sender import PushFailed
from syncpoint.broker.push.oidc_tokens import OidcTokens
from syncpoint.broker.push.payload import Headers, request_of
from syncpoint.broker.push.push_config import Endpoint, endpoint_of, push_config_of
from syncpoint.broker.push.push_kind import PushKind
from syncpoint.catalog.metadata.records import Feature, Subscription
from syncpoint.wire.protobuf.messages import pubsub

ACKNOWLEDGED = frozenset((102, 200, 201, 202, 204))
LEASE_MARGIN_S = 5.0  # a lease outlives the push: the push ends it, not the deadline
UNDER_WAY_MAX = 2_000  # of all subscriptions together


class Sender(Protocol):
    """What posts: `HttpSender`, or an endpoint that a test plays."""

    async def post(self, endpoint: Endpoint, headers: Headers, body: bytes, timeout_s: float) -> int:
        """The status of the answer. Raises `PushFailed`."""
        ...


@dataclass(frozen=True, slots=True)
class PushState:
    """What the owner of a subscription may know of its pushes."""

    subscription: str
    endpoint: str
    window: int
    under_way: int
    paused_s: float
    acknowledged: int
    refused: int
    last_status: int
    last_error: str


class PushDriver(InnerDriver[pubsub.PushConfig, "PushedSubscription"]):
    """Run all push subscriptions of a process.

    `tokens`: None if pushes cannot be signed; subscriptions that require tokens are then not pushed.
    """

    feature = Feature.PUSH

    def __init__(
        self,
        process: ConsumingProcess,
        sender: Sender,
        vetting: Vetting,
        *,
        tokens: OidcTokens | None = None,
        limits: PaceLimits | None = None,
    ) -> None:
        super().__init__(process)
        self.sender, self.vetting, self.tokens = sender, vetting, tokens
        self.limits = limits or PaceLimits()
        self.acknowledged = self.refused = 0  # pushes from here, by their ends
        self.latency = Histogram()  # of pushes, until the endpoint's answer or without one

    def config_of(self, record: Subscription) -> pubsub.PushConfig | None:
        return push_config_of(record)

    def new(self, record: Subscription, config: pubsub.PushConfig) -> PushedSubscription:
        return PushedSubscription(self, record, config)

    def share(self) -> None:
        busy = sum(one.machine.held > 0 for one in self.ours.values())
        share = min(self.limits.window_max, max(1, UNDER_WAY_MAX // max(1, busy)))
        for one in self.ours.values():
            one.machine.pace.set_window_max(share)

    async def post(self, lent: Lent, record: Subscription, endpoint: Endpoint, headers: Headers, body: bytes) -> int:
        """Send one push; the status of its answer. Raises `PushFailed`."""
        return await self.sender.post(endpoint, headers, body, float(record.ack_deadline_s))

    def states(self) -> list[PushState]:
        """How each subscription of ours is doing, by name."""
        return sorted((one.state() for one in self.ours.values()), key=lambda state: state.subscription)

    def state(self, incarnation: int) -> PushState | None:
        """How a subscription of ours is doing; None for one that is not pushed from here."""
        one = self.ours.get(incarnation)
        return None if one is None else one.state()

    def totals(self) -> dict[str, int]:
        """Numbers for operators, over all subscriptions pushed from here."""
        now = self.process.clock.monotonic()
        return {
            "pushed_subscriptions": len(self.ours),
            "pushes_paused": sum(one.machine.pace.paused_until(now) is not None for one in self.ours.values()),
            "pushes_under_way": sum(one.under_way for one in (*self.ours.values(), *self.ending)),
            "pushes_acknowledged": self.acknowledged,
            "pushes_refused": self.refused,
        }


class PushedSubscription(InnerSubscription[pubsub.PushConfig]):
    """One of them: its machine, and pushes that are under way."""

    driver: PushDriver
    doing = "Pushing"

    def __init__(self, driver: PushDriver, record: Subscription, config: pubsub.PushConfig) -> None:
        self.endpoint: Endpoint | None = None
        self._read: pubsub.PushConfig | None = None  # where `endpoint` comes from
        self.last_status = 0  # of the last push that ended; 0: there was no answer
        pace = Pace(driver.limits, driver.process.random, _pause_max_s(record))
        super().__init__(driver, record, config, InnerConsumer(PushKind(), pace, lease_s=_lease_s(record)))

    def __repr__(self) -> str:
        return f"<PushedSubscription {self.record.name} {self.machine!r}>"

    def state(self) -> PushState:
        now, pace, counts = self.driver.process.clock.monotonic(), self.machine.pace, self.machine.counts
        return PushState(
            self.record.name, self.config.push_endpoint, pace.window, self.under_way,
            max(0.0, (pace.paused_until(now) or now) - now), counts["acknowledged"], counts["refused"],
            self.last_status, self.last_error,
        )  # fmt: skip

    @property
    def lease_s(self) -> float:
        return _lease_s(self.record)

    def review(self, record: Subscription, config: pubsub.PushConfig, now: float) -> None:
        self.machine.pace.pause_max_s = _pause_max_s(record)
        super().review(record, config, now)

    def check(self, now: float) -> None:
        if self.config is not self._read:
            self.endpoint, self._read = endpoint_of(self.config.push_endpoint, self.driver.vetting), self.config
        if self.config.HasField("oidc_token") and self.driver.tokens is None:
            raise PermissionDenied("This server signs no tokens: no issuer is configured.")
        if refusal := self.driver.process.refusal(self.record):
            raise PermissionDenied(refusal)

    def send(self, effect: Send) -> Coroutine[Any, Any, Ended]:
        return self._push(effect.lent[0], self.endpoint, self.config)

    async def _push(self, lent: Lent, endpoint: Endpoint | None, config: pubsub.PushConfig) -> Ended:
        status, driver = 0, self.driver
        began = driver.process.clock.monotonic()
        try:
            status = await self._post(lent, endpoint, config)
            if status not in ACKNOWLEDGED:
                self.last_error = f"the endpoint answered {status}"
        except PushFailed as failed:
            self.last_error = str(failed)
        finally:
            self.last_status = status
            driver.latency.note(driver.process.clock.monotonic() - began)
            if status in ACKNOWLEDGED:
                driver.acknowledged += 1
            else:
                driver.refused += 1
        return Ended(SendOutcome.STORED if status in ACKNOWLEDGED else SendOutcome.UNKNOWN)

    async def _post(self, lent: Lent, endpoint: Endpoint | None, config: pubsub.PushConfig) -> int:
        if endpoint is None:
            raise PushFailed("there is no endpoint")
        headers, body = request_of(config, self.record.name, lent)
        if self.driver.tokens is not None:
            token = self.driver.tokens.header(config)
            if token is not None:
                headers = [*headers, token]
        return await self.driver.post(lent, self.record, endpoint, headers, body)


def _lease_s(record: Subscription) -> float:
    return record.ack_deadline_s + LEASE_MARGIN_S


def _pause_max_s(record: Subscription) -> float:
    """With a retry policy each message rests for itself, so that the subscription never rests for longer."""
    if record.retry is None:
        return BACKOFF_MAX_S
    return min(BACKOFF_MAX_S, max(BACKOFF_FIRST_S, float(record.retry[0])))
