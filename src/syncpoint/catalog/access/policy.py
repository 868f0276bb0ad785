"""Policies of IAM: which members hold which roles on a resource, and what follows from that for one permission.

Place: plain code over the catalog, in whose settings the policies stand. `api.iam` changes them, `gate` asks.
Promise: a policy belongs to one incarnation of its resource: one that is created anew begins with none. What a project
grants holds on everything in it, what the server grants (the resource `server`) on every project. Nothing is granted by
default. A grant to a service account of the catalog is stored with its uid, so that another one of the same address
does not have it: it is shown as `deleted:serviceAccount:ADDRESS?uid=UID` from the account's end on. A policy is
replaced only by who has seen the one that stands, if an etag names which that was.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from syncpoint.base.model.errors import Aborted, InvalidArgument, NotFound
from syncpoint.base.model.names import project_of
from syncpoint.catalog.access import conditions
from syncpoint.catalog.access.accounts import Accounts
from syncpoint.catalog.access.conditions import Condition, Context, compiled, variables_of
from syncpoint.catalog.access.permission_needs import SERVER, any_resource
from syncpoint.catalog.access.roles import ROLES, TENANT_OWNER
from syncpoint.catalog.access.tenant_book import PREFIX as TENANT
from syncpoint.catalog.access.tenant_book import RESOURCE, read_tenant
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, ChangeOp, Setting, Snapshot, Subscription, Topic
from syncpoint.catalog.schemas.stored import Schema, find_schema, schema_of_setting
from syncpoint.wire.protobuf.messages import iam

PREFIX: Final = "iam-policy:"
NO_POLICY_ETAG: Final = b"\x00\x20\x01"
"""Of a resource that has none; "ACAB" in JSON, as the real service has it."""
PRINCIPALS_MAX: Final = 1500
BINDINGS_MAX: Final = 1500
CONDITIONS_MAX: Final = 100
"""Bindings of a policy that have conditions; those that stand may be more."""
TERMS_KNOWN_MAX: Final = 500_000
"""Of the conditions of all policies that are kept compiled, 400 bytes each."""
_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
ALL_USERS: Final = "allUsers"
_EVERYBODY: Final = ALL_USERS.encode()
ALL_AUTHENTICATED: Final = "allAuthenticatedUsers"
_ADDRESS = r"[^@\s:/]{1,128}@[A-Za-z0-9][A-Za-z0-9.-]{0,189}"
DELETED: Final = "deleted:"
_DELETED = re.compile(rf"{DELETED}serviceAccount:{_ADDRESS}\?uid=[0-9]{{1,30}}")
_MEMBER = re.compile(
    rf"(user|serviceAccount|group):{_ADDRESS}|domain:[A-Za-z0-9][A-Za-z0-9.-]{{0,189}}|{ALL_USERS}|{ALL_AUTHENTICATED}"
)


class Verdict(NamedTuple):
    """Whether something is granted; `passing`: that hung on a condition, so it may be otherwise a moment later."""

    allowed: bool
    passing: bool = False


_NONE = Verdict(False)


class _Compiled(NamedTuple):
    """A policy as it is asked: members by permission, and what is granted on conditions."""

    source: bytes
    grants: dict[str, frozenset[str]]
    conditional: tuple[tuple[frozenset[str], frozenset[str], Condition], ...]


class Policies:
    """All policies of a catalog."""

    def __init__(self, catalog: Catalog, accounts: Accounts | None = None) -> None:
        self._catalog, self._accounts = catalog, accounts or Accounts(catalog)
        self._known: dict[str, _Compiled] = {}
        self._terms = 0  # of the conditions that were compiled since nothing was known
        self._to_everybody: set[str] = set()  # where policies stand that may grant something to everybody
        catalog.follow_settings(PREFIX, self._notice)

    def verdict(self, members: frozenset[str], permission: str, resource: str, now_s: float) -> Verdict:
        """Whether any of these members holds the permission on the resource, or on what it lies in."""
        passing, variables = False, None
        for holder in _lineage(resource):
            policy = self._of(holder)
            if policy is None:
                continue
            if not policy.grants.get(permission, frozenset()).isdisjoint(members):
                return Verdict(True)
            for permissions, who, condition in policy.conditional:
                if permission in permissions and not who.isdisjoint(members):
                    passing = True
                    variables = variables or variables_of(Context(resource, now_s))
                    if condition.holds(variables):
                        return Verdict(True, True)
        return Verdict(False, True) if passing else _NONE

    def get(self, name: str, version: int = 0) -> iam.Policy:
        """The policy of a resource, as a caller that understands `version` may read it. Raises `NotFound`,
        `InvalidArgument`."""
        if version not in (0, 1, 3):
            raise InvalidArgument("options.requested_policy_version", "must be 0, 1 or 3")
        stored = self._stored(self._key_of_existing(name))
        if version < 3:
            stored.version = min(stored.version, 1)
            for binding in stored.bindings:
                if binding.HasField("condition"):
                    digest = hashlib.sha256(binding.condition.SerializeToString(deterministic=True)).hexdigest()[:20]
                    binding.role += f"_withcond_{digest}"
                    binding.ClearField("condition")
        return _with_members(stored, self.shown)

    def changed(self, name: str, policy: iam.Policy, paths: Iterable[str] = ()) -> tuple[Setting, iam.Policy]:
        """What is to be stored for a resource to have this policy, and the policy as it then is. `paths`: of the field
        mask; none: everything. Raises `NotFound`, `InvalidArgument`, and `Aborted` when another one stands than the
        etag names.
        """
        key = self._key_of_existing(name)
        known = self._stored(key)
        if policy.etag and policy.etag != known.etag:
            raise Aborted(
                "There were concurrent policy changes. Please retry the whole read-modify-write with exponential"
                " backoff."
            )
        made = iam.Policy()
        made.CopyFrom(policy)
        wanted = set(paths)
        if unknown := wanted - {"bindings", "etag", "version"}:
            raise InvalidArgument("update_mask", f"unknown path {min(unknown)}; use bindings, etag and version")
        if wanted and "bindings" not in wanted:
            del made.bindings[:]
            made.bindings.extend(known.bindings)
            _with_members(made, self.shown)
        check(made)
        _with_members(made, self.meant)
        made.version = max(made.version, 1)
        made.etag = hashlib.sha256(key.encode() + known.etag + made.SerializeToString(deterministic=True)).digest()[:8]
        setting = Setting(key, made.SerializeToString(deterministic=True))
        return setting, _with_members(made, self.shown)

    def grant_to_everybody(self) -> bool:
        """Whether any policy may grant something to callers who do not say who they are."""
        return bool(self._to_everybody)

    def _notice(self, key: str, source: bytes | None) -> None:
        if source is not None and _EVERYBODY in source:
            self._to_everybody.add(key)
        else:
            self._to_everybody.discard(key)

    def exists(self, name: str) -> bool:
        """Whether there is such a resource."""
        return self._key(name) is not None

    def meant(self, member: str) -> str:
        """A member as it is stored. Raises `InvalidArgument` for an account that nobody but a project could make, and
        that it did not make."""
        if member.startswith(DELETED):
            return member.removeprefix(DELETED)
        kind, _, email = normal(member).partition(":")
        if kind != "serviceAccount":
            return member
        account = self._accounts.find(email)
        if account is not None:
            return f"{kind}:{email}?uid={account.uid}"
        names = self._accounts.names
        if names.of_projects(email) and not names.reserved(email):
            raise InvalidArgument(
                "policy.bindings.members",
                f"Service account {email} does not exist. Create it first.",
            )
        return member

    def shown(self, member: str) -> str:
        """A member as callers read it: an account that is there by its address alone."""
        if not member.startswith("serviceAccount:"):
            return member
        bare, _, uid = member.partition("?uid=")
        account = self._accounts.find(normal(bare).partition(":")[2])
        if uid:
            return bare if account is not None and account.uid == uid else f"{DELETED}{member}"
        # A grant from before the account was made is none to it.
        return bare if account is None or not account.drawn_uid else f"{DELETED}{bare}?uid=0"

    # -- stored ------------------------------------------------------------------------------------------------------

    def _of(self, resource: str) -> _Compiled | None:
        key = self._key(resource)
        source = None if key is None else self._catalog.setting(key)
        if key is None or source is None:
            return None
        known = self._known.get(key)
        if known is None or known.source is not source:
            known = _of_owners(key, source) if key.startswith(TENANT) else _compile(source)
            self._terms += sum(condition.terms for _, _, condition in known.conditional)
            if len(self._known) >= 10_000 or self._terms > TERMS_KNOWN_MAX:
                self._known.clear()
                self._terms = 0
            self._known[key] = known
        return known

    def _key(self, resource: str) -> str | None:
        """Where the policy of a resource stands; None: there is no such resource."""
        if resource == SERVER:
            return PREFIX + SERVER
        if resource.startswith(RESOURCE):
            return TENANT + resource.removeprefix(RESOURCE)
        parts = resource.split("/")
        if len(parts) == 2:
            return PREFIX + resource
        return policy_key(self._catalog, resource)

    def _key_of_existing(self, name: str) -> str:
        any_resource(name)
        key = self._key(name)
        if key is None:
            raise NotFound(name)
        return key

    def _stored(self, key: str) -> iam.Policy:
        value = self._catalog.setting(key)
        if value is None:
            return iam.Policy(etag=NO_POLICY_ETAG)
        return iam.Policy.FromString(value)


def policy_key(catalog: Catalog, resource: str) -> str | None:
    """Where the policy of a topic, subscription, snapshot or schema stands; None: there is no such resource."""
    record: Topic | Subscription | Snapshot | None = None
    match resource.split("/")[2]:
        case "topics":
            record = catalog.topic(resource)
        case "subscriptions":
            record = catalog.subscription(resource)
        case "snapshots":
            record = catalog.snapshot(resource)
        case "schemas":
            schema = find_schema(catalog, resource)
            return None if schema is None else _key_of_schema(schema)
    return None if record is None else _key_of(record)


def _key_of(record: Topic | Subscription | Snapshot) -> str:
    return f"{PREFIX}{type(record).__name__.lower()}s/{record.incarnation}"


def _key_of_schema(schema: Schema) -> str:
    return f"{PREFIX}schemas/{schema.uid:016x}"


def orphaned_policies(catalog: Catalog, changes: Iterable[CatalogChange]) -> Iterator[CatalogChange]:
    """Deletions of the policies of what these changes delete."""
    for change in changes:
        record = change.record
        if change.op is not ChangeOp.DELETE:
            continue
        if isinstance(record, Setting):
            schema = schema_of_setting(record)
            if schema is None:
                continue
            key = _key_of_schema(schema)
        else:
            key = _key_of(record)
        if catalog.setting(key) is not None:
            yield CatalogChange.delete(Setting(key))


def check(policy: iam.Policy) -> None:
    """Raise `InvalidArgument` for a policy that must not stand."""
    if policy.version not in (0, 1, 3):
        raise InvalidArgument("policy.version", "must be 0, 1 or 3")
    if len(policy.bindings) > BINDINGS_MAX:
        raise InvalidArgument("policy.bindings", f"must not have more than {BINDINGS_MAX} bindings")
    if sum(len(binding.members) for binding in policy.bindings) > PRINCIPALS_MAX:
        raise InvalidArgument(
            "policy.bindings",
            f"The number of members in the policy is larger than the maximum allowed size {PRINCIPALS_MAX}.",
        )
    if sum(binding.HasField("condition") for binding in policy.bindings) > CONDITIONS_MAX:
        raise InvalidArgument("policy.bindings", f"must not have more than {CONDITIONS_MAX} bindings with conditions")
    for binding in policy.bindings:
        if binding.role not in ROLES:
            raise InvalidArgument("", f"Role {binding.role} is not supported for this resource.")
        for member in binding.members:
            if not is_member(member) and not is_deleted(member):
                raise InvalidArgument(
                    "",
                    f"The member {member} is of an unknown type. Please set a valid type prefix for the member"
                    " (user:, serviceAccount:, group:, domain:), or name allUsers or allAuthenticatedUsers.",
                )
        if binding.HasField("condition") and policy.version != 3:
            raise InvalidArgument("policy.version", "must be 3 for a policy with conditions")
    conditions.check(one.condition.expression for one in policy.bindings if one.HasField("condition"))


def _lineage(resource: str) -> tuple[str, ...]:
    if resource == SERVER:
        return (SERVER,)
    if resource.count("/") == 1:
        return resource, SERVER
    return resource, project_of(resource), SERVER


def _compile(source: bytes) -> _Compiled:
    grants: dict[str, set[str]] = {}
    conditional = []
    try:
        policy = iam.Policy.FromString(source)
    except DecodeError:
        return _Compiled(source, {}, ())
    for binding in policy.bindings:
        permissions = ROLES.get(binding.role, frozenset())
        members = frozenset(normal(member) for member in binding.members)
        if binding.HasField("condition"):
            try:
                conditional.append((permissions, members, compiled(binding.condition.expression)))
            except InvalidArgument:
                continue  # written by a server that can evaluate it: here it grants nothing
        else:
            for permission in permissions:
                grants.setdefault(permission, set()).update(members)
    return _Compiled(source, {key: frozenset(who) for key, who in grants.items()}, tuple(conditional))


def _of_owners(key: str, source: bytes) -> _Compiled:
    """A tenant grants its owners what is theirs."""
    owners = frozenset(map(normal, read_tenant(key, source).owners))
    return _Compiled(source, dict.fromkeys(TENANT_OWNER, owners), ())


def is_member(member: str) -> bool:
    """Whether a binding may name it."""
    return _MEMBER.fullmatch(member) is not None


def is_deleted(member: str) -> bool:
    """Whether it is an account that was deleted, in the form in which callers read it."""
    return _DELETED.fullmatch(member) is not None


def normal(member: str) -> str:
    """Addresses and domains are the same in any case of letters of ASCII. Of other letters (the sign of kelvin, say)
    the small one may be one of ASCII, which would make two addresses one."""
    kind, colon, rest = member.partition(":")
    return f"{kind}:{rest.translate(_LOWER)}" if colon else member


def _with_members(policy: iam.Policy, change: Callable[[str], str]) -> iam.Policy:
    for binding in policy.bindings:
        binding.members[:] = [change(member) for member in binding.members]
    return policy
