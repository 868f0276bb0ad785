"""`syncpoint completion bash|zsh|fish`: the script that lets a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Examples:
      eval "$(syncpoint completion bash)"        (in ~/.bashrc, also zsh)
      syncpoint completion fish | source         (in config.fish)
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "syncpoint", "_SYNCPOINT_COMPLETE").source())
