"""The publish scan against the official message classes: what passes, what is refused and why, and broken bytes."""

from __future__ import annotations

import random

import pytest
from google.pubsub_v1 import types
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base import kernel
from syncpoint.base.kernel import frames
from syncpoint.base.kernel.errors import Invalid, Malformed
from syncpoint.base.kernel.publish import scan, scan_plain, topic_of
from syncpoint.base.model import publish_rules
from tests.kit.examples import examples

Request = types.PublishRequest.pb()
Message = types.PubsubMessage.pb()
Response = types.PublishResponse.pb()
PREFIX = b"123456789012316777216"
SECONDS, NANOS = 1_790_000_000, 0

texts = st.text(st.characters(codec="utf-8"), max_size=20)
keys = texts.filter(lambda key: key != "" and (not key.startswith("goog") or key.startswith("googclient_")))


def a_message(draw_key: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    return st.builds(
        lambda data, attributes, key, message_id, nanos: Message(
            data=data,
            attributes=attributes,
            ordering_key=key,
            message_id=message_id,
            publish_time={"seconds": 5, "nanos": nanos} if nanos else None,
        ),
        st.binary(max_size=300),
        st.dictionaries(keys, texts, max_size=4),
        draw_key,
        st.sampled_from(["", "mine"]),
        st.integers(0, 999_999_999),
    ).filter(lambda message: message.data or message.attributes)


requests = st.one_of(st.just(""), texts).flatmap(
    lambda key: st.builds(
        lambda messages: Request(topic="projects/p/topics/täst", messages=messages),
        st.lists(a_message(st.just(key)), min_size=1, max_size=8),
    )
)


def expected(message: object, offset: int) -> object:
    wanted = Message()
    wanted.CopyFrom(message)
    wanted.message_id = f"{PREFIX.decode()}{offset:012d}"
    wanted.publish_time.seconds = SECONDS
    wanted.publish_time.nanos = NANOS
    return wanted


def check(request: object, first_offset: int, result: tuple[int, bytes, bytes, int, bytes, int]) -> None:
    count, payload, response, data_bytes, ordering_key, marks = result
    assert marks == 0
    stored = [Message.FromString(frames.message_at(payload, i)) for i in range(frames.count(payload))]
    wanted = [expected(message, first_offset + i) for i, message in enumerate(request.messages)]
    assert count == len(request.messages)
    assert stored == wanted
    assert list(Response.FromString(response).message_ids) == [message.message_id for message in wanted]
    assert data_bytes >= sum(len(message.data) for message in request.messages)
    assert ordering_key.decode() == request.messages[0].ordering_key


@given(requests, st.one_of(st.integers(0, 10**12 - 8), st.sampled_from([0, 98, 999_999, 10**12 - 8])))
def test_stored_messages_are_what_was_sent_with_id_and_time(request: object, first_offset: int) -> None:
    raw = request.SerializeToString()
    result = scan(raw, PREFIX, first_offset, SECONDS, NANOS)
    check(request, first_offset, result)
    assert result[3] == sum(message.ByteSize() for message in request.messages)
    assert topic_of(raw).decode() == request.topic
    assert scan(bytearray(raw), PREFIX, first_offset, SECONDS, NANOS) == result
    assert scan(memoryview(raw), PREFIX, first_offset, SECONDS, NANOS) == result


@given(requests, st.randoms(use_true_random=False), st.integers(1, 4))
@settings(max_examples=examples(600 if kernel.COMPILED else 300))
def test_mutated_requests_are_refused_or_mean_the_same_to_protobuf(
    request: object, chance: random.Random, changes: int
) -> None:
    raw = bytearray(request.SerializeToString())
    for _ in range(changes):
        place = chance.randrange(len(raw))
        match chance.randrange(4):
            case 0:
                raw[place] = chance.randrange(256)
            case 1:
                raw[place] ^= 1 << chance.randrange(8)
            case 2:
                del raw[place : place + chance.randrange(1, 4)]
            case _:
                raw[place:place] = chance.randbytes(chance.randrange(1, 12))
        if not raw:
            return
    try:
        topic_of(bytes(raw))
        result = scan(bytes(raw), PREFIX, 77, SECONDS, NANOS)
    except (Malformed, Invalid):
        return
    again = Request()
    try:
        again.ParseFromString(bytes(raw))
    except Exception as error:
        raise AssertionError("passed, but protobuf cannot parse it") from error
    check(again, 77, result)


@given(st.binary(max_size=80))
def test_random_bytes_never_do_more_than_be_refused(raw: bytes) -> None:
    for call in (lambda: scan(raw, PREFIX, 0, 1, 1), lambda: topic_of(raw)):
        try:
            call()
        except (Malformed, Invalid):
            continue


@given(requests)
def test_every_truncation_is_refused_or_shorter(request: object) -> None:
    raw = request.SerializeToString()
    for size in range(0, len(raw), 1 + len(raw) // 50):
        try:
            count = scan(raw[:size], PREFIX, 0, 1, 1)[0]
        except (Malformed, Invalid):
            continue
        assert count < len(request.messages)


def refusal(request: object) -> tuple[str, str]:
    with pytest.raises(Invalid) as refused:
        scan(request.SerializeToString(), PREFIX, 0, 1, 1)
    assert str(refused.value) == f"{refused.value.field}: {refused.value.problem}"
    return refused.value.field, refused.value.problem


def one(**fields: object) -> object:
    return Request(messages=[Message(data=b"ok"), Message(**fields)])


@pytest.mark.parametrize(
    ("request_", "field", "problem"),
    [
        (Request(topic="t"), "messages", publish_rules.NO_MESSAGES),
        (Request(messages=[Message(data=b"x")] * 1001), "messages", publish_rules.TOO_MANY_MESSAGES),
        (one(), "messages[1]", publish_rules.EMPTY),
        (one(data=b"x", attributes={"": "v"}), "messages[1].attributes", publish_rules.KEY_EMPTY),
        (one(attributes={"ä" * 129: "v"}), "messages[1].attributes", "keys must not be longer than 256 bytes"),
        (one(attributes={"k": "ä" * 513}), "messages[1].attributes", "values must not be longer than 1024 bytes"),
        (one(attributes={"google": "v"}), "messages[1].attributes", publish_rules.KEY_RESERVED),
        (one(attributes={"goog": "v"}), "messages[1].attributes", publish_rules.KEY_RESERVED),
        (
            one(attributes={str(i): "" for i in range(101)}),
            "messages[1].attributes",
            "must not have more than 100 entries",
        ),
        (
            one(data=b"x", ordering_key="k"),
            "messages[1].ordering_key",
            publish_rules.ORDERING_KEYS_DIFFER,
        ),
        (one(data=b"x", ordering_key="k" * 1025), "messages[1].ordering_key", "must not be longer than 1024 bytes"),
    ],
)
def test_rules(request_: object, field: str, problem: str) -> None:
    assert refusal(request_) == (field, problem)


@pytest.mark.parametrize(
    "message",
    [
        Message(attributes={"a" * 256: "v" * 1024}),
        Message(attributes={"goo": "", "googclient_": "", "googclient_traceparent": "x"}),
        Message(attributes={str(i): "" for i in range(100)}),
        Message(data=b"\0", ordering_key="k" * 1024),
    ],
)
def test_the_limits_themselves_pass(message: object) -> None:
    assert scan(Request(messages=[message] * 1000).SerializeToString(), PREFIX, 0, 1, 1)[0] == 1000


def test_ten_million_bytes_pass_and_one_more_does_not() -> None:
    data = 10_000_000 - len(Request(messages=[Message(data=b"x" * 9_000_000)]).SerializeToString()) + 9_000_000
    raw = Request(messages=[Message(data=b"x" * data)]).SerializeToString()
    assert len(raw) == 10_000_000
    assert scan(raw, PREFIX, 0, 1, 1)[0] == 1
    too_large = Request(messages=[Message(data=b"x" * (data + 1))])
    assert refusal(too_large) == ("request", publish_rules.REQUEST_TOO_LARGE)


def field(number: int, value: bytes) -> bytes:
    assert len(value) < 128
    return bytes([number << 3 | 2, len(value)]) + value


BAD_UTF8 = [
    b"\xff",
    b"a\x80",
    b"\xc0\xaf",
    b"\xe0\x80\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xf0\x9f\x98",
    b"\xc3",
]


@pytest.mark.parametrize("bad", BAD_UTF8)
@pytest.mark.parametrize("filler", [b"", b"12345678", b"1234567"])
def test_strings_are_utf8(bad: bytes, filler: bytes) -> None:
    text = filler + bad
    data = field(1, b"x")
    for message, where in [
        (field(5, text), "ordering_key"),
        (field(3, text), "message_id"),
        (field(2, field(1, text)), "attributes"),
        (field(2, field(1, b"k") + field(2, text)), "attributes"),
    ]:
        with pytest.raises(Invalid, match="UTF-8") as refused:
            scan(field(2, data + message), PREFIX, 0, 1, 1)
        assert refused.value.field == f"messages[0].{where}"
    with pytest.raises(Malformed):
        topic_of(field(1, text))


@given(st.text(max_size=40))
def test_all_of_unicode_passes(text: str) -> None:
    request = Request(messages=[Message(data=b"x", attributes={"k": text})])
    assert scan(request.SerializeToString(), PREFIX, 0, 1, 1)[0] == 1


def test_a_time_that_is_no_message_is_refused() -> None:
    for time in (b"\x08", b"\xff", b"\x0a\x05a"):
        with pytest.raises(Malformed):
            scan(field(2, field(1, b"x") + field(4, time)), PREFIX, 0, 1, 1)


def test_the_last_of_a_repeated_field_counts() -> None:
    assert topic_of(field(1, b"a") + field(1, b"b")) == b"b"
    assert topic_of(b"") == b""
    with pytest.raises(Invalid, match="empty"):
        scan(field(2, field(1, b"x") + field(1, b"")), PREFIX, 0, 1, 1)
    assert scan(field(2, field(1, b"x") + field(5, b"a") + field(5, b"b")), PREFIX, 0, 1, 1)[4] == b"b"


def test_a_time_sent_by_the_client_does_not_shine_through() -> None:
    sent = Message(data=b"x", message_id="mine", publish_time={"seconds": 99, "nanos": 77})
    _, payload, *_ = scan(Request(messages=[sent]).SerializeToString(), PREFIX, 4, 0, 0)
    stored = Message.FromString(frames.message_at(payload, 0))
    assert (stored.publish_time.seconds, stored.publish_time.nanos) == (0, 0)
    assert stored.message_id == PREFIX.decode() + "000000000004"


def test_numbers_out_of_range() -> None:
    raw = Request(messages=[Message(data=b"x")] * 2).SerializeToString()
    assert scan(raw, PREFIX, 10**12 - 2, 1, 1)[2].endswith(b"999999999999")
    for arguments in [(10**12 - 1, 1, 1), (-1, 1, 1), (0, -1, 1), (0, 1, 10**9), (0, 1, -1)]:
        with pytest.raises(ValueError, match="out of range"):
            scan(raw, PREFIX, *arguments)
    with pytest.raises(TypeError):
        scan("text", PREFIX, 0, 1, 1)


def test_attributes_that_were_added_on_the_way_do_not_count() -> None:
    message = Message(attributes={str(number): "" for number in range(103)})
    request = Request(messages=[message]).SerializeToString()
    assert scan(request, PREFIX, 0, 1, 1, 0, 3)[0] == 1
    with pytest.raises(Invalid, match="more than 100 entries"):
        scan(request, PREFIX, 0, 1, 1, 0, 2)


@given(st.lists(requests, min_size=1, max_size=5), st.integers(0, 5), st.integers(0, 10**12 - 200), st.data())
@settings(max_examples=examples(200))
def test_plain_requests_together_are_what_they_are_alone(
    given_: list[object], first: int, first_offset: int, draw: st.DataObject
) -> None:
    raw = [request.SerializeToString() for request in given_]
    odd = draw.draw(st.sampled_from(["", "topic", "empty", "broken", "ttl", "twice"]))
    at = draw.draw(st.integers(0, len(raw)))
    name = "projects/p/topics/täst"
    strange = {
        "topic": Request(topic="projects/p/topics/test", messages=[Message(data=b"x")]).SerializeToString(),
        "empty": Request(topic=name, messages=[Message()]).SerializeToString(),
        "broken": raw[0][:-1],
        "ttl": Request(topic=name, messages=[Message(attributes={"sys.TimeToLive": "0:5:0"})]).SerializeToString(),
        "twice": Request(topic=name).SerializeToString() + raw[0],
    }
    if odd:
        raw.insert(at, strange[odd])
    first = min(first, len(raw))
    found = scan_plain(raw, first, name.encode(), PREFIX, first_offset, SECONDS, NANOS)
    taken, count, payload, responses = found
    assert taken == (at - first if odd and at >= first else len(raw) - first)
    alone = b""
    for request, response in zip(raw[first : first + taken], responses, strict=True):
        messages, bytes_, answer, *_ = scan(request, PREFIX, first_offset + frames.count(alone), SECONDS, NANOS)
        alone += bytes_
        assert messages == frames.count(bytes_)
        assert response == answer
    assert (payload, count) == (alone, frames.count(alone))


def test_plain_requests_together_are_no_more_than_one_may_be() -> None:
    raw = [Request(topic="t", messages=[Message(data=b"x")] * n).SerializeToString() for n in (400, 600, 1, 1000)]
    taken = [scan_plain(raw, at, b"t", PREFIX, 0, SECONDS, NANOS)[:2] for at in range(4)]
    assert taken == [(2, 1000), (2, 601), (1, 1), (1, 1000)]
