"""How commands look in help: groups of commands, examples, and the options that all commands have.

Place: under every command. Promise: no line of help is cut in the middle of a sentence.
"""

from __future__ import annotations

import click

SENTENCE_MAX = 200


class Group(click.Group):
    """A group of commands, whose help shows the whole first sentence of each."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        shown = [(name, one.get_short_help_str(SENTENCE_MAX)) for name, one in found if one and not one.hidden]
        if shown:
            with formatter.section("Commands"):
                formatter.write_dl(shown)


Group.group_class = type


class CommonOption(click.Option):
    """An option that every command takes: the program's own help describes each, a command's has one line for all."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """What help shows of it."""
        if ctx.parent is None:
            return super().get_help_record(ctx)
        first = next(one for one in ctx.command.params if isinstance(one, CommonOption))
        if self is not first:
            return None
        return "[common options]", "Project, server, output and credentials: see `syncpoint --help`."


def with_examples(text: str, *lines: str) -> str:
    """Help of a command: what it does, and command lines to try, without the program's name."""
    heading = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join([text, "", "\b", heading, *(f"  syncpoint {line}" for line in lines)])
