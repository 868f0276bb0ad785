"""Times to be published at, as messages carry them: against datetime and the official message classes, compiled and
uncompiled.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from google.pubsub_v1 import types
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.kernel import publish, schedules
from syncpoint.base.kernel.errors import Invalid, Malformed

Request = types.PublishRequest.pb()
Message = types.PubsubMessage.pb()
AT = "sys.ScheduledEnqueueTimeUtc"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NO_TIMES = ("", "soon", "5m", "2026-11-23", "2026-11-23T18:00:00", "2026-11-23 18:00:00Z", "2026-11-23T18:00Z",
            "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T00:00:60Z", "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.1234567891Z", "2026-01-01T00:00:00+1:00", "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+01:60", "2026-01-01T00:00:00Z ", "0000-01-01T00:00:00Z", "+026-01-01T00:00:00Z",
            "٢026-01-01T00:00:00Z", "2026-01-01T00:00:00ZZ", "2026/01/01T00:00:00Z")  # fmt: skip


@given(
    st.datetimes(datetime(1, 1, 2), datetime(2261, 12, 30)),
    st.none() | st.integers(-1439, 1439),
    st.sampled_from("Tt"),
    st.integers(0, 999),
)
def test_a_time_is_what_datetime_reads(
    pure: SimpleNamespace, moment: datetime, minutes: int | None, parting: str, nanos: int
) -> None:
    zone = UTC if minutes is None else timezone(timedelta(minutes=minutes))
    text = moment.strftime("%Y").rjust(4, "0") + moment.strftime(f"-%m-%d{parting}%H:%M:%S.%f") + f"{nanos:03}"
    sign = "-" if minutes is not None and minutes < 0 else "+"
    text += "Z" if minutes is None else f"{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    exact = (moment.replace(tzinfo=zone) - EPOCH) // timedelta(microseconds=1) * 1000 + nanos
    wanted = 1 if moment.year < 1970 else max(1, exact)
    assert schedules.due_text_ns(text.encode()) == wanted
    assert pure.schedules.due_text_ns(text.encode()) == wanted


@pytest.mark.parametrize("text", NO_TIMES)
def test_what_is_no_time(pure: SimpleNamespace, text: str) -> None:
    assert schedules.due_text_ns(text.encode()) == pure.schedules.due_text_ns(text.encode()) == -1
    request = Request(messages=[Message(data=b"x", attributes={AT: text})]).SerializeToString()
    for module in (publish, pure.publish):
        with pytest.raises(Exception, match="must be an RFC 3339 time") as found:
            module.scan(request, b"p", 0, 1, 1)
        assert type(found.value).__name__ == Invalid.__name__


@given(st.text("0123456789-:.TZtz+", max_size=36))
def test_any_text_is_read_alike_compiled_and_uncompiled(pure: SimpleNamespace, text: str) -> None:
    assert schedules.due_text_ns(text.encode()) == pure.schedules.due_text_ns(text.encode())


def test_later_than_anybody_waits_is_as_late_as_can_be() -> None:
    assert schedules.due_text_ns(b"9999-12-31T23:59:59Z") == (1 << 63) - 1


times = st.none() | st.integers(1, 1 << 31)


def text_of(seconds: int) -> str:
    return (EPOCH + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


@given(st.lists(times, min_size=1, max_size=10), st.text(max_size=4))
def test_requests_are_divided_and_messages_framed_anew(
    pure: SimpleNamespace, wanted: list[int | None], key: str
) -> None:
    messages = [
        Message(data=b"%d" % n, attributes={"a": "b"} if one is None else {AT: text_of(one)}, ordering_key=key)
        for n, one in enumerate(wanted)
    ]
    request = Request(topic="t", messages=messages).SerializeToString()
    count, payload, *_, marks = publish.scan(request, b"123", 0, 5, 6)
    assert count == len(wanted)
    assert marks == (publish.MARK_SCHEDULED if any(wanted) else 0)
    for module in (schedules, pure.schedules):
        assert module.due_times(payload) == [(one or 0) * 10**9 for one in wanted]
        plain, later, says = module.divided(request)
        assert says == bytes(one is not None for one in wanted)
        parts = [Request.FromString(one) for one in (plain, later)]
        assert {one.topic for one in parts} == {"t"}
        for number, part in enumerate(parts):
            assert list(part.messages) == [
                m for m, one in zip(messages, wanted, strict=True) if (one is not None) == number
            ]
        for index, message in enumerate(messages):
            framed = module.unstamped(payload, index, Message(attributes={"more": "x"}).SerializeToString())
            assert int.from_bytes(framed[:4], "little") == len(framed) - 4
            found = Message.FromString(framed[4:])
            assert found.attributes.pop("more") == "x"
            assert found == message
        with pytest.raises(ValueError, match="no such message"):
            module.unstamped(payload, count, b"")


def test_what_is_no_batch_is_refused(pure: SimpleNamespace) -> None:
    for module in (schedules, pure.schedules):
        for call in (module.due_times, module.divided):
            with pytest.raises(Exception, match=r"batch|request|message") as found:
                call(b"\x05\x00\x00\x00\x12\xff\xff\xff\xff")
            assert type(found.value).__name__ == Malformed.__name__
        with pytest.raises(Exception, match="batch"):
            module.unstamped(b"\x02\x00\x00\x00\x12\xff", 0, b"")
