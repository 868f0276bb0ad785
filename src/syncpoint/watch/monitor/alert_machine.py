"""Alerts from their beginning to their end: notified, acknowledged or passed on, resolved, silenced.

Place: fed with the conditions of each look; what it returns are notifications, which a driver sends. Clock and
schedule are arguments, so a week on call is a unit test.
Promise: a page that nobody acknowledges within five minutes goes to the next person, and to the next, as long as it
fires: it is never dropped. Of one condition there is one alert at a time. What was acknowledged escalates no more;
what ended is reported to everybody who was notified of it. Everything that must survive is in `Alert.kept()`.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from syncpoint.watch.monitor.alert_rules import AlertCondition
from syncpoint.watch.monitor.burn_rates import PAGE
from syncpoint.watch.monitor.on_call import Person
from syncpoint.watch.monitor.scraped_text import Labels

ACKNOWLEDGE_S: Final = 300.0
RESOLVE_S: Final = 60.0  # a condition that is away for this long has ended
EVENTS_MAX: Final = 200
FIRED, PASSED_ON, RESOLVED = "fired", "passed on", "resolved"


@dataclass(slots=True)
class Alert:
    """One alert. Times are seconds since 1970; 0: it has not happened. `follows`: from which other condition, in words;
    nobody is notified of it as long as it does. It is found anew at each look, and not kept.
    """

    alert: str
    rule: str
    labels: Labels
    severity: str
    summary: str
    started_s: float
    seen_s: float
    acknowledged_s: float = 0.0
    acknowledged_by: str = ""
    resolved_s: float = 0.0
    deadline_s: float = 0.0
    level: int = 0
    silenced: bool = False
    follows: str = ""
    notified: list[str] = field(default_factory=list)
    unsent: list[tuple[str, str]] = field(default_factory=list)  # person, why: not confirmed as sent yet
    events: list[tuple[float, str]] = field(default_factory=list)

    def note(self, now_s: float, text: str) -> None:
        """Add to its history."""
        self.events.append((now_s, text))
        if len(self.events) > EVENTS_MAX:
            del self.events[1]

    def kept(self) -> dict[str, Any]:
        """As plain values."""
        found = asdict(self)
        del found["follows"]
        return found

    @staticmethod
    def of(kept: dict[str, Any]) -> Alert:
        """The other way."""
        pairs = {name: [tuple(one) for one in kept[name]] for name in ("unsent", "events")}
        return Alert(**{**kept, **pairs, "labels": tuple((key, value) for key, value in kept["labels"])})


@dataclass(frozen=True, slots=True)
class AlertSilence:
    """Nobody is notified of alerts of such a rule (`*`: any letters) with these labels, until its end."""

    silence: str
    rule: str
    labels: Labels
    end_s: float
    by: str = ""
    comment: str = ""

    def covers(self, alert: Alert, now_s: float) -> bool:
        """Whether it holds for an alert now."""
        known = dict(alert.labels)
        return (
            now_s < self.end_s
            and fnmatch.fnmatchcase(alert.rule, self.rule or "*")
            and all(known.get(key) == value for key, value in self.labels)
        )


class Notification(NamedTuple):
    """Somebody is to be notified. `why`: FIRED, PASSED_ON or RESOLVED."""

    alert: Alert
    person: Person
    why: str


class AlertMachine:
    """`chain`: whom an alert goes to at a time, one after the other; `name`: makes names of alerts; `people`: all of
    them. `changed`: alerts that differ from what was kept of them.
    """

    def __init__(
        self,
        chain: Callable[[float], list[Person]],
        name: Callable[[], str],
        *,
        people: Mapping[str, Person] | None = None,
        acknowledge_s: float = ACKNOWLEDGE_S,
        alerts: Iterable[Alert] = (),
        silences: Iterable[AlertSilence] = (),
    ) -> None:
        self._chain, self._name, self._acknowledge_s = chain, name, acknowledge_s
        self._people = people or {}
        self.firing = {(one.rule, one.labels): one for one in alerts}
        self.silences = {one.silence: one for one in silences}
        self.changed: dict[str, Alert] = {}

    def looked(self, conditions: Iterable[AlertCondition], now_s: float) -> list[Notification]:
        """What holds now; returns whom to notify."""
        found: list[Notification] = []
        for one in conditions:
            alert = self.firing.get(one.key)
            if alert is None:
                found += self._begin(one, now_s)
            else:
                alert.seen_s, alert.summary, alert.follows = now_s, one.summary, one.follows
        for alert in list(self.firing.values()):
            found += self._step(alert, now_s)
        self.silences = {name: one for name, one in self.silences.items() if one.end_s > now_s}
        return found

    def acknowledge(self, alert: str, by: str, now_s: float, comment: str = "") -> Alert:
        """Somebody looks after it. Raises `LookupError` for one that does not fire."""
        one = self.find(alert)
        if not one.acknowledged_s:
            one.acknowledged_s, one.acknowledged_by, one.deadline_s = now_s, by, 0.0
            text = f"acknowledged by {by}" if by else "acknowledged"
            self._noted(one, now_s, f"{text}: {comment}" if comment else text)
        return one

    def sent(self, alert: Alert, person: str, why: str, now_s: float) -> None:
        """A notification arrived."""
        self._confirm(alert, person, why)
        self._noted(alert, now_s, f"{person} was notified ({why})")

    def not_sent(self, alert: Alert, person: str, why: str, reason: str, now_s: float) -> None:
        """A notification could not be sent, however often it was tried: the next person is notified at once."""
        self._confirm(alert, person, why)
        self._noted(alert, now_s, f"{person} could not be notified: {reason}")
        if alert.deadline_s and why != RESOLVED:
            alert.deadline_s = min(alert.deadline_s, now_s)

    def unsent(self) -> list[Notification]:
        """What an earlier life may not have sent."""
        return [
            Notification(alert, self._people[person], why)
            for alert in self.firing.values()
            for person, why in alert.unsent
            if person in self._people
        ]

    def find(self, alert: str) -> Alert:
        """One that fires, by its name. Raises `LookupError`."""
        for one in self.firing.values():
            if one.alert == alert:
                return one
        raise LookupError(alert)

    def _begin(self, condition: AlertCondition, now_s: float) -> list[Notification]:
        rule, labels, severity, summary, follows = condition
        alert = Alert(self._name(), rule, labels, severity, summary, now_s, now_s, follows=follows)
        self.firing[condition.key] = alert
        self._noted(alert, now_s, summary)
        if follows:
            self._noted(alert, now_s, f"caused by {follows}")
        alert.silenced = self._silenced(alert, now_s)
        return [] if alert.silenced else self._notify(alert, FIRED, now_s)

    def _step(self, alert: Alert, now_s: float) -> list[Notification]:
        if now_s - alert.seen_s >= RESOLVE_S:
            return self._resolve(alert, now_s)
        silenced = self._silenced(alert, now_s)
        if silenced != alert.silenced:
            alert.silenced = silenced
            why = f"caused by {alert.follows}" if alert.follows else "silenced"
            self._noted(alert, now_s, why if silenced else "no longer silenced")
            if silenced:
                alert.deadline_s = 0.0
            elif not alert.acknowledged_s:
                return self._notify(alert, FIRED, now_s)
        if alert.deadline_s and now_s >= alert.deadline_s:
            alert.level += 1
            return self._notify(alert, PASSED_ON, now_s)
        return []

    def _notify(self, alert: Alert, why: str, now_s: float) -> list[Notification]:
        """The next of the chain; once everybody was notified, all of them again each time."""
        self.changed[alert.alert] = alert
        if alert.severity == PAGE:
            alert.deadline_s = now_s + self._acknowledge_s
        chain = self._chain(now_s)
        if not chain:
            return []
        new = [one for one in chain if one.name not in alert.notified]
        people = new[:1] if new else chain
        alert.notified += [one.name for one in people if one.name not in alert.notified]
        alert.unsent += [(one.name, why) for one in people]
        return [Notification(alert, one, why) for one in people]

    def _resolve(self, alert: Alert, now_s: float) -> list[Notification]:
        del self.firing[alert.rule, alert.labels]
        alert.resolved_s, alert.deadline_s = now_s, 0.0
        self._noted(alert, now_s, "resolved")
        people = [self._people[name] for name in alert.notified if name in self._people]
        return [Notification(alert, one, RESOLVED) for one in people]

    def _silenced(self, alert: Alert, now_s: float) -> bool:
        return bool(alert.follows) or any(one.covers(alert, now_s) for one in self.silences.values())

    def _confirm(self, alert: Alert, person: str, why: str) -> None:
        if (person, why) in alert.unsent:
            alert.unsent.remove((person, why))

    def _noted(self, alert: Alert, now_s: float, text: str) -> None:
        alert.note(now_s, text)
        self.changed[alert.alert] = alert
