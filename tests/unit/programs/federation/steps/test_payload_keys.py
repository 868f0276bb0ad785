"""Payloads: what one keyring encrypts it opens, nobody else does, and nothing that was altered."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.federation.steps.payload_keys import (
    ALGORITHM,
    ALGORITHMS,
    KEY,
    Keyring,
    KeyringPlace,
    NotOpened,
)


def keyring(monkeypatch: pytest.MonkeyPatch, **algorithms: str) -> Keyring:
    text = {
        key: {"algorithm": name, "key": base64.b64encode(os.urandom(ALGORITHMS[name][1])).decode()}
        for key, name in algorithms.items()
    }
    monkeypatch.setenv("A_KEYRING", json.dumps(text))
    return KeyringPlace(env="A_KEYRING").load()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_was_encrypted_opens_with_its_key_alone(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = keyring(monkeypatch, k=algorithm), keyring(monkeypatch, k=algorithm)

    @given(plaintext=st.binary(max_size=100), at=st.integers(0, 10_000), bit=st.integers(0, 7))
    def check(plaintext: bytes, at: int, bit: int) -> None:
        data, attributes = one.encrypt("k", plaintext)
        assert one.decrypt(data, attributes) == plaintext
        with pytest.raises(NotOpened):
            other.decrypt(data, attributes)
        altered = bytearray(data)
        altered[at % len(data)] ^= 1 << bit
        with pytest.raises(NotOpened):
            one.decrypt(bytes(altered), attributes)
        assert one.encrypt("k", plaintext)[0] != data

    check()


def test_the_attributes_are_authenticated(monkeypatch: pytest.MonkeyPatch) -> None:
    found = keyring(monkeypatch, a="AES-256-GCM", b="ChaCha20-Poly1305")
    data, attributes = found.encrypt("a", b"x")
    with pytest.raises(NotOpened, match="for AES-256-GCM"):
        found.decrypt(data, attributes | {ALGORITHM: "ChaCha20-Poly1305"})
    with pytest.raises(NotOpened):
        found.decrypt(data, {KEY: "b", ALGORITHM: "ChaCha20-Poly1305"})
    with pytest.raises(NotOpened, match="no key with this id"):
        found.decrypt(data, attributes | {KEY: "c"})
    with pytest.raises(NotOpened, match=r"encryption\.key is missing"):
        found.decrypt(data, {ALGORITHM: "AES-256-GCM"})
    with pytest.raises(NotOpened):
        found.decrypt(data[:5], attributes)
    with pytest.raises(InvalidArgument, match="it has a, b"):
        found.encrypt("c", b"x")


def test_a_keyring_that_changes_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    place = KeyringPlace(file=str(file))
    with pytest.raises(InvalidArgument, match="cannot be read"):
        place.load()
    written = {"old": {"algorithm": "AES-128-GCM", "key": base64.b64encode(bytes(16)).decode()}}
    file.write_text(json.dumps(written))
    assert list(place.load().keys) == ["old"]
    assert place.load() is place.load()
    file.write_text(json.dumps(written | {"new": written["old"]}))
    assert list(place.load().keys) == ["old", "new"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("secret-text", "no keyring"),
        ('["secret-text"]', "no keyring"),
        ('{"k": {"algorithm": "secret-text", "key": ""}}', "no keyring"),
        ('{"k": {"algorithm": "AES-256-GCM", "key": "secret-text!"}}', "no keyring"),
        ('{"k": {"algorithm": "AES-256-GCM", "key": "AAAA"}}', "has 3 bytes, AES-256-GCM needs 32"),
    ],
)
def test_what_is_no_keyring_is_refused_without_showing_it(
    text: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEYRING", text)
    with pytest.raises(InvalidArgument, match=says) as error:
        KeyringPlace(env="A_KEYRING").load()
    assert "secret-text" not in str(error.value)
    monkeypatch.delenv("A_KEYRING")
    with pytest.raises(InvalidArgument, match="no variable A_KEYRING"):
        KeyringPlace(env="A_KEYRING").load()
