"""`syncpoint cluster targets`: where Prometheus finds the metrics of a cluster's processes.

Place: the operator's side of the command line; the cluster's file is read, no process is asked.
Promise: what is printed is what `file_sd_configs` of Prometheus reads: a target for each process that has the key
`metrics`, with its labels. Processes without it are named on standard error.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from syncpoint.programs.cli.cluster import file_option
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.output import inform, print_json

if TYPE_CHECKING:
    from syncpoint.node.cluster.settings import ProcessSettings

_WILDCARDS: Final = ("0.0.0.0", "::")


@click.command()
@file_option
def targets(path: Path) -> None:
    """Print the processes' metrics addresses for Prometheus (`file_sd_configs`).

    \b
    Example:
      syncpoint cluster targets --config cluster.yaml > /etc/prometheus/syncpoint.json
    """
    from syncpoint.node.cluster.settings import load

    processes = load(path).processes.values()
    found = [target(one) for one in processes if one.metrics]
    silent = [one.name for one in processes if not one.metrics]
    if not found:
        raise Problem(
            f"no process in {path} has the key `metrics`",
            'Give each process an address there, such as metrics: "10.0.1.1:9100", and start it again.',
        )
    print_json(found)
    if silent:
        inform(f"Without the key `metrics`, and left out: {', '.join(silent)}")


def target(process: ProcessSettings) -> dict[str, Any]:
    """One entry. A process that listens at all addresses of its machine is called where other processes call it."""
    from syncpoint.wire.transport.network import join_address, split_address

    host, port = split_address(process.metrics)
    if host in _WILDCARDS:
        host, _ = split_address(process.listen)
    labels = {"process": process.name, "roles": ",".join(process.roles), "region": process.region, "zone": process.zone}
    return {
        "targets": [join_address(host, port)],
        "labels": {label: value for label, value in labels.items() if value},
    }
