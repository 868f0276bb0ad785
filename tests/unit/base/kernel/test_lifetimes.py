"""Times to live as messages carry them: against the official message classes, and compiled against the sources."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
from google.pubsub_v1 import types
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.kernel import lifetimes, publish
from syncpoint.base.kernel.errors import Invalid, Malformed

pytestmark = pytest.mark.shows("time-to-live")

Request = types.PublishRequest.pb()
Message = types.PubsubMessage.pb()
DAY_MS = 86_400_000

SPANS = {
    "0:2:0": 120_000,
    "00:00:02": 2_000,
    "31.00:00": 31 * DAY_MS,
    "23:59": DAY_MS - 60_000,
    "1.02:03:04.5": DAY_MS + 7_384_500,
    "0:0:0.0000001": 1,  # never too early
    "0:0:1.0010001": 1_002,
    "99999999.23:59:59": 99_999_999 * DAY_MS + DAY_MS - 1_000,
}
NO_SPANS = ("", "soon", "5", "1.", "1.5", "0:0", "0:0:0", "-0:2:0", "24:0:0", "0:60", "0:0:60", "1:2:3:4", "1:2:",
            "1:2:3.", "1:2:3.12345678", "1.2.3:4", " 0:2:0", "0:2:0 ", "123456789.0:0", "0:002", "٢:0:0")  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), [*SPANS.items(), *((text, -1) for text in NO_SPANS)])
def test_a_span_of_time_is_read_as_dotnet_writes_it(pure: SimpleNamespace, text: str, wanted: int) -> None:
    assert lifetimes.span_text_ms(text.encode()) == wanted
    assert pure.lifetimes.span_text_ms(text.encode()) == wanted


@given(st.text("0123456789.:", max_size=18))
def test_any_text_is_read_alike_compiled_and_uncompiled(pure: SimpleNamespace, text: str) -> None:
    assert lifetimes.span_text_ms(text.encode()) == pure.lifetimes.span_text_ms(text.encode())


def batch(*ttls: str | None) -> bytes:
    messages = [Message(data=b"x", attributes={"a": "b"} if ttl is None else {"sys.TimeToLive": ttl}) for ttl in ttls]
    count, payload, *_, marks = publish.scan(Request(messages=messages).SerializeToString(), b"p", 0, 1, 1)
    assert count == len(ttls)
    assert marks == (publish.MARK_TTL if any(ttls) else 0)
    return payload


@given(st.lists(st.sampled_from([None, *SPANS]), min_size=1, max_size=12), st.sampled_from([0, *SPANS.values()]))
def test_what_has_run_out_is_found_by_number(pure: SimpleNamespace, ttls: list[str | None], age_ms: int) -> None:
    payload = batch(*ttls)
    known = [SPANS[ttl] for ttl in ttls if ttl is not None]
    wanted = {index for index, ttl in enumerate(ttls) if ttl is not None and SPANS[ttl] <= age_ms}
    for module in (lifetimes, pure.lifetimes):
        assert module.spans(payload) == (min(known, default=0), max(known, default=0), len(ttls) - len(known))
        runs, shortest = module.expired(payload, age_ms)
        assert shortest == min((one for one in known if one > age_ms), default=0)
        assert {index for begin, end in runs for index in range(begin, end)} == wanted
        assert all(end < begin for (_, end), (begin, _) in pairwise(runs))  # joined where they touch


def test_a_value_that_cannot_be_read_is_refused_with_its_message() -> None:
    good, bad = Message(data=b"x"), Message(data=b"x", attributes={"sys.TimeToLive": "soon"})
    with pytest.raises(Invalid, match=r"messages\[1\]\.attributes: sys\.TimeToLive must be a duration") as refused:
        publish.scan(Request(messages=[good, bad]).SerializeToString(), b"p", 0, 1, 1)
    assert refused.value.field == "messages[1].attributes"


def test_only_that_name_means_a_time_to_live() -> None:
    for name in ("sys.TimeToLiv", "sys.TimeToLives", "sys.timetolive", "TimeToLive", "sys.MessageId"):
        message = Message(data=b"x", attributes={name: "soon"})
        _, payload, *_, marks = publish.scan(Request(messages=[message]).SerializeToString(), b"p", 0, 1, 1)
        assert marks == 0
        assert lifetimes.spans(payload) == (0, 0, 1)


def test_of_equal_keys_the_last_one_counts() -> None:
    one = Request(messages=[Message(data=b"x", attributes={"sys.TimeToLive": "0:2:0"})]).SerializeToString()
    other = Message(attributes={"sys.TimeToLive": "0:0:2"}).SerializeToString()
    message = Request.FromString(one).messages[0].SerializeToString() + other
    request = b"\x12" + bytes((len(message),)) + message
    _, payload, *_ = publish.scan(request, b"p", 0, 1, 1)
    assert lifetimes.spans(payload) == (2_000, 2_000, 0)


@pytest.mark.parametrize(
    "torn", [b"\x05\x00\x00\x00\x12", b"\x02\x00\x00\x00\x12\x09", b"\x04\x00\x00\x00\x12\x02\x0a\x09"]
)
def test_torn_batches_are_refused(pure: SimpleNamespace, torn: bytes) -> None:
    for module, error in ((lifetimes, Malformed), (pure.lifetimes, Exception)):
        with pytest.raises(error):
            module.spans(torn)
        with pytest.raises(error):
            module.expired(torn, 1)
