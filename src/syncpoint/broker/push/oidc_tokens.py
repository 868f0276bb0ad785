"""The identity of our requests: the token (OpenID Connect, JWT) in its header.

Place: under the driver of pushes, and under `transforms.inference`, over `signing_keys`.
Promise: a token is for one audience, by default the endpoint itself, so an endpoint that gets one cannot use it at
another. It is used for half of its hour at most, and never after the account it names is gone.
"""

from __future__ import annotations

from collections.abc import Callable

from syncpoint.base.model.errors import PermissionDenied
from syncpoint.base.runtime.clock import Clock
from syncpoint.broker.push.signing_keys import TOKEN_S, SigningKeys
from syncpoint.wire.protobuf.messages import pubsub

CACHED_MAX = 10_000


class OidcTokens:
    """`issuer`: our address as endpoints see it. `subject`: the number of the service account that has an address now;
    None: there is none."""

    def __init__(self, keys: SigningKeys, issuer: str, clock: Clock, subject: Callable[[str], str | None]) -> None:
        self._keys, self._issuer, self._clock, self._subject = keys, issuer, clock, subject
        self._cached: dict[tuple[str, str, str], tuple[int, str | None, bytes]] = {}  # until when, by which key

    def header(self, config: pubsub.PushConfig) -> tuple[bytes, bytes] | None:
        """The header that pushes carry; None where none is asked for. Raises as `bearer`."""
        if not config.HasField("oidc_token"):
            return None
        token = config.oidc_token
        return b"authorization", self.bearer(token.service_account_email, token.audience or config.push_endpoint)

    def bearer(self, account: str, audience: str) -> bytes:
        """What stands in the header `authorization`. Raises `PermissionDenied` for an account that does not exist,
        `Unavailable` while nothing can be signed.
        """
        subject = self._subject(account)
        if subject is None:
            raise PermissionDenied(f"The service account {account} does not exist.")
        now_s = self._clock.time_ns() // 1_000_000_000
        until_s, key, value = self._cached.get((account, subject, audience), (0, None, b""))
        if now_s >= until_s or key != self._keys.current:
            value = b"Bearer " + self._keys.sign(self._claims(account, subject, audience, now_s)).encode()
            if len(self._cached) >= CACHED_MAX:
                self._cached.clear()
            self._cached[account, subject, audience] = now_s + TOKEN_S // 2, self._keys.current, value
        return value

    def _claims(self, account: str, subject: str, audience: str, now_s: int) -> dict[str, object]:
        return {
            "aud": audience, "azp": subject, "email": account, "email_verified": True, "exp": now_s + TOKEN_S,
            "iat": now_s, "iss": self._issuer, "sub": subject,
        }  # fmt: skip
