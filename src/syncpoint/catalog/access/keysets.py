"""Public keys that tokens are checked with: sets of issuers (JWKS) and single files (PEM).

Place: under `tokens`; `upkeep` fetches what lies elsewhere.
Promise: only keys that fit signatures of the allowed kinds get in, and each only for its own kind, so that the public
key of one kind is never taken for the secret of another. What a newly fetched set does not have is forgotten.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from syncpoint.base.model.errors import InvalidArgument

SET_BYTES_MAX: Final = 256 * 1024
KEYS_MAX: Final = 100


class VerifyingKey(NamedTuple):
    """A public key, and the algorithms it may be used with."""

    key: Any
    algorithms: frozenset[str]


def keys_of_set(data: bytes) -> dict[str, VerifyingKey]:
    """The keys of a JWKS by id. Keys of other kinds, for other uses or without an id are left out. Raises
    `InvalidArgument` for what is no key set."""
    import jwt  # the server of somebody who uses no tokens starts without

    if len(data) > SET_BYTES_MAX:
        raise InvalidArgument("jwks", f"must not be larger than {SET_BYTES_MAX} bytes")
    try:
        listed = json.loads(data)["keys"]
        if not isinstance(listed, list):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidArgument("jwks", "must be a JSON Web Key Set") from None
    found = {}
    for one in listed[:KEYS_MAX]:
        if not isinstance(one, dict) or one.get("use", "sig") != "sig" or not isinstance(one.get("kid"), str):
            continue
        if one.get("kty") not in ("RSA", "EC", "OKP"):
            continue
        try:
            key = fitting(jwt.PyJWK.from_dict(one).key)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            continue
        if key is not None:
            found[one["kid"]] = key
    return found


def key_of_pem(pem: str) -> tuple[str, VerifyingKey]:
    """A public key by its id. Raises `InvalidArgument`."""
    from cryptography.hazmat.primitives import serialization

    try:
        key = serialization.load_pem_public_key(pem.encode())
    except (ValueError, TypeError):
        raise InvalidArgument("key", "must be a public key in PEM format") from None
    made = fitting(key)
    if made is None or not {"RS256", "ES256"}.intersection(made.algorithms):  # those that google-auth signs with
        raise InvalidArgument("key", "must be an RSA key of 2048 to 8192 bits, or a P-256 key")
    return key_id(key), made


def key_id(key: Any) -> str:
    """What a key that is registered here is called in tokens."""
    return hashlib.sha256(canonical(key).encode()).hexdigest()[:40]


def canonical(key: Any) -> str:
    """The public key in PEM form."""
    from cryptography.hazmat.primitives import serialization

    form = serialization.PublicFormat.SubjectPublicKeyInfo
    pem: bytes = key.public_bytes(serialization.Encoding.PEM, form)
    return pem.decode()


def fitting(key: Any) -> VerifyingKey | None:
    """The key with what it may check; None for one that is too weak, or private, or of another kind."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    match key:
        case rsa.RSAPublicKey() if 2048 <= key.key_size <= 8192:
            return VerifyingKey(key, frozenset({"RS256", "RS384", "RS512", "PS256"}))
        case ec.EllipticCurvePublicKey() if isinstance(key.curve, ec.SECP256R1):
            return VerifyingKey(key, frozenset({"ES256"}))
        case ec.EllipticCurvePublicKey() if isinstance(key.curve, ec.SECP384R1):
            return VerifyingKey(key, frozenset({"ES384"}))
        case ed25519.Ed25519PublicKey():
            return VerifyingKey(key, frozenset({"EdDSA"}))
    return None


class KeySets:
    """The sets of all issuers, as they were last read. `generation` counts changes."""

    def __init__(self) -> None:
        self.generation = 0
        self._sets: dict[str, Mapping[str, VerifyingKey]] = {}
        self.read_at: dict[str, float] = {}
        self.wanted: set[str] = set()
        """Issuers whose set should be read soon: a token names a key that is not in it."""

    def put(self, issuer: str, data: bytes, now: float) -> None:
        """What was read. Raises `InvalidArgument`, and keeps what there was."""
        found = keys_of_set(data)
        self.read_at[issuer] = now
        self.wanted.discard(issuer)
        if found.keys() != self._sets.get(issuer, {}).keys() or any(
            canonical(key.key) != canonical(self._sets[issuer][one].key) for one, key in found.items()
        ):
            self._sets[issuer] = found
            self.generation += 1

    def keep(self, issuers: set[str]) -> None:
        """Forget the sets of all others."""
        for issuer in self._sets.keys() - issuers:
            del self._sets[issuer]
            self.read_at.pop(issuer, None)
            self.generation += 1

    def find(self, issuer: str, kid: str) -> VerifyingKey | None:
        """The key that a token names."""
        return self._sets.get(issuer, {}).get(kid)
