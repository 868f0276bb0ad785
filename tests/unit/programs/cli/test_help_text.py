"""Help: every command stands in a group, and shows a line to try that the program takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from syncpoint.programs.cli.main import COMMANDS, GROUPS, cli

Found = tuple[tuple[str, ...], click.Command]


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[Found]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


ALL = list(commands(cli))


def examples(command: click.Command) -> list[str]:
    """Command lines of the program in a command's help, without remarks and with their continuations."""
    text = re.sub(r"\\\n|\n {20,}", " ", command.help or "")
    lines = [re.sub(r"\s{3,}\(.*\)$", "", line.strip()) for line in text.splitlines() if line.startswith("  ")]
    return [line for line in lines if re.match(r"(eval \"\$\()?syncpoint ", line)]


def words_of(line: str) -> list[str]:
    """The words after the program's name, up to what the shell does with its output."""
    found = shlex.split(line.removeprefix('eval "$(').removesuffix(')"'))[1:]
    ends = [index for index, word in enumerate(found) if word in ("|", ">", "&&")]
    return found[: min(ends, default=len(found))]


def test_every_command_stands_in_one_group():
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_every_command_shows_an_example_that_it_takes(path, command):
    found = examples(command)
    assert found
    own = 0
    for line in found:
        words = words_of(line)
        context, one = click.Context(cli, info_name="syncpoint"), cli
        while isinstance(one, click.Group):
            name, *words = words
            one = one.get_command(context, name)
            assert one is not None, line
            context = click.Context(one, parent=context, info_name=name)
        own += one is command or one.callback is command.callback
        try:
            one.make_context(one.name, words, parent=click.Context(cli))
        except click.BadParameter as error:  # a file of the user's
            if "does not exist" not in error.message:
                raise
    assert own, found


def test_help_is_grouped_and_no_sentence_is_cut():
    shown = CliRunner().invoke(cli, ["--help"]).stdout
    assert [line.rstrip(":") for line in shown.splitlines() if line.rstrip(":") in GROUPS] == list(GROUPS)
    for path in (["topics"], ["subscriptions"], ["iam", "accounts"], ["cluster"], ["dead-letters"]):
        assert "..." not in CliRunner().invoke(cli, [*path, "--help"]).stdout.replace("]...", "")


def test_options_of_all_commands_are_described_once():
    program = CliRunner().invoke(cli, ["--help"]).stdout
    command = CliRunner().invoke(cli, ["topics", "describe", "--help"], terminal_width=120).stdout
    assert "--credentials FILE" in program
    assert "--credentials" not in command
    assert "see `syncpoint --help`" in command
