"""Printing answers: a table for people, JSON as Google's REST interface writes it for programs.

Place: the last station of every command that asks a server.
Promise: a table that goes into a pipe or a file is neither coloured nor cut; JSON is one value per command.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from google.protobuf import json_format

PIPE_WIDTH = 4_000
"""Columns a table may use where no terminal bounds it."""


def as_dict(message: Any, *, with_zeros: bool = False) -> dict[str, Any]:
    """A message as the REST interface writes it; `with_zeros`, also fields that hold 0, nothing or no."""
    from syncpoint.wire.messages import POOL

    result: dict[str, Any] = json_format.MessageToDict(
        message, always_print_fields_with_no_presence=with_zeros, descriptor_pool=POOL
    )
    return _in_order(result, message.DESCRIPTOR) if with_zeros else result


def _in_order(value: dict[str, Any], descriptor: Any) -> dict[str, Any]:
    """The fields in the order of their declaration; protobuf puts those it adds at the end."""
    ordered = {}
    for field in descriptor.fields:
        if field.json_name in value:
            content = value[field.json_name]
            if isinstance(content, dict) and not field.message_type.GetOptions().map_entry:
                content = _in_order(content, field.message_type)
            elif isinstance(content, list):
                content = [_in_order(one, field.message_type) if isinstance(one, dict) else one for one in content]
            ordered[field.json_name] = content
    return ordered


def print_json(value: Any) -> None:
    """One JSON value on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_messages(messages: Sequence[Any], form: str, columns: Sequence[tuple[str, str]]) -> None:
    """A list of messages: JSON, or a table of `columns` (heading, path in the JSON form)."""
    values = [as_dict(message) for message in messages]
    if form == "json":
        print_json(values)
    else:
        print_table([heading for heading, _ in columns], [[show(dig(v, path)) for _, path in columns] for v in values])


def print_message(message: Any, form: str, *, with_zeros: bool = False) -> None:
    """One message: JSON, or a table of its fields, nested ones under their paths; the table `with_zeros` if a 0 is
    news (an empty backlog), JSON always as the REST interface has it."""
    if form == "json":
        print_json(as_dict(message))
    else:
        print_fields(as_dict(message, with_zeros=with_zeros))


def print_described(value: dict[str, Any], options: dict[str, Any], form: str) -> None:
    """A resource as the REST interface has it, and those of Syncpoint's own options that are set, under `options`."""
    chosen = {name: content for name, content in options.items() if content}
    if chosen:
        value = {**value, "options": chosen}
    if form == "json":
        print_json(value)
    else:
        print_fields(value)


def print_fields(value: dict[str, Any]) -> None:
    """A table of two columns: a field's path, and what it holds."""
    print_table(["FIELD", "VALUE"], [[path, show(content)] for path, content in _flatten(value)])


def print_table(headings: Sequence[str], rows: Iterable[Sequence[Any]], *, fold: bool = False) -> None:
    """A table; cells may be text or anything rich can draw. Nothing but a remark on stderr when there are no rows.

    Lines are as long as they must be, so that what is in a cell can be copied; `fold` breaks cells at the terminal's
    width.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    rows = list(rows)
    if not rows:
        click.echo("(none)", err=True)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*[_cell(cell) for cell in row])
    terminal = sys.stdout.isatty()
    text = io.StringIO()
    width = shutil.get_terminal_size().columns if fold and terminal else PIPE_WIDTH
    Console(file=text, width=width, highlight=False, force_terminal=terminal).print(table)
    for line in text.getvalue().splitlines():
        click.echo(line.rstrip())


def without_empty_columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """The same table without the columns that are empty in every row."""
    used = [index for index in range(len(headings)) if any(row[index] for row in rows)]
    return [headings[index] for index in used], [[row[index] for index in used] for row in rows]


def said(text: str) -> None:
    """What a command did, on standard error, where it does not mix with an answer."""
    click.echo(text, err=True)


def count(number: int, of: str, plural: str = "s") -> str:
    """A number of things in words: `1 topic`, `2 topics`."""
    return f"{number:,} {of}{'' if number == 1 else plural}"


def show(content: Any) -> str:
    """A JSON value in one line of text."""
    if content is None:
        return ""
    if isinstance(content, bool):
        return "yes" if content else "no"
    if isinstance(content, dict):
        return ", ".join(f"{key}={show(value)}" for key, value in content.items())
    if isinstance(content, list):
        return ", ".join(show(value) for value in content)
    return str(content)


def dig(value: Any, path: str) -> Any:
    """The value at a path of keys parted by dots; None when there is none."""
    for key in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _flatten(value: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, content in value.items():
        path = f"{prefix}{key}"
        if content in ({}, []):
            continue
        if isinstance(content, dict) and key not in ("labels", "attributes", "tags"):
            yield from _flatten(content, f"{path}.")
        elif isinstance(content, list) and content and isinstance(content[0], dict):
            for index, item in enumerate(content):
                yield from _flatten(item, f"{path}[{index}].")
        else:
            yield path, content


def _cell(cell: Any) -> Any:
    from rich.text import Text

    return Text(cell) if isinstance(cell, str) else cell
