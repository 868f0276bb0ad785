"""`syncpoint server describe`: what the running server is and how it is.

Place: the operator's side of the command line; a call of syncpoint.admin.v1.Admin.
"""

from __future__ import annotations

import click

from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import print_message
from syncpoint.programs.cli.settings import Settings, with_settings


@click.group(cls=Group)
def server() -> None:
    """Describe the running server."""


@server.command()
@with_settings
def describe(settings: Settings) -> None:
    """Show version, identity, uptime, durability and positions of the running server.

    \b
    Examples:
      syncpoint server describe
      syncpoint server describe --format json
    """
    from syncpoint.wire.protobuf.messages import admin

    found = settings.call("Admin.GetServer", admin.GetServerRequest())
    print_message(found, settings.format, with_zeros=True, last=("universe", "logCounter"))
