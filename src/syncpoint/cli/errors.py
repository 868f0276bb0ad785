"""How the command line tells a failure: the code, the server's words, and what to do about it.

Place: the edge between a `SyncpointError` and a person.
Promise: one or two lines on standard error, and an exit code a script can tell apart.
"""

from __future__ import annotations

import json
import re
from typing import IO, Any

import click

from syncpoint.model.errors import Code, SyncpointError

EXIT_CODES = {Code.NOT_FOUND: 3, Code.ALREADY_EXISTS: 4, Code.UNAVAILABLE: 5, Code.DEADLINE_EXCEEDED: 5}

ADVICE = {
    Code.NOT_FOUND: (
        "Check the name and the project ({project}); `syncpoint {group} list{elsewhere}` shows what there is."
    ),
    Code.ALREADY_EXISTS: "`syncpoint {group} describe {name}` shows it, `syncpoint {group} update {name}` changes it.",
    Code.INVALID_ARGUMENT: "Correct the value; `syncpoint {command} --help` names the form and the bounds.",
    Code.OUT_OF_RANGE: "Correct the value; `syncpoint {command} --help` names the form and the bounds.",
    Code.FAILED_PRECONDITION: "`syncpoint {group} describe` shows in which state it is; this needs another one.",
    Code.RESOURCE_EXHAUSTED: "A limit is reached or a disk is full: `syncpoint limits get`, `syncpoint disks list`.",
    Code.UNAVAILABLE: (
        "Is a server running at {endpoint}? Start one with `syncpoint serve`, or name another one with "
        "--endpoint or PUBSUB_EMULATOR_HOST; one that serves TLS needs --tls-ca. `syncpoint doctor` finds more."
    ),
    Code.DEADLINE_EXCEEDED: "The server at {endpoint} did not answer in time; look at `syncpoint server describe`.",
    Code.UNIMPLEMENTED: (
        "Syncpoint does not serve this yet (docs/api.md says what it serves), or {endpoint} is something else."
    ),
    Code.PERMISSION_DENIED: "The server at {endpoint} does not let you do this.",
    Code.UNAUTHENTICATED: "The server at {endpoint} wants to know who you are.",
    Code.INTERNAL: "This is a fault of the server; its output says more. Please report it.",
    Code.UNKNOWN: "Something that is not Syncpoint may listen at {endpoint}; `syncpoint doctor` tells.",
    Code.ABORTED: "Another change came first; try again.",
    Code.CANCELLED: "Try again.",
    Code.DATA_LOSS: "`syncpoint disks list` shows which disk is bad; `syncpoint log verify` says what is left.",
}

NAME_ADVICE = (
    "Names have 3 to 255 characters, begin with a letter, do not begin with goog, and hold letters, digits and -_.~+%; "
    "in full: {full}."
)
_INVALID_NAME = re.compile(r"Invalid \[(\w+)\]")
_RESOURCE = re.compile(r"projects/([^/\s]+)/(topics|subscriptions|snapshots)/([^/\s)]+)")


class CommandFailed(click.ClickException):
    """A refusal or failure of the server, or of a library that speaks in its words."""

    def __init__(self, error: SyncpointError, ctx: click.Context | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.exit_code = EXIT_CODES.get(error.code, 1)  # type: ignore[misc]  # click reads it here too
        where = _where(ctx, error.message)
        bad = _INVALID_NAME.match(error.message)
        where["full"] = f"projects/PROJECT/{bad[1]}/NAME" if bad and bad[1] != "projects" else "projects/NAME"
        advice = NAME_ADVICE if bad else ADVICE.get(error.code, "")
        self.advice = advice.format(**where)
        self._as_json = where["format"] == "json"

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the failure to standard error, in the format the output has."""
        if self._as_json:
            told = {"code": self.error.code.name, "message": self.error.message, "advice": self.advice}
            click.echo(json.dumps({"error": told}, ensure_ascii=False), file=file, err=file is None)
            return
        click.echo(f"{click.style('error:', fg='red')} {self.error.code.name}: {self.error.message}", file, err=True)
        if self.advice:
            click.echo(f"  {self.advice}", file, err=True)


class Problem(click.ClickException):
    """A failure found on this side: what is wrong, and what to do."""

    def __init__(self, what: str, advice: str = "", exit_code: int = 1) -> None:
        super().__init__(what)
        self.advice = advice
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"{click.style('error:', fg='red')} {self.message}", file, err=True)
        if self.advice:
            click.echo(f"  {self.advice}", file, err=True)


def _where(ctx: click.Context | None, message: str) -> dict[str, str]:
    """What the advice may name: the command, the settings in force, and the resource that the message is about."""
    settings = ctx.find_root().obj if ctx else None
    words = list(getattr(settings, "command", ())) or ["topics"]
    project = getattr(settings, "project_or_none", None) or "not set"
    about = _RESOURCE.search(message)
    return {
        "command": " ".join(words),
        "group": about[2] if about else words[0],
        "name": about[3] if about else "NAME",
        "project": about[1] if about else project,
        "elsewhere": f" --project {about[1]}" if about and about[1] != project.removeprefix("projects/") else "",
        "endpoint": getattr(settings, "endpoint", None) or "the endpoint",
        "format": getattr(settings, "format", None) or "table",
    }
