"""How values are written on the command line."""

import re
from datetime import UTC, datetime

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.durations import written
from syncpoint.programs.cli.main import cli
from syncpoint.programs.cli.values import (
    DurationType,
    SecondsType,
    parse_duration,
)
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
    assert parse_duration(written(seconds, nanos)) == (seconds, nanos)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("0", "0s"), ("600s", "10m"), ("1h30m", "1h30m"), ("168h", "7d"), ("2.5s", "2.5s"), ("90s", "1m30s")],
)
def test_a_duration_is_written_as_it_would_be_given(text, shown):
    assert written(*parse_duration(text)) == shown


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        (SecondsType(), "1h30m", 5400.0),
        (SecondsType(), "2.5", 2.5),
        (SecondsType(whole=True), "30s", 30),
        (SecondsType(whole=True), "60", 60),
        (SecondsType(1.0, 60), "1m", 60.0),
    ],
)
def test_durations_in_seconds(option, text, value):
    got = option.convert(text, None, None)
    assert (got, type(got)) == (value, type(value))


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        (SecondsType(whole=True), "1.5s", "1.5s is not a whole number of seconds"),
        (SecondsType(1.0), "500ms", "500ms is too short; at least 1s"),
        (SecondsType(0, 3600), "2h", "2h is too long; at most 1h"),
        (SecondsType(0.1), "soon", "'soon' is not a duration, such as 600s, 10m, 1h30m or 7d"),
    ],
)
def test_what_is_no_duration_in_seconds(option, text, said):
    with pytest.raises(click.BadParameter) as failed:
        option.convert(text, None, None)
    assert failed.value.message == said


A_TIME = re.compile(r"\bseconds\b|interval|timeout|deadline|duration|\bttl\b")
NUMBERS = {"--days", "--patience", "--rate"}  # of days, a factor, and messages a second


def test_every_option_that_takes_a_time_takes_one_form():
    def walk(command, context):
        yield command
        for name in command.list_commands(context) if isinstance(command, click.Group) else ():
            yield from walk(command.get_command(context, name), context)

    found = 0
    for command in walk(cli, click.Context(cli)):
        for option in command.params:
            words = f"{option.opts[0]} {option.metavar} {getattr(option, 'help', '')}".lower()
            found += isinstance(option.type, DurationType)
            if A_TIME.search(words) and option.opts[0] not in NUMBERS and not getattr(option, "is_flag", False):
                assert not isinstance(option.type, (click.types.IntParamType, click.types.FloatParamType)), words
    assert found > 50
