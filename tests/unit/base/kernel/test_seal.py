"""Sealing and opening: nothing but data changes, whatever is foreign is refused or kept back."""

from __future__ import annotations

import contextlib
import os
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.kernel import seal
from syncpoint.base.kernel.errors import Malformed
from syncpoint.wire.protobuf.messages import pubsub

CIPHER = AESGCM(bytes(range(32)))
HEADER = seal.header_of(7)
KEYS = {7: CIPHER.decrypt}

messages = st.builds(
    lambda data, attributes, key, known: pubsub.PubsubMessage(
        data=data, attributes=attributes, ordering_key=key, message_id=known
    ),
    st.binary(max_size=300),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    st.text(max_size=5),
    st.text(max_size=5),
)
requests = st.lists(messages, max_size=5).map(lambda found: pubsub.PublishRequest(topic="t", messages=found))


def delivered(request: Any) -> bytes:
    """A response with the messages of a request, as a subscribe forwarder would make it."""
    received = [
        pubsub.ReceivedMessage(ack_id=f"ack-{i}", message=one, delivery_attempt=i)
        for i, one in enumerate(request.messages)
    ]
    properties = pubsub.StreamingPullResponse.SubscriptionProperties(message_ordering_enabled=True)
    made: bytes = pubsub.StreamingPullResponse(
        received_messages=received, subscription_properties=properties
    ).SerializeToString()
    return made


@given(requests, st.integers(0, 2**96 - 1))
def test_what_was_sealed_opens_again(request: Any, nonce: int) -> None:
    raw = request.SerializeToString()
    sealed, count = seal.seal_request(raw, HEADER, nonce, CIPHER.encrypt)
    hidden = pubsub.PublishRequest.FromString(sealed)
    assert count == sum(1 for one in request.messages if one.data)
    assert hidden.topic == request.topic
    for before, after in zip(request.messages, hidden.messages, strict=True):
        assert len(after.data) == (len(before.data) + seal.OVERHEAD_BYTES if before.data else 0)
        kept = pubsub.PubsubMessage.FromString(after.SerializeToString())
        kept.data = before.data
        assert kept == before
    opened, kept_back, missing = seal.open_response(delivered(hidden), KEYS)
    assert (kept_back, missing) == ([], [])
    assert pubsub.StreamingPullResponse.FromString(opened) == pubsub.StreamingPullResponse.FromString(
        delivered(request)
    )


def test_every_message_has_a_nonce_of_its_own_and_they_wrap() -> None:
    request = pubsub.PublishRequest(messages=[pubsub.PubsubMessage(data=b"x")] * 3).SerializeToString()
    sealed, _ = seal.seal_request(request, HEADER, 2**96 - 2, CIPHER.encrypt)
    nonces = [one.data[12:24] for one in pubsub.PublishRequest.FromString(sealed).messages]
    assert nonces == [(2**96 - 2).to_bytes(12, "little"), (2**96 - 1).to_bytes(12, "little"), bytes(12)]


def test_data_given_twice_counts_once_and_the_last_wins() -> None:
    body = b"\x0a\x01a" + b"\x2a\x01k" + b"\x0a\x02bc"
    request = b"\x12" + bytes((len(body),)) + body
    sealed, _ = seal.seal_request(request, HEADER, 1, CIPHER.encrypt)
    assert b"bc" not in sealed
    opened, _, _ = seal.open_response(delivered(pubsub.PublishRequest.FromString(sealed)), KEYS)
    (found,) = pubsub.StreamingPullResponse.FromString(opened).received_messages
    assert (found.message.data, found.message.ordering_key) == (b"bc", "k")


def test_data_that_looks_sealed_is_sealed_once_more() -> None:
    request = pubsub.PublishRequest(messages=[pubsub.PubsubMessage(data=HEADER + bytes(60))])
    sealed, _ = seal.seal_request(request.SerializeToString(), HEADER, 1, CIPHER.encrypt)
    opened, _, _ = seal.open_response(delivered(pubsub.PublishRequest.FromString(sealed)), KEYS)
    assert pubsub.StreamingPullResponse.FromString(opened).received_messages[0].message.data == HEADER + bytes(60)


