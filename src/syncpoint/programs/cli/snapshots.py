"""`syncpoint snapshots ...`: keep what a subscription has not acknowledged, to seek back to it.

Place: the subscriber's side of the command line; each command is one call of google.pubsub.v1.Subscriber.
"""

from __future__ import annotations

import click

from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import inform, print_answer
from syncpoint.programs.cli.resources import Kind, ResourceGroup, label_changes, labels_option, require_change
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.values import change_labels, parse_pairs

COLUMNS = [("NAME", "name"), ("TOPIC", "topic"), ("EXPIRES", "expireTime"), ("LABELS", "labels")]


@click.group(cls=ResourceGroup)
def snapshots() -> None:
    """Save a subscription's acknowledgement state, to seek back to it."""


SNAPSHOT = Kind("snapshot", "Subscriber", "snapshot", "before-deploy")
SNAPSHOT.add_list(snapshots, COLUMNS)
SNAPSHOT.add_describe(snapshots, "Show a snapshot.")
SNAPSHOT.add_delete(snapshots, "Delete snapshots, and messages that only they retain.")


@snapshots.command()
@click.argument("snapshot", nargs=-1, required=True)
@click.option(
    "--subscription",
    shell_complete=names("subscriptions"),
    required=True,
    help="The subscription to save.",
)
@labels_option
@with_settings
def create(settings: Settings, snapshot: tuple[str, ...], subscription: str, labels: tuple[str, ...]) -> None:
    """Create one or more snapshots of a subscription.

    \b
    Example:
      syncpoint snapshots create before-deploy --subscription billing
    """
    from syncpoint.wire.protobuf.messages import pubsub

    made = []
    with settings.client() as client:
        for given in snapshot:
            request = pubsub.CreateSnapshotRequest(
                name=settings.name("snapshots", given),
                subscription=settings.name("subscriptions", subscription),
                labels=parse_pairs(labels, "--labels"),
            )
            made.append(client.call("Subscriber.CreateSnapshot", request))
            inform(f"Created snapshot [{made[-1].name}].")
    print_answer(settings.format, made)


@snapshots.command()
@click.argument("snapshot", shell_complete=names("snapshots"))
@label_changes
@with_settings
def update(
    settings: Settings,
    snapshot: str,
    update_labels: tuple[str, ...],
    remove_labels: tuple[str, ...],
    clear_labels: bool,
) -> None:
    """Change a snapshot's labels.

    \b
    Example:
      syncpoint snapshots update before-deploy --update-labels release=42
    """
    from syncpoint.wire.protobuf.messages import pubsub

    name = settings.name("snapshots", snapshot)
    request = pubsub.UpdateSnapshotRequest()
    with settings.client() as client:
        current = SNAPSHOT.call(client, "Get", name)
        request.snapshot.CopyFrom(current)
        if change_labels(request.snapshot.labels, update_labels, remove_labels, clear_labels):
            request.update_mask.paths.append("labels")
        require_change(request.update_mask.paths)
        changed = client.call("Subscriber.UpdateSnapshot", request)
    inform(f"Updated snapshot [{name}].")
    print_answer(settings.format, changed)
