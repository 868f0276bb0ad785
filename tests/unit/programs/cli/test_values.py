"""How values are written on the command line."""

from datetime import UTC, datetime, timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.programs.cli.values import parse_duration, parse_list, parse_pairs, parse_time, put_time
from syncpoint.wire.protobuf.messages import well_known

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds", "nanos"),
    [
        ("600s", 600, 0),
        ("10m", 600, 0),
        ("1h30m", 5_400, 0),
        ("7d", 604_800, 0),
        ("1w", 604_800, 0),
        ("15", 15, 0),
        ("0.25s", 0, 250_000_000),
        ("1500ms", 1, 500_000_000),
        ("0", 0, 0),
    ],
)
def test_durations(text, seconds, nanos):
    assert parse_duration(text) == (seconds, nanos)


@pytest.mark.parametrize("text", ["", "s", "10 m", "1y", "-5s", "1m2", "1h-30m", "never", "1e3s"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@given(st.integers(0, 10**9), st.integers(0, 10**9 - 1))
def test_a_duration_as_the_interface_writes_it_is_read_back(seconds, nanos):
    duration = well_known.Duration(seconds=seconds, nanos=nanos)
    assert parse_duration(duration.ToJsonString()) == (seconds, nanos)


def test_times():
    assert parse_time("2026-11-21T03:00:00Z", NOW) == datetime(2026, 11, 21, 3, tzinfo=UTC)
    assert parse_time("2026-11-21T03:00:00+02:00", NOW) == datetime(2026, 11, 21, 1, tzinfo=UTC)
    assert parse_time("-10m", NOW) == NOW - timedelta(minutes=10)
    assert parse_time("+1d", NOW) == NOW + timedelta(days=1)
    assert parse_time("now", NOW) is NOW
    assert parse_time("2026-11-21T03:00:00", NOW).tzinfo is not None


@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_a_time_goes_into_the_request_exactly(moment):
    target = well_known.Timestamp()
    put_time(target, moment)
    assert target.ToDatetime(UTC) == moment


def test_pairs():
    assert parse_pairs(["a=1,b=2", "c="], "--labels") == {"a": "1", "b": "2", "c": ""}
    assert parse_pairs(["^;^a=1,2;b=3"], "--labels") == {"a": "1,2", "b": "3"}
    for wrong in ("a", "=1", "a=1,,b=2"):
        with pytest.raises(click.BadParameter):
            parse_pairs([wrong], "--labels")


def test_lists():
    assert parse_list(["a, b", "c,"]) == ["a", "b", "c"]
