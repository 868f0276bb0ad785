"""`syncpoint env-init`: what points client libraries to the server, to be evaluated by a shell."""

from __future__ import annotations

import shlex

import click

from syncpoint.programs.cli.output import print_answer
from syncpoint.programs.cli.settings import Settings, with_settings


@click.command("env-init")
@with_settings
def env_init(settings: Settings) -> None:
    """Print environment variables that point client libraries to the server.

    Includes the project if it is set by --project, PUBSUB_PROJECT_ID or `config set`.

    \b
    Example:
      eval "$(syncpoint env-init --project demo)"
    """
    found = {"PUBSUB_EMULATOR_HOST": settings.addresses[0]}
    if len(settings.addresses) > 1:  # other libraries know one
        found["SYNCPOINT_ADDRESSES"] = settings.endpoint
    if settings.project_or_none:
        found["PUBSUB_PROJECT_ID"] = settings.project
    if print_answer(settings.format, found):
        return
    for name, value in found.items():
        click.echo(f"export {name}={shlex.quote(value)}")
