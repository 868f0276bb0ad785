"""Messages as they are encoded here are those that protobuf reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.client.bulk_pieces import PIECE_BYTES, PIECE_MESSAGES, BulkPieces, OutgoingMessage, chunks
from syncpoint.client.client_errors import MessageTooLargeError
from syncpoint.client.message_encoding import MESSAGE_BYTES_MAX, encode_message, encode_plain, topic_field
from syncpoint.wire.protobuf.messages import pubsub


def read(*encoded: bytes) -> list:
    request = pubsub.PublishRequest.FromString(topic_field("projects/p/topics/t") + b"".join(encoded))
    assert request.topic == "projects/p/topics/t"
    return list(request.messages)


@given(st.binary(max_size=300), st.text(max_size=200), st.dictionaries(st.text(max_size=150), st.text(max_size=150)))
def test_a_message_is_read_as_it_was_given(data, key, attributes):
    (found,) = read(encode_message(data, key, attributes))
    assert found == pubsub.PubsubMessage(data=data, ordering_key=key, attributes=attributes)


@given(st.lists(st.one_of(st.binary(max_size=200), st.integers(0, 20_000).map(bytes)), max_size=20))
def test_plain_data_are_encoded_together(datas):
    assert [one.data for one in read(encode_plain(datas))] == datas


def test_what_is_not_bytes_or_text_and_what_is_too_large_is_refused():
    with pytest.raises(TypeError, match="data must be bytes, and is str"):
        encode_message("x", "", {})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="attribute n must be a string, and is int"):
        encode_message(b"", "", {"n": 1})  # type: ignore[dict-item]
    with pytest.raises(MessageTooLargeError, match="9,999,0"):
        encode_message(bytes(MESSAGE_BYTES_MAX), "", {})


MESSAGES = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.builds(OutgoingMessage, st.binary(max_size=9), st.sampled_from(["", "a", "b"]), st.just({"n": "1"})),
        st.integers(1, 400_000).map(bytes),
    ),
    max_size=30,
)


@given(MESSAGES, st.sampled_from(["", "k"]), st.integers(1, 40), st.integers(1, 3))
def test_pieces_have_every_message_once_in_the_order_of_its_key(given_messages, key, size, times):
    messages = given_messages * times
    pieces, found = BulkPieces(key), []
    for chunk in chunks(messages, size):
        found += pieces.add(chunk)
    found += pieces.rest()
    assert pieces.count == len(messages)
    assert sorted(place for piece in found for place in piece.places) == list(range(len(messages)))
    seen: dict[str, list[int]] = {}
    for piece in found:
        assert len(piece.places) <= PIECE_MESSAGES
        assert len(piece.encoded) <= PIECE_BYTES or len(piece.places) == 1
        for place, read_message in zip(piece.places, read(piece.encoded), strict=True):
            given_one = messages[place]
            data = given_one if isinstance(given_one, bytes) else given_one.data
            assert (read_message.data, read_message.ordering_key) == (data, piece.ordering_key)
            own = key if isinstance(given_one, bytes) else given_one.ordering_key or key
            assert own == piece.ordering_key
        seen.setdefault(piece.ordering_key, []).extend(piece.places)
    assert all(places == sorted(places) for places in seen.values())


def test_large_amounts_of_plain_data_become_full_pieces():
    datas = [b"x" * 100] * 2500
    pieces = BulkPieces()
    found = [*pieces.add(list(datas)), *pieces.rest()]
    assert [len(piece.places) for piece in found] == [1000, 1000, 500]
    large = [*BulkPieces().add([bytes(5_000)] * 1000)]
    assert all(len(piece.encoded) <= PIECE_BYTES + 5_100 for piece in large)
    with pytest.raises(TypeError, match="data must be bytes"):
        list(BulkPieces().add(["text"] * 1000))  # type: ignore[list-item]
