"""Payloads encrypted from end to end: opened with one keyring, encrypted with a key of another audience.

Place: under `normalising`, in Spark's Python workers; publishers and subscribers may use it, too.
Format: the data are a nonce of 12 bytes, then the ciphertext with its tag of 16; the attributes `encryption.key` and
`encryption.algorithm` name the key, and are authenticated with it. Nonces are random, so a key is good for 2^32
messages: replace it long before.
Promise: altered data does not open. Errors contain no byte of key or payload.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from syncpoint.base.model.errors import InvalidArgument

KEY, ALGORITHM = "encryption.key", "encryption.algorithm"
NONCE_BYTES = 12
ALGORITHMS: dict[str, tuple[type[AESGCM] | type[ChaCha20Poly1305], int]] = {
    "AES-128-GCM": (AESGCM, 16),
    "AES-256-GCM": (AESGCM, 32),
    "ChaCha20-Poly1305": (ChaCha20Poly1305, 32),
}


class NotOpened(ValueError):
    """A payload that does not open, without a word on what it holds."""


@dataclass(frozen=True, slots=True)
class KeyringPlace:
    """Where a keyring is: a file, or a variable of the environment with its text. Nothing secret."""

    file: str = ""
    env: str = ""

    def load(self) -> Keyring:
        """Read it, a file only when it has changed. Raises `InvalidArgument`, which shows nothing of it."""
        if self.env:
            text = os.environ.get(self.env)
            if text is None:
                raise InvalidArgument("keys.env", f"the environment has no variable {self.env}")
            return _parsed(text, self.env)
        try:
            stat = os.stat(self.file)
            return _read(self.file, stat.st_mtime_ns, stat.st_size, stat.st_ino)
        except OSError as error:
            raise InvalidArgument("keys.file", f"{self.file} cannot be read: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class Keyring:
    """Keys by id, each for one algorithm."""

    keys: Mapping[str, tuple[str, Any]]

    def encrypt(self, key: str, plaintext: bytes) -> tuple[bytes, dict[str, str]]:
        """Data, and the attributes that go with them. Raises `InvalidArgument` when there is no such key."""
        if key not in self.keys:
            raise InvalidArgument(
                "encrypt.key", f"the keyring has no key {key!r}; it has {', '.join(sorted(self.keys))}"
            )
        algorithm, cipher = self.keys[key]
        nonce = os.urandom(NONCE_BYTES)
        named = {KEY: key, ALGORITHM: algorithm}
        return nonce + cipher.encrypt(nonce, plaintext, _authenticated(named)), named

    def decrypt(self, data: bytes, attributes: Mapping[str, str]) -> bytes:
        """The plaintext. Raises `NotOpened`."""
        key, algorithm = attributes.get(KEY), attributes.get(ALGORITHM)
        if key is None or algorithm is None:
            raise NotOpened(f"the attribute {ALGORITHM if key else KEY} is missing")
        if key not in self.keys:
            raise NotOpened("the keyring has no key with this id")
        known, cipher = self.keys[key]
        if algorithm != known:
            raise NotOpened(f"the key is for {known}")
        try:
            plaintext: bytes = cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], _authenticated(attributes))
        except (InvalidTag, ValueError):
            raise NotOpened("the data was altered, or encrypted with a different key of this id") from None
        return plaintext


def _authenticated(attributes: Mapping[str, str]) -> bytes:
    return f"{attributes[ALGORITHM]}\n{attributes[KEY]}".encode()


@lru_cache(maxsize=16)
def _read(file: str, *state: int) -> Keyring:
    return _parsed(Path(file).read_text(encoding="utf-8"), file)


def _parsed(text: str, place: str) -> Keyring:
    """A keyring of JSON: {"ID": {"algorithm": "AES-256-GCM", "key": "base 64"}}. Raises `InvalidArgument`."""
    found = {}
    try:
        for key, given in json.loads(text).items():
            kind, size = ALGORITHMS[given["algorithm"]]
            secret = base64.b64decode(given["key"], validate=True)
            if len(secret) != size:
                raise InvalidArgument(
                    place, f"the key {key} has {len(secret)} bytes, {given['algorithm']} needs {size}"
                )
            found[str(key)] = (str(given["algorithm"]), kind(secret))
    except (ValueError, binascii.Error, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            place,
            "it is no keyring: it must be an object in JSON of"
            f' "ID": {{"algorithm": one of {", ".join(ALGORITHMS)}, "key": base 64}} ({type(error).__name__})',
        ) from None
    return Keyring(found)
