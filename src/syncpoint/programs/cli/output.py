"""Printing answers: a table for people, JSON as Google's REST interface writes it for programs.

Place: the end of every command that asks a server.
Promises: a table that goes into a pipe or a file is neither coloured nor cut; JSON is one value per command. On a
terminal only cells that no other command takes are cut, with a note.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from syncpoint.base.model.durations import written
from syncpoint.base.model.wording import lasting
from syncpoint.programs.cli.text_tables import GAP, columns_of, lines_of

PIPE_WIDTH = 4_000
"""Columns a table may use where no terminal bounds it."""

CUT = frozenset({"APPLIES TO", "ATTRIBUTES", "CHANGES", "DATA", "DOING", "FILTER", "LABELS", "REASON", "TOPICS"})
"""What may be cut at the terminal's width: nobody copies it into the next command, as one does names and ids."""

CUT_MIN = 12
"""No cell is made narrower."""

BAR_AFTER_S = 2.0
"""Work that is done sooner shows no bar of its progress."""

AGES = frozenset({"oldestUnackedAge", "uptime"})
"""Durations that were measured, which tables show in people's units."""

SETTINGS = re.compile(r"([Dd]uration|Backoff|[Tt]tl|Window|Period|Deadline)$")
"""Names of fields that users set to a duration."""


def as_dict(message: Any, *, with_zeros: bool = False) -> dict[str, Any]:
    """A message as the REST interface writes it; `with_zeros`, also fields that hold 0, nothing or no."""
    from google.protobuf import json_format

    from syncpoint.wire.protobuf.messages import POOL

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
    """One JSON value on standard output; messages in it as the REST interface writes them."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    return as_dict(value) if hasattr(value, "DESCRIPTOR") else list(value)


def print_answer(form: str, value: Any, headings: Sequence[str] = (), rows: Iterable[Sequence[Any]] = ()) -> bool:
    """The answer of a command: `value` as JSON, or a table where `headings` are given. Returns whether it was JSON; a
    command with an answer of its own for people writes it if not."""
    if form == "json":
        print_json(value)
    elif headings:
        print_table(headings, rows)
    return form == "json"


def print_messages(messages: Sequence[Any], form: str, columns: Sequence[tuple[str, str]]) -> None:
    """A list of messages: JSON, or a table of `columns` (heading, path in the JSON form)."""
    values = [as_dict(message) for message in messages]
    rows = [[shown_duration(path, dig(value, path)) for _, path in columns] for value in values]
    print_answer(form, values, [heading for heading, _ in columns], rows)


def print_message(message: Any, form: str, *, with_zeros: bool = False, last: Sequence[str] = ()) -> None:
    """One message: JSON, or a table of its fields, nested ones under their paths; the table `with_zeros` if a 0 is
    news (an empty backlog; an option that is not set is none), JSON always as the REST interface has it. The table has
    the fields `last` at its end."""
    if print_answer(form, message):
        return
    value = as_dict(message, with_zeros=with_zeros)
    if "options" in value:
        value["options"] = as_dict(message.options)
    print_fields({key: value[key] for key in sorted(value, key=lambda key: key in last)})


def print_described(value: dict[str, Any], options: dict[str, Any], form: str) -> None:
    """A resource as the REST interface has it, and those of Syncpoint's own options that are set, under `options`."""
    chosen = {name: content for name, content in options.items() if content}
    if chosen:
        value = {**value, "options": chosen}
    if not print_answer(form, value):
        print_fields(value)


def print_fields(value: dict[str, Any]) -> None:
    """A table of two columns: a field's path, and what it holds."""
    rows = [[path, shown_duration(path, content)] for path, content in _flatten(value)]
    print_table(["FIELD", "VALUE"], rows)


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[Any]], *, fold: bool = False, whole: bool = False
) -> None:
    """A table; cells may be text or anything rich can draw. Nothing but a remark on stderr when there are no rows.

    On a terminal what may be cut (`CUT`) is, so that lines fit, unless `whole`; `--wide` shows all of it. `fold` breaks
    cells at the terminal's width instead.
    """
    rows = [list(row) for row in rows]
    if not rows:
        click.echo("(none)", err=True)
        return
    terminal = _is_terminal()
    columns = shutil.get_terminal_size().columns
    cut = False
    if terminal and not (fold or whole or _wide()):
        fitting = fitted(headings, rows, columns)
        cut, rows = fitting != rows, fitting
    if (fold and terminal) or not all(isinstance(cell, str) for row in rows for cell in row):
        lines = _drawn(headings, rows, columns if fold and terminal else PIPE_WIDTH, terminal)
    else:
        lines = lines_of(headings, rows, bold=terminal)
    for line in lines:
        click.echo(line)
    if cut:
        inform("(cut to fit; --wide shows all)")


