"""Tokens and certificates become identities, or are refused.

Place: asked by `gate` when it sees a token for the first time, and again at intervals.
Promise: the algorithm is one of the key's own kind and of those allowed for the issuer; a token is for us, of now, and
for not much longer; headers that name keys elsewhere are refused, and nothing is fetched because a token asks for it.
Why a token is refused is for the log: the caller learns only that it is.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from syncpoint.base.model.errors import InvalidArgument, Unavailable
from syncpoint.base.model.settings_section import file_named
from syncpoint.base.runtime.clock import Clock
from syncpoint.catalog.access.accounts import Account, Accounts
from syncpoint.catalog.access.keysets import KeySets, VerifyingKey, key_of_pem, keys_of_set
from syncpoint.catalog.access.policy import ALL_AUTHENTICATED, ALL_USERS, is_member, normal
from syncpoint.catalog.access.settings import PUBSUB_AUDIENCES, AuthSettings, Issuer
from syncpoint.catalog.metadata.catalog import Catalog

TOKEN_BYTES_MAX: Final = 16 * 1024
LEEWAY_S: Final = 10
SELF_SIGNED_S_MAX: Final = 3600
GROUPS_MAX: Final = 200
FRESH_S: Final = 10.0  # a key that is not in a set this young does not exist
_Read = TypeVar("_Read")
_SCOPES = frozenset({"https://www.googleapis.com/auth/pubsub", "https://www.googleapis.com/auth/cloud-platform"})
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-._")
_FOREIGN_KEYS = ("crit", "jku", "jwk", "x5u", "x5c")


class Refused(Exception):
    """A token that is not believed, and why."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls. `members`: everything a binding may call it; `expire_s`: seconds since the epoch. `account`, `kid`:
    of a service account, whose key has to be registered as long as the token is used; `uid`: of one in the catalog.
    """

    principal: str
    members: frozenset[str]
    owner: bool = False
    expire_s: float = float("inf")
    account: str = ""
    kid: str = ""
    uid: str = ""


ANONYMOUS: Final = Identity("", frozenset({ALL_USERS}))


class Authenticator:
    """Checks tokens against the file of `--auth`, the accounts of the catalog, and what was fetched of issuers' keys.

    `files`: reads a key file. `generation` changes whenever a token that was believed might not be any more.
    """

    def __init__(
        self,
        settings: AuthSettings,
        catalog: Catalog,
        clock: Clock,
        files: Callable[[Path], bytes] = Path.read_bytes,
    ) -> None:
        self._clock, self._files = clock, files
        self.accounts = Accounts(catalog, lambda: self.settings.names)
        self.sets = KeySets()
        self.settings, self._reloads = settings, 0
        self.take(settings)

    def take(self, settings: AuthSettings) -> None:
        """Go by these settings, and read the key files anew. Raises `InvalidArgument`, and changes nothing
        then."""
        accounts: dict[str, dict[str, VerifyingKey]] = {}
        for email, paths in settings.accounts.items():
            accounts[email] = dict(
                self._read(f"service_accounts: {email}: key_files", path, _pem_key) for path in paths
            )
        sets = {
            one.issuer: self._read(f"issuers: {one.issuer}: jwks_file", one.jwks_file, _key_set)
            for one in settings.issuers.values()
            if one.jwks_file
        }
        before = self.settings.issuers if self._reloads else {}
        self.sets.keep(
            {one.issuer for one in settings.issuers.values() if _source(before.get(one.issuer)) == _source(one)}
        )
        for issuer, data in sets.items():
            self.sets.put(issuer, data, self._clock.monotonic())
        self.settings, self._accounts = settings, accounts
        self._reloads += 1

    def _read(self, key: str, path: Path, understand: Callable[[bytes], _Read]) -> _Read:
        """What a file holds that a key of the settings names. Raises `InvalidArgument` naming both."""
        with file_named(key, path):
            data = self._files(path)
        try:
            return understand(data)
        except InvalidArgument as error:
            raise InvalidArgument(f"{key}: {path}", error.message) from None

    @property
    def generation(self) -> int:
        return self._reloads + self.sets.generation

    def by_token(self, token: bytes) -> Identity:
        """Who shows this token. Raises `Refused`; and `Unavailable` while the key it names may be one that was made a
        moment ago: it is being asked for."""
        header, claims = _unverified(token)
        issuer = claims.get("iss")
        if not isinstance(issuer, str):
            raise Refused("the token names no issuer")
        trusted = self.settings.issuers.get(issuer)
        if trusted is not None:
            return self._of_issuer(token, header, trusted)
        return self._self_signed(token, header, issuer)

    def still(self, identity: Identity) -> bool:
        """Whether the key of a service account is still registered, and the account still the one it was."""
        if not identity.account:
            return True
        account, key = self._account_key(identity.account, identity.kid)
        return key is not None and (account.uid if account is not None else "") == identity.uid

    def by_certificate(self, certificate: Mapping[str, Any] | None) -> Identity:
        """Who shows this certificate, which the transport has verified, as `ssl` describes it."""
        for name in _names_in(certificate or {}):
            principal = self.settings.certificates.get(name)
            if principal is not None:
                return self._identity(principal, ())
        return ANONYMOUS

    # -- tokens of issuers -------------------------------------------------------------------------------------------

    def _of_issuer(self, token: bytes, header: Mapping[str, Any], issuer: Issuer) -> Identity:
        kid = header.get("kid")
        if not isinstance(kid, str):
            raise Refused("the token names no key")
        key = self.sets.find(issuer.issuer, kid)
        if key is None:
            read_at = self.sets.read_at.get(issuer.issuer)
            if issuer.jwks_url and (read_at is None or self._clock.monotonic() > read_at + FRESH_S):
                self.sets.wanted.add(issuer.issuer)
                raise Unavailable("The keys of the token's issuer are being fetched. Try again.")
            raise Refused(f"{issuer.issuer} has no key {kid[:100]!r}")
        claims = self._verified(token, header, key, issuer.algorithms)
        expire_s = self._timely(claims)
        _for_us(claims, issuer.audiences)
        return self._identity(self._called(claims, issuer), _groups(claims, issuer), expire_s)

    def _called(self, claims: Mapping[str, Any], issuer: Issuer) -> str:
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject:
            raise Refused("the token has no subject")
        if issuer.claim == "sub":
            address = f"{_spelled(subject)}@{issuer.domains[0]}"
        else:
            address = claims.get("email", "")
            if not isinstance(address, str) or claims.get("email_verified") is not True:
                raise Refused("the token has no verified email")
            if address.rpartition("@")[2].lower() not in issuer.domains:
                raise Refused(f"{issuer.issuer} does not speak for {address[:100]!r}")
        member = f"{issuer.kind}:{address}"
        if not is_member(member):
            raise Refused(f"{member[:100]!r} is no principal")
        return normal(member)

    # -- tokens that service accounts sign themselves ----------------------------------------------------------------

    def _self_signed(self, token: bytes, header: Mapping[str, Any], email: str) -> Identity:
        kid = header.get("kid")
        account, key = self._account_key(email, kid) if isinstance(kid, str) else (None, None)
        if key is None:
            raise Refused(
                f"{email[:100]!r} is no issuer that is trusted, or has no such key; keys of addresses that the file of"
                " --auth uses are believed from there alone"
            )
        claims = self._verified(token, header, key, ("RS256", "ES256"))
        expire_s = self._timely(claims)
        issued = _number(claims, "iat")
        if issued is None or expire_s - issued > SELF_SIGNED_S_MAX + LEEWAY_S:
            raise Refused("a token that is signed by its subject must not be good for more than an hour")
        if claims.get("sub") != email:
            raise Refused("issuer and subject of the token differ")
        if "aud" in claims:
            _for_us(claims, (*self.settings.audiences, *PUBSUB_AUDIENCES))
        elif not _SCOPES & set(str(claims.get("scope", "")).split()):
            raise Refused("the token has neither an audience nor the scope of Pub/Sub")
        principal = f"serviceAccount:{email}"
        if account is None:
            return self._identity(principal, (), expire_s, account=email, kid=str(kid))
        members = self.accounts.members(account) | {ALL_AUTHENTICATED, ALL_USERS}
        return Identity(principal, members, False, expire_s, email, str(kid), account.uid)

    def _account_key(self, email: str, kid: str) -> tuple[Account | None, VerifyingKey | None]:
        """A key that is good now, and the account if it is one of the catalog."""
        if email in self._accounts:
            return None, self._accounts[email].get(kid)
        account = self.accounts.find(email)
        for one in account.keys if account is not None else ():
            if one.id == kid and (not one.expire_s or one.expire_s > self._now_s()):
                return account, key_of_pem(one.public_pem)[1]
        return None, None

    # -- both --------------------------------------------------------------------------------------------------------

    def _verified(
        self, token: bytes, header: Mapping[str, Any], key: VerifyingKey, allowed: Sequence[str]
    ) -> Mapping[str, Any]:
        """The claims, once the signature is checked. Times and audience are checked by us, by our clock."""
        import jwt  # the server of somebody who uses no tokens starts without

        for name in _FOREIGN_KEYS:
            if name in header:
                raise Refused(f"the token's header has {name!r}")
        algorithms = [one for one in allowed if one in key.algorithms]
        if header.get("alg") not in algorithms:
            raise Refused(f"the token's algorithm is {str(header.get('alg'))[:20]!r}, not one of {algorithms}")
        unchecked = {f"verify_{one}": False for one in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")}
        try:
            claims = jwt.decode(token, key.key, algorithms=algorithms, options=unchecked)  # type: ignore[arg-type]
        except jwt.PyJWTError as error:
            raise Refused(f"the token is not valid: {error}") from None
        return claims

    def _timely(self, claims: Mapping[str, Any]) -> float:
        """When the token expires. Raises `Refused` for one that has, or that is not good yet."""
        now_s, expires = self._now_s(), _number(claims, "exp")
        if expires is None:
            raise Refused("the token does not say when it expires")
        if expires + LEEWAY_S <= now_s:
            raise Refused("the token has expired")
        for name in ("nbf", "iat"):
            begins = _number(claims, name)
            if name in claims and (begins is None or begins - LEEWAY_S > now_s):
                raise Refused(f"the token is not good yet: {name}")
        return expires

    def _identity(
        self, principal: str, groups: Sequence[str], expire_s: float = float("inf"), account: str = "", kid: str = ""
    ) -> Identity:
        domain = principal.rpartition("@")[2]
        members = frozenset(
            (principal, f"domain:{domain}", ALL_AUTHENTICATED, ALL_USERS, *(normal(f"group:{one}") for one in groups))
        )
        owner = not self.settings.owners.isdisjoint(members)
        return Identity(principal, members, owner, expire_s, account, kid)

    def _now_s(self) -> float:
        return self._clock.time_ns() / 1e9


def _unverified(token: bytes) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Header and claims as they are, to find out whose key to check them with."""
    if len(token) > TOKEN_BYTES_MAX:
        raise Refused(f"the token is longer than {TOKEN_BYTES_MAX} bytes")
    parts = token.split(b".")
    if len(parts) != 3:
        raise Refused("the token is no JWT")
    found = []
    for part in parts[:2]:
        try:
            value = json.loads(base64.b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True))
        except (binascii.Error, ValueError, RecursionError):
            raise Refused("the token is no JWT") from None
        if not isinstance(value, dict):
            raise Refused("the token is no JWT")
        found.append(value)
    return found[0], found[1]


