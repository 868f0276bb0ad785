"""`syncpoint federation backfill`: a range of one topic that its flow has not copied.

Place: beside `federation`; a job of its own on Spark, while the federation may run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.programs.cli.errors import EXIT_CODES, Problem
from syncpoint.programs.cli.federation_file import file_argument, flow_named, load_file
from syncpoint.programs.cli.output import inform, print_json
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.spark_session import local_spark, master_option


@click.command()
@click.argument("flow")
@file_argument
@click.option("--from", "begin", required=True, help="earliest, a time (2026-01-31T12:00:00Z), or offsets as JSON.")
@click.option(
    "--to", "end", default="latest", show_default=True, help="Where to stop (exclusive): as --from, or latest."
)
@click.option("--dry-run", is_flag=True, help="Dry run: count the missing messages.")
@master_option
@with_settings
def backfill(settings: Settings, flow: str, file: Path, begin: str, end: str, dry_run: bool, master: str) -> None:
    """Copy messages of a range that a FLOW has not copied, such as messages before its `start`.

    Messages that the target is known to have are skipped, so the command can be run again, even after it was killed.
    Messages that the flow will copy by itself are left to it.

    \b
    Example:
      syncpoint federation backfill shop.eu-us.orders --from 2026-01-01T00:00:00Z
    """
    from syncpoint.programs.federation.backfill import Backfill
    from syncpoint.programs.federation.servers import Servers

    settings.called = True
    federation, links = load_file(file)
    with _servers_of(file), Servers() as servers:
        found = flow_named(servers, links, flow, file)
        if found.link.streams:
            raise Problem(
                f"{flow} has a stream at one end; only flows between servers support backfill.",
                "To copy from another `start`, create a task with another name.",
            )
        work = Backfill(servers, found)
        plan = work.plan(begin, end, only_look=dry_run)
        stored = 0
        if plan.messages and not dry_run:
            inform(f"{plan.messages:,} messages of the range are missing at the target or excluded by the flow")
            with (
                tempfile.TemporaryDirectory(prefix="syncpoint-backfill-") as folder,
                local_spark(flow, master) as spark,
            ):
                stored = work.copy(plan, spark, federation.runtime, Path(folder))
    if settings.format == "json":
        print_json({"flow": flow, "missing": plan.messages, "stored": stored})
    elif dry_run:
        inform(f"{plan.messages:,} messages of the range are missing at the target or excluded by {flow}.")
    else:
        inform(f"{stored:,} messages of {flow} were stored; nothing else in the range is missing.")


@contextmanager
def _servers_of(file: Path) -> Iterator[None]:
    """A server that does not answer is one of the file, wherever the command line's own server is."""
    try:
        yield
    except SyncpointError as error:
        if error.code not in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
            raise
        advice = f"Its address is under `clusters` in {file}."
        raise Problem(error.message, advice, exit_code=EXIT_CODES.get(error.code, 1)) from error