def _drawn(headings: Sequence[str], rows: Sequence[Sequence[Any]], width: int, terminal: bool) -> list[str]:
    """The lines of a table of anything that rich can draw."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*[_cell(cell) for cell in row])
    return _rendered(table, width, terminal)


def print_drawn(drawn: Any, width: int) -> None:
    """Print something that rich draws, without blanks at the ends of lines."""
    for line in _rendered(drawn, width, _is_terminal()):
        click.echo(line)


def _rendered(drawn: Any, width: int, terminal: bool) -> list[str]:
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=width, highlight=False, force_terminal=terminal).print(drawn)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def fitted(headings: Sequence[str], rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """The rows with cells cut, the widest first, until a line has `width` columns or no cell may be cut any more."""
    widths = [
        max([columns_of(heading), *(columns_of(line) for row in rows for line in str(row[index]).split("\n"))])
        for index, heading in enumerate(headings)
    ]
    least = [max(CUT_MIN, columns_of(one)) if one in CUT else have for one, have in zip(headings, widths, strict=True)]
    excess = sum(widths) + GAP * (len(widths) - 1) - width
    while excess > 0:
        room = [have - low for have, low in zip(widths, least, strict=True)]
        if max(room) <= 0:
            break
        widest = max((have, index) for index, have in enumerate(widths) if room[index] > 0)[1]
        others = [have for index, have in enumerate(widths) if room[index] > 0 and have < widths[widest]]
        taken = min(excess, room[widest], max(1, widths[widest] - max(others, default=0)))
        widths[widest] -= taken
        excess -= taken
    return [[_cut(cell, size) for cell, size in zip(row, widths, strict=True)] for row in rows]


def _cut(cell: Any, width: int) -> Any:
    if not isinstance(cell, str):
        return cell
    return "\n".join(one if columns_of(one) <= width else _shortened(one, width) for one in cell.split("\n"))


def _shortened(line: str, width: int) -> str:
    if line.isascii():
        return line[: width - 1].rstrip() + "…"
    from rich.cells import set_cell_size

    return set_cell_size(line, width - 1).rstrip() + "…"


@contextmanager
def progress_bar(what: str, of: str = "messages") -> Iterator[Callable[[int, int | None], None]]:
    """A bar on standard error, given (done, of how many; None: nobody knows), from `BAR_AFTER_S` on; nothing where that
    is no terminal.
    """
    begun, bar, task = time.monotonic(), None, None

    def report(done: int, total: int | None) -> None:
        nonlocal bar, task
        if bar is None:
            if not sys.stderr.isatty() or time.monotonic() - begun < BAR_AFTER_S:
                return
            bar = _bar(what, of)
            bar.start()
            task = bar.add_task(what)
        bar.update(task, completed=done, total=max(done, 1) if done == total else total)

    try:
        yield report
    finally:
        if bar is not None:
            bar.stop()


def _bar(what: str, of: str) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn(of), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()  # None: it is closed


def _wide() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(getattr(context.find_root().obj, "wide", False))


def shown_duration(path: str, content: Any) -> str:
    """A value as tables show it. A duration as JSON has it (`710.96s`): an age in people's units (`11 min 51 s`), and a
    setting as an option takes it (`7d`)."""
    key = path.rpartition(".")[2]
    found = re.fullmatch(r"(\d+)(?:\.(\d+))?s", content) if isinstance(content, str) else None
    if found is None:
        return show(content)
    if key in AGES:
        return lasting(float(content[:-1]))
    return written(int(found[1]), int((found[2] or "").ljust(9, "0"))) if SETTINGS.search(key) else content


def without_empty_columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """The table without the columns that are empty in every row; one without rows keeps all its headings."""
    used = [index for index in range(len(headings)) if not rows or any(row[index] for row in rows)]
    return [headings[index] for index in used], [[row[index] for index in used] for row in rows]


def inform(text: str) -> None:
    """What a command did, on standard error, where it does not mix with an answer."""
    click.echo(text, err=True)


def show(content: Any) -> str:
    """A JSON value in one line of text."""
    if content is None:
        return ""
    if isinstance(content, bool):
        return "yes" if content else "no"
    if isinstance(content, dict):
        return ", ".join(f"{key}={show(value)}" for key, value in sorted(content.items()))  # maps have no order
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
