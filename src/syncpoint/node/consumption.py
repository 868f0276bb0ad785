"""Subscriptions that a process consumes itself, mounted in it: those that are pushed, exported or forwarded.

Place: in `client_port`, so on a node and in every proxy; the drivers are those of `syncpoint.broker`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from syncpoint import __version__
from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.periodic import Periodic
from syncpoint.base.tracing.tracer import Tracer
from syncpoint.broker.export.buckets import Blocking, Buckets, Place
from syncpoint.broker.export.export_driver import ExportDriver, ExportState, advice, export_state
from syncpoint.broker.forward.forward_driver import ForwardDriver, ForwardingProcess, ForwardState
from syncpoint.broker.inner.inner_driver import ConsumingProcess
from syncpoint.broker.push.addresses import Vetting
from syncpoint.broker.push.http_sender import HttpSender
from syncpoint.broker.push.oidc_tokens import OidcTokens
from syncpoint.broker.push.push_driver import PushDriver, PushState, Sender
from syncpoint.broker.push.signing_keys import DISCOVERY_PATH, JWKS_PATH, Commit, SigningKeys, discovery, jwks
from syncpoint.catalog.access.accounts import Accounts, uid_from
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, internal, pubsub
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods

KEYS_S = 60.0  # between two looks at the keys
KEYS_AGAIN_S = 1.0  # while there is none


class PushMeans(NamedTuple):
    """By what a process pushes. `issuer`: its address as endpoints see it; "": nothing is signed. `accounts`: those
    that tokens can be for; None: callers are not identified, so of any. `sender`: what posts, instead of HTTP.
    `tracer`: None where nothing is traced."""

    vetting: Vetting
    commit: Commit
    issuer: str
    accounts: Accounts | None
    sender: Sender | None = None
    tracer: Tracer | None = None


class ExportMeans(NamedTuple):
    """By what a process exports. `places`: of the buckets, by name."""

    places: tuple[tuple[str, Place], ...]
    blocking: Blocking


class Consumption:
    """All kinds, as one."""

    def __init__(
        self, process: ConsumingProcess, push: PushMeans, export: ExportMeans, forward: ForwardingProcess
    ) -> None:
        self._process, self._catalog, self._issuer = process, process.copy.catalog, push.issuer
        self._http: HttpSender | None = None
        sender = push.sender
        if sender is None:
            sender = self._http = HttpSender(push.vetting, agent=f"Syncpoint-Push/{__version__}")
        self.keys = SigningKeys(self._catalog, push.commit, process.clock) if push.issuer else None
        subject = _any_subject if push.accounts is None else partial(_subject, push.accounts)
        self.tokens = None if self.keys is None else OidcTokens(self.keys, push.issuer, process.clock, subject)
        self._keeping: Periodic | None = None
        if self.keys is not None:
            pauses, failed = partial(_keys_pause_s, self.keys), "cannot publish the keys that sign pushes"
            self._keeping = Periodic(self.keys.upkeep, pauses, (SyncpointError,), failed, at_start=True)
        self.buckets = Buckets(dict(export.places), export.blocking, lambda: process.clock.time_ns() / 1e9)
        self.pushes = _pushes(process, sender, push, self.tokens)
        self.exports = ExportDriver(process, self.buckets)
        self.forwards = ForwardDriver(forward)

    def start(self) -> None:
        """Begin. Needs the event loop."""
        if self._keeping is not None:
            self._keeping.start()
        self.pushes.start()
        self.buckets.start()
        self.exports.start()
        self.forwards.start()

    async def stop(self) -> None:
        """What is under way has a little time to end."""
        if self._keeping is not None:
            await self._keeping.stop()
        await self.pushes.close()
        if self._http is not None:
            await self._http.close()
        await self.exports.close()
        await self.buckets.stop()
        await self.forwards.close()

    def pages(self) -> list[BaseRoute]:
        """Where endpoints find the keys that tokens are checked with."""
        if self.keys is None:
            return []
        return [
            _page(DISCOVERY_PATH, lambda: discovery(self._issuer)),
            _page(JWKS_PATH, lambda: jwks(self._catalog)),
        ]

    def status(self) -> dict[str, Any]:
        """Numbers for operators."""
        return {
            **self.pushes.totals(),
            **({} if self.keys is None else {"push_key": self.keys.current}),
            **self.exports.totals(),
            "buckets": {name: self.buckets.error(name) for name in self.buckets.places},
            **self.forwards.totals(),
        }

    def exported(self, record: Subscription, config: pubsub.CloudStorageConfig) -> int:
        """The state of an export as the API shows it. Every process looks at the buckets by itself, so each can say."""
        return export_state(record, config, self._catalog, self.buckets, self._process.refusal)[0]

    def describe(self, subscription: int) -> internal.DescribeConsumptionResponse:
        """How a subscription is pushed, exported or forwarded from here, for its owner."""
        pushed, exported = self.pushes.state(subscription), self.exports.state(subscription)
        forwarded, name = self.forwards.state(subscription), self._process.name
        return internal.DescribeConsumptionResponse(
            state=None if pushed is None else _push_message(pushed, name),
            export=None if exported is None else _export_message(exported, name),
            forward=None if forwarded is None else _forward_message(forwarded, name),
        )

    def internal_methods(self) -> Methods:
        """Return the methods for other processes of the cluster."""
        return served({methods.CONSUMPTION.Describe: self._describe})

    async def _describe(self, asked: internal.DescribeConsumptionRequest) -> internal.DescribeConsumptionResponse:
        return self.describe(asked.subscription)


def _keys_pause_s(keys: SigningKeys) -> float:
    return KEYS_S if keys.current else KEYS_AGAIN_S


def _push_message(state: PushState, process: str) -> admin.PushState:
    shown = admin.PushState(
        endpoint=state.endpoint,
        pushed_by=process,
        window=state.window,
        under_way=state.under_way,
        acknowledged=state.acknowledged,
        refused=state.refused,
        last_status=state.last_status,
        last_error=state.last_error,
    )
    if state.paused_s > 0:
        shown.pause.FromNanoseconds(int(state.paused_s * 1e9))
    return shown


def _export_message(state: ExportState, process: str) -> admin.ExportState:
    return admin.ExportState(
        bucket=state.bucket,
        exported_by=process,
        state=pubsub.CloudStorageConfig.State.Name(state.state),
        advice=advice(state.state, state.bucket),
        files=state.files,
        acknowledged=state.acknowledged,
        refused=state.refused,
        held=state.held,
        last_error=state.last_error,
    )


def _forward_message(state: ForwardState, process: str) -> admin.ForwardState:
    return admin.ForwardState(
        topic=state.target,
        forwarded_by=process,
        forwarded=state.forwarded,
        given_up=state.given_up,
        kept=state.kept,
        held=state.held,
        last_error=state.last_error,
    )


def _page(path: str, content: Callable[[], bytes]) -> Route:
    async def answer(request: Request) -> Response:
        return Response(content(), media_type="application/json", headers={"cache-control": "public, max-age=300"})

    return Route(path, answer, methods=["GET"])


def _pushes(process: ConsumingProcess, sender: Sender, push: PushMeans, tokens: OidcTokens | None) -> PushDriver:
    if push.tracer is None:
        return PushDriver(process, sender, push.vetting, tokens=tokens)
    from syncpoint.broker.push.traced_pushes import TracedPushDriver  # for nobody else

    return TracedPushDriver(process, sender, push.vetting, tokens=tokens, tracer=push.tracer)


def _any_subject(email: str) -> str:
    return uid_from(email.encode())


def _subject(accounts: Accounts, email: str) -> str | None:
    account = accounts.find(email)
    return None if account is None else account.uid