def sealed_response(*data: bytes) -> bytes:
    request = pubsub.PublishRequest(messages=[pubsub.PubsubMessage(data=one) for one in data])
    sealed, _ = seal.seal_request(request.SerializeToString(), HEADER, 1, CIPHER.encrypt)
    return delivered(pubsub.PublishRequest.FromString(sealed))


def test_tampered_data_is_kept_back_and_the_rest_arrives() -> None:
    response = bytearray(sealed_response(b"first", b"second", b"third"))
    at = response.index(HEADER, response.index(HEADER) + 1)
    response[at + 24] ^= 1
    opened, kept_back, missing = seal.open_response(response, KEYS)
    found = pubsub.StreamingPullResponse.FromString(opened)
    assert [one.message.data for one in found.received_messages] == [b"first", b"third"]
    assert found.subscription_properties.message_ordering_enabled
    assert (kept_back, missing) == ([b"ack-1"], [])


def test_another_key_under_the_same_number_opens_nothing() -> None:
    opened, kept_back, _ = seal.open_response(sealed_response(b"first"), {7: AESGCM(bytes(32)).decrypt})
    assert kept_back == [b"ack-0"]
    assert not pubsub.StreamingPullResponse.FromString(opened).received_messages


def test_missing_keys_are_named_once() -> None:
    assert seal.open_response(sealed_response(b"first", b"second"), {}) == (b"", [], [7])


def test_plain_responses_are_given_back_as_they_came() -> None:
    response = delivered(pubsub.PublishRequest(messages=[pubsub.PubsubMessage(data=b"plain")]))
    assert seal.open_response(response, {})[0] is response


def test_numbers_of_keys_have_32_bits() -> None:
    assert len(seal.header_of(2**32 - 1)) == seal.HEADER_BYTES
    with pytest.raises(ValueError):
        seal.header_of(2**32)


def cipher(nonce: bytes, data: bytes, header: bytes) -> bytes:
    """Reversible, quick, and sensitive to all it is given."""
    turn = sum(nonce) + sum(header) & 255
    return bytes(byte ^ turn for byte in data) + bytes(16)


def decipher(nonce: bytes, data: bytes, header: bytes) -> bytes:
    if data[-16:] != bytes(16):
        raise ValueError("tampered")
    return cipher(nonce, data[:-16], header)[:-16]


def outcome(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except ValueError as error:
        return type(error).__name__, error.args


fragments = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([HEADER + bytes(12) + bytes(20), HEADER + bytes(40), HEADER]),
)
fields = st.builds(lambda n, value: bytes((n << 3 | 2, len(value))) + value, st.integers(1, 4), fragments)
bodies = st.lists(st.one_of(fields, st.binary(max_size=4)), max_size=4).map(b"".join)
nested = st.builds(lambda n, value: bytes((n << 3 | 2, len(value) & 127)) + value, st.integers(1, 2), bodies)
twice = st.builds(
    lambda n, value: bytes((n << 3 | 2, len(value) & 127)) + value, st.integers(1, 2), st.lists(nested).map(b"".join)
)


@given(st.lists(st.one_of(nested, twice, st.binary(max_size=4)), max_size=4).map(b"".join), st.integers(0, 2**96 - 1))
def test_compiled_and_uncompiled_agree(pure: SimpleNamespace, raw: bytes, nonce: int) -> None:
    arguments = (raw, HEADER, nonce, cipher)
    assert outcome(seal.seal_request, *arguments) == outcome(pure.seal.seal_request, *arguments)
    for keys in ({7: decipher}, {}):
        assert outcome(seal.open_response, raw, keys) == outcome(pure.seal.open_response, raw, keys)


