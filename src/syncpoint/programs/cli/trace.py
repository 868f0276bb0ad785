"""`syncpoint trace`: the whole path of one message, with times, across regions where a federation copies it.

Place: `client.message_path` reads the records of each server; a federation's targets say where they keep their copies.
Promise: nothing is consumed. What the records do not say is named, never left out in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.model.identity import parse_message_id
from syncpoint.base.model.names import short_id
from syncpoint.base.model.wording import utc_text
from syncpoint.front.client.message_path import Call, RecordedPath, letters_of, recorded_path, topics_of
from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import inform, print_answer, print_table, without_empty_columns
from syncpoint.programs.cli.settings import Settings, with_settings

if TYPE_CHECKING:
    from syncpoint.programs.federation.flow_plan import Flow
    from syncpoint.programs.federation.servers import Servers


@click.command()
@click.argument("message_id")
@click.option(
    "--topic", shell_complete=names("topics"), help="The topic it was published to; by default all topics are searched."
)
@click.option(
    "--federation",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Follow its copies to other servers through the flows of this file.",
)
@with_settings
def trace(settings: Settings, message_id: str, topic: str | None, file: Path | None) -> None:
    """Trace a message: when it was published, persisted, delivered, acknowledged, expired or dead-lettered.

    Its topic must be recorded (`syncpoint topics update TOPIC --records-topic RECORDS`). Times come from the clocks of
    the processes. `syncpoint receipt` shows which disks hold the message now.

    \b
    Examples:
      syncpoint trace 321451587981216777216000000000000 --topic orders
      syncpoint trace 321451587981216777216000000000000 --topic orders --federation federation.yaml
    """
    parse_message_id(message_id)
    with settings.client() as client:
        call: Call = client.call
        found = [settings.name("topics", topic)] if topic else topics_of(call, settings.project, message_id)
        paths = [recorded_path(call, settings.endpoint, found[0], *parse_message_id(message_id)[1:])]
        paths += letters_of(call, paths[0])
    if file is not None:
        paths += _copies(settings, file, paths[0])
    if print_answer(settings.format, {"messageId": message_id, "servers": [asdict(one) for one in paths]}):
        return
    for path in paths:
        _print(path, titled=len(paths) > 1)


def _print(path: RecordedPath, *, titled: bool) -> None:
    if titled:
        click.echo(f"\n{path.server}: {short_id(path.topic)}")
    rows = [
        [utc_text(one.at_us), one.event, one.subscription.rpartition("/")[2], one.detail, one.writer]
        for one in path.events
    ]
    print_table(*without_empty_columns(["TIME", "EVENT", "SUBSCRIPTION", "DETAIL", "BY"], rows))
    for one in path.unknown:
        inform(f"Unknown: {one}")


def _copies(settings: Settings, file: Path, first: RecordedPath) -> Iterator[RecordedPath]:
    """The paths of a message's copies, nearest first."""
    from syncpoint.programs.federation.patterns.registry import links_of
    from syncpoint.programs.federation.servers import Servers
    from syncpoint.programs.federation.spec import load

    with Servers(patience_s=10.0) as servers:
        flows = [one for one in servers.flows(links_of(load(file))) if not one.link.streams]
        here = [one for one in flows if one.source_topic == first.topic]
        begun = [one for one in here if one.link.source.endpoint in (settings.endpoint, *settings.addresses)] or here
        waiting = [(flow, first) for flow in begun]
        seen = {(flow.link.source.name, first.topic) for flow in begun}
        while waiting:
            flow, path = waiting.pop(0)
            target = flow.link.target
            for topic, source, offset in _places(servers, flow, path):
                if (target.name, topic) in seen:
                    continue
                seen.add((target.name, topic))

                def call(method: str, request: Any, target: Any = target) -> Any:
                    return servers.call(target, method, request)

                try:
                    copy = recorded_path(call, target.name, topic, source, offset)
                except FailedPrecondition as error:  # it is there, and goes on from there all the same
                    copy = RecordedPath(target.name, topic, source, offset, unknown=[error.message])
                yield copy
                onwards = [one for one in flows if (one.link.source.name, one.source_topic) == (target.name, topic)]
                waiting += [(one, copy) for one in onwards]


def _places(servers: Servers, flow: Flow, path: RecordedPath) -> Iterator[tuple[str, int, int]]:
    """Where the target of a flow keeps its copies of a message: topic, source and offset."""
    from syncpoint.wire.protobuf.messages import pipeline

    request = pipeline.MapOffsetsRequest(link=flow.name, source=path.source, begin=path.offset, end=path.offset + 1)
    for mapping in servers.call(flow.link.target, "EpochWriter.MapOffsets", request).mappings:
        begin = getattr(mapping, "from").begin
        for one in mapping.to:
            yield one.topic, one.source, one.begin + path.offset - begin
