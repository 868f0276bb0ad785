"""`syncpoint config set|get|unset|list`: a default project and endpoint, kept in a small TOML file of the user."""

from __future__ import annotations

import json
import os

import click

from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import inform, print_answer
from syncpoint.programs.cli.settings import Settings, config_path, with_settings

KEYS = ("project", "endpoint")
key_argument = click.argument("key", type=click.Choice(KEYS))


@click.group(cls=Group)
def config() -> None:
    """Set a default project and endpoint."""


@config.command("set")
@key_argument
@click.argument("value")
@with_settings
def set_value(settings: Settings, key: str, value: str) -> None:
    """Set a value.

    \b
    Example:
      syncpoint config set project demo
    """
    _write({**settings.config, key: value})
    inform(f"Set {key} to {value} in {config_path()}.")


@config.command()
@key_argument
@with_settings
def unset(settings: Settings, key: str) -> None:
    """Remove a value.

    \b
    Example:
      syncpoint config unset endpoint
    """
    _write({name: value for name, value in settings.config.items() if name != key})
    inform(f"Unset {key}.")


@config.command("get")
@key_argument
@with_settings
def get_value(settings: Settings, key: str) -> None:
    """Print a value.

    \b
    Example:
      syncpoint config get project
    """
    if key not in settings.config:
        raise Problem(f"{key} is not set", f"syncpoint config set {key} VALUE", exit_code=3)
    click.echo(settings.config[key])


@config.command("list")
@with_settings
def list_values(settings: Settings) -> None:
    """Print all values.

    \b
    Example:
      syncpoint config list
    """
    print_answer(settings.format, settings.config, ["KEY", "VALUE"], sorted(settings.config.items()))


def _write(values: dict[str, str]) -> None:
    """Replace the file as a whole, so that a reader never sees half of it."""
    path = config_path()
    # A JSON string is a TOML basic string as well.
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in sorted(values.items()))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(text)
        fresh.replace(path)
    except OSError as error:
        raise Problem(f"cannot write {path}: {error}", "Choose another file with SYNCPOINT_CONFIG.") from error
