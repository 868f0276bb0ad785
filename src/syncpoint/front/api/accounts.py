"""syncpoint.iam.v1.ServiceAccounts: accounts of programs, and the public halves of their keys.

Place: beside `iam`, over the catalog, in which accounts are settings.
Promise: what was deleted is refused from the moment the call returns, by every process that serves clients as soon as
the change has reached its copy of the catalog. A private key is neither made nor seen here. A project makes accounts
with addresses of its own alone; who may make accounts in all projects gives them any that the configuration does not
use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from google.protobuf.message import Message

from syncpoint.base.model.errors import AlreadyExists, InvalidArgument, NotFound, ResourceExhausted
from syncpoint.base.model.names import parse_project
from syncpoint.catalog.access.accounts import (
    ACCOUNTS_MAX,
    KEYS_MAX,
    Account,
    Accounts,
    Key,
    accounts_in,
    all_accounts,
    find_account,
    parse_email,
    uid_from,
)
from syncpoint.catalog.access.keysets import canonical, key_of_pem
from syncpoint.catalog.access.permission_needs import SERVER
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.catalog_retries import checked_again
from syncpoint.front.api.iam import Callers
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import accounts, well_known
from syncpoint.wire.protobuf.serving import parsed, served
from syncpoint.wire.transport.calls import Call, Methods
from syncpoint.wire.transport.tasks import unary_fair

PEM_CHARS_MAX = 4096
_S = 1_000_000_000


class AccountsService:
    """The methods on messages; `methods()` serves them on bytes. `callers` None: callers are not identified, and
    everybody may do everything.
    """

    def __init__(self, control: ControlPlane, known: Accounts | None = None, callers: Callers | None = None) -> None:
        self._control, self._callers = control, callers
        self._accounts = known or Accounts(control.catalog)

    async def create(self, call: Call, request: accounts.CreateServiceAccountRequest) -> accounts.ServiceAccount:
        """CreateServiceAccount."""
        project, email = parse_project(request.project), parse_email(request.email)
        names = self._accounts.names
        if not names.own(email, project) and (
            names.of_projects(email)
            or not (self._callers is None or self._callers.holds(call, "iam.serviceAccounts.create", SERVER))
        ):
            raise InvalidArgument(
                "email", f"{email} must have the form NAME@{names.domain_of(project)}, the domain of {project}"
            )
        self._check_free(email)
        if len(request.display_name) > 100:
            raise InvalidArgument("display_name", "must not be longer than 100 characters")
        if find_account(self._control.catalog, email) is not None:
            raise AlreadyExists(email)
        if len(accounts_in(self._control.catalog, project)) >= ACCOUNTS_MAX:
            raise ResourceExhausted(
                f"{project} already has {ACCOUNTS_MAX} service accounts, the maximum. Delete one first."
            )
        made = Account(
            email, project, request.display_name, self._now_s(), (), uid_from(self._control.random.token(32))
        )
        await self._control.commit([CatalogChange.put(made.setting())])
        return self._message(made)

    async def list(self, request: accounts.ListServiceAccountsRequest) -> accounts.ListServiceAccountsResponse:
        """ListServiceAccounts."""
        catalog, names = self._control.catalog, self._accounts.names
        found = accounts_in(catalog, parse_project(request.project)) if request.project else all_accounts(catalog)
        if request.foreign:
            found = [one for one in found if not names.own(one.email, one.project)]
        return accounts.ListServiceAccountsResponse(accounts=map(self._message, found))

    async def delete(self, request: accounts.DeleteServiceAccountRequest) -> well_known.Empty:
        """DeleteServiceAccount."""
        await self._control.commit([CatalogChange.delete(self._found(request.email).setting())])
        return well_known.Empty()

    async def add_key(self, request: accounts.AddServiceAccountKeyRequest) -> accounts.ServiceAccountKey:
        """AddServiceAccountKey."""
        account = self._found(request.email)
        self._check_free(account.email)
        pem, key_id = public_key(request.public_key)
        if any(key.id == key_id for key in account.keys):
            raise AlreadyExists(f"{account.email}/keys/{key_id}")
        if len(account.keys) >= KEYS_MAX:
            raise ResourceExhausted(f"{account.email} already has {KEYS_MAX} keys, the maximum. Delete one first.")
        ttl_s, now_s = request.ttl.ToSeconds(), self._now_s()
        if ttl_s < 0:
            raise InvalidArgument("ttl", "must not be negative (0 means that the key does not expire)")
        key = Key(key_id, pem, now_s, now_s + ttl_s if ttl_s else 0)
        await self._control.commit([CatalogChange.put(replace(account, keys=(*account.keys, key)).setting())])
        return _key_message(key)

    async def list_keys(self, request: accounts.ListServiceAccountKeysRequest) -> Any:
        """ListServiceAccountKeys."""
        return accounts.ListServiceAccountKeysResponse(keys=map(_key_message, self._found(request.email).keys))

    async def delete_key(self, request: accounts.DeleteServiceAccountKeyRequest) -> well_known.Empty:
        """DeleteServiceAccountKey."""
        account = self._found(request.email)
        left = tuple(key for key in account.keys if key.id != request.id)
        if len(left) == len(account.keys):
            raise NotFound(f"{account.email}/keys/{request.id}")
        await self._control.commit([CatalogChange.put(replace(account, keys=left).setting())])
        return well_known.Empty()

    def methods(self) -> Methods:
        """The method table of this service."""
        ours = methods.ACCOUNTS

        async def create(call: Call, request: bytes) -> bytes:
            creating = checked_again(self._control, partial(self.create, call))
            return (await creating(parsed(accounts.CreateServiceAccountRequest, request))).SerializeToString()

        table: dict[methods.Method, Callable[[Any], Awaitable[Message]]] = {
            ours.ListServiceAccounts: self.list,
            ours.DeleteServiceAccount: self.delete,
            ours.AddServiceAccountKey: self.add_key,
            ours.ListServiceAccountKeys: self.list_keys,
            ours.DeleteServiceAccountKey: self.delete_key,
        }
        unary = served({path: checked_again(self._control, one) for path, one in table.items()}, fair=True)
        return {**unary, ours.CreateServiceAccount.encode(): unary_fair(create)}

    def _check_free(self, email: str) -> None:
        if self._accounts.names.reserved(email):
            raise InvalidArgument("email", f"{email} is used in the server's configuration; choose another address")

    def _message(self, account: Account) -> accounts.ServiceAccount:
        made = accounts.ServiceAccount(
            email=account.email,
            project=account.project,
            display_name=account.display_name,
            unique_id=account.uid,
            reserved=self._accounts.names.reserved(account.email),
        )
        made.create_time.FromSeconds(account.created_s)
        return made

    def _found(self, email: str) -> Account:
        account = find_account(self._control.catalog, parse_email(email))
        if account is None:
            raise NotFound(email)
        return account

    def _now_s(self) -> int:
        return self._control.clock.time_ns() // _S


def public_key(pem: str) -> tuple[str, str]:
    """A public key in its canonical form, and its id. Raises `InvalidArgument` for anything else."""
    if len(pem) > PEM_CHARS_MAX:
        raise InvalidArgument("public_key", f"must not be longer than {PEM_CHARS_MAX} characters")
    key_id, key = key_of_pem(pem)
    return canonical(key.key), key_id


def _key_message(key: Key) -> accounts.ServiceAccountKey:
    made = accounts.ServiceAccountKey(id=key.id, public_key=key.public_pem)
    made.create_time.FromSeconds(key.created_s)
    if key.expire_s:
        made.expire_time.FromSeconds(key.expire_s)
    return made
