"""Keys that sign the tokens of pushes, and the documents that let an endpoint check them.

Place: one `SigningKeys` in every process that pushes; public halves are settings of the catalog, so any process answers
with those of all.
Promise: a private key is drawn here, never leaves this process and is never written down. Its public half is in the
catalog before anything is signed with it, and stays until the last token signed with it is over. A key signs for a day;
the next one is published some time before it is used, for who keeps key sets.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.runtime.clock import Clock
from syncpoint.catalog.access.keysets import key_id
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Setting

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

PREFIX: Final = "push-key:"
ALGORITHM: Final = "RS256"
TOKEN_S: Final = 3_600
SIGNS_S: Final = 24 * 3_600
AHEAD_S: Final = 3_600  # how long a successor is published before it signs
GRACE_S: Final = 3_600  # for clocks that differ, and for processes that stand still
JWKS_PATH: Final = "/oauth2/v3/certs"
DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
BITS: Final = 2_048

Commit = Callable[[Sequence[CatalogChange]], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class _SigningKey:
    id: str
    private: RSAPrivateKey
    signs_from_s: int

    @property
    def signs_until_s(self) -> int:
        return self.signs_from_s + SIGNS_S


def draw_key() -> RSAPrivateKey:
    """A new key; takes up to a second of CPU, outside of Python's lock."""
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key  # not where no push is signed

    return generate_private_key(public_exponent=65_537, key_size=BITS)


class SigningKeys:
    """Keep the keys that sign push tokens, and publish their documents.

    `commit` changes the catalog, and returns once the change is durable.
    """

    def __init__(
        self, catalog: Catalog, commit: Commit, clock: Clock, *, draw: Callable[[], RSAPrivateKey] = draw_key
    ) -> None:
        self._catalog, self._commit, self._clock, self._draw = catalog, commit, clock, draw
        self._keys: list[_SigningKey] = []  # published, oldest first

    async def upkeep(self) -> None:
        """To be called once a minute, and before the first token: the key of now, or soon, exists and is published."""
        now_s = self._now_s()
        published = self._catalog.setting  # an older catalog that was restored may lack some
        self._keys = [one for one in self._keys if now_s < one.signs_until_s and published(PREFIX + one.id) is not None]
        if not self._keys:
            await self._publish(now_s)
        elif self._keys[-1].signs_until_s - now_s <= AHEAD_S:
            await self._publish(self._keys[-1].signs_until_s)
        over = [
            CatalogChange.delete(Setting(name))
            for name in self._catalog.settings_named(PREFIX)
            if _until_s(self._catalog.setting(name)) <= now_s
        ]
        if over:
            await self._commit(over)

    def sign(self, claims: Mapping[str, Any]) -> str:
        """A token. Raises `Unavailable` while there is no key that could be checked."""
        import jwt

        now_s = self._now_s()
        for key in self._keys:
            if key.signs_from_s <= now_s < key.signs_until_s:
                return jwt.encode(dict(claims), key.private, ALGORITHM, {"kid": key.id})
        raise Unavailable("The keys that sign pushes are not published yet.")

    @property
    def current(self) -> str | None:
        """The id of the key that signs now."""
        now_s = self._now_s()
        return next((key.id for key in self._keys if key.signs_from_s <= now_s < key.signs_until_s), None)

    async def _publish(self, signs_from_s: int) -> None:
        private = await asyncio.to_thread(self._draw)
        public = private.public_key()
        numbers = public.public_numbers()
        key = _SigningKey(key_id(public), private, signs_from_s)
        value = {
            "n": _base64url(numbers.n),
            "e": _base64url(numbers.e),
            "until_s": key.signs_until_s + TOKEN_S + GRACE_S,
        }
        await self._commit([CatalogChange.put(Setting(PREFIX + key.id, json.dumps(value, sort_keys=True).encode()))])
        self._keys.append(key)

    def _now_s(self) -> int:
        return self._clock.time_ns() // 1_000_000_000


def jwks(catalog: Catalog) -> bytes:
    """The key set (JWKS) that tokens of pushes are checked with, of all processes."""
    keys = []
    for name in sorted(catalog.settings_named(PREFIX)):
        found = json.loads(catalog.setting(name) or b"{}")
        if "n" in found and "e" in found:
            kid = name.removeprefix(PREFIX)
            keys.append({"alg": ALGORITHM, "e": found["e"], "kid": kid, "kty": "RSA", "n": found["n"], "use": "sig"})
    return json.dumps({"keys": keys}).encode()


def discovery(issuer: str) -> bytes:
    """The OpenID Connect discovery document, with the address of the key set. `issuer`: our address as endpoints see
    it, https://HOST.
    """
    base = issuer.rstrip("/")
    return json.dumps(
        {
            "issuer": issuer,
            "jwks_uri": base + JWKS_PATH,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
            "claims_supported": ["aud", "azp", "email", "email_verified", "exp", "iat", "iss", "sub"],
        }
    ).encode()


def _until_s(value: bytes | None) -> float:
    return float("inf") if value is None else int(json.loads(value).get("until_s", 0))


def _base64url(number: int) -> str:
    data = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
