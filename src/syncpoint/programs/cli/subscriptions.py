"""`syncpoint subscriptions create|list|describe|update|delete|...`: what a subscription is.

Place: the subscriber's side of the command line; each command is one call of google.pubsub.v1.Subscriber. What is
done with the messages of a subscription (pull, ack, seek) stands in `syncpoint.programs.cli.deliveries`.
"""

from __future__ import annotations

import copy
from typing import Any

import click

from syncpoint.programs.cli import deliveries
from syncpoint.programs.cli.connected import subscription_clients
from syncpoint.programs.cli.dead_letters import dead_letter
from syncpoint.programs.cli.message_transforms import clear_option
from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import as_dict, inform, print_answer, print_described, print_message
from syncpoint.programs.cli.peek import peek_subscription
from syncpoint.programs.cli.resources import (
    Kind,
    OwnOptions,
    ResourceGroup,
    label_changes,
    labels_option,
    require_change,
)
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.subscription_authors import authors
from syncpoint.programs.cli.subscription_options import (
    configuration_options,
    configure,
    configure_push,
    forward_options,
    push_options,
    readable,
    time_to_live_options,
)
from syncpoint.programs.cli.values import change_labels, parse_pairs

COLUMNS = [
    ("NAME", "name"),
    ("TOPIC", "topic"),
    ("ACK_DEADLINE_S", "ackDeadlineSeconds"),
    ("FILTER", "filter"),
    ("ORDERING", "enableMessageOrdering"),
    ("EXACTLY_ONCE", "enableExactlyOnceDelivery"),
]


@click.group(cls=ResourceGroup)
def subscriptions() -> None:
    """Create, change and list subscriptions; pull, acknowledge and seek."""


SUBSCRIPTION = Kind("subscription", "Subscriber", "subscription", "billing")
OWN = OwnOptions(
    SUBSCRIPTION,
    early_delivery="early_delivery",
    suspend="receive_suspended",
    dead_letter_expired="dead_letter_expired",
    dead_letter_rule_errors="dead_letter_rule_errors",
    ttl="ttl",
    forward_to="forward_to",
)
SUBSCRIPTION.add_list(subscriptions, COLUMNS)
SUBSCRIPTION.add_delete(
    subscriptions, "Delete one or more subscriptions, with the messages they have not acknowledged."
)


for verb in (deliveries.pull, deliveries.ack, deliveries.modify_ack_deadline, deliveries.seek, dead_letter):
    subscriptions.add_command(verb)
subscriptions.add_command(peek_subscription, "peek")
subscriptions.add_command(subscription_clients, "clients")
subscriptions.add_command(authors)
shorter = copy.copy(deliveries.modify_ack_deadline)
shorter.hidden = True
subscriptions.add_command(shorter, "modify-ack-deadline")


@subscriptions.command()
@click.argument("subscription", nargs=-1, required=True)
@click.option(
    "--topic",
    shell_complete=names("topics"),
    required=True,
    help="The topic; also projects/P/topics/T of another project.",
)
@click.option("--message-filter", default="", metavar="FILTER", help="Only messages whose attributes match.")
@click.option("--enable-message-ordering", "ordering", is_flag=True, help="Deliver each ordering key in order.")
@configuration_options
@time_to_live_options
@forward_options
@labels_option
@with_settings
def create(
    settings: Settings,
    subscription: tuple[str, ...],
    topic: str,
    message_filter: str,
    ordering: bool,
    labels: tuple[str, ...],
    **chosen: Any,
) -> None:
    """Create one or more subscriptions of a topic. They receive every message published from now on.

    \b
    Examples:
      syncpoint subscriptions create billing --topic orders --ack-deadline 60
      syncpoint subscriptions create europe --topic orders --message-filter 'attributes.region = "eu"'
      syncpoint subscriptions create careful --topic orders --dead-letter-topic failed --max-delivery-attempts 10
      syncpoint subscriptions create onwards --topic orders --forward-to archive
    """
    from syncpoint.wire.protobuf.messages import pubsub

    for option in ("dead_letter_expired", "dead_letter_rule_errors"):
        if chosen[option] and not chosen["dead_letter_topic"]:
            raise click.UsageError(f"--{option.replace('_', '-')} needs --dead-letter-topic.")
    made, options = [], OWN.take(settings, chosen)
    with settings.client() as client:
        for given in subscription:
            request = pubsub.Subscription(
                name=settings.name("subscriptions", given),
                topic=settings.name("topics", topic),
                filter=message_filter,
                enable_message_ordering=ordering,
                labels=parse_pairs(labels, "--labels"),
            )
            configure(request, settings, chosen)
            made.append(client.call("Subscriber.CreateSubscription", request))
            inform(f"Created subscription [{made[-1].name}].")
            if made[-1].state == pubsub.Subscription.RESOURCE_ERROR:
                inform(
                    f"Its messages are not delivered yet: `syncpoint subscriptions describe {given}` shows the reason."
                )
            if options:
                OWN.change(client, made[-1].name, options)
    print_answer(settings.format, made)


