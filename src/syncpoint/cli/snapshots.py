"""`syncpoint snapshots ...`: keep what a subscription has not acknowledged, to seek back to it.

Place: the subscriber's side of the command line; each command is one call of google.pubsub.v1.Subscriber.
"""

from __future__ import annotations

from itertools import islice

import click

from syncpoint.cli.names import names
from syncpoint.cli.output import as_dict, print_json, print_message, print_messages, said
from syncpoint.cli.settings import Settings, with_settings
from syncpoint.cli.topics import clear_labels, labels_option, remove_labels, require_change, update_labels
from syncpoint.cli.values import change_labels, parse_pairs

COLUMNS = [("NAME", "name"), ("TOPIC", "topic"), ("EXPIRES", "expireTime"), ("LABELS", "labels")]


@click.group()
def snapshots() -> None:
    """Keep what a subscription has not acknowledged, to seek back to it."""


@snapshots.command()
@click.argument("snapshot", nargs=-1, required=True)
@click.option(
    "--subscription",
    shell_complete=names("subscriptions"),
    required=True,
    help="Whose unacknowledged messages to keep.",
)
@labels_option
@with_settings
def create(settings: Settings, snapshot: tuple[str, ...], subscription: str, labels: tuple[str, ...]) -> None:
    """Create one or more snapshots of a subscription.

    \b
    Example:
      syncpoint snapshots create before-deploy --subscription billing
    """
    from syncpoint.wire.messages import pubsub

    made = []
    with settings.client() as client:
        for given in snapshot:
            request = pubsub.CreateSnapshotRequest(
                name=settings.name("snapshots", given),
                subscription=settings.name("subscriptions", subscription),
                labels=parse_pairs(labels, "--labels"),
            )
            made.append(client.call("Subscriber.CreateSnapshot", request))
            said(f"Created snapshot [{made[-1].name}].")
    if settings.format == "json":
        print_json([as_dict(one) for one in made])


@snapshots.command("list")
@click.option("--limit", type=click.IntRange(min=1), help="At most this many.")
@with_settings
def list_all(settings: Settings, limit: int | None) -> None:
    """List the snapshots of a project."""
    from syncpoint.wire.messages import pubsub

    request = pubsub.ListSnapshotsRequest(project=f"projects/{settings.project}")
    with settings.client() as client:
        found = list(islice(client.pages("Subscriber.ListSnapshots", request, "snapshots"), limit))
    print_messages(found, settings.format, COLUMNS)


@snapshots.command()
@click.argument("snapshot", shell_complete=names("snapshots"))
@with_settings
def describe(settings: Settings, snapshot: str) -> None:
    """Show a snapshot."""
    from syncpoint.wire.messages import pubsub

    request = pubsub.GetSnapshotRequest(snapshot=settings.name("snapshots", snapshot))
    with settings.client() as client:
        found = client.call("Subscriber.GetSnapshot", request)
    print_message(found, settings.format)


@snapshots.command()
@click.argument("snapshot", shell_complete=names("snapshots"))
@update_labels
@remove_labels
@clear_labels
@with_settings
def update(
    settings: Settings,
    snapshot: str,
    update_labels: tuple[str, ...],
    remove_labels: tuple[str, ...],
    clear_labels: bool,
) -> None:
    """Change a snapshot's labels."""
    from syncpoint.wire.messages import pubsub

    name = settings.name("snapshots", snapshot)
    request = pubsub.UpdateSnapshotRequest()
    with settings.client() as client:
        current = client.call("Subscriber.GetSnapshot", pubsub.GetSnapshotRequest(snapshot=name))
        request.snapshot.CopyFrom(current)
        if change_labels(request.snapshot.labels, update_labels, remove_labels, clear_labels):
            request.update_mask.paths.append("labels")
        require_change(request.update_mask.paths)
        changed = client.call("Subscriber.UpdateSnapshot", request)
    said(f"Updated snapshot [{name}].")
    if settings.format == "json":
        print_message(changed, "json")


@snapshots.command()
@click.argument("snapshot", nargs=-1, required=True, shell_complete=names("snapshots"))
@with_settings
def delete(settings: Settings, snapshot: tuple[str, ...]) -> None:
    """Delete one or more snapshots; messages kept only for them go."""
    from syncpoint.wire.messages import pubsub

    with settings.client() as client:
        for given in snapshot:
            name = settings.name("snapshots", given)
            client.call("Subscriber.DeleteSnapshot", pubsub.DeleteSnapshotRequest(snapshot=name))
            said(f"Deleted snapshot [{name}].")
