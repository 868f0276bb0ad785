"""Service accounts and the public halves of their keys, as they stand in the catalog.

Place: settings of the catalog, changed by `api.accounts`, read by `tokens` at every token that is seen first.
Promise: private keys are never here. An account or a key that was deleted is known nowhere once the catalog says so.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from syncpoint.metadata.catalog import Catalog
from syncpoint.metadata.records import Setting
from syncpoint.model.errors import InvalidArgument

PREFIX: Final = "service-account:"
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

    def setting(self) -> Setting:
        """As it is stored."""
        value = {
            "project": self.project,
            "display_name": self.display_name,
            "created_s": self.created_s,
            "keys": [[key.id, key.public_pem, key.created_s, key.expire_s] for key in self.keys],
        }
        return Setting(PREFIX + self.email, json.dumps(value, separators=(",", ":")).encode())


def parse_email(email: str) -> str:
    """Check an account's address. Raises `InvalidArgument`."""
    if _EMAIL.fullmatch(email) is None:
        raise InvalidArgument("email", f"{email!r} is not of the form name@domain in lower case")
    return email


def find_account(catalog: Catalog, email: str) -> Account | None:
    """The account of that address."""
    value = catalog.setting(PREFIX + email)
    return None if value is None else _read(email, value)


def accounts_in(catalog: Catalog, project: str) -> list[Account]:
    """All accounts of projects/P, by address."""
    names = (name.removeprefix(PREFIX) for name in catalog.settings_named(PREFIX))
    found = (find_account(catalog, email) for email in names)
    return [one for one in found if one is not None and one.project == project]


def _read(email: str, value: bytes) -> Account:
    found = json.loads(value)
    return Account(
        email,
        found["project"],
        found["display_name"],
        int(found["created_s"]),
        tuple(Key(str(key), str(pem), int(created), int(expire)) for key, pem, created, expire in found["keys"]),
    )