def _for_us(claims: Mapping[str, Any], audiences: Sequence[str]) -> None:
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    wanted = {one.rstrip("/") for one in audiences}
    if not any(isinstance(one, str) and one.rstrip("/") in wanted for one in named):
        raise Refused(f"the token is for {str(audience)[:200]!r}, not for this server")


def _source(issuer: Issuer | None) -> tuple[object, object] | None:
    return None if issuer is None else (issuer.jwks_url, issuer.jwks_file)


def _spelled(subject: str) -> str:
    """A subject as the first part of an address, another one for each: addresses are the same in capitals."""
    return "".join(char if char in _PLAIN else "".join(f"%{byte:02x}" for byte in char.encode()) for char in subject)


def _groups(claims: Mapping[str, Any], issuer: Issuer) -> list[str]:
    if not issuer.groups_claim:
        return []
    listed = claims.get(issuer.groups_claim)
    if not isinstance(listed, list):
        return []
    return [
        one
        for one in listed[:GROUPS_MAX]
        if isinstance(one, str) and is_member(f"group:{one}") and one.rpartition("@")[2].lower() in issuer.domains
    ]


def _number(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        return None
    return float(value)


def _names_in(certificate: Mapping[str, Any]) -> list[str]:
    """The names of a certificate's holder, as the file of `--auth` writes them."""
    names = []
    for kind, value in certificate.get("subjectAltName", ()):
        if kind in ("URI", "DNS"):
            names.append(f"{kind}:{value}")
        elif kind == "email":
            names.append(f"EMAIL:{value}")
    for part in certificate.get("subject", ()):
        names += [f"CN:{value}" for key, value in part if key == "commonName"]
    return names


def _key_set(data: bytes) -> bytes:
    keys_of_set(data)
    return data


def _pem_key(data: bytes) -> tuple[str, VerifyingKey]:
    return key_of_pem(data.decode("ascii", "replace"))
