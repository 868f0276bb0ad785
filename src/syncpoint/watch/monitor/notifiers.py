"""How people are notified: by mail, by a webhook, by a command of the operator's.

Place: called by the driver in a thread of its own.
Promise: who is to be notified of many alerts of a rule at once gets one message, which names them all. Each way has a
bounded time; a way that fails is an error with its reason, and somebody was notified when one of the ways of the person
worked. What a command or a webhook gets is one JSON object; nothing of it is run by a shell.
"""

from __future__ import annotations

import json
import logging
import smtplib
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from email.message import EmailMessage
from typing import Any, Final

from syncpoint.watch.monitor.alert_machine import RESOLVED, Notification
from syncpoint.watch.monitor.burn_rates import PAGE
from syncpoint.watch.monitor.monitor_settings import MonitorSettings
from syncpoint.watch.monitor.on_call import Person

WAY_S: Final = 10.0
PAUSES_S: Final = (1.0, 5.0, 15.0)  # between attempts; then the next person is asked


log = logging.getLogger(__name__)


class NotNotified(Exception):
    """None of the ways of a person worked; with the reasons."""


def grouped(notifications: Iterable[Notification]) -> list[list[Notification]]:
    """Those of one look that are one message: of the same rule, to the same person, for the same reason."""
    groups: dict[tuple[str, str, str], list[Notification]] = {}
    for one in notifications:
        groups.setdefault((one.alert.rule, one.person.name, one.why), []).append(one)
    return list(groups.values())


def content_of(group: Sequence[Notification], settings: MonitorSettings) -> dict[str, Any]:
    """What is sent: the alerts as they are now, and why."""
    first, person, why = group[0]
    alerts = [one.alert for one in group]
    deadlines = [one.deadline_s for one in alerts if one.deadline_s]
    return {
        "why": why,
        "to": person.name,
        "rule": first.rule,
        "severity": PAGE if any(one.severity == PAGE for one in alerts) else first.severity,
        "summary": first.summary if len(group) == 1 else f"{first.summary}; and {len(group) - 1} more",
        "alerts": [
            {
                "alert": one.alert,
                "summary": one.summary,
                "labels": dict(one.labels),
                "started": one.started_s,
                "resolved": one.resolved_s or None,
            }
            for one in alerts
        ],
        "acknowledge_until": min(deadlines, default=None),
        "acknowledge_with": " ".join(["syncpoint alerts ack", *(one.alert for one in alerts)]),
        "runbook": settings.runbook(first.rule),
    }


def notify(person: Person, content: dict[str, Any], settings: MonitorSettings) -> None:
    """Try every way of a person once; blocks for some seconds. Raises `NotNotified` where none worked."""
    ways, failed = list[tuple[str, Callable[[], None]]](), []
    if person.webhook:
        ways.append(("webhook", lambda: _call(person.webhook, content)))
    if person.email and settings.mail is not None:
        ways.append(("mail", lambda: _mail(person.email, content, settings)))
    if person.command:
        ways.append(("command", lambda: _run(person.command, content)))
    for name, way in ways:
        try:
            way()
        except (OSError, ValueError, subprocess.SubprocessError, smtplib.SMTPException) as error:
            failed.append(f"{name}: {error}")
    if len(failed) == len(ways):
        raise NotNotified("; ".join(failed) or "no notification method is configured")
    for reason in failed:
        log.warning(
            "%s could not be notified of %s by one of the configured methods: %s", person.name, content["rule"], reason
        )


def _call(url: str, content: dict[str, Any]) -> None:
    request = urllib.request.Request(
        url, json.dumps(content).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=WAY_S):  # of http or https, as the settings are checked to be
        pass


def _mail(address: str, content: dict[str, Any], settings: MonitorSettings) -> None:
    mail = settings.mail
    assert mail is not None
    message = EmailMessage()
    message["From"], message["To"] = mail.sender, address
    begin = "Resolved" if content["why"] == RESOLVED else content["severity"].capitalize()
    message["Subject"] = f"[{begin}] {content['rule']}: {content['summary']}"[:200].replace("\n", " ")
    lines = [*(one["summary"] for one in content["alerts"]), "", f"Runbook: {content['runbook']}"]
    if content["why"] != RESOLVED:
        lines.append(f"Acknowledge: {content['acknowledge_with']}")
    message.set_content("\n".join([*lines, "", json.dumps(content, indent=2)]))
    context = ssl.create_default_context()
    connect: Callable[[], smtplib.SMTP] = lambda: smtplib.SMTP(mail.host, mail.port, timeout=WAY_S)  # noqa: E731
    if mail.security == "tls":
        connect = lambda: smtplib.SMTP_SSL(mail.host, mail.port, timeout=WAY_S, context=context)  # noqa: E731
    with connect() as server:
        if mail.security == "starttls":
            server.starttls(context=context)
        if mail.user and mail.password_file is not None:
            server.login(mail.user, mail.password_file.read_text().strip())
        server.send_message(message)


def _run(command: tuple[str, ...], content: dict[str, Any]) -> None:
    done = subprocess.run(command, input=json.dumps(content).encode(), capture_output=True, timeout=WAY_S, check=False)
    if done.returncode:
        raise ValueError(
            f"{command[0]} exited with code {done.returncode}: {done.stderr.decode(errors='replace')[-200:]}"
        )
