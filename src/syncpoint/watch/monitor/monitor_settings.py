"""The monitor's file: objectives, agreements, what to look at beside this process, who is on call and how they are
notified.

Place: read at a start (`serve --monitor`, `monitor` in cluster.yaml, `syncpoint monitor`); docs/operations/alerts.md
explains every key. Without a file: the shipped objectives, nobody is notified, and alerts are listed.
Promise: a mistake is refused with its place; a schedule with a gap is a mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import time
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.settings_section import SettingsSection, file_named, load_settings
from syncpoint.watch.monitor.alert_machine import ACKNOWLEDGE_S
from syncpoint.watch.monitor.objectives import Objective, load_objectives, shipped
from syncpoint.watch.monitor.on_call import Person, Schedule, Site
from syncpoint.watch.monitor.sla_report import Agreement, Credit

RUNBOOKS: Final = "syncpoint docs operations/alerts"  # which every installation has
CREDITS: Final = (Credit(0.999, 10.0), Credit(0.99, 25.0), Credit(0.95, 50.0))


@dataclass(frozen=True, slots=True)
class MailSettings:
    """The server that sends mail. `security`: starttls, tls or none."""

    host: str
    port: int
    sender: str
    user: str = ""
    password_file: Path | None = None
    security: str = "starttls"


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """A page of metrics elsewhere, and labels of its own."""

    url: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """The whole file."""

    objectives: tuple[Objective, ...]
    agreements: tuple[Agreement, ...] = ()
    targets: tuple[ScrapeTarget, ...] = ()
    target_files: tuple[Path, ...] = ()  # as `syncpoint cluster targets` prints them; read again at each look
    sites: tuple[Site, ...] = ()
    people: Mapping[str, Person] = field(default_factory=dict)
    last: tuple[str, ...] = ()
    acknowledge_s: float = ACKNOWLEDGE_S
    mail: MailSettings | None = None
    runbooks: str = RUNBOOKS  # what links to runbooks begin with

    def schedule(self, now_s: float) -> Schedule:
        """Who is on call. Raises `InvalidArgument` for a gap."""
        return Schedule(self.sites, self.people, self.last, now_s)

    def runbook(self, rule: str) -> str:
        """The link for a rule."""
        return f"{self.runbooks}#{rule.lower()}"


def defaults() -> MonitorSettings:
    """Without a file."""
    objectives = tuple(shipped())
    return MonitorSettings(objectives, _promised(objectives))


def load_monitor(path: Path) -> MonitorSettings:
    """Raises `InvalidArgument` with the place of the mistake."""
    return load_settings("monitor", path, parse_monitor)


def parse_monitor(content: Any, base: Path = Path()) -> MonitorSettings:
    """Raises `InvalidArgument`; relative paths start at `base`."""
    top = SettingsSection(content, "")
    named = top.text("objectives")
    if named:
        with file_named("objectives", base / named):
            objectives = tuple(load_objectives(base / named))
    else:
        objectives = tuple(shipped())
    people = _people(top)
    sites, last, acknowledge_s = _on_call(top, people)
    if people and not sites:
        raise top.refused("on_call", "people are listed, but no site has them on call")
    settings = MonitorSettings(
        objectives,
        _agreements(top, objectives),
        tuple(_target(top, number, one) for number, one in top.each("targets")),
        tuple(base / str(one) for _, one in top.each("target_files")),
        sites,
        people,
        last,
        acknowledge_s,
        _mail(top, base),
        top.text("runbooks") or RUNBOOKS,
    )
    if any(one.email for one in people.values()) and settings.mail is None:
        raise top.refused("mail", "people have email addresses; set the server that sends email")
    top.done()
    return settings


def _promised(objectives: tuple[Objective, ...]) -> tuple[Agreement, ...]:
    return tuple(Agreement(one.name, one.target, CREDITS) for one in objectives if one.sli.name == "publish-success")


def _agreements(top: SettingsSection, objectives: tuple[Objective, ...]) -> tuple[Agreement, ...]:
    if top.value("sla") is None:
        return _promised(objectives)
    known, found = {one.name: one for one in objectives}, []
    for number, content in top.each("sla"):
        line = SettingsSection(content, f"sla.{number}")
        slo = line.text("slo")
        if slo not in known:
            raise line.refused("slo", f"{slo!r} is unknown; choose from {', '.join(known)}")
        promised = line.number("promised", known[slo].target)
        tiers = []
        for place, tier in line.each("credits"):
            one = SettingsSection(tier, f"{line.place}.credits.{place}")
            tiers.append(Credit(one.number("below", -1.0), one.number("percent", -1.0)))
            if not 0 < tiers[-1].below <= promised or not 0 < tiers[-1].percent <= 100:
                raise one.refused("below", "must have a share of at most the objective, and a `percent` from 0 to 100")
            one.done()
        line.done()
        found.append(Agreement(slo, promised, tuple(tiers)))
    return tuple(found)


def _target(top: SettingsSection, number: int, content: Any) -> ScrapeTarget:
    one = SettingsSection(content, f"targets.{number}")
    url, labels = one.text("url"), one.value("labels") or {}
    if not url.startswith(("http://", "https://")):
        raise one.refused("url", "must be an address such as http://127.0.0.1:9100/metrics")
    if not isinstance(labels, dict):
        raise one.refused("labels", "must map names to values")
    one.done()
    return ScrapeTarget(url, {str(key): str(value) for key, value in labels.items()})


def _people(top: SettingsSection) -> dict[str, Person]:
    content, found = top.value("people") or {}, {}
    if not isinstance(content, dict):
        raise top.refused("people", "must map names to notification methods")
    for name, ways in content.items():
        one = SettingsSection(ways, f"people.{name}")
        person = Person(
            str(name), one.text("email"), one.text("webhook"), tuple(str(part) for _, part in one.each("command"))
        )
        one.done()
        if not (person.email or person.webhook or person.command):
            raise InvalidArgument(one.place, "must have `email`, `webhook` or `command`")
        if person.webhook and not person.webhook.startswith(("http://", "https://")):
            raise one.refused("webhook", "must be an http or https address")
        found[person.name] = person
    return found


def _on_call(top: SettingsSection, people: Mapping[str, Person]) -> tuple[tuple[Site, ...], tuple[str, ...], float]:
    content = top.value("on_call")
    if content is None:
        return (), (), ACKNOWLEDGE_S
    section = SettingsSection(content, "on_call")
    acknowledge_s = section.number("acknowledge_s", ACKNOWLEDGE_S)
    if not 0 < acknowledge_s <= 3600:
        raise section.refused("acknowledge_s", "must be above 0 and at most 3600")
    last = tuple(_known(section, "last", str(one), people) for _, one in section.each("last"))
    sites = []
    for number, one in section.each("sites"):
        site = SettingsSection(one, f"on_call.sites.{number}")
        begin, end = _hours(site)
        names = tuple(_known(site, "people", str(name), people) for _, name in site.each("people"))
        if not names:
            raise site.refused("people", "must not be empty")
        sites.append(Site(site.text("name"), _zone(site), begin, end, names))
        site.done()
    section.done()
    return tuple(sites), last, acknowledge_s


def _hours(site: SettingsSection) -> tuple[time, time]:
    text = site.text("hours") or "00:00-00:00"
    try:
        begin, end = (time.fromisoformat(part) for part in text.split("-"))
    except ValueError:
        raise site.refused("hours", f"{text!r} is not a time range such as 08:00-17:00") from None
    return begin, end


def _zone(site: SettingsSection) -> ZoneInfo:
    name = site.text("timezone") or "UTC"
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise site.refused("timezone", f"{name!r} is not known here; names are like Europe/Zurich") from None


def _mail(top: SettingsSection, base: Path) -> MailSettings | None:
    content = top.value("mail")
    if content is None:
        return None
    one = SettingsSection(content, "mail")
    password = one.text("password_file")
    security = one.choice("security", ("starttls", "tls", "none"), "starttls")
    made = MailSettings(
        one.text("host"),
        int(one.number("port", 587)),
        one.text("from"),
        one.text("user"),
        base / password if password else None,
        security,
    )
    if not made.host or not made.sender:
        raise InvalidArgument("mail", "must have `host` and `from`")
    one.done()
    return made


def _known(section: SettingsSection, key: str, name: str, people: Mapping[str, Person]) -> str:
    if name not in people:
        raise section.refused(key, f"{name!r} is not in `people`")
    return name
