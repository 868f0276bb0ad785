"""`syncpoint bridge`: messages of other brokers become messages of topics, and the other way.

Place: the outermost room; builds what `programs.bridge` needs from options and the file.
"""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syncpoint.programs.cli.errors import explained_by
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import inform, print_answer
from syncpoint.programs.cli.settings import Settings, with_settings

if TYPE_CHECKING:
    from syncpoint.programs.bridge.bridge_file import BridgeFile
    from syncpoint.programs.bridge.bridge_state import BridgeState
    from syncpoint.programs.bridge.incoming_bridge import BridgeSource
    from syncpoint.programs.bridge.outgoing_bridge import BridgeSink

FILE = click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))


@click.group(cls=Group)
def bridge() -> None:
    """Take messages from MQTT and RabbitMQ into topics, or from subscriptions to them."""


@bridge.command()
@FILE
@with_settings
def validate(settings: Settings, path: Path) -> None:
    """Check FILE, and show its rules.

    \b
    Example:
      syncpoint bridge validate bridge.yaml
    """
    file = _load(path)
    rules = [
        {"from": one.source, "to": one.topic, "key": one.key, "id": one.id, "qos": one.qos if one.filter else ""}
        for one in file.incoming
    ]
    rules += [
        {"from": one.subscription, "to": "/".join(filter(None, (one.exchange, one.target))), "key": "{key}", "id": "",
         "qos": one.qos if file.broker.kind == "mqtt" else ""}
        for one in file.outgoing
    ]  # fmt: skip
    print_answer(
        settings.format,
        rules,
        ["FROM", "TO", "KEY", "ID", "QOS"],
        [[str(one[name]) for name in ("from", "to", "key", "id", "qos")] for one in rules],
    )


@bridge.command()
@FILE
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics, for Prometheus, and /bridge.json here.")
@click.option("--status", type=click.Path(dir_okay=False, path_type=Path), help="Also write this JSON to a file.")
@with_settings
def run(settings: Settings, path: Path, metrics: str | None, status: Path | None) -> None:
    """Run the bridge that FILE describes, until Ctrl-C.

    \b
    Example:
      syncpoint bridge run bridge.yaml --metrics 127.0.0.1:9480
    """
    from syncpoint.programs.probers.board_page import BoardPage
    from syncpoint.wire.transport.network import split_address

    file = _load(path)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # the bridge reports what matters
    made = _made(settings, file)
    page = BoardPage(made, status, "/bridge.json")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: made.stop())
    try:
        if metrics is not None:
            try:
                host, port = split_address(metrics)
            except ValueError as error:
                raise click.UsageError(f"--metrics: {error}") from error
            inform(f"metrics on http://{host}:{page.serve(host, port)}/metrics")
        other = f"{file.broker.host}:{file.broker.port}"
        source, target = (other, settings.endpoint) if file.incoming else (settings.endpoint, other)
        inform(f"running from {source} to {target}")
        made.run(page.renew)
    finally:
        page.close()
    inform("stopped")


def _made(settings: Settings, file: BridgeFile) -> BridgeState:
    from syncpoint.client import BatchSettings, FlowControl, Publisher, Subscriber

    reach = settings.reach()

    def publisher(batch: int) -> Publisher:
        batch_settings = BatchSettings(max_messages=min(batch, file.messages))
        return Publisher(**reach, batch_settings=batch_settings)

    if file.incoming:
        from syncpoint.programs.bridge.incoming_bridge import IncomingBridge

        return IncomingBridge(file, settings.project, _source(file), publisher(100), lambda: publisher(1))
    from syncpoint.programs.bridge.outgoing_bridge import OutgoingBridge

    flow = FlowControl(max_messages=file.messages, max_bytes=file.bytes)
    subscriber = Subscriber(**reach, flow_control=flow)
    return OutgoingBridge(file, settings.project, _sink(file), publisher(1), subscriber)


def _source(file: BridgeFile) -> BridgeSource:
    if file.broker.kind == "mqtt":
        from syncpoint.programs.bridge.mqtt_source import MqttSource

        return MqttSource(file)
    from syncpoint.programs.bridge.rabbit_source import RabbitSource

    return RabbitSource(file)


def _sink(file: BridgeFile) -> BridgeSink:
    if file.broker.kind == "mqtt":
        from syncpoint.programs.bridge.mqtt_sink import MqttSink

        return MqttSink(file)
    from syncpoint.programs.bridge.rabbit_sink import RabbitSink

    return RabbitSink(file)


def _load(path: Path) -> BridgeFile:
    from syncpoint.programs.bridge.bridge_file import load

    with explained_by("bridges", path):
        return load(path)
