"""How the command line reports a failure: the code, the server's words, and what to do about it.

Place: the edge between a `SyncpointError` and a person.
Promise: one or two lines on standard error, and an exit code a script can distinguish.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from syncpoint.base.model.errors import Code, InvalidArgument, SyncpointError
from syncpoint.programs.cli.advice import CheckFailed, advice

EXIT_CODES = {Code.NOT_FOUND: 3, Code.ALREADY_EXISTS: 4, Code.UNAVAILABLE: 5, Code.DEADLINE_EXCEEDED: 5}


def _missing(error: SyncpointError) -> str:
    """The missing permission named by a refusal, and its resource."""
    if error.code is not Code.PERMISSION_DENIED or not error.details:
        return ""
    from syncpoint.wire.protobuf.status import missing_permission  # not with every command

    return missing_permission(error.details)


@contextmanager
def explained_by(page: str, path: Path) -> Iterator[None]:
    """Turn what goes wrong while a file is read into a `Problem` that names the page of the documentation about it."""
    try:
        yield
    except OSError as error:
        read = error.filename or path  # it may name further files
        raise Problem(f"{read} cannot be read: {error.strerror}.", "Give the path of a file.") from error
    except InvalidArgument as error:
        raise Problem(f"{path}: {error.message}", f"`syncpoint docs {page}` explains every key.") from error


class CommandFailed(click.ClickException):
    """A refusal or failure of the server, or of a library that speaks in its words."""

    def __init__(self, error: SyncpointError, ctx: click.Context | None = None, meant: str = "") -> None:
        """`meant`: the name of what exists, when the error did not find something like it."""
        super().__init__(error.message)
        self.error = error
        self.exit_code = EXIT_CODES.get(error.code, 1)  # type: ignore[misc]  # click reads it here too
        settings = ctx.find_root().obj if ctx else None
        words = tuple(getattr(settings, "command", ())) or ((ctx.invoked_subcommand,) if ctx else ())
        self.advice = advice(
            CheckFailed(
                error.code,
                error.message,
                tuple(word for word in words if word),
                called=getattr(settings, "called", False),
                endpoint=getattr(settings, "endpoint", None) or "",
                project=getattr(settings, "project_or_none", None) or "",
                about_settings=getattr(error, "settings_file", None) is not None,
                meant=meant,
                missing=_missing(error),
            )
        )
        self._as_json = getattr(settings, "format", "table") == "json"

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the failure to standard error, in the format the output has."""
        if self._as_json:
            shown = {"code": self.error.code.name, "message": self.error.message, "advice": self.advice}
            click.echo(json.dumps({"error": shown}, ensure_ascii=False), file=file, err=file is None)
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


def for_each(names: Sequence[str], act: Callable[[str], None]) -> None:
    """Do it for each resource; those that do not exist keep nobody from the others, and are named at the end."""
    missing = []
    for name in names:
        try:
            act(name)
        except SyncpointError as error:
            if error.code is not Code.NOT_FOUND or len(names) == 1:
                raise
            missing.append(name)
    if missing:
        raise Problem(f"{len(missing)} of {len(names)} did not exist: {', '.join(missing)}")


_EXTRAS = {"matplotlib": "plots", "paho": "mqtt", "pika": "rabbitmq"}
"""Packages that come with an extra of their own."""


def not_installed(error: ImportError) -> Problem:
    """A library of an extra is not there: how to install it, from where this program was installed."""
    from syncpoint.programs.cli.installed import folder_of

    extra = _EXTRAS.get((error.name or "").partition(".")[0], "spark")
    return Problem(
        f"{error.name} is not installed: it comes with the extra `{extra}`",
        f'pip install "{folder_of()}[{extra}]"',
    )
