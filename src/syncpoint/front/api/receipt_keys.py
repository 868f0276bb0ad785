"""Keys that sign receipts, and the set that anybody checks them with, also without a server.

Place: under `receipt_admin`, one in every process that clients call; public halves are settings of the catalog.
Promise: a private key is drawn when the first receipt is signed, never leaves this process and is never written down.
Its public half is in the catalog before that, and stays: receipts are checked years later. Of more than KEYS_MAX the
oldest are forgotten, and sign no more; who kept the set can still check theirs.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from syncpoint.catalog.access.keysets import key_id
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Setting
from syncpoint.cluster.control.plane import ControlPlane

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PREFIX: Final = "receipt-key:"
ALGORITHM: Final = "EdDSA"
TYPE: Final = "syncpoint-receipt+jwt"
"""Its kind in the header, so that no token of another kind passes for a receipt."""
KEYS_MAX: Final = 1_000


class ReceiptKeys:
    """The key of this process, and the set of all."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control
        self._key: tuple[str, Ed25519PrivateKey] | None = None
        self._making = asyncio.Lock()

    async def sign(self, claims: Mapping[str, Any]) -> str:
        """A receipt. Raises `Unavailable` while its key cannot be published."""
        import jwt  # the server of somebody who signs nothing starts without

        kid, private = await self._made()
        return jwt.encode(dict(claims), private, ALGORITHM, {"kid": kid, "typ": TYPE})

    async def _made(self) -> tuple[str, Ed25519PrivateKey]:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        async with self._making:
            if self._key is None or self._control.catalog.setting(PREFIX + self._key[0]) is None:
                private = Ed25519PrivateKey.generate()
                public = private.public_key()
                made = key_id(public), private
                raw = base64.urlsafe_b64encode(public.public_bytes_raw()).rstrip(b"=").decode()
                value = json.dumps({"x": raw, "since_ns": self._control.clock.time_ns()}).encode()
                changes = [CatalogChange.delete(Setting(name)) for name in _oldest(self._control.catalog)]
                await self._control.commit([*changes, CatalogChange.put(Setting(PREFIX + made[0], value))])
                self._key = made
            return self._key


def _oldest(catalog: Catalog) -> list[str]:
    """Keys that have to make room for one."""
    names = catalog.settings_named(PREFIX)
    by_age = sorted(names, key=lambda name: int(json.loads(catalog.setting(name) or b"{}")["since_ns"]))
    return by_age[: max(0, len(names) + 1 - KEYS_MAX)]


def receipt_jwks(catalog: Catalog) -> str:
    """The key set."""
    keys = []
    for name in catalog.settings_named(PREFIX):
        found = json.loads(catalog.setting(name) or b"{}")
        kid = name.removeprefix(PREFIX)
        keys.append({"alg": ALGORITHM, "crv": "Ed25519", "kid": kid, "kty": "OKP", "use": "sig", "x": found["x"]})
    return json.dumps({"keys": keys})
