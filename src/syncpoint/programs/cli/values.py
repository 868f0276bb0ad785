"""How values are written on the command line: durations, times, labels, and the requests they go into.

Place: between a command's options and the message it sends.
Promise: the forms gcloud takes (`10m`, `7d`, `1h30m`, `600s`, `never`; `KEY=VALUE,KEY=VALUE`; RFC 3339 times) and an
error that shows the right form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Any

import click

from syncpoint.base.model.durations import is_duration, parse_duration, written

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:  # generic for the type checker only
    ParamType = click.ParamType


class DurationType(ParamType):
    """An option's duration, as (seconds, nanoseconds); with `never`, also that word, as None inside a tuple."""

    name = "duration"

    def __init__(self, never: bool = False) -> None:
        self._never = never

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        if self._never and value == "never":
            return (None, None)
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error) + (", or never" if self._never else ""), param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "DURATION"


class SecondsType(DurationType):
    """An option's duration in seconds, from `least` to `most`; `whole`: as an integer, which the service wants."""

    def __init__(self, least: float = 0.0, most: float = inf, *, whole: bool = False) -> None:
        super().__init__()
        self._least, self._most, self._whole = least, most, whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return value
        seconds, nanoseconds = super().convert(value, param, ctx)
        if self._whole and nanoseconds:
            self.fail(f"{value} is not a whole number of seconds", param, ctx)
        total: float = seconds if self._whole else seconds + nanoseconds / 1e9
        if total < self._least:
            self.fail(f"{value} is too short; at least {_bound(self._least)}", param, ctx)
        if total > self._most:
            self.fail(f"{value} is too long; at most {_bound(self._most)}", param, ctx)
        return total


def _bound(seconds: float) -> str:
    whole = int(seconds)
    return written(whole, round((seconds - whole) * 10**9))


class TimeType(ParamType):
    """A moment: RFC 3339, a local date and time, or `-10m` (that long ago); with `ago`, also without the sign."""

    name = "time"

    def __init__(self, ago: bool = False) -> None:
        self._ago = ago

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return parse_time(f"-{value}" if self._ago and is_duration(value) else value, datetime.now(UTC))
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "TIME"


def parse_time(text: str, now: datetime) -> datetime:
    """A moment with its zone. A time without a zone is local. Raises ValueError."""
    if text == "now":
        return now
    if text.startswith(("-", "+")):
        seconds, nanos = parse_duration(text[1:])
        distance = timedelta(seconds=seconds, microseconds=nanos // 1000)
        return now - distance if text[0] == "-" else now + distance
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time; write for example 2026-11-21T03:00:00Z, or -10m") from None
    return moment if moment.tzinfo else moment.astimezone()


def parse_pairs(given: Iterable[str], option: str) -> dict[str, str]:
    """`KEY=VALUE`, several of them parted by commas or given several times. Raises BadParameter.

    A first character other than a letter between two carets changes the comma, as in gcloud: `^;^a=1,2;b=3`.
    """
    pairs: dict[str, str] = {}
    for text in given:
        parting = ","
        chosen = re.match(r"\^(.+?)\^", text)
        if chosen:
            parting, text = chosen[1], text[chosen.end() :]
        for part in text.split(parting):
            key, equals, value = part.partition("=")
            if not equals or not key:
                raise click.BadParameter(f"{part!r} is not of the form KEY=VALUE", param_hint=option)
            pairs[key.strip()] = value
    return pairs


def parse_list(given: Iterable[str]) -> list[str]:
    """Values parted by commas or given several times."""
    return [part.strip() for text in given for part in text.split(",") if part.strip()]


def put_duration(target: Any, value: tuple[int, int]) -> None:
    """Write a duration into a google.protobuf.Duration."""
    target.seconds, target.nanos = value


def put_time(target: Any, moment: datetime) -> None:
    """Write a moment into a google.protobuf.Timestamp, exact to the microsecond."""
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    target.seconds = since // timedelta(seconds=1)
    target.nanos = since % timedelta(seconds=1) // timedelta(microseconds=1) * 1000


def change_labels(labels: Any, update: Iterable[str], remove: Iterable[str], clear: bool) -> bool:
    """Apply --clear-labels, --remove-labels and --update-labels, in this order, to a map; True when any was given."""
    pairs, gone = parse_pairs(update, "--update-labels"), parse_list(remove)
    if clear:
        labels.clear()
    for key in gone:
        labels.pop(key, None)
    for key, value in pairs.items():
        labels[key] = value
    return bool(pairs or gone or clear)
