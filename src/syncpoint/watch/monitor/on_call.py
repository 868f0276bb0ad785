"""Who is on call: sites that follow the sun, people who take turns, and whom an alert goes to when nobody answers.

Place: asked by the alerts' machine whenever it notifies somebody; clock and calendar are arguments.
Promise: a schedule with a gap is refused when it is read: of every quarter of an hour of a whole year, changes to and
from daylight saving time included, somebody is on call. The chain of escalation is never empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, time, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from syncpoint.base.model.errors import InvalidArgument

STEP: Final = timedelta(minutes=15)
YEAR: Final = timedelta(days=366)
WEEK_S: Final = 7 * 86_400
_MONDAY_S: Final = 4 * 86_400  # 5 January 1970


class Person(NamedTuple):
    """Somebody who can be notified, by each way that is given."""

    name: str
    email: str = ""
    webhook: str = ""
    command: tuple[str, ...] = ()


class Site(NamedTuple):
    """People of one place, who take turns by the week. `begin`, `end`: on the clocks there; equal: all day."""

    name: str
    zone: ZoneInfo
    begin: time
    end: time
    people: tuple[str, ...]

    def covers(self, at: datetime) -> bool:
        """Whether it is on call at a time."""
        now = at.astimezone(self.zone).time()
        if self.begin == self.end:
            return True
        if self.begin < self.end:
            return self.begin <= now < self.end
        return now >= self.begin or now < self.end

    def turns(self, at_s: float) -> list[str]:
        """Its people, the one whose week it is first."""
        week = int((at_s - _MONDAY_S) // WEEK_S) % len(self.people)
        return [*self.people[week:], *self.people[:week]]


class Schedule:
    """Find who is on call. `last`: the last persons to notify. Raises `InvalidArgument` for a gap within a year."""

    def __init__(
        self, sites: tuple[Site, ...], people: Mapping[str, Person], last: tuple[str, ...], now_s: float
    ) -> None:
        self.sites, self.people, self.last = sites, people, last
        gap = next(self.gaps(now_s, YEAR), None) if sites else None
        if gap is not None:
            raise InvalidArgument(
                "on_call.sites", f"no one is on call on {gap:%A, %B %d, %Y at %H:%M} UTC; make the sites overlap"
            )

    def gaps(self, now_s: float, span: timedelta) -> Iterator[datetime]:
        """Quarters of an hour in which nobody is on call."""
        at = datetime.fromtimestamp(now_s // 900 * 900, UTC)
        for _ in range(span // STEP):
            if not any(site.covers(at) for site in self.sites):
                yield at
            at += STEP

    def chain(self, at_s: float) -> list[Person]:
        """Whom an alert goes to, one after the other: of the site that is on call whose turn it is, then the others
        there, then whose turn it is elsewhere, then the last ones; everybody once.
        """
        at = datetime.fromtimestamp(at_s, UTC)
        on_call = next((site for site in self.sites if site.covers(at)), None)
        names = [] if on_call is None else on_call.turns(at_s)
        names += [site.turns(at_s)[0] for site in self.sites if site is not on_call]
        return [self.people[name] for name in dict.fromkeys((*names, *self.last))]
