"""`syncpoint alerts`: what fires, who looks after it, and what is to be kept quiet.

Place: calls of syncpoint.admin.v1.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Sequence
from typing import Any

import click

from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.names import others
from syncpoint.programs.cli.output import as_dict, inform, print_json, print_table
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.values import SecondsType


@click.group(cls=Group)
def alerts() -> None:
    """List, acknowledge and silence alerts."""


@alerts.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that follow from another one.")
@with_settings
def list_(settings: Settings, everything: bool) -> None:
    """List firing alerts by their causes. The exit code is 1 if a page is not acknowledged.

    \b
    Example:
      syncpoint alerts list
    """
    found = _listed(settings, resolved=0, everything=everything)
    if any(one.state == 1 and one.severity == 2 and not one.silenced for one in found):
        raise click.exceptions.Exit(1)


@alerts.command()
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 1000), help="Maximum number to show.")
@with_settings
def history(settings: Settings, limit: int) -> None:
    """List firing alerts and the newest resolved alerts, each with its history.

    \b
    Example:
      syncpoint alerts history --limit 10
    """
    for one in _listed(settings, resolved=limit):
        if settings.format != "json":
            inform(f"{one.alert} {one.rule}:")
            for event in one.events:
                inform(f"  {_clock(event.time)}  {event.text}")


@alerts.command()
@click.argument("alerts", nargs=-1, required=True, metavar="ALERT...", shell_complete=others("alerts"))
@click.option("--by", default="", help="Name of the person handling them [your user name].")
@click.option("--comment", default="", help="A note, such as the cause or the fix.")
@with_settings
def ack(settings: Settings, alerts: tuple[str, ...], by: str, comment: str) -> None:
    """Acknowledge alerts: you handle them, and they are not escalated further.

    \b
    Example:
      syncpoint alerts ack 5f0c9a1be2d4
    """
    from syncpoint.wire.protobuf.messages import admin

    with settings.client() as client:
        for alert in alerts:
            request = admin.AcknowledgeAlertRequest(alert=alert, by=by or getpass.getuser(), comment=comment)
            found = client.call("Admin.AcknowledgeAlert", request)
            inform(f"{found.rule} is acknowledged by {found.acknowledged_by}. Runbook: {found.runbook}")


@alerts.command()
@click.argument("rule", shell_complete=others("alert rules"))
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Only alerts that have this label.")
@click.option("--for", "duration", required=True, type=SecondsType(), help="How long, such as 30m or 4h.")
@click.option("--comment", default="", help="Why.")
@with_settings
def silence(settings: Settings, rule: str, labels: tuple[str, ...], duration: float, comment: str) -> None:
    """Mute notifications of a rule's alerts for a while (* matches any characters). The alerts are still listed.

    \b
    Example:
      syncpoint alerts silence 'Disk*' --label chain=0 --for 2h --comment "new disks"
    """
    from syncpoint.wire.protobuf.messages import admin

    asked = admin.Silence(rule=rule, by=getpass.getuser(), comment=comment)
    for text in labels:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--label {text}: give NAME=VALUE.")
        asked.labels[name] = value
    asked.end_time.FromSeconds(int(time.time() + duration))
    made = settings.call("Admin.CreateSilence", admin.CreateSilenceRequest(silence=asked))
    inform(
        f"Silence {made.silence} until {_clock(made.end_time)}; `syncpoint alerts unsilence {made.silence}` ends it."
    )


@alerts.command()
@click.argument("silence_name", metavar="SILENCE", shell_complete=others("silences"))
@with_settings
def unsilence(settings: Settings, silence_name: str) -> None:
    """End a silence.

    \b
    Example:
      syncpoint alerts unsilence 5f0c9a1be2d4
    """
    from syncpoint.wire.protobuf.messages import admin

    settings.call("Admin.DeleteSilence", admin.DeleteSilenceRequest(silence=silence_name))
    inform(f"Ended silence {silence_name}.")


def _listed(settings: Settings, *, resolved: int, everything: bool = True) -> Sequence[Any]:
    from syncpoint.wire.protobuf.messages import admin

    request = admin.ListAlertsRequest(resolved=bool(resolved), page_size=resolved)
    found: Sequence[Any] = settings.call("Admin.ListAlerts", request).alerts
    if settings.format == "json":
        print_json([as_dict(one) for one in found])
    elif not found:
        inform("No active alerts.")
    else:
        rows = [
            [one.alert, one.rule, _state(one), _clock(one.start_time), one.acknowledged_by or "-", one.summary]
            for one in found
            if everything or not one.cause
        ]
        print_table(["ALERT", "RULE", "STATE", "SINCE", "BY", "SUMMARY"], rows)
        if len(rows) < len(found):
            inform(f"{counted(len(found) - len(rows), 'alert')} that follow from these: --all lists them.")
    return found


def _state(alert: Any) -> str:
    from syncpoint.wire.protobuf.messages import admin

    state = str(admin.Alert.State.Name(alert.state)).lower()
    if alert.follows:
        return f"{state}, follows"
    return f"{state}, silenced" if alert.silenced else state


def _clock(at: Any) -> str:
    return f"{at.ToDatetime():%Y-%m-%d %H:%M:%S}Z"
