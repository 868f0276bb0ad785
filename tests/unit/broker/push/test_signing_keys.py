"""Tokens of pushes, the keys that sign them, and the documents they are checked with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from syncpoint.base.model.errors import PermissionDenied, Unavailable
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.broker.push import signing_keys
from syncpoint.broker.push.oidc_tokens import OidcTokens
from syncpoint.broker.push.signing_keys import (
    AHEAD_S,
    GRACE_S,
    PREFIX,
    SIGNS_S,
    TOKEN_S,
    SigningKeys,
    discovery,
    draw_key,
    jwks,
)
from syncpoint.catalog.access.accounts import uid_from
from syncpoint.catalog.access.keysets import keys_of_set
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Setting
from syncpoint.wire.protobuf.messages import pubsub

ISSUER = "https://pubsub.example"
ACCOUNT = "pusher@p.example"


@lru_cache
def drawn(number: int) -> RSAPrivateKey:
    return draw_key()


class Process:
    """One process of those that share a catalog."""

    def __init__(self, catalog: Catalog, clock: ManualClock, first: int = 0) -> None:
        self.catalog, self.down, self.next = catalog, False, first
        self.subjects = {ACCOUNT: uid_from(ACCOUNT.encode())}
        self.keys = SigningKeys(catalog, self.commit, clock, draw=self.draw)
        self.tokens = OidcTokens(self.keys, ISSUER, clock, self.subjects.get)

    def draw(self) -> RSAPrivateKey:
        self.next += 1
        return drawn(self.next)

    async def commit(self, changes: Sequence[CatalogChange]) -> None:
        if self.down:
            raise Unavailable("no")
        for change in self.catalog.assign(changes):
            self.catalog.apply(change)

    def upkeep(self) -> None:
        asyncio.run(self.keys.upkeep())

    def token(self, audience: str = "") -> str:
        config = pubsub.PushConfig(push_endpoint="https://e.example/push")
        config.oidc_token.service_account_email = ACCOUNT
        config.oidc_token.audience = audience
        found = self.tokens.header(config)
        assert found is not None
        name, value = found
        assert name == b"authorization"
        return value.removeprefix(b"Bearer ").decode()


def verified(
    token: str, catalog: Catalog, clock: ManualClock, audience: str = "https://e.example/push"
) -> dict[str, Any]:
    """As an endpoint does, with what we publish."""
    keys = keys_of_set(jwks(catalog))
    key = keys[jwt.get_unverified_header(token)["kid"]].key
    claims = jwt.decode(
        token, key, ["RS256"], audience=audience, issuer=ISSUER, options={"verify_exp": False, "verify_iat": False}
    )
    assert claims["iat"] <= clock.time_ns() / 1e9 < claims["exp"]
    return claims


def test_a_token_says_who_and_for_whom() -> None:
    clock, catalog = ManualClock(), Catalog()
    process = Process(catalog, clock)
    process.upkeep()
    claims = verified(process.token(), catalog, clock)
    assert claims["email"] == ACCOUNT
    assert claims["email_verified"] is True
    assert claims["sub"] == claims["azp"] == process.subjects[ACCOUNT]
    assert len(claims["sub"]) == 21
    assert claims["exp"] - claims["iat"] == 3_600
    verified(process.token("mine"), catalog, clock, "mine")
    with pytest.raises(jwt.InvalidAudienceError):
        verified(process.token(), catalog, clock, "https://other.example/push")
    process.subjects[ACCOUNT] = "2" * 21  # another account of the same address
    assert verified(process.token(), catalog, clock)["sub"] == "2" * 21


def test_nothing_private_is_written_down_and_nothing_is_signed_before_it_is_published() -> None:
    clock, catalog = ManualClock(), Catalog()
    process = Process(catalog, clock)
    process.down = True
    with pytest.raises(Unavailable):
        process.upkeep()
    with pytest.raises(Unavailable, match="not published"):
        process.token()
    process.down = False
    process.upkeep()
    stored = json.loads(catalog.setting(catalog.settings_named(PREFIX)[0]) or b"")
    assert stored.keys() == {"n", "e", "until_s"}


def test_keys_rotate_published_ahead_and_stay_until_their_last_token_is_over() -> None:
    clock, catalog = ManualClock(), Catalog()
    process = Process(catalog, clock)
    process.upkeep()
    first = process.keys.current
    clock.advance(SIGNS_S - AHEAD_S + 1)
    process.upkeep()
    assert process.keys.current == first
    assert len(keys_of_set(jwks(catalog))) == 2
    clock.advance(AHEAD_S - 2)
    last = process.token()
    clock.advance(2)
    process.upkeep()
    second = process.keys.current
    assert second not in (None, first)
    verified(last, catalog, clock)
    verified(process.token(), catalog, clock)
    clock.advance(TOKEN_S + GRACE_S)
    process.upkeep()
    assert list(keys_of_set(jwks(catalog))) == [second]


def test_every_process_publishes_the_keys_of_all() -> None:
    clock, catalog = ManualClock(), Catalog()
    one, two = Process(catalog, clock), Process(catalog, clock, first=1)
    one.upkeep()
    two.upkeep()
    verified(one.token(), catalog, clock)
    verified(two.token(), catalog, clock)
    assert one.keys.current != two.keys.current


def test_a_token_is_used_for_half_an_hour_and_not_for_an_account_that_is_gone() -> None:
    clock, catalog = ManualClock(), Catalog()
    process = Process(catalog, clock)
    process.upkeep()
    token = process.token()
    clock.advance(TOKEN_S / 2 - 1)
    assert process.token() == token
    clock.advance(2)
    later = process.token()
    assert later != token
    asyncio.run(process.commit([CatalogChange.delete(Setting(one)) for one in catalog.settings_named(PREFIX)]))
    process.upkeep()
    assert process.token() != later, "its key is published no more"
    config = pubsub.PushConfig(push_endpoint="https://e.example/")
    assert process.tokens.header(config) is None
    config.oidc_token.service_account_email = "gone@p.example"
    with pytest.raises(PermissionDenied):
        process.tokens.header(config)


def test_discovery_leads_to_the_key_set() -> None:
    found = json.loads(discovery(ISSUER))
    assert found["issuer"] == ISSUER
    assert found["jwks_uri"] == ISSUER + signing_keys.JWKS_PATH
    assert found["id_token_signing_alg_values_supported"] == ["RS256"]
