"""google.iam.v1.IAMPolicy: who may do what with a resource, read and changed.

Place: beside the other servicers, over the catalog, in which policies are settings.
Promise: a change made with the etag of an older policy is ABORTED, also when another process of a cluster was first.
Leaves to `access.policy`: what a legal policy is and what it grants. Leaves to `access.gate`: who calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from google.protobuf.message import Message

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.runtime.child_processes import Apart, at_once
from syncpoint.catalog.access.permission_needs import any_resource
from syncpoint.catalog.access.policy import Policies
from syncpoint.catalog.access.quotas import project_in
from syncpoint.catalog.access.roles import PERMISSIONS
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.catalog_retries import checked_again
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import iam
from syncpoint.wire.protobuf.serving import parsed, served
from syncpoint.wire.transport.calls import Call, Methods
from syncpoint.wire.transport.tasks import unary_fair

TESTED_MAX = 100


class Callers(Protocol):
    """Who knows callers by their calls."""

    def holds(self, call: Call, permission: str, resource: str) -> bool:
        """Whether the caller has a permission on a resource."""
        ...


class IamService:
    """The methods on messages; `methods()` serves them on bytes. `callers` None: callers are not identified, and
    everybody may do everything. `apart`: charges projects for the conditions of their policies.
    """

    def __init__(
        self, control: ControlPlane, policies: Policies, callers: Callers | None = None, apart: Apart = at_once
    ) -> None:
        self._control, self._policies, self._callers, self._apart = control, policies, callers, apart

    async def set_policy(self, request: iam.SetIamPolicyRequest) -> iam.Policy:
        """SetIamPolicy."""
        with self._apart.here(project_in(request.resource)):
            setting, policy = self._policies.changed(request.resource, request.policy, request.update_mask.paths)
        await self._control.commit([CatalogChange.put(setting)])
        return policy

    async def get_policy(self, request: iam.GetIamPolicyRequest) -> iam.Policy:
        """GetIamPolicy."""
        return self._policies.get(request.resource, request.options.requested_policy_version)

    def test(self, call: Call, request: iam.TestIamPermissionsRequest) -> iam.TestIamPermissionsResponse:
        """TestIamPermissions: of what is asked for, what the caller has; nothing on a resource that is not there."""
        any_resource(request.resource)
        if len(request.permissions) > TESTED_MAX:
            raise InvalidArgument(
                "permissions", f"must not have more than {TESTED_MAX} entries, not {len(request.permissions)}"
            )
        for permission in request.permissions:
            if permission not in PERMISSIONS:
                raise InvalidArgument("", f"Permission {permission} is not valid for this resource.")
        found: list[str] = []
        if self._policies.exists(request.resource):
            found = [one for one in request.permissions if self._has(call, one, request.resource)]
        return iam.TestIamPermissionsResponse(permissions=found)

    def methods(self) -> Methods:
        """The method table of this service."""
        ours = methods.IAM

        async def test(call: Call, request: bytes) -> bytes:
            return self.test(call, parsed(iam.TestIamPermissionsRequest, request)).SerializeToString()

        table: dict[methods.Method, Callable[[Any], Awaitable[Message]]]
        table = {ours.SetIamPolicy: self.set_policy, ours.GetIamPolicy: self.get_policy}
        unary = served({path: checked_again(self._control, one) for path, one in table.items()}, fair=True)
        return {**unary, ours.TestIamPermissions.encode(): unary_fair(test)}

    def _has(self, call: Call, permission: str, resource: str) -> bool:
        return self._callers is None or self._callers.holds(call, permission, resource)
