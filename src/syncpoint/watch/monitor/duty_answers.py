"""Answers about who is on call and who held which chain, as messages.

Place: under `MonitorAdmin`; asked in the monitor's thread.
"""

from __future__ import annotations

from datetime import UTC, datetime

from syncpoint.watch.monitor.monitor_core import MonitorCore
from syncpoint.watch.monitor.on_call import Person, Site
from syncpoint.wire.protobuf.messages import admin


def on_call_message(core: MonitorCore, now_s: float) -> admin.OnCall:
    """Who is on call."""
    schedule, at = core.schedule, datetime.fromtimestamp(now_s, UTC)
    current = next((site for site in schedule.sites if site.covers(at)), None)
    made = admin.OnCall()
    made.acknowledge_time.FromMilliseconds(int(core.settings.acknowledge_s * 1000))
    for person in schedule.chain(now_s):
        home = next((site.name for site in schedule.sites if person.name in site.people), "")
        made.people.add(name=person.name, site=home, ways=_ways(person))
    for site in schedule.sites:
        made.sites.add(
            name=site.name,
            time_zone=site.zone.key,
            hours=_hours(site),
            on_call=site is current,
            people=site.turns(now_s),
        )
    return made


def ownerships_message(core: MonitorCore, begin_s: float) -> admin.ListOwnershipsResponse:
    """Who held which chain since a time."""
    made = admin.ListOwnershipsResponse()
    for one in core.file.owners.since(begin_s):
        change = made.changes.add(chain=one.chain, epoch=one.epoch, owner=one.owner, late=one.late)
        change.time.FromMilliseconds(int(one.at_s * 1000))
    if core.file.owners.kept_since_s:
        made.kept_since.FromMilliseconds(int(core.file.owners.kept_since_s * 1000))
    return made


def _ways(person: Person) -> list[str]:
    ways = {"email": person.email, "webhook": person.webhook, "command": person.command}
    return [name for name, given in ways.items() if given]


def _hours(site: Site) -> str:
    return "all day" if site.begin == site.end else f"{site.begin:%H:%M}-{site.end:%H:%M}"
