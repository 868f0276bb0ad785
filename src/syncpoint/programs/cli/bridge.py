"""`syncpoint bridge mqtt`: messages of an MQTT broker become messages of topics.

Place: the outermost room; builds what `programs.bridge` needs from options and the file.
"""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import inform, print_answer
from syncpoint.programs.cli.settings import Settings, with_settings

if TYPE_CHECKING:
    from syncpoint.programs.bridge.bridge_file import BridgeFile

FILE = click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))


@click.group(cls=Group)
def bridge() -> None:
    """Programs that take messages of other brokers into topics."""


@bridge.group(cls=Group)
def mqtt() -> None:
    """Take messages of an MQTT 5 broker into topics."""


@mqtt.command()
@FILE
@with_settings
def validate(settings: Settings, path: Path) -> None:
    """Check FILE, and show its rules.

    \b
    Example:
      syncpoint bridge mqtt validate mqtt.yaml
    """
    rules = _load(path).rules
    print_answer(
        settings.format,
        [{"filter": one.filter, "topic": one.topic, "key": one.key, "id": one.id, "qos": one.qos} for one in rules],
        ["FILTER", "TOPIC", "KEY", "ID", "QOS"],
        [[one.filter, one.topic, one.key, one.id, str(one.qos)] for one in rules],
    )


@mqtt.command()
@FILE
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics, for Prometheus, and /bridge.json here.")
@click.option("--status", type=click.Path(dir_okay=False, path_type=Path), help="Also write this JSON to a file.")
@with_settings
def run(settings: Settings, path: Path, metrics: str | None, status: Path | None) -> None:
    """Run the bridge that FILE describes, until Ctrl-C.

    \b
    Example:
      syncpoint bridge mqtt run mqtt.yaml --metrics 127.0.0.1:9480
    """
    from syncpoint.client import BatchSettings, Publisher
    from syncpoint.programs.bridge.mqtt_driver import MqttBridge
    from syncpoint.programs.probers.board_page import BoardPage
    from syncpoint.wire.transport.network import split_address

    file = _load(path)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    with settings.client() as client:
        publisher = Publisher(
            settings.endpoint,
            tls=client.tls,
            credentials=settings.credentials(),
            batch_settings=BatchSettings(max_messages=min(100, file.messages)),
        )
    made = MqttBridge(file, settings.project, publisher)
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
        inform(f"running from {file.broker.host}:{file.broker.port} to {settings.endpoint}")
        made.run(page.renew)
    finally:
        page.close()
    inform("stopped")


def _load(path: Path) -> BridgeFile:
    from syncpoint.programs.bridge.bridge_file import load

    try:
        return load(path)
    except OSError as error:
        raise Problem(f"{path} cannot be read: {error.strerror}.", "Give the path of a file.") from error
    except InvalidArgument as error:
        raise Problem(f"{path}: {error.message}", "`syncpoint docs mqtt` explains every key.") from error
