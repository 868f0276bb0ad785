"""Federations that several programs share, of syncpoint.admin.v1: who runs one, and what people decided about it.

Place: beside `tenant_admin`, over the catalog. `catalog.metadata.shared_federations` decides.
"""

from __future__ import annotations

from typing import Any

from syncpoint.base.model.errors import ResourceExhausted
from syncpoint.base.model.names import parse_federation, resource_name
from syncpoint.catalog.metadata import shared_federations
from syncpoint.catalog.metadata.shared_federations import FEDERATIONS_MAX, SharedFederation
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.options_admin import admin_table
from syncpoint.front.api.validate import in_bounds, refused, seconds_of
from syncpoint.wire.protobuf.messages import admin
from syncpoint.wire.transport.calls import Methods

HOLDER_MAX = 255  # characters
STATE_BYTES_MAX = 16 << 10
TTL_S = (1, 3600)
_TERM_MAX = (1 << 53) - 1  # as JSON keeps it exactly


class FederationAdmin:
    """The methods on messages; `methods()` serves them on bytes."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def hold(self, request: admin.HoldFederationRequest) -> admin.SharedFederation:
        """HoldFederation."""
        name = _name(request)
        if not 0 < len(request.holder) <= HOLDER_MAX:
            raise refused("holder", f"holder must have 1 to {HOLDER_MAX} characters")
        in_bounds("term", request.term, 1, _TERM_MAX)
        ttl_s = seconds_of(request, "ttl") or 0.0
        if ttl_s and not TTL_S[0] <= ttl_s <= TTL_S[1]:
            raise refused("ttl", f"ttl must be 0, or {TTL_S[0]} s to {TTL_S[1]} s")
        now_ns = self._control.clock.time_ns()
        known = self._found(name)
        return await self._kept(request, known, known.held(request.holder, request.term, int(ttl_s * 1e9), now_ns))

    async def get(self, request: admin.GetFederationRequest) -> admin.SharedFederation:
        """GetFederation. One that nobody has held yet is empty."""
        return self._message(request, self._found(_name(request)))

    async def put_state(self, request: admin.PutFederationStateRequest) -> admin.SharedFederation:
        """PutFederationState."""
        name = _name(request)
        in_bounds("version", request.version, 1, _TERM_MAX)
        if len(request.state.encode()) > STATE_BYTES_MAX:
            raise refused("state", f"state must not be longer than {STATE_BYTES_MAX} bytes")
        known = self._found(name)
        return await self._kept(
            request, known, known.stated(request.version, request.state, self._control.clock.time_ns())
        )

    def methods(self) -> Methods:
        """The method table."""
        return admin_table(
            self._control,
            {"HoldFederation": self.hold, "GetFederation": self.get, "PutFederationState": self.put_state},
        )

    def _found(self, name: str) -> SharedFederation:
        return shared_federations.find(self._control.catalog, name)

    async def _kept(self, request: Any, known: SharedFederation, record: SharedFederation) -> admin.SharedFederation:
        if record != known:
            changes = list(shared_federations.changes_of(self._control.catalog, _name(request), record))
            kept = self._control.catalog.settings_named(shared_federations.PREFIX)
            if not known.touched_ns and len(kept) >= FEDERATIONS_MAX and len(changes) == 1:
                raise ResourceExhausted(
                    f"There are already {FEDERATIONS_MAX} federations, the maximum; one that nobody runs for a month"
                    " gives way. Use a name that exists."
                )
            await self._control.commit(changes)
        return self._message(request, record)

    def _message(self, request: Any, record: SharedFederation) -> admin.SharedFederation:
        made = admin.SharedFederation(
            project=request.project,
            federation=request.federation,
            holder=record.holder,
            term=record.term,
            version=record.version,
            state=record.state,
        )
        made.left.FromNanoseconds(max(0, record.until_ns - self._control.clock.time_ns()))
        return made


def _name(request: Any) -> str:
    """projects/P/federations/F. Raises `InvalidArgument`."""
    return parse_federation(resource_name(request.project, "federations", request.federation))
