"""The gate: no method of a listener is reached before its caller is known and may do what the request asks for.

Place: `node` lays it over the finished table of methods, before the listener opens.
Promise: what is refused never reaches a method. A caller that is known and may do something costs a lookup or two at
later calls: a decision stands until the catalog changes, and no longer than `STANDS_S`. Streams are judged at their
first message, or at each, and again while they last. Whether a resource exists does not show: nothing is looked up
before the refusal. A table with a method that has no rule is not opened.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, Protocol

from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.kernel.publish import topic_of
from syncpoint.base.model.errors import InvalidArgument, PermissionDenied, SyncpointError, Unauthenticated, Unavailable
from syncpoint.base.runtime.clock import Clock
from syncpoint.catalog.access.authors import called_by
from syncpoint.catalog.access.inherited_quotas import InheritedQuotas
from syncpoint.catalog.access.permission_needs import Need, Rule, resource
from syncpoint.catalog.access.policy import Policies
from syncpoint.catalog.access.quotas import CpuQuota, OverRate, Quota, Quotas, project_in
from syncpoint.catalog.access.roles import INTERNAL
from syncpoint.catalog.access.rules import rule_of
from syncpoint.catalog.access.tenant_book import PREFIX as TENANTS
from syncpoint.catalog.access.tenant_book import TenantBook
from syncpoint.catalog.access.tokens import ANONYMOUS, Authenticator, Identity, Refused
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.serving import parsed
from syncpoint.wire.protobuf.status import error_info
from syncpoint.wire.transport.call_batches import CallBatch
from syncpoint.wire.transport.calls import Call, CallContext, Methods, Streaming, StreamingCall, Unary

STANDS_S: Final = 20.0
PASSING_S: Final = 1.0  # of a decision that hung on a condition
HELD_S: Final = 1.0  # for which a call beyond a rate waits for its refusal at most
HELD_MAX: Final = 10_000
SESSIONS_MAX: Final = 10_000
DECISIONS_MAX: Final = 10_000
MISSING: Final = (
    "Request is missing required authentication credential. Expected OAuth 2 access token, login cookie or other valid"
    " authentication credential."
)
INVALID: Final = (
    "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid"
    " authentication credential."
)
DENIED: Final = "User not authorized to perform this action."
_HEADER: Final = b"authorization"
_SCHEME: Final = b"bearer "

log = logging.getLogger(__name__)


class Audit(Protocol):
    """Where decisions are written down."""

    def note(
        self, who: str, peer: str, method: str, permission: str, resource: str, allowed: bool, policy: int, why: str
    ) -> None: ...


class CallerSession:
    """What is known of one token or certificate. `until`: monotonic; `allowed`: until when, by permission and name."""

    __slots__ = ("allowed", "generation", "identity", "revision", "until")

    def __init__(self, identity: Identity, until: float, generation: int, revision: int) -> None:
        self.identity, self.until, self.generation, self.revision = identity, until, generation, revision
        self.allowed: dict[tuple[str, bytes | str], float] = {}


class _Watched:
    """A stream that was let in, and by what."""

    __slots__ = ("check", "project", "stream")

    def __init__(self, stream: StreamingCall, check: Callable[[], object]) -> None:
        self.stream, self.check = stream, check
        self.project = ""  # once its quota was asked


class Gate:
    """Authenticate and authorize every call of a listener. `audit`: None keeps no audit log."""

    def __init__(
        self,
        authenticator: Authenticator,
        policies: Policies,
        catalog: Catalog,
        clock: Clock,
        audit: Audit | None = None,
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        """`later`: calls a function after some seconds; None: refusals are answered at once."""
        self.authenticator, self.policies, self.catalog, self.clock = authenticator, policies, catalog, clock
        self.audit, self._later, self._held = audit, later, 0
        self.quotas: Quotas | None = None
        self.inherited = InheritedQuotas(lambda: self.authenticator.settings, TenantBook(catalog))
        self.cpu = CpuQuota(self.inherited.payers_of, clock.monotonic)
        self.unauthenticated = self.denied = 0  # calls and streams that were refused
        self.invalid = 0  # tokens and certificates that were not believed
        self._over_quota = 0  # of quotas that are no longer in force
        self.take_quotas()
        catalog.follow_settings(TENANTS, self._tenant_changed)
        self._logged_at, self._unlogged = float("-inf"), 0
        self._sessions: dict[bytes, CallerSession] = {}
        self._certificates: dict[object, CallerSession] = {}
        self._streams: set[_Watched] = set()

    def take_quotas(self) -> None:
        """Go by the quotas of the settings in force; what was counted is forgotten."""
        self._over_quota = self.over_quota
        self.quotas = None
        if self.inherited.any:
            self.quotas = Quotas(self.inherited.payers_of, self.catalog, self.clock.monotonic)

    def installation_quota(self, project: str) -> Quota:
        """What the file of `--auth` has for projects/P."""
        return self.authenticator.settings.quota_of(project)

    def _tenant_changed(self, key: str, value: bytes | None) -> None:
        """Count once there is something to count, and not after there is nothing any more."""
        if self.inherited.any is (self.quotas is None):
            self.take_quotas()

    @property
    def over_quota(self) -> int:
        """How many calls, connections, streams and resources were refused because of a quota."""
        return self._over_quota + self.cpu.refused + (0 if self.quotas is None else self.quotas.refused)

    @property
    def sessions(self) -> int:
        """Callers that are remembered."""
        return len(self._sessions) + len(self._certificates)

    def guarded(self, table: Methods) -> Methods:
        """Wrap methods so that each call is authorized first. Raises `KeyError` for a method without a rule."""
        found: dict[bytes, Unary | Streaming] = {}
        for path, method in table.items():
            name = path.decode()
            rule = rule_of(name)
            if rule.open:
                found[path] = method
            elif isinstance(method, Unary):
                batch = method.batch_handler
                found[path] = Unary(
                    self._unary(name, rule, method.handler),
                    batch_handler=None if batch is None else self._batch(rule, batch),
                )
            else:
                found[path] = Streaming(partial(self._stream, name, rule, method.handler), method.behind)
        return found

    def admit(self, call: CallContext, resource: str = "") -> None:
        """Refuse callers to whom nothing is granted at all: asked before a request is read, where that costs much.
        `resource`: what the call is about, as far as its head shows.

        Raises `Unauthenticated`; and `Unavailable` while keys are being fetched.
        """
        if self._session(call, resource).identity is ANONYMOUS and not self.policies.grant_to_everybody():
            self._refuse(ANONYMOUS, call, call.path.decode("ascii", "replace"), Need("", resource))

    def holds(self, call: CallContext, permission: str, resource: str) -> bool:
        return self._allows(self._session(call), permission, resource)

    def principal_of(self, call: CallContext) -> str:
        """Who calls; "" for nobody. Raises as `check_page`."""
        return self._session(call).identity.principal

    def tenant_of(self, call: CallContext) -> str:
        """Whose use of the server counts together: a tenant makes itself as many service accounts as it likes, so those
        of a domain are one; "" for callers that show nothing that is believed."""
        try:
            principal = self._session(call).identity.principal
        except SyncpointError:
            return ""
        kind, _, address = principal.partition(":")
        return address.rpartition("@")[2] if kind == "serviceAccount" else principal

    def payer_of(self, call: CallContext) -> str:
        """Who is charged for work on what a caller sends, before it is known what it is about: a service account's
        projects/P (a project makes itself as many accounts as it likes), else the principal; "" is nobody. Raises as
        `check_page`."""
        principal = self.principal_of(call)
        account = self.authenticator.accounts.find(principal.partition(":")[2])
        return principal if account is None else account.project

    def check_page(self, call: CallContext, permission: str, resource: str) -> None:
        """Refuse who may not see a page that is no method; refusals alone are written down. `call`: its head.

        Raises `Unauthenticated`, `PermissionDenied`; and `Unavailable` while keys are being fetched.
        """
        session = self._session(call, resource)
        if not self._allows(session, permission, resource):
            self._refuse(session.identity, call, call.path.decode("ascii", "replace"), Need(permission, resource))

    def charge(self, resource: str, size: int) -> None:
        """Count a request that the service makes for a project, like a client's. Raises `ResourceExhausted`."""
        if self.quotas is not None and (project := project_in(resource)):
            self.quotas.take(project, size)

    def sweep(self) -> None:
        """Judge the open streams again; those that may not go on are ended. Connections that closed are forgotten."""
        if self.quotas is not None:
            self.quotas.sweep()
        for watched in list(self._streams):
            if watched.stream.over:
                self._streams.discard(watched)
                continue
            try:
                watched.check()
            except Unavailable:
                continue  # keys are being fetched: the next look knows more
            except SyncpointError as error:
                self._streams.discard(watched)
                _end(watched.stream, error)

    # -- calls -------------------------------------------------------------------------------------------------------

    def _unary(self, path: str, rule: Rule, handler: Callable[[Call, bytes], None]) -> Callable[[Call, bytes], None]:
        if rule.hot is None:

            def run(call: Call, request: bytes) -> None:
                identity = self._judge(call, path, rule, request)
                with called_by(identity, partial(self._judge_again, call, path, rule, request, self.catalog.revision)):
                    handler(call, request)

            return run
        known = self._known_name(rule)

        def run_hot(call: Call, request: bytes) -> None:
            name = known(call, request)
            try:
                if not name:
                    self._judge(call, path, rule, request)
                elif self.quotas is not None:
                    self.quotas.take(project_in(name.decode()), len(request), call.connection)
            except OverRate as refusal:
                self._hold(call, refusal)
                return
            handler(call, request)

        return run_hot

    def _batch(self, rule: Rule, handler: Callable[[CallBatch, int], int]) -> Callable[[CallBatch, int], int] | None:
        """As `_unary`, for calls that came together; None: the method's calls are judged one by one.

        A handler takes calls that name one resource, so what its first call may, they all may.
        """
        if rule.hot is None:
            return None
        known = self._known_name(rule)

        def run_batch(batch: CallBatch, at: int) -> int:
            if self.quotas is not None or not known(batch, batch.requests[at]):
                return 0
            return handler(batch, at)

        return run_batch

    def _known_name(self, rule: Rule) -> Callable[[CallContext | CallBatch, bytes], bytes]:
        """What returns the name in a request, if its caller is known to be allowed the call, and nothing has changed:
        the same token, the same name, as it is nearly always. b"": it must be judged.
        """
        assert rule.hot is not None
        permission, _ = rule.hot
        monotonic, catalog, sessions = self.clock.monotonic, self.catalog, self._sessions
        authenticator = self.authenticator

        def known(call: CallContext | CallBatch, request: bytes) -> bytes:
            session = sessions.get(call.metadata.get(_HEADER, b""))
            changed = (catalog.revision, authenticator.generation)
            if session is None or (session.revision, session.generation) != changed:
                return b""
            now = monotonic()
            name = _name(request)
            return name if session.until > now and session.allowed.get((permission, name), 0.0) > now else b""

        return known

    def _hold(self, call: Call, refusal: OverRate) -> None:
        """Refuse a call when its caller may try again: a caller that does not wait is made to, so that refusals cost
        other callers little."""
        if self._later is None or self._held >= HELD_MAX:
            raise refusal
        held_s = min(refusal.after_s, HELD_S)
        self._held += 1

        def refuse() -> None:
            self._held -= 1
            call.fail(refusal.once_held(held_s))

        self._later(held_s, refuse)

    def _stream(self, path: str, rule: Rule, handler: Callable[[StreamingCall], None], stream: StreamingCall) -> None:
        session = self._session(stream)
        if session.identity is ANONYMOUS and rule.hot is None:
            self._refuse(session.identity, stream, path, Need("", ""))
        handler(stream)
        taking = stream.on_message
        watched = _Watched(stream, partial(self._session, stream))
        self._streams.add(watched)

        def judged(request: bytes) -> None:
            try:
                self._judge(stream, path, rule, request, watched=watched)
            except SyncpointError as error:
                self._streams.discard(watched)
                _end(stream, error)
                return
            if not rule.each:
                stream.on_message = taking
                watched.check = partial(self._judge, stream, path, rule, request, count=False)
            if taking is not None:
                taking(request)

        stream.on_message = judged

    # -- decisions ---------------------------------------------------------------------------------------------------

    def _judge(
        self,
        call: CallContext,
        path: str,
        rule: Rule,
        request: bytes,
        *,
        watched: _Watched | None = None,
        count: bool = True,
    ) -> Identity:
        """Who calls, if the caller may. `watched`: the stream it is about; `count`: against the quota of the project.

        Raises `Unauthenticated`, `PermissionDenied`, `InvalidArgument`, `ResourceExhausted`.
        """
        session = self._session(call)
        if rule.known:
            if session.identity is ANONYMOUS:
                self._refuse(session.identity, call, path, Need("", ""))
            return session.identity
        needs = self._needs(path, rule, request)
        for need in needs:
            if not self._allows(session, need.permission, need.resource):
                self._refuse(session.identity, call, path, need)
            if self.audit is not None:
                self._note(session.identity, call, path, need, True)
        if self.quotas is not None and count and (project := project_in(needs[0].resource) if needs else ""):
            self.quotas.take(project, len(request), call.connection)
            self.quotas.check_new(
                project, needs[0].permission, lambda: str(parsed(_method(path).request, request).name)
            )
            if watched is not None and not watched.project:
                self.quotas.check_streams(project, self._open_in)
                watched.project = project
        if rule.hot is not None:
            self._remember(session, rule.hot[0], _name(request))
        return session.identity

    def _judge_again(self, call: CallContext, path: str, rule: Rule, request: bytes, revision: int) -> None:
        """Judge a call by what the catalog has learned since `revision`; a method goes by that."""
        if rule.known or self.catalog.revision == revision:
            return
        session = self._session(call)
        for need in self._needs(path, rule, request):
            if not self._allows(session, need.permission, need.resource):
                self._refuse(session.identity, call, path, need)

    def _open_in(self, projects: Collection[str]) -> int:
        self._streams = {one for one in self._streams if not one.stream.over}
        return sum(one.project in projects for one in self._streams)

    def _needs(self, path: str, rule: Rule, request: bytes) -> list[Need]:
        if rule.hot is not None:
            permission, collection = rule.hot
            return [Need(permission, resource(collection, _name(request).decode("utf-8", "replace")))]
        assert rule.needs is not None
        return list(rule.needs(parsed(_method(path).request, request), self.catalog))

    def _allows(self, session: CallerSession, permission: str, resource: str) -> bool:
        identity = session.identity
        if permission == INTERNAL:
            return False  # processes of a cluster call each other at listeners of their own
        if identity.owner:
            return True
        now = self.clock.monotonic()
        if session.allowed.get((permission, resource), 0.0) > now:
            return True
        began = time.thread_time()
        allowed, passing = self.policies.verdict(identity.members, permission, resource, self.clock.time_ns() / 1e9)
        if passing and (project := project_in(resource)):  # it hung on conditions
            self.cpu.check(project)
            self.cpu.charge(project, time.thread_time() - began)
        if allowed:
            self._remember(session, permission, resource, PASSING_S if passing else STANDS_S)
        return allowed

    def _remember(self, session: CallerSession, permission: str, name: bytes | str, stands_s: float = STANDS_S) -> None:
        now = self.clock.monotonic()
        if isinstance(name, bytes):
            # As long as the decision under the name's text stands, and an owner's as long as the session.
            stands_s = session.allowed.get((permission, name.decode()), session.until) - now
        if len(session.allowed) >= DECISIONS_MAX:
            session.allowed.clear()
        session.allowed[permission, name] = now + stands_s

    def _refuse(self, identity: Identity, call: CallContext, path: str, need: Need) -> None:
        self._note(identity, call, path, need, False, "no grant" if identity.principal else "no credentials")
        if identity is ANONYMOUS:
            self.unauthenticated += 1
            raise Unauthenticated(MISSING)
        self.denied += 1
        facts = {"permission": need.permission, "resource": need.named or need.resource}
        raise PermissionDenied(DENIED, [error_info("IAM_PERMISSION_DENIED", facts, "iam.googleapis.com")])

    # -- callers -----------------------------------------------------------------------------------------------------

    def _session(self, call: CallContext, resource: str = "") -> CallerSession:
        """Who calls. Raises `Unauthenticated`, and `Unavailable` while keys are being fetched."""
        header = call.metadata.get(_HEADER)
        sessions: dict[Any, CallerSession] = self._certificates if header is None else self._sessions
        certificate = call.certificate if header is None else None
        key: object = header if header is not None else _key_of(certificate)
        now, session = self.clock.monotonic(), sessions.get(key)
        generation = self.authenticator.generation
        if session is not None and session.until > now and session.generation == generation:
            if session.revision == self.catalog.revision:
                return session
            if self.authenticator.still(session.identity):
                session.allowed.clear()
                session.revision = self.catalog.revision
                return session
        sessions.pop(key, None)
        try:
            identity = self._identified(header, certificate)
        except Refused as refused:
            self.invalid += 1
            self._log_refusal(call, refused)
            self._note(ANONYMOUS, call, call.path.decode("ascii", "replace"), Need("", resource), False, str(refused))
            raise Unauthenticated(INVALID) from None
        left_s = identity.expire_s - self.clock.time_ns() / 1e9
        session = CallerSession(identity, now + min(STANDS_S, left_s), generation, self.catalog.revision)
        if len(sessions) >= SESSIONS_MAX:
            sessions.clear()
        sessions[key] = session
        return session

    def _log_refusal(self, call: CallContext, refused: Refused) -> None:
        """Log why a token is not believed; of many, one a second."""
        now = self.clock.monotonic()
        if now >= self._logged_at + 1.0:
            more = f"; {self._unlogged} others since the last time" if self._unlogged else ""
            log.info("a caller at %s is refused: %s%s", call.peer, refused, more)
            self._logged_at, self._unlogged = now, 0
        else:
            self._unlogged += 1

    def _identified(self, header: bytes | None, certificate: Any) -> Identity:
        if header is None:
            return self.authenticator.by_certificate(certificate)
        if header[: len(_SCHEME)].lower() != _SCHEME:
            raise Refused("the authorization is no bearer token")
        return self.authenticator.by_token(header[len(_SCHEME) :].strip())

    def _note(self, identity: Identity, call: CallContext, path: str, need: Need, allowed: bool, why: str = "") -> None:
        if self.audit is not None:
            self.audit.note(
                identity.principal, call.peer, path, need.permission, need.resource, allowed, self.catalog.revision, why
            )


def _name(request: bytes) -> bytes:
    try:
        return topic_of(request)
    except Malformed as bad:
        raise InvalidArgument("", f"The request is not valid: {bad}.") from None


def _key_of(certificate: Any) -> object:
    return None if not certificate else (certificate.get("serialNumber"), str(certificate.get("issuer")))


def _method(path: str) -> methods.Method:
    return methods.BY_PATH[path]


def _end(stream: StreamingCall, error: SyncpointError) -> None:
    """The caller receives the error; the application, that it should end, which it then does with nobody listening."""
    stream.finish(error)
    if stream.on_drain is not None:
        stream.on_drain()
    elif (leaving := stream.on_cancel) is not None:
        stream.on_cancel = None
        leaving()
