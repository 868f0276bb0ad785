"""Service accounts and the public halves of their keys, as they stand in the catalog, and whose their addresses are.

Place: settings of the catalog, changed by `api.accounts`, read by `tokens` at every token that is seen first.
Promise: private keys are never here. An account or a key that was deleted is known nowhere once the catalog has the
change. An account differs from an earlier one of the same address by its `uid`. One whose address is the
configuration's own is nobody, however it came into the catalog.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.names import SERVICE_IDENTITY
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Setting

PREFIX: Final = "service-account:"
OWN_DOMAIN: Final = SERVICE_IDENTITY.rpartition("@")[2]
"""What addresses of accounts, and of the service's own identity, end with where nothing else is configured."""
ACCOUNTS_MAX: Final = 1000
"""Of one project."""
KEYS_MAX = 10  # of one account, as Google has it
_EMAIL = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}@[a-z0-9][a-z0-9.-]{0,189}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Key:
    """A public key. `id` is what tokens name in `kid`; `expire_s`: seconds since the epoch, 0: it does not."""

    id: str
    public_pem: str
    created_s: int = 0
    expire_s: int = 0


@dataclass(frozen=True, slots=True)
class Account:
    """A service account. `project`: projects/P that it belongs to, whose grants say who may manage it."""

    email: str
    project: str
    display_name: str = ""
    created_s: int = 0
    keys: tuple[Key, ...] = ()
    drawn_uid: str = ""  # "": of the time before accounts had one

    @property
    def uid(self) -> str:
        """What no other account has, of whatever address: 21 digits, as Google's accounts have."""
        return self.drawn_uid or uid_from(self.email.encode())

    def setting(self) -> Setting:
        """As it is stored."""
        value = {
            "project": self.project,
            "display_name": self.display_name,
            "created_s": self.created_s,
            "uid": self.drawn_uid,
            "keys": [[key.id, key.public_pem, key.created_s, key.expire_s] for key in self.keys],
        }
        return Setting(PREFIX + self.email, json.dumps(value, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class AccountNames:
    """Which addresses belong to projects, and which to nobody's accounts because the configuration uses them.

    `suffix`: an account of projects/P is called NAME@P.iam.SUFFIX. `addresses`, `domains`: in lower case.
    """

    suffix: str = OWN_DOMAIN
    addresses: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()

    def domain_of(self, project: str) -> str:
        """The domain after the @ in the addresses of projects/P."""
        return f"{project.removeprefix('projects/')}.iam.{self.suffix}"

    def own(self, email: str, project: str) -> bool:
        """Whether an address belongs to projects/P, so that nobody else can have it."""
        return email.rpartition("@")[2] == self.domain_of(project)

    def of_projects(self, email: str) -> bool:
        """Whether an address belongs to some project."""
        return email.endswith(f".iam.{self.suffix}")

    def reserved(self, email: str) -> bool:
        """Whether the configuration, or the service itself, uses an address or its whole domain."""
        domain = email.rpartition("@")[2].rstrip(".")
        return email in self.addresses or domain in self.domains or domain == OWN_DOMAIN


class Accounts:
    """The accounts of a catalog under the names in force."""

    def __init__(self, catalog: Catalog, names: Callable[[], AccountNames] = AccountNames) -> None:
        self._catalog, self._names = catalog, names

    @property
    def names(self) -> AccountNames:
        """The names in force."""
        return self._names()

    def find(self, email: str) -> Account | None:
        """The account of an address, if it may show who it is."""
        account = find_account(self._catalog, email)
        return None if account is None or self._names().reserved(email) else account

    def members(self, account: Account) -> frozenset[str]:
        """What bindings call an account: by its uid, and by the bare address only if it is older than uids are."""
        member = f"serviceAccount:{account.email}"
        found = {f"{member}?uid={account.uid}"}
        if not account.drawn_uid:
            found.add(member)
        if self._names().own(account.email, account.project):
            found.add(f"domain:{account.email.rpartition('@')[2]}")
        return frozenset(found)


def uid_from(data: bytes) -> str:
    """A number of 21 digits that follows from these bytes."""
    return f"1{int.from_bytes(hashlib.sha256(data).digest()[:8], 'big'):020d}"


def parse_email(email: str) -> str:
    """Check an account's address. Raises `InvalidArgument`."""
    if _EMAIL.fullmatch(email) is None:
        raise InvalidArgument("email", f"{email!r} must have the form name@domain, in lowercase")
    return email


def find_account(catalog: Catalog, email: str) -> Account | None:
    """The account of that address."""
    value = catalog.setting(PREFIX + email)
    return None if value is None else _read(email, value)


def accounts_in(catalog: Catalog, project: str) -> list[Account]:
    """All accounts of projects/P, by address."""
    own = f'"project":"{project}"'.encode()  # what others have is not read
    return [one for one in _all(catalog, own) if one.project == project]


def all_accounts(catalog: Catalog) -> list[Account]:
    """The accounts of every project, by address."""
    return list(_all(catalog))


def _all(catalog: Catalog, having: bytes = b"") -> Iterator[Account]:
    for name in catalog.settings_named(PREFIX):
        value = catalog.setting(name)
        if value is not None and having in value:
            yield _read(name.removeprefix(PREFIX), value)


def _read(email: str, value: bytes) -> Account:
    found = json.loads(value)
    return Account(
        email,
        found["project"],
        found["display_name"],
        int(found["created_s"]),
        tuple(Key(str(key), str(pem), int(created), int(expire)) for key, pem, created, expire in found["keys"]),
        found.get("uid", ""),
    )