@given(st.binary(max_size=60))
def test_foreign_bytes_are_refused_or_harmless(raw: bytes) -> None:
    for call in (lambda: seal.seal_request(raw, HEADER, 1, cipher), lambda: seal.open_response(raw, {})):
        with contextlib.suppress(Malformed):
            call()


def test_torn_messages_are_refused() -> None:
    whole = sealed_response(os.urandom(50))
    with pytest.raises(Malformed):
        seal.open_response(whole[:-10], KEYS)
    with pytest.raises(Malformed):
        seal.seal_request(b"\x12\x03\x0a\x05x", HEADER, 1, cipher)


def column(values: list[bytes], before: bytes = b"", behind: bytes = b"") -> tuple[bytes, tuple[int, int, int]]:
    """A batch with a binary column in it, which begins in the middle of its values, and where it lies."""
    array = pa.array([b"?!", *values], pa.binary())[1:]
    _, offsets, data = array.buffers()
    assert offsets is not None
    bounds = offsets.to_pybytes()[4 : 4 * (len(values) + 2)]
    content = data.to_pybytes() if data is not None else b""
    batch = before + bounds + content + behind
    return batch, (len(before), len(before) + len(bounds), len(content))


def rows_of(offsets: bytes, values: bytes) -> list[bytes]:
    count = len(offsets) // 4 - 1
    found: list[bytes] = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    ).to_pylist()
    return found


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(0, 2**96 - 1), st.binary(max_size=9))
def test_a_column_that_was_sealed_opens_again(values: list[bytes], nonce: int, around: bytes) -> None:
    batch, place = column(values, around, around)
    offsets, sealed, count = seal.seal_values(batch, place, len(values), HEADER, nonce, CIPHER.encrypt)
    hidden = rows_of(offsets, sealed)
    assert count == sum(map(bool, values))
    assert [len(one) for one in hidden] == [len(one) + seal.OVERHEAD_BYTES if one else 0 for one in values]
    mixed = [*hidden, b"never sealed", b""]
    batch, place = column(mixed, around)
    opened = seal.open_values(batch, place, len(mixed), KEYS)
    if not count:
        assert opened == (b"", b"", [], [])
        return
    assert rows_of(*opened[:2]) == [*values, b"never sealed", b""]
    assert opened[2:] == ([], [])
    assert seal.open_values(batch, place, len(mixed), {}) == (b"", b"", [], [7])
    broken = next(i for i, one in enumerate(hidden) if one)
    mixed[broken] = mixed[broken][:-1] + bytes([mixed[broken][-1] ^ 1])
    batch, place = column(mixed, around)
    assert seal.open_values(batch, place, len(mixed), KEYS)[2] == [broken]


def test_the_nonces_of_a_column_count_on() -> None:
    used: list[bytes] = []

    def encrypt(nonce: bytes, data: bytes, header: bytes) -> bytes:
        used.append(nonce)
        return bytes(16)

    batch, place = column([b"a", b"", b"b"])
    seal.seal_values(batch, place, 3, HEADER, 2**96 - 1, encrypt)
    assert used == [(2**96 - 1).to_bytes(12, "little"), bytes(12)]


@pytest.mark.parametrize(
    ("place", "rows"),
    [((0, 16, 3), 4), ((-4, 16, 3), 3), ((0, 16, 9), 3), ((0, 16, 2), 3), ((4, 16, 3), -1), ((8, 16, 3), 3),
     ((0, 16, -1), 3)],
)  # fmt: skip
def test_a_column_that_leads_outside_is_refused(place: tuple[int, int, int], rows: int) -> None:
    batch = b"".join(at.to_bytes(4, "little") for at in (0, 1, 2, 3)) + b"abc"
    assert seal.seal_values(batch, (0, 16, 3), 3, HEADER, 0, CIPHER.encrypt)[2] == 3
    for work in (
        lambda: seal.seal_values(batch, place, rows, HEADER, 0, CIPHER.encrypt),
        lambda: seal.open_values(batch, place, rows, KEYS),
    ):
        with pytest.raises(Malformed):
            work()
