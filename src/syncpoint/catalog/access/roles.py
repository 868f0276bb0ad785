"""Permissions, and the roles that hold them: Pub/Sub's as Google documents them, and Syncpoint's own.

Place: read by `policy`, which grants roles, and by `rules`, which asks for permissions.
Promise: a permission that no list here has does not exist; the tests compare `rules` with this table.
Source: the page "Pub/Sub roles and permissions" of Google Cloud's reference of IAM.
"""

from __future__ import annotations

from typing import Final


def _named(prefix: str, verbs: str) -> frozenset[str]:
    return frozenset(f"{prefix}.{verb}" for verb in verbs.split())


_READ_TAGS = "listEffectiveTags listTagBindings"
_WRITE_TAGS = "createTagBinding deleteTagBinding"
_POLICY = "getIamPolicy setIamPolicy"

_VIEW = (
    _named("pubsub.messageTransforms", "validate")
    | _named("pubsub.schemas", "get list listRevisions validate")
    | _named("pubsub.snapshots", f"get list {_READ_TAGS}")
    | _named("pubsub.subscriptions", f"get list {_READ_TAGS}")
    | _named("pubsub.topics", f"get list {_READ_TAGS}")
)
_EDIT = (
    _VIEW
    | _named("pubsub.schemas", "attach commit create delete rollback")
    | _named("pubsub.snapshots", "create delete seek update")
    | _named("pubsub.subscriptions", "consume create delete update")
    | _named("pubsub.topics", "attachSubscription create delete detachSubscription publish update updateTag")
)
_ADMIN = (
    _EDIT
    | _named("pubsub.schemas", _POLICY)
    | _named("pubsub.snapshots", f"{_POLICY} {_WRITE_TAGS}")
    | _named("pubsub.subscriptions", f"{_POLICY} {_WRITE_TAGS}")
    | _named("pubsub.topics", f"{_POLICY} {_WRITE_TAGS}")
)

# Of services that Google has no words for: the administration of a server, and data pipelines.
_SERVER_VIEW = (
    _named("syncpoint.server", "get")
    | _named("syncpoint.limits", "get")
    | _named("syncpoint.routing", "get")
    | _named("syncpoint.tenants", "get list readMetrics")
    | _named("syncpoint.projects", "get")
)  # fmt: skip
_SERVER_EDIT = (
    _SERVER_VIEW
    | _named("syncpoint.server", "update")
    | _named("syncpoint.limits", "update")
    | _named("syncpoint.routing", "update drain")
    | _named("syncpoint.tenants", "create delete update setQuotas setClass")
    | _named("syncpoint.projects", "report drill")
)  # fmt: skip
_READ_LOGS = _named("syncpoint.topics", "read listCursors") | _named("syncpoint.subscriptions", "read")
_EXCHANGE_ACKS = _named("syncpoint.subscriptions", "exchangeAcks")
_WRITE_LOGS = (
    _named("syncpoint.topics", "write deleteCursor")
    | _named("syncpoint.epochs", "write list")
    | _named("syncpoint.federations", "get hold")
)
_PROJECT_VIEW = _named("resourcemanager.projects", "get") | _named("syncpoint.projects", "get")
_REPORT = _named("syncpoint.projects", "get report")
_PROJECT_ADMIN = _PROJECT_VIEW | _named("resourcemanager.projects", "getIamPolicy setIamPolicy")
_ACT_AS = _named("iam.serviceAccounts", "actAs get list")
_ACCOUNTS = (
    _named("iam.serviceAccounts", "create delete get list")
    | _named("iam.serviceAccountKeys", "create delete list")
)  # fmt: skip

_AUDIT = _named("syncpoint.audit", "read")

TENANT_OWNER: Final = _named("syncpoint.tenants", "get readMetrics setQuotas setClass")
"""What the owners of a tenant may do with it."""

INTERNAL: Final = "syncpoint.internal.call"
"""Of calls between processes of a cluster. No role holds it: only the cluster's own certificates give it."""

OWNER = (
    _ADMIN | _SERVER_EDIT | _READ_LOGS | _WRITE_LOGS | _EXCHANGE_ACKS | _PROJECT_ADMIN | _ACT_AS | _ACCOUNTS | _AUDIT
)
_EDITOR = _EDIT | _READ_LOGS | _WRITE_LOGS | _EXCHANGE_ACKS | _PROJECT_VIEW | _ACT_AS | _REPORT

ROLES: Final[dict[str, frozenset[str]]] = {
    "roles/owner": OWNER,
    "roles/editor": _EDITOR,
    "roles/viewer": _VIEW | _PROJECT_VIEW,
    "roles/pubsub.admin": _ADMIN,
    "roles/pubsub.editor": _EDIT,
    "roles/pubsub.publisher": frozenset({"pubsub.topics.publish"}),
    "roles/pubsub.subscriber": frozenset(
        {"pubsub.snapshots.seek", "pubsub.subscriptions.consume", "pubsub.topics.attachSubscription"}
    ),
    "roles/pubsub.viewer": _VIEW,
    "roles/iam.serviceAccountAdmin": _ACCOUNTS,
    "roles/iam.serviceAccountUser": _ACT_AS,
    "roles/syncpoint.operator": _SERVER_EDIT,
    "roles/syncpoint.observer": _SERVER_VIEW,
    "roles/syncpoint.auditor": _AUDIT,
    "roles/syncpoint.logReader": _READ_LOGS | _REPORT,
    "roles/syncpoint.epochWriter": _WRITE_LOGS,
    "roles/syncpoint.ackExchanger": _EXCHANGE_ACKS,
}
"""Permissions by role. The basic roles owner, editor and viewer also hold what is Syncpoint's own."""

PERMISSIONS: Final = OWNER
"""Every permission that can be granted."""
