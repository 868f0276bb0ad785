"""Signed receipts: what was signed is read back, and nothing else passes."""

import asyncio
import json

import jwt
import pytest

from syncpoint.base.model.errors import InvalidArgument, Unavailable
from syncpoint.front.api import receipt_keys
from syncpoint.front.api.receipt_keys import ALGORITHM, PREFIX, ReceiptKeys, receipt_jwks
from syncpoint.front.client.signed_receipts import read_receipt

pytestmark = pytest.mark.shows("signed-receipts")

CLAIMS = {"iss": "1f", "iat": 1_700_000_000, "topic": "projects/p/topics/t", "messages": [["1", 1]], "entries": []}


def keys_of(plane):
    return receipt_jwks(plane.catalog).encode()


def test_what_was_signed_is_read_back_with_the_keys_alone(plane) -> None:
    text = asyncio.run(ReceiptKeys(plane).sign(CLAIMS))
    found = read_receipt(text, [keys_of(plane)])
    assert found == {**CLAIMS, "signed_at": "2023-11-14T22:13:20+00:00"}


def test_one_key_signs_for_a_process_and_that_of_another_one_stays(plane) -> None:
    one, other = ReceiptKeys(plane), ReceiptKeys(plane)
    assert json.loads(keys_of(plane)) == {"keys": []}, "no key before the first receipt"

    async def signed():
        return [await keys.sign(CLAIMS) for keys in (one, one, other)]

    texts = asyncio.run(signed())
    assert len(json.loads(keys_of(plane))["keys"]) == 2
    for text in texts:
        read_receipt(text, [keys_of(plane)])


def test_a_receipt_that_was_changed_or_is_none_is_refused(plane) -> None:
    keys = ReceiptKeys(plane)
    text = asyncio.run(keys.sign(CLAIMS))
    head, body, signature = text.split(".")
    other = jwt.utils.base64url_encode(json.dumps({**CLAIMS, "topic": "projects/p/topics/u"}).encode()).decode()
    for bad in (f"{head}.{other}.{signature}", f"{head}.{body}.{signature[:-4]}AAAA", "x.y.z", "", f"{head}.{body}."):
        with pytest.raises(InvalidArgument, match="receipt"):
            read_receipt(bad, [keys_of(plane)])
    kid, private = keys._key
    token = jwt.encode(CLAIMS, private, ALGORITHM, {"kid": kid})
    with pytest.raises(InvalidArgument, match="a token of another kind"):
        read_receipt(token, [keys_of(plane)])
    for stranger in ([], [b'{"keys": []}']):
        with pytest.raises(InvalidArgument, match="do not include the one that signed it"):
            read_receipt(text, stranger)
    symmetric = jwt.encode(CLAIMS, "x" * 32, "HS256", {"kid": kid, "typ": receipt_keys.TYPE})
    with pytest.raises(InvalidArgument, match="does not match"):
        read_receipt(symmetric, [keys_of(plane)])


def test_nothing_is_signed_with_a_key_that_is_not_published(plane) -> None:
    keys = ReceiptKeys(plane)
    plane.commits.failure = Unavailable("no disk")
    with pytest.raises(Unavailable):
        asyncio.run(keys.sign(CLAIMS))
    plane.commits.failure = None
    read_receipt(asyncio.run(keys.sign(CLAIMS)), [keys_of(plane)])


def test_the_oldest_keys_are_forgotten_and_sign_no_more(plane, monkeypatch) -> None:
    monkeypatch.setattr(receipt_keys, "KEYS_MAX", 3)

    def signed(keys: ReceiptKeys) -> str:
        plane.clock.advance(1)
        return asyncio.run(keys.sign(CLAIMS))

    oldest = ReceiptKeys(plane)
    texts = [signed(oldest), *(signed(ReceiptKeys(plane)) for _ in range(4))]
    assert len(plane.catalog.settings_named(PREFIX)) == 3
    for text in texts[2:]:
        read_receipt(text, [keys_of(plane)])
    with pytest.raises(InvalidArgument):
        read_receipt(texts[1], [keys_of(plane)])
    read_receipt(signed(oldest), [keys_of(plane)])