@subscriptions.command()
@click.argument("subscription", shell_complete=names("subscriptions"))
@with_settings
def describe(settings: Settings, subscription: str) -> None:
    """Show a subscription's configuration, including Syncpoint's own options.

    \b
    Example:
      syncpoint subscriptions describe billing
    """
    from syncpoint.wire.protobuf.messages import admin

    name = settings.name("subscriptions", subscription)
    with settings.client() as client:
        found = as_dict(SUBSCRIPTION.call(client, "Get", name))
        request = admin.GetSubscriptionStateRequest(subscription=name, ranges_max=1)
        known = client.call("Admin.GetSubscriptionState", request)
    if settings.format != "json":
        found = readable(found)
    known.options.ClearField("subscription")
    print_described(found, as_dict(known.options), settings.format)
    if known.export.advice and not known.delivery_advice:
        inform(f"Nothing is exported: {known.export.state}. {known.export.advice}")
    if known.dead_letter_advice:
        inform(known.dead_letter_advice)
    if known.transform_advice:
        inform(known.transform_advice)
    if known.delivery_advice:
        inform(known.delivery_advice)
        return
    if known.push.last_error:
        inform(f"The last push failed: {known.push.last_error}")
    if known.forward.last_error:
        inform(f"Forwarding is waiting: {known.forward.last_error}")


@subscriptions.command()
@click.argument("subscription", shell_complete=names("subscriptions"))
@with_settings
def state(settings: Settings, subscription: str) -> None:
    """Show a subscription's backlog, outstanding messages and acknowledged positions.

    \b
    Example:
      syncpoint subscriptions state billing
    """
    from syncpoint.wire.protobuf.messages import admin

    request = admin.GetSubscriptionStateRequest(subscription=settings.name("subscriptions", subscription))
    found = settings.call("Admin.GetSubscriptionState", request)
    if settings.format != "json":  # what gateways go by
        for one in found.sources:
            one.ClearField("universe")
            one.ClearField("copies")
    print_message(found, settings.format, with_zeros=True, last=("incarnation", "generation", "sources"))


@subscriptions.command()
@click.argument("subscription", shell_complete=names("subscriptions"))
@configuration_options
@time_to_live_options
@forward_options
@click.option(
    "--clear-forward", "clear_forward_to", is_flag=True, help="Deliver its messages again instead of forwarding them."
)
@click.option("--clear-ttl", is_flag=True, help="Use the topic's time to live.")
@clear_option
@click.option("--clear-dead-letter-policy", is_flag=True, help="Never dead-letter by attempts.")
@click.option("--clear-retry-policy", is_flag=True, help="Redeliver without a pause.")
@click.option(
    "--suspend/--resume",
    "suspend",
    default=None,
    help="Suspend or resume delivery by pulls, streams and pushes. Acknowledgements are always accepted.",
)
@label_changes
@with_settings
def update(
    settings: Settings,
    subscription: str,
    clear_dead_letter_policy: bool,
    clear_retry_policy: bool,
    update_labels: tuple[str, ...],
    remove_labels: tuple[str, ...],
    clear_labels: bool,
    **chosen: Any,
) -> None:
    """Change a subscription. Topic, filter and ordering are fixed when it is created.

    \b
    Example:
      syncpoint subscriptions update billing --ack-deadline 120 --min-retry-delay 5s
    """
    from syncpoint.wire.protobuf.messages import pubsub

    name = settings.name("subscriptions", subscription)
    request = pubsub.UpdateSubscriptionRequest()
    with settings.client() as client:
        # Policies are replaced as a whole, so what is not given is taken from what is there.
        current = SUBSCRIPTION.call(client, "Get", name)
        request.subscription.CopyFrom(current)
        changed = configure(request.subscription, settings, chosen)
        for clear, policy in ((clear_dead_letter_policy, "dead_letter_policy"), (clear_retry_policy, "retry_policy")):
            if clear:
                request.subscription.ClearField(policy)
                changed.append(policy)
        if change_labels(request.subscription.labels, update_labels, remove_labels, clear_labels):
            changed.append("labels")
        options = OWN.take(settings, chosen)
        if not options:
            require_change(changed)
        answer = current
        if changed:
            request.update_mask.paths.extend(dict.fromkeys(changed))
            answer = client.call("Subscriber.UpdateSubscription", request)
        if options:
            OWN.change(client, name, options)
    inform(f"Updated subscription [{name}].")
    print_answer(settings.format, answer)


@subscriptions.command("modify-push-config")
@click.argument("subscription", shell_complete=names("subscriptions"))
@push_options
@with_settings
def modify_push_config(settings: Settings, subscription: str, push_endpoint: str, **chosen: Any) -> None:
    """Replace a subscription's push configuration, or switch to pull.

    \b
    Examples:
      syncpoint subscriptions modify-push-config billing --push-endpoint https://billing.example/orders
      syncpoint subscriptions modify-push-config billing --push-endpoint ""
    """
    from syncpoint.wire.protobuf.messages import pubsub

    name = settings.name("subscriptions", subscription)
    request = pubsub.ModifyPushConfigRequest(subscription=name)
    given = {key: value for key, value in chosen.items() if value is not None}
    configure_push(request.push_config, {"push_endpoint": push_endpoint or "", **given})
    settings.call("Subscriber.ModifyPushConfig", request)
    inform(f"Updated subscription [{name}].")
